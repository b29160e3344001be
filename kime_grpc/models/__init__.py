"""A checkpoint on disk -> a forward over packed rows. Knows no requests: rows come in, logits go out."""
