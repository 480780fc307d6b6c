"""A picture of methods side by side."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING

from taut.report._plots.figure import new_figure

if TYPE_CHECKING:
    from matplotlib.axes import Axes

    from taut.comparison import Comparison

__all__ = ["plot_comparison"]


def plot_comparison(comparison: Comparison, path: Path | str) -> None:
    """Draw every arm's result with its interval, its noise and its CPU time, into a file.

    Args:
        comparison: comparison from :func:`taut.comparison.compare`.
        path: where to save; the suffix decides the format, such as ``.png`` or ``.svg``.

    Raises:
        ImportError: if matplotlib is not installed.
    """
    results = comparison.results[::-1]
    figure = new_figure(width=9.0, height=1.6 + 0.45 * len(results))
    judged, noise, cost = figure.subplots(1, 3, sharey=True, width_ratios=(5, 3, 3))
    names = [row.arm for row in results]
    _draw_intervals(judged, comparison)
    noises = {row.arm: row.noise_std for row in comparison.prediction.arms}
    noise.barh(names, [noises[name] for name in names], color="0.75", edgecolor="black")
    noise.set(xlabel="noise of the mean gradient")
    cost.barh(names, [row.cpu_seconds for row in results], color="0.75", edgecolor="black")
    cost.set(xlabel="CPU seconds of a run")
    settings = comparison.settings
    figure.suptitle(
        f"epsilon = {settings.epsilon:g}, delta = {settings.delta:g}, "
        f"{settings.steps * settings.batch_size} gradients, {len(comparison.seeds)} seeds: "
        "experiments, no promise",
        fontsize="medium",
    )
    figure.savefig(path)


def _draw_intervals(axes: Axes, comparison: Comparison) -> None:
    """Draw the mean of every arm, its interval, and every seed as a dot."""
    found = {run.key: run for run in comparison.runs}
    for row in comparison.results[::-1]:
        runs = [found[row.arm, row.learning_rate, seed] for seed in comparison.seeds]
        values = [getattr(run, comparison.metric) for run in runs]
        dots = [value for value in values if value is not None]
        axes.plot(dots, [row.arm] * len(dots), ".", color="0.6", zorder=1)
        reach = row.value.high - row.value.mean if len(comparison.seeds) > 1 else 0.0
        axes.errorbar(row.value.mean, row.arm, xerr=reach, fmt="o", color="black", capsize=4)
    level = 100 * comparison.confidence
    axes.set(xlabel=f"{comparison.metric} on test examples, with {level:g}% intervals")
    axes.grid(axis="x", alpha=0.3)
    axes.margins(y=0.2)
