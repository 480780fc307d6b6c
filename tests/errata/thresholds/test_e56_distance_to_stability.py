"""Zhu (2023), section 7.2.1: non-negative queries do not cover the distance to stability."""

import numpy as np
import pytest
from adaptive.sparse_vector.adversaries import worst_divergence

from taut.adaptive import PrivateLabels, ScalarNoise, SparseVectorDesign

THRESHOLD, QUERY = ("gaussian", 4.0), ("gaussian", 2.0)
LEVEL = 40.0  # a distance below it counts as unstable


def bound(margin, order):
    noises = ScalarNoise(*THRESHOLD), ScalarNoise(*QUERY)
    design = SparseVectorDesign(*noises, 1.0, 2, "replace", margin=margin)
    return min(float(value[0]) for value in design.bounds(np.array([order])).values())


def test_the_model_of_non_negative_queries_is_broken_by_distances():
    # "Unstable" ends it: the query is minus the distance, and the threshold minus the level.
    order = 3.0
    worst = worst_divergence(
        np.random.default_rng(0),
        queries=4,
        tops=2,
        order=order,
        threshold=THRESHOLD,
        query=QUERY,
        sensitivity=1.0,
        climbs=150,
    )
    as_if_non_negative = bound(-LEVEL, order)
    with_the_least_value = bound(100.0 - LEVEL, order)  # of 200 teachers
    assert as_if_non_negative < worst < with_the_least_value


def test_labels_use_the_least_value():
    labels = PrivateLabels(
        200,
        points=50,
        unstable=2,
        threshold_noise=ScalarNoise(*THRESHOLD),
        query_noise=ScalarNoise(*QUERY),
        stability_delta=1e-6,
        adjacency="replace",
    )
    assert labels.design.margin == pytest.approx(100 - labels.distance, rel=1e-12)
