"""A model without its dropout, for passes that are to be compared."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import Any

from torch import nn
from torch.nn import functional

from taut.training._tensors.function_mode import FunctionMode

__all__ = ["without_dropout"]


@contextmanager
def without_dropout(model: nn.Module) -> Iterator[None]:
    """Let nothing be dropped inside, be it by layers, by functions or within attention.

    Args:
        model: model whose layers with dropout of their own are told so; they are as before at the
            end.
    """
    layers = [m for m in model.modules() if isinstance(m, nn.RNNBase | nn.MultiheadAttention)]
    before = [layer.dropout for layer in layers]
    for layer in layers:
        layer.dropout = 0.0
    try:
        with _NothingDropped():
            yield
    finally:
        for layer, dropout in zip(layers, before, strict=True):
            layer.dropout = dropout


class _NothingDropped(FunctionMode):
    def called(
        self, func: Callable[..., Any], args: tuple[Any, ...], kwargs: dict[str, Any]
    ) -> Any:
        if func in _DROPOUTS:
            return (*args, *kwargs.values())[0]
        if func is functional.scaled_dot_product_attention:
            args, rest = args[:_DROPPED], args[_DROPPED + 1 :]
            kwargs |= dict(zip(("is_causal",), rest, strict=False)) | {"dropout_p": 0.0}
        return func(*args, **kwargs)


_DROPPED = 4  # the place of dropout_p among the arguments of attention

_DROPOUTS = {
    functional.alpha_dropout,
    functional.dropout,
    functional.dropout1d,
    functional.dropout2d,
    functional.dropout3d,
    functional.feature_alpha_dropout,
}
