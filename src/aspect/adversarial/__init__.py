"""Searches for small changes of a graph that do a model harm (ASPECT-S, RDGI, ARIEL)."""
