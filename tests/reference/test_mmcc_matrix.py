"""Reference values of matrix mechanisms, one test per value (``mmcc_matrix.json``)."""

import json
import math
from pathlib import Path

import numpy as np
import pytest
from oracles.mmcc import conditional_rates, published_epsilon
from oracles.shuffled_tree import exact_delta
from scipy.special import ndtr, ndtri

from taut.accounting import gaussian
from taut.matrix import (
    CyclicPoisson,
    DenseEncoder,
    PoissonRounds,
    ToeplitzEncoder,
    TreeEncoder,
    Workload,
    amplified_loss,
    errors,
    identity,
    optimal_dense,
    square_root,
)

TABLE = json.loads(
    (Path(__file__).parent / "values" / "mmcc_matrix.json").read_text(encoding="utf-8")
)
CHECKS = {check["id"]: check for check in TABLE}


def close(found, expected, check):
    assert found == pytest.approx(expected, rel=check["tolerance"], abs=0)


def test_every_value_is_asked_for():
    asked = {name for name in globals() if name.startswith("test_")}
    assert {"test_" + name.replace("-", "_") for name in CHECKS} <= asked


def test_two_row_exact():
    check = CHECKS["two-row-exact"]
    given, expected = check["inputs"], check["expected"]
    encoder = DenseEncoder(given["C"])
    for half in ("remove", "add"):
        lower, upper = amplified_loss(
            encoder,
            PoissonRounds(given["p"]),
            given["sigma"],
            delta=given["delta"],
            adjacency=half,
        ).epsilon_bounds(given["delta"])
        exact = expected[f"exact_{half}"]
        assert lower <= exact * (1 + check["tolerance"])
        assert exact <= upper * (1 + check["tolerance"])
        if half == "remove":
            assert expected["mmcc_min"] <= upper <= expected["mmcc_max"]


def test_identity_equals_dpsgd():
    check = CHECKS["identity-equals-dpsgd"]
    given = check["inputs"]
    loss = amplified_loss(identity(2), PoissonRounds(given["p"]), given["sigma"])
    assert loss == 2 * gaussian(given["sigma"], adjacency="zero_out").poisson(given["p"])
    close(loss.epsilon(given["delta"], 1e-6), check["expected"], check)


def test_ptilde_published_tree4():
    check = CHECKS["ptilde-published-tree4"]
    given, expected = check["inputs"], check["expected"]
    rates, far = conditional_rates(
        TreeEncoder(4).matrix(), given["p"], given["sigma"], given["delta_1"]
    )
    close(far, expected["z"], check)
    close(rates[2, 0], expected["level1"], check)
    close(rates[6], np.full(4, expected["level2"]), check)
    assert rates[0, 0] == given["p"]


@pytest.mark.parametrize("half", ["remove", "add"])
def test_mmcc_toeplitz4_published(half):
    check = CHECKS["mmcc-toeplitz4-published"]
    _published(square_root(Workload(4)), check, half)


@pytest.mark.parametrize("half", ["remove", "add"])
def test_mmcc_tree8_published(half):
    _published(TreeEncoder(8), CHECKS["mmcc-tree8-published"], half)


def _published(encoder, check, half):
    """The oracle has the published value; the library is below it, and above its own lower one."""
    given = check["inputs"]
    first, second = given["delta_1"], given["delta_2"]
    printed = published_epsilon(encoder.matrix(), given["p"], given["sigma"], first, second, half)
    close(printed, check["expected"][half], check)
    loss = amplified_loss(
        encoder, PoissonRounds(given["p"]), given["sigma"], delta=first + second, adjacency=half
    )
    lower, upper = loss.epsilon_bounds(first + second)
    assert lower <= upper < printed


def test_mmcc_tree32_quality():
    check = CHECKS["mmcc-tree32-quality"]
    expected, delta = check["expected"], check["inputs"]["delta"]
    loss = amplified_loss(TreeEncoder(32), PoissonRounds(1 / 32), 8 * math.sqrt(6), delta=delta)
    lower, upper = loss.epsilon_bounds(delta)
    close(lower, expected["lower"], check)
    assert expected["lower"] < upper <= expected["upper"]


def test_bminsep_banded():
    check = CHECKS["bminsep-banded"]
    given = check["inputs"]
    groups = given["b"]
    loss = amplified_loss(
        ToeplitzEncoder(given["n"], given["band"]),
        CyclicPoisson(groups, groups * given["p"]),
        given["sigma"],
    )
    close(loss.epsilon(given["delta"], 1e-5), check["expected"], check)


def test_bminsep_delta_erratum():
    check = CHECKS["bminsep-delta-erratum"]
    given = check["inputs"]
    threshold = 1.0 - given["sigma"] * ndtri(given["b"] * given["delta_1"] / (2 * given["columns"]))
    chance = (1 - given["q"]) * ndtr(-threshold / given["sigma"])
    chance += given["q"] * ndtr((1 - threshold) / given["sigma"])
    union = given["columns"] * chance
    close(union, check["expected"]["actual_with_printed_rule"], check)
    assert union > check["expected"]["allowed"]


@pytest.mark.parametrize(("name", "other"), [("other_0", 0.0), ("other_minus1", -1.0)])
def test_shuffle_not_simplified(name, other):
    check = CHECKS["shuffle-not-simplified"]
    given = check["inputs"]
    close(exact_delta([1.0, other], given["sigma"], given["eps"]), check["expected"][name], check)


def test_prefix_rmse():
    check = CHECKS["prefix-rmse"]
    steps = check["inputs"]["n"]
    sums, tree = Workload(steps), TreeEncoder(steps)
    encoders = {
        "tree": TreeEncoder(steps, decoder="plain"),
        "online_honaker": tree,
        "full_honaker": tree.full_honaker(),
        "sqrt_toeplitz": square_root(sums),
        "dense_optimal": optimal_dense(sums).encoder,
    }
    assert (encoders["full_honaker"].matrix() >= -1e-12).all()
    for name, encoder in encoders.items():
        close(errors(encoder, sums).root_mean_square, check["expected"][name], check)
