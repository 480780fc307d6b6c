"""Reference values of Laplace noise, staircases and disparity, one test per value."""

import json
import math
from pathlib import Path

import numpy as np
import pytest

from taut.noise import (
    Box,
    L1Ball,
    disparity,
    laplace_threshold,
    laplace_with_scales,
    optimal_gaussian,
    optimal_laplace,
    staircase,
)

VALUES = Path(__file__).parent / "values"
CHECKS = json.loads((VALUES / "laplace.json").read_text(encoding="utf-8"))
PROFILES = {
    "linear": lambda k: np.arange(1.0, k + 1),
    "quadratic": lambda k: np.arange(1.0, k + 1) ** 2,
    "exponential": lambda k: np.exp(np.arange(1.0, k + 1)),
}


def decibel(value):
    return 10 * math.log10(value)


def scales(widths, epsilon):
    noise = optimal_laplace(Box(widths), epsilon=epsilon)
    assert noise.total_variance == pytest.approx(noise.error)
    return {"scales": noise.scales, "error": noise.error}


def corollary6(widths, epsilon, delta):
    noise = optimal_laplace(Box(widths), epsilon=epsilon, delta=delta, accounting="corollary6")
    return {
        "radius": noise.certificate.radius,
        "true_delta": noise.loss.delta(epsilon, tolerance=1e-7),
    }


def product(ratios, epsilon):
    noise = laplace_with_scales(Box(ratios), np.ones(len(ratios)))
    return {"delta": noise.loss.delta(epsilon, tolerance=1e-7)}


def calibrated(dimension, epsilon, delta):
    noise = optimal_laplace(Box(np.ones(dimension)), epsilon=epsilon, delta=delta)
    return {"radius": noise.certificate.radius}


def gain(name):
    return lambda dimension: {
        profile: getattr(disparity(make(dimension)), name) for profile, make in PROFILES.items()
    }


def gini():
    sizes = (("quadratic", 2), ("exponential", 2), ("linear", 20))
    return {f"{name}-{k}": disparity(PROFILES[name](k)).gini for name, k in sizes}


def limit(epsilon, delta):
    widths = PROFILES["exponential"](60)
    one, two = widths / widths.sum(), widths / np.linalg.norm(widths)
    gaussian = optimal_gaussian(Box(two), epsilon=epsilon, delta=delta).error
    return {
        "gaussian_db": decibel(gaussian),
        "laplace_db": decibel(optimal_laplace(Box(one), epsilon=epsilon).error),
        "k_eff": disparity(widths).k_eff,
    }


def threshold(epsilon, delta):
    wins = [
        optimal_laplace(Box(np.ones(k)), epsilon=epsilon).error
        < optimal_gaussian(Box(np.ones(k)), epsilon=epsilon, delta=delta).error
        for k in range(1, 20)
    ]
    return {"threshold": laplace_threshold(epsilon, delta), "largest_uniform": sum(wins)}


def steps(epsilon):
    return {"errors": [staircase(L1Ball(2, 1.0), epsilon=e).error for e in epsilon]}


QUESTIONS = {
    "scales": scales,
    "corollary6": corollary6,
    "product": product,
    "calibrated": calibrated,
    "gain_gaussian": gain("gain_gaussian"),
    "gain_laplace": gain("gain_laplace"),
    "gini": gini,
    "limit": limit,
    "threshold": threshold,
    "staircase": steps,
}


@pytest.mark.parametrize("check", CHECKS, ids=[check["id"] for check in CHECKS])
def test_reference(check):
    found = QUESTIONS[check["what"]](**check["inputs"])
    assert found.keys() == check["expected"].keys()
    for name, expected in check["expected"].items():
        assert found[name] == pytest.approx(np.array(expected), rel=check["tolerance"]), name
