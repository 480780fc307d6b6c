"""The noisy vote behind a test of its lead: exact outputs for all counts."""

import math
from fractions import Fraction

import mpmath
import numpy as np
import pytest
from oracles.tested_releases import THRESHOLDS, discrete, passing
from scipy import stats

from taut.adaptive import DistanceTest, ProposedVote, vote_losses
from taut.adaptive._propose.general.vote import _minority_wins
from taut.adaptive._secret import reveal
from taut.audit import refute_training, replay
from taut.errors import AdjacencyMismatch
from taut.noise import RandomSource, SeededForExperiments

TEST = DistanceTest(epsilon=0.7, delta=0.02, adjacency="add_remove")


def minority(lead, epsilon):
    x = epsilon * abs(lead)
    rare = (2 + x) / 4 * math.exp(-x)
    return rare if lead >= 0 else 1 - rare


@pytest.mark.parametrize("limit", [0.0, 0.3, 0.62])
def test_loss_holds_for_all_counts(limit):
    vote = ProposedVote(epsilon=0.8, limit=limit, delta=0.01, test=TEST)
    claimed = {t: vote.loss.profile(t) for t in THRESHOLDS.tolist()}

    def outputs(a, b):
        p = passing(0.7, TEST.threshold, reveal(vote.distance(a, b)))
        rare = minority(abs(a - b), 0.8)
        winner = int(a < b)
        return {None: 1 - p, winner: p * (1 - rare), 1 - winner: p * rare}

    known, worst = {}, 0.0
    for a in range(26):
        for b in range(5):
            for c, d in ((a + 1, b), (a, b + 1)):
                sides = [known.setdefault(s, outputs(*s)) for s in ((a, b), (c, d))]
                for t, most in claimed.items():
                    for p, q in (sides, sides[::-1]):
                        truth = discrete(p, q, t)
                        assert truth <= most * (1 + 1e-9)
                        worst = max(worst, truth / most)
    assert worst > 0.5


def test_losses_are_those_of_the_two_outcomes():
    for delta in (0.0, 1e-6, 0.01):
        for lead in (0, 1, 5, 12, 30):
            found = float(vote_losses(np.array([lead]), 1.0, delta)[0])
            worst = 0.0
            for other in (lead - 1, lead + 1):
                p, q = ([minority(t, 1.0), 1 - minority(t, 1.0)] for t in (lead, other))
                for x, y in (*zip(p, q, strict=True), *zip(q, p, strict=True)):
                    if x > delta:
                        worst = max(worst, math.log((x - delta) / y))
            assert found == pytest.approx(worst, rel=1e-9, abs=1e-12)


def test_minority_has_the_chance_of_laplace_noise():
    source = SeededForExperiments(2)
    for lead, epsilon in ((0, 1.0), (2, 0.5), (3, 1.0)):
        runs = 2_000
        found = sum(_minority_wins(lead, Fraction(epsilon), source) for _ in range(runs))
        p = minority(lead, epsilon)
        assert abs(found / runs - p) < 5 * math.sqrt(p * (1 - p) / runs)
    noise = stats.laplace.rvs(size=(2, 200_000), random_state=1)
    assert (noise[0] - noise[1] > 3).mean() == pytest.approx(minority(3, 1.0), abs=3e-3)


class Words(RandomSource):
    """Words that were chosen, one after the other."""

    secure = False

    def __init__(self, words):
        self.words = list(words)

    def bytes(self, n):
        return self.words.pop(0).to_bytes(8, "little")


def test_words_next_to_the_chance_are_decided_by_more_bits():
    with mpmath.workdps(80):
        p = (2 + mpmath.mpf(3)) / 4 * mpmath.exp(-3)
        first = int(mpmath.floor(p * 2**64))
        second = int(mpmath.floor((p * 2**64 - first) * 2**64))
    assert _minority_wins(3, Fraction(1), Words([first - 1]))
    assert not _minority_wins(3, Fraction(1), Words([first + 1]))
    assert _minority_wins(3, Fraction(1), Words([first, second - 1]))
    assert not _minority_wins(3, Fraction(1), Words([first, second + 1]))


def test_huge_leads_are_drawn_without_trouble():
    for lead in (10**6, 10**18, 10**40):
        assert not _minority_wins(lead, Fraction(500), SeededForExperiments(1))
    test = DistanceTest(0.5, 1e-6, "add_remove")
    assert ProposedVote(1.0, 0.1, 1e-6, test).release(0, 10**30).value == 1


def test_a_clear_lead_is_released_and_a_narrow_one_refused():
    test = DistanceTest(0.5, 1e-6, "add_remove")
    vote = ProposedVote(1.0, 0.1, 1e-6, test)
    assert [vote.release(*votes).value for votes in ((90, 5), (5, 90))] == [0, 1]
    refused = vote.release(15, 5)
    assert (refused.released, refused.loss) == (False, vote.loss)
    assert vote.loss.epsilon(1e-6) == pytest.approx(0.6)
    assert reveal(ProposedVote(1.0, 1.0, 1e-6, test).distance(7, 6)) == test.cap


def test_bad_arguments_are_named_without_counts():
    for bad, says in [
        ({"epsilon": 0.0}, "epsilon"),
        ({"epsilon": 1e-9}, "epsilon"),
        ({"limit": -1.0}, "limit"),
        ({"delta": 0.0}, "delta"),
        ({"test": 3}, "test"),
    ]:
        with pytest.raises((ValueError, TypeError), match=says):
            ProposedVote(**{"epsilon": 1.0, "limit": 0.1, "delta": 1e-6, "test": TEST, **bad})
    with pytest.raises(AdjacencyMismatch, match="add_remove"):
        ProposedVote(1.0, 0.1, 1e-6, DistanceTest(1.0, 1e-6, "replace"))
    for count in (-777, 777.5, math.nan, True):
        with pytest.raises(ValueError, match="first must be") as caught:
            ProposedVote(1.0, 0.1, 1e-6, TEST).release(count, 3)
        assert "777" not in str(caught.value)


def test_replay_and_sequential_audit_find_nothing():
    vote = ProposedVote(0.8, 0.3, 0.01, TEST)
    result = replay(
        lambda votes: vote.release(*votes).value, (60, 5), (60, 6), adjacency="add_remove"
    )
    assert result.passed, result.findings
    assert len(result.releases) == 2
    lead = vote._violating[1] + TEST.threshold

    def run(with_canary, seed):
        outcome = vote.release(lead + with_canary, 0, SeededForExperiments(seed))
        return [float(outcome.released), float(outcome.value or 0)]

    assert refute_training(run, claimed=vote.loss, delta=0.05, most_runs=100, seed=1).passed
