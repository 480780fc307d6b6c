"""A picture of what clipping does to a mean."""

from __future__ import annotations

from pathlib import Path

from taut.noise.geometry import ClipBiasReport
from taut.report._plots.figure import new_figure

__all__ = ["plot_clip_bias"]

_INK = "black"  # lines are told apart by dashes and marks, so that grey paper will do


def plot_clip_bias(report: ClipBiasReport, path: Path | str) -> None:
    """Draw direction, bias and the share of clipped vectors over the clipping norm.

    Args:
        report: report from :func:`taut.noise.geometry.explore_clip_bias`.
        path: where to save; the suffix decides the format, such as ``.png`` or ``.svg``.

    Raises:
        ImportError: if matplotlib is not installed.
    """
    figure = new_figure(8, 3.5)
    left, right = figure.subplots(1, 2)
    rows = sorted(report.rows, key=lambda row: row.norm)
    norms = [row.norm for row in rows]
    left.plot(norms, [row.cosine for row in rows], color=_INK, marker="o", label="cosine")
    shares = [row.share_clipped for row in rows]
    left.plot(norms, shares, color=_INK, linestyle="--", label="share clipped")
    left.set(xlabel="clipping norm", ylabel="of the clipped mean, of vectors", xscale="log")
    right.plot(norms, [row.relative_bias for row in rows], color=_INK, marker="o", label="bias")
    right.axvline(report.deviation, color=_INK, linestyle=":", label="sampling noise")
    right.set(xlabel="clipping norm", ylabel="bias over length of the mean", xscale="log")
    for axes in (left, right):
        axes.grid(alpha=0.3)
        axes.legend(fontsize="small")
    figure.suptitle(f"{report.count} {report.provenance} vectors")
    figure.savefig(path)
