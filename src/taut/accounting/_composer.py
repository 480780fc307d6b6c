"""The lattice engine: certified brackets for any sum, refined until they meet a tolerance."""

from __future__ import annotations

import math
from collections.abc import Sequence

from taut.accounting._bounds import Bounds
from taut.accounting._lattice import Bracket, discretise, place
from taut.accounting._pair import Pair
from taut.accounting._scout import Saddle, Scout
from taut.accounting._tilted import TiltedSum, Window, compose

__all__ = ["LatticeEngine"]

_ROUNDS = 6
_LARGEST_WINDOW = 2**23  # nodes; about half a gigabyte of work space


class LatticeEngine:
    """Answers one kind of question about a sum of losses in one direction."""

    def __init__(self, terms: Sequence[tuple[Pair, int]], scout: Scout, tail: float) -> None:
        """Take a sum, its scout, and the mass that may be cut from each loss."""
        self._terms = terms
        self._scout = scout
        self._tail = tail

    def epsilon(self, delta: float, saddle: Saddle, tolerance: float) -> Bounds:
        """Return bounds on epsilon(delta) with relative gap ``tolerance`` if memory allows."""
        best = Bounds(0.0, saddle.epsilon)
        tilt = saddle.tilt
        target = tolerance * max(saddle.epsilon, 1e-12)
        step = self._first_step(tilt, target)
        for _ in range(_ROUNDS):
            window = self._scout.window(tilt, _escape(tolerance))
            lower, upper = self._compose(window, step)
            found = upper.epsilon_upper(delta)
            if found is None:  # the answer lies below the window
                tilt /= 2
                continue
            high = max(found, 0.0)
            low = max(lower.epsilon_lower(delta, found), 0.0)
            best = Bounds(max(best.lower, low), min(best.upper, high))
            if best.gap <= tolerance * best.upper or upper.weights.size > _LARGEST_WINDOW / 4:
                break
            shrink = math.sqrt(tolerance * best.upper / max(high - low, 1e-300))
            step = upper.step * min(max(0.85 * shrink, 0.05), 0.7)
        return best

    def curve(self, saddle: Saddle, tolerance: float) -> tuple[TiltedSum, TiltedSum]:
        """Return the sum rounded down and up, with a relative gap of delta near the saddle.

        Both answer at every epsilon, soundly, and sharply near ``saddle.epsilon``.
        """
        step = self._first_step(saddle.tilt, tolerance / saddle.tilt)
        window = self._scout.window(saddle.tilt, _escape(tolerance))
        for _ in range(_ROUNDS):
            lower, upper = self._compose(window, step)
            low, high = lower.delta_lower(saddle.epsilon), upper.delta_upper(saddle.epsilon)
            if high - low <= tolerance * high or upper.weights.size > _LARGEST_WINDOW / 4:
                break
            shrink = math.sqrt(tolerance * high / (high - low))
            step = upper.step * min(max(0.85 * shrink, 0.05), 0.7)
        return lower, upper

    def _first_step(self, tilt: float, gap: float) -> float:
        """Return the step whose bracket should be ``gap`` wide in epsilon.

        Splitting a cell adds step^2/6 of variance to a loss and merging takes up to step^2/3, each
        copy: together count * (tilt + 1) * step^2 / 4 in epsilon.
        """
        copies = math.fsum(count for pair, count in self._terms if pair.continuous) or 1.0
        step = math.sqrt(2.8 * gap / (copies * (tilt + 1)))
        spread = math.sqrt(self._scout.spread(tilt))
        return max(min(step, spread / 8), 32 * spread / _LARGEST_WINDOW)

    def _compose(self, window: Window, step: float) -> tuple[TiltedSum, TiltedSum]:
        """Return the sum rounded down and rounded up, on a lattice of about ``step``."""
        brackets = self._discretise(step)
        counts = [count for _, count in self._terms]
        lower = compose([(b.lower, n) for b, n in zip(brackets, counts, strict=True)], window)
        upper = compose([(b.upper, n) for b, n in zip(brackets, counts, strict=True)], window)
        return lower, upper

    def _discretise(self, step: float) -> list[Bracket]:
        """Return every loss on its own lattice; all lattices share one step."""
        placements = [place(pair, step, self._tail) for pair, _ in self._terms]
        common = min(placement.step for placement in placements)
        return [
            discretise(pair, placement._replace(step=common), self._tail)
            for (pair, _), placement in zip(self._terms, placements, strict=True)
        ]


def _escape(tolerance: float) -> float:
    """Return the tilted mass that may leave the window without harming the tolerance."""
    return 1e-4 * min(tolerance, 1e-2)
