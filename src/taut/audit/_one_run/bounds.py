"""How many guesses of one run may be right: exact tests of an epsilon, and of a whole curve."""

from __future__ import annotations

import numpy as np
from numpy.typing import NDArray
from scipy.optimize import linprog
from scipy.sparse import csr_matrix, eye, hstack, vstack
from scipy.stats import binom

from taut.audit._attacks.claim import Claim

__all__ = ["curve_p_value", "epsilon_lower_bound", "epsilon_p_value"]

_MARGIN = 1e-6  # of a probability: ten times what the tolerance of the linear program can hide
_LARGEST = 50.0  # epsilon: no number of canaries that fits into a run refutes more
_STEPS = 60  # halvings of the interval, to the last digit of it


def epsilon_p_value(
    canaries: int, guesses: int, correct: int, epsilon: float, delta: float
) -> float:
    """Return the probability of so many right guesses or more, if a run is (epsilon, delta)-DP.

    Args:
        canaries: number m of canaries, each included by a fair coin.
        guesses: number r of canaries that were guessed about,
        correct: how many v of the guesses are right.
        epsilon: epsilon that is tested, at `delta`.
        delta: delta of the claim.

    **Guarantee**: an upper bound on that probability, whatever mechanism and guesses (Steinke,
    Nasr and Jagielski 2023, Theorem 5.2): with W binomial of r trials and success probability
    1 / (1 + exp(-epsilon)), P[W >= v] + 2 m delta max_i P[v > W >= v - i] / i.
    """
    accuracy = 1.0 / (1.0 + np.exp(-epsilon))
    least = float(binom.sf(correct - 1, guesses, accuracy))
    if not correct or not delta:
        return min(least, 1.0)
    below = np.cumsum(binom.pmf(np.arange(correct - 1, -1, -1), guesses, accuracy))
    worst = float((below / np.arange(1, correct + 1)).max())
    return min(least + 2 * canaries * delta * worst, 1.0)


def epsilon_lower_bound(
    canaries: int, guesses: int, correct: int, delta: float, failure: float
) -> float:
    """Return the largest epsilon that is refuted at `delta`, wrongly with at most `failure`."""
    low, high = 0.0, _LARGEST
    if epsilon_p_value(canaries, guesses, correct, 0.0, delta) >= failure:
        return 0.0
    for _ in range(_STEPS):
        middle = (low + high) / 2
        if epsilon_p_value(canaries, guesses, correct, middle, delta) < failure:
            low = middle
        else:
            high = middle
    return low


def curve_p_value(canaries: int, guesses: int, correct: int, claim: Claim) -> float:
    """Return an upper bound on the probability of so many right guesses, under a whole curve.

    Args:
        canaries: number m of canaries, each included by a fair coin.
        guesses: number r of canaries that are always guessed about,
        correct: how many of the guesses are right.
        claim: claim with all its pairs of epsilon and delta.

    **Guarantee**: with p_c the probability of c right guesses, every line a, b of the claim and
    every t satisfy sum_{c >= t} c p_c <= b m + a sum_{c >= t} (r - c + 1) p_{c-1} (Mahloujifar,
    Melis and Chaudhuri 2024; docs/theory/one-run.md). The answer is the largest tail that these
    inequalities allow, by linear programming, and a little more for its tolerance.
    """
    r, size = guesses, guesses + 1
    right, wrong = np.arange(1, r + 1), np.arange(r, 0, -1)
    # Beside p_0, ..., p_r the variables are both tail sums, so that all rows are sparse.
    falls = eye(r) - eye(r, k=1)
    first = hstack([csr_matrix((r, 1)), csr_matrix(np.diag(-right.astype(float)))])
    second = hstack([csr_matrix(np.diag(-wrong.astype(float))), csr_matrix((r, 1))])
    none = csr_matrix((r, r))
    one = hstack([csr_matrix(np.ones((1, size))), csr_matrix((1, 2 * r))])
    equal = vstack([hstack([first, falls, none]), hstack([second, none, falls]), one])
    target = np.concatenate([np.zeros(2 * r), [1.0]])
    lines = [(a, b) for a, b in zip(*claim.lines, strict=True) if b < 1 and a < 1e6]
    bounds = vstack([hstack([csr_matrix((r, size)), eye(r), -a * eye(r)]) for a, _ in lines])
    most = np.concatenate([np.full(r, b * canaries) for _, b in lines])
    gain: NDArray[np.float64] = np.zeros(size + 2 * r)
    gain[correct:size] = -1.0
    found = linprog(
        gain, bounds.tocsr(), most, equal.tocsr(), target, bounds=(0, None), method="highs"
    )
    if found.status != 0:
        return 1.0
    return min(float(-found.fun) + _MARGIN, 1.0)
