"""Which of two answers more records vote for, with noise, where one leads clearly."""

from __future__ import annotations

import math
from dataclasses import dataclass
from decimal import MAX_EMAX, MIN_EMIN, Context, Decimal
from fractions import Fraction
from functools import cached_property

import numpy as np

from taut._base import validate
from taut._base.arrays import Vector, real_numbers
from taut.accounting import Adjacency, PrivacyLoss, approximate
from taut.adaptive._propose.distance_test import DistanceTest, checked_delta
from taut.adaptive._propose.frozen_fields import settle
from taut.adaptive._propose.general.losses import behind_distance
from taut.adaptive._propose.outcome import Outcome
from taut.adaptive._secret import Secret
from taut.errors import AdjacencyMismatch
from taut.noise import Box, RandomSource, default_generator
from taut.noise.recording import Release, released

__all__ = ["ProposedVote", "vote_losses"]

_LOSS_ERROR = 1e-12  # absolute and relative: logarithms of sums of few terms
_MOST_VOTE_LOSS = 1e6  # beyond, logarithms of chances keep fewer than ten digits of a difference
_WORD_BITS = 64  # of a draw from the generator
_SPARE_DIGITS = 30  # beyond those compared: products and exp are good to the last few


@dataclass(frozen=True)
class ProposedVote:
    """The answer of two with more votes, by noisy counts, if one leads clearly; else a refusal.

    Args:
        epsilon: loss of the noise alone: Laplace noise of scale 1 / ``epsilon`` on both counts,
            between 1e-4 and 500.
        limit: loss that is wanted instead, below ``epsilon``.
        delta: probability of a larger loss than ``limit``; below 1/2.
        test: what is spent to find out whether the lead is one at which the loss is within the
            limit; for add/remove neighbours.

    Where one answer leads by many records the noise hardly ever turns it around, and the loss at
    ``delta`` falls to zero. It rises first: all leads at which it exceeds the limit are between two
    numbers, and the distance to those is tested.

    **Guarantee**: (``limit`` + ``test.epsilon``, max(``delta``, ``test.failure``))-DP for
    add/remove neighbours (Zhu 2023, Example 6.5.1, corrected; docs/theory/propose-test-release.md).

    Raises:
        ValueError: if a parameter is out of range.
        AdjacencyMismatch: if the test is for another relation.

    Example:
        >>> from taut.adaptive import DistanceTest, ProposedVote
        >>> test = DistanceTest(epsilon=0.5, delta=1e-6, adjacency="add_remove")
        >>> vote = ProposedVote(epsilon=1.0, limit=0.1, delta=1e-6, test=test)
        >>> vote.release(80, 20).value
        0
        >>> round(vote.loss.epsilon(delta=1e-6), 6)
        0.6
    """

    epsilon: float
    limit: float
    delta: float
    test: DistanceTest

    def __post_init__(self) -> None:
        """Check the parameters."""
        if not 1e-4 <= validate.positive(epsilon=self.epsilon) <= 500:  # some 10^7 leads; exp
            raise ValueError(f"epsilon must be between 1e-4 and 500, got {self.epsilon!r}")
        settle(
            self,
            epsilon=float(self.epsilon),
            limit=validate.non_negative(limit=self.limit),
            delta=checked_delta(self.delta),
        )
        if not isinstance(self.test, DistanceTest):
            raise validate.WrongType(f"test must be a DistanceTest, got test={self.test!r}")
        if self.test.adjacency is not Adjacency.ADD_REMOVE:
            raise AdjacencyMismatch(
                f"test must be for adjacency='add_remove', got {str(self.test.adjacency)!r}"
            )

    @cached_property
    def loss(self) -> PrivacyLoss:
        """The privacy loss of one release, refused or not."""
        within = approximate(self.limit, self.delta, adjacency=Adjacency.ADD_REMOVE)
        return behind_distance(self.test, within, "both")

    @cached_property
    def _violating(self) -> tuple[int, int] | None:
        """The least and the largest lead at which the loss may exceed the limit."""
        leads = np.arange(_harmless(self.epsilon, self.delta) + 2, dtype=np.float64)
        losses = _losses(leads, self.epsilon, self.delta * (1 - _LOSS_ERROR))
        unsure = losses * (1 + _LOSS_ERROR) + _LOSS_ERROR > self.limit
        # Where a vote less still turns the winner around with less than delta, the loss is zero.
        rare, _ = _log_chances(leads - 1, self.epsilon)
        over = np.flatnonzero(unsure & (rare > math.log(self.delta) - _LOSS_ERROR))
        return None if over.size == 0 else (int(over[0]), int(over[-1]))

    def distance(self, first: int, second: int) -> Secret[int]:
        """Return how many votes must come or go before the limit is violated.

        Args:
            first: number of votes for the first answer.
            second: number of votes for the second.
        """
        lead = abs(_votes(first=first) - _votes(second=second))
        if self._violating is None:
            return Secret(self.test.cap)
        least, most = self._violating
        return Secret(max(least - lead, lead - most, 0))

    def release(
        self, first: int, second: int, generator: RandomSource | None = None
    ) -> Outcome[int]:
        """Return the place of the winner, 0 or 1, or a refusal.

        Args:
            first: number of votes for the first answer.
            second: number of votes for the second.
            generator: source of the noise, by default the secure generator.

        **Guarantee**: that of the class. The winner is drawn exactly as by Laplace noise in real
        numbers.
        """
        if not self.test.passes(self.distance(first, second), generator):
            return Outcome(False, None, self.loss)
        lead = int(first) - int(second)
        source = default_generator() if generator is None else generator

        def draw() -> int:
            turned = _minority_wins(abs(lead), Fraction(self.epsilon), source)
            return int((lead < 0) != turned)

        return Outcome(True, released(draw, lambda: self._described(lead), source), self.loss)

    def _described(self, lead: int) -> Release:
        return Release(
            type(self).__name__,
            np.array([float(lead)]),
            Box([1.0], adjacency=Adjacency.ADD_REMOVE),
            {"epsilon": self.epsilon},
            loss=lambda: approximate(self.limit, self.delta, adjacency=Adjacency.ADD_REMOVE),
        )


def vote_losses(leads: Vector, epsilon: float, delta: float) -> Vector:
    """Return the loss at ``delta`` of a noisy vote at every lead, in both directions.

    To plan with, for leads that are made up: the loss at the lead of the data is a secret. It is
    the largest log((P - delta) / P') over outcomes, over one vote more or less, and over which of
    the two datasets is which. Not rounded to a side.

    Args:
        leads: whole numbers of at least 0 and at most 10^6 / ``epsilon``, shape (n,).
        epsilon: Laplace noise on both counts has scale 1 / ``epsilon``.
        delta: probability of a larger loss, which may be 0.

    Raises:
        ValueError: for numbers out of range, and leads of which a vote more is lost in rounding.
    """
    noise, rare = validate.positive(epsilon=epsilon), validate.below_one(delta=delta)
    at = real_numbers(leads, "leads")
    whole = at.ndim == 1 and np.array_equal(at, np.floor(at)) and (at >= 0).all()
    if not (whole and noise <= _MOST_VOTE_LOSS and (at <= _MOST_VOTE_LOSS / noise).all()):
        raise ValueError(
            "leads must be whole numbers of at least 0, in a row, and epsilon times each at most "
            f"10^6, as losses are, got leads={leads!r} and epsilon={epsilon!r}"
        )
    return _losses(at, noise, rare)


def _losses(leads: Vector, epsilon: float, delta: float) -> Vector:
    here = _log_chances(leads, epsilon)
    worst = np.zeros(leads.shape)
    for step in (-1.0, 1.0):
        there = _log_chances(leads + step, epsilon)
        for p, q in zip((*here, *there), (*there, *here), strict=True):
            with np.errstate(divide="ignore", invalid="ignore", over="ignore"):
                kept = np.where(p > math.log(delta) if delta > 0 else True, -delta * np.exp(-p), -1)
                loss = p + np.log1p(np.maximum(kept, -1.0)) - q
            worst = np.maximum(worst, np.where(np.isnan(loss), 0.0, loss))
    return worst


def _log_chances(leads: Vector, epsilon: float) -> tuple[Vector, Vector]:
    """Return the logarithms of the chances of the minority and of the majority."""
    x = epsilon * np.abs(leads)
    rare = np.log(2 + x) - math.log(4) - x
    usual = np.log1p(-np.exp(rare))
    return np.where(leads >= 0, rare, usual), np.where(leads >= 0, usual, rare)


def _harmless(epsilon: float, delta: float) -> int:
    """Return a lead from which on, one vote less included, the minority wins less than delta."""
    # (2 + x) / 4 exp(-x) <= exp(-x / 2) for all x >= 0.
    return math.ceil(-2 * math.log(delta) / epsilon) + 2


def _minority_wins(lead: int, epsilon: Fraction, source: RandomSource) -> bool:
    """Draw with the probability (2 + x) / (4 exp(x)), x = epsilon lead, exactly."""
    word = bits = 0
    while True:
        word = (word << _WORD_BITS) | int(source.integers_u64(1)[0])
        bits += _WORD_BITS
        context = Context(prec=bits // 3 + _SPARE_DIGITS, Emin=MIN_EMIN, Emax=MAX_EMAX)
        x = context.divide(Decimal(epsilon.numerator * lead), Decimal(epsilon.denominator))
        p = context.multiply(context.divide(context.add(2, x), 4), context.exp(-x))
        scaled = context.multiply(p, Decimal(1 << bits))
        error = context.scaleb(context.add(scaled, 1), _SPARE_DIGITS // 2 - context.prec)
        if word + 1 <= context.subtract(scaled, error):
            return True
        if word >= context.add(scaled, error):
            return False


def _votes(**argument: int) -> int:
    """Return a number of votes; what is wrong is said without its value."""
    ((name, count),) = argument.items()
    if isinstance(count, bool | np.bool_) or not isinstance(count, int | np.integer) or count < 0:
        raise ValueError(f"{name} must be a whole number of votes, at least 0")
    return int(count)
