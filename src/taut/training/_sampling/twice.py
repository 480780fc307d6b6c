"""Twice sampling: records first, then the coordinates of every clipped gradient."""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass, replace
from functools import lru_cache
from typing import TYPE_CHECKING, Self

import numpy as np
from numpy.typing import NDArray

from taut._base import validate
from taut._base.rounding import round_up
from taut.accounting import (
    PrivacyLoss,
    equal_compute_plan,
    twice_sampled,
    twice_sampled_blocks,
)
from taut.errors import UnsoundConfiguration
from taut.noise import MaskedBlocks
from taut.training._sampling.masks import dyadic_rate
from taut.training._sampling.sampling import PoissonSampling

if TYPE_CHECKING:
    from taut.training._clipping.clipping import Clipping, EntryBlock
    from taut.training._noise.step_noise import StepNoise

__all__ = ["TwiceSampling"]

_SLACK = 1 + 1e-12  # a quotient of bounds may be off by a few roundings; noise allows for 1e-4
_ROUGH = 1e-2


@dataclass(frozen=True)
class TwiceSampling(PoissonSampling):
    """Draw examples as `PoissonSampling`, then keep every coordinate of each with a probability.

    Plain Poisson sampling at the same rate, which computes the same gradients, always promises
    more with noise that hides as much of the estimate; the plan says how much. Masks pay where a
    coordinate costs something by itself: to send, to ask for, or to store.

    Args:
        rate: the probability of an example, in (0, 1]; left out, a plan sets it.
        coordinate_rate: the probability of a coordinate of a clipped gradient, a multiple of
            2^-16 between 0 and 1.
        spread: over how many coordinates a gradient of full length must reach: no entry may exceed
            norm / sqrt(spread), which the clipping has to see to. With `HybridClip` every block
            has a spread of its own, and this one does not matter.
        blocks: set by a plan for a clipping in several blocks: for each the bound on its length
            and on its entries, in units of the noise at multiplier one.

    **Guarantee**: add/remove adjacency; `step_loss` bounds the Renyi divergences of the noisy sum
    (Xiao, Wan and Devadas 2023, Theorems 5.4 and 5.6), if batches and masks stay secret, are drawn
    afresh in every step, and gradients are clipped in l2 and in every entry. There is no dominating
    pair: epsilon comes from the divergences.

    Example:
        >>> from taut.training import L2LInfClip, Plan, TwiceSampling
        >>> plan = Plan(
        ...     examples=50_000, rate=0.02, steps=500, noise_multiplier=1.0, delta=1e-5,
        ...     clipping=L2LInfClip.spread_over(1.0, spread=100), sampling=TwiceSampling(),
        ... )
        >>> print(f"{plan.epsilon:.2f}")
        1.02
    """

    name = "twice"
    may_change = False

    coordinate_rate: float = 0.5
    spread: float = 100.0
    blocks: tuple[tuple[float, float], ...] | None = None

    def __post_init__(self) -> None:
        super().__post_init__()
        rate = dyadic_rate(coordinate_rate=self.coordinate_rate)
        object.__setattr__(self, "coordinate_rate", rate)
        if not validate.positive(spread=self.spread) >= 1:
            raise ValueError(
                f"spread must be at least 1, where one entry may hold all, got {self.spread!r}"
            )
        for block in self.blocks or ():
            length, entry = block
            validate.positive(blocks=length)
            validate.positive(blocks=entry)

    def step_loss(self, noise_multiplier: float, examples: int) -> PrivacyLoss:
        rates = self._rate, self.coordinate_rate
        if self.blocks is None:
            entry = math.nextafter(1 / math.sqrt(self.spread), 2.0)
            return twice_sampled(
                *rates, noise_multiplier, clip_inf=entry, dimension=_enough(1.0, entry)
            )
        return twice_sampled_blocks(
            *rates,
            [noise_multiplier] * len(self.blocks),
            clips=[length for length, _ in self.blocks],
            clip_infs=[entry for _, entry in self.blocks],
            dimensions=[_enough(*block) for block in self.blocks],
        )

    # --- what clipping must do, and its noise ----------------------------------------------------

    def for_clipping(self, clipping: Clipping) -> Self:
        found = _entry_blocks(clipping)
        if len(found) > 1:
            shape = self._masked(found, 1).proportions
            return replace(self, blocks=_whitened(found, shape))
        (block,) = found
        if block.entry_bound > block.norm / math.sqrt(self.spread) * _SLACK:
            raise UnsoundConfiguration(
                f"clipping={clipping!r} lets one entry hold more than the loss of "
                f"TwiceSampling(spread={self.spread:g}) assumes; bound entries by norm / "
                f"sqrt(spread) = {block.norm / math.sqrt(self.spread):g}, as L2LInfClip.spread_over"
                f"({block.norm:g}, spread={self.spread:g}) does, or account for spread="
                f"{max((block.norm / block.entry_bound) ** 2, 1.0):g}"
            )
        return replace(self, blocks=None)

    def tuned(self, clipping: Clipping, steps: int, epsilon: float, delta: float) -> Self:
        """Return the sampling with the least noise for several blocks.

        Whatever shape the search returns, the plan accounts for it afterwards (Xiao, Wan and
        Devadas 2023, Theorem 5.6).
        """
        if self.blocks is None:
            return self
        masked = self._masked(_entry_blocks(clipping), steps)
        start = masked.certified(masked.proportions, epsilon, delta, _ROUGH)
        shape = masked.least(start, epsilon, delta)
        return replace(self, blocks=_whitened(_entry_blocks(clipping), shape))

    def check_clipping(self, clipping: Clipping) -> None:
        if self.blocks is None:
            self.for_clipping(clipping)
            if len(_entry_blocks(clipping)) == 1:
                return
        found = _entry_blocks(clipping)
        accounted = self.blocks or ()
        fits = len(found) == len(accounted) and all(
            block.entry_bound * length <= entry * block.norm * _SLACK
            for block, (length, entry) in zip(found, accounted, strict=True)
        )
        if not fits:
            raise UnsoundConfiguration(
                f"clipping={clipping!r} does not keep to the blocks {accounted} that sampling "
                "accounts for; make a new plan"
            )

    def noise(
        self, clipping: Clipping, names: Sequence[str], sizes: Sequence[int], multiplier: float
    ) -> StepNoise:
        self.check_clipping(clipping)
        found = _entry_blocks(clipping)
        lengths = [1.0] if self.blocks is None else [length for length, _ in self.blocks]
        scales = [
            multiplier * block.norm / length for block, length in zip(found, lengths, strict=True)
        ]
        return clipping.block_noise(names, sizes, scales, self.coordinate_rate)

    def comparison(self, noise_multiplier: float, examples: int, steps: int, delta: float) -> str:
        """Return what plain sampling of the same cost would have promised."""
        return _comparison(self, noise_multiplier, examples, steps, delta)

    def _masked(self, found: Sequence[EntryBlock], steps: int) -> MaskedBlocks:
        return MaskedBlocks(
            ranks=tuple(block.rank for block in found),
            l2=tuple(block.norm for block in found),
            linf=tuple(block.entry_bound for block in found),
            record_rate=self._rate,
            coordinate_rate=self.coordinate_rate,
            steps=steps,
            dimensions=tuple(_enough(block.norm, block.entry_bound) for block in found),
            weights=tuple(block.weight for block in found),
        )


@lru_cache(maxsize=32)
def _comparison(
    sampling: TwiceSampling, noise_multiplier: float, examples: int, steps: int, delta: float
) -> str:
    loss = sampling.loss(noise_multiplier, examples, steps)
    plain = equal_compute_plan(loss, delta)
    return (
        "without masks and without bounds on entries, PoissonSampling at the same rate with noise "
        f"multiplier {plain.multiplier:.6g} computes the same gradients, has the same noise over "
        f"the expected gradient, and promises epsilon {round_up(plain.epsilon, 4)} instead of "
        f"{round_up(loss.epsilon(delta), 4)} (by Renyi divergences alone "
        f"{round_up(max(plain.renyi_epsilon, plain.epsilon), 4)}) at delta {delta!r}: masks pay "
        "only where coordinates cost something by themselves"
    )


def _entry_blocks(clipping: Clipping) -> tuple[EntryBlock, ...]:
    found = clipping.entry_blocks
    if found is None:
        raise UnsoundConfiguration(
            f"clipping={clipping!r} bounds no single entries, without which sampling coordinates "
            "gains nothing and has no proof here; use L2LInfClip.spread_over(norm, spread=100), or "
            "HybridClip with entry_bounds, or PoissonSampling, which needs no such bound"
        )
    return found


def _whitened(
    found: Sequence[EntryBlock], scales: NDArray[np.float64]
) -> tuple[tuple[float, float], ...]:
    """Return bounds of blocks in units of noise, so that the length of all together is one."""
    whole = math.hypot(*(block.norm / scale for block, scale in zip(found, scales, strict=True)))
    pairs = []
    for block, scale in zip(found, scales, strict=True):
        length = block.norm / float(scale) / whole
        entry = length * (min(block.entry_bound, block.norm) / block.norm)
        pairs.append((length, math.nextafter(entry, math.inf)))
    return tuple(pairs)


def _enough(length: float, entry: float) -> int:
    """Return more coordinates than the worst record fills: how many there are does not matter."""
    return math.ceil((length / entry) ** 2) + 1
