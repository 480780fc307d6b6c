"""Contexts in which calls of torch's functions come by: what they share."""

from __future__ import annotations

from abc import abstractmethod
from collections.abc import Callable
from typing import Any

from torch.overrides import TorchFunctionMode

__all__ = ["FunctionMode"]


class FunctionMode(TorchFunctionMode):
    """Hands every call of a function of torch to `called`, inside of which none comes by."""

    def __torch_function__(
        self,
        func: Callable[..., Any],
        types: Any,
        args: tuple[Any, ...] = (),
        kwargs: dict[str, Any] | None = None,
    ) -> Any:
        return self.called(func, args, dict(kwargs or {}))

    @abstractmethod
    def called(
        self, func: Callable[..., Any], args: tuple[Any, ...], kwargs: dict[str, Any]
    ) -> Any:
        """Return what the function is to return."""
