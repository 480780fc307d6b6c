"""A picture of what a promise costs in noise."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING

from taut.report._plots.figure import new_figure

if TYPE_CHECKING:
    from taut.runs import PlanSweep

__all__ = ["plot_plans"]


def plot_plans(sweep: PlanSweep, path: Path | str) -> None:
    """Draw noise multiplier and noise per step against the swept argument, into a file.

    Args:
        sweep: sweep from :func:`taut.runs.sweep_plan`; values without a plan are left out.
        path: where to save; the suffix decides the format, such as ``.png`` or ``.svg``.

    Raises:
        ValueError: if no value of the sweep has a plan.
        ImportError: if matplotlib is not installed.
    """
    plans = [(swept, swept.plan) for swept in sweep.plans if swept.plan is not None]
    if not plans:
        raise ValueError(f"nothing to draw: no {sweep.knob} of the sweep keeps its promise")
    figure = new_figure()
    above, below = figure.subplots(2, sharex=True)
    values = [swept.value for swept, _ in plans]
    above.plot(values, [plan.noise_multiplier for _, plan in plans], marker=".", color="black")
    below.plot(values, [swept.noise_per_step for swept, _ in plans], marker=".", label="per step")
    below.plot(
        values,
        [swept.noise_of_run for swept, _ in plans],
        marker=".",
        linestyle="--",
        label="of the mean over all steps",
    )
    _, plan = plans[0]
    promise = f"epsilon = {plan.epsilon:g}, delta = {plan.delta:g}, {plan.sampling.name} batches"
    title = "The same run" if sweep.knob in ("epsilon", "delta") else f"The same promise: {promise}"
    above.set(xscale="log", yscale="log", ylabel="noise multiplier", title=title)
    below.set(
        yscale="log",
        xlabel=sweep.knob.replace("_", " "),
        ylabel="noise / clipping norm",
    )
    below.legend(fontsize="small")
    for axes in (above, below):
        axes.grid(alpha=0.3, which="both")
    figure.savefig(path)
