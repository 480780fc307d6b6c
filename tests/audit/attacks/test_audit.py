"""Audits of plain mechanisms: what they prove, how often they err, what they refuse."""

import json

import numpy as np
import pytest
from scipy.stats import kstest, norm

import taut
from taut.accounting import Adjacency
from taut.audit import audit_observations, audit_training, crafted
from taut.audit._attacks.crafted import likelihood_ratios
from taut.audit._attacks.noise_checks import noise_checks


def gaussian_runs(runs, steps, shift, sigma, seed):
    draw = np.random.default_rng(seed)
    return shift + sigma * draw.standard_normal((runs, steps))


def test_lower_bound_comes_close_to_the_truth():
    claimed = taut.gaussian(1.0)
    sides = [gaussian_runs(40_000, 1, shift, 1.0, seed) for seed, shift in enumerate((0.0, 1.0))]
    result = audit_observations(*sides, claimed=claimed, delta=0.01)
    assert result.passed
    assert 0.8 * result.claimed_epsilon < result.epsilon_lower < claimed.epsilon(0.01)


def test_halved_noise_is_refuted():
    sides = [gaussian_runs(1_000, 1, shift, 0.5, seed) for seed, shift in enumerate((0.0, 1.0))]
    result = audit_observations(*sides, claimed=taut.gaussian(1.0), delta=0.1)
    assert not result.passed
    assert result.claimed_epsilon < result.epsilon_lower < taut.gaussian(0.5).epsilon(0.1)
    assert "FAULT FOUND" in str(result)
    assert len(result.violations) == 2


def test_violation_shows_at_a_delta_where_epsilon_does_not():
    # At delta 1e-9 so few runs prove no epsilon of that size, and yet the claim is refuted.
    sides = [gaussian_runs(1_000, 1, shift, 0.5, seed) for seed, shift in enumerate((0.0, 1.0))]
    result = audit_observations(*sides, claimed=taut.gaussian(1.0), delta=1e-9)
    assert result.epsilon_lower < result.claimed_epsilon
    assert not result.passed


def random_statistics(draw):
    projections = draw.normal(size=(30, 20))
    return {str(i): lambda runs, row=row: runs[:, :, 0] @ row for i, row in enumerate(projections)}


def test_searching_among_statistics_is_no_proof():
    # Both sides are alike, and the claim says so; at a confidence of one half errors would show.
    # Judged by the runs that chose them, attacks would refute the claim nearly always.
    failures = 0
    for seed in range(12):
        draw = np.random.default_rng(seed)
        sides = draw.normal(size=(2, 100, 20))
        result = audit_observations(
            *sides,
            claimed=taut.gaussian(100.0),
            delta=1e-3,
            confidence=0.5,
            statistics=random_statistics(draw),
        )
        failures += not result.passed
    assert failures <= 6


@pytest.mark.slow
def test_tight_claims_are_seldom_refuted():
    failures = 0
    for seed in range(200):
        sides = [gaussian_runs(400, 1, x, 1.0, 2 * seed + i) for i, x in enumerate((0.0, 1.0))]
        result = audit_observations(*sides, claimed=taut.gaussian(1.0), delta=0.05, confidence=0.9)
        failures += not result.passed
    assert failures <= 20


def test_noise_checks_have_uniform_p_values():
    draw = np.random.default_rng(3)
    found = [[c.p_value for c in noise_checks(draw.normal(size=(20, 5, 3)))] for _ in range(300)]
    for values in np.array(found).T:
        assert kstest(values, "uniform").pvalue > 1e-3


@pytest.mark.parametrize(
    ("name", "change"),
    [
        ("variance", lambda x: 1.1 * x),
        ("variance", lambda x: 0.9 * x),
        ("between steps", lambda x: np.repeat(x[:, :1], x.shape[1], axis=1)),
        ("between steps", lambda x: x - x.mean(1, keepdims=True)),
        ("between runs", lambda x: np.repeat(x[:1], len(x), axis=0)),
    ],
)
def test_noise_check_notices(name, change):
    noise = np.random.default_rng(0).normal(size=(500, 6, 3))
    checks = {check.name: check for check in noise_checks(change(noise))}
    assert checks[name].p_value < 1e-6
    assert all(check.p_value > 1e-3 for check in noise_checks(noise))


@pytest.mark.parametrize("adjacency", ["add_remove", "replace"])
@pytest.mark.parametrize("rate", [0.3, 1.0])
def test_likelihood_ratio_is_that_of_densities(adjacency, rate):
    craft, _ = crafted(3, clip_norm=1.0, dimension=2, adjacency=adjacency)
    runs = np.random.default_rng(0).normal(size=(5, 4, 2))
    x, shift = runs[:, :, 0], 0.7

    def density(centre):
        return (1 - rate) * norm.pdf(x) + rate * norm.pdf(x, centre)

    base = norm.pdf(x) if adjacency == "add_remove" else density(-shift)
    expected = np.log(density(shift) / base).sum(1)
    ratios = likelihood_ratios(craft, shift=shift, rate=rate, relation=Adjacency(adjacency))
    np.testing.assert_allclose(ratios["likelihood ratio"](runs), expected, rtol=1e-10)


def test_statistic_of_ones_own_is_tried():
    draw = np.random.default_rng(5)
    base, moved = draw.normal(size=(2, 2_000, 6))
    moved[:, 3] *= np.sign(moved[:, 3]) * np.sign(moved[:, 1])  # visible in a product alone
    sides = {"claimed": taut.gaussian(3.0), "delta": 0.1}
    assert audit_observations(base, moved, **sides).passed
    product = {"product": lambda runs: runs[:, 3, 0] * runs[:, 1, 0]}
    result = audit_observations(base, moved, **sides, statistics=product)
    assert not result.passed
    assert result.strongest.statistic == "product"


@pytest.mark.parametrize(
    "statistic", [lambda runs: runs[:, :, 0], lambda runs: np.full(len(runs), np.nan)]
)
def test_statistic_must_be_one_number_per_run(statistic):
    with pytest.raises(ValueError, match="statistic 'mine' must return one number for every run"):
        good(statistics={"mine": statistic})


def test_result_is_json_and_repeats_with_its_seed():
    def run(with_canary, seed):
        return np.random.default_rng(seed).normal(float(with_canary), size=(2, 3))

    claimed = 2 * taut.gaussian(0.5)
    settings = {"claimed": claimed, "delta": 1e-3, "trials": 60, "noise_scale": 1.0}
    first, second = (audit_training(run, **settings, seed=4) for _ in range(2))
    assert first == second
    data = json.loads(first.to_json())
    assert data["passed"] is (not first.violations and not first.mismatches)
    assert data["noise_checks"][0]["name"] == "variance"
    assert first.mismatches  # the canary moves coordinates that were claimed to be silent


def test_seeds_are_drawn_securely_by_default():
    given = []

    def run(_, seed):
        given.append(seed)
        return [0.0]

    audit_training(run, claimed=taut.gaussian(1.0), delta=1e-3, trials=40)
    audit_training(run, claimed=taut.gaussian(1.0), delta=1e-3, trials=40)
    assert len(set(given)) == 160


def good(**changes):
    settings = {"claimed": taut.gaussian(1.0), "delta": 1e-3, "trials": 40, "seed": 0} | changes
    return audit_training(lambda _, seed: [float(seed % 7)], **settings)


@pytest.mark.parametrize(
    ("changes", "message"),
    [
        ({"trials": 10}, "trials must be at least 40"),
        ({"confidence": 1.0}, "confidence must be at least 0.5 and below 1"),
        ({"confidence": float("nan")}, "confidence must be"),
        ({"delta": 1.5}, "delta must be"),
        ({"noise_scale": 1.0}, "runs have one only"),
        ({"noise_scale": -1.0}, "noise_scale must be"),
    ],
)
def test_bad_arguments(changes, message):
    with pytest.raises(ValueError, match=message):
        good(**changes)


@pytest.mark.parametrize(
    ("run", "message"),
    [
        (lambda with_canary, _: [0.0] * (1 + with_canary), "arrays of one shape"),
        (lambda *_: [np.nan], "NaN or infinite"),
        (lambda *_: 1.0, "must be of shape"),
        (lambda *_: [], "must be of shape"),
    ],
)
def test_bad_runs(run, message):
    with pytest.raises(ValueError, match=message):
        audit_training(run, claimed=taut.gaussian(1.0), delta=1e-3, trials=40)


def test_runs_of_different_shapes():
    with pytest.raises(ValueError, match="one shape"):
        audit_observations(
            np.zeros((50, 2)), np.zeros((50, 3)), claimed=taut.gaussian(1.0), delta=1e-3
        )


@pytest.mark.parametrize(
    ("changes", "message"),
    [
        ({"dimension": 1}, "dimension must be at least 2"),
        ({"clip_norm": 0.0}, "clip_norm must be"),
        ({"adjacency": "zero_out"}, "adjacency must be"),
    ],
)
def test_bad_crafts(changes, message):
    with pytest.raises(ValueError, match=message):
        crafted(3, **{"clip_norm": 1.0, "dimension": 2, "adjacency": "add_remove"} | changes)
