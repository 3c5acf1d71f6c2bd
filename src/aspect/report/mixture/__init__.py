"""The page of the demo: the gate of every node of a mixed graph."""
