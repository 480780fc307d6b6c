"""What the steps of a run do to examples, and what that costs: a plan without its promise."""

from __future__ import annotations

import math
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

from taut._base import validate
from taut.accounting import Adjacency, PrivacyLoss
from taut.errors import UnsoundConfiguration
from taut.matrix import Encoder
from taut.training._clipping.clipping import Clipping
from taut.training._clipping.refreshed import RefreshedClipping
from taut.training._noise.correlated import CorrelatedNoise
from taut.training._noise.step_noise import IndependentNoise, StepNoise
from taut.training._plan.correlation import last_error, step_error
from taut.training._plan.mixing import Mixing, ModelMix, planned_mixing
from taut.training._plan.owners import Owners
from taut.training._plan.schedule import Schedule, together
from taut.training._sampling.sampling import USUAL_DELTA, Sampling

__all__ = ["PlannedSteps"]


@dataclass(frozen=True, init=False)
class PlannedSteps:
    """Steps of a plan: batches, clipping and noise of each, and their privacy loss.

    Attributes:
        examples: number of training examples; of their owners, if `unit` is set.
        batch_size: expected number of examples in a step; the mean over steps, if it changes.
        rate: share of all examples that this is.
        steps: number of updates.
        epochs: number of times that an example is seen on average.
        noise_multiplier: noise over the clipping norm; the least of the run, if it changes.
        clipping: what is done to the gradient of one example.
        sampling: how batches are drawn; not fitted to a batch size, if that changes.
        mixing: mixing of released weights; None for plain training.
        noise_schedule: noise of every step in units of `noise_multiplier`, if it changes.
        rate_schedule: rate of every step, if it changes.
        unit: owners of examples, if one of them is what is sampled, clipped and protected; None if
            that is a single example.
        encoder: encoder that correlates the noise of steps; None for independent noise.

    **Guarantee**: `loss_at` is the loss of releases of a clipped sum with Gaussian noise over
    batches that `sampling` draws. Steps whose noise or rate differ draw batches of their own, so
    that their losses add.

    Example:
        >>> from taut.training import FlatClip, Plan
        >>> plan = Plan(
        ...     examples=1_000, batch_size=100, noise_multiplier=[(30, 1.0), (20, 2.0)],
        ...     delta=1e-5, clipping=FlatClip(1.0),
        ... )
        >>> plan.steps, plan.noise_multiplier_at(40), len(plan.loss_at(31).terms)
        (50, 2.0, 2)
    """

    examples: int
    batch_size: float
    rate: float
    steps: int
    epochs: float
    noise_multiplier: float
    clipping: Clipping
    sampling: Sampling
    mixing: ModelMix | None
    noise_schedule: Schedule | None
    rate_schedule: Schedule | None
    unit: Owners | None
    encoder: Encoder | None

    # --- what they cost ------------------------------------------------------------------------

    @property
    def adjacency(self) -> Adjacency:
        """The relation that the promise is about."""
        return self.sampling.adjacency

    @property
    def step_loss(self) -> PrivacyLoss:
        """The loss of one step; of the first of an epoch, where an epoch is drawn at once."""
        return self._loss_with(self.noise_multiplier, 1)

    @property
    def loss(self) -> PrivacyLoss:
        """The loss of all steps."""
        return self.loss_at(self.steps)

    def loss_at(self, step: int) -> PrivacyLoss:
        """Return the loss of the first `step` steps; there may be more of them than planned."""
        count = validate.integer(step=step)
        return self._loss_with(self.noise_multiplier, count)

    def is_loss_of(self, loss: PrivacyLoss, steps: int) -> bool:
        """Return whether a loss is that of so many steps of the plan.

        Where epochs are drawn at once, any of them may have been broken off: a run that was killed
        went on with a new one.
        """
        if loss == self.loss_at(steps):
            return True
        if self.is_scheduled or self.sampling.epoch_steps == 1:
            return False
        if loss.adjacency is not self.adjacency:
            return False
        taken = [(getattr(release, "taken", 0), release, count) for release, count in loss.terms]
        whole = all(
            part > 0 and tuple(self.loss_at(part).terms) == ((release, 1),)
            for part, release, _ in taken
        )
        return whole and sum(part * count for part, _, count in taken) == steps

    def _loss_with(self, noise_multiplier: float, steps: int | None = None) -> PrivacyLoss:
        count = self.steps if steps is None else steps
        if self.encoder is not None:
            return self._loss_of_run(self.encoder, noise_multiplier, count)
        if self.is_scheduled:
            return self._loss_of_stretches(noise_multiplier, count)
        return self._mixing.loss(noise_multiplier, self.sampling, count, self.examples)

    def _loss_of_run(self, encoder: Encoder, noise_multiplier: float, steps: int) -> PrivacyLoss:
        """Return the loss of the whole run, which its first step spends."""
        if steps > self.steps:
            raise UnsoundConfiguration(
                f"noise is correlated over the {self.steps} steps of the plan, and there is none "
                f"for {steps}; plan for more from the start"
            )
        whole = self.sampling.correlated_loss(encoder, noise_multiplier, self._sharp_at)
        return min(steps, 1) * whole

    @property
    def _sharp_at(self) -> float:
        """Delta at which losses are to be sharp, where they are not exact."""
        return USUAL_DELTA

    def _loss_of_stretches(self, noise_multiplier: float, steps: int) -> PrivacyLoss:
        """Return the loss of steps that differ, each of which draws a batch of its own."""
        one = Schedule(((self.steps, 1.0),))
        noises, rates = self.noise_schedule or one, self.rate_schedule or one
        terms: list[tuple[Any, int]] = []
        for count, (factor, rate) in together(steps, noises, rates):
            sampling = self.sampling
            if self.rate_schedule is not None:
                sampling = sampling.fitted(self.examples, rate)
            terms += sampling.loss(noise_multiplier * factor, self.examples, count).terms
        return PrivacyLoss(terms, self.adjacency)

    # --- single steps --------------------------------------------------------------------------

    @property
    def is_scheduled(self) -> bool:
        """Whether noise or batch sizes change from step to step."""
        return self.noise_schedule is not None or self.rate_schedule is not None

    @property
    def follows_ledger(self) -> bool:
        """Whether the number of a step matters: what a crash has lost is left out, not repeated."""
        return self.is_scheduled or self.keeps_to_dataset

    @property
    def keeps_to_dataset(self) -> bool:
        """Whether the loss is about which steps an example is in: no other dataset will do."""
        return self.encoder is not None or self.sampling.numbers_steps

    def noise_multiplier_at(self, step: int) -> float:
        """Return the noise multiplier of a step, from zero up; the last one goes on."""
        if self.noise_schedule is None:
            return self.noise_multiplier
        return self.noise_multiplier * self.noise_schedule.at(step)

    def batch_size_at(self, step: int) -> float:
        """Return the expected number of examples in a step, which its sum is divided by."""
        if self.rate_schedule is None:
            return self.batch_size
        return self.sampling_at(step).expected_batch_size(self.examples)

    def sampling_at(self, step: int) -> Sampling:
        """Return how the batch of a step is drawn."""
        if self.rate_schedule is None:
            return self.sampling
        return self.sampling.fitted(self.examples, self.rate_schedule.at(step))

    @property
    def mean_gradient_noise(self) -> float:
        """Deviation of the noise on a number of the mean gradient, over the clipping norm.

        Where it changes, the root mean square over all steps.
        """
        if self.encoder is not None:
            return self.noise_multiplier * step_error(self.encoder) / self.batch_size
        if not self.is_scheduled:
            return self.noise_multiplier / self.batch_size
        one = Schedule(((self.steps, 1.0),))
        parts = together(self.steps, self.noise_schedule or one, self.rate_schedule or one)
        unit = 1.0 if self.rate_schedule is not None else self.rate
        squares = (count * (factor / (rate * unit)) ** 2 for count, (factor, rate) in parts)
        root = math.sqrt(math.fsum(squares) / self.steps)
        return self.noise_multiplier * root / self.examples

    @property
    def mean_run_noise(self) -> float:
        """Deviation of the noise on a number of the mean over all steps, over the clipping norm."""
        if self.encoder is None:
            return self.mean_gradient_noise / math.sqrt(self.steps)
        return self.noise_multiplier * last_error(self.encoder) / (self.batch_size * self.steps)

    @property
    def noise_range(self) -> tuple[float, float]:
        """The least and the largest noise multiplier of a step."""
        most = 1.0 if self.noise_schedule is None else self.noise_schedule.most
        return self.noise_multiplier, self.noise_multiplier * most

    @property
    def rate_range(self) -> tuple[float, float]:
        """The least and the largest rate of a step."""
        if self.rate_schedule is None:
            return self.rate, self.rate
        return self.rate_schedule.least, self.rate_schedule.most

    def epochs_at(self, step: int) -> float:
        """Return how often an example was seen on average in the first `step` steps."""
        return step * self.rate if self.rate_schedule is None else self.rate_schedule.total(step)

    @property
    def units(self) -> str:
        """What is sampled, clipped and protected: "examples", or "owners" of them."""
        return "examples" if self.unit is None else "owners"

    @property
    def examples_each(self) -> int:
        """How many examples make the vector that is clipped: one, unless owners have several."""
        return 1 if self.unit is None else self.unit.examples_each

    # --- noise and words -----------------------------------------------------------------------

    def noise_scales(self, sizes: Mapping[str, int]) -> list[float]:
        """Return the standard deviation of the noise in every group of the clipping.

        Args:
            sizes: the number of entries of every trainable parameter, by name.

        **Guarantee**: `taut.noise.optimal_gaussian` for the sensitivity set of the clipping, at
        the noise multiplier of the plan: the least noise of that strength.

        Example:
            >>> from taut.training import FlatClip, Plan
            >>> plan = Plan(
            ...     examples=1_000, batch_size=100, steps=50, noise_multiplier=2.0, delta=1e-5,
            ...     clipping=FlatClip(0.5),
            ... )
            >>> (scale,) = plan.noise_scales({"weight": 20, "bias": 2})
            >>> round(scale, 6)
            1.0
        """
        noise = self.noise(sizes)
        if not isinstance(noise, IndependentNoise) or noise.coordinate_rate < 1:
            raise UnsoundConfiguration(
                f"clipping={self.clipping!r} with sampling={self.sampling!r} asks for noise in a "
                "basis, for a bound that moves, or for masks, not for one scale per group; ask the "
                "plan for its noise"
            )
        return list(noise.scales)

    def noise(self, sizes: Mapping[str, int], step: int = 0) -> StepNoise:
        """Return the noise of one step, for the sum of clipped gradients.

        Args:
            sizes: the number of entries of every trainable parameter, by name, in their order.
            step: number of the step, from zero up; of no matter unless noise changes.

        **Guarantee**: the least noise for the sensitivity set of the clipping that is as strong as
        scalar noise of the plan's multiplier for sensitivity one.
        """
        names, counts = list(sizes), [validate.positive_integer(size=n) for n in sizes.values()]
        if not names:
            raise ValueError("sizes must name at least one parameter, got an empty mapping")
        multiplier = self.noise_multiplier_at(step)
        found = self.sampling.noise(self.clipping, names, counts, multiplier)
        return found if self.encoder is None else CorrelatedNoise(found, self.encoder)

    @property
    def _mixing(self) -> Mixing:
        return planned_mixing(self.mixing)

    def _check_schedules(self) -> None:
        """Refuse what steps that differ have no theorem for, or no engine.

        Raises:
            UnsoundConfiguration: with the way out.
        """
        if not self.is_scheduled:
            return
        sampling, clipping = self.sampling, self.clipping
        if not sampling.may_change:
            raise UnsoundConfiguration(
                "noise or batch sizes that change are accounted for batches that every step draws "
                f"by itself, got sampling={sampling!r}; use sampling='poisson', or one plan for "
                "every stretch, whose losses add"
            )
        if self.mixing is not None:
            raise UnsoundConfiguration(
                "mixing is accounted for steps of one noise and one rate; leave mixing or the "
                "schedule out"
            )
        if isinstance(clipping, RefreshedClipping):
            raise UnsoundConfiguration(
                f"clipping={clipping!r} is refreshed with noise of one multiplier; use a clipping "
                "that stays, such as FlatClip or HybridClip, or leave the schedule out"
            )
        if self.rate_schedule is not None and clipping.releases_more:
            raise UnsoundConfiguration(
                f"clipping={clipping!r} counts votes out of one batch size, and batch sizes "
                "change; let noise_schedule change alone, or use FlatClip"
            )
