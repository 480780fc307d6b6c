"""Truncated Poisson sampling: batches that never hold more examples than a cap."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from types import MappingProxyType
from typing import Self

from taut._base import validate
from taut._base.rounding import round_up
from taut.accounting import GaussianRun, PrivacyLoss, Sampler, truncation_probability
from taut.errors import UnsoundConfiguration
from taut.noise import RandomSource, default_generator
from taut.training._sampling.sampling import (
    FixedSizeSampling,
    Indices,
    PoissonSampling,
    Sampling,
    positive_rate,
)

__all__ = ["TruncatedPoissonSampling"]

_ROUGH = 1e-3  # relative: what the bounds of a comparison may be apart


@dataclass(frozen=True)
class TruncatedPoissonSampling(PoissonSampling):
    """Draw examples as `PoissonSampling`; of more than `cap` keep a uniformly random subset.

    A batch then never holds more than `cap` examples, which bounds memory and time of a step. What
    the cap costs is in `Plan.notes`; a cap that one batch in a million exceeds mostly costs nothing
    that is printed.

    Args:
        rate: the probability of an example, in (0, 1]; left out, a plan sets it.
        cap: the most examples of a batch, at least the expected number of them.

    **Guarantee**: add/remove adjacency; `step_loss` holds for every dataset of at most as many
    examples as were planned for, and one that is added to it, if batches and their sizes stay
    secret: where the others fill a batch, an example takes the place of another one, which moves a
    clipped sum by up to twice the norm (docs/theory/sampling.md). Sums are divided by the expected
    size before the cut, a constant. `draw` is exact.

    Example:
        >>> from taut.training import TruncatedPoissonSampling
        >>> sampling = TruncatedPoissonSampling(rate=0.25, cap=260)
        >>> max(len(sampling.draw(1_000)) for _ in range(50)) <= 260
        True
    """

    name = Sampler.TRUNCATED_POISSON.value
    adjacency = Sampler.TRUNCATED_POISSON.usual_adjacency
    samples_apart = False

    parameters = MappingProxyType({"rate": positive_rate, "cap": validate.positive_integer})

    cap: int | None = None

    def fitted(self, examples: int, rate: float) -> Self:
        """Return the sampling with its rate; refuse a cap that is missing or cuts most batches."""
        self._run(rate, examples, 1)
        return super().fitted(examples, rate)

    def participation(self, examples: int) -> float:
        """Return the probability that an example is drawn and not cut."""
        if self.cap is None or self.cap >= examples:
            return self._rate
        # Not full without it, or drawn into a batch that is cut: then every one is kept equally.
        alone = 1 - truncation_probability(self._rate, self.cap, examples)
        cut = truncation_probability(self._rate, self.cap + 1, examples + 1)
        return self._rate * alone + cut * self.cap / examples

    def check_examples(self, planned: int, examples: int) -> None:
        if examples > planned:
            raise UnsoundConfiguration(
                f"the loss was computed for at most examples={planned}, the dataset has "
                f"{examples}, whose batches reach the cap more often; plan with that"
            )

    def step_loss(self, noise_multiplier: float, examples: int) -> PrivacyLoss:
        return self._run(self._rate, examples, 1).loss(noise_multiplier)

    def comparison(self, noise_multiplier: float, examples: int, steps: int, delta: float) -> str:
        """Return what the cap costs: what the same noise would have promised without it."""
        if steps < 1:
            return ""
        capped = self.loss(noise_multiplier, examples, steps).epsilon(delta, _ROUGH)
        plain = PoissonSampling(self._rate).loss(noise_multiplier, examples, steps)
        least = plain.epsilon_bounds(delta, _ROUGH)
        return (
            f"batches are cut at {self.cap} examples; without the cap epsilon would be "
            f"{round_up(least.upper, 6)}: it costs at most "
            f"{round_up(max(capped - least.lower, 0.0), 2)}"
        )

    def draw(self, examples: int, generator: RandomSource | None = None) -> Indices:
        source = default_generator() if generator is None else generator
        drawn = super().draw(examples, source)
        if self.cap is None:
            raise ValueError(
                "cap must be set before batches are drawn: TruncatedPoissonSampling(cap=...)"
            )
        if drawn.size <= self.cap:
            return drawn
        return drawn[FixedSizeSampling(self.cap).draw(drawn.size, source)]

    def shares(
        self, examples: int, rank: int, world_size: int, generator: RandomSource | None = None
    ) -> Iterator[Indices]:
        """Yield what process `rank` of `world_size` looks at of every batch, without end.

        The cap is about all processes together: all draw the same batches, and deal them out.
        """
        return Sampling.shares(self, examples, rank, world_size, generator)

    def _run(self, rate: float, examples: int, steps: int) -> GaussianRun:
        return GaussianRun.of(
            Sampler.TRUNCATED_POISSON, steps=steps, rate=rate, examples=examples, cap=self.cap
        )
