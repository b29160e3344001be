"""Pure Python: what a request is, what a row is, what an answer is. No torch, no gRPC."""
