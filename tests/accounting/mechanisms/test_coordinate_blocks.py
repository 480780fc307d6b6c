"""Twice sampling in blocks, against enumeration of masks, quadrature and the case of one block."""

import itertools
import math

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from oracles.divergences import gridded_divergence

import taut
from taut.accounting._adjacency import Half
from taut.accounting._mechanisms.coordinate_blocks import TwiceSampledBlocks
from taut.accounting._mechanisms.coordinates import Coordinatewise, TwiceSampled
from taut.errors import UnsoundConfiguration

ORDERS = np.array([2.0, 3.0, 4.0, 7.0, 16.0, 33.5])
STEP = 0.25
THREE = {"clips": [1.0, 0.6, 0.3], "clip_infs": [0.5, 0.15, 0.0375], "dimensions": [50, 200, 750]}


def mixture(points, weights_and_centres):
    logs = [
        math.log(weight) - ((points - np.array(centre)[:, None]) ** 2).sum(axis=0) / 2
        for weight, centre in weights_and_centres
        if weight > 0
    ]
    return np.logaddexp.reduce(logs, axis=0) - len(points) / 2 * math.log(2 * math.pi)


def twice(row, record_rate, rate):
    parts = [(1 - record_rate, np.zeros(len(row)))]
    for mask in itertools.product((0, 1), repeat=len(row)):
        kept = sum(mask)
        parts.append(
            (record_rate * rate**kept * (1 - rate) ** (len(row) - kept), np.array(row) * mask)
        )
    return parts


class TestAgainstQuadrature:
    @settings(max_examples=25)
    @given(
        shifts=st.tuples(st.floats(0.1, 1.8), st.floats(0.1, 1.8)),
        sigmas=st.tuples(st.floats(0.3, 3.0), st.floats(0.3, 3.0)),
        record_rate=st.floats(0.05, 1.0),
        rate=st.floats(0.05, 1.0),
        order=st.integers(2, 7),
    )
    def test_two_blocks_of_one_coordinate(self, shifts, sigmas, record_rate, rate, order):
        clips = tuple(shift * sigma for shift, sigma in zip(shifts, sigmas, strict=True))
        release = TwiceSampledBlocks(record_rate, rate, sigmas, clips, clips, (1, 1))
        axis = np.arange(-9.0, order * max(shifts) + 9.0, STEP)
        points = np.array([part.ravel() for part in np.meshgrid(axis, axis, indexing="ij")])
        present = mixture(points, twice(shifts, record_rate, rate))
        absent = mixture(points, [(1.0, np.zeros(2))])
        forward = gridded_divergence(present, absent, order, STEP**2)
        found = float(release.renyi(Half.REMOVE, np.array([float(order)]))[0])
        assert found == pytest.approx(forward, rel=1e-9, abs=1e-13)
        reverse = gridded_divergence(absent, present, order, STEP**2)
        back = float(release.renyi(Half.ADD, np.array([float(order)]))[0])
        assert reverse <= back * (1 + 1e-10) + 1e-14

    @pytest.mark.parametrize("order", [2, 3, 5])
    def test_a_block_of_two_and_one_of_one(self, order):
        # The first block holds two coordinates at their bound, the second one at its own.
        release = TwiceSampledBlocks(
            0.3, 0.4, (1.0, 2.0), (0.8 * math.sqrt(2), 2.2), (0.8, 2.2), (2, 1)
        )
        axis = np.arange(-8.0, order * 1.1 + 8.0, STEP)
        points = np.array([p.ravel() for p in np.meshgrid(axis, axis, axis, indexing="ij")])
        present = mixture(points, twice((0.8, 0.8, 1.1), 0.3, 0.4))
        absent = mixture(points, [(1.0, np.zeros(3))])
        found = float(release.renyi(Half.REMOVE, np.array([float(order)]))[0])
        assert found == pytest.approx(gridded_divergence(present, absent, order, STEP**3), rel=1e-8)


class TestIdentities:
    @pytest.mark.parametrize("clip_inf", [1.0, 0.5, 0.3, 0.1])
    def test_one_block(self, clip_inf):
        one = TwiceSampled(0.1, 0.5, 0.7, 1.0, clip_inf, 1000, 2.0)
        same = TwiceSampledBlocks(0.1, 0.5, (0.7,), (1.0,), (clip_inf,), (1000,))
        expected = one.renyi(Half.REMOVE, ORDERS)
        np.testing.assert_allclose(same.renyi(Half.REMOVE, ORDERS), expected, rtol=1e-12)
        assert same.multiplier == pytest.approx(one.multiplier, rel=1e-12)

    def test_a_ball_cut_in_equal_blocks_of_full_coordinates(self):
        """Four blocks that hold 25 full coordinates each are one block that holds 100."""
        whole = TwiceSampled(0.05, 0.25, 0.6, 1.0, 0.1, 10_000, 2.0)
        parts = TwiceSampledBlocks(0.05, 0.25, (0.6,) * 4, (0.5,) * 4, (0.1,) * 4, (2500,) * 4)
        np.testing.assert_allclose(
            parts.renyi(Half.ADD, ORDERS), whole.renyi(Half.ADD, ORDERS), rtol=1e-10
        )

    def test_coordinatewise_is_record_rate_one(self):
        blocks = TwiceSampledBlocks(1.0, 0.3, (0.8,), (1.0,), (0.25,), (100,))
        one = Coordinatewise(0.3, 0.8, 1.0, 0.25, 100, 2.0)
        np.testing.assert_allclose(
            blocks.renyi(Half.REMOVE, ORDERS), one.renyi(Half.REMOVE, ORDERS), rtol=1e-12
        )

    def test_all_coordinates_is_the_sampled_gaussian(self):
        step = taut.accounting.twice_sampled_blocks(0.1, 1.0, [1.236, 0.6411, 0.3194], **THREE)
        length = math.hypot(1 / 1.236, 0.6 / 0.6411, 0.3 / 0.3194)
        plain = taut.gaussian(1 / length).poisson(0.1)
        assert step.rdp(6.0) == pytest.approx(plain.rdp(6.0), rel=1e-9)

    @settings(max_examples=20)
    @given(factor=st.floats(1.0, 3.0), block=st.integers(0, 2), order=st.integers(2, 30))
    def test_more_noise_anywhere_costs_less(self, factor, block, order):
        sigmas = [1.2, 0.6, 0.3]
        more = list(sigmas)
        more[block] *= factor
        loss, less = (
            taut.accounting.twice_sampled_blocks(0.1, 0.5, s, **THREE) for s in (sigmas, more)
        )
        assert less.rdp(float(order)) <= loss.rdp(float(order)) * (1 + 1e-12)


class TestLoss:
    def test_geo_25_is_accounted_for(self):
        variances = [1.52774544, 0.41101354, 0.10200929]
        step = taut.accounting.twice_sampled_blocks(0.1, 0.5, np.sqrt(variances).tolist(), **THREE)
        assert step.rdp(6.0) == pytest.approx(0.05, rel=1e-6)

    def test_json(self):
        loss = 10 * taut.accounting.twice_sampled_blocks(0.1, 0.5, [1.2, 0.6, 0.3], **THREE)
        assert taut.PrivacyLoss.from_json(loss.to_json()) == loss
        assert "twice_sampled_blocks(record_rate=0.1" in str(loss)

    def test_equal_compute_is_never_worse(self):
        loss = 500 * taut.accounting.twice_sampled_blocks(0.05, 0.5, [1.2, 0.6, 0.3], **THREE)
        plan = taut.accounting.equal_compute_plan(loss, 1e-5)
        assert plan.epsilon < plan.twice_epsilon
        length = math.hypot(1 / 1.2, 0.6 / 0.6, 0.3 / 0.3)
        assert plan.multiplier == pytest.approx(1 / (0.5 * length), rel=1e-12)

    def test_records_sampled_again(self):
        loss = taut.accounting.twice_sampled_blocks(0.5, 0.5, [1.2, 0.6, 0.3], **THREE)
        again = taut.accounting.twice_sampled_blocks(0.1, 0.5, [1.2, 0.6, 0.3], **THREE)
        assert loss.poisson(0.2) == again

    def test_dominated_by_its_plain_release(self):
        release = TwiceSampledBlocks(0.2, 0.5, (1.0, 1.0), (0.6, 0.8), (0.6, 0.8), (4, 4))
        assert release.plain.pair(Half.REMOVE) is not None
        assert release.length == pytest.approx(1.0)


class TestRefusals:
    def test_lengths_must_agree(self):
        with pytest.raises(ValueError, match="one number for every block"):
            taut.accounting.twice_sampled_blocks(
                0.1, 0.5, [1.0], clips=[1.0, 2.0], clip_infs=[1.0, 2.0], dimensions=[1, 2]
            )
        with pytest.raises(ValueError, match="one number for every block"):
            taut.accounting.twice_sampled_blocks(
                0.1, 0.5, [], clips=[], clip_infs=[], dimensions=[]
            )

    @pytest.mark.parametrize("name", ["sigmas", "clips", "clip_infs", "dimensions"])
    def test_numbers_must_be_positive(self, name):
        values = {"sigmas": [1.0], "clips": [1.0], "clip_infs": [0.5], "dimensions": [4]}
        values[name] = [0]
        sigmas = values.pop("sigmas")
        with pytest.raises(ValueError, match=name):
            taut.accounting.twice_sampled_blocks(0.1, 0.5, sigmas, **values)

    def test_no_replace_one(self):
        with pytest.raises(UnsoundConfiguration, match="no theorem"):
            taut.accounting.twice_sampled_blocks(
                0.1, 0.5, [1.0, 1.0, 1.0], adjacency="replace", **THREE
            )


def test_calibration_follows_upper_bounds_alone():
    """Where nothing is known from below, the search still closes in on the budget."""
    found = taut.calibrate(
        lambda z: 200 * taut.accounting.twice_sampled(0.05, 0.5, z, clip_inf=0.1, dimension=101),
        epsilon=2.0,
        delta=1e-5,
    )
    assert 2.0 * (1 - 1e-3) <= found.epsilon.upper <= 2.0


@pytest.mark.parametrize("steps", [1, 30])
@pytest.mark.parametrize("delta", [1e-6, 0.05])
@pytest.mark.parametrize("noise", [0.4, 1.0])
def test_both_relations_cost_as_much_as_the_worse_half(steps, delta, noise):
    """A half that is not asked because it cannot decide would not have decided."""
    sigmas = [noise * sigma for sigma in (1.236, 0.6411, 0.3194)]
    both, *halves = (
        (
            steps
            * taut.accounting.twice_sampled_blocks(0.1, 0.5, sigmas, adjacency=relation, **THREE)
        )
        for relation in ("add_remove", "add", "remove")
    )
    worse = max(half.epsilon_bounds(delta, 1e-3).upper for half in halves)
    assert both.epsilon_bounds(delta, 1e-3).upper == pytest.approx(worse, rel=2e-3)
    assert both.epsilon_bounds(delta, 1e-3).lower == 0
