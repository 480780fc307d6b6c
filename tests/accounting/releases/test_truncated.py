"""Tails of binomial distributions, in which a capped batch is paid for."""

from fractions import Fraction
from math import comb

import mpmath
import pytest

from taut.accounting import truncation_probability
from taut.accounting._releases.truncated import _at_most, _more_than

DIGITS = 1e-10  # a tenth of the error that losses allow for


def terms(count, trials, rate, step):
    """Yield the probabilities of ``count`` successes, and of more or fewer, to forty digits."""
    with mpmath.workdps(40):
        p = mpmath.mpf(rate)
        term = mpmath.binomial(trials, count) * p**count * (1 - p) ** (trials - count)
        total = mpmath.mpf(0)
        while term > total * mpmath.mpf(10) ** -25:
            total += term
            if step > 0:
                term *= mpmath.mpf(trials - count) / (count + 1) * p / (1 - p)
            else:
                term *= mpmath.mpf(count) / (trials - count + 1) * (1 - p) / p
            count += step
        return total


@pytest.mark.parametrize(
    ("count", "trials", "rate"),
    [(28, 741077712, 5.937561218892265e-08), (160, 10_000, 0.01), (1300, 10**9, 1e-6)],
)
def test_tails_keep_their_digits_at_tiny_rates(count, trials, rate):
    assert float(_at_most(count, trials, rate) / terms(count, trials, rate, -1)) == pytest.approx(
        1, rel=DIGITS
    )
    above = terms(count + 1, trials, rate, 1)
    assert float(_more_than(count, trials, rate) / above) == pytest.approx(1, rel=DIGITS)


@pytest.mark.parametrize("cap", [1, 3, 7, 8, 9])
def test_probability_that_others_fill_a_batch(cap):
    rate = Fraction(1, 4)
    others = 7
    exact = sum(
        comb(others, k) * rate**k * (1 - rate) ** (others - k) for k in range(cap, others + 1)
    )
    found = truncation_probability(rate=0.25, cap=cap, population=others + 1)
    assert found == pytest.approx(float(exact), rel=1e-14, abs=0)
