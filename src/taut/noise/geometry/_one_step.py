"""One noisy mean, taken apart: what clipping, sampling and noise each do to it."""

from __future__ import annotations

import math
from collections.abc import Mapping
from dataclasses import asdict, dataclass
from typing import Any

import numpy as np
from numpy.typing import ArrayLike

from taut._base import validate
from taut._base.arrays import Matrix, Vector
from taut._base.public_vectors import Provenance, public_rows
from taut.accounting import Adjacency
from taut.errors import AdjacencyMismatch, UnsoundConfiguration
from taut.noise._mechanisms.gaussian import GaussianNoise
from taut.noise._optimal.gaussian import optimal_gaussian
from taut.noise._sets.blocks import Blocks
from taut.noise._sets.projections import row_norms
from taut.noise._sets.sets import SensitivitySet

__all__ = ["OneStep", "one_step", "sampling_variance"]


@dataclass(frozen=True)
class OneStep:
    """What one release of a mean is made of. Variances are expected squared l2 lengths.

    Attributes:
        name: name of the sensitivity set.
        clip_bias: the distance of the clipped mean from the mean.
        sampling_variance: variance of the mean over a Poisson sample of clipped vectors.
        noise_variance: variance of the noise on that mean.
        cosine_clipped: between the mean and the clipped mean.
        cosine_released: between the mean and the release, with its squared length replaced by the
            expected one: an estimate, close in many dimensions.
        block_snr: the length of the clipped mean over the root of the noise variance, per block.
    """

    name: str
    clip_bias: float
    sampling_variance: float
    noise_variance: float
    cosine_clipped: float
    cosine_released: float
    block_snr: tuple[float, ...]

    @property
    def mean_squared_error(self) -> float:
        """The expected squared distance of the release from the mean, exactly."""
        return self.clip_bias**2 + self.sampling_variance + self.noise_variance

    def to_dict(self) -> dict[str, Any]:
        """Return numbers and lists for JSON."""
        return {
            **asdict(self),
            "block_snr": list(self.block_snr),
            "mean_squared_error": self.mean_squared_error,
        }


def one_step(
    vectors: ArrayLike,
    mechanisms: Mapping[str, SensitivitySet | GaussianNoise],
    *,
    rate: float,
    multiplier: float,
    provenance: Provenance | str,
) -> tuple[OneStep, ...]:
    """Compare sensitivity sets by what one release would look like, at equal privacy.

    Args:
        vectors: one per record, public or made up.
        mechanisms: sets by name, each with its least noise; or noise that was fitted with weights.
        rate: at which every record is sampled, in (0, 1]. The sum is divided by the expected
            number of records, which is public.
        multiplier: multiplier of the noise, the same for all, so that all have the same loss.
        provenance: ``"public"`` or ``"released"``, see `Provenance`.

    **Guarantee**: nothing is released. All rows describe mechanisms of one privacy loss, that of
    :func:`taut.gaussian` with this multiplier, Poisson sampled at this rate.

    Raises:
        UnsoundConfiguration: for private vectors, and for sets of replace-one differences, whose
            loss under sampling is another one.
        AdjacencyMismatch: for sets of different relations, which are not equally private.
        ValueError: for noise of another multiplier.

    Example:
        >>> import numpy as np
        >>> from taut.noise import Blocks, L2Ball
        >>> from taut.noise.geometry import one_step
        >>> spread = np.array([2.0] * 2 + [0.1] * 18)
        >>> vectors = 0.1 + spread * np.random.default_rng(0).normal(size=(500, 20))
        >>> sets = {"ball": L2Ball(20, 3.0), "blocks": Blocks([2, 18], l2=[2.9, 0.75])}
        >>> rows = one_step(vectors, sets, rate=0.1, multiplier=1.0, provenance="public")
        >>> print(*(round(row.noise_variance, 4) for row in rows))
        0.072 0.0212
    """
    table = public_rows(vectors, provenance).astype(np.float64)
    q = validate.positive(rate=validate.probability(rate=rate))
    z = validate.positive(multiplier=multiplier)
    validate.instance(Mapping, mechanisms=mechanisms)
    noises = {name: _noise(name, given, z) for name, given in mechanisms.items()}
    relations = {noise.sensitivity.adjacency for noise in noises.values()}
    if len(relations) > 1:
        raise AdjacencyMismatch(
            f"sets for {' and '.join(sorted(relations))} are not equally private; "
            "declare all of them for one relation"
        )
    return tuple(_step(name, table, noise, q) for name, noise in noises.items())


def sampling_variance(rows: Matrix, rate: float) -> float:
    """Return the expected squared error of the mean of a Poisson sample, without noise.

    (1 - q) / (q n²) sum_i ||y_i||², whether records are sampled at rate q, or coordinates, or
    both at rates that multiply to q (Xiao, Wan and Devadas 2023, Proposition 5.1).
    """
    squares = float(np.sum((rows / len(rows)) ** 2))
    return (1 - rate) / rate * squares


def _noise(name: str, given: SensitivitySet | GaussianNoise, z: float) -> GaussianNoise:
    """Return the least noise for a set, or noise that was given, checked for equal privacy."""
    noise = given if isinstance(given, GaussianNoise) else optimal_gaussian(given, multiplier=z)
    if not math.isclose(noise.multiplier, z, rel_tol=1e-9):  # but for how it was rounded
        raise ValueError(
            f"mechanisms[{name!r}] has the multiplier {noise.multiplier!r}, which is not the "
            f"given multiplier={z!r}: they would not be equally private"
        )
    if noise.sensitivity.adjacency is Adjacency.REPLACE:
        raise UnsoundConfiguration(
            f"mechanisms[{name!r}] is for replace-one, where sampling is another theorem than for "
            "contributions; use the set of contributions"
        )
    return noise


def _step(name: str, rows: Matrix, noise: GaussianNoise, rate: float) -> OneStep:
    clipped = noise.sensitivity.clip(rows, "raise")
    true, mean = rows.mean(axis=0), clipped.mean(axis=0)
    expected = rate * len(rows)
    sampling = sampling_variance(clipped, rate)
    added = noise.total_variance / expected / expected  # its square may be no double
    length = math.sqrt(float(mean @ mean) + sampling + added)
    return OneStep(
        name,
        float(np.linalg.norm(mean - true)),
        sampling,
        added,
        _cosine(true, mean, float(np.linalg.norm(mean))),
        _cosine(true, mean, length),
        _block_snr(noise, mean, expected),
    )


def _cosine(true: Vector, other: Vector, length: float) -> float:
    """Return the cosine of the angle, for another length of the second vector; 0 with a zero."""
    scale = float(np.linalg.norm(true)) * length
    return float(true @ other) / scale if scale > 0 else 0.0


def _block_snr(noise: GaussianNoise, mean: Vector, expected: float) -> tuple[float, ...]:
    sensitivity = noise.sensitivity
    if not isinstance(sensitivity, Blocks):
        signal = float(np.linalg.norm(mean))
        return (_ratio(signal, math.sqrt(noise.total_variance) / expected),)
    signals = [float(row_norms(part, 2.0)[0]) for part in sensitivity.parts(mean[None, :])]
    scales = np.split(noise.scales, np.cumsum(sensitivity.ranks)[:-1])
    variances = [float(scale @ scale) for scale in scales]
    if noise.scales.size < sensitivity.dimension:
        variances[-1] = sensitivity.ranks[-1] * noise.complement_scale**2
    return tuple(
        _ratio(signal, math.sqrt(variance) / expected)
        for signal, variance in zip(signals, variances, strict=True)
    )


def _ratio(signal: float, noise: float) -> float:
    """Return the quotient; a block without noise has no signal either, as it is not released."""
    return signal / noise if noise > 0 else 0.0
