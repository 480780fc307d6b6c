"""Clipping at a quantile of the norms, which is followed from step to step and paid for."""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Self

from taut._base import validate
from taut.errors import UnsoundConfiguration
from taut.noise import L2Ball, SensitivitySet
from taut.training._clipping.clipping import FlatClip, NormClipping
from taut.training._noise.step_noise import Draw, IndependentNoise, StepNoise

if TYPE_CHECKING:
    import torch
    from torch import Tensor

    from taut.training._sampling.masks import Masks
    from taut.training._tensors.clipped_sum import ClippedSum, Layout

__all__ = ["CountedNoise", "QuantileClip"]

_GROWTH = 1.01  # the most that the noise of gradients grows by for the default noise of counts
_SHARE = 1 / 20  # of the batch: noise of counts beyond which there is next to nothing to save
_VOTE = 0.5  # what one example adds to a count or takes away from it
_LONGEST_MOVE = 50.0  # of a logarithm: more is at an end of the range in any case
_RANGE = 1000.0


@dataclass(frozen=True)
class QuantileClip(NormClipping):
    """Scale gradients down to a bound that follows a quantile of their norms.

    The bound of the first step is `norm`. Every step counts, with noise, how many gradients were
    no longer than its bound, and moves the bound towards the norm that a share `quantile` of them
    does not exceed: Andrew, Thakkar, McMahan and Ramaswamy (2021). The count costs no further
    epsilon: the noise of gradients grows by at most one percent to pay for it.

    Args:
        norm: the bound of the first step; a few times too long or too short costs some steps.
        quantile: the share of gradients that are left as they are, in (0, 1).
        learning_rate: how fast the logarithm of the bound moves, per step and unit of the share; in
            batches of less than some seventy noise multipliers counts are noisy, take less then.
        bounds: the least and the largest bound, by default a thousandth and a thousand of `norm`.
        count_noise: the standard deviation of the noise of counts, by default the larger one of
            a twentieth of the batch size and 3.6 noise multipliers.
        batch_size: the expected one; left out, a plan sets it.

    **Guarantee**: with `noise`, count and sum of clipped gradients are one Gaussian release whose
    whitened length is at most 1 / multiplier for every example, and twice that for an exchange of
    examples, whatever the bound is. So the plan's loss holds as it does for a constant norm, and
    every bound is public. All of them, `norm` among them, must be chosen without looking at the
    data.

    Example:
        >>> from taut.training import Plan, QuantileClip
        >>> plan = Plan(
        ...     examples=60_000, batch_size=512, steps=100, noise_multiplier=1.0, delta=1e-5,
        ...     clipping=QuantileClip(1.0, quantile=0.5),
        ... )
        >>> noise = plan.noise({"weight": 100, "bias": 10})
        >>> noise.count, round(noise.gradients.scales[0], 6)
        (25.6, 1.000191)
    """

    name = "quantile"
    releases_more = True

    norm: float
    quantile: float = 0.5
    learning_rate: float = 0.2
    bounds: tuple[float, float] | None = None
    count_noise: float | None = None
    batch_size: float | None = None

    def __post_init__(self) -> None:
        validate.positive(norm=self.norm)
        if not 0 < validate.probability(quantile=self.quantile) < 1:
            raise ValueError(f"quantile must be inside of (0, 1), got quantile={self.quantile!r}")
        validate.positive(learning_rate=self.learning_rate)
        for name in ("count_noise", "batch_size"):
            if getattr(self, name) is not None:
                validate.positive(**{name: getattr(self, name)})
        if self.bounds is not None:
            least, largest = (validate.positive(bounds=bound) for bound in self.bounds)
            if not least <= self.norm <= largest:
                raise ValueError(
                    f"bounds must enclose norm={self.norm!r}, got bounds={self.bounds!r}"
                )
            object.__setattr__(self, "bounds", (least, largest))

    def fitted(self, batch_size: float) -> Self:
        """Return the clipping for batches of this expected size.

        Raises:
            ValueError: if it was made for another.
        """
        if self.batch_size is None:
            return replace(self, batch_size=batch_size)
        if not math.isclose(self.batch_size, batch_size, rel_tol=1e-9):
            raise ValueError(
                f"clipping={self!r} is for another batch than one of {batch_size:g}; leave "
                "batch_size out of it, and the plan sets it"
            )
        return self

    def groups(self, names: Sequence[str]) -> list[int]:
        return [0] * len(names)

    def weights(self, squared_norms: Tensor) -> Tensor:
        """Return the factors of the first step."""
        return FlatClip(self.norm).weights(squared_norms)

    def sensitivity(self, names: Sequence[str], sizes: Sequence[int]) -> SensitivitySet:
        """Return the set of the first step's clipped gradients, without the count."""
        return L2Ball(sum(sizes), self.norm)

    def noise(self, names: Sequence[str], sizes: Sequence[int], multiplier: float) -> CountedNoise:
        """Return the noise of gradients, in units of the bound, and that of counts.

        Raises:
            UnsoundConfiguration: if counts alone would cost more than the multiplier allows.
        """
        strength = validate.positive(multiplier=multiplier)
        count = self._noise_of_counts(strength)
        left = 1.0 - (strength * _VOTE / count) ** 2
        if left <= 0:
            raise UnsoundConfiguration(
                f"count_noise={count!r} leaves nothing for gradients at noise multiplier "
                f"{strength:g}; it must be above {_VOTE * strength:g}, best above {strength:g}"
            )
        gradients = IndependentNoise((strength / math.sqrt(left),), (0,) * len(names))
        return CountedNoise(gradients, count)

    def _empty_sum(self, layout: Layout, masks: Masks | None) -> ClippedSum:
        from taut.training._tensors.clipped_sum import VotingSum

        return VotingSum(self, *layout)

    def at(self, norm: float) -> FlatClip:
        """Return the clipping of a step whose bound is `norm`."""
        return FlatClip(norm)

    def moved(self, norm: float, votes: float) -> float:
        """Return the bound after `norm`.

        Args:
            norm: the bound that gradients were compared with.
            votes: the noisy count: of gradients that were no longer, half minus those that were.
        """
        share = votes / self._expected + 0.5
        move = -self.learning_rate * (share - self.quantile)
        least, largest = self.bounds or (self.norm / _RANGE, self.norm * _RANGE)
        reached = norm * math.exp(min(max(move, -_LONGEST_MOVE), _LONGEST_MOVE))
        return min(max(reached, least), largest)

    @property
    def _expected(self) -> float:
        if self.batch_size is None:
            raise ValueError(
                "batch_size must be set before gradients are clipped: QuantileClip(norm, "
                "batch_size=...), or a plan with this clipping"
            )
        return self.batch_size

    def _noise_of_counts(self, multiplier: float) -> float:
        if self.count_noise is not None:
            return self.count_noise
        cheap = _VOTE * multiplier / math.sqrt(1.0 - _GROWTH**-2)
        return max(_SHARE * self._expected, cheap)


@dataclass(frozen=True)
class CountedNoise(StepNoise):
    """Noise of gradients in units of a bound that changes, and of a count beside them.

    Args:
        gradients: noise for gradients that are no longer than one.
        count: the standard deviation for a sum of halves, one of either sign for every example.
    """

    hides_more = True

    gradients: IndependentNoise
    count: float

    def __post_init__(self) -> None:
        object.__setattr__(self, "count", validate.non_negative(count=self.count))

    def check(self, groups: Sequence[int], sizes: Sequence[int]) -> None:
        self.gradients.check(groups, sizes)

    def draw(self, shapes: Sequence[torch.Size], how: Draw) -> list[Tensor]:
        return self.gradients.draw(shapes, how)

    def draw_count(self, how: Draw) -> Tensor:
        from taut.training._tensors.normal import normal

        return normal(1, self.count, how)[0]
