"""From runs to one line per arm: equally tuned, with intervals and differences to the first."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Literal, TypeAlias

from taut.comparison._intervals import (
    Interval,
    difference_interval,
    mean_interval,
    one_example,
)
from taut.comparison._run_file import Run

__all__ = ["FEWEST_SEEDS", "ArmResult", "Metric", "best_learning_rate", "metric_of", "summarise"]

FEWEST_SEEDS = 3
"""For a verdict: of two differences nobody can tell whether their spread is chance."""

Metric: TypeAlias = Literal["accuracy", "loss"]
Verdict: TypeAlias = Literal["reference", "better", "worse", "undecided"]


@dataclass(frozen=True)
class ArmResult:
    """How one arm did, at its best learning rate.

    Attributes:
        arm: its label.
        learning_rate: the best of those tried.
        is_at_edge: whether that is the smallest or largest of those tried, so that a better one
            may lie outside; False if it was chosen before.
        value: the mean of the metric over seeds, with its interval.
        difference: the mean difference to the reference on equal seeds, with an interval that
            holds for all arms at once; None for the reference.
        verdict: whether the difference is beyond its interval.
        reason: why it is undecided; empty if it is not.
        seconds: seconds that a run took on average, by the clock.
        cpu_seconds: CPU seconds that a run took on average.
    """

    arm: str
    learning_rate: float
    is_at_edge: bool
    value: Interval
    difference: Interval | None
    verdict: Verdict
    reason: str
    seconds: float
    cpu_seconds: float

    def to_dict(self) -> dict[str, Any]:
        """Return numbers for JSON."""
        return {
            "arm": self.arm,
            "learning_rate": self.learning_rate,
            "is_at_edge": self.is_at_edge,
            "value": self.value.to_dict(),
            "difference": None if self.difference is None else self.difference.to_dict(),
            "verdict": self.verdict,
            "reason": self.reason,
            "seconds": self.seconds,
            "cpu_seconds": self.cpu_seconds,
        }


def metric_of(runs: Sequence[Run]) -> Metric:
    """Return what runs are judged by: accuracy, if targets are classes."""
    return "loss" if any(run.accuracy is None for run in runs) else "accuracy"


def best_learning_rate(runs: Sequence[Run]) -> float:
    """Return the learning rate with the best mean on the examples that choose; the first of equals.

    Args:
        runs: runs of one arm, with the same seeds for every learning rate.
    """
    metric = metric_of(runs)
    scores: dict[float, list[float]] = {}
    for run in sorted(runs, key=lambda run: run.learning_rate):
        given = run.choice_accuracy if metric == "accuracy" else run.choice_loss
        scores.setdefault(run.learning_rate, []).append(_oriented(given, metric))
    return max(scores, key=lambda rate: sum(scores[rate]) / len(scores[rate]))


def summarise(
    chosen: Mapping[str, Sequence[Run]],
    tried: Mapping[str, Sequence[float]],
    metric: Metric,
    confidence: float,
    examples: int,
) -> tuple[ArmResult, ...]:
    """Return one result per arm; the reference is the arm named plain, or else the first.

    Args:
        chosen: the runs of every arm at its best learning rate, in the order of seeds.
        tried: the learning rates that every arm chose from; none if they were chosen before.
        metric: what is averaged.
        confidence: confidence level of the interval of every mean, and of all differences together,
            each of which has its share of what may go wrong (Bonferroni).
        examples: number of examples that judge; accuracies are multiples of one over their number.
    """
    counted = examples if metric == "accuracy" else None
    finest = 0.0 if counted is None else one_example(counted)
    reference = "plain" if "plain" in chosen else next(iter(chosen))
    others = max(len(chosen) - 1, 1)
    joint = 1 - (1 - confidence) / others
    base = [_value(run, metric) for run in chosen[reference]]
    results = []
    for arm, runs in chosen.items():
        values = [_value(run, metric) for run in runs]
        difference = None
        if arm != reference:
            difference = difference_interval(values, base, joint, counted)
        verdict, reason = _verdict(difference, metric)
        results.append(
            ArmResult(
                arm,
                runs[0].learning_rate,
                runs[0].learning_rate in _ends(tried[arm]),
                mean_interval(values, confidence, reach=finest),
                difference,
                verdict,
                reason,
                sum(run.seconds for run in runs) / len(runs),
                sum(run.cpu_seconds for run in runs) / len(runs),
            )
        )
    return tuple(results)


def _ends(numbers: Sequence[float]) -> set[float]:
    return {min(numbers), max(numbers)} if numbers else set()


def _verdict(difference: Interval | None, metric: Metric) -> tuple[Verdict, str]:
    """Return the verdict, and why there is none if it is undecided."""
    if difference is None:
        return "reference", ""
    if math.isnan(difference.mean):
        return "undecided", f"a {metric} is not finite"
    if difference.count < FEWEST_SEEDS:
        return "undecided", f"a verdict takes {FEWEST_SEEDS} seeds, got {difference.count}"
    if difference.low <= 0 <= difference.high:
        return "undecided", "the interval of the difference holds zero"
    return "better" if (difference.low > 0) == (metric == "accuracy") else "worse", ""


def _value(run: Run, metric: Metric) -> float:
    given = run.accuracy if metric == "accuracy" else run.loss
    return math.inf if given is None else given


def _oriented(given: float | None, metric: Metric) -> float:
    """Return a number that is larger for better runs."""
    if given is None:
        return -math.inf
    return given if metric == "accuracy" else -given
