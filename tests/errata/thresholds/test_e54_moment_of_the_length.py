"""Zhu (2023), Proposition 7.2.5: the moment of the number of questions is larger than printed."""

import math

import pytest
from scipy import integrate, stats

from taut.adaptive import ScalarNoise, SparseVectorDesign
from taut.adaptive._sparse_vector.bounds import ORDERS
from taut.adaptive._sparse_vector.floored import Floored

S1, S2 = 1.0, math.sqrt(3)


def printed_moment(threshold):
    ratio = (threshold / S1) ** 2
    return 1 + 2 * math.sqrt(3) * math.pi * (1 + 9 * ratio) * math.exp(ratio)


def true_moment(threshold):
    """Return E[E[K | z]^2] for queries that are all zero: K is geometric given the threshold."""
    return integrate.quad(
        lambda z: stats.norm.pdf(z) * math.exp(-2 * stats.norm.logsf((threshold + z) / S2)),
        -12,
        30,
        limit=400,
    )[0]


def test_the_printed_moment_is_too_small():
    assert printed_moment(0.0) == pytest.approx(11.882796185405306)
    assert true_moment(0.0) == pytest.approx(12.964361602524075, rel=1e-7)
    assert printed_moment(0.0) < true_moment(0.0)
    assert printed_moment(0.3) < true_moment(0.3)
    assert printed_moment(0.5) > true_moment(0.5)


def test_what_is_shipped_is_above_the_truth():
    assert math.exp(Floored(S1, S2, 0.0).log_length_moment(2.0)) >= true_moment(0.0)
    noises = ScalarNoise("gaussian", S1), ScalarNoise("gaussian", S2)
    design = SparseVectorDesign(*noises, 1.0, 1, "replace", margin=0.0)
    bounds = design.bounds(ORDERS[ORDERS < 1000])  # beyond, slopes leave what is integrated
    assert (bounds["tail_ratio"] <= bounds["length"]).all()
