"""Noise of coordinate descent, by numerical minimisation and by simulation."""

import numpy as np
import pytest
from scipy.optimize import minimize

from taut.accounting import Adjacency
from taut.estimators._descent.budget import Budget

CURVATURES = np.array([1.0, 30.0, 400.0, 5.0])
PASSES = 3


def errors(clips, noise):
    """Return the standard deviations of noise on coefficients."""
    mechanisms = Budget(1.0, 1e-6, 0.1, Adjacency.ADD_REMOVE).steps(
        clips, CURVATURES, PASSES, noise
    )
    return np.array([float(one.scales[0]) for one in mechanisms]) / CURVATURES


@pytest.mark.parametrize("power", [0.0, 0.5, 1.0])
@pytest.mark.parametrize("noise", ["curvature", "coefficient"])
def test_no_other_shares_of_the_budget_are_better(power, noise):
    """Shares of mu² as free numbers, from many starts."""
    clips = CURVATURES**power
    weights = CURVATURES if noise == "curvature" else np.ones(4)
    found = errors(clips, noise)
    mu_squared = Budget(1.0, 1e-6, 0.1, Adjacency.ADD_REMOVE).mu ** 2 * 0.9 / PASSES

    def cost(logits):
        shares = np.exp(logits) / np.exp(logits).sum()
        return np.log(weights @ ((clips / CURVATURES) ** 2 / (shares * mu_squared)))

    best = min(
        minimize(cost, start).fun for start in np.random.default_rng(0).standard_normal((5, 4))
    )
    assert np.log(weights @ found**2) == pytest.approx(best, abs=1e-6)


def test_cost_of_noise_in_a_quadratic_with_correlated_features():
    """Half of the sum of M sigma², by simulation: off-diagonal entries do not count."""
    random = np.random.default_rng(0)
    mixing = random.standard_normal((4, 4))
    hessian = mixing @ mixing.T
    root = np.sqrt(CURVATURES / np.diag(hessian))
    hessian *= np.outer(root, root)
    sigma = errors(np.sqrt(CURVATURES), "curvature")
    moved = sigma * random.standard_normal((40_000, 4))
    costs = np.einsum("ni,ij,nj->n", moved, hessian, moved) / 2
    assert costs.mean() == pytest.approx(CURVATURES @ sigma**2 / 2, rel=0.03)


@pytest.mark.parametrize("kind", ["curvature", "coefficient"])
def test_ratio_of_the_two_kinds(kind):
    roots = np.sqrt(CURVATURES)
    plain, paper = (errors(roots, noise) ** 2 for noise in ("curvature", "coefficient"))
    if kind == "curvature":
        printed = roots.sum() * (1 / roots).sum() / 16
        assert (CURVATURES @ paper) / (CURVATURES @ plain) == pytest.approx(printed)
    else:
        widths = 1 / roots
        assert plain.sum() / paper.sum() == pytest.approx(4 * (widths @ widths) / widths.sum() ** 2)
