"""Watches one pass for what a tape cannot see: parameters at work outside of their layers."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from typing import Any

import torch
from torch import Tensor, nn
from torch.utils import _pytree as pytree

from taut.errors import UnsoundConfiguration
from taut.training._tensors.function_mode import FunctionMode

__all__ = ["watched"]


@contextmanager
def watched(model: nn.Module, owners: Mapping[Tensor, list[nn.Module]]) -> Iterator[None]:
    """Refuse, at the end, a pass that used parameters elsewhere.

    Args:
        model: model whose pass it is.
        owners: layers of every trainable parameter whose calls are recorded.
    """
    names: dict[Tensor, str] = {parameter: name for name, parameter in model.named_parameters()}
    watch = _Watch(owners)
    layers = {module for modules in owners.values() for module in modules}
    hooks = [module.register_forward_pre_hook(watch.enter, prepend=True) for module in layers]
    hooks += [module.register_forward_hook(watch.leave, always_call=True) for module in layers]
    try:
        with watch:
            yield
    finally:
        for hook in hooks:
            hook.remove()
    for stray in watch.strays:
        raise UnsoundConfiguration(
            f"parameter {names[stray]!r} is used outside of the call of its layer, where its "
            "per-example gradients cannot be seen; call the layer itself, freeze the parameter, or "
            "use backend='materialised' with accumulate_batch"
        )


_NO_GRADIENT = {
    Tensor.detach, Tensor.data.__get__,  # type: ignore[attr-defined]
    Tensor.new_empty, Tensor.new_full, Tensor.new_ones,
    Tensor.new_tensor, Tensor.new_zeros, torch.empty_like, torch.full_like, torch.ones_like,
    torch.rand_like, torch.randn_like, torch.zeros_like,
}  # fmt: skip
_BY_EXAMPLE = {Tensor.expand_as, Tensor.reshape_as, Tensor.to, Tensor.type_as, Tensor.view_as}
"""Functions that read no more than the kind of their second argument."""


class _Watch(FunctionMode):
    def __init__(self, owners: Mapping[Tensor, list[nn.Module]]) -> None:
        super().__init__()
        self._owners = owners
        self._running: list[nn.Module] = []
        self.strays: list[Tensor] = []

    def enter(self, module: nn.Module, _: Any) -> None:
        self._running.append(module)

    def leave(self, module: nn.Module, _: Any, __: Any) -> None:
        self._running.remove(module)

    def called(
        self, func: Callable[..., Any], args: tuple[Any, ...], kwargs: dict[str, Any]
    ) -> Any:
        result = func(*args, **kwargs)
        if torch.is_grad_enabled() and func not in _NO_GRADIENT and _is_new(result):
            for given in pytree.tree_leaves(args[:1] if func in _BY_EXAMPLE else (args, kwargs)):
                if isinstance(given, nn.Parameter) and self._is_stray(given, result):
                    self.strays.append(given)
        return result

    def _is_stray(self, given: nn.Parameter, result: object) -> bool:
        owners = self._owners.get(given)
        if owners is None or result is given:
            return False
        return not any(owner in self._running for owner in owners)


def _is_new(result: object) -> bool:
    leaves = pytree.tree_leaves(result)
    return any(isinstance(leaf, Tensor) and leaf.is_floating_point() for leaf in leaves)
