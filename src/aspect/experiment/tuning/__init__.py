"""The search for settings; it sees validation nodes and nothing else."""
