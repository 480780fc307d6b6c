import itertools

import numpy as np
import pytest
from scipy.optimize import check_grad

from taut.matrix import (
    DenseEncoder,
    MinimumSeparation,
    SingleParticipation,
    Workload,
    banded,
    banded_inverse,
    banded_toeplitz,
    buffered,
    errors,
    inverse_square_root,
    optimal_dense,
    sensitivity,
    square_root,
)
from taut.matrix._encoders.factorised import _banded_error
from taut.matrix._encoders.objective import ToeplitzObjective

SUMS = Workload(128)
MOMENTUM = Workload(128, momentum=0.9, weight_decay=0.01)
RULES = [SingleParticipation(), MinimumSeparation(16)]


def rms(encoder, workload, rule=RULES[0]):
    return errors(encoder, workload, rule).root_mean_square


@pytest.mark.parametrize("goal", ["root_mean_square", "maximum"])
@pytest.mark.parametrize("rule", [*RULES, MinimumSeparation(3, 2)])
def test_gradients_are_those_of_differences(rule, goal):
    workload = Workload(9, momentum=0.5)
    objective = ToeplitzObjective(workload, rule, goal)
    random = np.random.default_rng(3)
    series, inverse = (np.append(1.0, random.normal(size=8)) for _ in range(2))

    def by_series(c):
        return objective.value(c, inverse)[0]

    def by_inverse(u):
        return objective.value(series, u)[0]

    assert check_grad(by_series, lambda c: objective.value(c, inverse)[1], series) < 1e-5
    assert check_grad(by_inverse, lambda u: objective.value(series, u)[2], inverse) < 1e-5


def test_objective_is_the_logarithm_of_the_squared_error():
    encoder = square_root(SUMS, bands=16)
    for rule in RULES:
        objective = ToeplitzObjective(SUMS, rule, "root_mean_square")
        value, _, _ = objective.value(encoder.coefficients, encoder.inverse_coefficients)
        scale = 1 if rule is RULES[0] else 8  # orthogonal columns are counted once
        assert np.exp(value) * scale == pytest.approx(rms(encoder, SUMS, rule) ** 2)


@pytest.mark.parametrize("rule", RULES)
@pytest.mark.parametrize("workload", [SUMS, MOMENTUM])
def test_searches_improve_on_closed_forms(workload, rule):
    for bands in (2, 5, 16):
        root, inverse = square_root(workload, bands), inverse_square_root(workload, bands)
        assert rms(banded_toeplitz(workload, bands, rule), workload, rule) <= rms(
            root, workload, rule
        )
        assert rms(banded_inverse(workload, bands, rule), workload, rule) <= rms(
            inverse, workload, rule
        )
    assert rms(buffered(workload, 3, rule), workload, rule) < rms(
        square_root(workload), workload, rule
    )


@pytest.mark.parametrize(("buffers", "expected"), [(2, 3.0840), (3, 3.0587), (4, 3.0574)])
def test_buffers_reach_reference_values(buffers, expected):
    sums = Workload(1024)
    assert rms(buffered(sums, buffers), sums) <= expected * (1 + 1e-5)


def test_more_freedom_is_never_worse():
    bands = [rms(banded_toeplitz(SUMS, count), SUMS) for count in (1, 2, 4, 8, 16)]
    inverse = [rms(banded_inverse(SUMS, count), SUMS) for count in (1, 2, 4, 8, 16)]
    buffers = [rms(buffered(SUMS, count), SUMS) for count in (1, 2, 3)]
    for falling in (bands, inverse, buffers):
        assert falling == sorted(falling, reverse=True)
    assert rms(banded(SUMS, 8), SUMS) < bands[3]
    assert optimal_dense(SUMS).lower_bound < min(*bands, *inverse, *buffers)


def test_goal_is_what_becomes_small():
    mean = banded_toeplitz(SUMS, 4)
    worst = banded_toeplitz(SUMS, 4, goal="maximum")
    assert errors(worst, SUMS).maximum < errors(mean, SUMS).maximum
    assert errors(mean, SUMS).root_mean_square < errors(worst, SUMS).root_mean_square


def test_two_bands_are_the_best_lambda():
    best = banded_inverse(SUMS, 2).bands[1]
    tried = np.linspace(-0.999, 0.0, 400)
    from taut.matrix import lambda_cgd

    least = min(rms(lambda_cgd(128, -share), SUMS) for share in tried)
    assert rms(lambda_cgd(128, -best), SUMS) <= least


@pytest.mark.parametrize(
    "workload",
    [
        Workload(1),
        Workload(20),
        MOMENTUM,
        Workload(40, momentum=0.95, learning_rates=np.geomspace(1.0, 0.01, 40)),
    ],
)
def test_dense_optimum_has_a_certificate(workload):
    best = optimal_dense(workload)
    assert best.lower_bound <= best.root_mean_square <= best.lower_bound * (1 + 1e-8)
    assert rms(best.encoder, workload) == pytest.approx(best.root_mean_square, rel=1e-7)
    assert sensitivity(best.encoder).value <= 1 + 1e-9


def test_no_encoder_is_below_the_certificate():
    sums = Workload(6)
    bound = optimal_dense(sums).lower_bound
    random = np.random.default_rng(1)
    for _ in range(200):
        entries = np.tril(random.normal(size=(6, 6)), -1) + np.diag(random.uniform(0.3, 2, 6))
        assert rms(DenseEncoder(entries), sums) > bound


def test_banded_gradient_is_that_of_differences():
    answers = Workload(7, momentum=0.4).matrix()
    product = answers.T @ answers
    random = np.random.default_rng(5)
    inside = np.add.outer(np.arange(3), np.arange(7)) < 7
    start = random.uniform(0.5, 1.5, inside.sum())

    def table(values):
        full = np.zeros((3, 7))
        full[inside] = values
        return full

    assert (
        check_grad(
            lambda x: _banded_error(table(x), product)[0],
            lambda x: _banded_error(table(x), product)[1][inside],
            start,
        )
        < 1e-4
    )


def test_banded_columns_have_norm_one_and_learning_rates_count():
    workload = Workload(60, learning_rates=np.geomspace(1.0, 0.01, 60))
    encoder = banded(workload, 4)
    np.testing.assert_allclose(encoder.column_norms(), 1.0, rtol=1e-12)
    assert rms(encoder, workload) < rms(banded_toeplitz(workload, 4), workload)
    assert sensitivity(encoder, MinimumSeparation(4)).exact


@pytest.mark.parametrize(
    ("make", "message"),
    [
        (lambda: banded_toeplitz(SUMS, 300), "at most 256 to be searched"),
        (lambda: banded_inverse(SUMS, 0), "bands must be at least 1"),
        (lambda: buffered(SUMS, 9), "buffers must be at most 8"),
        (lambda: buffered(SUMS, 2, goal="least"), "goal must be 'root_mean_square' or 'maximum'"),
        (lambda: optimal_dense(Workload(5_000)), "dense methods serve up to 4096"),
        (lambda: banded(Workload(5_000), 4), "dense methods serve up to 4096"),
    ],
)
def test_bad_searches_are_refused(make, message):
    with pytest.raises(ValueError, match=message):
        make()


@pytest.mark.parametrize("steps", [1, 2, 3])
def test_tiny_workloads_have_optima(steps):
    sums = Workload(steps)
    for encoder in (banded(sums, 4), banded_toeplitz(sums, 4), banded_inverse(sums, 4)):
        assert rms(encoder, sums) <= rms(square_root(sums), sums) * (1 + 1e-9)
    assert buffered(sums, 2).steps == steps


def test_more_bands_are_never_worse_in_long_runs():
    """Long inverses overflow where a first step is too long; the search must not stop there."""
    sums = Workload(2048)
    found = [rms(banded_toeplitz(sums, bands), sums) for bands in (1, 2, 3, 4, 6, 8)]
    assert all(more < fewer - 0.5 for fewer, more in itertools.pairwise(found))
    assert found[3] == pytest.approx(16.2201, abs=1e-3)
