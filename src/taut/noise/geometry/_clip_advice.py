"""How long a clipped gradient may be: advice from an analysis, never from private gradients."""

from __future__ import annotations

import math
from dataclasses import asdict, dataclass
from typing import Any

import numpy as np
from numpy.typing import ArrayLike

from taut._base import validate
from taut._base.arrays import Vector
from taut._base.floats import ALIKE
from taut._base.public_vectors import Provenance, portions, public_rows
from taut.noise._sets.projections import row_norms

__all__ = ["ClipNormAdvice", "advise_clip_norm", "estimate_kappa"]

_LEAST_UNITS = 4 * math.log(10)  # of kappa
_TAIL_PART = 0.5  # the largest deviations, where the rate at which a tail falls is looked for


@dataclass(frozen=True)
class ClipNormAdvice:
    """A clipping norm that an analysis suggests. A heuristic, and no part of any promise.

    Attributes:
        norm: the advice.
        kappa: the scale of sampling noise that it was asked for.
        least: 4 kappa log 10, below which clipping may turn a gradient around.
        slope: a1, and
        offset: a2, and
        floor: a3, of what a clipped gradient g with E g = F keeps of its direction:
            E<F, clipped g> is at least the smaller of a1 |F|² - a2 and a3 |F|.

    Large norms ask for much noise: treat the advice as one more value to try, the largest.
    """

    norm: float
    kappa: float
    least: float
    slope: float
    offset: float
    floor: float

    def to_dict(self) -> dict[str, Any]:
        """Return numbers for JSON."""
        return asdict(self)

    def __str__(self) -> str:
        return (
            f"heuristic: clip to {self.norm:.4g} if gradients of examples deviate from their mean "
            f"by {self.kappa:.4g} (no less than {self.least:.4g}, where clipping may turn the mean "
            "around); try smaller norms too, which need less noise"
        )


def advise_clip_norm(
    kappa: float,
    *,
    examples: int,
    epsilon: float,
    delta: float,
    parameters: int,
    excess_loss: float = 1.0,
    smoothness: float = 1.0,
) -> ClipNormAdvice:
    """Return the smallest clipping norm whose bias the analysis lets noise drown. A heuristic.

    Args:
        kappa: the scale of sampling noise, Pr(|g_i - F| >= t) <= exp(-t / kappa) for the gradient
            g_i of an example and their mean F; from public data or a proxy, see `estimate_kappa`.
        examples: number of examples, in the training set, n.
        epsilon: epsilon of the promise.
        delta: probability delta of the promise.
        parameters: trainable parameters, d.
        excess_loss: how far the first weights are above the least loss, R.
        smoothness: smoothness of the loss, beta.

    Xiao, Wan and Devadas (2022, Theorem 3.2 and Lemma B.1): c >= 4 kappa log 10 and
    c / (2 kappa) - log((c/4 + kappa)² / c) >= 2/5 - log(sqrt(R beta d log(1/delta)) / (n epsilon)).
    The left-hand side grows with c, so that the smallest c is found by halving.

    **Guarantee**: none. It bounds a loss under assumptions that nobody checks, up to constants; no
    privacy depends on it if `kappa` does not come from private gradients.

    Raises:
        ValueError: for numbers out of range.

    Example:
        >>> from taut.noise.geometry import advise_clip_norm
        >>> advice = advise_clip_norm(
        ...     1.0, examples=50_000, epsilon=8.0, delta=1e-5, parameters=270_000
        ... )
        >>> round(advice.norm, 4)
        12.2445
    """
    scale = validate.positive(kappa=kappa)
    n = validate.positive_integer(examples=examples)
    d = validate.positive_integer(parameters=parameters)
    level = validate.positive(delta=validate.below_one(delta=delta))
    loss, curvature = (
        validate.positive(excess_loss=excess_loss),
        validate.positive(smoothness=smoothness),
    )
    # Logarithms one by one: products and quotients of numbers like these need not be doubles.
    squared = math.log(loss) + math.log(curvature) + math.log(d) + math.log(-math.log(level))
    noise = squared / 2 - math.log(n) - math.log(validate.positive(epsilon=epsilon))
    units = _units(0.4 - noise + math.log(scale))
    norm, least = units * scale, _LEAST_UNITS * scale
    rare = math.exp(-units / 4)
    offset = (units / 4 + 1) * rare / (1 - rare) * scale
    advice = ClipNormAdvice(
        norm, scale, least, (1 - rare) / 2, offset * offset, norm * (1 - 7 * rare) / 6
    )
    if not math.isfinite(advice.norm) or not math.isfinite(advice.offset):
        raise ValueError(f"kappa must be smaller, or the advice is no double, got kappa={kappa!r}")
    return advice


def _units(wanted: float) -> float:
    """Return the smallest c / kappa that the analysis allows."""

    def found(u: float) -> bool:
        return u / 2 - 2 * math.log(u / 4 + 1) + math.log(u) >= wanted

    if found(_LEAST_UNITS):
        return _LEAST_UNITS
    low, high = _LEAST_UNITS, 2 * _LEAST_UNITS
    while not found(high):
        low, high = high, 2 * high
    while high - low > ALIKE * high:
        middle = (low + high) / 2
        low, high = (low, middle) if found(middle) else (middle, high)
    return high


def estimate_kappa(vectors: ArrayLike, *, provenance: Provenance | str) -> float:
    """Return the scale at which public vectors deviate from their mean. An estimate.

    Args:
        vectors: gradients of public examples, one per row.
        provenance: ``"public"`` or ``"released"``, see `Provenance`.

    The least kappa with which exp(-t / kappa) is above the share of vectors that deviate by t or
    more, for the larger half of deviations. The smaller half cannot obey it: next to all vectors
    deviate by something, whatever kappa is. A few large ones raise it above that of their tail.

    **Guarantee**: none about records, as the vectors are none of theirs. The same number of private
    gradients would reveal them.

    Raises:
        UnsoundConfiguration: for vectors that are neither public nor released.
        ValueError: if there are fewer than 4, or all are equal.

    Example:
        >>> import numpy as np
        >>> from taut.noise.geometry import estimate_kappa
        >>> lengths = np.random.default_rng(0).exponential(2.0, size=4000)
        >>> signs = np.where(np.arange(4000) % 2 == 0, 1.0, -1.0)
        >>> round(estimate_kappa((signs * lengths)[:, None], provenance="public"), 1)
        2.3
    """
    rows = public_rows(vectors, provenance)
    if len(rows) < 4:
        raise ValueError(f"vectors must be at least 4, to tell a tail from a mean, got {len(rows)}")
    mean = rows.mean(axis=0, dtype=np.float64)
    deviations = np.concatenate([row_norms(part - mean, 2.0) for part in portions(rows)])
    ordered: Vector = np.sort(deviations)[::-1][: int(_TAIL_PART * len(rows))]
    shares = np.arange(1, ordered.size + 1) / len(rows)
    kappa = float(np.max(ordered / np.log(1 / shares)))
    if not kappa > 0:
        raise ValueError("vectors are all equal: they show no sampling noise")
    return kappa
