"""Sound programs pass: random mechanisms, sets, records, orders and adaptive choices."""

import numpy as np
import pytest

from taut.audit import recorded_generator, replay
from taut.noise import (
    Blocks,
    Box,
    Histogram,
    L1Ball,
    L2Ball,
    LInfBall,
    LpIntersection,
    SeededForExperiments,
    grid_gaussian,
    grouped_linf,
    integer_laplace,
    optimal_gaussian,
    optimal_laplace,
    staircase,
)

FAST, ALL = 60, 1_000


def mechanisms(draw):
    """Return a mechanism of every kind, of random size."""
    d = int(draw.integers(1, 6))
    size = float(np.exp(draw.normal(0, 3)))
    sets = [
        L2Ball(d, size),
        L1Ball(d, size),
        LInfBall(d, size),
        Box(size * np.exp(draw.normal(size=d))),
        LpIntersection(d, {1: size * 1.5, np.inf: size}),
        Blocks([1, d], [size, 2 * size]),
    ]
    chosen = sets[draw.integers(len(sets))]
    found = [
        optimal_gaussian(chosen, epsilon=1.0, delta=1e-6),
        optimal_laplace(chosen, epsilon=float(draw.uniform(0.1, 3))),
        grouped_linf(LInfBall(d, size), epsilon=1.0),
        staircase(L1Ball(int(draw.integers(1, 3)), size), epsilon=1.0),
        optimal_gaussian(chosen.differences(), epsilon=1.0, delta=1e-6),
    ]
    return found[draw.integers(len(found))]


def records(draw, dimension):
    """Return rows of wild sizes, some of them not finite, some integers."""
    count = int(draw.integers(1, 40))
    rows = draw.normal(size=(count, dimension)) * np.exp(draw.normal(0, 8, size=(count, 1)))
    rows[draw.random(rows.shape) < 0.02] = draw.choice([np.nan, np.inf, 1e308, -1e308, 5e-324, 0.0])
    return rows


def program(draw):
    """Return a sound program of several releases, later ones adapted to earlier ones."""
    seed = int(draw.integers(2**31))
    first = mechanisms(draw)
    others = [mechanisms(draw) for _ in range(int(draw.integers(0, 3)))]
    counts = integer_laplace(Histogram(3), epsilon=0.5)
    total = grid_gaussian(sigma=3.0, sensitivity=1, grid=1, on_grid=True)
    uses_seed = draw.random() < 0.5
    width = first.sensitivity.dimension

    def run(rows):
        source = SeededForExperiments(seed=seed) if uses_seed else None
        noise = recorded_generator(np.random.default_rng(seed), sensitivity=2.0)
        out = [first.release_sum(rows, source)]
        for other in others:
            dimension = other.sensitivity.dimension
            tiled = np.tile(np.nan_to_num(rows), 6)[:, :dimension]
            moved = tiled * np.tanh(out[-1].sum())
            if other.sensitivity.contributions is None and out[-1][0] > 0:
                clipped = other.sensitivity.clip(moved)
                out.append(other.release(clipped.sum(0), source))
            else:
                out.append(other.release_sum(moved, source))
        cells = np.frexp(np.nan_to_num(rows[:, 0]))[1] % 3
        out.append(counts.release(np.bincount(cells, minlength=3)))
        out.append(total.release([len(rows)]))
        out.append(np.clip(np.nan_to_num(rows[:, 0]), -1, 1).sum() + 3.0 * noise.standard_normal())
        return {"released": out, "mean": out[0] / 100, "chosen": np.random.default_rng(1).random()}

    return run, width


def run_clean(seed):
    draw = np.random.default_rng(seed)
    function, width = program(draw)
    rows = records(draw, width)
    kind = seed % 3
    if kind == 0:
        pair = rows, rows[:-1]
    elif kind == 1:
        pair = rows[:-1], rows
    else:
        other = rows.copy()
        other[-1] = records(draw, width)[0]
        pair = rows, other
    return replay(function, *pair, crafted=True)


def test_clean_replays_raise_no_alarm():
    for seed in range(FAST):
        result = run_clean(seed)
        assert result.passed, f"{seed}: {result}"


@pytest.mark.slow
def test_a_thousand_clean_replays_raise_no_alarm():
    alarms = [seed for seed in range(FAST, FAST + ALL) if not run_clean(seed).passed]
    assert not alarms
