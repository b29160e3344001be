"""The service over gRPC: a core that knows no transport, and thin adapters around it."""
