"""Random states that a program may draw from: kept after one run, given back to the other."""

from __future__ import annotations

import copy
import random
import sys
from typing import Any

import numpy as np

from taut.noise import SeededForExperiments

__all__ = ["set_state", "set_states", "state_of", "states"]


def states() -> dict[str, Any]:
    """Return the states of the global generators of Python, NumPy and torch, if it is loaded."""
    found: dict[str, Any] = {"random": random.getstate(), "numpy": np.random.get_state()}  # noqa: NPY002
    if (torch := sys.modules.get("torch")) is not None:
        found["torch"] = torch.get_rng_state()
    return found


def set_states(saved: dict[str, Any]) -> None:
    """Give the global generators the states that they had."""
    random.setstate(saved["random"])
    np.random.set_state(saved["numpy"])  # noqa: NPY002
    if (torch := sys.modules.get("torch")) is None:
        return
    if "torch" in saved:
        torch.set_rng_state(saved["torch"])
    else:  # it was loaded since, and began with a seed of its own
        torch.manual_seed(torch.initial_seed())


def state_of(source: object) -> Any:
    """Return where a generator stands; None if it has no state to go back to."""
    if isinstance(source, SeededForExperiments):
        return source.state_dict()
    if isinstance(source, np.random.Generator):
        return copy.deepcopy(source.bit_generator.state)
    if hasattr(source, "get_state") and hasattr(source, "set_state"):  # of torch
        return source.get_state()
    return None


def set_state(source: Any, state: Any) -> None:
    """Let a generator go on from a state that `state_of` returned."""
    if isinstance(source, SeededForExperiments):
        source.load_state_dict(state)
    elif isinstance(source, np.random.Generator):
        source.bit_generator.state = copy.deepcopy(state)
    elif state is not None:
        source.set_state(state)
