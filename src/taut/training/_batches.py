"""Batches as a trainer takes them: inputs and targets, moved and checked."""

from __future__ import annotations

from typing import Any

import torch
from torch import Tensor, nn
from torch.nn import functional
from torch.utils import _pytree as pytree

__all__ = ["LabelRange", "check_finite", "inputs_and_targets"]


def inputs_and_targets(batch: Any, device: torch.device | None = None) -> tuple[Any, Any]:
    """Return what the model and what the loss function gets of a collated batch.

    The last element are the targets; a batch of a single tensor has none, and several inputs are
    given by position. An input that is a mapping is given by keyword.
    """
    if isinstance(batch, Tensor):
        batch = (batch,)
    if not isinstance(batch, tuple | list) or not batch:
        raise ValueError(
            f"a batch must be a sequence of inputs and targets, got {type(batch).__name__}; "
            "return (inputs, targets) from the dataset or from collate_fn"
        )
    if device is not None:
        batch = pytree.tree_map(lambda x: x.to(device) if isinstance(x, Tensor) else x, batch)
    if len(batch) == 1:
        return batch[0], None
    *inputs, targets = batch
    return (inputs[0] if len(inputs) == 1 else tuple(inputs)), targets


def check_finite(inputs: Any) -> None:
    """Refuse inputs with NaN or infinity."""
    for leaf in pytree.tree_leaves(inputs):
        if isinstance(leaf, Tensor) and leaf.is_floating_point() and not leaf.isfinite().all():
            raise ValueError(
                "inputs hold NaN or infinite values, from which nothing can be learned; replace "
                "them or leave these examples out (dataset = Subset(dataset, finite_places))"
            )


class LabelRange:
    """Checks that labels are classes which the model has an output for.

    Args:
        loss_fn: only that of cross entropy and its kin is about classes.
        outputs: of the model, for a few examples.
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
