"""Correlated noise under secret steps: how tight, how fast, against MMCC on dp-accounting.

    make bench BENCH=matrix                 # with dp-accounting: some two minutes
    .venv/bin/python benchmarks/matrix.py --quick    # without it

Every row names its bar: what was asked for before anything was measured. CPU seconds of one
process with one thread; the memory is that of the whole process.
"""

import argparse
import math
import resource
import time

import tables

from taut.matrix import (
    BallsInBins,
    PoissonRounds,
    TreeEncoder,
    Workload,
    amplified_loss,
    estimate_balls_in_bins,
    optimal_dense,
    square_root,
)

DELTA = 1e-6


def peak():
    """Return the megabytes that this process has held at most."""
    return resource.getrusage(resource.RUSAGE_SELF).ru_maxrss / 1024


def timed(call):
    """Return what ``call`` returns, and the CPU seconds it took."""
    start = time.process_time()
    found = call()
    return found, time.process_time() - start


def bounds(encoder, sampler, sigma):
    """Return certified bounds on epsilon."""
    return amplified_loss(encoder, sampler, sigma, delta=DELTA).epsilon_bounds(DELTA)


def scaled(encoder, scale):
    """Return the noise for a multiplier in units of the largest column."""
    return scale * float(encoder.column_norms().max())


def tightness() -> tables.Table:
    """Compare upper bounds with what was asked for, and with lower bounds."""
    cases = [
        ("tree, n = 1024, p = 1/n, c = 4", TreeEncoder(1024), 4.0, 0.73),
        ("tree, n = 1024, p = 1/n, c = 8", TreeEncoder(1024), 8.0, 0.26),
        ("square root, n = 128, p = 1/n, c = 10", square_root(Workload(128)), 10.0, 0.256),
    ]
    rows = []
    for name, encoder, scale, bar in cases:
        sampler = PoissonRounds(1 / encoder.steps)
        found, seconds = timed(lambda e=encoder, s=sampler, c=scale: bounds(e, s, scaled(e, c)))
        rows.append(_row(name, found, seconds, f"upper <= {bar}", found.upper <= bar))
    encoder, bins = square_root(Workload(1000), bands=8), BallsInBins(100)
    for sigma in (8.0, 16.0, 32.0):
        found, seconds = timed(lambda s=sigma: bounds(encoder, bins, s))
        within = found.upper <= 1.10 * found.lower and seconds < 30
        estimate = estimate_balls_in_bins(encoder, bins, sigma, delta=DELTA)
        row = _row(
            f"8 bands, n = 1000, 10 epochs, balls in bins, sigma = {sigma:g}",
            found,
            seconds,
            "upper <= 1.10 lower in 30 s",
            within,
        )
        rows.append(row | {"estimate": estimate.epsilon})
    return tables.Table("matrix_tightness", "Tightness", _COLUMNS, rows, "Estimates are no bounds.")


def speed() -> tables.Table:
    """Measure large encoders."""
    rows = []
    large = square_root(Workload(2048))
    found, seconds = timed(lambda: bounds(large, PoissonRounds(1 / 2048), scaled(large, 10.0)))
    good = seconds < 60 and peak() < 2048
    name = "square root, dense, n = 2048, both directions"
    rows.append(_row(name, found, seconds, "60 s, 2 GB", good) | {"peak_mb": peak()})
    tree = TreeEncoder(2**20)
    found, seconds = timed(lambda: bounds(tree, PoissonRounds(2.0**-20), 8 * math.sqrt(21)))
    rows.append(_row("tree, n = 2^20, c = 8", found, seconds, "30 s", seconds < 30))
    best, seconds = timed(lambda: optimal_dense(Workload(512)))
    certified = best.root_mean_square / best.lower_bound - 1
    rows.append(
        {
            "case": f"dense optimum, n = 512, within {certified:.0e} of its bound",
            "cpu_s": seconds,
            "bar": "10 s",
            "holds": seconds < 10,
        }
    )
    return tables.Table("matrix_speed", "Speed", _COLUMNS, rows)


def against_peer() -> tables.Table:
    """Race with MMCC on mixture losses of dp-accounting, in the order of release."""
    from matrix_peers import mmcc_on_dp_accounting

    encoder = square_root(Workload(64))
    sigma, sampler = scaled(encoder, 10.0), PoissonRounds(1 / 64)
    bounds(encoder, sampler, 1.1 * sigma)
    found, own = timed(lambda: bounds(encoder, sampler, sigma))
    theirs, seconds = timed(lambda: mmcc_on_dp_accounting(encoder.matrix(), 1 / 64, sigma, DELTA))
    rows = [
        _row("square root, n = 64, c = 10: taut", found, own, "", None),
        {
            "case": f"MMCC on dp-accounting, {seconds / own:.0f} times the time",
            "upper": theirs,
            "cpu_s": seconds,
            "bar": "100 times",
            "holds": seconds >= 100 * own,
        },
    ]
    return tables.Table("matrix_peer", "Against MMCC on dp-accounting", _COLUMNS, rows)


def _row(name, found, seconds, bar, holds):
    return {
        "case": name,
        "lower": found.lower,
        "upper": found.upper,
        "cpu_s": seconds,
        "bar": bar,
        "holds": holds,
    }


_COLUMNS = {
    "case": ("case", str),
    "lower": ("lower", "{:.4f}".format),
    "upper": ("upper", "{:.4f}".format),
    "estimate": ("estimate", "{:.4f}".format),
    "cpu_s": ("CPU s", tables.seconds),
    "peak_mb": ("peak MB", tables.megabytes),
    "bar": ("bar", str),
    "holds": ("holds", tables.yes_no),
}


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--quick", action="store_true", help="leave out dp-accounting")
    arguments = parser.parse_args()
    print(speed(), tightness(), sep="\n\n")
    if not arguments.quick:
        print(f"\n{against_peer()}")


if __name__ == "__main__":
    main()
