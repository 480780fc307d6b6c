import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from taut.matrix import Workload


def by_definition(workload):
    n, rates = workload.steps, workload.rates
    ages = np.subtract.outer(np.arange(n), np.arange(n))
    decay = np.where(ages >= 0, (1 - workload.weight_decay) ** np.maximum(ages, 0), 0.0)
    momentum = np.where(ages >= 0, workload.momentum ** np.maximum(ages, 0), 0.0)
    return decay @ np.diag(rates) @ momentum


@given(
    st.integers(1, 12),
    st.floats(0, 0.99),
    st.floats(0, 0.5),
    st.booleans(),
)
def test_matrix_is_the_product_of_its_parts(steps, momentum, decay, schedule):
    rates = np.linspace(1.0, 0.1, steps) if schedule else None
    workload = Workload(steps, momentum, decay, rates)
    np.testing.assert_allclose(workload.matrix(), by_definition(workload), rtol=1e-12, atol=1e-15)


def test_prefix_sums_are_the_default():
    np.testing.assert_array_equal(Workload(4).matrix(), np.tri(4))


@pytest.mark.parametrize("workload", [Workload(9), Workload(9, 0.9), Workload(9, 0.5, 0.1)])
def test_root_squared_is_the_workload(workload):
    root = workload.root_coefficients()
    np.testing.assert_allclose(
        np.convolve(root, root)[:9], workload.matrix()[:, 0], rtol=1e-13, atol=0
    )
    inverse = workload.root_coefficients(inverse=True)
    np.testing.assert_allclose(np.convolve(root, inverse)[:9], np.eye(9)[0], atol=1e-13)


def test_root_of_momentum_has_published_coefficients():
    assert Workload(3, momentum=0.9).root_coefficients() == pytest.approx([1, 0.95, 0.90375])


def test_equal_rates_are_toeplitz():
    assert Workload(3, learning_rates=[0.1] * 3).is_toeplitz
    assert not Workload(3, learning_rates=[0.1, 0.1, 0.2]).is_toeplitz


def test_workload_is_a_value():
    assert Workload(2, learning_rates=np.ones(2)) == Workload(2, learning_rates=[1.0, 1.0])
    assert hash(Workload(2, learning_rates=[1, 1])) == hash(Workload(2, learning_rates=[1.0, 1.0]))


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        ({"steps": 0}, "steps must be at least 1"),
        ({"steps": 3, "momentum": 1.0}, "momentum must be in"),
        ({"steps": 3, "weight_decay": -0.1}, "weight_decay must be in"),
        ({"steps": 3, "learning_rates": [1.0, 2.0]}, "3 positive numbers, one per step"),
        ({"steps": 2, "learning_rates": [1.0, 0.0]}, "2 positive numbers, .* with others in it"),
        ({"steps": 2, "learning_rates": [1.0, np.nan]}, "2 positive numbers"),
    ],
)
def test_bad_workloads_are_refused(arguments, message):
    with pytest.raises(ValueError, match=message):
        Workload(**arguments)


def test_inputs_must_have_a_row_per_step():
    with pytest.raises(ValueError, match="inputs must have 3 rows"):
        Workload(3).accumulated(np.ones((2, 2)))


def test_large_matrix_is_refused():
    with pytest.raises(
        ValueError, match=r"would take 1 gigabytes.*Use an encoder with a structure"
    ):
        Workload(5000).matrix()
