"""Bugs that no single pair of runs shows: sparse vectors that never stop.

Loops of training with such mistakes are in tests/audit/attacks.
"""

import numpy as np

import taut
from taut.audit import audit_training

EPSILON, QUERIES = 1.0, 120
SIGNS = np.resize([1.0, -1.0], QUERIES)


def sparse_vector(with_record, seed, most):
    """Compare queries with a threshold, both with noise; stop after `most` that are above.

    What is returned is all that tells the record: answers for it minus answers against it.
    """
    draw = np.random.default_rng(seed)
    values = (
        np.resize([1.0, -1.0], QUERIES) * with_record
    )  # the record is for some, and against others
    threshold = draw.laplace(0.0, 2 / EPSILON)
    above = np.zeros(QUERIES)
    for i in range(QUERIES):
        above[i] = float(values[i] + draw.laplace(0.0, 4 / EPSILON) >= threshold)
        if above.sum() == most:
            break
    return np.array([above @ SIGNS])


def test_sparse_vector_without_an_end_is_found():
    """Lyu, Su and Li (2017), algorithm 6: what is above the threshold is never counted."""
    result = audit_training(
        lambda with_record, seed: sparse_vector(with_record, seed, most=QUERIES),
        claimed=taut.pure(EPSILON),
        delta=1e-3,
        trials=400,
        seed=1,
    )
    assert result.violations, str(result)


def test_sparse_vector_with_an_end_passes():
    result = audit_training(
        lambda with_record, seed: sparse_vector(with_record, seed, most=1),
        claimed=taut.pure(EPSILON),
        delta=1e-3,
        trials=400,
        seed=1,
    )
    assert result.passed, str(result)
