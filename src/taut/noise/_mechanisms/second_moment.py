"""Second moments of groups of columns: the exact sum of x xᵀ with Gaussian noise of its own each.

What least squares, principal components and covariances need of the data is one symmetric matrix.
Rows have groups of columns, such as features and a target, each clipped to a norm of its own.
"""

from __future__ import annotations

import itertools
import math
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from fractions import Fraction
from functools import cached_property

import numpy as np
from numpy.typing import ArrayLike, NDArray

from taut._base import validate
from taut._base.arrays import Matrix, Vector, real_numbers
from taut.accounting import Adjacency, PrivacyLoss, gaussian, gaussian_mu
from taut.errors import InfeasibleBudget
from taut.noise._exact.grid_values import in_steps
from taut.noise._exact.moment_sums import MomentSums
from taut.noise._exact.release import STANDARD_NORMAL, RoundedNoise
from taut.noise._exact_sums import FixedPoint
from taut.noise._random.sources import RandomSource, default_generator
from taut.noise._sets.balls import L2Ball
from taut.noise._sets.sets import Source
from taut.noise.recording import Release, released

__all__ = ["GaussianMoments", "exact_moments", "gaussian_moments"]

_MOST_COLUMNS = 4096  # a symmetric matrix has half their square of numbers
_LARGEST_CLIP = 1e34  # and one over it the least: fourth powers, and their sums, stay floats
# Sums of few products in doubles: what they round off the length of a record in units of noise.
_ROUNDED_UP = 1 + 1e-12
_LEAST_PORTION = 1e-100  # of a budget: shares of it are doubles
_ROOM = 1 + 1e-10  # of the noise: what an accountant rounds up must still be within the promise


@dataclass(frozen=True, eq=False)
class GaussianMoments:
    """The sum of x xᵀ over clipped rows, with Gaussian noise for every pair of groups of columns.

    Args:
        sizes: number of columns in every group, in order.
        clips: l2 norm to which the columns of every group are scaled down, row by row.
        scales: standard deviations of the noise for pairs of groups, a symmetric table; zero
            for pairs that are not released. Within a group it is that of the diagonal; entries
            beside the diagonal count twice in the Frobenius norm, and get 1/√2 of it.
        adjacency: neighbouring relation.

    **Guarantee**: `loss`, that of one Gaussian release. With clips c and scales s, adding or
    removing a record moves the pair (g, h) by x_g x_hᵀ of Frobenius norm c_g c_h at most, so that
    mu² = Σ_{g <= h} w_gh with w_gh = (c_g c_h / s_gh)². Replacing one moves the table of all groups
    by a length whose square is at most 2 mu² - 2 Σ w_gh a_g a_h, where a_g = <x_g, y_g> / c_g²
    lies between -1 and 1: 2 mu² where the form w is not negative (docs/theory/gaussian-noise.md).
    Rows with NaN or infinity count as zero. Entries are cut towards zero to 40 bits below the clip,
    their products are summed as integers, and noise is added exactly on a public grid
    (docs/theory/rounding.md): neither the order of rows nor low bits tell more.

    Raises:
        ValueError: if sizes, clips and scales do not fit together or leave floating point.

    Example:
        >>> from taut.noise import gaussian_moments
        >>> moments = gaussian_moments((2, 1), (1.0, 5.0), epsilon=1.0, delta=1e-6)
        >>> moments.release([[0.6, 0.8, 3.0], [0.0, 1.0, -2.0]]).shape
        (3, 3)
        >>> moments.loss.epsilon(delta=1e-6) <= 1.0
        True
    """

    sizes: tuple[int, ...]
    clips: tuple[float, ...]
    scales: tuple[tuple[float, ...], ...]
    adjacency: Adjacency = Adjacency.ADD_REMOVE

    def __post_init__(self) -> None:
        """Check the parameters."""
        sizes, clips = _groups(self.sizes, self.clips)
        table = real_numbers(self.scales, "scales")
        if table.shape != (len(sizes), len(sizes)) or not np.array_equal(table, table.T):
            raise ValueError(
                f"scales must be a symmetric table with {len(sizes)} rows, one per group, "
                f"got shape {table.shape}"
            )
        if not (np.isfinite(table).all() and (table >= 0).all() and table.any()):
            raise ValueError(
                "scales must be finite, at least 0 and not all 0, got "
                f"scales={table.tolist()}; leave out columns of which nothing is wanted"
            )
        object.__setattr__(self, "sizes", sizes)
        object.__setattr__(self, "clips", clips)
        object.__setattr__(self, "scales", tuple(map(tuple, table.tolist())))
        object.__setattr__(self, "adjacency", Adjacency(self.adjacency))
        if not (0 < self.mu < math.inf and 1 / self.mu < math.inf):
            raise ValueError(
                "scales must be within 300 orders of magnitude of products of clips, got "
                f"scales={table.tolist()} for clips={list(clips)}"
            )

    @property
    def columns(self) -> int:
        """The number of columns of a row."""
        return sum(self.sizes)

    @cached_property
    def mu(self) -> float:
        """The largest length of a record's change in units of the noise, rounded up."""
        groups = range(len(self.sizes))
        ratios = np.zeros((len(self.sizes), len(self.sizes)))
        for g, h in itertools.product(groups, groups):
            if self.scales[g][h] > 0:
                ratios[g, h] = self.clips[g] * (self.clips[h] / self.scales[g][h])
        whole = math.hypot(*ratios[np.triu_indices(len(self.sizes))])
        if self.adjacency is Adjacency.REPLACE:
            whole *= math.sqrt(_replaced(ratios / ratios.max()))
        return whole * _ROUNDED_UP

    @property
    def loss(self) -> PrivacyLoss:
        """The privacy loss of one release."""
        return gaussian(1 / self.mu, adjacency=self.adjacency)

    @cached_property
    def entry_scales(self) -> Matrix:
        """The standard deviation of the noise of every entry of the matrix; zero where none is."""
        of_column = np.repeat(np.arange(len(self.sizes)), self.sizes)
        scales = np.asarray(self.scales)[np.ix_(of_column, of_column)]
        same = of_column[:, None] == of_column[None, :]
        beside = same & ~np.eye(self.columns, dtype=bool)
        # Rounded up, so that no entry has less noise than `mu` counts on.
        return np.where(beside, np.nextafter(scales / math.sqrt(2), np.inf) * (scales > 0), scales)

    def release(self, rows: ArrayLike, generator: RandomSource | None = None) -> Matrix:
        """Return the symmetric matrix with noise; zero where the scale is zero.

        Args:
            rows: one row per record, the columns of all groups side by side.
            generator: source of the noise, by default the secure generator.

        **Guarantee**: that of the class. The matrix may have negative eigenvalues.
        """
        return self.release_blocks([rows], generator)

    def release_blocks(
        self, blocks: Iterable[ArrayLike], generator: RandomSource | None = None
    ) -> Matrix:
        """Return what `release` does, of a table that comes in blocks of rows.

        Args:
            blocks: tables with the columns of all groups side by side; how rows are spread over
                them makes no difference, to the last bit.
            generator: source of the noise, by default the secure generator.

        **Guarantee**: that of the class.
        """
        source = default_generator() if generator is None else generator
        sums = self._sums(blocks)
        upper = np.triu_indices(self.columns)

        def draw() -> Vector:
            steps = in_steps(sums, self._rounded.exponents - self._exponents)
            return self._rounded.on_grid(steps, source)

        matrix = np.zeros((self.columns, self.columns))
        matrix[upper] = released(draw, lambda: self._described(sums), source)
        return matrix + np.triu(matrix, 1).T

    @cached_property
    def _rounded(self) -> RoundedNoise:
        return RoundedNoise(self.entry_scales[np.triu_indices(self.columns)], STANDARD_NORMAL)

    @cached_property
    def _column_exponents(self) -> NDArray[np.int64]:
        exponents = [math.frexp(clip)[1] for clip in self.clips]
        return np.repeat(np.array(exponents, dtype=np.int64), self.sizes)

    @cached_property
    def _exponents(self) -> NDArray[np.int64]:
        """By which powers of two entries of the upper triangle were divided."""
        i, j = np.triu_indices(self.columns)
        return self._column_exponents[i] + self._column_exponents[j]

    def _sums(self, blocks: Iterable[ArrayLike]) -> FixedPoint:
        """Return the exact upper triangle, entries divided by powers of two near the clips."""
        total = MomentSums(self.sizes, self.clips, self._last_alone).of(map(self._checked, blocks))
        return FixedPoint(total.limbs[:, *np.triu_indices(self.columns)], total.exponent)

    @property
    def _last_alone(self) -> bool:
        """Whether only pairs with the last group are released."""
        return not any(scale for row in self.scales[:-1] for scale in row[:-1])

    def _checked(self, block: ArrayLike) -> Matrix:
        table = real_numbers(block, "rows")
        if table.ndim != 2 or table.shape[1] != self.columns:
            raise ValueError(
                f"rows must be a table with {self.columns} columns, got shape {table.shape}"
            )
        return table

    def _described(self, sums: FixedPoint) -> Release:
        """Return what a replay is told: entries in units of their noise."""
        scales = self._rounded.scales
        noisy = np.greater(scales, 0)
        with np.errstate(over="ignore", under="ignore"):
            values = np.ldexp(sums.doubles(), self._exponents)
        return Release(
            type(self).__name__,
            np.where(noisy, values / np.where(noisy, scales, 1.0), 0.0),
            L2Ball(scales.size, self.mu, adjacency=self.adjacency, source=Source.CLIPPED),
            {"scales": scales},
            loss=lambda: self.loss,
            resolution=min(float((self._rounded.grid[noisy] / scales[noisy]).max()), 1.0),
        )


def exact_moments(
    blocks: Iterable[ArrayLike], sizes: Sequence[int], clips: Sequence[float]
) -> NDArray[np.object_]:
    """Return the sum of x xᵀ over clipped rows, as the rational numbers that it consists of.

    Args:
        blocks: tables with the columns of all groups side by side, one row per record.
        sizes: number of columns in every group, in order.
        clips: l2 norm to which the columns of every group are scaled down, row by row.

    Rows are treated as `GaussianMoments` treats them: what one of them adds keeps the bounds that
    are named there, to the last bit.

    **Guarantee**: none. These sums have no noise: they are for mechanisms that add theirs later,
    and are published nowhere.

    Example:
        >>> from taut.noise import exact_moments
        >>> exact_moments([[[0.5, 1.5], [0.25, -1.0]]], (1, 1), (1.0, 2.0))[0].tolist()
        [Fraction(5, 16), Fraction(1, 2)]
    """
    plain = GaussianMoments(
        tuple(sizes), tuple(clips), tuple(tuple(one * other for other in clips) for one in clips)
    )
    sums, exponents = plain._sums(blocks), plain._exponents.tolist()
    matrix = np.empty((plain.columns, plain.columns), dtype=np.object_)
    upper = zip(*np.triu_indices(plain.columns), strict=True)
    for (i, j), units, exponent in zip(upper, sums.integers(), exponents, strict=True):
        entry = Fraction(units) * Fraction(2) ** (sums.exponent + exponent)
        matrix[i, j] = matrix[j, i] = entry
    return matrix


def gaussian_moments(
    sizes: Sequence[int],
    clips: Sequence[float],
    *,
    epsilon: float,
    delta: float,
    shares: ArrayLike | None = None,
    portion: float = 1.0,
    adjacency: Adjacency | str = Adjacency.ADD_REMOVE,
) -> GaussianMoments:
    """Return second moments with the noise that keeps a promise.

    Args:
        sizes: number of columns in every group, in order.
        clips: l2 norm to which the columns of every group are scaled down.
        epsilon: epsilon of the promise.
        delta: probability delta of the promise.
        shares: shares of the budget mu² for pairs of groups, a symmetric table of which the upper
            triangle counts; zero for pairs that are not released. By default all are equal.
        portion: portion of the budget mu² that is spent here. Gaussian releases made for one
            promise, each after having seen the others, keep it if portions sum to 1.
        adjacency: neighbouring relation.

    **Guarantee**: the mechanism is (epsilon, delta)-DP under ``adjacency``; portions add up by the
    composition of Gaussian privacy (Dong, Roth and Su 2022, Corollary 3.3).

    Raises:
        InfeasibleBudget: if no noise within floating point keeps the promise.
    """
    whole, radii = _groups(sizes, clips)
    groups = len(whole)
    weights = np.ones((groups, groups)) if shares is None else real_numbers(shares, "shares")
    if weights.shape != (groups, groups) or not np.array_equal(weights, weights.T):
        raise ValueError(
            f"shares must be a symmetric table with {groups} rows, got shape {weights.shape}"
        )
    if not (np.isfinite(weights).all() and (weights >= 0).all() and weights.any()):
        raise ValueError(f"shares must be at least 0 and not all 0, got {weights.tolist()}")
    relation = Adjacency(adjacency)
    mu = gaussian_mu(epsilon, delta)
    if not mu > 1e-200:  # scales are floats then
        raise InfeasibleBudget(
            f"no Gaussian noise within floating point keeps epsilon={epsilon!r} at "
            f"delta={delta!r}; raise either"
        )
    parts = weights / np.triu(weights).sum() * _portion(portion)
    reach = math.sqrt(_replaced(np.sqrt(parts))) if relation is Adjacency.REPLACE else 1.0
    scales = np.zeros((groups, groups))
    for g, h in zip(*np.nonzero(parts), strict=True):
        scales[g, h] = reach * radii[g] * radii[h] / (mu * math.sqrt(parts[g, h])) * _ROOM
    return GaussianMoments(whole, radii, tuple(map(tuple, scales.tolist())), relation)


def _replaced(ratios: Matrix) -> float:
    """Return how much longer a replaced record is than one that is added, squared, from 2 to 4.

    Args:
        ratios: lengths of an added record in units of noise, shape (groups, groups), symmetric.
    """
    shares = ratios**2 / np.sum(np.triu(ratios) ** 2)
    form = (shares + np.diag(np.diag(shares))) / 2
    # What rounding moves eigenvalues by: less than the number of groups times 2^-50 of their size.
    least = np.linalg.eigvalsh(form)[0] - len(form) * 2.0**-50 * np.linalg.norm(form)
    between = float(np.triu(shares, 1).sum())
    return 2 + 2 * min(max(0.0, -len(form) * float(least)), between)


def _portion(portion: float) -> float:
    """Return the portion, checked."""
    number = validate.positive(portion=portion)
    if not _LEAST_PORTION <= number <= 1:
        raise ValueError(
            f"portion must be between {_LEAST_PORTION:g} and 1, got portion={portion!r}"
        )
    return number


def _groups(
    sizes: Sequence[int], clips: Sequence[float]
) -> tuple[tuple[int, ...], tuple[float, ...]]:
    """Return sizes and clips of groups, checked."""
    whole = tuple(validate.positive_integer(size=size) for size in sizes)
    radii = tuple(validate.positive(clip=clip) for clip in clips)
    if not whole or len(whole) != len(radii):
        raise ValueError(
            f"sizes and clips must be as many, one of each per group, got {len(whole)} sizes and "
            f"{len(radii)} clips"
        )
    if sum(whole) > _MOST_COLUMNS:
        raise ValueError(
            f"rows must have at most {_MOST_COLUMNS} columns in all groups, got {sum(whole)}: half "
            "of its square are the numbers that are released"
        )
    if not 1 / _LARGEST_CLIP <= min(radii) <= max(radii) <= _LARGEST_CLIP:
        raise ValueError(
            f"clip must lie between {1 / _LARGEST_CLIP:g} and {_LARGEST_CLIP:g}, got "
            f"clips={list(radii)}; count in other units, as products of entries are released"
        )
    return whole, radii
