"""Draws the pictures of the concepts page: python docs/images/draw.py."""

from __future__ import annotations

from pathlib import Path

import matplotlib as mpl
import numpy as np
from matplotlib.figure import Figure
from scipy.stats import norm

import taut
from taut.accounting import renyi
from taut.noise import Blocks, L2Ball, optimal_gaussian

HERE = Path(__file__).parent
STYLES = ("-", "--", ":", "-.")  # told apart on grey paper too


def figure(width: float = 7.0, height: float = 3.2) -> Figure:
    """Return an empty figure."""
    return Figure(figsize=(width, height), layout="constrained")


def save(drawn: Figure, name: str) -> None:
    """Write a picture that is the same whenever it is drawn."""
    with mpl.rc_context({"svg.hashsalt": "taut", "svg.fonttype": "none"}):
        drawn.savefig(HERE / f"{name}.svg", metadata={"Date": None})


def densities() -> None:
    """Outputs with and without a record, and the part that epsilon does not cover."""
    drawn = figure()
    axes = drawn.subplots()
    x = np.linspace(-4, 5, 500)
    absent, present = norm.pdf(x), norm.pdf(x, 1.0)
    axes.plot(x, absent, "k-", label="without the record")
    axes.plot(x, present, "k--", label="with the record")
    axes.plot(x, np.exp(1.0) * absent, color="0.5", linestyle=":", label="e^ε times that")
    uncovered = np.maximum(present - np.exp(1.0) * absent, 0)
    axes.fill_between(x, present - uncovered, present, color="0.8", label="δ: what sticks out")
    axes.set(xlabel="what is published", yticks=[], ylim=(0, 0.55))
    axes.legend(frameon=False, fontsize="small")
    save(drawn, "densities")


def tradeoff() -> None:
    """How many members an attacker finds for a number of false alarms."""
    drawn = figure(4.6, 4.2)
    axes = drawn.subplots()
    rates = np.concatenate([np.linspace(1e-3, 0.1, 12), np.linspace(0.12, 1, 23)])
    for target, style in zip((1.0, 3.0, 8.0), STYLES, strict=False):
        run = taut.calibrate(
            lambda sigma: 1_000 * taut.gaussian(sigma).poisson(0.01), epsilon=target, delta=1e-5
        ).loss
        found = [1 - run.tradeoff(fpr=float(rate)) for rate in rates]
        axes.plot(100 * rates, 100 * np.array(found), f"k{style}", label=f"ε = {target:g}")
    axes.plot([0, 100], [0, 100], color="0.6", linewidth=1, label="guessing")
    axes.set(xlabel="outsiders wrongly accused (%)", ylabel="members found, at most (%)")
    axes.legend(frameon=False, fontsize="small")
    save(drawn, "tradeoff")


def accountants() -> None:
    """The same run, accounted for in three ways."""
    drawn = figure(5.6, 3.6)
    axes = drawn.subplots()
    steps = np.unique(np.geomspace(100, 20_000, 12).astype(int))
    step = taut.gaussian(sigma=1.0).poisson(rate=0.01)
    ways = {
        "adding (ε, δ) pairs": [
            n * step.epsilon(delta=1e-5 / n) if n <= 2_000 else np.nan for n in steps.tolist()
        ],
        "Rényi divergences": [
            renyi.epsilon_from_rdp(lambda a, n=n: n * np.vectorize(step.rdp)(a), 1e-5).value
            for n in steps.tolist()
        ],
        "certified": [(n * step).epsilon(delta=1e-5) for n in steps.tolist()],
    }
    for (name, values), style in zip(ways.items(), (":", "--", "-"), strict=True):
        axes.plot(steps, values, f"k{style}", label=name)
    axes.set(xscale="log", yscale="log", xlabel="steps", ylabel="ε at δ = 1e-5")
    axes.legend(frameon=False, fontsize="small")
    save(drawn, "accountants")


def blocks() -> None:
    """Noise for a ball, and for two blocks of different length."""
    drawn = figure(7.0, 3.4)
    left, right = drawn.subplots(1, 2, sharex=True, sharey=True)
    angle = np.linspace(0, 2 * np.pi, 200)
    ball = L2Ball(2, float(np.hypot(1.0, 0.15)))
    parts = Blocks([1, 1], [1.0, 0.15])
    for axes, sensitivity, name in ((left, ball, "one bound"), (right, parts, "a bound per block")):
        scales = optimal_gaussian(sensitivity, multiplier=1.0).scales
        for deviations, style in ((1, "k-"), (2, "k:")):
            axes.plot(
                deviations * scales[0] * np.cos(angle),
                deviations * scales[1] * np.sin(angle),
                style,
            )
        axes.set(title=f"{name}: variance {float((scales**2).sum()):.2f}", aspect="equal")
    radius = float(np.hypot(1.0, 0.15))
    left.fill(
        radius * np.cos(angle), radius * np.sin(angle), color="0.8", label="what a record adds"
    )
    right.fill([-1, 1, 1, -1], [-0.15, -0.15, 0.15, 0.15], color="0.8")
    left.legend(frameon=False, fontsize="small", loc="upper left")
    save(drawn, "blocks")


if __name__ == "__main__":
    for draw in (densities, tradeoff, accountants, blocks):
        draw()
