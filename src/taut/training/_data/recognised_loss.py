"""What a loss function returns, found out from what the model says about a few examples."""

from __future__ import annotations

import copy
from typing import Any

import torch
from torch import nn
from torch.utils.data import default_collate

from taut.errors import UnsoundConfiguration
from taut.training._data.batches import (
    LabelRange,
    check_finite,
    check_outputs,
    inputs_and_targets,
    probed,
)
from taut.training._data.per_example_loss import per_example
from taut.training._gradients.isolation.memory import check_memory
from taut.training._gradients.layers.spectral_norm import settled_norms
from taut.training._tensors.examples import Collate, LossFunction, apply, copied, length

__all__ = ["recognised"]


def recognised(
    loss_fn: Any,
    model: nn.Module,
    dataset: Any,
    collate_fn: Collate | None,
    device: torch.device | None,
    *,
    unchecked: bool = False,
) -> tuple[LossFunction, LabelRange]:
    """Return the loss of single examples, and which labels it takes.

    Args:
        loss_fn: loss function of examples, or the mean or sum over them.
        model: called once, without a trace in its state.
        dataset: dataset of which a few examples are tried.
        collate_fn: makes a batch of them.
        device: where the batch is moved.
        unchecked: whether examples need not be kept apart.

    Raises:
        UnsoundConfiguration: if the model remembers what it was called with.
        ValueError: for data that model or loss cannot use.
    """
    collate: Any = _unused(collate_fn or default_collate)
    examples = probed(dataset, length(dataset), collate)
    inputs, targets = inputs_and_targets(collate(examples), device)
    check_finite(inputs)
    if not unchecked:
        check_memory(model, apply, inputs)
    state = [*model.named_parameters(), *model.named_buffers()]
    with settled_norms(model), torch.no_grad(), torch.random.fork_rng():
        versions = [tensor._version for _, tensor in state]
        outputs = apply(model, copied(inputs))
    for (name, tensor), version in zip(state, versions, strict=True):
        if tensor._version != version:
            raise UnsoundConfiguration(
                f"the forward pass changed {name!r}: what a model remembers of examples is not "
                "covered by the noise; remove the layer that does it"
            )
    check_outputs(outputs)
    labels = LabelRange(loss_fn, outputs)
    labels.check(targets)
    return per_example(loss_fn, outputs, targets, len(examples)), labels


def _unused(collate: Collate) -> Collate:
    """Return a copy of a function, where it has one: the loader tests what it keeps of batches."""
    try:
        return copy.deepcopy(collate)
    except Exception:
        return collate
