"""Stages 3 and 4: whom each node trusts, and the blend that follows."""
