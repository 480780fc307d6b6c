"""A picture of what samplers cost."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING

import numpy as np

from taut.accounting import SampledRun, SamplerComparison
from taut.report._plots.figure import new_figure

if TYPE_CHECKING:
    from matplotlib.axes import Axes

__all__ = ["plot_samplers"]

_POINTS = 9


def plot_samplers(comparison: SamplerComparison, path: Path | str) -> None:
    """Draw the certified epsilon of every sampler against the number of steps, into a file.

    Args:
        comparison: comparison from :func:`taut.compare_samplers`.
        path: where to save; the suffix decides the format, such as ``.png`` or ``.svg``.

    Raises:
        ImportError: if matplotlib is not installed.
    """
    figure = new_figure()
    axes = figure.subplots()
    for run in reversed(comparison.runs):
        _draw(axes, run)
    for run in comparison.others:
        _draw(axes, run, linestyle="dotted", note=" (another run)")
    axes.set(
        xscale="log",
        yscale="log",
        xlabel="steps",
        ylabel=f"epsilon (certified upper bound) at delta = {comparison.runs[0].delta:g}",
        title="The same run, drawn in different ways",
    )
    axes.grid(alpha=0.3)
    axes.legend(fontsize="small")
    figure.savefig(path)


def _draw(axes: Axes, run: SampledRun, linestyle: str = "solid", note: str = "") -> None:
    """Draw one sampler; a run too short to lose anything has no place on a logarithmic axis."""
    steps = np.unique(np.geomspace(1, run.steps, _POINTS).astype(int)).tolist()
    epsilons = [run.loss_of(n).epsilon(run.delta, tolerance=1e-2) for n in steps]
    shown = [(n, e) for n, e in zip(steps, epsilons, strict=True) if e > 0]
    if shown:
        label = f"{run.sampler}, {run.adjacency}{note}"
        axes.plot(*zip(*shown, strict=True), marker=".", linestyle=linestyle, label=label)
