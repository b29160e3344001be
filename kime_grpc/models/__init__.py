"""A checkpoint on disk -> a forward over packed rows. Knows no requests: rows come in, logits go out."""

import os

# Read by OpenMP once, when torch is loaded: threads that spin between kernels are many times slower than
# threads that sleep as soon as anything else wants a core.
os.environ.setdefault("OMP_WAIT_POLICY", "passive")
