"""Embeddings whose weights are stacked by example, with padding that no example trains."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import torch
from torch import Tensor
from torch.nn import functional

from taut.training._tensors.function_mode import FunctionMode

__all__ = ["PaddingApart"]


class PaddingApart(FunctionMode):
    """Keeps the padding of an embedding out of every example's gradient.

    Where weights have a row for every example, `torch.vmap` takes `padding_idx` for a row of all of
    them one below the other, and so leaves it out for the first example alone.
    """

    def called(
        self, func: Callable[..., Any], args: tuple[Any, ...], kwargs: dict[str, Any]
    ) -> Any:
        return (_embedding if func is functional.embedding else func)(*args, **kwargs)


def _embedding(
    input: Tensor,  # noqa: A002
    weight: Tensor,
    padding_idx: int | None = None,
    *args: Any,
    **kwargs: Any,
) -> Tensor:
    found = functional.embedding(input, weight, None, *args, **kwargs)
    if padding_idx is None:
        return found
    is_padding = (input == padding_idx % len(weight))[..., None]
    return torch.where(is_padding, found.detach(), found)
