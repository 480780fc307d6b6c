"""How an attack is chosen: fairly between what learns and what does not, and honestly judged."""

import numpy as np
import pytest
from scipy import stats

import taut
from taut.audit import audit_observations
from taut.audit._attacks.statistics import candidates

NOTHING = taut.pure(1e-3)
"""A claim that any difference refutes."""


def runs(seed, trials, shift):
    """Return runs of normal noise on two sides, which differ by a shift in every step."""
    draw = np.random.default_rng(seed)
    moved = np.asarray(shift, dtype=float)
    size = (trials, len(moved))
    return draw.normal(size=size), moved + draw.normal(size=size)


def test_without_a_difference_claims_are_kept_as_often_as_stated():
    """500 audits of nothing at confidence 0.8: refuted in at most a fifth, beyond chance."""
    audits = 500
    found = [
        audit_observations(
            *runs(seed, 40, np.zeros(20)), claimed=NOTHING, delta=0.0, confidence=0.8
        )
        for seed in range(audits)
    ]
    refuted = sum(not result.passed for result in found)
    shown = sum(result.epsilon_lower > 0 for result in found)
    most = stats.binom.ppf(1 - 1e-6, audits, 0.2)
    assert refuted <= most
    assert shown <= most


def test_bounds_on_rates_hold_as_often_as_stated():
    """Bounds on rates of the judging half, against the best rates that there are."""
    wrong, audits = 0, 200
    for seed in range(audits):
        without, including = runs(seed, 60, np.full(10, 0.3))
        result = audit_observations(
            without, including, claimed=taut.gaussian(0.2), delta=1e-2, confidence=0.8
        )
        true = stats.norm(np.sqrt(10) * 0.3)  # of the best statistic; no other has a better rate
        best = true.sf(stats.norm.isf(result.evidence.fpr_upper))
        wrong += result.evidence.tpr_lower > best
    assert wrong <= stats.binom.ppf(1 - 1e-6, audits, 0.2)


def test_discriminant_of_noise_looks_like_noise():
    """It separates the runs that it was fitted to; on runs that did not teach it, it cannot."""
    apart = []
    for seed in range(20):
        without, including = (side[:, :, None] for side in runs(seed, 100, np.zeros(40)))
        found = candidates(without, including, {})["discriminant"]
        apart.append(
            [np.mean(moved) - np.mean(still) for moved, still in (found.fair, found.taught)]
        )
    fair, taught = np.transpose(apart)
    assert abs(fair.mean()) < 4 * fair.std() / np.sqrt(20)
    assert taught.min() > 0
    assert taught.mean() > 10 * abs(fair.mean())


def test_total_is_chosen_where_it_is_best():
    """All 40 steps move alike: a total knows that, and a discriminant has to learn 40 weights."""
    proven, chosen = [], []
    for seed in range(15):
        result = audit_observations(
            *runs(seed, 100, np.full(40, 0.4)),
            claimed=taut.gaussian(0.1),
            delta=1e-2,
            confidence=0.95,
        )
        proven.append(result.epsilon_lower)
        chosen.append(result.evidence.statistic)
    assert chosen.count("total") >= 13
    assert np.median(proven) > 1.2  # 0.83 with what was fitted and compared on the same runs


def test_discriminant_is_chosen_where_only_it_sees_the_difference():
    moved = np.array([0.9, -0.9, 0.9, -0.9, 0.0])
    result = audit_observations(
        *runs(3, 1_000, moved), claimed=taut.gaussian(0.1), delta=1e-2, confidence=0.95
    )
    assert result.evidence.statistic == "discriminant"
    assert result.epsilon_lower > 1.0


@pytest.mark.parametrize("values", [lambda runs: runs, lambda runs: np.full(len(runs), np.nan)])
def test_statistics_of_one_s_own_are_checked(values):
    with pytest.raises(ValueError, match="one number for every run"):
        audit_observations(
            *runs(0, 50, [1.0]), claimed=NOTHING, delta=0.1, statistics={"own": values}
        )
