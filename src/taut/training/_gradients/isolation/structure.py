"""What a model is made of: which modules, in which mode, with which hooks and attributes.

All of it is looked at before every batch, so that it has to be quick: a few calls of C for each
module, no more.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable
from itertools import chain, repeat
from operator import attrgetter
from typing import Any

from torch import nn
from torch.nn.modules import module as of_all

__all__ = ["Attributes", "Structure"]

_HOOKS = (
    "_forward_pre_hooks",
    "_forward_hooks",
    "_backward_pre_hooks",
    "_backward_hooks",
)
_GLOBAL = ("_global_forward_pre_hooks", "_global_forward_hooks", "_global_backward_hooks")

_joined = chain.from_iterable
_forward_of_class = attrgetter("__class__.forward")
_mode = attrgetter("training")  # a compiled module has none of its own: it asks the one inside


class Structure:
    """The modules of a model, their modes and their hooks, as they are now.

    Args:
        model: what is trained.
    """

    def __init__(self, model: nn.Module) -> None:
        self._modules = list(model.modules())
        self._own = list(map(vars, self._modules))
        self._children = [own["_modules"] for own in self._own]
        of_modules = [own[name] for own in self._own for name in _HOOKS]
        self._hooks = [*of_modules, *(getattr(of_all, name, {}) for name in _GLOBAL)]
        self._known = self._now()

    def has_changed(self) -> bool:
        """Whether a module, its mode or one of its hooks was exchanged since."""
        return self._now() != self._known

    def _now(self) -> list[Any]:
        return [
            [*_joined(map(dict.values, self._children))],
            [*_joined(self._hooks)],  # their keys: each is given once
            [*map(_mode, self._modules)],
            [*map(_forward_of_class, self._modules)],
            [*map(dict.get, self._own, repeat("forward"))],
        ]


class Attributes:
    """What modules keep beside parameters and buffers, such as the number of an epoch.

    Args:
        model: model whose modules they are.
    """

    def __init__(self, model: nn.Module) -> None:
        self._own = list(map(vars, model.modules()))
        self._known = self._now()
        self._by_name = self._named()
        self._changes: Counter[tuple[int, str]] = Counter()

    def changed(self) -> bool:
        """Return whether one has changed since, unless it does so all the time.

        What changes with every call would be news before every batch: the first, second, fourth,
        eighth change of an attribute is told, and so on.
        """
        now = self._now()
        if now == self._known:
            return False
        named = self._named()
        self._known, before, self._by_name = now, self._by_name, named
        news = [self._is_news(place) for place in _differing(before, named)]
        return any(news)

    def _is_news(self, place: tuple[int, str]) -> bool:
        self._changes[place] += 1
        times = self._changes[place]
        return times & (times - 1) == 0

    def _now(self) -> list[int]:
        return [*map(id, _joined(map(dict.values, self._own)))]

    def _named(self) -> dict[tuple[int, str], int]:
        return {
            (place, name): id(value)
            for place, own in enumerate(self._own)
            for name, value in own.items()
        }


def _differing(
    one: dict[tuple[int, str], int], two: dict[tuple[int, str], int]
) -> Iterable[tuple[int, str]]:
    return [place for place in one | two if one.get(place) != two.get(place)]
