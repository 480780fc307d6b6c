"""Examples for a check before the first step: as many as it has, and nothing drawn at random."""

from __future__ import annotations

from typing import Any

from torch.utils.data import default_collate

from taut.training._data.owned_examples import OwnedExamples
from taut.training._tensors.examples import Collate, length

__all__ = ["first_examples"]

_FEWEST = 2  # one example alone says nothing about examples that are mixed


def first_examples(
    dataset: Any,
    expected: float,
    most: int | None,
    collate: Collate | None,
    owned: OwnedExamples | None = None,
) -> Any:
    """Return a collated batch of examples from all over a dataset.

    Args:
        dataset: dataset of examples.
        expected: how many a step looks at.
        most: how many are computed at a time.
        collate: makes a batch of a list.
        owned: examples by owner, where owners are what is drawn; rows of an owner are then next to
            each other.
    """
    examples = length(dataset)
    if owned is not None:
        most = None if most is None else most // owned.each
    wanted = max(round(expected if most is None else min(expected, most)), _FEWEST)
    if owned is not None:
        rows = owned.first_rows(wanted).flatten().tolist()
        return (collate or default_collate)([dataset[place] for place in rows])
    count = min(wanted, examples)
    places = (i * (examples - 1) // max(count - 1, 1) for i in range(count))
    return (collate or default_collate)([dataset[place] for place in places])
