"""How many rows a model can take at once in the memory that is free, by a trial with zeros.

What a pass keeps for the way back is counted as autograd saves it, on rows of zeros in the shape of
one example. Neither values nor numbers of examples that a step has drawn play a part.
"""

from __future__ import annotations

import os
from pathlib import Path
from typing import Any

import torch
from torch import Tensor, nn
from torch.utils import _pytree as pytree

from taut.training._tensors.examples import apply

__all__ = ["free_memory", "rows_at_once", "saved_bytes"]

_SHARE = 0.25
"""What passes may take of the memory that is free: the first step runs its batch again, and other
programs want some."""

_KEPT_BESIDE = 2.0
"""What a tape holds, relative to what autograd saves: beside the inputs of layers, the gradients of
their outputs, which are as large."""

_UNKNOWN = 2**31
"""Free memory where nobody says how much there is: what the smallest machines have."""


def rows_at_once(model: nn.Module, inputs: Any, processes: int = 1) -> int:
    """Return how many rows fit into a share of the memory that is free, at least one.

    Args:
        model: model on the device where it is trained.
        inputs: inputs of one example on that device, with an axis of one; only shapes and types
            count.
        processes: number of processes that share the memory.

    Raises:
        ValueError: if the model does not take zeros.
    """
    device = next(model.parameters()).device
    try:
        one, two = (saved_bytes(model, inputs, rows) for rows in (1, 2))
    except Exception as error:
        raise ValueError(
            "max_physical_batch_size='auto' tries the model with zeros in the shape of an example, "
            f"which raised {type(error).__name__}: {error}; give a number of rows instead"
        ) from error
    each = max(_KEPT_BESIDE * (two - one), 1.0)
    return max(int(_SHARE * free_memory(device) / processes / each), 1)


def saved_bytes(model: nn.Module, inputs: Any, rows: int) -> int:
    """Return the bytes that a pass with so many rows of zeros keeps, with the model's own."""
    made_up = pytree.tree_map(
        lambda value: (
            value.new_zeros(rows, *value.shape[1:])
            if isinstance(value, Tensor) and value.dim() > 0
            else value
        ),
        inputs,
    )
    kept: dict[int, int] = {}

    def keep(value: Tensor) -> Tensor:
        storage = value.untyped_storage()
        kept[storage.data_ptr()] = storage.nbytes()
        return value

    was_training = [module for module in model.modules() if module.training]
    model.eval()  # so that nothing is drawn, and no statistic of a layer moves
    try:
        with (
            torch.enable_grad(),
            torch.autograd.graph.saved_tensors_hooks(keep, lambda value: value),
        ):
            outputs = apply(model, made_up)
            for value in pytree.tree_leaves(outputs):
                if isinstance(value, Tensor):
                    keep(value)
    finally:
        for module in was_training:
            module.training = True
    return sum(kept.values())


def free_memory(device: torch.device) -> int:
    """Return the bytes that are free where a device keeps its tensors."""
    if device.type == "cuda":
        return int(torch.cuda.mem_get_info(device)[0])
    found = [_available(), _left_in_container()]
    return min((size for size in found if size is not None), default=_UNKNOWN)


def _available() -> int | None:
    try:
        lines = Path("/proc/meminfo").read_text().splitlines()
        sizes = dict(line.split(":") for line in lines)
        return int(sizes["MemAvailable"].split()[0]) * 1024
    except (OSError, KeyError, ValueError):
        pass
    try:
        return os.sysconf("SC_AVPHYS_PAGES") * os.sysconf("SC_PAGE_SIZE")
    except (AttributeError, OSError, ValueError):
        return None


def _left_in_container() -> int | None:
    """Return what the limit of a container leaves, None without one."""
    place = Path("/sys/fs/cgroup")
    try:
        limit, used = ((place / name).read_text() for name in ("memory.max", "memory.current"))
        return None if limit.strip() == "max" else max(int(limit) - int(used), 0)
    except (OSError, ValueError):
        return None
