"""The in-process engine: one model on one device, answering many callers through shared batches."""

import kime_grpc.models  # noqa: F401 - prepares the environment before torch is loaded
