"""Any mechanism behind a distance test: random mechanisms on all data of a tiny domain."""

import itertools
import math

import numpy as np
import pytest
from oracles.tested_releases import THRESHOLDS, discrete, passing

import taut
from taut.adaptive import DistanceTest, ProposedRelease, check_distance, check_losses
from taut.adaptive._secret import Secret
from taut.audit import refute_training, replay
from taut.errors import AdjacencyMismatch, UnsoundConfiguration
from taut.noise import Box, SeededForExperiments, laplace_with_scales

TEST = DistanceTest(epsilon=0.8, delta=0.1, adjacency="replace")
DATA = list(itertools.product((0, 1), repeat=4))


def neighbours(data):
    return [(*data[:i], 1 - data[i], *data[i + 1 :]) for i in range(len(data))]


def mechanism(seed, sharpness):
    """Return random masses of three outcomes at all data, most of them nearly alike."""
    rng = np.random.default_rng(seed)
    shared = rng.random(3)
    wild = {data: rng.random() < 0.25 for data in DATA}
    tables = {}
    for data in DATA:
        scale = sharpness * (8 if wild[data] else 1)
        masses = shared * np.exp(scale * rng.normal(size=3))
        tables[data] = dict(enumerate((masses / masses.sum()).tolist()))
    return tables


def forward(tables, data, delta):
    """Return the least epsilon at delta from the data to all neighbours, by halving."""
    low, high = 0.0, 60.0
    for _ in range(60):
        middle = (low + high) / 2
        if all(
            discrete(tables[data], tables[n], math.exp(middle)) <= delta for n in neighbours(data)
        ):
            high = middle
        else:
            low = middle
    return high


def steps_to(violating, data):
    """Return how many records must change to reach a violating dataset, by enumeration."""
    apart = [sum(a != b for a, b in zip(data, other, strict=True)) for other in violating]
    return min(apart, default=99)


def behind(tables, violating, test):
    outputs = {}
    for data in DATA:
        p = passing(test.epsilon, test.threshold, min(steps_to(violating, data), test.cap))
        outputs[data] = {None: 1 - p, **{y: p * m for y, m in tables[data].items()}}
    return outputs


PAIRS = [(data, other) for data in DATA for other in neighbours(data)]


@pytest.mark.parametrize("seed", range(12))
def test_forward_bounds_suffice_on_all_neighbours(seed):
    epsilon, delta = 0.5, [0.0, 0.05][seed % 2]
    tables = mechanism(seed, 0.08)
    violating = [data for data in DATA if forward(tables, data, delta) > epsilon]
    assert 0 < len(violating) < len(DATA)
    outputs = behind(tables, violating, TEST)
    proposal = ProposedRelease(
        tables.get,
        taut.approximate(epsilon, delta, adjacency="replace"),
        TEST,
        distance=lambda data: steps_to(violating, data),
        direction="forward",
    )
    at = math.exp(epsilon + TEST.epsilon)
    most = max(delta, TEST.failure)
    assert proposal.loss.epsilon(most) == pytest.approx(epsilon + TEST.epsilon)
    for one, other in PAIRS:
        check_distance(proposal.distance, one, other)
        assert discrete(outputs[one], outputs[other], at) <= most * (1 + 1e-9)
        for t in THRESHOLDS.tolist():
            assert discrete(outputs[one], outputs[other], t) <= proposal.loss.profile(t) * (
                1 + 1e-9
            )


@pytest.mark.parametrize("seed", range(8))
def test_curves_in_both_directions_add_up_with_the_test(seed):
    epsilon = 0.5
    tables = mechanism(seed, 0.08)

    def pure_loss(data):
        return max(
            abs(math.log(tables[data][y] / tables[n][y]))
            for n in neighbours(data)
            for y in range(3)
        )

    violating = [data for data in DATA if pure_loss(data) > epsilon]
    outputs = behind(tables, violating, TEST)
    within = taut.pure(epsilon, adjacency="replace")
    proposal = ProposedRelease(
        tables.get, within, TEST, distance=lambda data: steps_to(violating, data)
    )
    assert proposal.loss == TEST.loss + within
    twice = 2 * proposal.loss
    for t in THRESHOLDS.tolist():
        once_most, twice_most = proposal.loss.profile(t), twice.profile(t)
        for one, other in PAIRS:
            p, q = outputs[one], outputs[other]
            assert discrete(p, q, t) <= once_most * (1 + 1e-9)
            pp, qq = ({(x, y): m * n for x, m in o.items() for y, n in o.items()} for o in (p, q))
            assert discrete(pp, qq, t) <= twice_most * (1 + 1e-9)


@pytest.mark.parametrize("seed", range(8))
def test_divergences_add_up_but_for_failure(seed):
    order, most = 6.0, 0.15
    tables = mechanism(seed, 0.08)

    def divergence(data):
        return max(
            math.log(sum(tables[data][y] ** order * tables[n][y] ** (1 - order) for y in range(3)))
            / (order - 1)
            for n in neighbours(data)
        )

    violating = [data for data in DATA if divergence(data) > most]
    assert 0 < len(violating) < len(DATA)
    outputs = behind(tables, violating, TEST)
    proposal = ProposedRelease(
        tables.get,
        taut.from_rdp({order: most}, adjacency="replace"),
        TEST,
        losses=lambda data, d: max(
            divergence(other) for other in DATA if steps_to([other], data) <= d
        ),
        limit=most,
        direction="forward",
    )
    once = {e: proposal.loss.delta(e) for e in (0.0, 0.5, 1.0, 1.5, 2.0, 3.0)}
    twice = {e: (2 * proposal.loss).delta(e) for e in once}
    for one, other in PAIRS:
        check_losses(proposal.losses, one, other, most=3)
        for e in once:
            truth = discrete(outputs[one], outputs[other], math.exp(e))
            assert truth <= once[e]
            pairs = [
                {(x, y): m * n for x, m in o.items() for y, n in o.items()}
                for o in (outputs[one], outputs[other])
            ]
            assert discrete(*pairs, math.exp(e)) <= twice[e]
    assert [proposal._distance(data) for data in DATA] == [
        min(steps_to(violating, data), TEST.cap) for data in DATA
    ]


def broken(*_):
    raise ValueError("record 777 is odd")


@pytest.mark.parametrize(
    "functions",
    [
        {"distance": broken},
        {"distance": lambda _: math.nan},
        {"distance": lambda _: -1},
        {"distance": lambda _: 1e6},
        {"losses": broken},
        {"losses": lambda *_: math.nan},
        {"losses": lambda *_: -1.0},
        {"losses": lambda *_: math.inf},
        {"losses": lambda *_: "small"},
        {"losses": lambda *_: None},
        {"distance": lambda _: 10**9, "mechanism": broken},
    ],
    ids=lambda functions: "-".join(functions),
)
def test_functions_that_misbehave_are_refused_at_full_cost(functions, capsys):
    test = DistanceTest(1.0, 1e-9, "replace")
    within = taut.approximate(0.5, 1e-9, adjacency="replace")
    proposal = ProposedRelease(**{"mechanism": len, "within": within, "test": test, **functions})
    outcome = proposal.release([777])
    assert (outcome.released, outcome.value) == (False, None)
    assert outcome.loss == proposal.loss
    assert "777" not in "".join(capsys.readouterr())
    assert "777" not in repr(outcome)


def test_a_loss_exactly_at_the_limit_passes_and_none_is_a_value():
    test = DistanceTest(1.0, 1e-9, "replace")
    within = taut.approximate(0.5, 1e-9, adjacency="replace")
    proposal = ProposedRelease(lambda _: None, within, test, losses=lambda *_: 0.5)
    outcome = proposal.release([1])
    assert outcome.released
    assert outcome.value is None
    hidden = ProposedRelease(len, within, test, distance=lambda _: Secret(10**9))
    assert hidden.release([1]).value == 1


def test_bad_arguments_are_named():
    within = taut.approximate(0.5, 1e-9, adjacency="replace")
    for bad, error, says in [
        ({}, ValueError, "exactly one of distance and losses"),
        ({"distance": len, "losses": len}, ValueError, "exactly one"),
        ({"distance": 3}, TypeError, "functions"),
        ({"distance": len, "limit": 1.0}, ValueError, "limit"),
        ({"distance": len, "within": 0.5}, TypeError, "within"),
        ({"distance": len, "within": taut.pure(0.5)}, AdjacencyMismatch, "replace"),
        ({"distance": len, "test": 1.0}, TypeError, "test"),
        ({"distance": len, "direction": "back"}, ValueError, "direction"),
        (
            {"losses": len, "within": taut.laplace(2.0, adjacency="replace")},
            ValueError,
            "limit must be given",
        ),
        (
            {
                "distance": len,
                "direction": "forward",
                "within": taut.laplace(2.0, adjacency="replace"),
            },
            UnsoundConfiguration,
            "one direction alone",
        ),
    ]:
        with pytest.raises(error, match=says):
            ProposedRelease(**{"mechanism": len, "within": within, "test": TEST, **bad})


def test_checks_find_pairs_that_are_further_apart():
    check_distance(lambda data: math.inf if data else 3, [1], [2])
    for distance in (sum, lambda data: len(data) / 2, lambda _: -1, lambda _: True):
        with pytest.raises(UnsoundConfiguration, match="distance must"):
            check_distance(distance, [5, 1], [5, 9])
    with pytest.raises(UnsoundConfiguration, match="exceeds"):
        check_losses(lambda data, _: sum(data), [1], [5])
    with pytest.raises(UnsoundConfiguration, match="losses must"):
        check_losses(lambda *_: math.nan, [1], [5])
    check_losses(lambda data, d: sum(data) + 4 * d, [1], [5])
    for most in (2**64, -1):
        with pytest.raises(ValueError, match="most must be"):
            check_losses(lambda *_: math.inf, [1], [5], most=most)


def noisy_median_proposal():
    noise = laplace_with_scales(Box([1.0], adjacency="replace"), [2.0])
    test = DistanceTest(1.0, 1e-6, "replace")
    return ProposedRelease(
        lambda rows: float(noise.release([np.median(rows)])[0]),
        noise.loss,
        test,
        distance=lambda rows: len(rows) // 2 - 1 if np.ptp(rows) <= 1 else 0,
    )


def test_replay_sees_the_mechanism_behind_the_test():
    proposal = noisy_median_proposal()
    data = np.linspace(0, 0.5, 101)
    result = replay(
        lambda rows: proposal.release(rows).value,
        data,
        np.append(data[:-1], 0.7),
        claim=proposal.loss,
    )
    assert result.passed, result.findings
    assert [release.kind for release in result.releases] == ["DistanceTest", "LaplaceNoise"]


def test_replay_finds_distances_that_move_too_far():
    proposal = noisy_median_proposal()
    data = np.linspace(0, 0.5, 101)
    result = replay(lambda rows: proposal.release(rows).value, data, np.append(data[:-1], 9.0))
    assert not result.passed
    assert "sensitivity" in result.findings[0]


def test_sequential_audit():
    test = DistanceTest(0.5, 0.01, "add_remove")
    sides = [[1] * 9, [1] * 10]

    def audited(limit, scale):
        proposal = ProposedRelease(
            lambda _: 1.0,
            taut.approximate(limit, 0.01),
            test,
            distance=lambda votes: scale * len(votes) - 9 * scale + test.threshold - scale // 2,
        )

        def run(with_canary, seed):
            outcome = proposal.release(sides[with_canary], SeededForExperiments(seed))
            return [float(outcome.released)]

        return refute_training(run, claimed=proposal.loss, delta=0.02, most_runs=150, seed=1).passed

    assert audited(0.0, 1)
    assert not audited(0.0, 12)  # a distance that one record moves by twelve
