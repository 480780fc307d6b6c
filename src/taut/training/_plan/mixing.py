"""Mixing of released weights: uniform noise between the last two states, and what it is worth.

The ModelMix of Xiao, Wan and Devadas (2022), as far as it is sound (docs/errata.md): no hidden
state of an optimizer, every coordinate mixed, Poisson batches.
"""

from __future__ import annotations

import math
from abc import abstractmethod
from collections.abc import Mapping
from dataclasses import dataclass
from functools import lru_cache

from taut._base import validate
from taut._base.registry import Strategy
from taut._base.rounding import round_down, round_up
from taut.accounting import MixingComparison, PrivacyLoss, calibrate, mixed_gaussian
from taut.errors import UnsoundConfiguration
from taut.training._clipping.clipping import Clipping, FlatClip, NormalisedClip
from taut.training._clipping.entries import L2LInfClip
from taut.training._noise.step_noise import IndependentNoise, StepNoise
from taut.training._sampling.sampling import PoissonSampling, Sampling

__all__ = ["UNMIXED", "Mixing", "ModelMix", "mixing_of", "planned_mixing"]

_SLACK = 1 + 1e-9  # of a square root in floating point; noise and width allow for much more
_WIDEST = 2.0**16  # beyond so many deviations the normal part is lost in the rounding of float32


class Mixing(Strategy):
    """What happens to weights between steps, and what noise costs then."""

    @abstractmethod
    def check(self, clipping: Clipping, sampling: Sampling) -> None:
        """Refuse a plan for which there is no theorem."""

    @abstractmethod
    def loss(
        self, noise_multiplier: float, sampling: Sampling, steps: int, examples: int
    ) -> PrivacyLoss:
        """Return the loss of `steps` steps on so many examples."""

    @abstractmethod
    def notes(
        self, noise_multiplier: float, sampling: Sampling, steps: int, delta: float
    ) -> tuple[str, ...]:
        """Return what must be said wherever the epsilon is."""

    @abstractmethod
    def beside(self, noise_multiplier: float) -> Mixing:
        """Return a mixing that is quick to account for, where this one adds little to the noise.

        What keeps a promise with the mixing that is returned keeps it with this one.
        """


class Unmixed(Mixing):
    """Plain training: a step goes on from the weights that the last one released."""

    def check(self, clipping: Clipping, sampling: Sampling) -> None:
        """Accept every plan."""

    def loss(
        self, noise_multiplier: float, sampling: Sampling, steps: int, examples: int
    ) -> PrivacyLoss:
        return sampling.loss(noise_multiplier, examples, steps)

    def notes(
        self, noise_multiplier: float, sampling: Sampling, steps: int, delta: float
    ) -> tuple[str, ...]:
        return ()

    def beside(self, noise_multiplier: float) -> Mixing:
        return self


UNMIXED = Unmixed()


@dataclass(frozen=True)
class ModelMix(Mixing):
    """Mix the last two released states at random before every step: uniform noise beside Gaussian.

    With w and v the last state and the one before, coordinate by coordinate the next state is

        (w + v) / 2 + D (u - 1/2) - learning_rate * noisy mean gradient + momentum (w - v),

    D = max(|w - v|, tau), u uniform and secret, tau = width * learning_rate * norm / batch_size.

    It is here to reproduce and to compare. Gaussian noise alone reaches the same epsilon with less
    noise, always: the plan and the result say how much less.

    Args:
        width: length of the interval of uniform noise on the sum of gradients, in units of the
            clipping norm: tau * batch_size / (learning_rate * norm) for a tau of your own.
        spread: how many coordinates a clipped gradient needs at least to have full length: no entry
            exceeds norm / sqrt(spread). Above 1 it needs `L2LInfClip` with such an `entry_bound`.
        momentum: momentum of released states, in [0, 1). It looks at nothing else, and so costs
            nothing.

    **Guarantee**: for a plan with Poisson sampling and add/remove adjacency, trained by
    `PrivateTrainer`: `taut.accounting.mixed_gaussian(noise_multiplier, width, sensitivity_inf=1 /
    sqrt(spread), rate=rate)` bounds the Renyi divergences of each step, for whoever sees all states
    (Xiao, Wan and Devadas 2022, Corollary 4.1, corrected). It needs u, the noisy gradients and the
    mixed states to stay secret, which the trainer takes care of; callbacks of your own that look at
    the generator or change weights by private data break it. A momentum of gradients breaks it too:
    the same noisy gradient is then seen through many mixings.

    Raises:
        ValueError: if an argument is out of range.

    Example:
        >>> from taut.training import L2LInfClip, ModelMix, Plan
        >>> plan = Plan(
        ...     examples=50_000, rate=0.03, steps=3_400, noise_multiplier=0.335, delta=1e-5,
        ...     clipping=L2LInfClip(20.0, 2.0), mixing=ModelMix(width=11.25, spread=100),
        ... )
        >>> round(plan.epsilon, 2)
        7.25
        >>> print(plan.notes[0])
        plain DP-SGD with noise multiplier 1.345 reaches the same epsilon with 5.90 times less noise
    """

    name = "model_mix"

    width: float
    spread: float = 1.0
    momentum: float = 0.0

    def __post_init__(self) -> None:
        width = validate.positive(width=self.width)
        spread = validate.positive(spread=self.spread)
        if spread < 1:
            raise ValueError(
                f"spread must be at least 1, got spread={self.spread!r}: no entry is longer than "
                "the gradient"
            )
        momentum = validate.below_one(momentum=self.momentum)
        for name, value in (("width", width), ("spread", spread), ("momentum", momentum)):
            object.__setattr__(self, name, value)

    # --- what it costs -------------------------------------------------------------------------

    def loss(
        self, noise_multiplier: float, sampling: Sampling, steps: int, examples: int = 1
    ) -> PrivacyLoss:
        """Return the loss of `steps` steps with Poisson batches of any number of examples."""
        rate = sampling.rate if isinstance(sampling, PoissonSampling) else None
        if rate is None:
            raise UnsoundConfiguration(
                f"mixing is accounted for Poisson sampling with a rate alone, got {sampling!r}"
            )
        bound = 1 / math.sqrt(self.spread)
        step = mixed_gaussian(noise_multiplier, self.width, sensitivity_inf=bound, rate=rate)
        return steps * step

    def comparison(
        self, noise_multiplier: float, sampling: Sampling, steps: int, delta: float
    ) -> MixingComparison:
        """Return what the noise costs beside Gaussian noise of the same epsilon.

        Unlike `taut.accounting.compare_mixing`, which compares Renyi divergences alike, Gaussian
        noise is accounted here as plans without mixing are, which is better: so a plan would find
        it.
        """
        return _compared(self, noise_multiplier, sampling, max(steps, 1), delta)

    def notes(
        self, noise_multiplier: float, sampling: Sampling, steps: int, delta: float
    ) -> tuple[str, ...]:
        """Return what must be said wherever the epsilon is."""
        found = self.comparison(noise_multiplier, sampling, steps, delta)
        return (
            f"plain DP-SGD with noise multiplier {round_up(found.gaussian_std, 4)} reaches the "
            f"same epsilon with {round_down(found.variance_ratio, 3)} times less noise",
            "the bound for mixed noise rests on a worst record that is known by computation in "
            "high precision, not by proof; without mixing epsilon is at most "
            f"{round_up(found.epsilon_without_mixing, 4)}",
        )

    def beside(self, noise_multiplier: float) -> Mixing:
        return UNMIXED if self.width < noise_multiplier else self

    # --- what it can be combined with ----------------------------------------------------------

    def check(self, clipping: Clipping, sampling: Sampling) -> None:
        """Refuse a plan for which there is no theorem."""
        if type(sampling) is not PoissonSampling:
            raise UnsoundConfiguration(
                f"mixing is accounted for Poisson sampling alone, got sampling={sampling!r}; use "
                "PoissonSampling(), or leave mixing out"
            )
        if type(clipping) not in (FlatClip, NormalisedClip, L2LInfClip):
            raise UnsoundConfiguration(
                f"mixing needs noise of one size in every coordinate, for a gradient of one norm, "
                f"got clipping={clipping!r}; use FlatClip, NormalisedClip or L2LInfClip, or leave "
                "mixing out"
            )
        if self.spread > 1 and not isinstance(clipping, L2LInfClip):
            raise UnsoundConfiguration(
                f"spread={self.spread:g} says that no entry exceeds norm / sqrt(spread), which "
                f"{clipping!r} does not see to; use L2LInfClip(norm, norm / sqrt(spread)), or "
                "spread=1"
            )
        if isinstance(clipping, L2LInfClip):
            self._check_entries(clipping.entry_bound, clipping.norm)

    def _check_entries(self, entry_bound: float, norm: float) -> None:
        if self.spread > 1 and entry_bound > norm / math.sqrt(self.spread) * _SLACK:
            raise UnsoundConfiguration(
                f"entries up to entry_bound={entry_bound:g} let a gradient of norm {norm:g} sit on "
                f"fewer than spread={self.spread:g} coordinates; use entry_bound <= "
                f"{norm / math.sqrt(self.spread):g}, or spread <= {(norm / entry_bound) ** 2:.4g}"
            )

    def norm(self, clipping: Clipping, noise: StepNoise, noise_multiplier: float) -> float:
        """Return the length of gradients that the noise of a model hides: the unit of the width.

        Raises:
            UnsoundConfiguration: if the noise is not the same in every coordinate, or the model has
                too few of them for the spread.
        """
        scales = set(noise.scales) if isinstance(noise, IndependentNoise) else set()
        if len(scales) != 1:
            raise UnsoundConfiguration(
                f"mixing needs noise of one size in every coordinate, {clipping!r} asks for other"
            )
        (scale,) = scales
        if self.width > _WIDEST * noise_multiplier:
            raise UnsoundConfiguration(
                f"width={self.width:g} is so far above noise_multiplier={noise_multiplier:g} that "
                f"the Gaussian noise is lost in rounding; use a width up to {_WIDEST:g} times that"
            )
        norm = scale / noise_multiplier
        if isinstance(clipping, L2LInfClip):
            # A small model cannot reach the norm; its noise is less, and entries weigh more.
            self._check_entries(clipping.entry_bound, norm)
        return norm


def planned_mixing(mixing: ModelMix | None) -> Mixing:
    """Return the mixing of a plan, of which None stands for plain training."""
    if mixing is None:
        return UNMIXED
    if not isinstance(mixing, ModelMix):
        raise validate.WrongType(
            f"mixing must be a ModelMix, got mixing={mixing!r}; leave it out for plain training"
        )
    return mixing


def mixing_of(data: Mapping[str, object]) -> ModelMix | None:
    """Return the mixing in the JSON of a plan, None for a plan without."""
    found = data.get("mixing")
    if found is None:
        return None
    mixing = Mixing.from_dict(found)  # type: ignore[arg-type]
    assert isinstance(mixing, ModelMix)
    return mixing


@lru_cache(maxsize=64)
def _compared(
    mixing: ModelMix, noise_multiplier: float, sampling: Sampling, steps: int, delta: float
) -> MixingComparison:
    level = min(max(delta, 1e-300), 1 - 1e-12)
    loss = mixing.loss(noise_multiplier, sampling, steps)

    def plain(noise: float) -> PrivacyLoss:
        return sampling.loss(noise, 1, steps)

    epsilon = loss.epsilon(level)
    injected = math.hypot(noise_multiplier, mixing.width / math.sqrt(12))
    equal = calibrate(plain, epsilon=epsilon, delta=level).value
    return MixingComparison(
        epsilon,
        injected,
        equal,
        (injected / equal) ** 2,
        plain(injected).epsilon(level),
        plain(noise_multiplier).epsilon(level),
        level,
    )
