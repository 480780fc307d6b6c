"""The lattice engine: certified brackets for any sum, refined until they meet a tolerance."""

from __future__ import annotations

import math
from collections.abc import Callable, Iterator, Sequence
from dataclasses import replace
from typing import NamedTuple

import numpy as np

from taut.accounting._engines.bounds import Bounds
from taut.accounting._engines.convolution import LARGEST_WINDOW, Window, compose
from taut.accounting._engines.saddle_point import Cumulants, Saddle
from taut.accounting._engines.tilted import TiltedSum
from taut.accounting._pairs.discretisation import (
    BeyondLattice,
    Bracket,
    Lattice,
    Placement,
    atoms_lattice,
    discretise,
    place,
)
from taut.accounting._pairs.pair import Pair

__all__ = ["LatticeEngine"]

_REFINEMENTS = 6  # of the step, which is made to fit at once: one or two are usual
_QUICK_REFINEMENTS = 3  # of a step, where another engine may answer sooner
_MOST_QUICK_NODES = 2**17  # a transform of that size takes two milliseconds
_HOPELESS = 8.0  # times the tolerance: a first gap so wide is of rounding noise, not of the step
_ROUGH_TOLERANCE = 0.02  # halves that differ by more are told apart; closer ones are asked sharply
_LEAST_SCALE = 1e-12  # of an epsilon by which a step is chosen: a loss of zero needs some step
_COARSEST_STEP = 64.0  # exp of a step stays far within the range of floats
# A term with many more copies is composed in about so many equal blocks. Each is rounded to the
# common lattice once, and that costs as much accuracy as one copy would.
_BLOCK_COUNT = 256
_DIVISORS_TRIED = 1 << 16  # for blocks without a rest: a count from a stranger must not take long
_MOST_DIRECT = 8 * _BLOCK_COUNT  # copies; smaller blocks are not worth a transform of their own
# Windows are planned for Chernoff's epsilon; at the true one escaped mass weighs more, by orders of
# magnitude. Four at a time overtake it, and widen a window by log(1e4) over an exponent only.
_ESCAPE_SHRINKAGE = 1e-4
_WIDEST_EXPONENT = 0.1  # width of a cell times the tilt: tilted weights differ by 10% in a cell
# Steps of the common lattice over those inside of a block of k copies, in units of sqrt(k). At one
# the inside would err as much as the rounding of the block; at 1.5 by 2.25 times, for fewer nodes.
_BLOCK_COARSENESS = 1.5


class LatticeEngine:
    """Answers questions about a sum of losses in one direction, near one saddle point."""

    def __init__(
        self,
        terms: Sequence[tuple[Pair, int]],
        cumulants: Cumulants,
        saddle: Saddle,
        tail: float,
        *,
        quick: bool = False,
    ) -> None:
        """Take a sum, its cumulants, where to look, and the mass that may be cut from each loss.

        If ``quick``, it gives up early where another engine may be faster.
        """
        self._quick = quick
        self._most_nodes = _MOST_QUICK_NODES if quick else LARGEST_WINDOW
        self._terms = terms
        self._cumulants = cumulants
        self._saddle = saddle
        self._tail = tail
        self._table = cumulants.around(saddle)
        coarsest = 40 * math.sqrt(cumulants.spread(saddle.tilt)) / LARGEST_WINDOW
        through = [atoms_lattice(pair, tail) for pair, _ in terms]
        self._plans = [
            _Plan.of(count, exact=at is not None and at.step > coarsest)
            for (_, count), at in zip(terms, through, strict=True)
        ]
        self._widths = cumulants.widths(saddle.tilt, _WIDEST_EXPONENT / saddle.tilt)

    def epsilon(self, delta: float, tolerance: float, floor: float = 0.0) -> Bounds:
        """Return bounds on epsilon at ``delta``, relative gap ``tolerance`` if memory allows.

        ``floor`` is a lower bound that is already known.
        """

        def bounds(lower: TiltedSum, upper: TiltedSum) -> Bounds:
            high = upper.epsilon_upper(delta)
            low = lower.epsilon_lower(delta, high)
            return Bounds(max(low, 0.0), max(high, 0.0))

        start = Bounds(min(floor, self._saddle.epsilon), max(self._saddle.epsilon, 0.0))
        step = self._first_step(tolerance * max(self._saddle.epsilon, _LEAST_SCALE))
        try:
            return self._refine(step, tolerance, start, bounds)[0]
        except BeyondLattice:
            return start

    def stays_below(self, delta: float, epsilon: float) -> bool:
        """Return whether a rough look proves that epsilon(delta) is at most ``epsilon``."""
        step = self._first_step(_ROUGH_TOLERANCE * max(self._saddle.epsilon, _LEAST_SCALE))
        try:
            with np.errstate(invalid="raise", over="ignore", divide="ignore"):
                singles = [bracket.upper for bracket in self._singles(step, sharp=False)]
                upper = self._side(singles, self._table.windows(_ROUGH_TOLERANCE)[0], upper=True)
        except (BeyondLattice, ArithmeticError, ValueError):
            return False
        return upper.epsilon_upper(delta) <= epsilon

    def curve(self, tolerance: float, floor: float = 0.0) -> tuple[TiltedSum, TiltedSum]:
        """Return the sum rounded down and up, with a relative gap of delta at the saddle.

        Both answer at every epsilon, soundly, and sharply near the saddle. ``floor`` is a lower
        bound on delta there that is already known.

        Raises:
            BeyondLattice: if memory would not suffice at any reasonable step.
        """
        epsilon = self._saddle.epsilon

        def bounds(lower: TiltedSum, upper: TiltedSum) -> Bounds:
            return Bounds(lower.delta_lower(epsilon), upper.delta_upper(epsilon))

        step = self._first_step(tolerance / self._saddle.tilt)
        ceiling = math.exp(self._saddle.log_delta)
        start = Bounds(min(floor, ceiling), ceiling)
        _, lower, upper = self._refine(step, tolerance, start, bounds)
        return lower, upper

    def _refine(
        self,
        step: float,
        tolerance: float,
        best: Bounds,
        bounds: Callable[[TiltedSum, TiltedSum], Bounds],
    ) -> tuple[Bounds, TiltedSum, TiltedSum]:
        """Return the best ``bounds``, and the sums with the narrowest ones, over a few windows."""
        sides: tuple[TiltedSum, TiltedSum] | None = None
        narrowest = math.inf
        for window in self._table.windows(tolerance):
            for found, lower, upper in self._shrink(window, step, tolerance, best, bounds):
                if found.gap < narrowest:
                    narrowest, sides = found.gap, (lower, upper)
                end = min(best.upper, found.upper)
                best = Bounds(min(max(best.lower, found.lower), end), end)
            if best.gap <= tolerance * best.upper or self._quick:
                break
        if sides is None:
            raise BeyondLattice("at every step tried")
        return best, *sides

    def _shrink(
        self,
        window: Window,
        step: float,
        tolerance: float,
        best: Bounds,
        bounds: Callable[[TiltedSum, TiltedSum], Bounds],
    ) -> Iterator[tuple[Bounds, TiltedSum, TiltedSum]]:
        """Shrink the step until ``bounds`` are within ``tolerance``: the gap falls with step^2.

        Rounding noise or memory can end the refinement earlier; the bounds hold all the same.
        """
        stalls, worked = 0, False
        for _ in range(_QUICK_REFINEMENTS if self._quick else _REFINEMENTS):
            try:
                lower, upper = self._compose(window, step)
            except BeyondLattice:
                if worked or self._quick:
                    return
                step *= 4
                continue
            worked = True
            found = bounds(lower, upper)
            yield found, lower, upper
            stalls += found.gap > 0.9 * best.gap
            end = min(best.upper, found.upper)
            best = Bounds(min(max(best.lower, found.lower), end), end)
            if best.gap <= tolerance * best.upper or stalls == 3:
                return
            if self._quick and found.gap > _HOPELESS * tolerance * best.upper:
                return
            shrink = math.sqrt(tolerance * best.upper / found.gap) if found.gap > 0 else 0.5
            step *= min(max(0.85 * shrink, 0.1), 0.7)
            # The window was planned for Chernoff's epsilon; nearer to the truth less may escape.
            window = replace(window, escape=max(_ESCAPE_SHRINKAGE * window.escape, 1e-300))

    def _first_step(self, gap: float) -> float:
        """Return the step whose bracket should be ``gap`` wide in epsilon.

        Splitting a cell adds step^2/6 of variance to a loss and merging takes up to step^2/3, each
        copy: together count * (tilt + 1) * step^2 / 4 in epsilon.
        """
        if len(self._plans) == 1 and self._plans[0].exact:
            return math.inf  # the loss's own lattice
        copies = math.fsum(plan.cost for plan in self._plans) or 1.0
        step = math.sqrt(2.1 * gap / (copies * (self._saddle.tilt + 1)))
        spread = math.sqrt(self._cumulants.spread(self._saddle.tilt))
        step = max(min(step, spread / 8), 32 * spread / LARGEST_WINDOW, self._finest)
        return min(step, _COARSEST_STEP)

    @property
    def _finest(self) -> float:
        """Return the step below which the whole range of the sum would not fit into a window."""
        reach = math.fsum(n * float(np.ptp(pair.grid(self._tail, 2))) for pair, n in self._terms)
        return reach / LARGEST_WINDOW / math.sqrt(sum(n for _, n in self._terms))

    def _compose(self, window: Window, step: float) -> tuple[TiltedSum, TiltedSum]:
        """Return the sum rounded down and rounded up, on a lattice of about ``step``."""
        try:
            with np.errstate(invalid="raise", over="ignore", divide="ignore"):
                singles = self._singles(step)
                return (
                    self._side([bracket.lower for bracket in singles], window, upper=False),
                    self._side([bracket.upper for bracket in singles], window, upper=True),
                )
        except (ArithmeticError, ValueError) as error:
            raise BeyondLattice(str(error)) from error

    def _singles(self, step: float, *, sharp: bool = True) -> list[Bracket]:
        """Return one copy of every loss on a lattice; all would share one step once coarsened.

        Unless ``sharp``, no care is taken to lose little when rounding down.
        """
        placements = [
            place(pair, step / plan.fineness, self._tail, sharp=sharp)
            for (pair, _), plan in zip(self._terms, self._plans, strict=True)
        ]
        pairs = zip(placements, self._plans, strict=True)
        common = min(placement.step * plan.fineness for placement, plan in pairs)
        return [
            discretise(pair, Placement(common / plan.fineness, offset), self._tail, widths)
            for (pair, _), plan, (_, offset), widths in zip(
                self._terms, self._plans, placements, self._widths, strict=True
            )
        ]

    def _side(self, singles: Sequence[Lattice], window: Window, *, upper: bool) -> TiltedSum:
        """Return the sum of all copies of ``singles``, all rounded to one side."""
        parts: list[tuple[Lattice, int]] = []
        for i, (single, plan) in enumerate(zip(singles, self._plans, strict=True)):
            if not plan.blocks:
                parts.append((single, plan.rest))
                continue
            tail = self._tail * plan.copies
            escape = window.escape / plan.blocks * 1e-2
            for copies, count in ((plan.copies, plan.blocks), (plan.rest, 1)):
                if copies:
                    inner = self._table.block_window(i, copies, window.tilt, escape, tail)
                    block = compose([(single, copies)], inner, self._most_nodes)
                    offset = block.coarse_offset(plan.fineness)
                    parts.append((block.as_lattice(plan.fineness, offset, upper=upper), count))
        return compose(parts, window, self._most_nodes)


class _Plan(NamedTuple):
    """How the copies of a term are grouped: ``blocks`` of ``copies``, and ``rest`` more."""

    copies: int
    blocks: int
    rest: int
    exact: bool

    @classmethod
    def of(cls, count: int, *, exact: bool) -> _Plan:
        """Return equal blocks for many copies, none (all direct) for few or exact ones."""
        if exact or count <= _MOST_DIRECT:
            return cls(1, 0, count, exact)
        near = count // _BLOCK_COUNT
        least = max(near // 2, near - _DIVISORS_TRIED)
        copies = next((k for k in range(near, least, -1) if count % k == 0), near)
        return cls(copies, count // copies, count % copies, exact)

    @property
    def fineness(self) -> int:
        """Steps of the fine lattice, inside a block, in one of the common lattice."""
        return math.ceil(math.sqrt(self.copies) / _BLOCK_COARSENESS)

    @property
    def cost(self) -> float:
        """Copies that would be as inaccurate, done directly."""
        if self.exact:
            return 0.0
        return self.blocks * (1 + self.copies / self.fineness**2) + self.rest / self.fineness**2
