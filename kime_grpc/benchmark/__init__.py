"""Measurements of this package beside others that run the same checkpoint, for `kime-grpc bench`."""
