"""The game that a loop is audited with: crafted pairs, and its releases in units of the noise."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import TYPE_CHECKING, TypeAlias

import numpy as np
from numpy.typing import ArrayLike, NDArray

from taut.audit._attacks.claim import Claim
from taut.audit._attacks.crafted import Craft, Rows, crafted, likelihood_ratios
from taut.audit._attacks.draw_check import normal_draws
from taut.audit._attacks.games.fixed_order import FixedOrderGame
from taut.audit._attacks.games.mixed_states import MixedStatesGame
from taut.audit._attacks.games.whitening import Whitening
from taut.audit._attacks.statistics import Runs, Statistic, StepValues

if TYPE_CHECKING:
    from taut.training import Plan

__all__ = ["Loop", "LoopGame"]

Loop: TypeAlias = Callable[[Rows, int], ArrayLike]
"""Trains on examples with these gradients, from this seed; returns the gradient of every step.

For a plan that mixes it takes steps of learning rate one, and returns all states instead, that of
the start first.
"""


class LoopGame:
    """What a loop is given and what is seen of it, for a plan that it is said to carry out.

    Args:
        plan: what is claimed.
        dimension: dimension of gradients, at least 2.
        crafts: pairs of neighbours, by default both of :func:`crafted`.
        sizes: number of weights of every parameter by its name, in the order of gradients; one
            parameter of all by default.

    Raises:
        ValueError: if crafts or the plan's noise do not fit.
    """

    def __init__(
        self,
        plan: Plan,
        dimension: int,
        crafts: Sequence[Craft] | None = None,
        sizes: Mapping[str, int] | None = None,
    ) -> None:
        names = {"weight": dimension} if sizes is None else dict(sizes)
        dimension = sum(names.values())
        self._shape = (plan.steps, dimension)
        self.adjacency = plan.adjacency
        self.claim = Claim(plan.loss, plan.delta)
        self.crafts: tuple[Craft, ...]
        self._order: FixedOrderGame | None = None
        self.draws_seen_in: str | None = None
        """Name of the craft whose runs with the canary show how it was drawn, if there is one."""
        self._mixed: MixedStatesGame | None = None
        if plan.mixing is not None:
            if crafts is not None:
                raise ValueError("crafts must be left out for a plan that mixes")
            self._mixed = MixedStatesGame.of(plan, names)
            self.crafts = self._mixed.crafts
            return
        if plan.encoder is not None:
            if crafts is not None:
                raise ValueError("crafts must be left out for noise that is correlated over steps")
            self._order = FixedOrderGame.of(plan, names)
            self.crafts = self._order.crafts
            return
        self._white = Whitening.of(plan, names)
        deviation, kept = (1.0, 1.0) if self._white is not None else _noise(plan, names)
        first = plan.noise_multiplier_at(0)
        norm = 1.0 if self._white is not None else deviation / first
        self.draws_seen_in = "silent" if crafts is None else None
        if crafts is None:
            crafts = crafted(
                plan.examples, clip_norm=norm, dimension=dimension, adjacency=self.adjacency
            )
        _check_crafts(crafts, dimension)
        self.crafts = tuple(crafts)
        longest = norm
        if plan.clipping.entry_blocks is not None:  # a canary is in one coordinate
            longest = min(norm, plan.clipping.entry_blocks[0].entry_bound)
        if self._white is not None:
            longest = self._white.shift * first
            self._matrix = self._white.matrix * first
        self._scale, self._moved = _units_of(plan, norm, longest, kept)
        self._is_allocated = plan.sampling.epoch_steps > 1

    def run(self, loop: Loop, craft: Craft, with_canary: bool, run_seed: int) -> Runs:
        """Return what a run of a loop released, in units of the claimed deviation."""
        rows = craft.including if with_canary else craft.without
        if self._mixed is not None:
            return self._mixed.seen(loop(rows, run_seed), craft)
        if self._order is not None:
            return self._order.decoded @ _shaped(loop(rows, run_seed), self._shape)
        if self._white is None:
            return _units(_shaped(loop(rows, run_seed), self._shape), self._scale)
        # Blocks are crafted in units of their bounds, all of them at once.
        released = _shaped(loop(rows[:, :1] * self._white.direction, run_seed), self._shape)
        return _units(released @ self._matrix.T, self._scale)

    def statistics(self, craft: Craft) -> Mapping[str, Statistic]:
        """Return the likelihood ratios of the claimed mechanism, where they are known."""
        if self._mixed is not None:
            return self._mixed.statistics(craft)
        if self._order is not None:
            return self._order.statistics(craft)
        return likelihood_ratios(craft, relation=self.adjacency, **self._moved)

    def draws(self, runs: Runs) -> NDArray[np.float64]:
        """Return how often the canary was drawn in these runs with it, as normal numbers."""
        return normal_draws(runs, is_allocated=self._is_allocated, **self._moved)


def _units_of(
    plan: Plan, norm: float, longest: float, kept: float
) -> tuple[StepValues, dict[str, StepValues]]:
    """Return the deviation of what is released, and how the canary moves that, in its units."""
    steps = range(plan.steps) if plan.is_scheduled else range(1)
    noises = np.array([norm * plan.noise_multiplier_at(step) for step in steps])
    sizes = np.array([plan.batch_size_at(step) for step in steps])
    drawn = [plan.sampling_at(step).participation(plan.examples) for step in steps]
    scale, shift, rate = noises / (sizes * kept), longest / noises, np.array(drawn) * kept
    if not plan.is_scheduled:
        return float(scale[0]), {"shift": float(shift[0]), "rate": float(rate[0])}
    return scale, {"shift": shift, "rate": rate}


def _noise(plan: Plan, sizes: Mapping[str, int]) -> tuple[float, float]:
    """Return the deviation of a step's noise, and how likely a coordinate takes part."""
    from taut.training.extend import IndependentNoise

    noise = plan.noise(sizes)
    if not isinstance(noise, IndependentNoise):
        raise ValueError(
            f"plan must have the same noise in all coordinates, got clipping={plan.clipping!r}; "
            "audit a plan with a clipping by norms or by entries"
        )
    return noise.scales[0], noise.coordinate_rate


def _check_crafts(crafts: Sequence[Craft], dimension: int) -> None:
    if not crafts or len({craft.name for craft in crafts}) < len(crafts):
        raise ValueError("crafts must be at least one, with different names")
    for craft in crafts:
        for rows in (craft.without, craft.including):
            if rows.ndim != 2 or rows.shape[1] != dimension or rows[:, 1:].any():
                raise ValueError(
                    f"craft {craft.name!r} must hold rows of dimension={dimension} that are zero "
                    "after the first coordinate"
                )


def _units(run: NDArray[np.float64], scale: StepValues) -> NDArray[np.float64]:
    """Return what a loop released in units of the claimed deviation."""
    return np.asarray(run / np.reshape(scale, (-1, 1)))


def _shaped(released: ArrayLike, shape: tuple[int, int]) -> NDArray[np.float64]:
    run = np.asarray(released, dtype=np.float64)
    if run.shape != shape:
        raise ValueError(
            f"loop must return one gradient for every step of the plan, of shape {shape}, got "
            f"{run.shape}"
        )
    return run
