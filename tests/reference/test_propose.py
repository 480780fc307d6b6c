"""Reference values of propose-test-release, one test per value."""

import json
import math
from pathlib import Path

import numpy as np
import pytest

import taut
from taut.adaptive import CalibratedRelease, DistanceTest, smooth_noise_rdp, vote_losses
from taut.adaptive._propose.classic.median_distance import around_median, moves_to_exceed, widest
from taut.noise import Box, gaussian_with_scales

VALUES = Path(__file__).parent / "values"
CHECKS = {
    check["id"]: check
    for check in json.loads((VALUES / "propose.json").read_text(encoding="utf-8"))
}


def given(name):
    check = CHECKS[name]
    return check["inputs"], check["expected"], check["rel_tol"]


def test_pass_probabilities_of_the_printed_test_are_exceeded_at_the_same_delta():
    inputs, expected, tolerance = given("ptr-pass-prob")
    epsilon, delta = inputs["eps"], inputs["delta"]
    threshold = math.log(1 / delta) / epsilon
    for distance, printed in zip(inputs["D"], expected, strict=True):
        gap = epsilon * (threshold - distance)
        closed = math.exp(-gap) / 2 if gap > 0 else 1 - math.exp(gap) / 2
        assert closed == pytest.approx(printed, rel=tolerance)
        ours = DistanceTest(epsilon, delta, "replace").pass_probability(distance)
        assert ours >= printed or (distance == 0 and ours <= delta)


def test_median_distance():
    inputs, expected, tolerance = given("ptr-median-distance")
    data = np.array(inputs["data"], dtype=float)
    near = around_median(data, inputs["lo"], inputs["hi"], 8)
    assert [widest(near, k) for k in range(5)] == pytest.approx(expected["A"], rel=tolerance)
    found = [
        moves_to_exceed(data, inputs["lo"], inputs["hi"], bound, 99) for bound in inputs["beta"]
    ]
    assert found == expected["D"]


@pytest.mark.parametrize("fixed", [True, False])
def test_generalised_guarantee(fixed):
    inputs, expected, _ = given("genptr-guarantee")
    noise = gaussian_with_scales(
        Box([1.0]),
        [
            taut.calibrate(
                taut.gaussian, epsilon=inputs["eps_test"], delta=inputs["delta_test"]
            ).value
        ],
    )
    release = CalibratedRelease(
        len,
        noise,
        len,
        len,
        taut.approximate(inputs["eps"], inputs["delta"]),
        inputs["false_positive_rate"],
        inputs["delta_test"],
        fixed=fixed,
    )
    delta = expected["delta_tight" if fixed else "delta_printed"]
    assert release.loss.epsilon(delta * (1 + 1e-9)) == pytest.approx(expected["eps"], rel=1e-3)
    assert release.loss.epsilon(delta * (1 - 1e-9)) == math.inf


def test_smooth_noise():
    inputs, expected, tolerance = given("gnss-rdp")
    found = [smooth_noise_rdp(*case) for case in inputs["cases"]]
    assert found == pytest.approx(expected, rel=tolerance)


def test_vote():
    inputs, expected, tolerance = given("vote-report-noisy-max")
    epsilon, delta = inputs["eps"], inputs["delta"]
    assert (2 + 3 * epsilon) / 4 * math.exp(-3 * epsilon) == pytest.approx(
        expected["p_t3"], rel=tolerance
    )
    pure = vote_losses(np.array([10.0]), epsilon, 0.0)[0]
    assert pure == pytest.approx(expected["pure_t10"], rel=tolerance)
    for lead in (10, 15, 20):
        found = vote_losses(np.array([float(lead)]), epsilon, delta)[0]
        assert found == pytest.approx(expected[f"eps_delta_t{lead}"], rel=tolerance)
