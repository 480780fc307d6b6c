"""Rounds until an epsilon is used up: what is spent follows from answers, and never exceeds it."""

import copy
import math
import pickle

import numpy as np
import pytest
from scipy import integrate, stats

import taut
from taut.adaptive import ExPostDesign, ExPostSparseVector, Secret
from taut.audit import refute_training, replay
from taut.errors import BudgetExceeded, InfeasibleBudget, UnsoundConfiguration
from taut.noise import SeededForExperiments

DESIGN = ExPostDesign(
    8.0,
    16.0,
    sensitivity=1.0,
    threshold=50.0,
    lowest=0.0,
    highest=100.0,
    adjacency="add_remove",
)


def vector(epsilon=3.0, seed=1, design=DESIGN, **more):
    return ExPostSparseVector(design, epsilon=epsilon, generator=SeededForExperiments(seed), **more)


def test_costs_follow_from_the_answers():
    here = vector(6.0)
    answers = list(here.ask_many([0.0] * 20 + [100.0, 100.0] + [0.0] * 10))
    spent, run = 0.0, 0
    for answer in answers:
        run += 1
        if answer:
            spent, run = spent + DESIGN.epsilon_above(run), 0
    expected = spent + (DESIGN.epsilon_below(run) if run else 0.0)
    assert here.realised_epsilon == pytest.approx(expected)
    assert here.tops == sum(answers) >= 1
    assert here.loss == taut.pure(6.0)


@pytest.mark.parametrize("seed", range(6))
def test_spending_never_exceeds_epsilon(seed):
    rng = np.random.default_rng(seed)
    here = vector(2.5, seed)
    while not here.is_exhausted:
        assert here.queries_left > 0
        here.ask(rng.choice([0.0, 40.0, 60.0]))
        assert here.realised_epsilon <= here.epsilon
    with pytest.raises(BudgetExceeded, match="could cost more"):
        here.ask(0.0)
    assert f"of {here.epsilon:g}" in repr(here)


def test_ratio_of_every_sequence_of_answers_is_within_what_it_cost():
    # All sequences of answers of a tiny vector, over two rounds and more, by quadrature.
    tiny = ExPostDesign(
        2.0,
        3.0,
        sensitivity=1.0,
        threshold=0.0,
        lowest=-1.0,
        highest=1.0,
        adjacency="add_remove",
    )
    epsilon, z = 2.0, np.linspace(-12, 12, 241)
    weights = stats.norm.pdf(z)

    def log_round(queries, above):
        u = (2.0 * z[:, None] - np.array(queries)) / 3.0
        logs = stats.norm.logcdf(u)
        if above:
            logs[:, -1] = stats.norm.logsf(u[:, -1])
        return math.log(integrate.trapezoid(weights * np.exp(logs.sum(axis=1)), z))

    ends = 0

    def explore(index, run, run_other, spent, ratio):
        """Follow all answers; queries depend on the index alone."""
        nonlocal ends
        room = tiny.longest(max(epsilon - spent, 0.0))
        here = tiny.epsilon_below(len(run)) if run else 0.0
        open_ratio = log_round(run_other, False) - log_round(run, False) if run else 0.0
        assert abs(ratio + open_ratio) <= spent + here <= epsilon
        if index == 9 or len(run) >= room:
            ends += 1
            return
        value = (1.0, 1.0, -1.0)[index % 3]
        other = value - 1.0 if value > 0 else value + 1.0
        more, more_other = [*run, value], [*run_other, other]
        explore(index + 1, more, more_other, spent, ratio)
        told = log_round(more_other, True) - log_round(more, True)
        explore(index + 1, [], [], spent + tiny.epsilon_above(len(more)), ratio + told)

    explore(0, [], [], 0.0, 0.0)
    assert ends > 8


def test_budget_is_taken_first():
    budget = taut.PrivacyFilter(2.0, 1e-6, kind="renyi", adjacency="add_remove")
    vector(1.0, budget=budget)
    assert budget.remaining.fraction < 1
    with pytest.raises(BudgetExceeded):
        vector(3.0, budget=budget)


def test_epsilon_beyond_any_loss_answers_nothing():
    with pytest.raises(ValueError, match=r"1e\+06"):
        vector(1e7)


def test_budget_cannot_be_raised_afterwards():
    here = vector()
    for name, value in {"epsilon": 9.0, "design": DESIGN}.items():
        with pytest.raises(AttributeError):
            setattr(here, name, value)


def test_interrupted_question_leaves_no_trace(monkeypatch):
    """A threshold that were drawn again within a round would cost that round once more."""
    here = vector(20.0)
    assert list(here.ask_many([0.0, 0.0])) == [False, False]
    before = here._standing

    def interrupted(draw, *_):
        assert draw().any()
        raise KeyboardInterrupt

    with monkeypatch.context() as patch:
        patch.setattr("taut.adaptive._sparse_vector.ex_post.mechanism.released", interrupted)
        with pytest.raises(KeyboardInterrupt):
            here.ask(100.0)
    assert here._standing is before
    assert here.ask(100.0)
    assert here._standing.level is None


def test_questions_after_many_rounds_cost_no_more_time(monkeypatch):
    here, calls = vector(300.0), []
    here.ask_many(np.full(1000, 100.0))
    assert here.tops > 300
    above = ExPostDesign.epsilon_above
    monkeypatch.setattr(
        ExPostDesign, "epsilon_above", lambda self, n: calls.append(n) or above(self, n)
    )
    here.ask(100.0)
    assert len(calls) <= 1


def test_queries_outside_the_range_are_cut():
    rows = [-1e308, math.nan, math.inf, 1e308, -math.inf]
    cut = [0.0, 0.0, 100.0, 100.0, 0.0]
    one, other = vector(20.0, 5), vector(20.0, 5)
    assert list(one.ask_many(rows)) == list(other.ask_many(cut))
    assert vector(20.0, 5).ask(Secret(math.nan)) == vector(20.0, 5).ask(0.0)


def test_replay_finds_nothing_and_a_query_that_moves_too_far():
    def run(rows):
        # Made inside, so that every repetition draws anew.
        here = ExPostSparseVector(DESIGN, epsilon=3.0)
        return [here.ask(float(np.sum(rows > level))) for level in (0.5, 1.5, 2.5)]

    data = np.arange(30.0)
    assert replay(run, data, np.append(data, 7.0), claim=taut.pure(3.0)).passed

    def broken(rows):
        return ExPostSparseVector(DESIGN, epsilon=3.0).ask(2 * float(rows.size))

    assert not replay(broken, data, np.append(data, 7.0)).passed


def test_audit_keeps_the_claim():
    sharp = ExPostDesign(
        1.0, 2.0, sensitivity=1.0, threshold=0.0, lowest=-2.0, highest=2.0, adjacency="add_remove"
    )
    claimed = taut.pure(4.0)

    def run(with_canary, seed):
        here = vector(4.0, seed, sharp)
        answers = here.ask_many(np.array([1.0] * 4 + [-1.0] * 4) - with_canary * 1.0)
        return [float(answers.size), float(answers.sum()), here.realised_epsilon]

    assert refute_training(run, claimed=claimed, delta=1e-3, most_runs=150, seed=1).passed


def test_bad_use():
    with pytest.raises(TypeError, match="ExPostDesign"):
        ExPostSparseVector("design", epsilon=1.0)
    with pytest.raises(InfeasibleBudget, match="single question"):
        vector(1e-3)
    with pytest.raises(ValueError, match="epsilon"):
        vector(math.nan)
    for copied in (copy.copy, copy.deepcopy, pickle.dumps):
        with pytest.raises(UnsoundConfiguration, match="secret threshold"):
            copied(vector())
    with pytest.raises(ValueError, match="in a row"):
        vector().ask_many([[1.0]])
