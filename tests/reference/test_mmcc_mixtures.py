"""Reference values of mixtures of Gaussians, one test per value (``mmcc_mixtures.json``)."""

import json
import math
from pathlib import Path

import numpy as np
import pytest
from scipy.stats import binom, hypergeom

import taut
from taut.accounting._mechanisms.mixture import group_poisson, mixture_of_gaussians

TABLE = json.loads(
    (Path(__file__).parent / "values" / "mmcc_mixtures.json").read_text(encoding="utf-8")
)
CHECKS = {check["id"]: check for check in TABLE}


def mixture(inputs, adjacency):
    return mixture_of_gaussians(
        inputs["weights"], inputs["sens"], inputs["sigma"], adjacency=adjacency
    )


def delta_of_removal(inputs, tolerance):
    return mixture(inputs, "remove").delta_bounds(inputs["eps"], tolerance)


def outside_the_range(inputs, tolerance):
    threshold = math.exp(inputs["eps_remove"])
    return {
        "remove": mixture(inputs, "remove").profile(threshold),
        "add": mixture(inputs, "add").delta_bounds(inputs["eps_add"], tolerance),
    }


def last_iterate(inputs, tolerance):
    n = inputs["n"]
    weights = binom.pmf(np.arange(n + 1), n, inputs["p"])

    def epsilon(adjacency):
        loss = mixture_of_gaussians(
            weights, np.arange(n + 1), inputs["sigma"] * math.sqrt(n), adjacency=adjacency
        )
        return loss.epsilon_bounds(inputs["delta"], tolerance)

    return {name: epsilon(name) for name in ("remove", "add")} | {"report": epsilon("add_remove")}


def subsampled_composition(inputs, tolerance):
    step = mixture_of_gaussians([1 - inputs["p"], inputs["p"]], [0.0, 1.0], inputs["sigma"])
    return (inputs["n"] * step).epsilon_bounds(inputs["delta"], tolerance / 10)


def group(inputs, tolerance):
    step = group_poisson(inputs["sigma"], inputs["p"], inputs["k"])
    return (inputs["n"] * step).epsilon_bounds(inputs["delta"], tolerance / 10)


def group_in_batches(inputs, tolerance):
    counts = np.arange(inputs["k"] + 1)
    weights = hypergeom.pmf(counts, inputs["population"], inputs["k"], inputs["batch"])
    step = mixture_of_gaussians(weights, counts, inputs["sigma"], adjacency="zero_out")
    return (inputs["n"] * step).epsilon_bounds(inputs["delta"], tolerance / 10)


def unamplified(inputs, tolerance):
    losses = [mixture_of_gaussians([1.0], [mu], 1.0) for mu in inputs["mu"]]
    assert losses[0].epsilon(1e-6) == taut.gaussian(1.0, inputs["mu"][0]).epsilon(1e-6)
    return [loss.epsilon_bounds(inputs["delta"], tolerance) for loss in losses]


ANSWERS = {
    "mog-delta-remove": delta_of_removal,
    "mog-trivial-range": outside_the_range,
    "last-iterate": last_iterate,
    "subsampled-composition": subsampled_composition,
    "group-k2": group,
    "group-k4": group,
    "group-k4-fixed-size": group_in_batches,
    "gauss-unamplified": unamplified,
}


def agrees(answer, expected, tolerance):
    """Check a value, or both ends of a bracket, against the expectation and its own error."""
    if isinstance(expected, dict):
        assert answer.keys() == expected.keys()
        for name, value in expected.items():
            agrees(answer[name], value, tolerance)
    elif isinstance(expected, list):
        for one, value in zip(answer, expected, strict=True):
            agrees(one, value, tolerance)
    else:
        lower, upper = answer if isinstance(answer, tuple) else (answer, answer)
        assert lower <= expected * (1 + tolerance) + 1e-300
        assert upper >= expected * (1 - tolerance)
        assert upper == pytest.approx(expected, rel=tolerance, abs=0)


@pytest.mark.parametrize("name", CHECKS)
def test_reference(name):
    check = CHECKS[name]
    tolerance = max(check["tolerance"], 1e-9)
    agrees(ANSWERS[name](check["inputs"], tolerance), check["expected"], tolerance)


def test_the_printed_last_iterate_is_the_smaller_direction():
    expected = CHECKS["last-iterate"]["expected"]
    assert expected["report"] == expected["remove"] > 1.4 * expected["add"]
    inputs = CHECKS["last-iterate"]["inputs"]
    weights = binom.pmf(np.arange(129), 128, inputs["p"])
    loss = mixture_of_gaussians(weights, np.arange(129), math.sqrt(128))
    assert loss.delta(0.291) == pytest.approx(6.28e-5, rel=2e-3)
