"""The least Gaussian noise for finitely many vectors, with a certified gap.

The problem: the covariance C of least tr(W C) with sᵀ C⁻¹ s <= 1 for all given s. Its dual is the
largest tr((Lᵀ M L)^½)², W = L Lᵀ, over M = sum of w_s s sᵀ with weights w that sum to one. Any
weights give both a feasible covariance and a lower bound, so that a poor search costs noise, never
privacy, and the gap between the two is proof. The derivation is in docs/theory/gaussian-noise.md.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from taut._base.arrays import Matrix, Vector

__all__ = ["Solution", "largest_quadratic", "least_trace", "least_worst", "span_of", "step_within"]

_RANK_ERROR = 1e-12  # of the largest size: a decomposition errs by some 1e-15, times the dimension
_FIRST_STEPS = 10  # multiplicative, before Newton's method: near enough for it to converge
_NEWTON_ENTRIES = 30_000_000  # numbers in the table of a Newton step: 240 MB
_INTERIOR_STEPS = 60  # the target falls to a tenth in each; the gap is checked, not assumed
_LEAST_SIZE = 1e-300  # stands for the size of a direction without weight; roots of it are floats
_SQUARED_ERROR = 1e-9  # ratio of smallest to largest size below which products lose digits of it


@dataclass(frozen=True)
class Solution:
    """A covariance that hides all vectors, and what is proven about it.

    Attributes:
        covariance: the covariance for unit noise: the largest sᵀ C⁻¹ s is one.
        value: its objective.
        lower_bound: no covariance that hides the vectors has an objective below this.
        weights: on which vectors the proof rests.
        steps: how many steps the search took.
    """

    covariance: Matrix
    value: float
    lower_bound: float
    weights: Vector
    steps: int

    @property
    def gap(self) -> float:
        """By how much the objective can be above the least, relative to it."""
        return self.value / self.lower_bound - 1


def span_of(vectors: Matrix) -> Matrix:
    """Return an orthonormal basis of the span, as columns.

    What is left out is below 1e-12 of the longest direction, and a release has nothing of it.
    """
    _, sizes, right = np.linalg.svd(vectors, full_matrices=False)
    rank = int(np.count_nonzero(sizes > _RANK_ERROR * sizes[0]))
    basis: Matrix = np.ascontiguousarray(right[:rank].T)
    return basis


def least_trace(
    vectors: Matrix, weight: Matrix | None = None, *, tolerance: float = 1e-7, steps: int = 5000
) -> Solution:
    """Find the covariance of least tr(W C) that hides all vectors, which must span the space.

    Multiplicative steps w <- w g / sum(w g), with g_s = sᵀ (M^-½) s, approach the solution; an
    interior-point method on the weights finishes, if its tables fit into memory.

    Args:
        vectors: one per row, in coordinates of their span.
        weight: the positive definite W; the identity if left out.
        tolerance: the relative gap at which the search ends.
        steps: how many multiplicative steps at most.
    """
    lower: Matrix | None = None
    if weight is not None:
        lower = np.asarray(np.linalg.cholesky(weight), dtype=np.float64)
    scaled = vectors if lower is None else vectors @ lower
    scale = float(np.abs(scaled).max())
    weights, taken = _search(scaled / scale, tolerance, steps)
    return _solution(scaled, lower, weights, taken)


def least_worst(
    vectors: Matrix,
    span: Matrix,
    costs: Vector,
    *,
    tolerance: float = 1e-4,
    steps: int = 3000,
) -> Solution:
    """Find the covariance whose largest cost_i C_ii is least, among those that hide all vectors.

    The largest is a maximum over mixtures of the coordinates, and the dual is jointly concave in
    the weights of vectors and of coordinates (it is a fidelity), so both move together.

    Args:
        vectors: one per row, in coordinates of their span.
        span: the orthonormal basis of it; C_ii is measured in the space around.
        costs: positive factors of the coordinates.
        tolerance: the relative gap at which the search ends.
        steps: how many steps at most.
    """
    table = span * np.sqrt(costs)[:, None]
    mixture = np.full(len(span), 1.0 / len(span))
    weights = np.full(len(vectors), 1.0 / len(vectors))
    best: Solution | None = None
    for step in range(1, steps + 1):
        lower = np.linalg.cholesky((table * mixture[:, None]).T @ table)
        scaled = vectors @ lower
        gains, root = _gains(scaled, weights)
        found = _solution(scaled, lower, weights, step)
        diagonal = np.einsum("ij,jk,ik->i", table, found.covariance, table, optimize=True)
        found = Solution(found.covariance, float(diagonal.max()), found.lower_bound, weights, step)
        if best is None or found.gap < best.gap:
            best = found
        if best.gap < tolerance:
            break
        weights = _normalised(weights * gains / root)
        mixture = _normalised(mixture * diagonal)
    assert best is not None
    return best


def _search(vectors: Matrix, tolerance: float, steps: int) -> tuple[Vector, int]:
    """Return weights whose gap is below the tolerance, or the best that were found."""
    weights = np.full(len(vectors), 1.0 / len(vectors))
    newton = len(vectors) * vectors.shape[1] ** 2 <= _NEWTON_ENTRIES
    for step in range(1, steps + 1):
        gains, root = _gains(vectors, weights)
        if gains.max() / root - 1 < tolerance:
            return weights, step
        if newton and step >= _FIRST_STEPS:
            refined, taken = _interior_point(vectors, weights * root, tolerance)
            if _gap(vectors, refined) < tolerance:
                return _normalised(refined), step + taken
            newton = False
        weights = _normalised(weights * gains / root)
    return weights, steps


def _gains(vectors: Matrix, weights: Vector) -> tuple[Vector, float]:
    """Return sᵀ M^-½ s for every vector, and tr M^½."""
    sizes, turn = _eigen(vectors, weights)
    rotated = vectors @ turn
    return (rotated**2) @ (1 / np.sqrt(sizes)), float(np.sqrt(sizes).sum())


def _gap(vectors: Matrix, weights: Vector) -> float:
    gains, root = _gains(vectors, _normalised(weights))
    return float(gains.max()) / root - 1


def _eigen(vectors: Matrix, weights: Vector) -> tuple[Vector, Matrix]:
    sizes, turn = np.linalg.eigh((vectors * weights[:, None]).T @ vectors)
    if sizes[0] < _SQUARED_ERROR * sizes[-1]:
        # A product of matrices loses the small sizes; singular values keep twice the digits.
        _, roots, right = np.linalg.svd(vectors * np.sqrt(weights)[:, None], full_matrices=False)
        sizes, turn = np.square(roots[::-1]), np.ascontiguousarray(right[::-1].T)
    # Squares of rounding errors: directions so thin count as nothing, and are not divided by.
    return np.maximum(sizes, max(float(sizes[-1]) * 1e-30, _LEAST_SIZE)), turn


def _normalised(weights: Vector) -> Vector:
    lifted = np.maximum(weights, 1e-18 * float(weights.max()))  # zero could never come back
    result: Vector = lifted / lifted.sum()
    return result


def _interior_point(vectors: Matrix, weights: Vector, tolerance: float) -> tuple[Vector, int]:
    """Maximise 2 tr M^½ - sum(w) over w >= 0, whose solution is a multiple of the weights.

    Newton's method on: slack_s = 1 - g_s(w) >= 0, w_s slack_s = a target that falls until a
    solution for it is well within the tolerance, and no further: the system would degenerate
    before its curvature is followed.
    """
    slack = np.full(len(weights), 0.1)
    for step in range(1, _INTERIOR_STEPS + 1):
        gains, bend = _gains_and_bend(vectors, weights)
        if _gap(vectors, weights) < tolerance:
            return weights, step
        enough = 0.05 * tolerance * float(weights.sum())
        target = max(0.1 * float(weights @ slack), enough) / len(weights)
        # Scaled by the root of w / slack the system is the identity plus something positive.
        scale = np.sqrt(weights / slack)
        system = bend * scale[:, None] * scale
        system[np.diag_indices_from(system)] += 1.0
        move = scale * np.linalg.solve(system, scale * (target / weights - 1 + gains))
        slack_move = target / weights - slack - slack * move / weights
        weights = weights + step_within(weights, move) * move
        slack = slack + step_within(slack, slack_move) * slack_move
    return weights, _INTERIOR_STEPS


def _gains_and_bend(vectors: Matrix, weights: Vector) -> tuple[Vector, Matrix]:
    """Return g and minus its derivative, from divided differences of the inverse root."""
    sizes, turn = _eigen(vectors, weights)
    rotated, roots = vectors @ turn, np.sqrt(sizes)
    spread = 1 / np.sqrt(roots[:, None] * roots * (roots[:, None] + roots))
    products = (rotated[:, :, None] * rotated[:, None, :] * spread).reshape(len(vectors), -1)
    return (rotated**2) @ (1 / roots), products @ products.T


def step_within(point: Vector, move: Vector) -> float:
    """Return how far to go along a move without leaving the positive numbers."""
    falling = move < 0
    if not falling.any():
        return 1.0
    return min(1.0, 0.99 * float(np.min(-point[falling] / move[falling])))


def _solution(scaled: Matrix, lower: Matrix | None, weights: Vector, steps: int) -> Solution:
    """Turn weights into a covariance, measured against every vector by a factorisation of it."""
    sizes, turn = _eigen(scaled, weights)
    root: Matrix = (turn * np.sqrt(sizes)) @ turn.T
    worst = largest_quadratic(root, scaled)
    covariance = root * worst
    value = float(np.trace(covariance))
    bound = float(np.sqrt(sizes).sum()) ** 2
    if lower is not None:
        inverse = np.linalg.inv(lower)
        covariance = inverse.T @ covariance @ inverse
    return Solution((covariance + covariance.T) / 2, value, bound, weights, steps)


def largest_quadratic(covariance: Matrix, vectors: Matrix) -> float:
    """Return the largest sᵀ C⁻¹ s, by a triangular factorisation."""
    factor = np.linalg.cholesky(covariance)
    whitened = np.linalg.solve(factor, vectors.T)
    return float(np.sum(whitened**2, axis=0).max())
