"""A picture of the shape of public vectors."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING

import numpy as np

from taut.noise.geometry import GeometryReport
from taut.report._plots.figure import new_figure

if TYPE_CHECKING:
    from matplotlib.axes import Axes

__all__ = ["plot_geometry"]

_INK = "black"  # lines are told apart by dashes and marks, so that grey paper will do
_FILL = "0.8"


def plot_geometry(report: GeometryReport, path: Path | str) -> None:
    """Draw what coordinates and directions leave, how vectors spread, and the spectrum.

    Args:
        report: report from :func:`taut.noise.geometry.geometry_report`.
        path: where to save; the suffix decides the format, such as ``.png`` or ``.svg``.

    Raises:
        ImportError: if matplotlib is not installed.
    """
    figure = new_figure(10, 6.5)
    panels = figure.subplots(2, 3).ravel()
    for draw, axes in zip(
        (_coordinates, _directions, _projected, _entries, _variation, _spectrum),
        panels,
        strict=True,
    ):
        draw(axes, report)
        axes.grid(alpha=0.3)
    figure.suptitle(
        f"{report.provenance} vectors in {report.dimension} dimensions, clipped to {report.clip:g}"
    )
    figure.savefig(path)


def _coordinates(axes: Axes, report: GeometryReport) -> None:
    axes.plot(100 * report.shares, report.share_residuals, color=_INK, marker="o", markersize=3)
    axes.set(xlabel="largest coordinates kept (%)", ylabel="mean l2 length lost")
    axes.set_ylim(bottom=0)


def _directions(axes: Axes, report: GeometryReport) -> None:
    axes.plot(_ranks(report), report.direction_residuals, color=_INK)
    axes.set(xlabel="principal directions kept", ylabel="mean l2 length lost")
    axes.set_ylim(bottom=0)


def _projected(axes: Axes, report: GeometryReport) -> None:
    mean, spread = report.projected_means, report.projected_deviations
    axes.fill_between(_ranks(report), mean - spread, mean + spread, color=_FILL, label="± sd")
    axes.plot(_ranks(report), mean, color=_INK, linestyle="--", label="mean")
    axes.set(xlabel="principal directions kept", ylabel="l2 length kept")
    axes.legend(fontsize="small")


def _entries(axes: Axes, report: GeometryReport) -> None:
    axes.set(xlabel="largest entry of a vector", ylabel="vectors")
    _histogram(axes, report.entries)


def _variation(axes: Axes, report: GeometryReport) -> None:
    axes.set(xlabel="log10 of sd / |mean|", ylabel="coordinates")
    known = report.variation[np.isfinite(report.variation) & (report.variation > 0)]
    _histogram(axes, np.log10(known))


def _spectrum(axes: Axes, report: GeometryReport) -> None:
    seen = report.spectrum > 0
    axes.plot(_ranks(report)[seen], report.spectrum[seen], color=_INK, marker=".", linestyle=":")
    axes.set(xlabel="direction", ylabel="singular value", yscale="log")


def _histogram(axes: Axes, values: np.typing.NDArray[np.float64]) -> None:
    if values.size:
        axes.hist(values, bins=30, color=_FILL, edgecolor=_INK, linewidth=0.5)
    else:
        axes.text(0.5, 0.5, "not measured", ha="center", transform=axes.transAxes)


def _ranks(report: GeometryReport) -> np.typing.NDArray[np.int64]:
    return np.arange(1, report.spectrum.size + 1, dtype=np.int64)
