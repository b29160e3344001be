"""`python -m kime_grpc.cli`."""

from kime_grpc.cli import main

main()
