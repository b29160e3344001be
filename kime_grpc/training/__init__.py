"""Training: labelled questions and a checkpoint in, a checkpoint that answers them better out."""

import kime_grpc.models  # noqa: F401 - prepares the environment before torch is loaded
