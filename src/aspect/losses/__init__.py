"""Losses as pure functions: tensors in, tensors out."""
