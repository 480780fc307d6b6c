"""Regions of rates that a claim allows, and bets against them that are fair at best."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TypeAlias

import numpy as np
from numpy.typing import NDArray

from taut.audit._attacks.claim import Claim

__all__ = ["Bet", "Region"]

Numbers: TypeAlias = NDArray[np.float64]

_GRID = 300  # points of the boundary that bets are aimed at: a miss costs growth, never validity
_LEAST = 1e-9  # of what the aim leaves: nearer to certainty, payoffs would be infinite
_MARGIN = 1 + 1e-12  # bets are made smaller by this, a thousand times what rounding can add


@dataclass(frozen=True)
class Bet:
    """What one run multiplies the evidence with.

    Attributes:
        payoffs: factors of shape (2, 2), by whether the canary is in the run and whether the run is
            taken for one that has it.
        growth: the expected logarithm of the factor, at the rates that the bet was made for.
    """

    payoffs: Numbers
    growth: float

    def log_payoff(self, with_canary: bool, taken: bool, stake: float = 1.0) -> float:
        """Return the logarithm of the factor, if this share of the evidence is staked."""
        return float(np.log1p(stake * (self.payoffs[int(with_canary), int(taken)] - 1.0)))


class Region:
    """Pairs of false- and true-positive rates that a claim allows, below a concave boundary.

    Args:
        slopes: slopes of lines that no pair of rates is above,
        intercepts: intercepts of the same lines.

    **Guarantee**: a bet multiplies by one on average, or less, whatever rates of the region are
    the true ones, if a fair coin decides about the canary: the mean is linear in both rates,
    and largest in a corner of the region, by which payoffs are divided (docs/theory/sequential.md).
    """

    def __init__(self, slopes: Numbers, intercepts: Numbers) -> None:
        self._slopes, self._intercepts = slopes, intercepts
        self._corners = self._found_corners()
        self._heights = self.most(self._corners)
        even = np.linspace(0.0, 1.0, _GRID)[1:-1]
        fpr = np.unique(np.concatenate([even**4, even**2, 1.0 - even**2]))
        tpr = self.most(fpr)
        inside = (tpr < 1.0 - _LEAST) & (tpr > fpr)
        self._fpr, self._tpr = fpr[inside], tpr[inside]
        self._logs = np.log(np.stack([self._tpr, 1 - self._tpr, self._fpr, 1 - self._fpr]))

    @classmethod
    def of(cls, claim: Claim) -> Region:
        """Return the region of a claim, for either order of the neighbours."""
        return cls(*claim.lines)

    @classmethod
    def of_epsilon(cls, epsilon: float, delta: float) -> Region:
        """Return the region of one pair of epsilon and delta."""
        factor = np.exp(epsilon)
        return cls(np.array([factor, 1 / factor]), np.array([delta, 1 - (1 - delta) / factor]))

    def most(self, fpr: Numbers) -> Numbers:
        """Return the largest true-positive rates at these false-positive rates."""
        lines = self._slopes * fpr[..., None] + self._intercepts
        return np.asarray(lines.min(-1).clip(0.0, 1.0))

    def growths(self, tpr: Numbers, fpr: Numbers) -> tuple[Numbers, NDArray[np.int64]]:
        """Return how fast evidence would grow at these rates, and where bets are aimed at.

        Args:
            tpr: true-positive rates, inside of (0, 1);
            fpr: false-positive rates, of the same shape (candidates,).

        The aim is the point of the boundary that is nearest in relative entropy.
        """
        if not len(self._fpr):  # all rates are allowed, or none but equal ones
            return np.zeros(len(tpr)), np.zeros(len(tpr), dtype=np.int64)
        rates = np.stack([tpr, 1 - tpr, fpr, 1 - fpr])
        entropies = (rates * np.log(rates)).sum(0)[:, None] - rates.T @ self._logs
        aims = entropies.argmin(1)
        growths = entropies[np.arange(len(aims)), aims] / 2
        return np.where(tpr > self.most(fpr), growths, 0.0), aims

    def bet(self, tpr: float, fpr: float) -> Bet | None:
        """Return the bet for a test of these rates; None if the region holds them."""
        growths, aims = self.growths(np.array([tpr]), np.array([fpr]))
        if not growths[0] > 0:
            return None
        return self.bet_at(tpr, fpr, int(aims[0]))

    def bet_at(self, tpr: float, fpr: float, aim: int) -> Bet:
        """Return the bet that is the ratio of the likelihoods at these rates and at the aim."""
        nearest_fpr, nearest_tpr = self._fpr[aim], self._tpr[aim]
        without = np.array([(1 - fpr) / (1 - nearest_fpr), fpr / nearest_fpr])
        including = np.array([(1 - tpr) / (1 - nearest_tpr), tpr / nearest_tpr])
        payoffs = np.stack([without, including])
        means = self._means(payoffs)
        payoffs = payoffs / (max(float(means.max()), 1.0) * _MARGIN)
        chances = np.array([[1 - fpr, fpr], [1 - tpr, tpr]]) / 2
        return Bet(payoffs, float((chances * np.log(payoffs)).sum()))

    def _means(self, payoffs: Numbers) -> Numbers:
        """Return the mean payoffs in all corners."""
        fpr, tpr = self._corners, self._heights
        without = (1 - fpr) * payoffs[0, 0] + fpr * payoffs[0, 1]
        including = (1 - tpr) * payoffs[1, 0] + tpr * payoffs[1, 1]
        return np.asarray((without + including) / 2)

    def _found_corners(self) -> Numbers:
        """Return false-positive rates of which some are where the boundary bends, and the ends."""
        slopes, intercepts = (
            np.concatenate([self._slopes, [0.0]]),
            np.concatenate([self._intercepts, [1.0]]),
        )
        one, other = np.triu_indices(len(slopes), 1)
        with np.errstate(divide="ignore", invalid="ignore"):
            meeting = (intercepts[other] - intercepts[one]) / (slopes[one] - slopes[other])
        inside = meeting[(meeting > 0) & (meeting < 1)]
        return np.asarray(np.unique(np.concatenate([[0.0, 1.0], inside])))
