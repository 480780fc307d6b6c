"""Settings shared by all tests."""

import os

# One worker of pytest for every core leaves no core to the threads of BLAS, which then spin: the
# tests of accounting took five times the processor time. Set before NumPy is loaded.
for _variable in ("OMP_NUM_THREADS", "OPENBLAS_NUM_THREADS", "MKL_NUM_THREADS"):
    os.environ.setdefault(_variable, "1")

from hypothesis import settings  # noqa: E402

# The same examples on every run, and no wall-clock deadline: machines differ, results must not.
settings.register_profile("taut", deadline=None, derandomize=True)
settings.load_profile("taut")
