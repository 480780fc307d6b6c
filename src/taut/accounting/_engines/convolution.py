"""Composition on a lattice by one Fourier transform per loss, under an exponential tilt.

Everything that leaves the window or is rounded is bounded and added to the safe side.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray
from scipy.fft import irfft, next_fast_len, rfft

from taut._base.arrays import Vector
from taut._base.floats import RELATIVE_ERROR
from taut.accounting._engines.tilted import TiltedSum
from taut.accounting._pairs.discretisation import ALIGNMENT, BeyondLattice, Lattice

__all__ = ["LARGEST_WINDOW", "Window", "compose"]

Complex = NDArray[np.complex128]

# Tilted masses below are set to zero, for products with them would crawl as subnormal numbers. All
# of them, of all copies, are added to the noise: at most 1e-43 for 1e10 copies in any window.
_FLUSHED_MASS = 1e-60
LARGEST_WINDOW = 2**23
"""Nodes of a window: a transform of that size and its copies take half a gigabyte of work space."""
# Log magnitude below which a Fourier coefficient is dropped; exp(-80) = 2e-35 is added to the noise
# and vanishes in it, which is 1e-16 of a norm of at least 1 / sqrt(LARGEST_WINDOW).
_DROPPED_EXPONENT = -80.0
_MANY_COPIES = 64  # kept coefficients then exceed exp(-80 / 64) > 1/4, which `growth` relies on


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


def compose(
    terms: Sequence[tuple[Lattice, int]], window: Window, most_nodes: int = LARGEST_WINDOW
) -> TiltedSum:
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
    if last - first > most_nodes:
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
    scale_error += 8 * RELATIVE_ERROR * _dot(counts, [1 + abs(value) for value in scale])
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
        label_error=label_error + RELATIVE_ERROR * reach + ALIGNMENT * step * sum(counts),
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
    # multiplies that by the count. What was dropped is below exp(_DROPPED_EXPONENT) everywhere.
    unit = RELATIVE_ERROR / 2 * math.log2(size)
    norm = _norm(weights)
    noise = sum(count * unit * _norm(part) for part, count in zip(masses, counts, strict=True))
    if len(terms) == 1 and counts[0] >= _MANY_COPIES:
        # Each coefficient is also off by ``unit`` at most, for the masses sum to one. The power
        # then multiplies it by the count and by the coefficient to the count less one, whose
        # modulus is the one of the result over that of a kept coefficient: near one for many
        # copies, so the error shrinks as the sum spreads.
        growth = -_DROPPED_EXPONENT / counts[0] + 4 * counts[0] * unit
        noise = min(noise, counts[0] * unit * norm * math.exp(min(growth, 600.0)))
    noise += (unit + RELATIVE_ERROR * sum(counts)) * norm + math.exp(_DROPPED_EXPONENT)
    noise += sum(counts) * size * _FLUSHED_MASS
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
    values[values < _FLUSHED_MASS] = 0.0
    return values


def _active(spectra: Sequence[Complex], counts: Sequence[int]) -> NDArray[np.int64]:
    """Return the frequencies at which the product of powers is not negligible."""
    # The magnitude of the most repeated factor rules out most frequencies at once.
    leader = max(range(len(counts)), key=counts.__getitem__)
    power = spectra[leader].real ** 2 + spectra[leader].imag ** 2
    active = np.flatnonzero(power > math.exp(2 * _DROPPED_EXPONENT / counts[leader]))
    if len(spectra) > 1:
        with np.errstate(divide="ignore"):
            magnitude = sum(
                count * np.log(np.abs(part[active]))
                for count, part in zip(counts, spectra, strict=True)
            )
        active = active[magnitude > _DROPPED_EXPONENT]
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
