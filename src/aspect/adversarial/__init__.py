"""The search for small changes of a graph that move its embedding most (ASPECT-S)."""
