"""Posterior samples as releases: losses, refusals, replays."""

import math
import warnings

import numpy as np
import pytest

from taut.accounting import Adjacency, approximate, best_of, gaussian
from taut.audit import refute_training, replay
from taut.errors import AdjacencyMismatch, InfeasibleBudget
from taut.estimators import RidgePosterior, ridge_posterior
from taut.estimators._posterior.adaptive import adaptive_ridge, budget
from taut.estimators._posterior.bounds import largest_growth, largest_precision
from taut.estimators._posterior.tuned import search_budget
from taut.noise import SeededForExperiments

PUBLIC = {"row_clip": 2.0, "target_clip": 3.0, "records": 400}
ROWS = np.random.default_rng(0).uniform(-1, 1, size=(400, 2))
TARGETS = ROWS @ [1.0, -0.5] + 0.1


def within(**given):
    promise = {"features": 2, "epsilon": 1.0, "delta": 1e-6, "adjacency": "zero_out"}
    return ridge_posterior(**{**PUBLIC, **promise, **given})


class TestPromise:
    @pytest.mark.parametrize("adjacency", ["zero_out", "replace"])
    @pytest.mark.parametrize("epsilon", [0.01, 1.0, 20.0])
    @pytest.mark.parametrize("ridge", [None, 3_000.0])
    def test_is_kept_and_used_up(self, adjacency, epsilon, ridge):
        posterior = within(adjacency=adjacency, epsilon=epsilon, ridge=ridge)
        spent = posterior.loss_tight_at(epsilon).epsilon(1e-6)
        assert epsilon * (1 - 1e-6) <= spent <= epsilon
        assert posterior.loss.epsilon(1e-6) <= epsilon * 1.001

    def test_ridge_is_raised_until_it_can_be_kept(self):
        assert within(epsilon=1e-4).ridge > within(epsilon=1.0).ridge
        with pytest.raises(InfeasibleBudget, match="raise the ridge"):
            within(ridge=1.0)

    def test_does_not_depend_on_units(self):
        plain = within(row_clip=1.0, target_clip=1.0)
        assert within().pair.growth == pytest.approx(plain.pair.growth)
        assert within().pair.shift == pytest.approx(plain.pair.shift, rel=1e-6)

    def test_relations_without_a_public_number_of_records_are_refused(self):
        with pytest.raises(AdjacencyMismatch, match="public"):
            within(adjacency="add_remove")

    @pytest.mark.parametrize("name", ["row_clip", "target_clip", "ridge", "precision", "records"])
    def test_bad_parameters_are_refused(self, name):
        good = {"row_clip": 1.0, "target_clip": 1.0, "ridge": 9.0, "precision": 0.1, "records": 9}
        for bad in (0, -1, math.nan):
            with pytest.raises(ValueError, match=name):
                RidgePosterior(**{**good, name: bad})


class TestRelease:
    def test_is_near_the_solution(self):
        posterior = RidgePosterior(**PUBLIC, ridge=4.0, precision=1e6)
        found = posterior.release(ROWS, TARGETS, SeededForExperiments(0))
        best = np.linalg.solve(ROWS.T @ ROWS + 4 * np.eye(2), ROWS.T @ TARGETS)
        assert found == pytest.approx(best, abs=1e-3)

    def test_refuses_more_records_than_were_declared(self):
        with pytest.raises(ValueError, match="records"):
            within(records=399).release(ROWS, TARGETS)

    @pytest.mark.parametrize("rows", [[1.0, 2.0], [[1.0]] * 3])
    def test_refuses_tables_of_another_shape(self, rows):
        with pytest.raises(ValueError, match="one row per target"):
            within().release(rows, [1.0, 2.0])

    @pytest.mark.parametrize("entry", [np.nan, np.inf, 1e308, -1e308, 5e-324])
    def test_says_nothing_about_bad_entries(self, entry):
        rows, targets = ROWS.copy(), TARGETS.copy()
        rows[3], targets[7] = entry, entry
        with warnings.catch_warnings():
            warnings.simplefilter("error")
            assert np.isfinite(within().release(rows, targets)).all()

    @pytest.mark.parametrize("entry", [None, "x", 1j, [1, 2], np.ma.masked, 10**400])
    @pytest.mark.parametrize("kind", [np.asarray, np.ndarray.tolist])
    def test_says_nothing_about_entries_that_are_no_numbers(self, kind, entry):
        rows, targets = ROWS.astype(object), TARGETS.astype(object)
        rows[3, 1], targets[7] = entry, entry
        assert np.isfinite(within().release(kind(rows), kind(targets))).all()

    def test_says_nothing_about_masked_entries(self):
        masked = np.ma.masked_array(ROWS, mask=ROWS[3, 1] == ROWS)
        assert np.isfinite(within().release(masked, TARGETS)).all()

    def test_shows_nothing_of_the_data(self):
        assert "0x" not in repr(within())
        assert repr(within()) == repr(within())


def fitted(posterior):
    return lambda data: posterior.release(data[:, :-1], data[:, -1])


DATA = np.column_stack([ROWS, TARGETS])


class TestReplay:
    @pytest.mark.parametrize("adjacency", ["zero_out", "replace"])
    def test_passes(self, adjacency):
        neighbour = DATA.copy()
        neighbour[5] = 0.0 if adjacency == "zero_out" else [1.5, -1.0, 3.0]
        posterior = within(adjacency=adjacency)
        result = replay(fitted(posterior), DATA, neighbour, claim=posterior.loss)
        assert result.passed, str(result)
        assert result.exercised

    def test_finds_preparations_that_look_at_all_records(self):
        def scaled(data):
            return within().release(data[:, :-1] / np.abs(data[:, :-1]).max(), data[:, -1])

        data = np.full((20, 3), 0.5)
        neighbour = data.copy()
        neighbour[5, 0] = 8.0
        assert not replay(scaled, data, neighbour).passed

    def test_finds_a_ridge_from_the_data(self):
        def tuned(data):
            ridge = 2_000.0 + float(np.abs(data).sum())
            return within(ridge=ridge).release(data[:, :-1], data[:, -1])

        neighbour = DATA.copy()
        neighbour[5] = 0.0
        assert not replay(tuned, DATA, neighbour).passed


class TestAudit:
    """Evidence from runs against the loss that is claimed, and against the one that was printed."""

    @staticmethod
    def audited(precision, claimed, most_runs=400):
        posterior = RidgePosterior(
            row_clip=1.0, target_clip=1.0, ridge=1.0, precision=precision, records=3
        )
        sides = [([[1.0]] * 2, [-1.0] * 2), ([[1.0]] * 3, [-1.0, -1.0, 1.0])]

        def run(with_canary, seed):
            return posterior.release(*sides[with_canary], SeededForExperiments(seed)).tolist()

        loss = claimed.loss if claimed else posterior.loss
        return refute_training(run, claimed=loss, delta=0.05, most_runs=most_runs, seed=3).passed

    def test_finds_nothing(self):
        assert self.audited(0.3, None, most_runs=30)

    @pytest.mark.slow
    def test_finds_nothing_in_many_runs(self):
        assert self.audited(0.3, None, most_runs=2_000)

    def test_finds_a_loss_of_less_noise(self):
        small = RidgePosterior(row_clip=1.0, target_clip=1.0, ridge=50.0, precision=0.3, records=3)
        assert not self.audited(20.0, small, most_runs=2_000)


class TestBudgets:
    @pytest.mark.parametrize("adjacency", list(map(Adjacency, ("add_remove", "replace"))))
    @pytest.mark.parametrize("epsilon", [0.1, 3.0])
    def test_of_bounds_and_sample_keep_the_whole(self, adjacency, epsilon):
        spent = budget(epsilon, 1e-6, adjacency, 2)
        bounds = 2 * gaussian(spent.sigma, adjacency=adjacency)
        sample = approximate(spent.epsilon, spent.delta, adjacency=adjacency)
        assert (bounds + sample).delta(epsilon) + spent.failure <= 1e-6

    def test_of_a_search_keep_the_whole(self):
        epsilon = 0.7
        spent = search_budget(epsilon, 1e-6, Adjacency.ADD_REMOVE)
        whole = gaussian(spent.eigenvalue.sigma) + best_of(spent.cost, spent.trials)
        assert whole.delta(epsilon) + spent.eigenvalue.failure <= 1e-6
        run = gaussian(spent.run.sigma)
        level = spent.cost.terms[0][0].delta - spent.run.failure - spent.run.delta
        rest = spent.cost.terms[0][0].epsilon - spent.run.epsilon
        assert run.delta(rest) > level  # composed tightly, not added up

    def test_ridge_of_the_adaptive_method_leaves_a_precision(self):
        for adjacency in (Adjacency.ADD_REMOVE, Adjacency.REPLACE):
            for epsilon in (0.01, 3.0):
                spent = budget(epsilon, 1e-6, adjacency, 2)
                for least in (0.0, 50.0, 1e7):
                    ridge = adaptive_ridge(5, least, spent, adjacency)
                    at = {"epsilon": spent.epsilon, "delta": spent.delta, "relation": adjacency}
                    assert largest_precision(1 / (ridge + least), 1.0, **at) is not None

    def test_growth_has_a_limit(self):
        at = {"epsilon": 1.0, "delta": 1e-6, "relation": Adjacency.ADD_REMOVE}
        limit = largest_growth(**at)
        assert largest_precision(limit, 1.0, **at) is not None
        assert largest_precision(limit * 1.001, 1.0, **at) is None
        with pytest.raises(InfeasibleBudget, match="raise either"):
            largest_growth(epsilon=1.0, delta=1e-28, relation=Adjacency.ADD_REMOVE)
        assert largest_precision(limit, 1e4, **at) is None
