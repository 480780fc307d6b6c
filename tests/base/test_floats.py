"""The error that accounting allows for one number covers those of NumPy and SciPy."""

import mpmath as mp
import numpy as np
import pytest
from scipy.special import erfcx, gammaln, ndtr

from taut._base.floats import DOWN, RELATIVE_ERROR, UP
from taut.accounting._pairs.gaussian import tail_error

POINTS = np.random.default_rng(0).uniform(size=300)

FUNCTIONS = {
    "exp": (np.exp, mp.exp, 1400 * POINTS - 700),
    "log": (np.log, mp.log, np.exp(1400 * POINTS - 700)),
    "expm1": (np.expm1, mp.expm1, 20 * POINTS - 10),
    "log1p": (np.log1p, mp.log1p, 10 * POINTS - 0.99),
    "erfcx": (erfcx, lambda x: mp.exp(x * x) * mp.erfc(x), 53 * POINTS - 3),
    "gammaln": (gammaln, mp.loggamma, 3 + 1e5 * POINTS),
}


def errors(function, truth, points):
    """Return the relative errors of a function, by 50 digits."""
    with mp.workdps(50):
        exact = [truth(mp.mpf(x)) for x in points.tolist()]
        pairs = zip(function(points).tolist(), exact, strict=True)
        return np.array([float(abs((mp.mpf(value) - true) / true)) for value, true in pairs])


@pytest.mark.parametrize("name", FUNCTIONS)
def test_special_functions_are_within_half_of_the_error(name):
    assert errors(*FUNCTIONS[name]).max() <= RELATIVE_ERROR / 2


def test_normal_tails_are_within_an_error_that_grows_with_the_square():
    points = -37 * POINTS
    found = errors(ndtr, mp.ncdf, points)
    assert (found <= tail_error(points)).all()
    assert found.max() > 50 * RELATIVE_ERROR  # the plain error would not do


def test_factors_leave_the_error_on_both_sides():
    assert DOWN < 1 < UP
    assert pytest.approx(RELATIVE_ERROR) == UP - 1
    assert pytest.approx(RELATIVE_ERROR) == 1 - DOWN
