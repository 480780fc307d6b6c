"""Composition on a lattice by an exponentially tilted Fourier transform.

A plain FFT has an absolute error floor near 1e-16, which hides every delta below about 1e-11.
Multiplying the masses by exp(tilt L) first, with the tilt near the saddle point of the question,
moves that floor to 1e-16 times the answer; the tilt is undone in the final sum. Everything that
leaves the window or is rounded is bounded and added to the safe side.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from functools import cached_property

import numpy as np
from numpy.typing import NDArray
from scipy.fft import irfft, next_fast_len, rfft

from taut.accounting._finite import FinitePair
from taut.accounting._lattice import (
    ALIGNMENT,
    BeyondLattice,
    Lattice,
    lowest_node,
    round_cells,
)
from taut.accounting._pair import ROUNDING, Vector

__all__ = ["TiltedSum", "Window", "compose"]

Complex = NDArray[np.complex128]

_TINY = 1e-60
_ATOM = 0.02
_LARGEST = 2**23  # nodes of a window
_NEGLIGIBLE = -80.0  # log magnitude below which a Fourier coefficient is dropped


@dataclass(frozen=True)
class Window:
    """How a sum is looked at.

    Attributes:
        tilt: exponent c >= 0 of the change of measure exp(c L).
        low: exponent below ``tilt`` that bounds the lower tail of the tilted sum (Chernoff).
        high: exponent above ``tilt`` that bounds the upper tail.
        escape: tilted mass allowed outside of the window at either end.
        loss_tail: untilted mass allowed above the window.
    """

    tilt: float
    low: float
    high: float
    escape: float
    loss_tail: float = 1.0


@dataclass(frozen=True)
class TiltedSum:
    """The composed loss in a window: weights proportional to mass times exp(tilt loss).

    Attributes:
        step: distance of neighbouring nodes.
        first: loss of the first node.
        weights: tilted masses, summing to about one, shape (n,).
        tilt: the exponent c.
        log_scale: log E exp(c L) over finite losses.
        mass_inf: mass at infinite loss.
        noise: bound on the l2-norm of the rounding errors of the weights.
        above: bound on the untilted mass above the window.
        mass: lower bound on the finite mass if nothing lies below the window, else 0.
        misplaced: bound on the tilted mass that sits on a wrong node or does not exist.
        label_error: bound on the rounding error of the loss of a node.
        scale_error: bound on the relative rounding error of the scale.
    """

    step: float
    first: float
    weights: Vector
    tilt: float
    log_scale: float
    mass_inf: float
    noise: float
    above: float
    mass: float
    misplaced: float
    label_error: float
    scale_error: float

    def upper(self, node: int) -> float:
        """Return an upper bound on delta at the loss of ``node`` (counted from the first)."""
        scale = self._scale(node)
        if scale is None:
            return 1.0
        value = (self._excess(node) + self._doubt) * scale * (1 + self.scale_error)
        return min(self.mass_inf + self.above + value, 1.0)

    def lower(self, node: int) -> float:
        """Return a lower bound on delta at the loss of ``node``."""
        scale = self._scale(node)
        if scale is None:
            return self.mass_inf
        value = (self._excess(node) - self._doubt) * scale * (1 - self.scale_error)
        return self.mass_inf + max(value, 0.0)

    def delta_upper(self, epsilon: float) -> float:
        """Return an upper bound on delta(epsilon)."""
        return self._interpolate(epsilon - self.label_error, self.upper)

    def delta_lower(self, epsilon: float) -> float:
        """Return a lower bound on delta(epsilon)."""
        return self._interpolate(epsilon + self.label_error, self.lower)

    def epsilon_upper(self, delta: float) -> float:
        """Return an epsilon at which delta is surely reached, possibly infinite."""
        at_first = self.upper(0)
        if at_first <= delta:
            return self._below_window(1.0, at_first, delta) + self.label_error
        if self.upper(self.weights.size) > delta:
            return math.inf
        node = self._last_above(delta, self.upper, 0, self.weights.size)
        return self._crossing(node, delta, self.upper) + self.label_error

    def epsilon_lower(self, delta: float, below: float) -> float:
        """Return an epsilon up to which delta is surely exceeded.

        The search goes down from ``below``; far down, rounding would swallow the answer. Minus
        infinity means that nothing could be certified.
        """
        top = self.first + self.weights.size * self.step
        high = math.floor((min(below, top) - self.first) / self.step) + 1
        reach = 1
        while high - reach > 0 and self.lower(high - reach) <= delta:
            reach *= 2
        low = max(high - reach, 0)
        if self.lower(low) <= delta:
            total = self.mass_inf + self.mass
            if low > 0 or total <= delta:
                return -math.inf
            return self._below_window(total, self.lower(0), delta) - self.label_error
        node = self._last_above(delta, self.lower, low, high)
        return self._crossing(node, delta, self.lower) - self.label_error

    def _interpolate(self, epsilon: float, bound: Callable[[int], float]) -> float:
        """Return the chord of ``bound`` at ``epsilon``: lattice profiles are linear in exp(e)."""
        node = math.floor((epsilon - self.first) / self.step)
        if node < 0:
            # Convexity in t = exp(e): below the chord from the value at t = 0, which is 1. Rounded
            # down, the profile is that chord if all mass is in the window, else not below its end.
            total = 1.0 if bound == self.upper else max(self.mass_inf + self.mass, bound(0))
            return total + (bound(0) - total) * math.exp(epsilon - self.first)
        left, right = bound(node), bound(node + 1)
        rest = epsilon - self.first - node * self.step
        if self.step > 600:
            share = math.exp(rest - self.step)
        else:
            share = math.expm1(rest) / math.expm1(self.step)
        return left + (right - left) * min(max(share, 0.0), 1.0)

    def _last_above(self, delta: float, bound: Callable[[int], float], low: int, high: int) -> int:
        """Return the last node at which ``bound`` exceeds ``delta``, by bisection."""
        while high - low > 1:
            middle = (low + high) // 2
            if bound(middle) > delta:
                low = middle
            else:
                high = middle
        return low

    def _crossing(self, node: int, delta: float, bound: Callable[[int], float]) -> float:
        """Return where the chord from ``node`` to the next one falls to ``delta``."""
        left, right = bound(node), bound(node + 1)
        share = (left - delta) / (left - right)
        if self.step > 600:
            rest = max(self.step + math.log(max(share, 1e-300)), 0.0)
        else:
            rest = math.log1p(share * math.expm1(self.step))
        return self.first + node * self.step + rest

    def _below_window(self, total: float, at_first: float, delta: float) -> float:
        """Return where the chord from ``total`` at t = 0 to the first node falls to ``delta``."""
        if total <= at_first:
            return self.first
        return self.first + math.log((total - delta) / (total - at_first))

    def _scale(self, node: int) -> float | None:
        """Return what undoes the tilt, or None so far down that tilted sums underflow."""
        exponent = self.log_scale - self.tilt * (self.first + node * self.step)
        return math.exp(exponent) if exponent < 600.0 else None

    @cached_property
    def _doubt(self) -> float:
        """Bound on the error of ``_excess``: rounding, by Cauchy-Schwarz, and misplaced mass."""
        c, s = self.tilt, self.step
        # Squared l2-norm and maximum of exp(-c x) (1 - exp(-x)) over the nodes x > 0.
        squared = _geometric(2 * c * s) - 2 * _geometric((2 * c + 1) * s)
        squared += _geometric((2 * c + 2) * s)
        squared = min(max(squared, 0.0) + 1e-12 * _geometric(2 * c * s), float(self.weights.size))
        peak = math.exp(c * math.log(c) - (c + 1) * math.log1p(c)) if c > 0 else 1.0
        return self.noise * math.sqrt(squared) + self.misplaced * peak

    def _excess(self, node: int) -> float:
        """Return the sum over i > node of w_i exp(-c x) (1 - exp(-x)), x = (i - node) step."""
        width, tails, kernels = self._chunks
        start = node + 1
        if start >= self.weights.size:
            return 0.0
        chunk = start // width
        piece = self.weights[start : (chunk + 1) * width]
        inside = float((piece * kernels[1][1 : piece.size + 1]).sum())
        reach = ((chunk + 1) * width - node) * self.step
        return max(inside + self._shifted(tails[chunk + 1], reach)[1], 0.0)

    def _shifted(self, tail: tuple[float, float], reach: float) -> tuple[float, float]:
        """Return sums of w exp(-c x) and w exp(-c x) (1 - exp(-x)) from ``reach`` further down.

        The two are carried side by side: their difference would cancel.
        """
        plain, excess = tail
        decay = math.exp(-self.tilt * reach)
        return decay * plain, decay * (math.exp(-reach) * excess - math.expm1(-reach) * plain)

    @cached_property
    def _chunks(self) -> tuple[int, list[tuple[float, float]], tuple[Vector, Vector]]:
        """Return the chunk width, both sums from every chunk start on, and both kernels inside.

        Sums at every node would cost several exponentials per node; chunks of sqrt(n) nodes share
        them.
        """
        width = max(1, math.isqrt(self.weights.size))
        count = -(-self.weights.size // width)
        table = np.zeros((count, width))
        table.ravel()[: self.weights.size] = self.weights
        x = self.step * np.arange(width + 1)
        plain = np.exp(-self.tilt * x)
        kernels = plain, -plain * np.expm1(-x)
        sums = [(table * kernel[:width]).sum(axis=1).tolist() for kernel in kernels]
        tails = [(0.0, 0.0)] * (count + 1)
        for i in range(count - 1, -1, -1):
            later = self._shifted(tails[i + 1], width * self.step)
            tails[i] = sums[0][i] + later[0], sums[1][i] + later[1]
        return width, tails, kernels

    def as_lattice(self, factor: int, offset: float, *, upper: bool) -> Lattice:
        """Return the sum as one loss on nodes ``factor`` times as far apart, valid at this tilt.

        Undoing the tilt and rounding to the coarse nodes are done together, with one factor per
        coarse cell and one per place within it. ``offset`` is one of the coarse nodes.
        """
        step = factor * self.step
        # Places of the old nodes within a coarse cell: phase + j * old step.
        ahead = (self.first - offset) / self.step
        lead = math.floor(ahead + ALIGNMENT) % factor
        phase = max(ahead - math.floor(ahead + ALIGNMENT), 0.0)
        first = self.first - (lead + phase) * self.step
        count = -(-(lead + self.weights.size) // factor)
        table = np.zeros((count, factor))
        # Weights that may be nothing but noise would blow up under the exponents of a tail bound.
        floor = self.noise / math.sqrt(self.weights.size)
        table.ravel()[lead : lead + self.weights.size] = np.where(
            self.weights > floor, self.weights, 0.0
        )
        place = (np.arange(factor) + phase) * self.step
        coarse = first + step * np.arange(count)
        table *= np.exp(np.minimum(self.log_scale - self.tilt * coarse, 700.0))[:, None]
        table *= np.exp(-self.tilt * place)
        on_edge = np.zeros(count + 1)
        if phase < ALIGNMENT:
            on_edge[:-1] = table[:, 0]
            table[:, 0] = 0.0
        raised = (table * (np.expm1(-place) / math.expm1(-step))).sum(axis=1)
        masses = round_cells(step, table.sum(axis=1), raised, on_edge, upper=upper)
        mass_inf = self.mass_inf + (self.above if upper else 0.0)
        misplaced = self.misplaced + 2 * self.noise * math.sqrt(self.weights.size)
        return Lattice(
            step,
            first,
            np.arange(count + 1),
            masses,
            mass_inf,
            misplaced,
            self.label_error,
            self.scale_error,
        )

    def coarse_offset(self, factor: int) -> float:
        """Return where coarse nodes waste least: it matters for sums that are nearly an atom."""
        heaviest = int(np.argmax(self.weights))
        if self.weights[heaviest] < _ATOM:
            return self.first
        low = max(heaviest - 2 * factor, 0)
        weights = np.maximum(self.weights[low : heaviest + 25 * factor], _TINY)
        losses = self.first + self.step * np.arange(low, low + weights.size)
        start = int(np.argmax(np.cumsum(weights) > 1e-3 * weights.sum()))
        losses, weights = losses[start:], weights[start:]
        log_masses = np.log(weights) - self.tilt * (losses - losses[0])
        local = FinitePair(tuple(losses.tolist()), tuple(log_masses.tolist()))
        return lowest_node(local, factor * self.step, 0.0)


def compose(terms: Sequence[tuple[Lattice, int]], window: Window) -> TiltedSum:
    """Return the sum of ``count`` independent copies of every lattice, seen in ``window``.

    All lattices must share one step. The cost is one FFT per lattice and one inverse FFT, whatever
    the counts.
    """
    step = terms[0][0].step
    counts = [count for _, count in terms]
    scale, low, high = (
        [lattice.log_mgf(exponent) for lattice, _ in terms]
        for exponent in (window.tilt, window.low, window.high)
    )
    total, total_low, total_high = (_dot(counts, values) for values in (scale, low, high))
    margin = -math.log(window.escape)
    top = (total_high - total + margin) / (window.high - window.tilt)
    if window.loss_tail < 1:
        top = max(top, (total_high - math.log(window.loss_tail)) / window.high)
    bottom = (total - total_low - margin) / (window.tilt - window.low)
    origin = _dot(counts, [lattice.offset for lattice, _ in terms])
    least = sum(count * int(lattice.index[0]) for lattice, count in terms)
    most = sum(count * int(lattice.index[-1]) for lattice, count in terms)
    first = max(math.floor((bottom - origin) / step), least)
    last = min(math.ceil((top - origin) / step), most)
    if last - first > _LARGEST:
        raise BeyondLattice(f"{last - first} nodes")
    size = next_fast_len(max(last - first + 1, 2), real=True)
    # Chernoff's bounds on what lies outside, tilted and not.
    low_end, high_end = origin + first * step, origin + last * step
    tilted_above = total_high - total - (window.high - window.tilt) * high_end
    tilted_below = total_low - total + (window.tilt - window.low) * low_end
    over = total_high - window.high * high_end
    weights, noise = _convolve(terms, window.tilt, scale, size)
    stray = math.expm1(min(_dot(counts, [lattice.misplaced for lattice, _ in terms]), 1.0))
    whole = first == least and stray == 0
    reach = _dot(counts, [float(np.abs(lattice.losses[[0, -1]]).max()) for lattice, _ in terms])
    label_error = _dot(counts, [lattice.label_error for lattice, _ in terms])
    scale_error = _dot(counts, [lattice.scale_error for lattice, _ in terms])
    scale_error += 8 * ROUNDING * _dot(counts, [1 + abs(value) for value in scale])
    masses = [math.log(float(lattice.masses.sum())) for lattice, _ in terms]
    return TiltedSum(
        step=step,
        first=low_end,
        weights=np.roll(weights, -((first - least) % size)),
        tilt=window.tilt,
        log_scale=total,
        mass_inf=-math.expm1(_dot(counts, [math.log1p(-t.mass_inf) for t, _ in terms])),
        noise=noise,
        above=0.0 if last == most else math.exp(min(over, 0.0)),
        mass=(1 - scale_error) * math.exp(_dot(counts, masses)) if whole else 0.0,
        misplaced=stray
        + (0.0 if last == most else math.exp(min(tilted_above, 0.0)))
        + (0.0 if first == least else math.exp(min(tilted_below, 0.0))),
        label_error=label_error + ROUNDING * reach + ALIGNMENT * step * sum(counts),
        scale_error=scale_error,
    )


def _convolve(
    terms: Sequence[tuple[Lattice, int]], tilt: float, scale: Sequence[float], size: int
) -> tuple[Vector, float]:
    """Return the tilted masses of the sum modulo ``size``, and a bound on their rounding error."""
    masses = [
        _flush(np.exp(lattice.log_masses + tilt * lattice.losses - value))
        for (lattice, _), value in zip(terms, scale, strict=True)
    ]
    spectra = [
        rfft(_wrap(lattice, part, size)) for (lattice, _), part in zip(terms, masses, strict=True)
    ]
    counts = [count for _, count in terms]
    active = _active(spectra, counts)
    spectrum = np.zeros(spectra[0].size, dtype=np.complex128)
    spectrum[active] = math.prod(
        (_power(part[active], count) for part, count in zip(spectra, counts, strict=True)), start=1
    )
    weights = irfft(spectrum, size)
    # An FFT is off by ``unit`` in relative l2-norm (Higham 2002, Theorem 24.2); raising to a power
    # multiplies that by the count. What was dropped is below exp(_NEGLIGIBLE) everywhere.
    unit = ROUNDING / 2 * math.log2(size)
    norm = _norm(weights)
    noise = sum(count * unit * _norm(part) for part, count in zip(masses, counts, strict=True))
    noise += (unit + ROUNDING * sum(counts)) * norm + math.exp(_NEGLIGIBLE)
    noise += sum(counts) * size * _TINY
    return weights, noise


def _power(base: Complex, exponent: int) -> Complex:
    """Return ``base`` to a positive integer power by squaring (complex logarithms are slow)."""
    result: Complex | None = None
    while True:
        if exponent & 1:
            result = base if result is None else result * base
        exponent >>= 1
        if not exponent:
            break
        base = base * base
    assert result is not None  # the exponent is positive, so a bit was set
    return result


def _norm(values: Vector) -> float:
    """Return the l2-norm; linear algebra libraries would wake up all cores for it."""
    return math.sqrt(float(np.square(values).sum()))


def _flush(values: Vector) -> Vector:
    """Return ``values`` without those so small that arithmetic on them would crawl."""
    values[values < _TINY] = 0.0
    return values


def _active(spectra: Sequence[Complex], counts: Sequence[int]) -> NDArray[np.int64]:
    """Return the frequencies at which the product of powers is not negligible."""
    # The magnitude of the most repeated factor rules out most frequencies at once.
    leader = max(range(len(counts)), key=counts.__getitem__)
    power = spectra[leader].real ** 2 + spectra[leader].imag ** 2
    active = np.flatnonzero(power > math.exp(2 * _NEGLIGIBLE / counts[leader]))
    if len(spectra) > 1:
        with np.errstate(divide="ignore"):
            magnitude = sum(
                count * np.log(np.abs(part[active]))
                for count, part in zip(counts, spectra, strict=True)
            )
        active = active[magnitude > _NEGLIGIBLE]
    return active


def _wrap(lattice: Lattice, values: Vector, size: int) -> Vector:
    """Return ``values`` at their index, counted from the first node, around a circle."""
    position = lattice.index - lattice.index[0]
    if position[-1] < size:
        wrapped = np.zeros(size)
        wrapped[position] = values
        return wrapped
    return np.bincount(position % size, values, size).astype(np.float64)


def _dot(counts: Sequence[int], values: Sequence[float]) -> float:
    return math.fsum(count * value for count, value in zip(counts, values, strict=True))


def _geometric(x: float) -> float:
    """Return the sum of exp(-k x) over k >= 1."""
    if x <= 0:
        return math.inf
    return 1 / math.expm1(x) if x < 700 else 0.0
