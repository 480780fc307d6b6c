"""Amplification, Renyi curves and filters: values, CPU time, and what samplers cost.

    make bench BENCH=amplification
    make bench BENCH=amplification ARGS='--quick'

CPU time of one thread in one process.
"""

import argparse
import json
import os
from pathlib import Path

from measuring import SINGLE_THREAD, cpu_time

os.environ.update(SINGLE_THREAD)  # before NumPy and torch start their threads

import numpy as np
import renyi_race
import tables

import taut
from taut.accounting._adjacency import Half

# Contour integrals in 30 digits, confirmed by a rigorous bracket.
TRUTHS = {1_000: 1.8282367, 10_000: 6.1877124, 100_000: 25.573107}
RECORDS = 10**6
ROUNDS = 5


def main() -> None:
    """Print the tables and, if asked, write the rows."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--quick", action="store_true", help="Opacus on every tenth sigma only")
    parser.add_argument("--json", type=Path, help="also write the rows to this file")
    options = parser.parse_args()
    sigmas = renyi_race.SIGMAS[::10] if options.quick else renyi_race.SIGMAS
    found = [sampled_gaussian(), samplers(), speed(), renyi_race.race(sigmas)]
    for table in found:
        print(table, end="\n\n")
    if options.json:
        rows = {table.key: table.rows for table in found}
        options.json.write_text(json.dumps(rows, indent=1))


def sampled_gaussian() -> tables.Table:
    """Return certified brackets, and what Renyi divergences alone prove, beside the truth."""
    rows = []
    for steps, truth in TRUTHS.items():
        run = steps * taut.gaussian(1.0).poisson(0.01)
        (lower, upper), seconds = cpu_time(lambda run=run: run.epsilon_bounds(1e-5))
        renyi = (steps * taut.from_rdp(lambda order: order / 2).poisson(0.01)).epsilon(1e-5)
        rows.append(
            {
                "steps": f"{steps:,}",
                "truth": truth,
                "lower": lower,
                "upper": upper,
                "inside": lower <= truth <= upper,
                "renyi": renyi,
                "cpu_s": seconds,
            }
        )
    columns = {
        "steps": ("T", str),
        "truth": ("truth", tables.epsilon),
        "lower": ("lower", tables.epsilon),
        "upper": ("upper", tables.epsilon),
        "inside": ("inside", str),
        "renyi": ("by Renyi divergences only", tables.epsilon),
        "cpu_s": ("CPU s", tables.seconds),
    }
    note = "rate = 0.01, sigma = 1, delta = 1e-5."
    return tables.Table("sampled_gaussian", "Poisson-sampled Gaussian", columns, rows, note)


def samplers() -> tables.Table:
    """Return the epsilon of one run under every sampler."""
    comparison = taut.compare_samplers(
        1.0, batch_size=100, examples=10_000, steps=1_000, delta=1e-5
    )
    rows = [
        {"sampler": run.sampler, "adjacency": str(run.adjacency), "epsilon": run.epsilon.upper}
        for run in comparison.runs
    ]
    columns = {
        "sampler": ("sampler", str),
        "adjacency": ("adjacency", str),
        "epsilon": ("epsilon", tables.epsilon),
    }
    note = "sigma = 1, batches of 100 out of 10,000 records, 1,000 steps, delta = 1e-5."
    return tables.Table("samplers", "One run, drawn in different ways", columns, rows, note)


def speed() -> tables.Table:
    """Return CPU times of single calls."""
    rows = [
        {"call": call, "cpu_ms": 1e3 * least(work), "bar_ms": bar}
        for call, work, bar in [
            ("twice_sampled: orders 2 to 256 of d0 = 10^10, new parameters", twice, 50.0),
            (f"IndividualFilter: one charge over {RECORDS:,} records", charge(), 10.0),
            ("(gaussian + laplace).poisson: epsilon of 1,000 steps", joint, None),
            ("mixture of 129 shifts: epsilon of 100 copies", mixture, None),
        ]
    ]
    columns = {
        "call": ("call", str),
        "cpu_ms": ("CPU ms", lambda value: f"{value:.2f}"),
        "bar_ms": ("wanted below", lambda value: f"{value:g}"),
    }
    return tables.Table("speed", "Single calls", columns, rows)


def twice() -> None:
    sigma = 1.0 + 1e-9 * np.random.default_rng().random()  # nothing is answered from a cache
    step = taut.accounting.twice_sampled(0.02, 1e-3, sigma, clip_inf=1e-5, dimension=10**12)
    step.terms[0][0].renyi(Half.REMOVE, np.arange(2.0, 257.0))


def charge():
    people = taut.accounting.IndividualFilter(1e6, size=RECORDS)
    costs = np.random.default_rng(0).random(RECORDS)
    return lambda: people.charge(costs)


def joint() -> None:
    scale = 3.0 + 1e-9 * np.random.default_rng().random()
    (1_000 * (taut.gaussian(2.0) + taut.laplace(scale)).poisson(0.01)).epsilon(1e-5)


def mixture() -> None:
    (100 * taut.accounting.group_poisson(10.0, 0.01, 128)).epsilon(1e-5)


def least(work) -> float:
    """Return the least CPU time of a few rounds, after a warm-up."""
    work()
    return min(cpu_time(work)[1] for _ in range(ROUNDS))


if __name__ == "__main__":
    main()
