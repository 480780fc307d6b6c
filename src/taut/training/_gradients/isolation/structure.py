"""What a model is made of: which modules, in which mode, with which hooks."""

from __future__ import annotations

from typing import Any

from torch import nn
from torch.nn.modules import module as of_all

__all__ = ["structure_of"]

_HOOKS = ("_forward_pre_hooks", "_forward_hooks", "_backward_pre_hooks", "_backward_hooks")
_GLOBAL = ("_global_forward_pre_hooks", "_global_forward_hooks", "_global_backward_hooks")


def structure_of(model: nn.Module) -> tuple[Any, ...]:
    """Return what changes if a module, its mode or one of its hooks is exchanged.

    Objects are named by their addresses, as long as they are held.
    """
    found: list[Any] = [tuple(getattr(of_all, name, {}).values()) for name in _GLOBAL]
    for module in model.modules():
        own = vars(module)
        found.append((module, type(module).forward, own.get("forward"), module.training))
        found.extend(tuple(hooks.values()) for name in _HOOKS if (hooks := own.get(name)))
    return tuple(found)
