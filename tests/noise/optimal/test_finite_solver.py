"""The solver's covariance hides every vector, and its lower bound cannot be beaten."""

import math
import os
import subprocess
import sys

import numpy as np
import pytest
from scipy.optimize import minimize

from taut.noise._optimal.finite_solver import largest_quadratic, least_trace, least_worst, span_of


def vectors(seed, count=12, dimension=3):
    rng = np.random.default_rng(seed)
    return rng.normal(size=(count, dimension)) * rng.uniform(0.2, 3, size=dimension)


def general_solver(table, objective):
    """Minimise over Cholesky factors, scaled so that every vector is just hidden."""
    size = table.shape[1]
    rows, columns = np.tril_indices(size)

    def value(entries):
        factor = np.zeros((size, size))
        factor[rows, columns] = entries
        covariance = factor @ factor.T + 1e-12 * np.eye(size)
        return objective(covariance) * largest_quadratic(covariance, table)

    start = np.linalg.cholesky(np.cov(table.T) + np.eye(size))[rows, columns]
    for _ in range(4):
        options = {"xatol": 1e-10, "fatol": 1e-12, "maxiter": 20_000, "maxfev": 20_000}
        start = minimize(value, start, method="Nelder-Mead", options=options).x
    return value(start)


@pytest.mark.parametrize("seed", range(5))
def test_hides_every_vector_and_certifies_itself(seed):
    table = vectors(seed, 40, 7)
    found = least_trace(table)
    assert largest_quadratic(found.covariance, table) <= 1 + 1e-9
    assert found.value == pytest.approx(np.trace(found.covariance), rel=1e-12)
    assert 0 <= found.gap + 1e-12 < 1e-6


@pytest.mark.parametrize("seed", range(2))
def test_general_solver_finds_the_same_and_nothing_below_the_bound(seed):
    table = vectors(seed)
    found = least_trace(table)
    general = general_solver(table, np.trace)
    assert general >= found.lower_bound * (1 - 1e-9)
    assert general == pytest.approx(found.value, rel=1e-4)


def test_weighted_against_the_general_solver():
    table, weight = vectors(7), np.diag([1.0, 5.0, 0.3])
    found = least_trace(table, weight)
    general = general_solver(table, lambda c: float(np.trace(weight @ c)))
    assert largest_quadratic(found.covariance, table) <= 1 + 1e-9
    assert found.value == pytest.approx(np.trace(weight @ found.covariance), rel=1e-9)
    assert general >= found.lower_bound * (1 - 1e-9)
    assert general == pytest.approx(found.value, rel=1e-4)


def test_worst_coordinate_against_the_general_solver():
    table, costs = vectors(8), np.array([1.0, 2.0, 0.5])
    found = least_worst(table, np.eye(3), costs)
    general = general_solver(table, lambda c: float((costs * np.diag(c)).max()))
    assert largest_quadratic(found.covariance, table) <= 1 + 1e-9
    assert found.value == pytest.approx((costs * np.diag(found.covariance)).max(), rel=1e-9)
    assert general >= found.lower_bound * (1 - 1e-9)
    assert found.gap < 1e-4


def test_closed_forms_come_out():
    corners = np.array([[a, b, c] for a in (3, -3) for b in (1, -1) for c in (0.5, -0.5)])
    assert least_trace(corners).value == pytest.approx(4.5**2, rel=1e-6)
    assert least_trace(np.eye(4)).value == pytest.approx(4.0, rel=1e-6)


def test_sizes_far_apart():
    table = vectors(3, 30, 5) * np.array([1e4, 1.0, 1e-4, 10.0, 1.0])
    found = least_trace(table)
    assert largest_quadratic(found.covariance, table) <= 1 + 1e-6
    assert found.gap < 1e-6


def test_large_tables_go_without_newton(monkeypatch):
    monkeypatch.setattr("taut.noise._optimal.finite_solver._NEWTON_ENTRIES", 0)
    found = least_trace(vectors(1, 20, 4), tolerance=1e-3, steps=3000)
    assert found.gap < 1e-3
    short = least_trace(vectors(1, 20, 4), tolerance=1e-12, steps=5)
    assert short.steps == 5
    assert largest_quadratic(short.covariance, vectors(1, 20, 4)) <= 1 + 1e-9


def test_span():
    flat = np.array([[1.0, 2.0, 0.0], [2.0, 4.0, 0.0], [0.0, 1.0, 0.0]])
    assert span_of(flat).shape == (3, 2)


def test_two_hundred_vectors_in_dimension_fifty():
    code = """
import time, numpy as np
from taut.noise._optimal.finite_solver import least_trace
table = np.random.default_rng(0).normal(size=(200, 50))
start = time.process_time()
found = least_trace(table)
print(found.gap, time.process_time() - start)
"""
    # One thread: the time that idle threads spin belongs to nobody.
    one_thread = {**os.environ, "OPENBLAS_NUM_THREADS": "1", "OMP_NUM_THREADS": "1"}
    run = subprocess.run(
        [sys.executable, "-c", code], capture_output=True, text=True, check=True, env=one_thread
    )
    gap, seconds = map(float, run.stdout.split())
    assert gap <= 1e-6
    assert seconds < 2
    assert math.isfinite(gap)


def test_sizes_eight_digits_apart():
    # Eigenvalues of the product of matrices would have no digit left here.
    table = np.random.default_rng(1).normal(size=(200, 50)) * np.logspace(-4, 4, 50)
    assert least_trace(table).gap < 1e-6
