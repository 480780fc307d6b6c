"""Samples of posteriors of ridge regressions, as releases."""

from __future__ import annotations

import math
from dataclasses import dataclass
from functools import cached_property

import numpy as np
from numpy.typing import ArrayLike

from taut._base import validate
from taut._base.arrays import Matrix, Vector
from taut.accounting import Adjacency, PrivacyLoss
from taut.errors import AdjacencyMismatch, InfeasibleBudget
from taut.estimators._contract.entries import as_numbers, as_targets
from taut.estimators._posterior.bounds import (
    largest_precision,
    loosest_pair,
    public_log_residual,
)
from taut.estimators._posterior.equations import Equations, equations_of
from taut.estimators._posterior.pair import PosteriorPair
from taut.estimators._posterior.samples import (
    VARIATION,
    grid_exponent,
    in_doubles,
    rounded_sample,
)
from taut.noise import L2Ball, RandomSource, Source, default_generator
from taut.noise.recording import Release, released

__all__ = ["RidgePosterior", "checked_records", "drawn", "ridge_posterior"]

_WITHIN = 1 - 1e-9  # of the promise: what the loss rounds up must still be within it
_RAISED = 1.05  # factor by which a ridge grows until a promise can be kept


@dataclass(frozen=True)
class RidgePosterior:
    """One sample of the posterior of a ridge regression, instead of its solution with noise.

    A draw from the density proportional to exp(-precision (|y - X theta|^2 + ridge |theta|^2) / 2),
    which is normal around the solution with the covariance (precision (X'X + ridge))^-1.

    Args:
        row_clip: l2 norm to which the features of a record are scaled down.
        target_clip: magnitude to which targets are cut.
        ridge: number that is added to the diagonal of X'X; 2^-40 to 2^60 squares of ``row_clip``.
        precision: one over the variance of a residual; the larger, the less noise.
        records: public number of records, which bounds the length of the solution.
        adjacency: ``"zero_out"`` or ``"replace"``: where one can be added, their number is not
            public.

    **Guarantee**: `loss`, exact for the worst record if its residual and its weight are the worst
    at once (docs/theory/posterior-sampling.md; Zhu 2023, Theorem 6.4.7 is smaller, and wrong:
    docs/errata.md). Records are clipped here; those with NaN or infinity count as zero. Numbers are
    rational or have 200 digits, normal numbers 128 random bits within cells that are drawn exactly,
    and samples are rounded to a public grid of 2^-40 of their largest possible deviation: their law
    is that of the rounded posterior but for a total variation of 2^-90, which is part of the loss.
    How long a draw takes is not covered.

    Raises:
        AdjacencyMismatch: for add/remove.

    Example:
        >>> from taut.estimators import RidgePosterior
        >>> posterior = RidgePosterior(
        ...     row_clip=1.0, target_clip=1.0, ridge=50.0, precision=0.05, records=1000,
        ... )
        >>> posterior.release([[0.5, 0.5]] * 1000, [1.0] * 1000).shape
        (2,)
        >>> round(posterior.loss.epsilon(delta=1e-6), 2)
        0.58
    """

    row_clip: float
    target_clip: float
    ridge: float
    precision: float
    records: int
    adjacency: Adjacency | str = "zero_out"

    def __post_init__(self) -> None:
        """Check the parameters."""
        for name in ("row_clip", "target_clip", "ridge", "precision"):
            value = validate.positive(**{name: getattr(self, name)})
            object.__setattr__(self, name, float(value))
        validate.positive_integer(records=self.records)
        relation = Adjacency(self.adjacency)
        if relation not in (Adjacency.ZERO_OUT, Adjacency.REPLACE):
            raise AdjacencyMismatch(
                "adjacency must be 'zero_out' or 'replace', for which the number of records is "
                f"public, got {str(relation)!r}; AdaptivePosterior needs no such number"
            )
        object.__setattr__(self, "adjacency", relation)
        self.pair  # noqa: B018  # parameters beyond its range are refused here

    @cached_property
    def pair(self) -> PosteriorPair:
        """The exact loss of the worst record."""
        ridge = _within_range(self.ridge / self.row_clip / self.row_clip)
        return loosest_pair(
            1 / ridge,
            public_log_residual(ridge, self.records),
            self.precision * self.target_clip * self.target_clip,
            Adjacency(self.adjacency),
        )

    @property
    def loss(self) -> PrivacyLoss:
        """The privacy loss of one sample."""
        return self.loss_tight_at(0.0)

    def loss_tight_at(self, epsilon: float) -> PrivacyLoss:
        """Return the privacy loss of one sample, with no slack at one epsilon.

        Args:
            epsilon: where the loss is wanted exactly.
        """
        return self.pair.loss(adjacency=self.adjacency, tight_at=epsilon, failure=VARIATION)

    def release(
        self, rows: ArrayLike, targets: ArrayLike, generator: RandomSource | None = None
    ) -> Vector:
        """Return coefficients, one per feature.

        Args:
            rows: features, one row per record.
            targets: one number per record.
            generator: source of randomness, by default the secure generator.

        **Guarantee**: that of the class.

        Raises:
            ValueError: if there are more records than were declared.
        """
        table, numbers = checked_records(rows, targets)
        if len(table) > self.records:
            raise ValueError(
                f"records must be at least the number of rows, {len(table)}, got "
                f"records={self.records}: the loss counts on it"
            )
        block = np.column_stack([table, numbers])
        equations = equations_of(
            [block], table.shape[1], row_clip=self.row_clip, target_clip=self.target_clip
        )
        return drawn(
            equations,
            self.ridge / self.row_clip / self.row_clip,
            self.precision * self.target_clip * self.target_clip,
            unit=self.target_clip / self.row_clip,
            loss=self.loss,
            generator=generator,
        )


def ridge_posterior(
    *,
    row_clip: float,
    target_clip: float,
    records: int,
    features: int,
    epsilon: float,
    delta: float,
    adjacency: Adjacency | str,
    ridge: float | None = None,
) -> RidgePosterior:
    """Return the posterior with the largest precision that keeps a promise, whatever the data.

    Args:
        row_clip: l2 norm to which the features of a record are scaled down.
        target_clip: magnitude to which targets are cut.
        records: public number of records.
        features: number of features.
        epsilon: promise for one sample.
        delta: probability delta of it.
        adjacency: ``"zero_out"`` or ``"replace"``.
        ridge: ridge in squares of ``row_clip``; by default one that balances bias and noise (Wang
            2018, OPS-Balanced), raised until the promise can be kept.

    Raises:
        InfeasibleBudget: if no precision keeps the promise with the given ridge.
    """
    relation = Adjacency(adjacency)
    goal = validate.positive(epsilon=epsilon) * _WITHIN
    level = validate.below_one(delta=validate.positive(delta=delta))
    row_clip, target_clip = (
        validate.positive(row_clip=row_clip),
        validate.positive(target_clip=target_clip),
    )
    records = validate.positive_integer(records=records)
    features = validate.positive_integer(features=features)
    chosen = _balanced(features, records, goal, level) if ridge is None else _within_range(ridge)

    def most(at: float) -> float | None:
        bound = public_log_residual(at, records)
        return largest_precision(1 / at, bound, epsilon=goal, delta=level, relation=relation)

    precision = most(chosen)
    while precision is None and ridge is None and chosen < 2.0**50:
        chosen *= _RAISED
        precision = most(chosen)
    if precision is None:
        raise InfeasibleBudget(
            f"no sample of the posterior keeps epsilon={goal:g} at delta={level:g} with a ridge of "
            f"{chosen:g} squares of the clip; raise the ridge or the budget"
        )
    return RidgePosterior(
        row_clip=row_clip,
        target_clip=target_clip,
        ridge=chosen * row_clip * row_clip,
        precision=precision / (target_clip * target_clip) * _WITHIN,
        records=records,
        adjacency=relation,
    )


def _within_range(ridge: float) -> float:
    """Return a ridge whose inverse and products with squares of clips are floats."""
    number = validate.positive(ridge=ridge)
    if not 1 / _LARGEST_RIDGE <= number <= _LARGEST_RIDGE:
        raise ValueError(
            f"ridge must be between {1 / _LARGEST_RIDGE:g} and {_LARGEST_RIDGE:g} squares of "
            f"row_clip, got ridge={ridge!r}"
        )
    return number


def _balanced(features: int, records: int, epsilon: float, delta: float) -> float:
    """Return the ridge of OPS-Balanced, in squares of the clip (Wang 2018)."""
    spent = min(epsilon / 2, math.sqrt(epsilon / 2))
    width = features / 2 + math.sqrt(features * _LOG_RISK) + _LOG_RISK
    noise = width * math.log(2 / delta) / spent**2
    return max(math.cbrt(noise * records / 2), (1 + math.log(2 / delta)) / epsilon)


_LARGEST_RIDGE = 1e100  # in squares of the clip: so much shrinks all coefficients to zero
_LOG_RISK = math.log(1 / 0.05)  # of the probability that a sample is worse than its bound


def checked_records(rows: ArrayLike, targets: ArrayLike) -> tuple[Matrix, Vector]:
    """Return features and targets as doubles, after checks of their shapes and types alone.

    Args:
        rows: features, one row per record.
        targets: one number per record.
    """
    table, numbers = as_numbers(rows, "rows"), as_targets(targets, "targets")
    if table.ndim != 2 or numbers.shape != table.shape[:1]:
        raise ValueError(
            "rows must be a table with one row per target, got shapes "
            f"{table.shape} and {numbers.shape}"
        )
    return table, numbers


def drawn(
    equations: Equations,
    ridge: float,
    precision: float,
    *,
    unit: float,
    loss: PrivacyLoss,
    generator: RandomSource | None,
) -> Vector:
    """Draw a sample, in units of the data.

    Args:
        equations: normal equations in units of the clips.
        ridge: ridge in squares of the clip of the features.
        precision: precision in one over squares of the clip of the targets.
        unit: clip of the targets over that of the features.
        loss: privacy loss of the sample.
        generator: source of randomness, None for the secure generator.
    """
    source = default_generator() if generator is None else generator
    exponent = grid_exponent(ridge, precision)
    solved = equations.ridge(ridge)

    def draw() -> Vector:
        return in_doubles(rounded_sample(solved, precision, exponent, source), exponent, unit)

    def described() -> Release:
        relation = loss.adjacency
        # A record moves X'X and X'y by at most one each; two by root two and two.
        reach = math.sqrt(6) if relation is Adjacency.REPLACE else math.sqrt(2)
        value = equations.values
        return Release(
            "RidgePosterior",
            value,
            L2Ball(value.size, reach * _CLIPPED, adjacency=relation, source=Source.CLIPPED),
            {"ridge": ridge, "precision": precision, "grid": exponent, "unit": unit},
            loss=lambda: loss,
        )

    coefficients: Vector = released(draw, described, source)
    return np.asarray(coefficients, dtype=np.float64)


_CLIPPED = 1 + 1e-9  # the rounding of lengths in doubles
