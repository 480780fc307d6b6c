"""Settings shared by all tests."""

import os

# One worker of pytest for every core leaves no core to the threads of BLAS, which then spin: the
# tests of accounting took five times the processor time. Set before NumPy is loaded.
for _variable in ("OMP_NUM_THREADS", "OPENBLAS_NUM_THREADS", "MKL_NUM_THREADS"):
    os.environ.setdefault(_variable, "1")

import signal  # noqa: E402
import sys  # noqa: E402

import pytest  # noqa: E402
from hypothesis import settings  # noqa: E402

# The same examples on every run, and no wall-clock deadline: machines differ, results must not.
settings.register_profile("taut", deadline=None, derandomize=True)
settings.load_profile("taut")


# A shell has what it puts into the background ignore interrupts, and children inherit that:
# runs of the tests that are to be stopped by one would go on to their end.
if signal.getsignal(signal.SIGINT) is signal.SIG_IGN:
    signal.signal(signal.SIGINT, signal.default_int_handler)


def _seed_torch():
    if (torch := sys.modules.get("torch")) is not None:
        torch.manual_seed(0)


# Torch's own generator begins at one place in every process, and goes on from test to test: models
# made without a seed depended on which tests had run before, and with several workers on their
# speed. Every module and every test begins anew.


def pytest_collectstart(collector):
    if isinstance(collector, pytest.Module):
        _seed_torch()


@pytest.hookimpl(tryfirst=True)
def pytest_runtest_setup():
    _seed_torch()
