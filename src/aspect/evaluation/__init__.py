"""Stage 7: what embeddings are worth, judged by labels that no method has seen."""
