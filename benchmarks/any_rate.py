"""Tiny rates, tiny delta, random allocation and long schedules: brackets and CPU time.

    make bench BENCH=any_rate
    make bench BENCH=any_rate ARGS='--json rows.json'
    make bench BENCH=any_rate ARGS='--peer 144'

CPU time of one thread in one process. With ``--peer`` so many of the settings are also asked of
dp-accounting at its finest usual grid, which takes up to half a minute each.
"""

import argparse
import itertools
import json
import os
from pathlib import Path

from measuring import SINGLE_THREAD, cpu_time

os.environ.update(SINGLE_THREAD)  # before NumPy starts its threads

import numpy as np
import tables

import taut

RATES = (1e-6, 1e-5, 1e-4, 1e-3)
STEPS = (100, 1_000, 10_000, 100_000)
SIGMAS = (0.5, 0.6, 1.0)
DELTAS = (1e-5, 1e-8, 1e-10)
# sigma, steps of an epoch, epochs, delta
ALLOCATIONS = (
    (2.0, 10, 10, 1e-6),
    (1.0, 100, 10, 1e-5),
    (0.5, 100, 10, 1e-5),
    (0.8, 1_000, 5, 1e-6),
    (3.0, 50, 20, 1e-7),
    (1.0, 10_000, 10, 1e-10),
)
DISTINCT = 1_000
PEER_GRID = 1e-5  # of dp-accounting; finer ones take minutes
RELATIVE, ABSOLUTE = 1e-3, 1e-6  # gaps that are as good as none: either is enough


def main() -> None:
    """Print the tables and, if asked, write the rows."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--json", type=Path, help="also write the rows to this file")
    parser.add_argument("--peer", type=int, default=0, help="settings to ask dp-accounting too")
    options = parser.parse_args()
    found = [rates(), tiny(), allocation(), schedule()]
    if options.peer:
        found.append(beside_peer(options.peer))
    for table in found:
        print(table, end="\n\n")
    if options.json:
        rows = {table.key: table.rows for table in found}
        options.json.write_text(json.dumps(rows, indent=1))


def asked(loss: taut.PrivacyLoss, delta: float) -> tuple[taut.Bounds, float]:
    """Return the bracket of a loss and the CPU seconds that it took."""
    return cpu_time(lambda: loss.epsilon_bounds(delta))


def summary(case: str, answers: list[tuple[taut.Bounds, float]], absolute: float) -> tables.Row:
    """Return the widest bracket and the times of a group of questions."""
    gaps = [b.gap / b.upper if b.gap > absolute else 0.0 for b, _ in answers]
    times = [seconds for _, seconds in answers]
    return {
        "case": case,
        "count": len(answers),
        "gap": max(gaps),
        "median_s": float(np.median(times)),
        "most_s": max(times),
    }


SUMMARY = {
    "case": ("case", str),
    "count": ("questions", str),
    "gap": ("widest relative gap", tables.gap),
    "median_s": ("median CPU s", tables.seconds),
    "most_s": ("most CPU s", tables.seconds),
}


def rates() -> tables.Table:
    """Return sampled Gaussians at the rates at which language models are tuned."""
    rows = []
    for rate in RATES:
        settings = itertools.product(STEPS, SIGMAS, DELTAS)
        answers = [asked(n * taut.gaussian(s).poisson(rate), delta) for n, s, delta in settings]
        rows.append(summary(f"{rate:g}", answers, ABSOLUTE))
    note = f"Gaps of less than {ABSOLUTE:g} count as none."
    return tables.Table("rates", "Sampled Gaussians by rate", SUMMARY, rows, note)


def tiny() -> tables.Table:
    """Return rates down to 1e-9 at delta = 1e-30."""
    rows = []
    for rate in (1e-9, 1e-8, 1e-7):
        settings = itertools.product((1, *STEPS, 10**6), (0.5, 1.0))
        answers = [asked(n * taut.gaussian(s).poisson(rate), 1e-30) for n, s in settings]
        rows.append(summary(f"{rate:g}", answers, 0.0))
    return tables.Table("tiny", "Rates at delta = 1e-30", SUMMARY, rows)


def allocation() -> tables.Table:
    """Return random allocation beside Poisson sampling at equal compute."""
    rows = []
    for sigma, steps, epochs, delta in ALLOCATIONS:
        (lower, upper), seconds = asked(epochs * taut.gaussian(sigma).allocated(steps), delta)
        poisson = (epochs * steps * taut.gaussian(sigma).poisson(1 / steps)).epsilon_bounds(delta)
        rows.append(
            {
                "case": f"sigma {sigma:g}, {epochs} x (1 of {steps:,}), delta {delta:g}",
                "lower": lower,
                "upper": upper,
                "gap": (upper - lower) / upper,
                "poisson": poisson.lower,
                "saved": f"{1 - upper / poisson.lower:.1%}",
                "cpu_s": seconds,
            }
        )
    columns = {
        "case": ("case", str),
        "lower": ("lower", tables.epsilon),
        "upper": ("upper", tables.epsilon),
        "gap": ("gap", tables.gap),
        "poisson": ("Poisson, lower", tables.epsilon),
        "saved": ("saved at least", str),
        "cpu_s": ("CPU s", tables.seconds),
    }
    return tables.Table("allocation", "Random allocation", columns, rows)


def schedule() -> tables.Table:
    """Return a sum of steps of which no two are alike."""
    rng = np.random.default_rng(0)
    steps = zip(rng.uniform(0.8, 2.0, DISTINCT), rng.uniform(5e-4, 5e-3, DISTINCT), strict=True)
    loss = sum(taut.gaussian(float(sigma)).poisson(float(rate)) for sigma, rate in steps)
    answers = [asked(loss, 1e-6)]
    rows = [summary(f"{DISTINCT:,} distinct sampled Gaussians", answers, 0.0)]
    return tables.Table("schedule", "Schedules", SUMMARY, rows)


def beside_peer(count: int) -> tables.Table:
    """Return ``count`` of the settings beside the upper bound of dp-accounting, in one process."""
    from peers import dp_pld, sampled_gaussian_event

    settings = list(itertools.product(RATES, STEPS, SIGMAS, DELTAS))
    order = np.random.default_rng(0).permutation(len(settings))
    rows = []
    for rate, steps, sigma, delta in (settings[i] for i in np.sort(order[:count])):
        (lower, upper), seconds = asked(steps * taut.gaussian(sigma).poisson(rate), delta)
        event = sampled_gaussian_event(sigma, rate, steps)
        peer, peer_seconds = cpu_time(lambda e=event, d=delta: dp_pld(e, d, PEER_GRID))
        room = max(RELATIVE * upper, ABSOLUTE)
        verdict = "above" if upper > peer.upper + room else "not above"
        if peer.upper < lower:
            verdict = "peer below our lower bound"
        rows.append(
            {
                "case": f"rate {rate:g}, {steps:,} steps, sigma {sigma:g}, delta {delta:g}",
                "lower": lower,
                "upper": upper,
                "peer": peer.upper,
                "verdict": verdict,
                "cpu_s": seconds,
                "peer_s": peer_seconds,
            }
        )
    columns = {
        "case": ("case", str),
        "lower": ("lower", tables.epsilon),
        "upper": ("upper", tables.epsilon),
        "peer": ("dp-accounting", tables.epsilon),
        "verdict": ("upper is", str),
        "cpu_s": ("CPU s", tables.seconds),
        "peer_s": ("its CPU s", tables.seconds),
    }
    above = sum(row["verdict"] == "above" for row in rows)
    below = sum(row["verdict"].startswith("peer") for row in rows)
    note = (
        f"Grid {PEER_GRID:g}. In {below} of {len(rows)} settings its upper bound is below our "
        f"certified lower one; in {above} others ours is above it, by more than {RELATIVE:g} "
        f"relative and {ABSOLUTE:g} absolute."
    )
    return tables.Table("peer", "Beside dp-accounting", columns, rows, note)


if __name__ == "__main__":
    main()
