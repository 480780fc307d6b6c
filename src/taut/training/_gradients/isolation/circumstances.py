"""Circumstances under which a model may begin to mix: other draws, larger weights, later calls."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import AbstractContextManager, contextmanager, nullcontext
from dataclasses import dataclass
from functools import partial
from typing import Any, TypeAlias

from torch import Tensor, nn

from taut.training._gradients.isolation.draws import HIGHEST, LOWEST, Draws, extreme_draws

__all__ = ["Circumstance", "Counts", "Place", "circumstances", "unchanged"]

Circumstance: TypeAlias = Callable[[], AbstractContextManager[Any]]
"""Makes something different for the length of a pass."""

unchanged: Circumstance = nullcontext
"""Everything is as it was."""

_LARGER = (16.0, 1024.0)
"""Factors of weights: activations and gradients pass thresholds of tens, or of thousands. With the
second one, those of many layers overflow, and show nothing."""

_LATER = (10, 1_000, 144_143_999, 144_144_000)
"""Calls: beyond a warm-up, within a run, and beyond any run, by numbers that are multiples of most
that people choose (of all to sixteen, of 100, 128 and 1000), at this call or at the next."""


class Counts:
    """Numbers that the modules of a model keep as attributes, as they are now.

    Those in dictionaries are among them, and tensors of one number.

    Args:
        model: model whose modules they belong to.
    """

    def __init__(self, model: nn.Module) -> None:
        self._kept = [
            (place, value)
            for module in model.modules()
            for place in _places(module)
            if (value := place.value) is not None
        ]

    def moved(self) -> list[Place]:
        """Return where numbers have changed since: counts of calls, say."""
        return [place for place, value in self._kept if place.value not in (None, value)]

    def restore(self) -> None:
        """Let all of them be what they were."""
        for place, value in self._kept:
            if place.value != value:
                place.put(value)


@dataclass(frozen=True)
class Place:
    """Where a number is kept.

    Args:
        kept: dictionary that holds it; attributes of a module are one.
        name: name that it has there.
    """

    kept: dict[Any, Any]
    name: Any

    @property
    def value(self) -> int | float | None:
        """The number, None if it is something else by now."""
        found = self.kept.get(self.name)
        if type(found) is Tensor and found.dim() == 0 and not found.requires_grad:
            found = found.item()
        return found if type(found) in (int, float) else None

    def put(self, value: float) -> None:
        """Let the number be another one."""
        found = self.kept.get(self.name)
        if isinstance(found, Tensor):
            found.fill_(value)
        else:
            self.kept[self.name] = value


_INSIDE = frozenset(vars(nn.Module()))  # names of what torch itself keeps in every module


def _places(module: nn.Module) -> Iterator[Place]:
    own = vars(module)
    for name, value in own.items():
        if name not in _INSIDE:
            yield Place(own, name)
            if isinstance(value, dict):
                yield from (Place(value, inner) for inner in value)


def circumstances(model: nn.Module, draws: Draws, counts: Counts) -> list[Circumstance]:
    """Return what a model is to be tested under beside things as they are.

    Args:
        model: what is trained.
        draws: draws of a pass, from before it,
        counts: numbers of the modules from before it.

    None of it makes a model mix that does not: passes with and without other company are compared
    under the same one.
    """
    found: list[Circumstance] = [partial(_magnified, model, by) for by in _LARGER]
    if draws.were_used:
        found += [partial(extreme_draws, drawn) for drawn in (LOWEST, HIGHEST)]
    places = counts.moved()
    if places:
        found += [partial(_later, places, calls) for calls in _LATER]
    return found


@contextmanager
def _magnified(model: nn.Module, factor: float) -> Iterator[None]:
    """Let all weights be larger inside, and with them all activations."""
    kept = [(p, p.data) for p in model.parameters() if p.is_floating_point()]
    try:
        for parameter, data in kept:
            parameter.data = data * factor
        yield
    finally:
        for parameter, data in kept:
            parameter.data = data


@contextmanager
def _later(places: list[Place], calls: int) -> Iterator[None]:
    """Let what counts calls of the model have counted so many already."""
    kept = [(place, place.value) for place in places]
    try:
        for place, value in kept:
            place.put(type(value)(calls) if value is not None else calls)
        yield
    finally:
        for place, value in kept:
            if value is not None:
                place.put(value)
