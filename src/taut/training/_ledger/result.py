"""What a training run promises once it is over."""

from __future__ import annotations

import json
from collections.abc import Mapping
from dataclasses import asdict, dataclass, field
from typing import Any

from taut._base import validate
from taut._base.json_numbers import parsed_json
from taut.accounting import Adjacency, Bounds, MixingComparison, PrivacyLoss
from taut.errors import UnsoundConfiguration
from taut.training._ledger.history import RunHistory
from taut.training._ledger.record import RunRecord
from taut.training._ledger.statement_words import TrainingWords
from taut.training._plan.plan import Plan

__all__ = ["TrainingResult"]

SCHEMA = "taut.training-result/1"
_RECOMPUTED = 1 + 1e-6  # by which factor a bound may differ where arithmetic does


@dataclass(frozen=True)
class TrainingResult:
    """A trained model's promise, with what it takes to recompute it.

    Attributes:
        plan: what was planned.
        steps: how many updates the model has had.
        counted_steps: how many steps the ledger counts; more than `steps` if the run was killed
            and repeated some.
        stopped_at_budget: whether steps that count twice left no budget for the last ones.
        epsilon: certified bounds at `delta` for all counted steps; `epsilon.upper` is the promise.
        loss: the privacy loss of all counted steps, to be added to other losses.
        is_secure: whether noise and batches came from a secure generator. If not, the promise is
            that of an experiment: whoever knows the seed can subtract the noise.
        unchecked_isolation: whether steps were taken without a test that examples are kept apart;
            the promise then holds if they are.
        changed_data: whether the run went on with another dataset than it began with, or with one
            that nobody could compare; each example is protected in the steps that could see it.
        dropped_examples: how often an example counted for nothing since its gradient was not
            finite, as far as this process has seen. It depends on the examples: it is in no file
            and no statement, and not for publication.
        ledger_hash: the hash of the last line of the ledger; None for a count in memory. Whoever
            has it can tell whether a ledger that is shown later is the one of this run.
        record: when the run ended, with which software, and how its owner calls it; None for a
            result without. No part of the promise: results that differ in it alone are equal.
        says_other_words: whether the statement names mu, true alarms and wrong guesses, as all do
            but those of older versions.

    **Guarantee**: `adjacency` and `sampler` say what the promise is about; it holds for whoever
    sees every update. Losses and accuracies on training examples are no part of it.
    """

    plan: Plan
    steps: int
    counted_steps: int
    stopped_at_budget: bool
    epsilon: Bounds
    loss: PrivacyLoss
    is_secure: bool
    unchecked_isolation: bool = False
    changed_data: bool = False
    dropped_examples: int = field(default=0, compare=False, repr=False)
    says_other_words: bool = field(default=True, compare=False, repr=False)
    ledger_hash: str | None = field(default=None, compare=False, repr=False)
    record: RunRecord | None = field(default=None, compare=False, repr=False)

    def __post_init__(self) -> None:
        if self.counted_steps < self.steps:
            raise UnsoundConfiguration(
                f"the model had steps={self.steps} updates, of which only counted_steps="
                f"{self.counted_steps} were counted; restore the ledger of the run from a copy"
            )

    @classmethod
    def of(
        cls,
        plan: Plan,
        history: RunHistory,
        *,
        steps: int,
        is_secure: bool,
        dropped_examples: int = 0,
    ) -> TrainingResult:
        """Return the result of a run whose ledger says `history`."""
        loss = history.loss
        return cls(
            plan=plan,
            steps=steps,
            counted_steps=history.steps,
            stopped_at_budget=steps < plan.steps,
            epsilon=loss.epsilon_bounds(plan.delta),
            loss=loss,
            is_secure=is_secure,
            unchecked_isolation=history.unchecked_isolation,
            changed_data=history.changed_data,
            ledger_hash=history.head,
            dropped_examples=dropped_examples,
        )

    @property
    def delta(self) -> float:
        """The delta of the promise."""
        return self.plan.delta

    @property
    def adjacency(self) -> Adjacency:
        """Which datasets count as neighbours.

        It follows from how batches were drawn: see `Sampling.adjacency`.
        """
        return self.plan.adjacency

    @property
    def sampler(self) -> str:
        """How batches were drawn."""
        return self.plan.sampling.name

    @property
    def mixing(self) -> MixingComparison | None:
        """What the noise costs beside Gaussian noise alone, if released weights were mixed."""
        plan = self.plan
        if plan.mixing is None:
            return None
        return plan.mixing.comparison(
            plan.noise_multiplier, plan.sampling, self.counted_steps, plan.delta
        )

    @property
    def statement(self) -> str:
        """The promise in words, for a model card."""
        words = TrainingWords.of(
            self.plan,
            self.counted_steps,
            lower=self.epsilon.lower,
            upper=self.epsilon.upper,
            loss=self.loss if self.says_other_words else None,
            stopped=(self.steps, self.plan.steps) if self.stopped_at_budget else None,
            is_secure=self.is_secure,
            unchecked_isolation=self.unchecked_isolation,
            changed_data=self.changed_data,
            ledger_hash=self.ledger_hash,
        )
        return str(words)

    def __str__(self) -> str:
        return self.statement

    def to_dict(self) -> dict[str, Any]:
        """Return a JSON-ready description from which the promise can be recomputed."""
        mixed = {} if self.mixing is None else {"mixing": asdict(self.mixing)}
        flags = {
            "unchecked_isolation": self.unchecked_isolation,
            "changed_data": self.changed_data,
            "ledger_hash": self.ledger_hash,
        }
        noted = {name: value for name, value in flags.items() if value}
        return {
            "schema": SCHEMA,
            "steps": self.steps,
            "counted_steps": self.counted_steps,
            "stopped_at_budget": self.stopped_at_budget,
            "epsilon": {"lower": self.epsilon.lower, "upper": self.epsilon.upper},
            "delta": self.delta,
            "adjacency": str(self.adjacency),
            "sampler": self.sampler,
            "is_secure": self.is_secure,
            **noted,
            "statement": self.statement,
            "plan": self.plan.to_dict(),
            "loss": self.loss.to_dict(),
            **mixed,
            **({} if self.record is None else self.record.to_dict()),
        }

    def to_json(self) -> str:
        """Return :meth:`to_dict` as JSON text."""
        return json.dumps(self.to_dict(), indent=2)

    @classmethod
    def from_dict(cls, data: Mapping[str, Any]) -> TrainingResult:
        """Return the result described by `data`; its epsilon is computed again.

        Raises:
            ValueError: if the schema or a field is unknown or malformed.
            UnsoundConfiguration: if the loss is less than that of as many steps of the plan.
        """
        if not isinstance(data, Mapping) or data.get("schema") != SCHEMA:
            raise ValueError(f"not a training result: expected an object with schema {SCHEMA!r}")
        try:
            plan = Plan.from_dict(data["plan"])
            loss = PrivacyLoss.from_dict(data["loss"])
            counted = validate.integer(counted_steps=data["counted_steps"])
            _check_loss(loss, plan, counted)
            return cls(
                plan=plan,
                steps=int(data["steps"]),
                counted_steps=counted,
                stopped_at_budget=bool(data["stopped_at_budget"]),
                epsilon=loss.epsilon_bounds(plan.delta),
                loss=loss,
                is_secure=bool(data["is_secure"]),
                unchecked_isolation=bool(data.get("unchecked_isolation", False)),
                changed_data=bool(data.get("changed_data", False)),
                ledger_hash=None if (head := data.get("ledger_hash")) is None else str(head),
                record=RunRecord.from_dict(data),
                says_other_words=TrainingWords.has_other_words(str(data.get("statement", ""))),
            )
        except (KeyError, TypeError) as error:
            raise ValueError(f"malformed training result: {error!r}") from None

    @classmethod
    def from_json(cls, text: str) -> TrainingResult:
        """Return the result described by JSON `text`."""
        return cls.from_dict(parsed_json(text))


def _check_loss(loss: PrivacyLoss, plan: Plan, counted: int) -> None:
    """Refuse a loss that is less than what the counted steps of the plan cost."""
    if plan.is_loss_of(loss, counted):
        return
    stated, true = loss.epsilon(plan.delta), plan.loss_at(counted).epsilon(plan.delta)
    if stated * _RECOMPUTED < true:
        raise UnsoundConfiguration(
            f"the result states epsilon={stated!r} at delta={plan.delta!r}, but {counted} steps of "
            f"its plan cost {true!r}; it was changed by hand"
        )
