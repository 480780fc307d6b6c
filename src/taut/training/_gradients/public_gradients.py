"""Gradients of public examples, one by one: what subspaces and bounds are made from."""

from __future__ import annotations

from typing import Any

import numpy as np
import torch
from torch import nn

from taut._base.public_vectors import Rows
from taut.training._gradients.apart.materialised import Materialised
from taut.training._gradients.suitable import check_model
from taut.training._tensors.examples import LossFunction

__all__ = ["public_gradients"]


def public_gradients(model: nn.Module, inputs: Any, targets: Any, loss_fn: LossFunction) -> Rows:
    """Return the gradient of every example, unclipped and without noise: for public examples only.

    Args:
        model: what will be trained.
        inputs: inputs of public examples: one tensor, or a tuple or mapping of arguments.
        targets: targets for the loss function; random labels are enough if the inputs have none.
        loss_fn: takes outputs and targets, and returns one loss per example.

    Returns:
        One row per example, the model's trainable parameters in the order of `named_parameters()`.

    **Guarantee**: none. What it returns for private examples must not be looked at.

    Example:
        >>> import torch
        >>> from torch.nn.functional import cross_entropy
        >>> from taut.training import public_gradients
        >>> x, y = torch.randn(7, 4), torch.zeros(7, dtype=torch.long)
        >>> public_gradients(
        ...     torch.nn.Linear(4, 2), x, y, lambda o, t: cross_entropy(o, t, reduction="none")
        ... ).shape
        (7, 10)
    """
    check_model(model)
    parameters = [parameter for parameter in model.parameters() if parameter.requires_grad]
    parts = [
        torch.cat([records[parameter].rows(slice(None)) for parameter in parameters], 1).cpu()
        for records, _ in Materialised(model).records(inputs, targets, loss_fn)
    ]
    return np.asarray(torch.cat(parts).numpy())
