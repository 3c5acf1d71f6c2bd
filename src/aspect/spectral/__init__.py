"""Stage 2: a graph seen through low-pass and high-pass filters."""
