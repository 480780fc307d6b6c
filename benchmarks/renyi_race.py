"""Renyi curves of many sampled Gaussians: CPU time and agreement with Opacus.

Run with the interpreter of the benchmark environment: ``python benchmarks/renyi_race.py``.
"""

import argparse
import json
import os
from pathlib import Path

from measuring import SINGLE_THREAD, cpu_time

os.environ.update(SINGLE_THREAD)  # before NumPy and torch start their threads

import numpy as np
import tables
from opacus.accountants.analysis import rdp

from taut.accounting import renyi

LARGEST_ORDER = 256
RATES = np.geomspace(0.01, 0.5, 25)
SIGMAS = np.geomspace(0.5, 4.0, 40)
ROUNDS = 3

COLUMNS = {
    "tool": ("tool", str),
    "pairs": ("(rate, sigma) pairs", str),
    "cpu_s": ("CPU s", tables.seconds),
    "per_pair": ("CPU ms per pair", lambda value: f"{value:.3f}"),
    "ratio": ("x taut", tables.ratio),
    "difference": ("largest relative difference", tables.gap),
}


def main() -> None:
    """Print the table and, if asked, write the rows."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--quick", action="store_true", help="Opacus on every tenth sigma only")
    parser.add_argument("--json", type=Path, help="also write the rows to this file")
    arguments = parser.parse_args()
    table = race(sigmas=SIGMAS[::10] if arguments.quick else SIGMAS)
    print(table)
    if arguments.json:
        arguments.json.write_text(json.dumps(table.rows, indent=1))


def race(sigmas: np.ndarray) -> tables.Table:
    """Return who needs how long for all orders from 2 to 256, and how far apart the answers are."""
    ours, seconds = best_of(lambda: renyi.sampled_gaussian(RATES, SIGMAS[:, None], LARGEST_ORDER))
    theirs, their_seconds = cpu_time(lambda: opacus(sigmas))
    stride = SIGMAS.size // sigmas.size
    difference = float(np.abs(ours[::stride] / theirs - 1).max())
    rows = [
        row("taut", SIGMAS.size * RATES.size, seconds, None),
        row("Opacus RDP", sigmas.size * RATES.size, their_seconds, difference),
    ]
    for entry in rows:
        entry["ratio"] = entry["per_pair"] / rows[0]["per_pair"]
    note = "Rates from 0.01 to 0.5, noise multipliers from 0.5 to 4, all integer orders 2 to 256."
    return tables.Table("renyi", "Renyi curves of sampled Gaussians", COLUMNS, rows, note)


def opacus(sigmas: np.ndarray) -> np.ndarray:
    """Return divergences of shape (sigmas, rates, orders)."""
    orders = list(range(2, LARGEST_ORDER + 1))
    return np.array(
        [
            [
                rdp.compute_rdp(q=float(q), noise_multiplier=float(s), steps=1, orders=orders)
                for q in RATES
            ]
            for s in sigmas
        ]
    )


def best_of(call):
    """Return the answer and the least CPU time of a few rounds."""
    runs = [cpu_time(call) for _ in range(ROUNDS)]
    return runs[0][0], min(seconds for _, seconds in runs)


def row(tool: str, pairs: int, seconds: float, difference: float | None) -> tables.Row:
    return {
        "tool": tool,
        "pairs": pairs,
        "cpu_s": seconds,
        "per_pair": 1000 * seconds / pairs,
        "difference": difference,
    }


if __name__ == "__main__":
    main()
