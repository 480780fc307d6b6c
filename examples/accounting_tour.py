"""A tour of privacy accounting: what a training run costs, and how much noise a budget needs.

The plot lands in ``build/delta_of_epsilon.png``.
"""

from __future__ import annotations

import argparse
import math
import sys
from pathlib import Path

import taut

SIGMA, STEPS, DELTA = 1.0, 10_000, 1e-5
BATCH, RECORDS = 600, 60_000
RATE = BATCH / RECORDS


def poisson_run(sigma: float) -> taut.PrivacyLoss:
    """Return DP-SGD whose batches take each record with probability `RATE`."""
    return STEPS * taut.gaussian(sigma).poisson(rate=RATE)


def fixed_size_run(sigma: float) -> taut.PrivacyLoss:
    """Return DP-SGD whose batches hold exactly `BATCH` records.

    Two batches of one size differ by an exchanged record, so the sum of clipped gradients moves by
    up to twice the clipping norm.
    """
    step = taut.gaussian(sigma, sensitivity=2.0, adjacency="replace")
    return STEPS * step.fixed_size(batch_size=BATCH, population=RECORDS)


def print_epsilons() -> None:
    print(f"DP-SGD: sigma {SIGMA:g}, {STEPS} steps, delta {DELTA:g}, add or remove one record")
    samplers = {
        f"Poisson batches, rate {RATE:g}": poisson_run(SIGMA),
        f"fixed-size batches, {BATCH} of {RECORDS}": fixed_size_run(SIGMA),
    }
    for sampler, loss in samplers.items():
        lower, upper = loss.epsilon_bounds(DELTA)
        print(f"  {sampler:<36}  {down(lower):.4f} <= epsilon <= {up(upper):.4f}")


def print_calibration(epsilon: float) -> None:
    found = taut.calibrate(poisson_run, epsilon=epsilon, delta=DELTA)
    print(f"\nThe least noise for epsilon {epsilon:g} with Poisson batches")
    print(f"  sigma {up(found.value):.4f}, certified epsilon {up(found.epsilon.upper):.4f}")


def save_plot(path: Path) -> None:
    """Draw delta(epsilon) of the Poisson run at three noise levels, as bands between the bounds."""
    from matplotlib.figure import Figure

    figure = Figure(figsize=(7, 4.5), layout="constrained")
    axes = figure.subplots()
    for sigma in (1.0, 1.5, 2.0):
        epsilons, bounds = delta_curve(poisson_run(sigma), smallest=1e-10)
        lower, upper = zip(*bounds, strict=True)
        (line,) = axes.semilogy(epsilons, upper, label=f"sigma {sigma:g}")
        axes.fill_between(epsilons, lower, upper, color=line.get_color(), alpha=0.3)
    axes.axhline(DELTA, color="grey", linestyle=":", label=f"delta {DELTA:g}")
    axes.set(
        xlabel="epsilon",
        ylabel="delta",
        ylim=(1e-10, 1.5),
        title=f"{STEPS} DP-SGD steps, Poisson rate {RATE:g}: certified delta(epsilon)",
    )
    axes.legend()
    path.parent.mkdir(parents=True, exist_ok=True)
    figure.savefig(path, dpi=150)


def delta_curve(loss: taut.PrivacyLoss, smallest: float) -> tuple[list[float], list[taut.Bounds]]:
    """Return epsilons from 0 on and their bounds on delta, until delta falls below `smallest`."""
    epsilons, bounds = [0.0], [loss.delta_bounds(0.0)]
    while bounds[-1].upper > smallest:
        epsilons.append(epsilons[-1] + 0.25)
        bounds.append(loss.delta_bounds(epsilons[-1]))
    return epsilons, bounds


def up(value: float) -> float:
    """Round to four decimals on the safe side of an upper bound."""
    return math.ceil(value * 1e4) / 1e4


def down(value: float) -> float:
    """Round to four decimals on the safe side of a lower bound."""
    return math.floor(value * 1e4) / 1e4


def main(arguments: list[str]) -> None:
    parser = argparse.ArgumentParser(description="A tour of privacy accounting.")
    parser.add_argument("--plot", type=Path, default=Path("build/delta_of_epsilon.png"))
    plot = parser.parse_args(arguments).plot
    print_epsilons()
    print_calibration(epsilon=3.0)
    save_plot(plot)
    print(f"\nPlot of delta(epsilon): {plot}")


if __name__ == "__main__":
    main(sys.argv[1:])
