"""Why an epsilon is what it is."""

import math

import pytest

import taut

SUM = 1000 * taut.gaussian(1.0).poisson(0.01) + taut.laplace(20.0) + taut.pure(0.1)


def test_carries_the_answer():
    explanation = SUM.explain(1e-5)
    assert explanation.epsilon == SUM.epsilon_bounds(1e-5)
    assert explanation.delta == 1e-5
    assert explanation.adjacency == "add_remove"
    assert explanation.half == "remove"


def test_shares_add_up_and_are_sorted():
    shares = SUM.explain(1e-5).shares
    fractions = [share.fraction for share in shares]
    assert math.fsum(fractions) == pytest.approx(1)
    assert fractions == sorted(fractions, reverse=True)
    assert (shares[0].release, shares[0].count) == (
        "gaussian(sigma=1, sensitivity=1).poisson(rate=0.01)",
        1000,
    )


def test_half_of_a_one_sided_loss():
    loss = 10 * taut.gaussian(1.0, adjacency="add").poisson(0.1)
    assert loss.explain(1e-5).half == "add"


@pytest.mark.parametrize(
    ("loss", "engine"),
    [
        (taut.gaussian(1.0), "closed-form profile"),
        (7 * taut.gaussian(1.0), "closed-form profile"),
        (taut.gaussian(1.0) + taut.laplace(1.0), "shifted contour"),
        (100 * taut.gaussian(1.0).poisson(0.01), "tilted lattice"),
        (taut.zero(), "limit case"),
        (taut.approximate(1.0, 0.1), "limit case"),
    ],
    ids=repr,
)
def test_engine(loss, engine):
    assert loss.explain(1e-6).engine == engine


@pytest.mark.parametrize(
    "loss", [SUM, taut.gaussian(0.1), 100 * taut.laplace(10.0), 5 * taut.discrete_gaussian(3.0)]
)
@pytest.mark.parametrize(
    "delta", [1e-6, *(pytest.param(delta, marks=pytest.mark.slow) for delta in (1e-2, 1e-12))]
)
def test_renyi_is_an_upper_bound_too(loss, delta):
    explanation = loss.explain(delta)
    assert explanation.rdp_epsilon >= explanation.epsilon.lower
    assert explanation.rdp_excess >= -1e-3
    # The improved conversion over every real order is the best single-order bound.
    orders = [1 + 10 ** (k / 20) for k in range(-40, 60)]
    by_hand = min(
        loss.rdp(a) + math.log1p(-1 / a) - (math.log(delta) + math.log(a)) / (a - 1) for a in orders
    )
    assert explanation.rdp_epsilon <= max(by_hand, explanation.epsilon.lower) * 1.001


def test_renyi_is_infinite_with_a_chance_of_failure():
    explanation = (3 * taut.approximate(0.1, 1e-9)).explain(1e-5)
    assert explanation.rdp_epsilon == math.inf
    assert math.isfinite(explanation.epsilon.upper)


def test_free_release():
    explanation = taut.zero().explain(1e-5)
    assert explanation.epsilon == (0.0, 0.0)
    assert explanation.rdp_epsilon == 0
    assert explanation.rdp_excess == 0
    assert explanation.shares == ()


@pytest.mark.parametrize("loss", [SUM, taut.zero(), taut.randomized_response(1.0), taut.pure(1.0)])
@pytest.mark.parametrize("delta", [0, 1e-5])
def test_reads_as_text(loss, delta):
    explanation = loss.explain(delta)
    text = str(explanation)
    assert f"epsilon <= {explanation.epsilon.upper:.6g} at delta = {delta:g}" in text
    assert f"decided by the {explanation.half} half" in text
    assert str(explanation.engine) in text
    assert "nan" not in text
    for share in explanation.shares:
        assert f"{share.count} x {share.release}" in text
