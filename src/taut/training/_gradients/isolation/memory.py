"""Whether a model keeps something of the first examples that it sees, and uses it later.

A mean of the first batch that is subtracted from all later ones, say: from then on it is the same
for everybody, so that no exchange of examples finds it. Copies of a model that has seen nothing
are shown different examples, and then the same ones.
"""

from __future__ import annotations

import copy
import weakref
from collections.abc import Callable
from functools import partial
from itertools import chain
from typing import Any, TypeAlias

import torch
from torch import Tensor, nn
from torch.utils import _pytree as pytree

from taut.errors import UnsoundConfiguration
from taut.training._gradients.isolation.company import Company, rows_of
from taut.training._gradients.isolation.draws import Draws
from taut.training._gradients.layers.spectral_norm import settled_norms
from taut.training._gradients.unchanged_state import State
from taut.training._tensors.examples import batch_size, copied

__all__ = ["check_memory", "is_large", "memory_test"]

Call: TypeAlias = Callable[[nn.Module, Any], Any]
"""Calls a model with inputs."""

_FEW, _FEWEST = 4, 2  # examples that are shown; those of large models
_LARGE = 2**24  # parameters: from here on every example takes a noticeable time
_SAME = 1e-5  # of an output: means of examples move it by much more, a repeated pass by nothing

_OF_ONE = Company((-2.0, 3.0))
"""All but one are copies of it, turned round and longer: no statistic of examples stays as it is,
but that of the largest, or the least, if it is this one's; so there is another one who stays."""

_SEEN: weakref.WeakSet[nn.Module] = weakref.WeakSet()


def check_memory(model: nn.Module, call: Call, inputs: Any) -> None:
    """Refuse a model whose outputs depend on what it was shown first.

    Args:
        model: model that was not called yet; it stays so.
        call: calls a model with inputs.
        inputs: inputs of a few examples; one alone shows nothing.

    Copies share parameters and buffers, which others watch. Models that cannot be copied, or do not
    take other values, are not tested.

    Raises:
        UnsoundConfiguration: if outputs differ.
    """
    test = memory_test(model, call, inputs)
    if test is not None:
        test()


def memory_test(model: nn.Module, call: Call, inputs: Any) -> Callable[[], None] | None:
    """Return the test of `check_memory`, for a later time, with copies that are made now.

    What a model keeps of its first batch gets into gradients from the second one on.

    Args:
        model: model that was not called yet; it stays so.
        call: calls a model with inputs.
        inputs: inputs of a few examples; one alone shows nothing.

    Returns:
        the test, None for a model that was tested, or cannot be.
    """
    batch = batch_size(inputs)
    if model in _SEEN or batch < _FEWEST:
        return None
    _SEEN.add(model)
    large = is_large(model)
    count = min(batch, _FEWEST if large else _FEW)
    few = rows_of(inputs, torch.arange(count), batch)
    others = [_OF_ONE.of(few, torch.arange(count) == place) for place in (0, count - 1)]
    # Every pass over a large model counts: others are other than each other, too.
    first = others if large else [few, *others]
    asked = copied(rows_of(few, torch.arange(1), count) if large else few)
    try:
        with settled_norms(model):  # copies would go on with vectors that they share
            fresh = [_copy(model) for _ in first]
    except Exception:
        return None
    return partial(_compare, model, call, list(zip(fresh, first, strict=True)), asked)


def is_large(model: nn.Module) -> bool:
    """Return whether every example that is taken through a model takes a noticeable time."""
    return sum(p.numel() for p in model.parameters()) > _LARGE


def _copy(model: nn.Module) -> nn.Module:
    kept = chain(model.parameters(), model.buffers())
    return copy.deepcopy(model, {id(tensor): tensor for tensor in kept})


def _compare(model: nn.Module, call: Call, shown: list[tuple[nn.Module, Any]], asked: Any) -> None:
    draws = Draws(model)
    try:
        with State(model).unchanged(), torch.no_grad():
            own, *found = (_after(fresh, call, one, asked, draws) for fresh, one in shown)
    except UnsoundConfiguration:
        raise
    except Exception:
        return
    if not all(all(map(_is_same, own, other)) for other in found):
        raise UnsoundConfiguration(
            "what the model makes of an example depends on which examples it was called with "
            "first: it keeps something of them, such as their mean, and no noise covers that. "
            "Compute it from public examples before training, or from every example alone; or "
            "train with unchecked_isolation=True, which the statement repeats"
        )


def _after(fresh: nn.Module, call: Call, shown: Any, asked: Any, draws: Draws) -> list[Any]:
    """Return what a model makes of examples, after others were shown to it."""
    for given in (shown, asked):
        with draws.again():
            outputs = call(fresh, copied(given))
    return pytree.tree_leaves(outputs)


def _is_same(one: Any, two: Any) -> bool:
    if not isinstance(one, Tensor) or not isinstance(two, Tensor):
        return True
    if one.shape != two.shape:
        return False
    if not one.is_floating_point():
        return torch.equal(one, two)
    a, b = one.float().nan_to_num(), two.float().nan_to_num()
    return bool((a - b).norm() <= _SAME * a.norm())
