"""Labels by stable majority: exact where they are stable, silent where they are not."""

import math

import numpy as np
import pytest

import taut
from taut.adaptive import PrivateLabels, ScalarNoise
from taut.audit import replay
from taut.errors import BudgetExceeded
from taut.noise import SeededForExperiments


def made(kind="laplace", seed=0, **change):
    fields = {
        "points": 100,
        "unstable": 3,
        "threshold_noise": ScalarNoise(kind, 3.0),
        "query_noise": ScalarNoise(kind, 6.0),
        "stability_delta": 1e-6,
        "adjacency": "replace",
        **change,
    }
    return PrivateLabels(400, **fields, generator=SeededForExperiments(seed))


@pytest.mark.parametrize("kind", ["laplace", "gaussian", "exponential"])
def test_stable_votes_are_exact_and_others_cost(kind):
    labels = made(kind)
    assert [labels.label([390, 5, 5]) for _ in range(20)] == [0] * 20
    assert labels.label([0, 400]) == 1
    assert [labels.label([134, 133, 133]) for _ in range(3)] == [None] * 3
    assert labels.is_exhausted
    with pytest.raises(BudgetExceeded):
        labels.label([400, 0])


def test_level_of_laplace_noise_is_the_exact_tail():
    # Threshold Lap(l), distance Lap(2 l): the tail is (2/3) exp(-w/2l) - (1/6) exp(-w/l).
    labels = made()
    level, scale, chance = labels.distance - 2 * 2.0**-10, 3.0, 1e-6 / 100
    tail = 2 / 3 * math.exp(-level / (2 * scale)) - math.exp(-level / scale) / 6
    assert tail == pytest.approx(chance, rel=1e-6)
    assert level <= 2 * scale * math.log(2 * 100 / (3 * 1e-6))


def test_level_of_normal_noise():
    labels = made("gaussian")
    deviation = math.hypot(3.0, 6.0)
    from scipy.stats import norm

    assert labels.distance == pytest.approx(deviation * norm.isf(1e-8), rel=1e-3)


@pytest.mark.parametrize("kinds", [("exponential", "laplace"), ("laplace", "gaussian")])
def test_noise_of_two_kinds_is_refused(kinds):
    # One-sided noise on the threshold passes a distance of zero twice as often as Laplace noise.
    threshold, query = (ScalarNoise(kind, 4.0) for kind in kinds)
    with pytest.raises(ValueError, match="of one kind"):
        made(threshold_noise=threshold, query_noise=query)


def test_scales_that_nearly_agree_do_not_lower_the_level():
    same = made(query_noise=ScalarNoise("laplace", 3.0)).distance
    for ratio in (1 + 9e-7, 1 + 2e-6):
        wider = made(
            threshold_noise=ScalarNoise("laplace", 3.0 * ratio),
            query_noise=ScalarNoise("laplace", 3.0),
        ).distance
        assert same < wider <= same * (ratio + 1e-12)


def test_loss_has_the_failure_of_stability():
    labels = made()
    plain = labels.design.loss
    failure = taut.approximate(0.0, 1e-6, adjacency="replace")
    assert labels.loss == plain + failure
    assert labels.loss.epsilon(2e-6) <= plain.epsilon(1e-6) * (1 + 1e-6)
    assert labels.loss.epsilon(1e-7) == math.inf


def test_normal_noise_uses_the_least_value_of_the_negative_distance():
    labels = made("gaussian", unstable=1)
    assert labels.design.margin == pytest.approx(200 - labels.distance)
    assert "floored_game" in labels.design.bounds(np.array([4.0]))


@pytest.mark.parametrize("delta", [1e-6 * 1.01**i for i in range(12)])
def test_the_threshold_of_normal_noise_is_within_its_margin(delta):
    # Sums of doubles round: of half a number of teachers, minus a level, plus the same again.
    labels = made("gaussian", stability_delta=delta, points=10, unstable=1)
    assert labels.label([400, 0]) == 0


def test_a_number_of_teachers_of_few_bits_is_taken_as_it_is():
    labels = PrivateLabels(
        np.uint8(200),
        points=10,
        unstable=1,
        threshold_noise=ScalarNoise("gaussian", 3.0),
        query_noise=ScalarNoise("gaussian", 6.0),
        stability_delta=1e-4,
        adjacency="replace",
    )
    assert labels.design.margin == pytest.approx(100 - labels.distance)
    assert labels.label([200, 0]) == 0


def test_bad_votes():
    for votes in ([400], [399, 0], [401, -1], [[200, 200]], [math.nan, 400]):
        with pytest.raises(ValueError, match="votes must be") as error:
            made().label(votes)
        assert "399" not in str(error.value)
    with pytest.raises(ValueError, match="stability_delta"):
        made(stability_delta=0.0)
    assert "400 teachers" in repr(made())


def test_replay_over_one_vote():
    votes = np.array([[390, 5, 5], [200, 190, 10], [30, 360, 10], [134, 133, 133], [380, 10, 10]])
    other = votes.copy()
    other[:, 0] -= 1
    other[:, 1] += 1

    def program(counts):
        labels = made()
        return [None if labels.is_exhausted else labels.label(row) for row in counts]

    result = replay(program, votes, other, adjacency="replace")
    assert result.passed, result.findings
    assert result.exercised


def test_budget_is_charged_first_and_may_refuse():
    """Filters by Renyi divergences have no room for a failure; other ledgers may."""

    class Kept(list):
        spend = list.append

    kept = Kept()
    labels = made(budget=kept)
    assert kept == [labels.loss]
    with pytest.raises(BudgetExceeded, match="by hand"):
        made(budget=taut.PrivacyFilter(9.0, 1e-3, kind="renyi", adjacency="replace"))
