"""Plans: everything that decides the privacy of a training run, fixed before it begins."""

from __future__ import annotations

import json
import math
from bisect import bisect_left, insort
from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any

from taut._base import validate
from taut._base.json_numbers import parsed_json
from taut._base.rounding import round_down, round_up
from taut.accounting import calibrate
from taut.errors import UnsoundConfiguration
from taut.matrix import Encoder
from taut.training._clipping.clipping import Clipping
from taut.training._plan.arguments import (
    batches_of,
    noise_of,
    sampling_of,
    steps_of,
    two_of_promise,
)
from taut.training._plan.best_noise import best_noise
from taut.training._plan.best_sampling import BEST, cheaper
from taut.training._plan.correlation import (
    check_correlated,
    encoder_of,
    is_independent,
    last_error,
    refuse_owners,
)
from taut.training._plan.document import alike, fields_of, written
from taut.training._plan.feasible import Target, check_feasible
from taut.training._plan.mixing import ModelMix
from taut.training._plan.owners import Owners, unit_of
from taut.training._plan.planned_steps import PlannedSteps
from taut.training._plan.schedule import Changing
from taut.training._sampling.fixed_order import FixedOrderSampling
from taut.training._sampling.sampling import USUAL_DELTA, Sampling

__all__ = ["Plan"]

_RECOMPUTED = 1 + 1e-6  # by which factor a bound may differ where arithmetic does


@dataclass(frozen=True, init=False)
class Plan(PlannedSteps):
    """How a model is trained with privacy, and what that costs, solved for what was left out.

    Args:
        examples: the number of training examples; or `unit`.
        batch_size: the expected number of examples in a step; or `rate`, as a share of all. For an
            epoch of whole steps, `RandomAllocation` makes it a little larger if need be. If it
            changes from step to step, a schedule: one number for every step, or pairs of a number
            of steps and the value that they have, as in [(500, 256), (100, 1024)].
        rate: instead of `batch_size`, in (0, 1], or a schedule of such rates.
        steps: the number of updates; or `epochs`; a schedule has a length of its own.
        epochs: instead of `steps`, how often an example is seen on average; steps are rounded up.
        epsilon: the promise; give two of `epsilon`, `delta` and `noise_multiplier`.
        delta: the promise, usually well below 1 / examples.
        noise_multiplier: standard deviation of the noise over the clipping norm, or a schedule of
            such numbers.
        noise_schedule: a schedule of factors by which noise changes from step to step. They
            multiply `noise_multiplier`; with `epsilon` and `delta` their ratios alone matter, and
            one common factor is found.
        clipping: what is done to the gradient of one example.
        sampling: how batches are drawn, or its name; a cap on batches is
            `TruncatedPoissonSampling(cap=...)`; "best" takes the cheaper of `PoissonSampling`
            and `RandomAllocation`, both at the rate of whole epochs, and `notes` say by how much.
        noise: noise that is correlated over steps: an encoder of `taut.matrix` of as many steps, or
            "banded", "blt", "inverse" or "tree"; None for independent noise. Batches come in a
            fixed order then, unless `sampling` keeps secret steps apart, and `noise_multiplier` is
            the deviation of the independent noise on encoded gradients. The loss is that of the
            whole run, spent with its first step. "best" takes the noise and, unless it is given,
            the sampling with the least error of running sums, and `notes` say by how much.
        mixing: mixing of released weights, whose uniform noise counts too; None for plain training.
            What is solved for is the noise multiplier, at a fixed width.
        unit: instead of `examples`, owners of several examples each, whom the promise is then
            about: `Owners(count, examples_each=...)`. Owners take the place of examples in all
            other arguments.
        max_noise_multiplier: more noise than this is no use to you; by default the square root of
            the steps times the batch size, beyond which noise outweighs the sum of all gradients
            even if every one of them had full length and the same direction.

    Once made, all of these are set: `batch_size` to the expected size, a float, and `epochs` to
    steps times rate. Where noise changes, `noise_multiplier` is the least of the run, and
    `noise_schedule` counts in its units; where batches change, `batch_size` and `rate` are means,
    `rate_schedule` holds the rates, and `sampling` is not fitted to one of them. What holds for a
    step is `noise_multiplier_at`, `batch_size_at` and `sampling_at`.

    **Guarantee**: `loss` is that of `steps` releases of a clipped sum with Gaussian noise over
    batches that `sampling` draws, under `adjacency`; `epsilon` and `delta` bound it with
    certainty. It holds for whoever sees every update, if batches stay secret and every step that
    is seen is counted. Schedules are fixed in advance: they must not depend on what came out.

    Raises:
        ValueError: if too much or too little is given, or sizes or lengths do not fit.
        InfeasibleBudget: if the promise needs more noise than is of use; says what would help.
        UnsoundConfiguration: for a schedule with a sampling, clipping or mixing that has no
            theorem or no engine for it.

    Example:
        >>> from taut.training import FlatClip, Plan
        >>> plan = Plan(
        ...     examples=60_000, batch_size=512, epochs=15, epsilon=3, delta=1e-5,
        ...     clipping=FlatClip(1.0),
        ... )
        >>> plan.steps, round(plan.noise_multiplier, 3), plan.loss.epsilon(delta=1e-5) <= 3
        (1758, 0.841, True)
        >>> plan = Plan(
        ...     examples=60_000, batch_size=[(500, 256), (100, 1024)], epsilon=3, delta=1e-5,
        ...     noise_schedule=[(400, 1.0), (200, 0.8)], clipping=FlatClip(1.0),
        ... )
        >>> plan.steps, plan.batch_size_at(550), plan.noise_multiplier < plan.noise_multiplier_at(0)
        (600, 1024.0, True)
    """

    epsilon: float
    delta: float
    max_noise_multiplier: float
    _answers: list[tuple[int, float]] = field(compare=False, repr=False)
    _choice: str = field(compare=False, repr=False)
    """Why the sampling was taken, if the plan was asked for the best one."""

    def __init__(
        self,
        *,
        examples: int | None = None,
        clipping: Clipping,
        batch_size: int | Changing | None = None,
        rate: float | Changing | None = None,
        steps: int | None = None,
        epochs: float | None = None,
        epsilon: float | None = None,
        delta: float | None = None,
        noise_multiplier: float | Changing | None = None,
        noise_schedule: Changing | None = None,
        sampling: Sampling | str | None = None,
        noise: Encoder | str | None = None,
        mixing: ModelMix | None = None,
        unit: Owners | None = None,
        max_noise_multiplier: float | None = None,
    ) -> None:
        why = ""
        if noise == BEST:
            kind = None if sampling in (None, BEST) else sampling_of(sampling)
            owners, units = unit_of(unit, examples)
            refuse_owners(owners)
            share = batches_of(units, batch_size, rate, FixedOrderSampling()).rate
            count = steps_of(steps, epochs, share, {})
            found = best_noise(count, share, epsilon, delta, kind)
            noise, sampling, why = found.encoder, found.sampling, found.why
            batch_size, rate = None, share
        if not is_independent(noise):
            if sampling == BEST:
                raise ValueError("noise= decides the sampling; leave sampling='best' out")
            sampling = "fixed_order" if sampling is None else sampling
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
                "noise_schedule": noise_schedule,
                "mixing": mixing,
                "unit": unit,
                "max_noise_multiplier": max_noise_multiplier,
            }
            chosen, why = cheaper(lambda **change: Plan(**{**arguments, **change}), arguments)
            self._set(**{**vars(chosen), "_choice": why})
            return
        if not isinstance(clipping, Clipping):
            raise validate.WrongType(
                f"clipping must be a Clipping, got clipping={clipping!r}; try FlatClip(1.0)"
            )
        owners, units = unit_of(unit, examples)
        n, size, share, kind, rates = batches_of(units, batch_size, rate, sampling_of(sampling))
        solved = epsilon is not None and delta is not None
        least, noises = noise_of(noise_multiplier, noise_schedule, solved=solved)
        self._set(examples=n, batch_size=size, rate=share, mixing=mixing, unit=owners)
        self._mixing.check(clipping, kind)
        count = steps_of(
            steps, epochs, share, {"batch_size or rate": rates, "noise_schedule": noises}
        )
        if noises is not None and len(noises.stretches) == 1:
            noises = None
        self._set(steps=count, epochs=count * share, rate_schedule=rates, noise_schedule=noises)
        self._set(sampling=kind.for_clipping(clipping))
        self._set(encoder=encoder_of(noise, count, kind))
        limit = self._drowning
        if max_noise_multiplier is not None:
            limit = validate.positive(max_noise_multiplier=max_noise_multiplier)
        fitted = clipping.fitted(self.batch_size)
        self._set(clipping=fitted, max_noise_multiplier=limit, _answers=[], _choice=why)
        self._check_schedules()
        check_correlated(self)
        self._set_promise(epsilon, delta, least, max_noise_multiplier)
        self._answers.append((self.steps, self.epsilon))

    # --- what the plan costs -------------------------------------------------------------------

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

    @property
    def notes(self) -> tuple[str, ...]:
        """What a careful reader would ask about."""
        found = []
        if self.delta >= 1 / self.examples:
            found.append(
                f"delta={self.delta:g} is not below 1 / {self.units} = {1 / self.examples:.3g}: "
                "such a promise would allow publishing "
                f"{'a whole example' if self.unit is None else 'all of an owner'} now and then"
            )
        if self.encoder is None and self.noise_multiplier > self.batch_size:
            found.append(
                f"noise_multiplier={self.noise_multiplier:.4g} exceeds batch_size="
                f"{self.batch_size:g}: one step is mostly noise even where all {self.units} agree"
            )
        if comparison := self.comparison(self.steps):
            found.append(comparison)
        if self._choice:
            found.append(self._choice)
        return (*self.mixing_notes(self.steps), *found)

    def comparison(self, steps: int) -> str:
        """Return what another sampling would promise for so many steps, if readers should know."""
        if self.follows_ledger:
            return ""
        return self.sampling.comparison(self.noise_multiplier, self.examples, steps, self.delta)

    def mixing_notes(self, steps: int) -> tuple[str, ...]:
        """Return what must be said beside the epsilon of `steps` steps if weights are mixed."""
        return self._mixing.notes(self.noise_multiplier, self.sampling, steps, self.delta)

    def __str__(self) -> str:
        sizes = f"{self.batch_size:g}"
        noises = round_down(self.noise_multiplier, 6)
        if self.rate_schedule is not None:
            least, most = (r * self.examples for r in self.rate_range)
            sizes = f"{least:g} to {most:g}"
        if self.noise_schedule is not None:
            noises += f" to {round_down(self.noise_range[1], 6)}"
        lines = [
            f"{self.steps} steps of {sizes} {self.units} out of {self.examples} "
            f"({self.epochs:.4g} epochs), sampling {self.sampling.name}",
            f"clipping {self.clipping!r}, noise multiplier {noises}",
            f"epsilon {round_up(self.epsilon, 6)} at delta {self.delta!r}, "
            f"adjacency {self.adjacency}",
        ]
        if self.unit is not None:
            each = self.unit.examples_each
            lines[-1] += f" of owners, each with a mean over {each} examples"
        if self.encoder is not None:
            lines.insert(2, f"noise correlated by {type(self.encoder).__name__}")
        if self.mixing is not None:
            lines.insert(2, f"mixing {self.mixing!r}")
        return "\n".join([*lines, *(f"note: {note}" for note in self.notes)])

    # --- serialisation -------------------------------------------------------------------------

    def to_dict(self) -> dict[str, Any]:
        """Return a JSON-ready description from which the promise can be recomputed."""
        return written(self)

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
        plan = object.__new__(cls)
        plan._set(**fields_of(data), _answers=[], _choice="")
        plan.sampling.check_clipping(plan.clipping)
        plan._mixing.check(plan.clipping, plan.sampling)
        plan._check_schedules()
        check_correlated(plan)
        return plan

    @classmethod
    def from_json(cls, text: str) -> Plan:
        """Return the plan described by JSON `text`, such as that of a file, once it is proven.

        Raises:
            ValueError: if the text is no JSON, or no plan.
            UnsoundConfiguration: if the promise surely does not follow from the rest.
        """
        return cls.from_dict(parsed_json(text))

    def is_like(self, other: Plan) -> bool:
        """Return whether another plan is this one, made on a machine that rounds otherwise."""
        return alike(self.to_dict(), other.to_dict())

    def has_noise_of(self, other: Plan) -> bool:
        """Return whether noise is correlated as that of another plan, but for rounding."""
        noises = (plan.to_dict().get("noise") for plan in (self, other))
        return alike(*noises)

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

    # --- how the plan is made ------------------------------------------------------------------

    def _set(self, **values: Any) -> None:
        for name, value in values.items():
            object.__setattr__(self, name, value)

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
        if delta is not None:
            self._set(delta=delta)
        elif self.encoder is not None and self.sampling.sharp_at_delta:
            raise ValueError(
                f"sampling={self.sampling.name!r} has a loss for a given delta; give delta, with "
                "epsilon or with noise_multiplier"
            )
        if epsilon is None:
            assert delta is not None
            epsilon = self.loss.epsilon(delta)
        elif delta is None:
            delta = self.loss.delta(epsilon)
        else:
            noise_multiplier = self._solve_noise(epsilon, delta, limit)
        self._set(epsilon=epsilon, delta=delta, noise_multiplier=noise_multiplier)

    @property
    def _sharp_at(self) -> float:
        found: float = vars(self).get("delta", USUAL_DELTA)
        return found

    @property
    def _drowning(self) -> float:
        """The noise that equals the sum of all gradients, if these have one direction."""
        if self.encoder is None:
            return self.batch_size * math.sqrt(self.steps)
        return self.batch_size * self.steps / last_error(self.encoder)

    def _solve_noise(self, epsilon: float, delta: float, limit: float | None) -> float:
        target = Target(
            self.sampling,
            self.examples,
            self.batch_size,
            self.steps,
            epsilon,
            delta,
            self._mixing,
            self._loss_with if self.follows_ledger else None,
        )
        if self.encoder is not None and limit is None:
            limit = self._drowning
        check_feasible(target, limit)
        self._set(sampling=self.sampling.tuned(self.clipping, self.steps, epsilon, delta))
        noise = calibrate(self._loss_with, epsilon=epsilon, delta=delta).value
        # Whoever recomputes epsilon with the usual accuracy must find it within the promise.
        while (excess := self._loss_with(noise).epsilon(delta) / epsilon) > 1:
            noise *= max(math.sqrt(excess), 1 + 1e-5)
        return noise
