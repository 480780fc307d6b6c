"""A picture of what mechanisms cost for one vector."""

from __future__ import annotations

from pathlib import Path

from taut.noise import Recommendation
from taut.report._plots.figure import new_figure

__all__ = ["plot_noise"]


def plot_noise(recommendation: Recommendation, path: Path | str) -> None:
    """Draw the predicted error of every mechanism, the best on top, into a file.

    Args:
        recommendation: recommendation from :func:`taut.noise.recommend`.
        path: where to save; the suffix decides the format, such as ``.png`` or ``.svg``.

    Raises:
        ImportError: if matplotlib is not installed.
    """
    options = recommendation.options[::-1]
    figure = new_figure(height=1.2 + 0.4 * len(options))
    axes = figure.subplots()
    bars = axes.barh(
        [option.name for option in options],
        [option.error for option in options],
        color=["white" if option.is_pure else "0.75" for option in options],
        hatch=["//" if option.is_pure else "" for option in options],
        edgecolor="black",
    )
    best = recommendation.best.error
    axes.bar_label(bars, [f" {option.error / best:.3g}x" for option in options])
    axes.set(
        xscale="log",
        xlabel=f"{recommendation.objective} error; hatched: pure, grey: delta = "
        f"{recommendation.delta:g}",
        title=f"Noise for {recommendation.sensitivity.dimension} coordinates at epsilon = "
        f"{recommendation.epsilon:g}",
    )
    axes.margins(x=0.15)
    figure.savefig(path)
