"""What every kind of layer leaves behind for its parameters: one short function each."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from typing import Any, TypeAlias

from torch import Tensor, nn
from torch.nn import functional

from taut.training._convolution import Convolution, Geometry
from taut.training._records import OuterProduct, Record, Rows

__all__ = ["Rule", "rule_for"]

Rule: TypeAlias = Callable[[Any, Tensor, Tensor], Iterator[Record]]
"""Takes a layer, its input and the gradient of its output, both with examples first."""

_Conv: TypeAlias = nn.Conv1d | nn.Conv2d | nn.Conv3d
_InstanceNorm: TypeAlias = nn.InstanceNorm1d | nn.InstanceNorm2d | nn.InstanceNorm3d
_ChannelNorm: TypeAlias = _InstanceNorm | nn.GroupNorm


def rule_for(module: nn.Module) -> Rule | None:
    """Return the rule of a layer, or None if it is not known.

    A subclass has the rule of its base only if it does the same: its `forward` must be that of the
    base.
    """
    return _RULES.get(type(module).forward)


def _linear(module: nn.Linear, inputs: Tensor, grads: Tensor) -> Iterator[Record]:
    if module.weight.requires_grad:
        yield OuterProduct(module.weight, _sequence(grads), _sequence(inputs))
    if module.bias is not None and module.bias.requires_grad:
        yield Rows(module.bias, _sequence(grads).sum(1))


def _embedding(module: nn.Embedding, inputs: Tensor, grads: Tensor) -> Iterator[Record]:
    rows = grads.reshape(len(grads), -1, grads.shape[-1])
    places = inputs.reshape(len(inputs), -1).long()
    if module.padding_idx is not None:
        rows = rows.masked_fill((places == module.padding_idx)[..., None], 0.0)
    yield OuterProduct(module.weight, places, rows)


def _convolution(module: _Conv, inputs: Tensor, grads: Tensor) -> Iterator[Record]:
    if module.weight.requires_grad:
        padded, geometry = _padded(module, inputs)
        yield Convolution(module.weight, padded, grads, geometry)
    if module.bias is not None and module.bias.requires_grad:
        yield Rows(module.bias, grads.flatten(2).sum(2))


def _layer_norm(module: nn.LayerNorm, inputs: Tensor, grads: Tensor) -> Iterator[Record]:
    inner = len(module.normalized_shape)
    between = tuple(range(1, grads.dim() - inner))
    if module.weight.requires_grad:
        scaled = functional.layer_norm(inputs, module.normalized_shape, eps=module.eps).mul_(grads)
        yield Rows(module.weight, scaled.sum(between) if between else scaled)
    if module.bias is not None and module.bias.requires_grad:
        yield Rows(module.bias, grads.sum(between) if between else grads)


def _rms_norm(module: nn.RMSNorm, inputs: Tensor, grads: Tensor) -> Iterator[Record]:
    between = tuple(range(1, grads.dim() - len(module.normalized_shape)))
    scaled = functional.rms_norm(inputs, module.normalized_shape, eps=module.eps) * grads
    yield Rows(module.weight, scaled.sum(between) if between else scaled)


def _group_norm(module: nn.GroupNorm, inputs: Tensor, grads: Tensor) -> Iterator[Record]:
    scaled = functional.group_norm(inputs, module.num_groups, eps=module.eps)
    yield from _per_channel(module, scaled, grads)


def _instance_norm(module: _InstanceNorm, inputs: Tensor, grads: Tensor) -> Iterator[Record]:
    scaled = functional.instance_norm(inputs, eps=module.eps)
    yield from _per_channel(module, scaled, grads)


def _per_channel(module: _ChannelNorm, scaled: Tensor, grads: Tensor) -> Iterator[Record]:
    if module.weight.requires_grad:
        yield Rows(module.weight, scaled.mul_(grads).flatten(2).sum(2))
    if module.bias.requires_grad:
        yield Rows(module.bias, grads.flatten(2).sum(2))


def _sequence(values: Tensor) -> Tensor:
    """Return values of shape (batch, ..., width) as (batch, positions, width)."""
    return values[:, None] if values.dim() == 2 else values.flatten(1, -2)


def _padded(module: _Conv, inputs: Tensor) -> tuple[Tensor, Geometry]:
    """Return the inputs with the padding that a plain convolution does not know."""
    padding = module.padding
    if module.padding_mode != "zeros" or isinstance(padding, str):
        mode = "constant" if module.padding_mode == "zeros" else module.padding_mode
        inputs = functional.pad(inputs, module._reversed_padding_repeated_twice, mode=mode)
        padding = (0,) * len(module.stride)
    return inputs, Geometry(module.stride, padding, module.dilation, module.groups)


_RULES: dict[object, Rule] = {
    nn.Linear.forward: _linear,
    nn.Embedding.forward: _embedding,
    nn.Conv1d.forward: _convolution,
    nn.Conv2d.forward: _convolution,
    nn.Conv3d.forward: _convolution,
    nn.LayerNorm.forward: _layer_norm,
    nn.RMSNorm.forward: _rms_norm,
    nn.GroupNorm.forward: _group_norm,
    nn.InstanceNorm1d.forward: _instance_norm,
}
