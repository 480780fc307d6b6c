"""The pictures of a privacy report, told apart by lines and marks so that grey paper will do."""

from __future__ import annotations

from typing import TYPE_CHECKING, Literal

import numpy as np

from taut._base.rounding import round_down, round_up
from taut.accounting import Adjacency
from taut.audit import RunAttack
from taut.report._plots.figure import inline_svg
from taut.report._privacy.findings import Findings

if TYPE_CHECKING:
    from matplotlib.axes import Axes

__all__ = ["both_sides_plot", "course_plot", "profile_plot", "tradeoff_plot"]

_INK = "black"


def tradeoff_plot(findings: Findings, alt: str) -> str:
    """Return what an attacker finds against false alarms."""
    rates = np.unique(np.concatenate([np.geomspace(1e-4, 1e-2, 20), np.linspace(0.0, 1.0, 101)]))
    alarms, found = 100 * rates, 100 * findings.found_by_profile(rates)

    def draw(axes: Axes) -> None:
        axes.fill_between(alarms, found, 100, color=_INK, alpha=0.08, linewidth=0)
        axes.text(4, 93, "impossible", fontsize="small")
        axes.plot(alarms, found, color=_INK, linewidth=1.8, label="best attacker, at most")
        axes.plot([0, 100], [0, 100], color=_INK, linestyle=":", label="guessing")
        at = 100 * findings.found_at(0.05)
        axes.plot([5], [at], color=_INK, marker="o", linestyle="", label="5 % false alarms")
        axes.set(
            xlabel="false alarms (%)",
            ylabel="recognised (%)"
            if findings.adjacency is Adjacency.REPLACE
            else "members found (%)",
            xlim=(0, 100),
            ylim=(0, 100),
        )
        _finish(axes, "lower right")

    return inline_svg("tradeoff", "What an attacker can find", alt, draw)


def profile_plot(findings: Findings, alt: str) -> str:
    """Return delta against epsilon, both bounds."""
    shown = [p for p in findings.profile if p.delta.upper > 0]

    def draw(axes: Axes) -> None:
        from matplotlib.ticker import FuncFormatter, NullLocator

        at = [point.epsilon for point in shown]
        axes.plot(at, [p.delta.upper for p in shown], color=_INK, linewidth=1.8, label="at most")
        low = [p for p in shown if p.delta.lower > 0]
        axes.plot(
            [p.epsilon for p in low],
            [p.delta.lower for p in low],
            color=_INK,
            linestyle="",
            marker="+",
            markersize=5,
            label="at least",
        )
        if findings.delta > 0:
            axes.plot(
                [findings.epsilon.upper],
                [findings.delta],
                color=_INK,
                marker="o",
                linestyle="",
                label="the promise",
            )
        axes.set(xlabel="ε", ylabel="δ", yscale="log", xlim=(0, None))
        axes.yaxis.set_major_formatter(FuncFormatter(lambda value, _: f"{value:.0e}"))
        axes.yaxis.set_minor_locator(NullLocator())
        _finish(axes, "upper right")

    return inline_svg("profile", "δ against ε", alt, draw)


def course_plot(findings: Findings, planned: float | None, alt: str) -> str:
    """Return epsilon against steps."""

    def draw(axes: Axes) -> None:
        axes.plot(
            [point.steps for point in findings.course],
            [point.epsilon for point in findings.course],
            color=_INK,
            linewidth=1.8,
            marker=".",
            label="spent, at most",
        )
        if planned is not None:
            axes.axhline(planned, color=_INK, linestyle="--", linewidth=1, label="planned")
        axes.set(xlabel="steps", ylabel="ε", xlim=(0, None))
        axes.set_ylim(bottom=0)
        _finish(axes, "lower right")

    return inline_svg("course", "ε over the run", alt, draw)


def both_sides_plot(attack: RunAttack, alt: str) -> str:
    """Return the interval between what an attack reaches and what is certified."""

    def draw(axes: Axes) -> None:
        low, high = attack.epsilon_lower, attack.epsilon_upper
        axes.barh([0.0], [max(high - low, 0.0)], left=low, height=0.3, color=_INK, alpha=0.12)
        for value, mark, label in (
            (low, ">", f"attack ≥ {round_down(low, 3)}"),
            (high, "<", f"certified ≤ {round_up(high, 3)}"),
        ):
            axes.plot([value], [0.0], color=_INK, marker=mark, linestyle="", label=label)
            axes.axvline(value, color=_INK, linewidth=1)
        axes.set(xlabel="ε", xlim=(0, 1.15 * high), ylim=(-1, 1), yticks=[])
        _finish(axes, "upper right")

    return inline_svg("both-sides", "ε from both sides", alt, draw)


def _finish(axes: Axes, place: Literal["lower right", "upper right"]) -> None:
    axes.grid(alpha=0.2, color=_INK, linewidth=0.5)
    axes.spines[["top", "right"]].set_visible(False)
    axes.legend(fontsize="small", frameon=False, loc=place)
