"""Batches as a trainer takes them: inputs and targets, moved and checked."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any

import torch
from torch import Tensor, nn
from torch.nn import functional
from torch.utils import _pytree as pytree

from taut.errors import UnsoundConfiguration

__all__ = [
    "LabelRange",
    "check_finite",
    "check_outputs",
    "check_rows",
    "inputs_and_targets",
    "probed",
]

_PROBED = 4
_LOOKED_AT = 64  # examples among which one with another target is looked for


def inputs_and_targets(batch: Any, device: torch.device | None = None) -> tuple[Any, Any]:
    """Return what the model and what the loss function gets of a collated batch.

    The last element are the targets; a batch of a single tensor has none, and several inputs are
    given by position. An input that is a mapping is given by keyword. A batch that is a mapping
    itself, as those of Hugging Face are, holds the targets as `labels`.
    """
    if isinstance(batch, Mapping):
        named = dict(batch)
        targets = named.pop("labels", None)
        batch = (named, targets)
    if isinstance(batch, Tensor):
        batch = (batch,)
    if not isinstance(batch, tuple | list) or not batch:
        raise ValueError(
            "a batch must be a sequence of inputs and targets or a mapping with labels, got "
            f"{type(batch).__name__}; "
            "return (inputs, targets) from the dataset or from collate_fn"
        )
    if device is not None:
        batch = pytree.tree_map(lambda x: x.to(device) if isinstance(x, Tensor) else x, batch)
    if len(batch) == 1:
        return batch[0], None
    *inputs, targets = batch
    return (inputs[0] if len(inputs) == 1 else tuple(inputs)), targets


def check_rows(inputs: Any, examples: int) -> None:
    """Refuse a batch in which examples were packed into fewer rows, or left out."""
    rows = {len(x) for x in pytree.tree_leaves(inputs) if isinstance(x, Tensor) and x.dim() > 0}
    if rows and rows != {examples}:
        raise UnsoundConfiguration(
            "collate_fn made another number of rows than there are examples: a row is what is "
            "clipped, and must be one example. Examples that are packed into a row see each "
            "other, and one "
            "that is left out moves the others to other rows; pad them instead"
        )


def check_finite(inputs: Any) -> None:
    """Refuse inputs with NaN or infinity."""
    for leaf in pytree.tree_leaves(inputs):
        if isinstance(leaf, Tensor) and leaf.is_floating_point() and not _is_finite(leaf):
            raise ValueError(
                "inputs hold NaN or infinite values, from which nothing can be learned; replace "
                "them or leave these examples out (dataset = Subset(dataset, finite_places))"
            )


def _is_finite(values: Tensor) -> bool:
    if not values.numel():
        return True
    try:  # NaN is the least and the largest of all; `isfinite` takes 20 times as long
        return all(bool(end.isfinite()) for end in values.aminmax())
    except (NotImplementedError, TypeError):  # of types that have no order, such as eight bits
        return bool(values.isfinite().all())


def check_outputs(outputs: Any) -> None:
    """Refuse a model that makes NaN of finite inputs, before a loss is blamed for it."""
    for leaf in pytree.tree_leaves(outputs):
        if isinstance(leaf, Tensor) and leaf.is_floating_point() and leaf.isnan().any():
            raise ValueError(
                "the model's outputs for the first examples that were tried are NaN, though their "
                "inputs are finite; check its initial weights, and logarithms, roots and divisions"
            )


def probed(dataset: Any, examples: int, collate: Callable[[list[Any]], Any]) -> list[Any]:
    """Return a few examples from all over the dataset, with targets that differ if possible.

    Examples in the order of their classes would show a loss function one class alone.
    """
    few = [dataset[i] for i in _spread(examples, _PROBED)]
    first = _target(few[0], collate)
    if len(few) < 2 or any(not _same(first, _target(other, collate)) for other in few[1:]):
        return few
    for place in _spread(examples, _LOOKED_AT):
        other = dataset[place]
        if not _same(first, _target(other, collate)):
            return [*few[:-1], other]
    return few


def _spread(examples: int, count: int) -> list[int]:
    most = min(examples, count)
    return [i * (examples - 1) // max(most - 1, 1) for i in range(most)]


def _target(example: Any, collate: Callable[[list[Any]], Any]) -> Any:
    return inputs_and_targets(collate([example]))[1]


def _same(left: Any, right: Any) -> bool:
    pairs = zip(pytree.tree_leaves(left), pytree.tree_leaves(right), strict=False)
    return all(
        torch.equal(a, b) if isinstance(a, Tensor) and isinstance(b, Tensor) else a is b
        for a, b in pairs
    )


class LabelRange:
    """Checks that labels are classes which the model has an output for.

    Args:
        loss_fn: only that of cross entropy and its kin is about classes.
        outputs: outputs of the model, for a few examples.
    """

    def __init__(self, loss_fn: Any, outputs: Any) -> None:
        self._classes: int | None = None
        self._ignored: int = getattr(loss_fn, "ignore_index", -100)
        about_classes = isinstance(loss_fn, nn.CrossEntropyLoss | nn.NLLLoss) or getattr(
            loss_fn, "func", loss_fn
        ) in (functional.cross_entropy, functional.nll_loss)
        if about_classes and isinstance(outputs, Tensor) and outputs.dim() >= 2:
            self._classes = outputs.shape[1]

    def check(self, targets: Any) -> None:
        """Refuse labels that are no class."""
        if self._classes is None or not isinstance(targets, Tensor) or not targets.numel():
            return
        if targets.is_floating_point():
            return
        counted = targets[targets != self._ignored]
        if counted.numel() and not 0 <= int(counted.min()) <= int(counted.max()) < self._classes:
            raise ValueError(
                f"targets hold labels from {int(counted.min())} to {int(counted.max())}, but the "
                f"model has {self._classes} outputs: labels must be from 0 to {self._classes - 1}; "
                "renumber them or give the model more outputs"
            )
