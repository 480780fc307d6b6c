"""What every kind of layer leaves behind for its parameters: one short function each."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from typing import Any, TypeAlias, cast

from torch import Tensor, nn
from torch.nn import functional

from taut.errors import UnsoundConfiguration
from taut.training._gradients.layers.convolution import Convolution, Geometry
from taut.training._gradients.layers.records import OuterProduct, Record, Rows
from taut.training._gradients.layers.standardised import Standardised, StandardisedConv2d

__all__ = ["Rule", "linear_records", "rule_for"]

Rule: TypeAlias = Callable[[Any, Tensor, Tensor], Iterator[Record]]
"""Takes a layer, its input and the gradient of its output, both with examples first."""

_Conv: TypeAlias = nn.Conv1d | nn.Conv2d | nn.Conv3d
_ConvTranspose: TypeAlias = nn.ConvTranspose1d | nn.ConvTranspose2d | nn.ConvTranspose3d


def rule_for(module: nn.Module) -> Rule | None:
    """Return the rule of a layer, or None if it is not known.

    A subclass has the rule of its base only if it does the same: its `forward` must be that of the
    base, and its parameters must be the weight and the bias.
    """
    names = module._parameters.keys()
    if "forward" in vars(module) or "weight" not in names or names - {"weight", "bias"}:
        return None
    return _RULES.get(type(module).forward)


def linear_records(
    weight: Tensor,
    bias: Tensor | None,
    inputs: Tensor,
    grads: Tensor,
    shared: list[Tensor] | None = None,
) -> Iterator[Record]:
    """Yield the records of an affine map, both tensors of shape (batch, ..., width).

    Maps with the same gradients have one empty list for what they share.
    """
    left = _sequence(grads)
    if weight.requires_grad:
        yield OuterProduct(weight, left, _sequence(inputs).to(grads.dtype), shared)
    if bias is not None and bias.requires_grad:
        yield Rows(bias, left.sum(1))


def _linear(module: nn.Linear, inputs: Tensor, grads: Tensor) -> Iterator[Record]:
    return linear_records(module.weight, module.bias, inputs, grads)


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


def _transposed(module: _ConvTranspose, inputs: Tensor, grads: Tensor) -> Iterator[Record]:
    """Yield the records of a transposed convolution, the adjoint of a convolution.

    The weight sees inputs and gradients in exchanged roles. Where the output was made larger, the
    convolution of its gradient has more places than the input: those met nothing.
    """
    if module.weight.requires_grad:
        padding = cast("tuple[int, ...]", module.padding)  # words are for the other direction
        geometry = Geometry(module.stride, padding, module.dilation, module.groups)
        sizes = geometry.places(grads.shape[2:], module.kernel_size)
        more = [m - n for m, n in zip(sizes, inputs.shape[2:], strict=True)]
        if any(more):
            inputs = functional.pad(inputs, [n for m in reversed(more) for n in (0, m)])
        yield Convolution(module.weight, grads, inputs, geometry)
    if module.bias is not None and module.bias.requires_grad:
        yield Rows(module.bias, grads.flatten(2).sum(2))


def _standardised(module: StandardisedConv2d, inputs: Tensor, grads: Tensor) -> Iterator[Record]:
    for record in _convolution(module, inputs, grads):
        yield Standardised(record) if record.parameter is module.weight else record


def _layer_norm(module: nn.LayerNorm, inputs: Tensor, grads: Tensor) -> Iterator[Record]:
    between = _between(module, grads)
    if module.weight.requires_grad:
        scaled = functional.layer_norm(inputs, module.normalized_shape, eps=module.eps).mul_(grads)
        yield Rows(module.weight, scaled.sum(between) if between else scaled)
    if module.bias is not None and module.bias.requires_grad:
        yield Rows(module.bias, grads.sum(between) if between else grads)


def _rms_norm(module: nn.RMSNorm, inputs: Tensor, grads: Tensor) -> Iterator[Record]:
    between = _between(module, grads)
    scaled = functional.rms_norm(inputs, module.normalized_shape, eps=module.eps) * grads
    yield Rows(module.weight, scaled.sum(between) if between else scaled)


def _between(module: nn.LayerNorm | nn.RMSNorm, grads: Tensor) -> tuple[int, ...]:
    """Return the axes between that of examples and those that are normalised."""
    inner = len(module.normalized_shape)
    if grads.dim() <= inner:
        raise UnsoundConfiguration(
            f"{type(module).__name__} with normalized_shape={tuple(module.normalized_shape)} was "
            f"given {tuple(grads.shape)} and normalises over the examples; give it the shape of "
            "one example"
        )
    return tuple(range(1, grads.dim() - inner))


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
    nn.ConvTranspose1d.forward: _transposed,
    nn.ConvTranspose2d.forward: _transposed,
    nn.ConvTranspose3d.forward: _transposed,
    StandardisedConv2d.forward: _standardised,
    nn.LayerNorm.forward: _layer_norm,
    nn.RMSNorm.forward: _rms_norm,
}
