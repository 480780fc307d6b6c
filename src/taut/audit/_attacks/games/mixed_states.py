"""Plans that mix: what a state reveals, in numbers that a claim says all about.

The mixing hides gradients, so that states are looked at. With w and v the last two, the next one is
(w + v) / 2 + momentum (w - v) + D (u - 1/2) - gradient, at a learning rate of one, where D is known
from w and v. What is left after the known part is Gaussian and uniform noise, and a record's share.
"""

from __future__ import annotations

import math
from collections.abc import Mapping
from dataclasses import dataclass
from typing import TYPE_CHECKING

import numpy as np
from numpy.typing import ArrayLike, NDArray
from scipy.special import log_ndtr, ndtri

from taut.audit._attacks.crafted import Craft, crafted
from taut.audit._attacks.statistics import Runs, Statistic

if TYPE_CHECKING:
    from taut.training import ModelMix, Plan

__all__ = ["MixedStatesGame"]

_LEAST_TAIL = 1e-300  # of a probability that becomes a normal number: -37, beyond all tests
_ROOT = math.sqrt(2 * math.pi)


@dataclass(frozen=True)
class MixedStatesGame:
    """Crafted pairs for a plan that mixes, and what is seen of a run's states.

    Args:
        crafts: pairs of neighbours, of which the first one is silent but for the canary.
        mixing: the mixing of the plan.
        sigma: noise multiplier.
        unit: what one clipping norm is in the mean gradient.
        shift: how far the canary moves a sum, in clipping norms.
        rate: probability that the canary is in a batch.
        shape: number of steps and of coordinates.
    """

    crafts: tuple[Craft, ...]
    mixing: ModelMix
    sigma: float
    unit: float
    shift: float
    rate: float
    shape: tuple[int, int]

    @classmethod
    def of(cls, plan: Plan, sizes: Mapping[str, int]) -> MixedStatesGame:
        """Return the game of a plan.

        Args:
            plan: a plan with mixing.
            sizes: number of weights of every parameter by its name.
        """
        assert plan.mixing is not None
        dimension = sum(sizes.values())
        norm = plan.mixing.norm(plan.clipping, plan.noise(sizes), plan.noise_multiplier)
        longest = norm
        if plan.clipping.entry_blocks is not None:  # a canary is in one coordinate
            longest = min(norm, plan.clipping.entry_blocks[0].entry_bound)
        pairs = crafted(
            plan.examples, clip_norm=norm, dimension=dimension, adjacency=plan.adjacency
        )
        return cls(
            crafts=tuple(pairs),
            mixing=plan.mixing,
            sigma=plan.noise_multiplier,
            unit=norm / plan.batch_size,
            shift=longest / norm,
            rate=plan.sampling.participation(plan.examples),
            shape=(plan.steps, dimension),
        )

    def seen(self, states: ArrayLike, craft: Craft) -> Runs:
        """Return what a run shows, of shape (steps, coordinates).

        The first coordinate is the log-likelihood ratio of the canary where nobody else speaks,
        and the sum itself, in clipping norms, elsewhere. The others are claimed to be noise, and
        become normal numbers by its distribution function.

        Args:
            states: all states of a run, that of the start first, of shape (steps + 1, coordinates).
            craft: the crafted pair.
        """
        steps, dimension = self.shape
        released = np.asarray(states, dtype=np.float64)
        if released.shape != (steps + 1, dimension):
            raise ValueError(
                "loop must return all states of a plan that mixes, that of the start first, of "
                f"shape {(steps + 1, dimension)}, got {released.shape}"
            )
        newer = released[:-1]
        older = np.concatenate([released[:1], released[:-2]])
        apart = newer - older
        middle = (newer + older) / 2 + self.mixing.momentum * apart
        sums = (middle - released[1:]) / self.unit
        widths = np.maximum(np.abs(apart) / self.unit, self.mixing.width)
        found = self._normal(sums, widths)
        found[:, 0] = sums[:, 0]
        if craft.name == self.crafts[0].name:
            moved = self._log_density(sums[:, 0] - self.shift, widths[:, 0])
            found[:, 0] = moved - self._log_density(sums[:, 0], widths[:, 0])
        return found

    def simulated(
        self, moves: NDArray[np.float64], draws: NDArray[np.float64]
    ) -> NDArray[np.float64]:
        """Return log-likelihood ratios of simulated runs, shape (runs,).

        Args:
            moves: noisy sums of the canary's coordinate, in clipping norms, shape (runs, steps).
            draws: mixing coefficients, uniform on [0, 1], shape (runs, steps).
        """
        older = newer = np.zeros(len(moves))
        total = np.zeros(len(moves))
        for move, drawn in zip(moves.T, draws.T, strict=True):
            apart = newer - older
            width = np.maximum(np.abs(apart), self.mixing.width)
            noisy = move - width * (drawn - 0.5)
            ratio = self._log_density(noisy - self.shift, width) - self._log_density(noisy, width)
            total += self._sampled(ratio)
            middle = (newer + older) / 2 + self.mixing.momentum * apart
            older, newer = newer, middle - noisy
        return total

    def statistics(self, craft: Craft) -> Mapping[str, Statistic]:
        """Return the likelihood ratio of the claimed mechanism, where it is known."""
        if craft.name != self.crafts[0].name:
            return {}
        return {"likelihood ratio": lambda runs: self._sampled(runs[:, :, 0]).sum(1)}

    def _sampled(self, ratios: NDArray[np.float64]) -> NDArray[np.float64]:
        """Return log-likelihood ratios of steps that the canary may be left out of."""
        silent = math.log1p(-self.rate) if self.rate < 1 else -math.inf
        return np.asarray(np.logaddexp(silent, math.log(self.rate) + ratios))

    def _log_density(
        self, at: NDArray[np.float64], widths: NDArray[np.float64]
    ) -> NDArray[np.float64]:
        """Return the log-density of normal and uniform noise, up to a constant of the width."""
        far = np.abs(at)  # symmetric: seen from the side where probabilities are small
        inner = log_ndtr(-(far - widths / 2) / self.sigma)
        outer = log_ndtr(-(far + widths / 2) / self.sigma)
        return np.asarray(inner + np.log(-np.expm1(outer - inner)))

    def _normal(self, at: NDArray[np.float64], widths: NDArray[np.float64]) -> Runs:
        """Return noise as normal numbers, by its distribution function."""
        far = -np.abs(at)
        upper, lower = (far + widths / 2) / self.sigma, (far - widths / 2) / self.sigma
        below = self.sigma / widths * (_integral(upper) - _integral(lower))
        return np.asarray(-np.sign(at) * ndtri(np.clip(below, _LEAST_TAIL, 0.5)))


def _integral(at: NDArray[np.float64]) -> NDArray[np.float64]:
    """Return the integral of the normal distribution function up to each number."""
    return np.asarray(at * np.exp(log_ndtr(at)) + np.exp(-np.square(at) / 2) / _ROOT)
