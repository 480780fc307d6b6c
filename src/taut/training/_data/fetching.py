"""Fetching: examples by their places, whole tensors at once, and again after others as a test."""

from __future__ import annotations

import secrets
from collections.abc import Iterator, Mapping
from types import FunctionType, ModuleType
from typing import Any

import numpy as np
import torch
from torch import Tensor
from torch.utils.data import Subset, TensorDataset, default_collate

from taut.errors import UnsoundConfiguration
from taut.training._data.collation import is_same_batch
from taut.training._sampling.sampling import Indices
from taut.training._tensors.draws import GENERATORS, restore_state, same_draws, state_of
from taut.training._tensors.examples import Collate

__all__ = ["WholeTensors", "check_fetching", "empty_batch", "whole_tensors"]

_TRIED = 8  # examples: what remembers others does so for most of them
_TRIALS = 2  # with other random numbers
_DEPTH, _MOST = 4, 1_000
"""How far generators are looked for: a dataset has transforms, which have parts; and how many
things are looked at, since some datasets are lists of millions."""


class WholeTensors:
    """Rows of several tensors, indexed at once.

    Args:
        tensors: their first dimension counts examples.
        places: where the examples of a subset are, None for all.
    """

    def __init__(self, tensors: tuple[Tensor, ...], places: Tensor | None = None) -> None:
        self._tensors = tensors
        self._places = places

    def __call__(self, indices: Indices) -> list[Tensor]:
        """Return the rows of some examples, as torch's loader would collate them."""
        rows = torch.from_numpy(indices)
        if self._places is not None:
            rows = self._places[rows]
        return [tensor.index_select(0, rows.to(tensor.device)) for tensor in self._tensors]


def whole_tensors(dataset: Any, collate: Collate | None) -> WholeTensors | None:
    """Return how to index the tensors of a dataset at once, None if that is not the same."""
    if collate not in (None, default_collate):
        return None
    places: Tensor | None = None
    while type(dataset) is Subset:
        chosen = torch.as_tensor(dataset.indices)
        places = chosen if places is None else chosen[places]
        dataset = dataset.dataset
    return WholeTensors(dataset.tensors, places) if type(dataset) is TensorDataset else None


def empty_batch(dataset: Any, collate: Collate | None) -> Any:
    """Return a batch without rows, in the shape of a batch of one.

    Raises:
        UnsoundConfiguration: if something of that one would remain: it was not sampled.
    """
    return _without_rows((collate or default_collate)([dataset[0]]))


def _without_rows(value: Any) -> Any:
    if value is None or (isinstance(value, Tensor | np.ndarray) and value.ndim > 0):
        return None if value is None else value[:0]
    if isinstance(value, Mapping):
        return {name: _without_rows(part) for name, part in value.items()}
    if isinstance(value, list | tuple):
        if all(isinstance(part, str | bytes | int | float) for part in value):
            return type(value)()
        parts = [_without_rows(part) for part in value]
        return type(value)(*parts) if hasattr(value, "_fields") else type(value)(parts)
    raise UnsoundConfiguration(
        f"no batch without examples can be made of a {type(value).__name__} in a collated batch; "
        "return tensors from collate_fn, or iterate over loader.microbatches() and skip the "
        "forward pass of an empty one"
    )


def check_fetching(dataset: Any, collate: Collate, examples: int) -> None:
    """Refuse a dataset that makes something else of an example after others were fetched.

    Args:
        dataset: dataset of examples, of which some are fetched, after others and after yet others.
        collate: makes a batch of a list of them; here of one.
        examples: how many there are.

    What the dataset and its transforms keep as attributes is put back every time, so that the same
    examples before give the same one; where they do not, it draws from a source of its own, or
    keeps things elsewhere, and nothing can be said.

    Raises:
        UnsoundConfiguration: if an example changes with those before it.
    """
    source = secrets.SystemRandom()
    places = source.sample(range(examples), min(examples, _TRIED))
    half = len(places) // 2
    asked, others = places[:half], places[half:]
    kept = _Kept(dataset)

    def after(shown: list[int], trial: int) -> list[Any]:
        kept.restore()
        with same_draws(trial):
            for place in shown:
                dataset[place]
        found = []
        for place in asked:
            kept.restore_draws()
            with same_draws(trial):
                found.append(collate([dataset[place]]))
        return found

    try:
        for trial in range(_TRIALS):
            one, again, other = (after(shown, trial) for shown in (asked, asked, others))
            if not _same_all(one, again):
                return
            if not _same_all(one, other):
                raise UnsoundConfiguration(
                    "an example of the dataset is another one when it is fetched again after "
                    "others, with the same random numbers: the dataset keeps something of "
                    "examples that it has returned, which would get into the gradients of "
                    "others. Keep nothing of examples, or compute it from public ones; or train "
                    "with unchecked_isolation=True, which the statement repeats"
                )
    finally:
        kept.restore()


def _same_all(one: list[Any], other: list[Any]) -> bool:
    return all(is_same_batch(left, right, 1) for left, right in zip(one, other, strict=True))


class _Kept:
    """What a dataset and its parts have as attributes now, and the states of its generators.

    Args:
        dataset: dataset whose they are.
    """

    def __init__(self, dataset: Any) -> None:
        parts = list(_parts(dataset))
        self._draws = [(part, state_of(part)) for part in parts if isinstance(part, GENERATORS)]
        self._values = [
            (held, held.copy())
            for part in parts
            if isinstance(held := getattr(part, "__dict__", part), dict | list)
            and len(held) <= _MOST
        ]

    def restore(self) -> None:
        """Put all of it back."""
        for held, values in self._values:
            if isinstance(held, list):
                held[:] = values
            else:
                held.clear()
                held.update(values)
        self.restore_draws()

    def restore_draws(self) -> None:
        """Let generators draw again what they drew then."""
        for generator, state in self._draws:
            restore_state(generator, state)


def _parts(whole: Any) -> Iterator[Any]:
    """Yield an object and what it is made of, each once."""
    level, seen = [whole], set[int]()
    for _ in range(_DEPTH):
        found: list[Any] = []
        for part in level:
            if id(part) in seen or len(seen) >= _MOST or isinstance(part, _APART):
                continue
            seen.add(id(part))
            yield part
            if isinstance(part, dict):
                found += list(part.values())[:_MOST]
            elif isinstance(part, list | tuple):
                found += part[:_MOST]
            elif hasattr(part, "__dict__"):
                found += vars(part).values()
        level = found


_APART = (type, ModuleType, FunctionType, Tensor, np.ndarray)
"""What has attributes that are nobody's state, or none of interest."""
