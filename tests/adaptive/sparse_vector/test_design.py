"""Losses of sparse vectors: published values, no adversary above them, and what is refused."""

import math

import mpmath
import numpy as np
import pytest
from adaptive.sparse_vector.adversaries import probabilities, worst_divergence

import taut
from taut.adaptive import (
    BetweenDesign,
    ExPostDesign,
    ScalarNoise,
    SparseVector,
    SparseVectorDesign,
    SparseVectorStages,
    plan_svt,
)
from taut.adaptive._sparse_vector import bounds
from taut.adaptive._sparse_vector.bounds import ORDERS, log_count
from taut.errors import UnsoundConfiguration


def normal(scale):
    return ScalarNoise("gaussian", scale)


def laplace(scale):
    return ScalarNoise("laplace", scale)


def exponential(scale):
    return ScalarNoise("exponential", scale)


def design(threshold, query, tops=1, queries=None, **more):
    return SparseVectorDesign(threshold, query, 1.0, tops, "replace", queries, **more)


def epsilon_of(orders, divergences, delta, *, improved=True):
    """Return epsilon as Canonne, Kamath and Steinke (2020) convert, or by the classic rule."""
    rest = np.log1p(-1 / orders) - np.log(orders) / (orders - 1) if improved else 0.0
    return float((divergences - math.log(delta) / (orders - 1) + rest).min())


# --- published values ---------------------------------------------------------------


def test_pure_epsilon_of_the_standard_mechanism():
    e1, e2, c = 0.1, 0.2, 5
    plain = design(laplace(1 / e1), laplace(2 / e2), c)
    assert plain.pure_epsilon == pytest.approx(1.1, rel=1e-12)
    assert plain.loss.epsilon(0) == pytest.approx(1.1, rel=1e-9)
    again = design(laplace(1 / e1), laplace(2 / e2), c, resample=True)
    assert again.pure_epsilon == pytest.approx(1.5, rel=1e-12)
    assert again.loss.epsilon(0) == pytest.approx(1.5, rel=1e-9)


def test_monotone_queries_need_half_the_noise():
    assert design(laplace(10.0), laplace(5.0), 5, monotone=True).pure_epsilon == pytest.approx(1.1)


def test_counting_bound_for_one_answer():
    orders = np.geomspace(1.01, 1e5, 20_000)
    found = design(normal(20.0), normal(40.0), 1, 1000, method="thesis").bounds(orders)["counting"]
    assert epsilon_of(orders, found, 1e-6) == pytest.approx(0.3941798399724884, rel=1e-4)
    classic = epsilon_of(orders, found, 1e-6, improved=False)
    assert classic == pytest.approx(0.4577391795305439, rel=1e-4)


@pytest.mark.parametrize(
    ("order", "queries", "tops", "s1", "rdp", "counted"),
    [
        (3.0, 5, 1, 2.0, 0.8776290817316293, 1.6458797346140273),
        (4.0, 6, 2, 3.0, 0.7687296002228368, 1.6970141511194385),
    ],
)
def test_game_and_counting_at_one_order(order, queries, tops, s1, rdp, counted):
    at = np.array([order])
    bounds = design(normal(s1), normal(2 * s1), tops, queries).bounds(at)
    assert rdp <= bounds["game"][0] <= rdp * (1 + 1e-4)
    assert bounds["counting"][0] == pytest.approx(counted, rel=1e-9)


def test_lasting_bound_at_one_order():
    bounds = design(laplace(10.0), laplace(20.0), 10).bounds(np.array([5.0]))
    assert 0.3609267513175646 <= bounds["lasting"][0] <= 0.3609267513175646 * (1 + 1e-6)


def test_epsilon_of_a_long_normal_sparse_vector():
    long = design(normal(50.0), normal(100.0), 20, 100_000)
    assert long.loss.epsilon(1e-6) < 1.15
    assert long.best_bound(1e-6) == "game"
    published = design(normal(50.0), normal(100.0), 20, 100_000, method="thesis")
    assert 1.81 < published.loss.epsilon(1e-6) < 1.83
    assert published.best_bound(1e-6) == "counting"


def test_epsilon_of_the_classical_mechanism_grows_with_the_root():
    for e, most in ((0.01, 0.525), (0.05, 2.87)):
        found = design(laplace(1 / e), laplace(2 / e), 100)
        assert found.loss.epsilon(1e-6) < most < found.pure_epsilon
        assert found.best_bound(1e-6) == "lasting"
        assert found.best_bound(0.0) == "pure"


def test_queries_with_a_least_value():
    floored = design(normal(5.0), normal(10.0), margin=20.0)
    bounds = floored.bounds(np.array([2.0]))
    assert bounds["tail_ratio"][0] == pytest.approx(0.54, abs=0.005)
    assert bounds["length"][0] == pytest.approx(5.56, abs=0.03)
    assert bounds["floored_game"][0] < 0.22
    assert floored.best_bound(1e-6) == "floored_game"
    many = design(normal(50.0), normal(100.0), 20, margin=400.0)
    ratio, game = (many.bounds(np.array([8.0]))[name][0] for name in ("tail_ratio", "floored_game"))
    assert game < 0.3 * ratio


def test_published_bounds_never_beat_the_default():
    for case in (
        design(normal(3.0), normal(6.0), 2, 50),
        design(laplace(3.0), laplace(6.0), 2),
        design(normal(3.0), laplace(6.0), 3),
        design(normal(5.0), normal(10.0), 1, margin=3.0),
    ):
        bounds = case.bounds(ORDERS)
        best = np.min(list(bounds.values()), axis=0)
        old = case.__class__(**{**vars(case), "method": "thesis"}).bounds(ORDERS)
        assert (best <= np.min(list(old.values()), axis=0)).all()


def test_count_of_sequences():
    assert log_count(10, 3) == pytest.approx(math.log(1 + 10 + 45 + 120))
    assert log_count(7, 9) == pytest.approx(7 * math.log(2))
    assert log_count(10**17, 1) == pytest.approx(math.log(1e17))
    exact = math.log(sum(math.comb(3 * 10**6, j) for j in range(3)))
    assert log_count(3 * 10**6, 2) == pytest.approx(exact)
    assert log_count(4 * 10**6, 2 * 10**6) <= 4e6 * math.log(2)


# --- against adversaries ------------------------------------------------------------

PAIRS = {
    "gaussian": (("gaussian", 1.5), ("gaussian", 3.0)),
    "laplace": (("laplace", 1.5), ("laplace", 3.0)),
    "hybrid": (("gaussian", 1.5), ("laplace", 3.0)),
    "exponential": (("exponential", 1.5), ("exponential", 3.0)),
}


@pytest.mark.parametrize("pair", PAIRS)
@pytest.mark.parametrize("monotone", [False, True])
def test_no_adversary_exceeds_any_bound(pair, monotone):
    threshold, query = PAIRS[pair]
    case = design(ScalarNoise(*threshold), ScalarNoise(*query), 2, 3, monotone=monotone)
    for order in (1.5, 4.0, 20.0):
        worst = worst_divergence(
            np.random.default_rng(int(order)),
            queries=3,
            tops=2,
            order=order,
            threshold=threshold,
            query=query,
            sensitivity=1.0,
            climbs=30,
            monotone=monotone,
        )
        assert worst > 0.01
        for name, (bound,) in case.bounds(np.array([order])).items():
            assert worst <= bound * (1 + 1e-6), name


@pytest.mark.parametrize("margin", [0.0, 4.0])
def test_no_adversary_above_a_floor_exceeds_any_bound(margin):
    threshold, query = PAIRS["gaussian"]
    case = design(ScalarNoise(*threshold), ScalarNoise(*query), 2, margin=margin)
    for order in (2.0, 6.0):
        worst = worst_divergence(
            np.random.default_rng(int(order)),
            queries=4,
            tops=2,
            order=order,
            threshold=threshold,
            query=query,
            sensitivity=1.0,
            climbs=30,
            least=-margin,
        )
        bounds = case.bounds(np.array([order]))
        assert worst <= bounds["floored_game"][0] <= bounds["tail_ratio"][0]


def test_the_pure_bound_is_reached():
    # Many queries that the record moves up, all answered below, then one that it moves down: the
    # sequence tells of the threshold and of the last query at once.
    threshold, query = ("laplace", 2.0), ("laplace", 4.0 / 3)
    case = design(ScalarNoise(*threshold), ScalarNoise(*query))
    tree = {(False,) * i: (0.0, 1.0) for i in range(39)}
    tree[(False,) * 39] = (-10.0, -11.0)
    answers = [(False,) * 39 + (True,)]
    without, including = (probabilities(tree, s, answers, threshold, query) for s in (0, 1))
    ratio = np.abs(np.log(without / including)).max()
    assert case.pure_epsilon == pytest.approx(2.0)
    assert 1.9999 < ratio < 2.0001


# --- composition and refusals --------------------------------------------------------


def test_losses_add_up_and_are_stored():
    loss = design(laplace(10.0), laplace(20.0), 5).loss
    total = 3 * loss + taut.gaussian(10.0, adjacency="replace")
    assert total.epsilon(1e-6) > loss.epsilon(1e-6)
    assert taut.PrivacyLoss.from_json(total.to_json()) == total
    assert loss.epsilon_bounds(1e-6).lower == 0.0


def test_rounding_is_part_of_the_loss():
    odd = SparseVectorDesign(laplace(10.0), laplace(20.0), 0.3, 1, "add_remove")
    assert 0.3 < odd.rounded_sensitivity < 0.3 * (1 + 2**-10)
    assert odd.rounded_sensitivity % odd.grid == 0
    assert odd.pure_epsilon > 0.3 / 10 + 0.6 / 20
    assert design(laplace(10.0), laplace(20.0)).rounded_sensitivity == 1.0


def test_numbers_of_few_bits_become_those_of_python():
    normal = ScalarNoise("gaussian", 4.0)
    few = SparseVectorDesign(
        normal, normal, 1.0, np.int8(100), "replace", np.int16(30_000), margin=np.float32(0.1)
    )
    assert [type(each) for each in (few.tops, few.most_queries, few.margin)] == [int, int, float]
    vector = SparseVector(few, least_value=1e6 + 0.4)
    with pytest.raises(ValueError, match="margin"):
        vector.ask(1e6 + 1.0, threshold=1e6 + 0.52)
    assert SparseVectorStages(few, np.int8(100)).tops == 10_000
    scales = (np.float32(x) for x in (1.7, 4.3, 1.0))
    between = BetweenDesign(-40, 40, *scales, np.int8(1), np.float32(1e-6), "replace")
    exact = BetweenDesign(
        -40.0,
        40.0,
        float(np.float32(1.7)),
        float(np.float32(4.3)),
        1.0,
        1,
        between.delta,
        "replace",
    )
    assert between == exact
    assert type(between.epsilon) is float


def test_gaps_are_charged_by_published_bounds_alone():
    case = design(normal(10.0), normal(20.0), 2, 100, gap=True)
    assert set(case.bounds(ORDERS)) == {"counting"}


def test_normal_queries_at_any_length_are_refused():
    for more in ({}, {"gap": True, "margin": 1.0}):
        with pytest.raises(UnsoundConfiguration, match="most_queries"):
            design(normal(5.0), normal(10.0), **more)
    with pytest.raises(UnsoundConfiguration, match="margin"):
        design(laplace(5.0), normal(10.0), margin=1.0)


def test_extreme_designs_have_a_loss_or_none():
    hopeless = design(normal(300.0), normal(0.5), 1000, margin=10.0)
    with pytest.raises(UnsoundConfiguration, match="more noise"):
        _ = hopeless.loss
    for scale, tops, queries in ((2.0**18, 1000, 10**18), (2.0**-8, 1, 10**18)):
        for kind in (normal, laplace):
            found = design(kind(scale), kind(scale), tops, queries).loss.epsilon(1e-6)
            assert 0 < found < math.inf


def test_pure_epsilons_beyond_those_of_one_release_are_left_to_divergences():
    loud = design(laplace(2.0**-8), laplace(2.0**-8), 4000)
    assert 2e6 < loud.loss.epsilon(1e-6) < loud.pure_epsilon
    assert loud.loss.epsilon(0) == math.inf
    stages = SparseVectorStages.within(loud, 1e7, 1e-6)
    assert stages.stages == 4
    assert 3e6 < SparseVectorStages(loud, 3).epsilon(1e-6) < 3 * loud.pure_epsilon


@pytest.mark.parametrize(
    ("change", "words"),
    [
        ({"tops": 3, "queries": 2}, "tops must not exceed"),
        ({"tops": 0}, "tops"),
        ({"tops": True}, "tops"),
        ({"queries": 0}, "most_queries"),
        ({"margin": math.nan}, "margin"),
        ({"margin": 1e160}, r"margin must lie within 2\^53 grid steps"),
        ({"margin": -1e160}, r"margin must lie within 2\^53 grid steps"),
        ({"method": "hope"}, "method"),
        ({"monotone": "no"}, "monotone must be True or False"),
        ({"resample": 0}, "resample must be True or False"),
        ({"gap": None}, "gap must be True or False"),
        ({"threshold": laplace(1e9)}, "threshold_noise"),
        ({"query": laplace(1e-9)}, "query_noise"),
    ],
)
def test_bad_designs(change, words):
    arguments = {"threshold": laplace(5.0), "query": laplace(10.0), **change}
    with pytest.raises((ValueError, TypeError), match=words):
        design(**arguments)


def test_bad_noise_and_types():
    with pytest.raises(ValueError, match="kind"):
        ScalarNoise("cauchy", 1.0)
    for scale in (0.0, -1.0, math.nan, math.inf):
        with pytest.raises(ValueError, match="scale"):
            ScalarNoise("laplace", scale)
    with pytest.raises(TypeError, match="query_noise"):
        design(laplace(1.0), 2.0)
    with pytest.raises(ValueError, match="sensitivity"):
        SparseVectorDesign(laplace(1.0), laplace(1.0), math.nan, 1, "replace")


@pytest.mark.parametrize("sensitivity", [5e-324, 1e-300, 1e300])
@pytest.mark.parametrize(
    "made",
    [
        lambda s: SparseVectorDesign(normal(4 * s), normal(8 * s), s, 1, "replace", 10),
        lambda s: ExPostDesign(8 * s, 16 * s, s, 0.0, -s, s, "replace"),
        lambda s: BetweenDesign(-99 * s, 99 * s, s, s, s, 1, 1e-6, "replace"),
        lambda s: plan_svt(1.0, 1e-6, tops=1, margin=s, sensitivity=s, adjacency="replace"),
    ],
)
def test_units_in_which_floats_end_are_refused(made, sensitivity):
    """Grids of zero, and squares of zero or infinity, were divided by."""
    with pytest.raises(ValueError, match=r"sensitivity must be between.*count in other units"):
        made(sensitivity)
    assert made(1e-70)
    assert made(1e70)


def test_noise_knows_its_tail_and_divergences():
    orders = np.array([1.5, 3.0, 50.0])
    for kind, deviation in (("gaussian", 3.0), ("laplace", 3 * math.sqrt(2)), ("exponential", 3.0)):
        noise = ScalarNoise(kind, 3.0)
        assert noise.deviation == pytest.approx(deviation)
        assert 0 < noise.tail(2.0) < 1
        assert (noise.rdp(orders, 1.0) <= noise.pure(1.0)).all()
    assert laplace(3.0).rdp(orders, 1.0) == pytest.approx(
        [taut.laplace(3.0).rdp(order) for order in orders], rel=1e-12
    )


@pytest.mark.parametrize("kind", ["gaussian", "laplace", "exponential"])
def test_what_bounds_add_covers_the_rounding_of_divergences(kind):
    rng = np.random.default_rng(4)
    for scale, shift, excess in 10 ** rng.uniform((-2, -1, -2), (5, 1, 6), (200, 3)):
        a, e = (mpmath.mpf(x) for x in (1 + excess, shift))
        found = ScalarNoise(kind, float(scale)).rdp(np.array([1 + excess]), float(shift))
        with mpmath.workdps(40):
            e /= mpmath.mpf(scale)
            up, down = mpmath.exp((a - 1) * e), mpmath.exp(-a * e)
            truth = {
                "gaussian": a * e * e / 2,
                "exponential": e,
                "laplace": mpmath.log((a * up + (a - 1) * down) / (2 * a - 1)) / (a - 1),
            }[kind]
            assert truth * (1 - 1e-15) <= float(found[0])
            assert truth <= float(found[0]) * bounds._SUM_ERROR


def test_pure_bounds_are_sums_of_both_noises():
    # e1 + c e2, or c (e1 + e2) with fresh thresholds, for e1 = 0.1, e2 = 0.2 and five answers.
    once = design(laplace(10.0), laplace(10.0), 5)
    assert once.pure_epsilon == pytest.approx(1.1, rel=1e-12)
    afresh = SparseVectorDesign(laplace(10.0), laplace(10.0), 1.0, 5, "replace", resample=True)
    assert afresh.pure_epsilon == pytest.approx(1.5, rel=1e-12)
