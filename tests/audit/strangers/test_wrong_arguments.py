"""Arguments that hostile calls have found: each is refused in our words, or answered soundly."""

from fractions import Fraction

import numpy as np
import pytest

import taut
from taut import accounting, audit, matrix, noise
from taut.accounting import renyi

LOSS = taut.gaussian(1.0)
WORK, ENCODER = matrix.Workload(4), matrix.identity(4)


@pytest.mark.parametrize(
    ("call", "named"),
    [
        (lambda x: accounting.between(LOSS, LOSS, x, name="x"), "reached must be of class Privacy"),
        (lambda x: accounting.compare_mixing(x, 1e-5), "loss must be of class PrivacyLoss"),
        (lambda x: accounting.equal_compute_plan(x, 1e-5), "loss must be of class PrivacyLoss"),
        (accounting.samplers_of, "loss must be of class PrivacyLoss"),
        (lambda x: accounting.selection_routes(x, 1e-5), "loss must be of class PrivacyLoss"),
        (lambda x: accounting.best_of(LOSS, x), "trials must be a law"),
        (taut.to_dp_event, "loss must be of class PrivacyLoss"),
        (lambda x: audit.audit_mechanism(x, delta=0.1), "game must be of class MechanismGame"),
        (lambda x: audit.simulated_epsilon(x, delta=0.1), "game must be of class MechanismGame"),
        (lambda x: audit.Exposure([1], 9).most_found(x), "loss must be of class PrivacyLoss"),
        (matrix.sensitivity, "encoder must be of class Encoder"),
        (lambda x: matrix.errors(ENCODER, x), "workload must be of class Workload"),
        (matrix.square_root, "workload must be of class Workload"),
        (lambda x: matrix.inverse_square_root(x, 2), "workload must be of class Workload"),
        (lambda x: matrix.banded_toeplitz(WORK, 2, x), "participation must be of class Partic"),
        (lambda x: matrix.banded_inverse(x, 2), "workload must be of class Workload"),
        (matrix.buffered, "workload must be of class Workload"),
        (matrix.optimal_dense, "workload must be of class Workload"),
        (lambda x: matrix.banded(x, 2), "workload must be of class Workload"),
        (lambda x: matrix.unamplified_loss(ENCODER, x, 1.0), "participation must be of class"),
        (noise.CentredRanges, "ranges must be of class Ranges"),
    ],
)
@pytest.mark.parametrize("wrong", [None, float("nan"), [1.0], np.array([1.0, 2.0])])
def test_another_class_is_refused_without_showing_what_is_in_it(call, named, wrong):
    with pytest.raises(TypeError, match=named):
        call(wrong)


@pytest.mark.parametrize("tolerance", [10**400, -1.0, float("nan"), "x"])
def test_a_tolerance_that_is_none_is_refused(tolerance):
    with pytest.raises(ValueError, match="tolerance must be"):
        noise.L2Ball(1, 1.0).contains([0.5], tolerance)


def test_a_basis_that_is_no_matrix_is_refused():
    with pytest.raises(ValueError, match="basis"):
        noise.geometry.low_rank_project([[1.0]], 1.0)


def test_rates_and_sigmas_must_fit_together():
    with pytest.raises(ValueError, match="must broadcast"):
        renyi.sampled_gaussian([0.1, 0.2], [1.0, 2.0, 3.0], 8)


def test_an_error_beyond_doubles_is_infinite_without_a_warning():
    assert accounting.diagnostics.sampled_mean_error([[1e200]], 0.5) == np.inf


@pytest.mark.parametrize("number", [np.float32(0.5), Fraction(1, 2), np.longdouble(0.5)])
def test_numbers_of_other_libraries_count_as_the_same_float(number):
    assert taut.laplace(number) == taut.laplace(0.5)
    assert taut.laplace(number).epsilon(0.0) == taut.laplace(0.5).epsilon(0.0)
    assert taut.PrivacyLoss.from_json(taut.laplace(number).to_json()) == taut.laplace(0.5)


@pytest.mark.parametrize(
    ("call", "message"),
    [
        (lambda: renyi.pearson_vajda_laplace(1.0, 2**53), "at most 5000"),
        (lambda: renyi.pearson_vajda_gaussian(1e-300, 4), "divergences exceed all numbers"),
        (lambda: accounting.screening_rdp(2**31, 1.0, 1.0, [2.0]), "k must be at most"),
        (lambda: accounting.screening_rdp(2, 1.0, 1.0, 10**400), "orders must be"),
        (lambda: noise.clipping.row_norms([[1.0]], 10**400), "within the range of floats"),
        (lambda: noise.geometry.estimate_kappa([[1j]], provenance="public"), "real numbers"),
        (
            lambda: noise.geometry.one_step(
                np.eye(2), 3, rate=0.1, multiplier=1.0, provenance="public"
            ),
            "mechanisms must be of class Mapping",
        ),
        (lambda: accounting.IndividualFilter(1.0, size=2).charge([None, 1.0]), "real numbers"),
        (
            lambda: accounting.diagnostics.data_dependent_gnmax([3, 1], 1.0, 10**400),
            "orders must be",
        ),
    ],
)
def test_hostile_numbers_are_refused_without_work(call, message):
    with pytest.raises(ValueError, match=message):
        call()


def test_a_rate_near_zero_makes_an_infinite_error():
    assert accounting.diagnostics.sampled_mean_error([[1e3]], 2.2e-308) == np.inf
