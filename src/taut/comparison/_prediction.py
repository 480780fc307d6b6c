"""What noise will do in every arm, before anything is trained."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from taut._base.public_vectors import Rows, public_rows
from taut._base.rounding import round_up
from taut.comparison._markdown import markdown_table
from taut.comparison._noise_size import expected_step, noise_std
from taut.comparison._settings import Settings
from taut.comparison.arms._arms import Arm, ArmSkipped, arms_of
from taut.errors import InfeasibleBudget
from taut.noise.geometry import OneStep
from taut.training import Plan

__all__ = ["ArmPrediction", "Prediction", "predict"]


@dataclass(frozen=True)
class ArmPrediction:
    """What one arm plans, and how large its noise is.

    Attributes:
        arm: its label.
        plan: how it trains; `plan.epsilon` is certified.
        noise_std: root of the expected squared length of the noise on the mean gradient.
        step: what one step would do to gradients that look like the public ones; None without
            public gradients.
        notes: what must be said beside it.
    """

    arm: str
    plan: Plan
    noise_std: float
    step: OneStep | None
    notes: tuple[str, ...] = ()

    @property
    def signal_to_noise(self) -> float | None:
        """The length of the clipped mean of public gradients over `noise_std`."""
        return None if self.step is None else self.step.block_snr[0]

    def to_dict(self) -> dict[str, Any]:
        """Return numbers and lists for JSON."""
        return {
            "arm": self.arm,
            "epsilon": self.plan.epsilon,
            "delta": self.plan.delta,
            "steps": self.plan.steps,
            "gradients": self.plan.steps * self.plan.batch_size,
            "noise_multiplier": self.plan.noise_multiplier,
            "noise_std": self.noise_std,
            "signal_to_noise": self.signal_to_noise,
            "step": None if self.step is None else self.step.to_dict(),
            "notes": list(self.notes),
        }


@dataclass(frozen=True)
class Prediction:
    """All arms at equal privacy and equally many gradients, by their noise alone.

    Attributes:
        settings: what is equal.
        arms: what every arm plans, in the order given.
        skipped: why the others cannot take part, by label.

    Less noise is not yet a better model: noise of least variance may lie where the signal is, and
    clipping that allows for it may cut the signal off. Train before you choose.
    """

    settings: Settings
    arms: tuple[ArmPrediction, ...]
    skipped: Mapping[str, str]

    def to_markdown(self) -> str:
        """Return the table as text."""
        titles = ["arm", "epsilon", "noise multiplier", "noise of the mean", "x first"]
        has_steps = any(row.step is not None for row in self.arms)
        titles += ["signal to noise", "cosine"] if has_steps else []
        rows = [self._cells(row) for row in self.arms]
        notes = [f"{row.arm}: {note}" for row in self.arms for note in row.notes]
        notes += [f"{label} is left out: {reason}" for label, reason in self.skipped.items()]
        table = markdown_table(titles, rows, left=1)
        return "\n".join([str(self.settings), "", *table, *(["", *notes] if notes else [])])

    def _cells(self, row: ArmPrediction) -> list[str]:
        cells = [
            row.arm,
            round_up(row.plan.epsilon, 5),
            f"{row.plan.noise_multiplier:.4g}",
            f"{row.noise_std:.4g}",
            f"{row.noise_std / self.arms[0].noise_std:.3f}",
        ]
        if row.step is not None:
            cells += [f"{row.signal_to_noise:.3g}", f"{row.step.cosine_released:.3f}"]
        return cells

    def __str__(self) -> str:
        return self.to_markdown()

    def to_dict(self) -> dict[str, Any]:
        """Return all of it for JSON."""
        return {
            "settings": self.settings.to_dict(),
            "arms": [row.to_dict() for row in self.arms],
            "skipped": dict(self.skipped),
        }


def predict(
    settings: Settings,
    sizes: Mapping[str, int],
    *,
    arms: Sequence[str | Arm] | None = None,
    public_gradients: Rows | None = None,
) -> Prediction:
    """Return how large the noise of every arm will be; nothing is trained.

    Args:
        settings: what is equal for all arms.
        sizes: the number of entries of every trainable parameter, by name; see `Task.sizes`.
        arms: names or arms; all of this package by default.
        public_gradients: gradients of public examples at the model's first weights, one per row;
            see `Task.gradients`. With them the table says what noise leaves of the signal.

    **Guarantee**: no private data are looked at. Every plan promises the epsilon and delta of the
    settings, and all of them compute the same number of gradients in expectation.

    Raises:
        ValueError: for unknown arms, and gradients of another length.
        InfeasibleBudget: if no arm can keep the promise.

    Example:
        >>> from taut.comparison import Settings, predict
        >>> settings = Settings(
        ...     examples=5_000, batch_size=250, gradients=50_000, epsilon=3, delta=1e-5
        ... )
        >>> sizes = {"body.weight": 5_000, "head.weight": 50}
        >>> table = predict(settings, sizes, arms=["plain", "group"])
        >>> print(*(f"{row.arm} {row.noise_std:.3f}" for row in table.arms))
        plain 0.366 group 0.283
    """
    rows = None if public_gradients is None else public_rows(public_gradients, "public")
    if rows is not None and rows.shape[1] != sum(sizes.values()):
        raise ValueError(
            f"public_gradients must have one column for each of {sum(sizes.values())} trainable "
            f"numbers, got {rows.shape[1]}"
        )
    found: list[ArmPrediction] = []
    skipped: dict[str, str] = {}
    refused: InfeasibleBudget | None = None
    for arm in arms_of(arms):
        try:
            found.append(_predicted(arm, settings, sizes, rows))
        except ArmSkipped as reason:
            skipped[arm.label] = str(reason)
        except InfeasibleBudget as error:
            skipped[arm.label], refused = str(error), error
    if not found:
        reasons = "; ".join(f"{label}: {reason}" for label, reason in skipped.items())
        raise refused or ValueError(f"no arm can take part: {reasons}")
    return Prediction(settings, tuple(found), skipped)


def _predicted(
    arm: Arm, settings: Settings, sizes: Mapping[str, int], rows: Rows | None
) -> ArmPrediction:
    plan = arm.plan(settings, sizes, rows)
    step = None if rows is None else expected_step(arm.label, plan, sizes, rows)
    return ArmPrediction(arm.label, plan, noise_std(plan, sizes), step, arm.notes(plan))
