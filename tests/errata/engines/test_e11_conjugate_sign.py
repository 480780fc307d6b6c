"""E11: the construction of a pair ends with the conjugate at 1 - x; it must be x - 1."""

import numpy as np

THRESHOLDS = np.linspace(0.0, 1e4, 2_000_001)


def conjugate(profile, y):
    return (y * THRESHOLDS - profile).max()


def test_trivial_profile_gives_a_distribution_only_with_the_sign_of_the_statement():
    trivial = np.maximum(1 - THRESHOLDS, 0.0)  # P = Q, so P must be uniform on [0, 1]
    for x in (0.1, 0.5, 0.9):
        assert np.isclose(1 + conjugate(trivial, x - 1), x)
        assert 1 + conjugate(trivial, 1 - x) > 500  # grows with the largest threshold tried


def test_statement_rebuilds_a_profile_with_an_atom():
    # h of (epsilon, delta)-DP: the CDF 1 + h*(x - 1) ends below one, the rest is the atom.
    threshold, delta = 2.0, 0.1
    slope = (1 - delta) / (1 + threshold)
    profile = np.maximum.reduce(
        [
            1 - (1 - delta) * THRESHOLDS,
            delta + slope * (threshold - THRESHOLDS),
            delta + 0 * THRESHOLDS,
        ]
    )
    x = 1 - 1e-9
    assert np.isclose(1 + conjugate(profile, x - 1), 1 - delta, atol=1e-4)
