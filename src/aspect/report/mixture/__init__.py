"""The page of the demo: what each node of a mixed graph trusts."""
