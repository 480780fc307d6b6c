"""Random numbers that two calls share, so that what they return can be compared."""

from __future__ import annotations

import random
from collections.abc import Iterator
from contextlib import contextmanager

import numpy as np
import torch

__all__ = ["same_draws"]

_SEED = 20_260_102  # any: two calls that are compared must draw the same


@contextmanager
def same_draws(trial: int = 0) -> Iterator[None]:
    """Seed the usual sources inside, and leave them as they were."""
    of_python, of_numpy = random.getstate(), np.random.get_state()  # noqa: NPY002
    with torch.random.fork_rng():
        torch.manual_seed(_SEED + trial)
        random.seed(_SEED + trial)
        np.random.seed(_SEED + trial)  # noqa: NPY002
        try:
            yield
        finally:
            random.setstate(of_python)
            np.random.set_state(of_numpy)  # noqa: NPY002
