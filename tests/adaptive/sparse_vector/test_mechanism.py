"""The mechanism at work: its law, its end, its silence, and what replays see of it."""

import copy
import math
import multiprocessing
import pickle
from concurrent.futures import ThreadPoolExecutor
from traceback import TracebackException

import numpy as np
import pytest
from scipy import integrate, stats

import taut
from taut.adaptive import (
    BetweenDesign,
    BetweenThresholds,
    ScalarNoise,
    Secret,
    SparseVector,
    SparseVectorDesign,
)
from taut.adaptive._secret import reveal
from taut.audit import refute_training, replay
from taut.errors import BudgetExceeded, UnsoundConfiguration
from taut.noise import SeededForExperiments

LAWS = {"gaussian": stats.norm, "laplace": stats.laplace, "exponential": stats.expon}


def made(kind="laplace", tops=1, queries=1000, threshold=0.0, seed=0, scales=(2.0, 4.0), **more):
    design = SparseVectorDesign(
        ScalarNoise(kind, scales[0]),
        ScalarNoise(kind, scales[1]),
        1.0,
        tops,
        "add_remove",
        queries,
        **more,
    )
    return SparseVector(design, threshold=threshold, generator=SeededForExperiments(seed))


@pytest.mark.parametrize("kind", LAWS)
def test_answers_follow_the_ideal_law(kind):
    law = LAWS[kind]
    expected = integrate.quad(
        lambda z: law.pdf(z) * law.sf((2.0 * z + 1.0) / 4.0), -30, 60, points=[-0.5, 0], limit=300
    )[0]
    trials = 1500
    above = sum(made(kind, queries=1, seed=i, threshold=1.0).ask(0.0) for i in range(trials))
    # Half a grid step moves the probability by less than 1e-3 of this deviation.
    assert abs(above / trials - expected) < 4.5 * math.sqrt(expected * (1 - expected) / trials)


def test_many_questions_are_one_after_the_other():
    values = np.linspace(-30, 10, 50)
    one, many = made(tops=3, seed=5), made(tops=3, seed=5)
    answers = []
    while not one.is_exhausted and len(answers) < values.size:
        answers.append(one.ask(values[len(answers)]))
    assert sum(answers) == 3
    found = many.ask_many(values)
    assert found.sum() == 3
    assert found[-1]
    assert many.is_exhausted
    # Draws come in other portions, so that answers agree in law alone.
    assert found.size <= values.size


def test_it_ends_after_the_last_answer_above():
    vector = made(tops=2)
    assert vector.ask_many(np.full(10, 1e6)).tolist() == [True, True]
    assert vector.tops_left == 0
    for ask in (vector.ask, lambda value: vector.ask_many([value])):
        with pytest.raises(BudgetExceeded, match="has ended"):
            ask(0.0)


def test_it_ends_after_the_last_question():
    vector = made(queries=5, threshold=1e6)
    assert vector.ask_many(np.zeros(3)).size == 3
    assert vector.queries_left == 2
    assert vector.ask_many(np.zeros(100)).size == 2
    assert vector.is_exhausted
    assert made(kind="laplace", queries=None).queries_left is None


def test_no_questions_are_no_answers():
    assert made().ask_many([]).size == 0


def test_long_batches_end_in_the_right_portion():
    values = np.full(200_000, -1e6)
    values[150_000] = 1e6
    found = made(queries=None).ask_many(values)
    assert found.size == 150_001
    assert found[-1]
    assert found.sum() == 1


def test_resampling_draws_the_threshold_again():
    vector = made(tops=5, resample=True)
    levels = [reveal(vector._standing.level)]
    for _ in range(4):
        assert vector.ask(1e6)
        levels.append(reveal(vector._standing.level))
    assert len(set(levels)) == 5
    kept = made(tops=5)
    first = reveal(kept._standing.level)
    kept.ask_many([1e6, 1e6])
    assert reveal(kept._standing.level) == first
    batch = made(tops=5, resample=True)
    assert batch.ask_many([1e6, -1e6, 1e6, 1e6]).tolist() == [True, False, True, True]


def test_thresholds_by_question():
    vector = made(tops=3, queries=10, threshold=None)
    assert vector.ask_many([0.0, 0.0], [1e6, -1e6]).tolist() == [False, True]
    assert vector.ask(0.0, threshold=-1e6)
    with pytest.raises(ValueError, match="threshold must be given"):
        vector.ask(0.0)
    with pytest.raises(ValueError, match="one for each"):
        vector.ask_many([0.0, 1.0], [1.0, 2.0, 3.0])


@pytest.mark.parametrize("bad", [math.nan, math.inf, -math.inf])
def test_bad_thresholds_are_refused(bad):
    with pytest.raises(ValueError, match="threshold must be finite"):
        made(threshold=bad)
    with pytest.raises(ValueError, match="threshold must be finite"):
        made().ask(0.0, threshold=bad)


def test_queries_that_are_not_finite_are_answered_without_a_word():
    vector = made(tops=5, queries=10)
    assert vector.ask_many([math.nan, -math.inf, math.inf, 1e300]).tolist() == [
        False,
        False,
        True,
        True,
    ]
    assert not vector.ask(Secret(math.nan))


def test_secrets_are_taken():
    assert made().ask(Secret(1e9))


def test_tracebacks_with_variables_do_not_show_secrets():
    ended = made(tops=1)
    while not ended.is_exhausted:
        ended.ask(1e6)
    between = BetweenThresholds(BetweenDesign(-40.0, 40.0, 1.0, 2.0, 1.0, 1, 1e-3, "replace"))
    while not between.is_exhausted:
        between.ask(0.0)
    asks = (
        lambda: ended.ask(Secret(1234.5)),
        lambda: made().ask(Secret(1234.5), threshold=math.nan),
        lambda: made(gap=True).ask_gap(Secret(1234.5), threshold=math.inf),
        lambda: between.ask(Secret(1234.5)),
    )
    for ask in asks:
        with pytest.raises((BudgetExceeded, ValueError)) as error:
            ask()
        shown = TracebackException.from_exception(error.value, capture_locals=True)
        assert "Secret(" in (text := "".join(shown.format()))
        assert "1234.5" not in text.replace("Secret(1234.5)", "")  # the source of this test


def test_values_in_rows_are_refused_without_showing_them():
    with pytest.raises(ValueError, match="numbers in a row") as error:
        made().ask_many([[1234.5]])
    assert "1234.5" not in str(error.value)


def test_a_floor_holds_values_and_thresholds():
    design = SparseVectorDesign(
        ScalarNoise("gaussian", 1.0), ScalarNoise("gaussian", 2.0), 1.0, 1, "replace", margin=5.0
    )
    with pytest.raises(ValueError, match="least_value"):
        SparseVector(design, threshold=5.0)
    vector = SparseVector(design, least_value=10.0, generator=SeededForExperiments(3))
    steps, _ = vector._in_steps([math.nan, -1e9, 12.0], 15.0)
    assert (steps * design.grid).tolist() == [10.0, 10.0, 12.0]
    with pytest.raises(ValueError, match="margin"):
        vector.ask(0.0, threshold=15.1)
    with pytest.raises(ValueError, match="least_value"):
        SparseVector(made().design, threshold=0.0, least_value=1.0)


@pytest.mark.parametrize("least", [1e30, -1e30, 2.0**42 + 1, -(2.0**42)])
def test_a_floor_where_numbers_are_cut_is_refused(least):
    # Cut or rounded, the threshold would be as high as the queries, and not 200 below them.
    design = SparseVectorDesign(
        ScalarNoise("gaussian", 4.0), ScalarNoise("gaussian", 8.0), 1.0, 1, "replace", margin=-200.0
    )
    with pytest.raises(ValueError, match=r"2\^52 grid steps"):
        SparseVector(design, threshold=least - 200.0, least_value=least)
    near = SparseVector(design, threshold=-201.0, least_value=-1.0)
    steps, levels = near._in_steps([-1e30], None)
    assert (levels - steps) * design.grid == -200.0


def test_gaps_are_noisy_distances():
    vector = made(tops=3, gap=True)
    assert vector.ask_gap(-1e6) is None
    assert vector.ask_gap(1000.0) == pytest.approx(1000.0, abs=200)
    with pytest.raises(UnsoundConfiguration, match="gap=True"):
        made().ask_gap(0.0)


def test_the_budget_is_charged_at_once():
    budget = taut.PrivacyFilter(1.0, 1e-6, kind="renyi")
    design = made(scales=(10.0, 20.0)).design
    SparseVector(design, threshold=0.0, budget=budget)
    assert budget.remaining.fraction < 1
    while budget.can_spend(design.loss):
        SparseVector(design, threshold=0.0, budget=budget)
    with pytest.raises(BudgetExceeded):
        SparseVector(design, threshold=0.0, budget=budget)


def test_nothing_secret_is_shown_or_stored():
    vector = made(seed=9)
    level = str(reveal(vector._standing.level))
    assert level not in repr(vector)
    assert level not in str(vars(vector))
    for look in (pickle.dumps, copy.copy, copy.deepcopy):
        with pytest.raises(UnsoundConfiguration, match="cannot be stored"):
            look(vector)
    with pytest.raises(TypeError, match="design"):
        SparseVector("laplace")


def _asked_by_child(vector, pipe):
    try:
        vector.ask(0.0)
    except UnsoundConfiguration as error:
        pipe.send(str(error))


def test_a_forked_process_is_refused():
    context = multiprocessing.get_context("fork")
    ours, theirs = context.Pipe()
    child = context.Process(target=_asked_by_child, args=(made(), theirs))
    child.start()
    assert ours.poll(60)
    assert "another process" in ours.recv()
    child.join()


def test_threads_share_one_count():
    vector = made(tops=50, queries=100_000)

    def ask(_):
        try:
            return vector.ask(1e6)
        except BudgetExceeded:
            return False

    with ThreadPoolExecutor(8) as pool:
        assert sum(pool.map(ask, range(400))) == 50


# --- audits -----------------------------------------------------------------------------


def program(rows, scale=1.0, peek=False):
    vector = made(tops=2, queries=20, threshold=40.0)
    found = []
    for column in range(rows.shape[1]):
        if vector.is_exhausted:
            break
        found.append(vector.ask(scale * rows[:, column].sum()))
    return (found, rows.sum()) if peek else found


ROWS = (np.random.default_rng(1).random((60, 20)) < 0.7).astype(float)


def test_replay_sees_every_question():
    result = replay(program, ROWS, ROWS[:-1], claim=made(tops=2, queries=20).design.loss)
    assert result.passed, result.findings
    assert result.exercised
    assert {release.kind for release in result.releases} == {"SparseVector"}


def test_replay_finds_wrong_sensitivities_and_leaks():
    moved = replay(lambda rows: program(rows, scale=3.0), ROWS, ROWS[:-1])
    assert not moved.passed
    assert "sensitivity" in moved.findings[0]
    around = replay(lambda rows: program(rows, peek=True), ROWS, ROWS[:-1])
    assert not around.passed


def test_replay_of_batches():
    def batch(rows):
        return made(tops=2, queries=20, threshold=40.0).ask_many(rows.sum(axis=0))

    assert replay(batch, ROWS, ROWS[:-1]).passed


def test_sequential_audit_does_not_refute_it():
    design = made(tops=1, queries=8, scales=(1.0, 2.0)).design

    def run(with_canary, seed):
        vector = SparseVector(design, threshold=1.0, generator=SeededForExperiments(seed))
        answers = vector.ask_many(np.r_[np.full(7, -1.0), 0.0] + 1.0 * with_canary)
        return [float(answers.size), float(answers.any())]

    result = refute_training(run, claimed=design.loss, delta=1e-3, most_runs=300, seed=1)
    assert result.passed


def test_design_cannot_be_replaced_by_a_longer_one():
    here = made(tops=2)
    with pytest.raises(AttributeError):
        here.design = made(tops=99).design


@pytest.mark.parametrize("resample", [False, True])
def test_interrupted_question_leaves_no_trace(monkeypatch, resample):
    """A threshold that were drawn again before its answer is counted would cost once more."""
    here = made(tops=2, resample=resample)
    before = here._standing

    def interrupted(draw, *_):
        assert draw().above.any()
        raise KeyboardInterrupt

    with monkeypatch.context() as patch:
        patch.setattr("taut.adaptive._sparse_vector.mechanism.released", interrupted)
        with pytest.raises(KeyboardInterrupt):
            here.ask(1e9)
    assert here._standing is before
    assert here.ask(1e9)
    assert (here._standing.level is before.level) is not resample


def test_design_without_a_finite_loss_answers_nothing():
    noises = ScalarNoise("gaussian", 1e4), ScalarNoise("gaussian", 2.0**-8)
    loud = SparseVectorDesign(*noises, 1.0, 1000, "replace", margin=3.0)
    with pytest.raises(UnsoundConfiguration, match="no bound on the loss"):
        SparseVector(loud, threshold=2.0, least_value=0.0)
