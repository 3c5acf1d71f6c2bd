"""Stage 1: a graph, checked and cleaned, and the operators that act on it."""
