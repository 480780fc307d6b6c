"""Evaluation of a model on examples that were not trained on."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import torch
from torch import Tensor, nn
from torch.utils.data import DataLoader

from taut._base import validate
from taut.training._data.batches import inputs_and_targets
from taut.training._tensors.examples import LossFunction, apply, batch_size, length

__all__ = ["Evaluation", "evaluate"]


@dataclass(frozen=True)
class Evaluation:
    """How well a model does on some examples.

    Attributes:
        loss: the mean over examples.
        accuracy: the share of examples whose largest output is that of their label; None if
            targets are not classes.
        examples: how many there were.
    """

    loss: float
    accuracy: float | None
    examples: int


@torch.no_grad()
def evaluate(
    model: nn.Module,
    dataset: Any,
    losses: LossFunction,
    *,
    batch: int = 1024,
    collate_fn: Any = None,
    device: torch.device | None = None,
) -> Evaluation:
    """Return loss and accuracy, with the model in evaluation mode."""
    length(dataset)
    size = validate.positive_integer(batch_size=batch)
    total, right, labels, examples = 0.0, 0, 0, 0
    modes = {module: module.training for module in model.modules()}
    model.eval()
    try:
        for part in DataLoader(dataset, batch_size=size, collate_fn=collate_fn):
            inputs, targets = inputs_and_targets(part, device)
            outputs = apply(model, inputs)
            total += float(losses(outputs, targets).double().sum())
            examples += batch_size(inputs)
            if _are_classes(outputs, targets):
                right += int((outputs.argmax(1) == targets).sum())
                labels += targets.numel()
    finally:
        for module, mode in modes.items():
            module.training = mode
    return Evaluation(total / examples, right / labels if labels else None, examples)


def _are_classes(outputs: Any, targets: Any) -> bool:
    return (
        isinstance(outputs, Tensor)
        and isinstance(targets, Tensor)
        and not targets.is_floating_point()
        and outputs.dim() >= 2
        and outputs.shape[:1] + outputs.shape[2:] == targets.shape
    )
