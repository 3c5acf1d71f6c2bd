"""Every method is one file in this folder; its existence is its registration."""
