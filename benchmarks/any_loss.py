"""Sums of releases of any kind, drawn at random: width and CPU time of every answer.

    make bench BENCH=any_loss
    make bench BENCH=any_loss ARGS='--count 200 --first 0 --json rows.json'

One to four releases, alone or several on one sample, by every sampler, with counts to 1e6, rates
from 1e-6 to 1 and delta from 1e-30 to 0.3. CPU time of one thread in one process, caches cold.
"""

import argparse
import json
import math
import os
from collections.abc import Callable
from pathlib import Path

from measuring import SINGLE_THREAD, cpu_time, peak_memory_code

os.environ.update(SINGLE_THREAD)  # before NumPy starts its threads

import numpy as np
import tables

import taut
from taut import accounting
from taut.errors import UnsoundConfiguration

COUNT = 2_000
SEED = 17
SLOWEST = 10  # questions that are shown
RELATIONS = ("add_remove", "replace", "zero_out")

Random = np.random.Generator
Maker = Callable[[Random, str], taut.PrivacyLoss]


def powers(rng: Random, low: float, high: float) -> float:
    """Return a number that is spread evenly on a logarithmic scale."""
    return float(np.exp(rng.uniform(math.log(low), math.log(high))))


def count(rng: Random) -> int:
    """Return a number of copies: a few, some, or up to a million."""
    return int(powers(rng, 1, [4, 1e3, 1e6][rng.integers(3)]))


def masses(rng: Random) -> list[float]:
    """Return a law on three outcomes, some of them rare or impossible."""
    weights = [powers(rng, 1e-12, 1) if rng.random() < 0.8 else 0.0 for _ in range(3)]
    total = sum(weights)
    return [w / total for w in weights] if total else [1.0, 0.0, 0.0]


def given_curve(rng: Random, relation: str) -> taut.PrivacyLoss:
    """Return a loss that is known by its Renyi divergences."""
    rho = powers(rng, 1e-5, 3)
    return accounting.from_rdp(
        {a: rho * a for a in (1.5, 2.0, 4.0, 16.0, 64.0)}, adjacency=relation
    )


def given_profile(rng: Random, relation: str) -> taut.PrivacyLoss:
    """Return a loss that is known by two points of its profile."""
    points = {0.0: powers(rng, 1e-3, 0.9), 1.0: powers(rng, 1e-9, 1e-3)}
    return accounting.from_profile(points, adjacency=relation)


def mixture(rng: Random, relation: str) -> taut.PrivacyLoss:
    """Return a sum to which a record adds nothing, something, or twice as much."""
    q = powers(rng, 1e-3, 0.999)
    return accounting.mixture_of_gaussians(
        [1 - q, 0.75 * q, 0.25 * q], [0.0, 1.0, 2.0], powers(rng, 0.2, 20), adjacency=relation
    )


def coordinates(rng: Random, relation: str) -> taut.PrivacyLoss:
    """Return sampled coordinates, of all records or of some."""
    shape = {"clip_inf": powers(rng, 0.05, 1.0), "dimension": int(powers(rng, 10, 1e5))}
    rate, sigma = powers(rng, 1e-2, 1), powers(rng, 0.3, 10)
    if rng.random() < 0.5:
        return accounting.coordinatewise(rate, sigma, **shape, adjacency=relation)
    return accounting.twice_sampled(powers(rng, 1e-4, 1), rate, sigma, **shape, adjacency=relation)


def factory(name: str, *draws: Callable[[Random], object]) -> Maker:
    """Return what makes a release of a factory with drawn arguments."""
    return lambda rng, relation: getattr(accounting, name)(
        *(draw(rng) for draw in draws), adjacency=relation
    )


def between(low: float, high: float) -> Callable[[Random], float]:
    """Return what draws a number on a logarithmic scale."""
    return lambda rng: powers(rng, low, high)


PLAIN: dict[str, Maker] = {
    "gaussian": factory("gaussian", between(0.05, 100)),
    "laplace": factory("laplace", between(0.05, 100)),
    "discrete_gaussian": factory(
        "discrete_gaussian", between(0.2, 30), lambda rng: int(rng.choice([1, 2, 5]))
    ),
    "discrete_laplace": factory(
        "discrete_laplace", between(0.2, 30), lambda rng: int(rng.choice([1, 2, 5]))
    ),
    "pure": factory("pure", between(1e-6, 50)),
    "approximate": factory("approximate", between(1e-4, 10), between(1e-20, 0.3)),
    "exponential": factory("exponential", between(1e-4, 30)),
    "permute_and_flip": factory("permute_and_flip", between(1e-4, 30)),
    "randomized_response": factory(
        "randomized_response", lambda rng: float(rng.choice([0.5, 0.7, 0.999]))
    ),
    "stability_release": factory("stability_release", between(1e-3, 5), between(1e-12, 0.5)),
    "finite": factory("finite", masses, masses),
    "from_profile": given_profile,
    "from_rdp": given_curve,
    "noisy_vote": factory("noisy_vote", between(0.3, 100)),
    "noisy_screening": factory("noisy_screening", lambda _: 40, lambda _: 24.0, between(0.3, 100)),
}
ONE_SIDED: dict[str, Maker] = {
    "variance_pair": factory("variance_pair", between(0.1, 10), between(0.1, 10)),
    "mixture_of_gaussians": mixture,
    "group_poisson": factory(
        "group_poisson", between(0.3, 20), between(1e-6, 1), lambda rng: int(rng.integers(1, 9))
    ),
    "mixed_gaussian": factory("mixed_gaussian", between(0.5, 10), between(0.1, 10)),
    "mixed_laplace": factory("mixed_laplace", between(0.5, 10), between(0.1, 10)),
    "coordinates": coordinates,
}


def plain(rng: Random, relation: str) -> taut.PrivacyLoss:
    """Return one release on all records."""
    makers = PLAIN if relation == "replace" else PLAIN | ONE_SIDED
    return makers[str(rng.choice(sorted(makers)))](rng, relation)


def joint(rng: Random, relation: str) -> taut.PrivacyLoss:
    """Return one release, or several that will look at one sample."""
    loss = plain(rng, relation)
    return count(rng) * loss + plain(rng, relation) if rng.random() < 0.5 else loss


def sampled(rng: Random, relation: str) -> taut.PrivacyLoss:
    """Return one release, or several on one sample, by any sampler."""
    rate, population = powers(rng, 1e-6, 1), int(powers(rng, 2, 1e6))
    size = min(max(int(rate * population), 1), population - 1)
    how = str(rng.choice(["poisson", "poisson", "fixed_size", "allocated", "truncated"]))
    if how == "fixed_size":
        return joint(rng, "replace").fixed_size(size, population, adjacency=relation)
    if relation == "replace":
        return joint(rng, relation).poisson(rate, removal=joint(rng, "add_remove"))
    if how == "allocated":
        return joint(rng, relation).allocated(max(int(1 / rate), 1))
    if how == "truncated":
        sigma = powers(rng, 0.1, 30)
        wide = taut.gaussian(sigma, 2.0, adjacency="replace")
        cap = max(int(size * powers(rng, 0.8, 2)), 1)
        step = taut.gaussian(sigma, adjacency=relation)
        return step.truncated_poisson(rate, cap, population, exchange=wide)
    return joint(rng, relation).poisson(rate)


def question(index: int) -> tuple[taut.PrivacyLoss, float]:
    """Return the sum with a number, always the same, and a delta."""
    rng = np.random.default_rng([SEED, index])
    relation = RELATIONS[rng.choice(3, p=[0.6, 0.2, 0.2])]
    total = accounting.zero(adjacency=relation)
    wanted = rng.integers(1, 5)
    while wanted:
        try:
            total = total + count(rng) * (plain, sampled)[rng.integers(2)](rng, relation)
        except UnsoundConfiguration:  # no theorem, no loss
            continue
        wanted -= 1
    return total, powers(rng, 1e-30, 0.3)


def ask(index: int) -> tables.Row:
    """Return the answer to one question, and its CPU seconds."""
    loss, delta = question(index)
    (lower, upper), seconds = cpu_time(lambda: loss.epsilon_bounds(delta))
    if not 0 <= lower <= upper:
        raise AssertionError(f"question {index}: [{lower}, {upper}] is no bracket")
    gap = (upper - lower) / upper if 0 < upper < math.inf else float(lower < upper)
    return {
        "question": index,
        "loss": str(loss),
        "delta": delta,
        "lower": lower,
        "upper": upper,
        "gap": gap,
        "cpu_s": seconds,
    }


def summary(rows: list[tables.Row]) -> tables.Table:
    """Return how the times and the widths are distributed."""
    times, gaps = (np.array([row[name] for row in rows]) for name in ("cpu_s", "gap"))
    memory: dict[str, Callable[[], float]] = {}
    exec(peak_memory_code(), memory)
    row = {
        "count": len(rows),
        "median_s": float(np.median(times)),
        "most_s_99": float(np.quantile(times, 0.99)),
        "most_s": float(times.max()),
        "narrow": f"{np.mean(gaps <= 1e-3):.1%}",
        "half": f"{np.mean(gaps <= 0.5):.1%}",
        "peak_mb": memory["peak"](),
    }
    columns = {
        "count": ("questions", str),
        "median_s": ("median CPU s", tables.seconds),
        "most_s_99": ("99 % below", tables.seconds),
        "most_s": ("most CPU s", tables.seconds),
        "narrow": ("gap up to 1e-3", str),
        "half": ("gap up to 1/2", str),
        "peak_mb": ("peak MB", tables.megabytes),
    }
    return tables.Table("any_loss", "Random sums", columns, [row])


def slowest(rows: list[tables.Row]) -> tables.Table:
    """Return the questions that took longest."""
    columns = {
        "question": ("question", str),
        "delta": ("delta", tables.gap),
        "lower": ("lower", tables.epsilon),
        "upper": ("upper", tables.epsilon),
        "cpu_s": ("CPU s", tables.seconds),
        "loss": ("loss", str),
    }
    chosen = sorted(rows, key=lambda row: -row["cpu_s"])[:SLOWEST]
    return tables.Table("slowest", "The slowest of them", columns, chosen)


def main() -> None:
    """Print the tables and, if asked, write the rows."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--first", type=int, default=0, help="number of the first question")
    parser.add_argument("--count", type=int, default=COUNT, help="how many questions")
    parser.add_argument("--json", type=Path, help="also write the rows to this file")
    options = parser.parse_args()
    rows = [ask(index) for index in range(options.first, options.first + options.count)]
    for table in (summary(rows), slowest(rows)):
        print(table, end="\n\n")
    if options.json:
        options.json.write_text(json.dumps(rows, indent=1))


if __name__ == "__main__":
    main()
