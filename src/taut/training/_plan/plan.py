"""Plans: everything that decides the privacy of a training run, fixed before it begins."""

from __future__ import annotations

import json
import math
from bisect import bisect_left, insort
from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any

from taut._base import validate
from taut._base.rounding import round_down, round_up
from taut.accounting import Adjacency, PrivacyLoss, calibrate
from taut.errors import UnsoundConfiguration
from taut.training._clipping.clipping import Clipping
from taut.training._noise.step_noise import IndependentNoise, StepNoise
from taut.training._plan.arguments import batches_of, sampling_of, steps_of, two_of_promise
from taut.training._plan.best_sampling import BEST, cheaper
from taut.training._plan.feasible import Target, check_feasible
from taut.training._plan.mixing import Mixing, ModelMix, mixing_of, planned_mixing
from taut.training._sampling.sampling import Sampling, positive_rate

__all__ = ["Plan"]

SCHEMA = "taut.training-plan/1"
_RECOMPUTED = 1 + 1e-6  # by which factor a bound may differ where arithmetic does


@dataclass(frozen=True, init=False)
class Plan:
    """How a model is trained with privacy, and what that costs, solved for what was left out.

    Args:
        examples: the number of training examples.
        batch_size: the expected number of examples in a step; or `rate`, as a share of all. For an
            epoch of whole steps, `RandomAllocation` makes it a little larger if need be.
        rate: instead of `batch_size`, in (0, 1].
        steps: the number of updates; or `epochs`.
        epochs: instead of `steps`, how often an example is seen on average; steps are rounded up.
        epsilon: the promise; give two of `epsilon`, `delta` and `noise_multiplier`.
        delta: the promise, usually well below 1 / examples.
        noise_multiplier: standard deviation of the noise over the clipping norm.
        clipping: what is done to the gradient of one example.
        sampling: how batches are drawn, or its name; "best" takes the cheaper of `PoissonSampling`
            and `RandomAllocation`, both at the rate of whole epochs, and `notes` say by how much.
        mixing: mixing of released weights, whose uniform noise counts too; None for plain training.
            What is solved for is the noise multiplier, at a fixed width.
        max_noise_multiplier: more noise than this is no use to you; by default the square root of
            the steps times the batch size, beyond which noise outweighs the sum of all gradients
            even if every one of them had full length and the same direction.

    Once made, all of these are set: `batch_size` to the expected size, a float, and `epochs` to
    steps times rate.

    **Guarantee**: `loss` is that of `steps` releases of a clipped sum with Gaussian noise over
    batches that `sampling` draws, under `adjacency`; `epsilon` and `delta` bound it with
    certainty. It holds for whoever sees every update, if batches stay secret and every step that
    is seen is counted.

    Raises:
        ValueError: if too much or too little is given, or sizes do not fit.
        InfeasibleBudget: if the promise needs more noise than is of use; says what would help.

    Example:
        >>> from taut.training import FlatClip, Plan
        >>> plan = Plan(
        ...     examples=60_000, batch_size=512, epochs=15, epsilon=3, delta=1e-5,
        ...     clipping=FlatClip(1.0),
        ... )
        >>> plan.steps, round(plan.noise_multiplier, 3), plan.loss.epsilon(delta=1e-5) <= 3
        (1758, 0.841, True)
    """

    examples: int
    batch_size: float
    rate: float
    steps: int
    epochs: float
    epsilon: float
    delta: float
    noise_multiplier: float
    clipping: Clipping
    sampling: Sampling
    mixing: ModelMix | None
    max_noise_multiplier: float
    _answers: list[tuple[int, float]] = field(compare=False, repr=False)
    _choice: str = field(compare=False, repr=False)
    """Why the sampling was taken, if the plan was asked for the best one."""

    def __init__(
        self,
        *,
        examples: int,
        clipping: Clipping,
        batch_size: int | None = None,
        rate: float | None = None,
        steps: int | None = None,
        epochs: float | None = None,
        epsilon: float | None = None,
        delta: float | None = None,
        noise_multiplier: float | None = None,
        sampling: Sampling | str | None = None,
        mixing: ModelMix | None = None,
        max_noise_multiplier: float | None = None,
    ) -> None:
        if sampling == BEST:
            arguments: dict[str, Any] = {
                "examples": examples,
                "clipping": clipping,
                "batch_size": batch_size,
                "rate": rate,
                "steps": steps,
                "epochs": epochs,
                "epsilon": epsilon,
                "delta": delta,
                "noise_multiplier": noise_multiplier,
                "mixing": mixing,
                "max_noise_multiplier": max_noise_multiplier,
            }
            chosen, why = cheaper(lambda **change: Plan(**{**arguments, **change}), arguments)
            self._set(**{**vars(chosen), "_choice": why})
            return
        if not isinstance(clipping, Clipping):
            raise validate.WrongType(
                f"clipping must be a Clipping, got clipping={clipping!r}; try FlatClip(1.0)"
            )
        n, size, share, kind = batches_of(examples, batch_size, rate, sampling_of(sampling))
        self._set(examples=n, batch_size=size, rate=share, mixing=mixing)
        self._mixing.check(clipping, kind)
        count = steps_of(steps, epochs, share)
        self._set(sampling=kind.for_clipping(clipping), steps=count, epochs=count * share)
        limit = self.batch_size * math.sqrt(self.steps)
        if max_noise_multiplier is not None:
            limit = validate.positive(max_noise_multiplier=max_noise_multiplier)
        fitted = clipping.fitted(self.batch_size)
        self._set(clipping=fitted, max_noise_multiplier=limit, _answers=[], _choice="")
        self._set_promise(epsilon, delta, noise_multiplier, max_noise_multiplier)
        self._answers.append((self.steps, self.epsilon))

    # --- what the plan costs -------------------------------------------------------------------

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
        if self.sampling.epoch_steps == 1 or loss.adjacency is not self.adjacency:
            return False
        taken = [(getattr(release, "taken", 0), release, count) for release, count in loss.terms]
        whole = all(
            part > 0 and tuple(self.loss_at(part).terms) == ((release, 1),)
            for part, release, _ in taken
        )
        return whole and sum(part * count for part, _, count in taken) == steps

    def epsilon_at(self, step: int) -> float:
        """Return epsilon after `step` steps, at the delta of the plan; grows with `step`.

        Results are cached. Steps beyond the plan are answered as if they had been planned.
        **Guarantee**: a certified upper bound for a run whose length was fixed in advance. Whoever
        stops early because of what came out promises the epsilon of the whole plan.
        """
        count = validate.integer(step=step)
        if count == 0:
            return 0.0
        place = bisect_left(self._answers, (count, -math.inf))
        if place < len(self._answers) and self._answers[place][0] == count:
            return self._answers[place][1]
        value = self.loss_at(count).epsilon(self.delta)
        # More steps cost no less: a bound for more holds here, and one for fewer is no higher.
        if place < len(self._answers):
            value = min(value, self._answers[place][1])
        if place > 0:
            value = max(value, self._answers[place - 1][1])
        insort(self._answers, (count, value))
        return value

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

    def noise(self, sizes: Mapping[str, int]) -> StepNoise:
        """Return the noise of one step, for the sum of clipped gradients.

        Args:
            sizes: the number of entries of every trainable parameter, by name, in their order.

        **Guarantee**: the least noise for the sensitivity set of the clipping that is as strong as
        scalar noise of the plan's multiplier for sensitivity one.
        """
        names, counts = list(sizes), [validate.positive_integer(size=n) for n in sizes.values()]
        if not names:
            raise ValueError("sizes must name at least one parameter, got an empty mapping")
        return self.sampling.noise(self.clipping, names, counts, self.noise_multiplier)

    @property
    def notes(self) -> tuple[str, ...]:
        """What a careful reader would ask about."""
        found = []
        if self.delta >= 1 / self.examples:
            found.append(
                f"delta={self.delta:g} is not below 1 / examples = {1 / self.examples:.3g}: such a "
                "promise would allow publishing a whole example now and then"
            )
        if self.noise_multiplier > self.batch_size:
            found.append(
                f"noise_multiplier={self.noise_multiplier:.4g} exceeds batch_size="
                f"{self.batch_size:g}: one step is mostly noise even where all examples agree"
            )
        setting = self.noise_multiplier, self.examples, self.steps, self.delta
        comparison = self.sampling.comparison(*setting)
        if comparison:
            found.append(comparison)
        if self._choice:
            found.append(self._choice)
        return (*self.mixing_notes(self.steps), *found)

    def mixing_notes(self, steps: int) -> tuple[str, ...]:
        """Return what must be said beside the epsilon of `steps` steps if weights are mixed."""
        return self._mixing.notes(self.noise_multiplier, self.sampling, steps, self.delta)

    def __str__(self) -> str:
        lines = [
            f"{self.steps} steps of {self.batch_size:g} examples out of {self.examples} "
            f"({self.epochs:.4g} epochs), sampling {self.sampling.name}",
            f"clipping {self.clipping!r}, noise multiplier {round_down(self.noise_multiplier, 6)}",
            f"epsilon {round_up(self.epsilon, 6)} at delta {self.delta!r}, "
            f"adjacency {self.adjacency}",
        ]
        if self.mixing is not None:
            lines.insert(2, f"mixing {self.mixing!r}")
        return "\n".join([*lines, *(f"note: {note}" for note in self.notes)])

    # --- serialisation -------------------------------------------------------------------------

    def to_dict(self) -> dict[str, Any]:
        """Return a JSON-ready description from which the promise can be recomputed."""
        mixing = {} if self.mixing is None else {"mixing": self.mixing.to_dict()}
        return {
            "schema": SCHEMA,
            "examples": self.examples,
            "batch_size": self.batch_size,
            "rate": self.rate,
            "steps": self.steps,
            "epsilon": self.epsilon,
            "delta": self.delta,
            "noise_multiplier": self.noise_multiplier,
            "max_noise_multiplier": self.max_noise_multiplier,
            "clipping": self.clipping.to_dict(),
            "sampling": self.sampling.to_dict(),
            "adjacency": str(self.adjacency),
            **mixing,
        }

    def to_json(self) -> str:
        """Return :meth:`to_dict` as JSON text."""
        return json.dumps(self.to_dict(), indent=2)

    @classmethod
    def from_dict(cls, data: Mapping[str, Any]) -> Plan:
        """Return the plan described by `data`, the inverse of :meth:`to_dict`, once it is proven.

        Args:
            data: the description that :meth:`to_dict` returned.

        Raises:
            ValueError: if the schema or a field is unknown, missing or malformed.
            UnsoundConfiguration: if the promise surely does not follow from the rest, or sampling,
                clipping and mixing do not go together.
        """
        return cls.unproven(data).proven()

    @classmethod
    def unproven(cls, data: Mapping[str, Any]) -> Plan:
        """Return the plan that `data` claims, for whoever judges the claim.

        What it promises is only read: `epsilon` is what `data` says. All that is computed, such as
        `loss` and `epsilon_at`, does not depend on it; :meth:`proven` compares the two.

        Args:
            data: the description that :meth:`to_dict` returned.

        Raises:
            ValueError: if the schema or a field is unknown, missing or malformed.
            UnsoundConfiguration: if sampling, clipping and mixing do not go together.
        """
        if not isinstance(data, Mapping) or data.get("schema") != SCHEMA:
            found = data.get("schema") if isinstance(data, Mapping) else type(data).__name__
            raise ValueError(f"not a training plan: expected schema {SCHEMA!r}, got {found!r}")
        plan = object.__new__(cls)
        try:
            plan._restore(data)
        except (KeyError, TypeError) as error:
            raise ValueError(f"malformed training plan: {error!r}") from None
        return plan

    @classmethod
    def from_json(cls, text: str) -> Plan:
        """Return the plan described by JSON `text`, such as that of a file, once it is proven.

        Raises:
            ValueError: if the text is no JSON, or no plan.
            UnsoundConfiguration: if the promise surely does not follow from the rest.
        """
        try:
            data = json.loads(text)
        except json.JSONDecodeError as error:
            raise ValueError(f"not valid JSON: {error}") from None
        return cls.from_dict(data)

    @property
    def least_epsilon(self) -> float:
        """Least promise at `delta` that is believed: what the steps cost, as far as is known."""
        true = self.loss.epsilon_bounds(self.delta)
        # Mixed noise and masks have no lower bound; what is proven is the same whoever computes it.
        return true.lower if true.lower > 0 else true.upper / _RECOMPUTED

    def proven(self) -> Plan:
        """Return the plan itself, if its steps keep what it promises.

        Raises:
            UnsoundConfiguration: if they surely do not: somebody changed the plan by hand.
        """
        least = self.least_epsilon
        if least > self.epsilon:
            raise UnsoundConfiguration(
                f"the plan states epsilon={self.epsilon!r} at delta={self.delta!r}, but its steps "
                f"cost at least {least!r}; it was changed by hand"
            )
        # Where bounds are far apart, what was read may be less than can be certified.
        if not self._answers and self.epsilon * _RECOMPUTED >= self.loss.epsilon(self.delta):
            self._answers.append((self.steps, self.epsilon))
        return self

    def _restore(self, data: Mapping[str, Any]) -> None:
        """Set every field from JSON, without solving again."""
        examples, steps = (
            validate.positive_integer(**{name: data[name]}) for name in ("examples", "steps")
        )
        rate = positive_rate(rate=data["rate"])
        sampling = Sampling.from_dict(data["sampling"])
        if data["adjacency"] != sampling.adjacency:
            raise UnsoundConfiguration(
                f"adjacency={data['adjacency']!r} does not belong to sampling {sampling.name!r}"
            )
        size = validate.positive(batch_size=data["batch_size"])
        for expected in (rate * examples, sampling.expected_batch_size(examples)):
            if not math.isclose(size, expected, rel_tol=1e-9):
                raise ValueError(
                    f"batch_size={size!r} does not fit rate={rate!r} and sampling={sampling!r}"
                )
        self._set(
            examples=examples,
            batch_size=size,
            rate=rate,
            steps=steps,
            epochs=steps * rate,
            epsilon=validate.non_negative(epsilon=data["epsilon"]),
            delta=validate.below_one(delta=data["delta"]),
            noise_multiplier=validate.positive(noise_multiplier=data["noise_multiplier"]),
            clipping=Clipping.from_dict(data["clipping"]).fitted(size),
            sampling=sampling,
            mixing=mixing_of(data),
            max_noise_multiplier=validate.positive(limit=data["max_noise_multiplier"]),
            _answers=[],
            _choice="",
        )
        sampling.check_clipping(self.clipping)
        self._mixing.check(self.clipping, sampling)

    # --- how the plan is made ------------------------------------------------------------------

    def _set(self, **values: Any) -> None:
        for name, value in values.items():
            object.__setattr__(self, name, value)

    @property
    def _mixing(self) -> Mixing:
        return planned_mixing(self.mixing)

    def _set_promise(
        self,
        epsilon: float | None,
        delta: float | None,
        noise_multiplier: float | None,
        limit: float | None,
    ) -> None:
        """Solve for the one of the three that was not given."""
        epsilon, delta, noise_multiplier = two_of_promise(epsilon, delta, noise_multiplier)
        if noise_multiplier is not None:
            self._set(noise_multiplier=noise_multiplier)
        if epsilon is None:
            assert delta is not None
            epsilon = self.loss.epsilon(delta)
        elif delta is None:
            delta = self.loss.delta(epsilon)
        else:
            noise_multiplier = self._solve_noise(epsilon, delta, limit)
        self._set(epsilon=epsilon, delta=delta, noise_multiplier=noise_multiplier)

    def _solve_noise(self, epsilon: float, delta: float, limit: float | None) -> float:
        target = Target(
            self.sampling, self.examples, self.batch_size, self.steps, epsilon, delta, self._mixing
        )
        check_feasible(target, limit)
        self._set(sampling=self.sampling.tuned(self.clipping, self.steps, epsilon, delta))
        noise = calibrate(self._loss_with, epsilon=epsilon, delta=delta).value
        # Whoever recomputes epsilon with the usual accuracy must find it within the promise.
        while (excess := self._loss_with(noise).epsilon(delta) / epsilon) > 1:
            noise *= max(math.sqrt(excess), 1 + 1e-5)
        return noise

    def _loss_with(self, noise_multiplier: float, steps: int | None = None) -> PrivacyLoss:
        count = self.steps if steps is None else steps
        return self._mixing.loss(noise_multiplier, self.sampling, count, self.examples)
