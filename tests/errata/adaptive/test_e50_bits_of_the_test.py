"""E50: with the bits as they are printed, exactly the data that violate the bound are released."""

import math

import pytest

from taut.adaptive import DistanceTest, ProposedMedian
from taut.adaptive._secret import reveal

EPSILON, DELTA, BOUND = 1.0, 0.05, 1.0
STEADY, MOVED = [0, 0, 8], [0, 8, 8]  # medians 0 and 8; the bound is violated at both


def printed_bit(distance):
    """Return the probability of the bit 1, on which the mechanism is run, as it is printed."""
    gap = math.log(1 / DELTA) - EPSILON * distance
    above = math.exp(-gap) / 2 if gap > 0 else 1 - math.exp(gap) / 2
    return 1 - above


def test_printed_bits_release_what_they_should_refuse():
    median = ProposedMedian(0, 8, BOUND, DistanceTest(EPSILON, DELTA, "replace"), EPSILON)
    assert [reveal(median.distance(data)) for data in (STEADY, MOVED)] == [0, 0]
    passes = printed_bit(0)
    assert passes == pytest.approx(1 - DELTA / 2)
    # Medians are 8 apart under noise of scale 1: all above 4 tells them apart.
    here, there = (passes * chance for chance in (math.exp(-4) / 2, 1 - math.exp(-4) / 2))
    assert there > math.exp(2 * EPSILON) * here + 15 * DELTA


def test_ours_passes_above_the_threshold():
    test = DistanceTest(EPSILON, DELTA, "replace")
    assert test.pass_probability(0) <= test.failure <= DELTA
    assert test.pass_probability(20) > 1 - 1e-6
