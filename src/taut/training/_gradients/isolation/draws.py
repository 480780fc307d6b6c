"""Random numbers of a forward pass: the same ones again, or the same one for every example."""

from __future__ import annotations

import random
from collections.abc import Callable, Iterator
from contextlib import ExitStack, contextmanager
from functools import partial
from statistics import NormalDist
from typing import Any

import numpy as np
import torch
from torch import Tensor, nn
from torch.utils import _pytree as pytree
from torch.utils._python_dispatch import TorchDispatchMode

from taut.training._tensors.draws import GENERATORS, restore_state, state_of

__all__ = ["ConstantDraws", "Draws"]


class Draws:
    """The state of every source that a model may draw from, as it is now.

    Args:
        model: generators that its modules keep as attributes belong to it.
    """

    def __init__(self, model: nn.Module) -> None:
        self._own = [
            value
            for module in model.modules()
            for value in vars(module).values()
            if isinstance(value, GENERATORS)
        ]
        self._devices = {p.device for p in model.parameters() if p.device.type == "cuda"}
        self._state = self._now()

    @contextmanager
    def again(self) -> Iterator[None]:
        """Draw the same numbers inside, and go on afterwards as if nothing had been drawn."""
        before = self._now()
        self._set(self._state)
        try:
            yield
        finally:
            self._set(before)

    @property
    def were_used(self) -> bool:
        """Whether something has been drawn since."""
        return any(not _is_same(a, b) for a, b in zip(self._state, self._now(), strict=True))

    def _now(self) -> list[Any]:
        of_devices = [torch.cuda.get_rng_state(device) for device in self._devices]
        usual = torch.get_rng_state(), random.getstate(), np.random.get_state()  # noqa: NPY002
        return [*usual, *of_devices, *map(state_of, self._own)]

    def _set(self, state: list[Any]) -> None:
        of_torch, of_python, of_numpy, *rest = state
        torch.set_rng_state(of_torch)
        random.setstate(of_python)
        np.random.set_state(of_numpy)  # noqa: NPY002
        for device, kept in zip(self._devices, rest, strict=False):
            torch.cuda.set_rng_state(kept, device)
        for source, kept in zip(self._own, rest[len(self._devices) :], strict=True):
            restore_state(source, kept)


def _is_same(one: Any, other: Any) -> bool:
    if isinstance(one, Tensor):
        return torch.equal(one, other)
    if isinstance(one, tuple | list):
        return all(map(_is_same, one, other))
    return bool(np.array_equal(one, other))


MIDDLE, LOWEST, HIGHEST = 0.7, 2.0**-20, 1.0 - 2.0**-20
"""What may stand for all random numbers between zero and one.

Code that does something now and then compares a number with a share: whatever the share, either the
lowest or the highest number lets it. They differ from zero and one, whose logarithms may be taken.
"""


class ConstantDraws(TorchDispatchMode):
    """Every random number of torch is the same inside, so that rows may be any and any many.

    Batches of different sizes draw different numbers for one example; here they do not.

    Args:
        drawn: quantile that is drawn, between zero and one.
    """

    def __init__(self, drawn: float = MIDDLE) -> None:
        super().__init__()  # type: ignore[no-untyped-call]
        self._drawn = drawn

    def __torch_dispatch__(
        self, func: Any, types: Any, args: tuple[Any, ...] = (), kwargs: Any = None
    ) -> Any:
        given = kwargs or {}
        if torch.Tag.nondeterministic_seeded not in func.tags:
            return func(*args, **given)
        name = func.__name__
        if name.startswith("native_dropout"):
            return args[0].clone(), torch.ones_like(args[0], dtype=torch.bool)
        found = func(*args, **given)
        if name.startswith("randperm"):
            order = torch.arange(len(found), dtype=found.dtype, device=found.device)
            return order.roll(1) if self._drawn == HIGHEST else order
        if name.startswith("multinomial"):
            most: Tensor = args[0].argmax(-1, keepdim=True).expand_as(found).clone()
            return most
        is_normal = name.startswith(("randn", "normal"))
        number = _NORMAL.inv_cdf(self._drawn) if is_normal else self._drawn
        pytree.tree_map(partial(_fill, number, is_low=self._drawn <= MIDDLE), found)
        return found


def _fill(number: float, value: Any, *, is_low: bool) -> None:
    if isinstance(value, Tensor) and value.is_floating_point():
        value.fill_(number)
    elif isinstance(value, Tensor) and value.numel():
        end = int(value.min() if is_low else value.max())
        value.fill_(True if value.dtype == torch.bool else end)


@contextmanager
def extreme_draws(drawn: float) -> Iterator[None]:
    """Draw the same quantile again and again inside, from torch, numpy and random alike."""
    with ExitStack() as stack:
        for place, names in _OF_OTHERS.items():
            for name in names:
                known = getattr(place, name)
                stack.callback(setattr, place, name, known)
                setattr(place, name, partial(_constant, known, drawn))
        stack.enter_context(ConstantDraws(drawn))
        yield


_NORMAL = NormalDist()
_OF_OTHERS: dict[Any, tuple[str, ...]] = {
    random: ("random",),
    np.random: ("rand", "random", "random_sample"),
}
"""Functions of the usual generators that return numbers between zero and one."""


def _constant(known: Callable[..., Any], drawn: float, *args: Any) -> Any:
    return known(*args) * 0 + drawn
