"""A model in double precision for the length of a comparison."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import ExitStack, contextmanager
from itertools import pairwise
from typing import Any

import torch
from torch import Tensor, nn
from torch.utils import _pytree as pytree
from torch.utils._python_dispatch import TorchDispatchMode

__all__ = ["doubled", "in_double", "nudged"]

_SHORTER = (torch.float32, torch.float16, torch.bfloat16)


@contextmanager
def in_double(model: nn.Module) -> Iterator[None]:
    """Compute in double precision inside; parameters and buffers stay the objects that they are.

    What a model itself casts to single precision, as some do before a softmax, is double as well,
    and autocast is off.
    """
    tensors = [*model.parameters(), *model.buffers()]
    kept = [(tensor, tensor.data) for tensor in tensors if tensor.dtype in _SHORTER]
    default = torch.get_default_dtype()
    with ExitStack() as stack:
        for device in {tensor.device.type for tensor in tensors}:
            stack.enter_context(torch.autocast(device, enabled=False))
        try:
            for tensor, data in kept:
                tensor.data = data.double()
            torch.set_default_dtype(torch.float64)
            with _Wide():  # type: ignore[no-untyped-call]
                yield
        finally:
            torch.set_default_dtype(default)
            for tensor, data in kept:
                tensor.data = data


@contextmanager
def nudged(model: nn.Module, size: float) -> Iterator[None]:
    """Let all weights be a little off inside, each by a share of itself of up to `size`."""
    bits = torch.Generator().manual_seed(0)  # draws of others stay what they are
    kept = [(p, p.data) for p in model.parameters() if p.is_floating_point()]
    try:
        for parameter, data in kept:
            off = torch.rand(data.shape, generator=bits, dtype=torch.float64).to(data.device)
            parameter.data = data * (1 + size * (2 * off - 1))
        yield
    finally:
        for parameter, data in kept:
            parameter.data = data


class _Wide(TorchDispatchMode):
    """Whoever asks for shorter floats gets doubles."""

    def __torch_dispatch__(
        self, func: Any, types: Any, args: tuple[Any, ...] = (), kwargs: Any = None
    ) -> Any:
        given = kwargs or {}
        if func is torch.ops.aten._grouped_mm.default and args[0].dtype == torch.float64:
            return _grouped_product(*args, **given)
        if given.get("dtype") in _SHORTER:
            given = {**given, "dtype": torch.float64}
        return func(*args, **given)


def _grouped_product(
    left: Tensor, right: Tensor, offs: Tensor | None = None, bias: Tensor | None = None, *_: Any
) -> Tensor:
    """Return what `torch.nn.functional.grouped_mm` does, which has no kernel for doubles.

    Mixtures of experts are computed by it. Its groups are rows of the left matrix, columns of the
    right one, or terms of the sums, whichever of the two matrices is not one for every group.
    """
    if offs is None:
        found = left @ right
    else:
        ends = offs.tolist()
        groups = list(enumerate(pairwise([0, *ends])))
        if left.dim() == right.dim() == 2:
            found = torch.stack([left[:, a:b] @ right[a:b] for _, (a, b) in groups])
        elif left.dim() == 2:
            found = left.new_zeros(left.shape[0], right.shape[-1])
            for group, (a, b) in groups:
                found[a:b] = left[a:b] @ right[group]
        else:
            found = left.new_zeros(left.shape[1], right.shape[-1])
            for group, (a, b) in groups:
                found[:, a:b] = left[group] @ right[:, a:b]
    return found if bias is None else found + bias


def doubled(values: Any) -> Any:
    """Return inputs or targets with floats in double precision."""

    def double(value: Any) -> Any:
        is_short = isinstance(value, Tensor) and value.dtype in _SHORTER
        return value.double() if is_short else value

    return pytree.tree_map(double, values)
