"""Stage 5: losses, one per file, as pure functions."""
