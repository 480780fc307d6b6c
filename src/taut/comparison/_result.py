"""What a comparison found: a table, a recommendation, and what it would have cost."""

from __future__ import annotations

import csv
import io
import json
from collections import Counter
from dataclasses import asdict, dataclass, fields
from functools import cached_property
from pathlib import Path
from typing import Any

from taut._base.files import write_atomically
from taut.accounting import PrivacyLoss
from taut.comparison._intervals import Interval
from taut.comparison._markdown import markdown_table
from taut.comparison._prediction import Prediction
from taut.comparison._run_file import Run
from taut.comparison._settings import Settings
from taut.comparison._summary import FEWEST_SEEDS, ArmResult, Metric, metric_of, summarise

__all__ = ["EXPERIMENT", "Comparison"]

EXPERIMENT = (
    "These are experiments: their noise follows from seeds, so that no run keeps a promise. "
    "Choosing a method or a learning rate by what it does on private data reveals something of "
    "them that no epsilon of a single run covers: compare on public or similar data, or count "
    "every run."
)


@dataclass(frozen=True, eq=False)
class Comparison:
    """Arms at equal privacy and equally many gradients, trained and judged.

    Attributes:
        prediction: their plans, and those that could not take part.
        runs: all that were trained, learning rates that lost included.
        seeds: seeds that every arm was trained with at its best learning rate.
        learning_rates: learning rates that every arm began with; empty if they were chosen before.
        chosen: the learning rate that every arm chose, by label.
        confidence: confidence level of the intervals.
        tuned_on_test: whether the examples that judge chose the learning rates as well.
        test_examples: how many judge.

    **Guarantee**: about privacy none, see `experiment`. Every run's plan promises the epsilon and
    delta of the settings. Intervals are Student's over seeds, for the data at hand; those of
    differences hold together, and are never finer than the test examples resolve them.
    """

    prediction: Prediction
    runs: tuple[Run, ...]
    seeds: tuple[int, ...]
    learning_rates: tuple[float, ...]
    chosen: dict[str, float]
    confidence: float
    tuned_on_test: bool
    test_examples: int

    experiment = EXPERIMENT
    """What to tell whoever reads the results."""

    @property
    def settings(self) -> Settings:
        """What was equal."""
        return self.prediction.settings

    @property
    def metric(self) -> Metric:
        """What arms are judged by: accuracy, or the loss where targets are not classes."""
        return metric_of(self.runs)

    @property
    def tried(self) -> dict[str, tuple[float, ...]]:
        """The learning rates that every arm chose from, by label; none if chosen before."""
        found: dict[str, set[float]] = {arm: set() for arm in self.chosen}
        for run in self.runs if self.learning_rates else ():
            found[run.arm].add(run.learning_rate)
        return {arm: tuple(sorted(rates)) for arm, rates in found.items()}

    @cached_property
    def results(self) -> tuple[ArmResult, ...]:
        """One per arm, in the order given."""
        found = {run.key: run for run in self.runs}
        rows = {arm: [found[arm, rate, s] for s in self.seeds] for arm, rate in self.chosen.items()}
        return summarise(rows, self.tried, self.metric, self.confidence, self.test_examples)

    @property
    def best(self) -> ArmResult:
        """The arm to take: the reference, unless others are better beyond the interval."""
        sign = 1.0 if self.metric == "accuracy" else -1.0
        better = [row for row in self.results if row.verdict == "better"]
        if not better:
            return next(row for row in self.results if row.verdict == "reference")
        return max(better, key=lambda row: sign * row.value.mean)

    @property
    def recommendation(self) -> str:
        """What to do, in words."""
        return " ".join(self._advice())

    @property
    def loss(self) -> PrivacyLoss:
        """What all runs would have cost together, had their noise been secure."""
        counts = Counter(run.arm for run in self.runs)
        losses = [counts[row.arm] * row.plan.loss for row in self.prediction.arms]
        total = losses[0]
        for other in losses[1:]:
            total = total + other
        return total

    def _advice(self) -> list[str]:
        best, level = self.best, f"{100 * self.confidence:g}%"
        base = next(row for row in self.results if row.verdict == "reference")
        reference = base.arm
        said = []
        if len(self.seeds) < FEWEST_SEEDS and len(self.results) > 1:
            said.append(
                f"Undecided: a verdict takes {FEWEST_SEEDS} seeds at least, got "
                f"{len(self.seeds)}; repeat with more."
            )
        elif best.difference is None and len(self.results) > 1:
            said.append(
                f"No arm beats {reference} beyond the {level} intervals of the differences: take "
                f"{reference}, which is the simplest."
            )
        elif best.difference is not None:
            said.append(
                f"Take {best.arm}: its {self.metric} differs from that of {reference} by "
                f"{_between(best.difference)}, at {level} for all arms together. A run takes "
                f"{best.cpu_seconds / base.cpu_seconds:.1f} times the CPU time of {reference}."
            )
        worse = [row.arm for row in self.results if row.verdict == "worse"]
        if worse:
            said.append(f"Worse than {reference} beyond the interval: {', '.join(worse)}.")
        edge = [row.arm for row in self.results if row.is_at_edge]
        if edge:
            said.append(
                f"The best learning rate lies at the edge of those tried for {', '.join(edge)}: "
                "try more, or extend them, before you believe the order."
            )
        if self.tuned_on_test and any(len(rates) > 1 for rates in self.tried.values()):
            said.append(
                "Learning rates were chosen by the examples that judge, which flatters all arms; "
                "give validation examples for means that hold for new ones."
            )
        return said

    def table(self) -> str:
        """Return one line per arm, as a Markdown table."""
        titles = ["arm", self.metric, "difference", "verdict"]
        titles += ["learning rate", "noise", "CPU s/run"]
        noise = {row.arm: row.noise_std for row in self.prediction.arms}
        rows = [
            [
                row.arm,
                str(row.value),
                "" if row.difference is None else str(row.difference),
                row.verdict,
                f"{row.learning_rate:g}",
                f"{noise[row.arm]:.4g}",
                f"{row.cpu_seconds:.1f}",
            ]
            for row in self.results
        ]
        return "\n".join(markdown_table(titles, rows, left=1))

    @property
    def notes(self) -> tuple[str, ...]:
        """What must be said beside the table: about arms, and about those that were left out."""
        said = [f"{row.arm}: {note}" for row in self.prediction.arms for note in row.notes]
        skipped = self.prediction.skipped.items()
        return (*said, *(f"{name} was left out: {why}" for name, why in skipped))

    def to_markdown(self) -> str:
        """Return table, notes, recommendation and warning as text."""
        head = f"{self.settings}; {len(self.seeds)} seeds, {100 * self.confidence:g}% intervals"
        parts = (head, self.table(), *self.notes, self.recommendation, EXPERIMENT)
        return "\n\n".join(parts)

    def __str__(self) -> str:
        return self.to_markdown()

    def to_csv(self) -> str:
        """Return every run as a row of comma-separated values."""
        text = io.StringIO()
        writer = csv.writer(text, lineterminator="\n")
        names = [field.name for field in fields(Run)]
        writer.writerow(names)
        writer.writerows([getattr(run, name) for name in names] for run in self.runs)
        return text.getvalue()

    def to_dict(self) -> dict[str, Any]:
        """Return all of it for JSON."""
        return {
            "metric": self.metric,
            "confidence": self.confidence,
            "seeds": list(self.seeds),
            "learning_rates": list(self.learning_rates),
            "tried": {arm: list(rates) for arm, rates in self.tried.items()},
            "test_examples": self.test_examples,
            "results": [row.to_dict() for row in self.results],
            "best": self.best.arm,
            "recommendation": self.recommendation,
            "warning": EXPERIMENT,
            "prediction": self.prediction.to_dict(),
            "runs": [asdict(run) for run in self.runs],
        }

    def write(self, directory: Path | str) -> None:
        """Write table.md, runs.csv and comparison.json into a directory."""
        place = Path(directory)
        place.mkdir(parents=True, exist_ok=True)
        write_atomically(place / "table.md", self.to_markdown() + "\n")
        write_atomically(place / "runs.csv", self.to_csv())
        write_atomically(place / "comparison.json", json.dumps(self.to_dict(), indent=2) + "\n")


def _between(interval: Interval) -> str:
    return f"{interval.low:+.4f} to {interval.high:+.4f}"
