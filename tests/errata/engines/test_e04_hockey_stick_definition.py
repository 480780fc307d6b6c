"""E4: an expectation under Q does not see the mass of P where Q vanishes."""

import numpy as np

import taut


def test_printed_expectation_loses_the_failure_probability():
    delta, threshold = 0.01, np.exp(0.7)
    truth = (1 - delta) * np.exp(0.5) / (1 + np.exp(0.5))
    p = np.array([delta, truth, 1 - delta - truth, 0.0])
    q = p[::-1]
    shared = q > 0
    printed = (q[shared] * np.maximum(p[shared] / q[shared] - threshold, 0)).sum()
    correct = np.maximum(p - threshold * q, 0).sum()
    assert printed == 0
    assert np.isclose(correct, delta)
    assert np.isclose(taut.approximate(0.5, delta).profile(threshold), correct, rtol=1e-9)
    assert np.isclose(taut.finite(p, q).profile(threshold), correct, rtol=1e-9)
