"""Reference values of optimal Gaussian noise, one test per value."""

import json
import math
from pathlib import Path

import numpy as np
import pytest

from taut.noise._optimal.gaussian import gaussian_with_scales, optimal_gaussian
from taut.noise._sets.balls import L2Ball, LpIntersection
from taut.noise._sets.blocks import Blocks
from taut.noise._sets.boxes import Box

VALUES = Path(__file__).parent / "values"
CHECKS = json.loads((VALUES / "noise.json").read_text(encoding="utf-8"))
PROFILES = {"linear": np.arange(1.0, 21), "quadratic": np.arange(1.0, 21) ** 2}
PROFILES["exponential"] = np.exp(PROFILES["linear"])


def make_set(description):
    ((name, arguments),) = description.items()
    if name == "LpIntersection":
        return LpIntersection(
            arguments["dimension"], {float(p): radius for p, radius in arguments["radii"]}
        )
    if "profile" in arguments:
        return Box(PROFILES[arguments["profile"]])
    return {"Box": Box, "Blocks": Blocks, "L2Ball": L2Ball}[name](**arguments)


def make_noise(check, sensitivity):
    if "scales" in check:
        return gaussian_with_scales(sensitivity, check["scales"])
    weights = check.get("weights")
    if "target" in check:
        epsilon, delta = check["target"]
        return optimal_gaussian(sensitivity, epsilon=epsilon, delta=delta, weights=weights)
    multiplier = check.get("multiplier")
    if multiplier is None:
        order, divergence = check["renyi"]
        multiplier = math.sqrt(order / (2 * divergence))
    return optimal_gaussian(sensitivity, multiplier=multiplier, weights=weights)


QUESTIONS = {
    "variances": lambda noise, _: noise.scales**2,
    "scales": lambda noise, _: noise.scales,
    "total": lambda noise, _: noise.total_variance,
    "error": lambda noise, _: noise.error,
    "gain_over_ball": lambda noise, _: (
        noise.sensitivity.dimension * noise.sensitivity.max_l2**2 / noise.total_variance
    ),
    "max_l2": lambda noise, _: noise.sensitivity.max_l2,
    "clipped": lambda noise, check: noise.sensitivity.clip(check["clip"]),
    "mu": lambda noise, _: 1 / noise.multiplier,
    "delta_at_half": lambda noise, _: noise.loss.delta(0.5),
    "block_scales": lambda noise, _: noise.scales[np.cumsum(noise.sensitivity.ranks) - 1],
    "diagonal": lambda noise, _: noise.scales[0],
    "off_diagonal": lambda noise, _: noise.scales[0] / math.sqrt(2),
}


@pytest.mark.parametrize("check", CHECKS, ids=[check["id"] for check in CHECKS])
def test_reference(check):
    noise = make_noise(check, make_set(check["set"]))
    for question, expected in check["expected"].items():
        found = QUESTIONS[question](noise, check)
        assert found == pytest.approx(np.array(expected), rel=check["tolerance"]), question
