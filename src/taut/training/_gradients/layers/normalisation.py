"""Normalisation over channels: each example gets its own copy of the affine map.

All examples are normalised as channels of a single one. Autograd's own backward pass then returns
the gradient of every copy, which is the gradient of an example, at the cost of the plain layer.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import TypeAlias

from torch import Tensor, nn
from torch.nn import functional

from taut.training._gradients.layers.records import Record, Rows, Tap

__all__ = ["group_norm", "instance_norm"]

_InstanceNorm: TypeAlias = nn.InstanceNorm1d | nn.InstanceNorm2d | nn.InstanceNorm3d


def group_norm(module: nn.GroupNorm, tap: Tap, input: Tensor) -> Tensor:  # noqa: A002
    """Return what `nn.GroupNorm` does, tapped at its affine map."""
    return _normalised(module, tap, input, module.num_groups)


def instance_norm(module: _InstanceNorm, tap: Tap, input: Tensor) -> Tensor:  # noqa: A002
    """Return what `nn.InstanceNorm` does without running statistics, tapped at its affine map."""
    module._check_input_dim(input)
    return _normalised(module, tap, input, module.num_features)


def _normalised(
    module: nn.GroupNorm | _InstanceNorm, tap: Tap, inputs: Tensor, groups: int
) -> Tensor:
    batch, channels, *size = inputs.shape
    if batch == 0:
        return inputs
    weight, bias = _copies(module.weight, batch, tap), _copies(module.bias, batch, tap)
    flat = inputs.reshape(1, batch * channels, *size)
    scaled = functional.group_norm(flat, batch * groups, weight, bias, module.eps)
    return scaled.view(inputs.shape)


def _copies(parameter: Tensor | None, batch: int, tap: Tap) -> Tensor | None:
    if parameter is None:
        return None

    def records(grads: Tensor) -> Iterator[Record]:
        if parameter.requires_grad:
            yield Rows(parameter, grads)

    return tap(parameter.repeat(batch, 1), records).view(-1)
