"""Processes that train one model must update it in the same way, or it becomes several."""

from __future__ import annotations

import hashlib
from collections.abc import Iterable
from typing import Any

import torch
from torch import Tensor, nn
from torch.optim import Optimizer

from taut.training._tensors.processes import Processes

__all__ = ["check_same_updates"]


def check_same_updates(
    processes: Processes, optimizer: Optimizer, model: nn.Module, *, sharded: bool = False
) -> None:
    """Refuse processes with another optimizer, other settings of it, or other weights or buffers.

    All get the same gradient, and nobody looks at weights again: replicas that are updated
    differently drift apart, and what is saved is the model of one of them.

    Args:
        processes: processes that train together; all of them call this.
        optimizer: optimizer of this process.
        model: model of this process.
        sharded: whether processes hold different parts of the weights, which are not compared.

    Raises:
        UnsoundConfiguration: in all processes, with what two of them have.
    """
    if processes.group is None:
        return
    processes.check_same("the optimizer and its settings", _settings(optimizer))
    if not sharded:
        processes.check_same("the weights (by their hash)", _digest(model.named_parameters()))
        processes.check_same("the buffers (by their hash)", _digest(model.named_buffers()))


def _settings(optimizer: Optimizer) -> tuple[str, list[dict[str, str]]]:
    groups = [
        {name: shown for name, value in group.items() if (shown := _shown(value)) is not None}
        | {"parameters": str([tuple(p.shape) for p in group["params"]])}
        for group in optimizer.param_groups
    ]
    return type(optimizer).__qualname__, groups


def _shown(value: Any) -> str | None:
    """Return a setting as text; None for what has no value that processes could share."""
    if isinstance(value, Tensor):
        return repr(value.tolist())
    if isinstance(value, tuple) and all(_shown(part) is not None for part in value):
        return repr(tuple(_shown(part) for part in value))
    plain = value is None or isinstance(value, bool | int | float | str)
    return repr(value) if plain else None


def _digest(tensors: Iterable[tuple[str, Tensor]]) -> str:
    found = hashlib.sha256()
    for name, tensor in tensors:
        found.update(name.encode())
        found.update(_bytes(tensor))
    return found.hexdigest()


def _bytes(values: Tensor) -> bytes:
    flat = values.detach().cpu().reshape(-1).contiguous()
    return flat.view(torch.uint8).numpy().tobytes()
