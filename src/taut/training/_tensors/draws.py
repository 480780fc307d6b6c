"""Random numbers that two calls share, so that what they return can be compared."""

from __future__ import annotations

import random
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any, TypeAlias

import numpy as np
import torch

__all__ = ["GENERATORS", "Generator", "restore_state", "same_draws", "state_of"]

_SEED = 20_260_102  # any: two calls that are compared must draw the same


Generator: TypeAlias = torch.Generator | np.random.Generator | np.random.RandomState | random.Random
"""What people draw from, if not from the usual sources."""

GENERATORS = (torch.Generator, np.random.Generator, np.random.RandomState, random.Random)


def state_of(generator: Generator) -> Any:
    """Return the state of a generator."""
    if isinstance(generator, np.random.Generator):
        return generator.bit_generator.state
    if isinstance(generator, random.Random):
        return generator.getstate()
    return generator.get_state()


def restore_state(generator: Generator, state: Any) -> None:
    """Let a generator draw again what it drew after it had this state."""
    if isinstance(generator, np.random.Generator):
        generator.bit_generator.state = state
    elif isinstance(generator, random.Random):
        generator.setstate(state)
    else:
        generator.set_state(state)


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
