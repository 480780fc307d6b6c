"""A circuit breaker: a canary in every step of a run, which stops if it gives too much away."""

from __future__ import annotations

import math
from typing import TYPE_CHECKING

import numpy as np

from taut._base import validate
from taut.accounting import gaussian
from taut.audit._attacks.claim import Claim
from taut.audit._sequential.wealth import AttackWealth
from taut.errors import ClaimRefuted, UnsoundConfiguration
from taut.noise import RandomSource, default_generator

if TYPE_CHECKING:
    from taut.training import PrivateTrainer, StepEnd, TrainingResult

__all__ = ["CircuitBreaker"]

_DELTA = 1e-6  # down to which the curve of a step is bet against: steps are fewer than its inverse
_LONG = 64.0  # clipping norms: long enough that what is not clipped stands out
_KEPT = 0.9  # share of the running mean that a step keeps, in what the weight's own gradient is


class CircuitBreaker:
    """Stops a training run whose noisy gradients contradict the noise that they are said to have.

    In every step a coin decides whether a canary is inserted: a record whose gradient is long, and
    lies in one weight that was drawn at random. After the step the noisy gradient of that weight is
    held against the coin. It is a callback of the trainer: `logs=Logs(callbacks=[breaker])`.

    Args:
        level: the probability that a run which keeps its promise is ever stopped.
        generator: source of coins and of the weight, by default the secure generator.

    Attributes:
        steps: how many steps were looked at.
        log_evidence: the natural logarithm of the evidence against the claim of a step.

    **Guarantee**: given all that came before, a step is the Gaussian mechanism at the plan's noise
    multiplier for a record that is in its batch, whatever the other records are. If it is, the
    evidence is a supermartingale, and ever reaches 1 / `level` with probability at most `level`
    (docs/theory/sequential.md). The canary is one more record: the promise for all others is
    what it was, since the sum moves by a constant that does not depend on them; stopping depends on
    released gradients and on coins alone. It costs a push of one clipped gradient, in one
    weight, in half of the steps. A run that is not stopped proves nothing.

    Raises:
        ClaimRefuted: from `fit`, when the evidence is reached; steps so far stay counted.
        UnsoundConfiguration: for plans whose steps are no Gaussian mechanisms by themselves: with
            correlated noise, mixing, sampled coordinates, or bounds that change from step to step.

    Example:
        >>> import torch
        >>> from torch import nn
        >>> from torch.utils.data import TensorDataset
        >>> from taut.audit import CircuitBreaker
        >>> from taut.training import FlatClip, Logs, Plan, PrivateTrainer
        >>> data = TensorDataset(torch.randn(200, 4), torch.randint(0, 2, (200,)))
        >>> plan = Plan(
        ...     examples=200, batch_size=50, epochs=2, epsilon=3, delta=1e-3,
        ...     clipping=FlatClip(1.0),
        ... )
        >>> breaker = CircuitBreaker()
        >>> logs = Logs(callbacks=[breaker], progress=False)
        >>> trainer = PrivateTrainer(nn.Linear(4, 2), nn.CrossEntropyLoss(), plan, logs=logs)
        >>> result = trainer.fit(data)
        >>> breaker.steps
        8
    """

    def __init__(self, level: float = 1e-6, generator: RandomSource | None = None) -> None:
        chance = validate.probability(level=level)
        if not 0 < chance <= 0.5:
            raise ValueError(
                f"level must be above 0 and at most 0.5, got level={level!r}; a run that is right "
                "should not be stopped"
            )
        self.level = chance
        self.steps = 0
        self._bits = default_generator() if generator is None else generator
        self._wealth: AttackWealth | None = None
        self._multiplier = math.nan
        self._name, self._place = "", 0
        self._with_canary = False
        self._usual: float | None = None

    @property
    def log_evidence(self) -> float:
        """The natural logarithm of the evidence so far."""
        return 0.0 if self._wealth is None else self._wealth.log_evidence

    def on_fit_start(self, trainer: PrivateTrainer) -> None:
        """Draw the weight that the canary is in."""
        from taut.training.extend import IndependentNoise

        plan = trainer.plan
        sizes = {n: p.numel() for n, p in trainer.model.named_parameters() if p.requires_grad}
        noise = plan.noise(sizes)
        if (
            plan.mixing is not None
            or plan.encoder is not None
            or plan.clipping.releases_more
            or not isinstance(noise, IndependentNoise)
            or noise.coordinate_rate < 1
        ):
            raise UnsoundConfiguration(
                "a circuit breaker is for steps that are Gaussian mechanisms each: a plan with "
                "independent noise, of one deviation per group, and a fixed bound; leave it out"
            )
        word = int(self._bits.integers_u64(1)[0]) % sum(sizes.values())
        for place, (name, size) in enumerate(sizes.items()):
            if word < size:
                self._name, self._place = name, word
                self._scale = noise.scales[noise.groups[place]]
                break
            word -= size
        self._usual = None

    def on_batch_end(self, trainer: PrivateTrainer) -> None:
        """Toss the coin, and insert the canary if it says so."""
        import torch

        self._with_canary = bool(int(self._bits.integers_u64(1)[0]) >> 63)
        if not self._with_canary:
            return
        weight = trainer.model.get_parameter(self._name)
        gradient = torch.zeros(1, weight.numel(), dtype=weight.dtype, device=weight.device)
        gradient[0, self._place] = _LONG * self._scale
        trainer.insert({self._name: gradient.view(1, *weight.shape)})

    def on_step_end(self, trainer: PrivateTrainer, event: StepEnd) -> None:
        """Hold the noisy gradient against the coin.

        Raises:
            ClaimRefuted: if the evidence is too strong.
        """
        plan, step = trainer.plan, event.step - 1
        gradient = trainer.model.get_parameter(self._name).grad
        assert gradient is not None
        multiplier = plan.noise_multiplier_at(step)
        deviation = self._scale * multiplier / plan.noise_multiplier_at(0)
        seen = float(gradient.view(-1)[self._place]) * plan.batch_size_at(step) / deviation
        usual = seen if self._usual is None else self._usual
        # What the weight's own gradient is, is learned from steps without the canary.
        if not self._with_canary:
            self._usual = _KEPT * usual + (1 - _KEPT) * seen
        if self._wealth is None or multiplier != self._multiplier:
            self._go_on_against(multiplier)
        assert self._wealth is not None
        self._wealth.update(0, np.array([[seen - usual, seen]]), self._with_canary)
        self.steps += 1
        if self.log_evidence >= -math.log(self.level):
            raise ClaimRefuted(
                f"after step {event.step} the noisy gradients of a canary are "
                f"{math.exp(min(self.log_evidence, 700)):.3g} times likelier than noise multiplier "
                f"{multiplier:g} lets any be: noise or clipping are not what the plan says, and "
                "what was released so far may not keep its promise"
            )

    def on_epoch_end(self, trainer: PrivateTrainer, event: StepEnd) -> None:
        """Do nothing."""

    def on_fit_end(self, trainer: PrivateTrainer, result: TrainingResult) -> None:
        """Do nothing."""

    def on_interrupt(self, trainer: PrivateTrainer) -> None:
        """Do nothing."""

    def _go_on_against(self, multiplier: float) -> None:
        """Bet against the claim of steps with this multiplier, with the evidence so far."""
        claim = Claim(gaussian(multiplier), _DELTA)
        if self._wealth is None:
            self._wealth = AttackWealth(claim, [("step", {})], epsilons=0, often=16)
        else:
            self._wealth.change(claim)
        self._multiplier = multiplier
