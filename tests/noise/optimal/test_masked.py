"""The least noise for twice sampling in blocks, against reference values and other solvers."""

import math

import numpy as np
import pytest
from hypothesis import example, given, settings
from hypothesis import strategies as st
from scipy.optimize import minimize

from taut._base.worst_record import vertex
from taut.accounting._engines.lattice_engine import LatticeEngine
from taut.errors import InfeasibleBudget
from taut.noise import optimal_masked_noise
from taut.noise._optimal.masked import MaskedBlocks
from taut.noise._optimal.masked_curve import MaskedCurve


def blocks(ranks, l2, spreads, record_rate=0.1, rate=0.5, steps=1, weights=None):
    linf = tuple(c / math.sqrt(d) for c, d in zip(l2, spreads, strict=True))
    return MaskedBlocks(
        tuple(ranks), tuple(l2), linf, record_rate, rate, steps, tuple(ranks),
        (1.0,) * len(ranks) if weights is None else tuple(weights),
    )  # fmt: skip


THREE = blocks((50, 200, 750), (1.0, 0.6, 0.3), (4, 16, 64))


class TestAtOneOrder:
    def test_geo_25(self):
        """Variances and totals of the reference, found there by SLSQP and checked by KKT."""
        scales = THREE.at_order(6, 0.05)
        expected = [1.52774544, 0.41101354, 0.10200929]
        np.testing.assert_allclose(scales**2, expected, rtol=1e-5)
        assert THREE.total(scales) == pytest.approx(235.09694332, rel=1e-8)

    def test_the_constraint_is_met_by_the_accountant(self):
        scales = THREE.at_order(6, 0.05)
        assert THREE.loss(tuple(scales)).rdp(6.0) == pytest.approx(0.05, rel=1e-9)

    def test_stationary(self):
        """Every block pays the same total variance per unit of the constraint."""
        scales = THREE.at_order(6, 0.05)
        bounds = zip(THREE.l2, THREE.linf, THREE.dimensions, strict=True)
        curve = MaskedCurve(6, 0.1, 0.5, [vertex(*bound, 2.0) for bound in bounds])
        _, slopes = curve(2 * np.log(scales))
        prices = np.multiply(THREE.ranks, scales**2) / slopes
        np.testing.assert_allclose(prices, prices[0], rtol=1e-6)

    @settings(max_examples=20)
    @given(
        ranks=st.lists(st.integers(10, 400), min_size=2, max_size=3),
        spread=st.sampled_from([1.0, 4.0, 9.0]),
        order=st.integers(2, 12),
        divergence=st.floats(0.01, 2.0),
    )
    @example(ranks=[10, 10], spread=4.0, order=5, divergence=1.75)  # over a phase transition
    def test_no_other_solver_finds_less(self, ranks, spread, order, divergence):
        case = blocks(ranks, [1.0 / (1 + j) for j in range(len(ranks))], [spread] * len(ranks))
        bounds = zip(case.l2, case.linf, case.dimensions, strict=True)
        curve = MaskedCurve(order, 0.1, 0.5, [vertex(*bound, 2.0) for bound in bounds])
        target = (order - 1) * divergence
        scales = case.at_order(order, divergence)
        start = 2 * np.log(scales) + 0.3  # inside of the constraint
        other = minimize(
            lambda t: np.multiply(case.ranks, np.exp(t)).sum(),
            start,
            jac=lambda t: np.multiply(case.ranks, np.exp(t)),
            constraints={
                "type": "ineq",
                "fun": lambda t: 1 - curve(t)[0] / target,
                "jac": lambda t: -curve(t)[1] / target,
            },
            method="SLSQP",
            options={"maxiter": 300, "ftol": 1e-12},
        )
        if curve(other.x)[0] <= target * (1 + 1e-9):
            assert case.total(scales) <= other.fun * (1 + 1e-6)

    def test_without_masks_the_proportions_are_those_of_theorem_4_6(self):
        case = blocks((50, 200, 750), (1.0, 0.6, 0.3), (4, 16, 64), rate=1.0)
        scales = case.at_order(6, 0.05)
        ratio = scales / case.proportions
        np.testing.assert_allclose(ratio, ratio[0], rtol=1e-6)

    def test_slopes(self):
        curve = MaskedCurve(7, 0.2, 0.3, [vertex(1.0, 0.3, 50, 2.0), vertex(0.5, 0.1, 90, 2.0)])
        at = np.array([0.1, -0.7])
        _, slopes = curve(at)
        for j, unit in enumerate(1e-6 * np.eye(2)):
            numeric = (curve(at + unit)[0] - curve(at - unit)[0]) / 2e-6
            assert slopes[j] == pytest.approx(numeric, rel=1e-6)


class TestAtAPromise:
    @pytest.mark.slow
    def test_few_full_coordinates_gain_most(self):
        noise = optimal_masked_noise(
            [5, 1000], l2=[1.0, 0.2], linf=[1.0, 0.02], record_rate=0.1, coordinate_rate=0.25,
            steps=20, epsilon=4.0, delta=1e-5,
        )  # fmt: skip
        assert 4.0 * (1 - 2e-3) <= noise.loss.epsilon(1e-5) <= 4.0
        assert noise.total_variance < 0.97 * noise.proportional_variance

    def test_three_blocks_compose_few_lattices(self, monkeypatch):
        """The half that cannot decide is not composed."""
        composed = []
        compose = LatticeEngine._compose

        def counted(engine, window, step):
            composed.append(step)
            return compose(engine, window, step)

        monkeypatch.setattr(LatticeEngine, "_compose", counted)
        noise = optimal_masked_noise(
            [50, 200, 750], l2=[1.0, 0.5, 0.25], linf=[0.5, 0.1, 0.02], record_rate=0.05,
            coordinate_rate=0.25, steps=10, epsilon=5.855, delta=1e-6,
        )  # fmt: skip
        assert len(composed) < 40
        assert noise.scales == pytest.approx([0.507316429, 0.177236535, 0.0802343402], rel=1e-4)
        assert noise.total_variance == pytest.approx(23.9792179, rel=1e-4)
        assert 5.855 * (1 - 1e-3) <= noise.loss.epsilon(1e-6) <= 5.855

    def test_one_block(self):
        noise = optimal_masked_noise(
            [100], l2=[1.0], linf=[0.1], record_rate=0.1, coordinate_rate=0.5, epsilon=1.0,
            delta=1e-5,
        )  # fmt: skip
        assert noise.total_variance == noise.proportional_variance

    @pytest.mark.slow
    def test_weights_move_noise(self):
        arguments = {
            "l2": [1.0, 0.5], "linf": [0.5, 0.1], "record_rate": 0.1, "coordinate_rate": 0.5,
            "epsilon": 2.0, "delta": 1e-5,
        }  # fmt: skip
        even = optimal_masked_noise([20, 80], **arguments)
        tilted = optimal_masked_noise([20, 80], weights=[9.0, 1.0], **arguments)
        assert tilted.scales[0] < even.scales[0]
        assert tilted.scales[1] > even.scales[1]
        assert tilted.loss.epsilon(1e-5) <= 2.0

    def test_refusals(self):
        with pytest.raises(ValueError, match="one number for each of 2 blocks"):
            optimal_masked_noise(
                [1, 2], l2=[1.0], linf=[1.0], record_rate=0.1, coordinate_rate=0.5,
                epsilon=1.0, delta=1e-5,
            )  # fmt: skip
        with pytest.raises(InfeasibleBudget):
            optimal_masked_noise(
                [4], l2=[1.0], linf=[1.0], record_rate=0.1, coordinate_rate=0.5,
                epsilon=1.0, delta=0.0,
            )  # fmt: skip
