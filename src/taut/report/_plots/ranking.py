"""A picture of correlated noise ranked at one promise."""

from __future__ import annotations

from pathlib import Path

from taut.matrix import RankedNoise, Ranking
from taut.report._plots.figure import new_figure

__all__ = ["plot_ranking"]

_MARKS = {
    "poisson": "x",
    "allocation": "o",
    "cyclic_poisson": "s",
    "balls_in_bins": "^",
    "fixed_order": "d",
}
_DASHES = ("solid", "dashed", "dotted", "dashdot")  # so that grey paper will do


def plot_ranking(ranking: Ranking, path: Path | str) -> None:
    """Draw the error of every row against its number of bands, into a file.

    Args:
        ranking: ranking from :func:`taut.matrix.optimize`.
        path: where to save; the suffix decides the format, such as ``.png`` or ``.svg``.

    Raises:
        ImportError: if matplotlib is not installed.
    """
    figure = new_figure()
    axes = figure.subplots()
    for number, leader in enumerate(ranking.leaders):
        kind = leader.noise, leader.sampling
        rows = [row for row in ranking if (row.noise, row.sampling) == kind]
        rows.sort(key=lambda row: row.bands)
        axes.plot(
            [row.bands for row in rows],
            [ranking.error_of(row) for row in rows],
            color="black",
            linestyle=_DASHES[number % len(_DASHES)],
            marker=_MARKS[leader.sampling],
            fillstyle="full" if leader.noise == "banded" else "none",
            label=_name(leader),
        )
    axes.set(
        xscale="log",
        yscale="log",
        xlabel="bands or buffers",
        ylabel=f"{ranking.goal.replace('_', ' ')} error, in clipping norms",
        title=f"Noise of running sums at epsilon = {ranking.epsilon:g}, delta = {ranking.delta:g}",
    )
    axes.grid(alpha=0.3)
    axes.legend(fontsize="small")
    figure.savefig(path)


def _name(row: RankedNoise) -> str:
    return f"{row.noise}, {row.sampling.replace('_', ' ')}"
