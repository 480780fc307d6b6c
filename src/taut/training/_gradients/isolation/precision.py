"""A model in double precision for the length of a comparison."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import ExitStack, contextmanager
from typing import Any

import torch
from torch import Tensor, nn
from torch.utils import _pytree as pytree
from torch.utils._python_dispatch import TorchDispatchMode

__all__ = ["doubled", "in_double"]

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


class _Wide(TorchDispatchMode):
    """Whoever asks for shorter floats gets doubles."""

    def __torch_dispatch__(
        self, func: Any, types: Any, args: tuple[Any, ...] = (), kwargs: Any = None
    ) -> Any:
        given = kwargs or {}
        if given.get("dtype") in _SHORTER:
            given = {**given, "dtype": torch.float64}
        return func(*args, **given)


def doubled(values: Any) -> Any:
    """Return inputs or targets with floats in double precision."""

    def double(value: Any) -> Any:
        is_short = isinstance(value, Tensor) and value.dtype in _SHORTER
        return value.double() if is_short else value

    return pytree.tree_map(double, values)
