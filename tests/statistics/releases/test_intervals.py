"""Standard errors and intervals where noise is large, or whole."""

import numpy as np
import pytest

from taut.noise import SeededForExperiments
from taut.statistics import Categories, Count, GroupMeans, Mean, Total, Variance, release

NINETY = {"age": [90.0] * 3, "region": ["north"] * 3}
REGION = Categories("region", ["north"])
WANTED = [Mean("age", (18, 90)), Variance("age", (18, 90)), GroupMeans("age", (18, 90), by=REGION)]


def released(statistic, seed, table, **promise):
    seeded = SeededForExperiments(seed=seed)
    return release(table, [statistic], generator=seeded, **promise).estimates[0]


@pytest.mark.parametrize("statistic", WANTED, ids=lambda one: type(one).__name__)
def test_a_value_that_noise_moved_to_a_limit_has_an_error_and_an_interval(statistic):
    for seed in range(5):
        found = released(statistic, seed, NINETY, epsilon=0.1)
        lower, upper = found.interval(0.95)
        assert np.all(found.standard_error > 1)
        assert np.all(upper - lower > 1)


def test_intervals_end_where_the_statistic_of_any_data_does():
    for seed in range(5):
        found = released(WANTED[0], seed, NINETY, epsilon=0.1)
        lower, upper = found.interval(0.95)
        assert 18 <= lower <= found.value <= upper <= 90


@pytest.mark.parametrize("statistic", [Count(), Total("age", (18, 90))])
def test_intervals_cover_at_every_level(statistic):
    rng = np.random.default_rng(0)
    table = {"age": rng.uniform(18, 90, 2_000)}
    truth = {"count": 2_000, "total of age": table["age"].sum()}[statistic.name]
    found = [released(statistic, seed, table, epsilon=1.0) for seed in range(200)]
    for level in (0.5, 0.7, 0.9, 0.95):
        ends = np.array([one.interval(level) for one in found])
        covered = np.mean((ends[:, 0] <= truth) & (truth <= ends[:, 1]))
        assert covered > level - 2.5 * np.sqrt(level * (1 - level) / 200)


def test_intervals_cover_where_many_statistics_share_a_design():
    rng = np.random.default_rng(0)
    table = {"age": rng.uniform(18, 90, 2_000)}
    wanted = [Count(), Mean("age", (18, 90)), Variance("age", (18, 90))]
    covered = 0
    for seed in range(200):
        found = release(table, wanted, epsilon=1.0, generator=SeededForExperiments(seed=seed))
        lower, upper = found["mean of age"].interval(0.5)
        covered += lower <= table["age"].mean() <= upper
    assert covered / 200 > 0.5
