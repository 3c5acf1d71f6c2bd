"""Stage 6: the one loop, and what it leaves on disk."""
