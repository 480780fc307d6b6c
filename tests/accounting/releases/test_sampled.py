"""Amplification by sampling, against enumeration of every sample of small mechanisms."""

import itertools
import math
from fractions import Fraction
from functools import partial

import mpmath as mp
import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from oracles import accounting as oracles
from oracles.engines import check_delta, check_epsilon

import taut
from taut.accounting import variance_pair

PARTS = 32


@st.composite
def distributions(draw, size=3):
    cuts = sorted(draw(st.lists(st.integers(0, PARTS), min_size=size - 1, max_size=size - 1)))
    edges = [0, *cuts, PARTS]
    return [Fraction(b - a, PARTS) for a, b in itertools.pairwise(edges)]


def mechanisms(samples):
    """Return a random mechanism: an output distribution for every sample."""
    return st.lists(distributions(), min_size=len(samples), max_size=len(samples)).map(
        lambda rows: dict(zip(samples, rows, strict=True))
    )


def mixture(mechanism, weights):
    """Return the output distribution over random samples."""
    size = len(next(iter(mechanism.values())))
    return [sum(w * mechanism[s][i] for s, w in weights.items()) for i in range(size)]


def worst_profile(pairs, epsilons):
    """Return the largest profile over pairs of output distributions, as samples.

    Adding every log-ratio to the epsilons makes chords between samples an upper bound that is
    exact at each kink.
    """
    kinks = {
        float(mp.log(oracles.fraction(p / q)))
        for pair in pairs
        for p, q in zip(*pair, strict=True)
        if p and q
    }
    at = sorted({*epsilons, *kinks})
    # Rounded up, so that the samples bound the profile.
    return {
        e: min(float(max(oracles.finite_delta([pair], e) for pair in pairs)) * (1 + 1e-15), 1.0)
        for e in at
    }


RECORDS = (0, 1, 2)
SUBSETS = [frozenset(s) for n in range(4) for s in itertools.combinations(RECORDS, n)]


class TestPoisson:
    @settings(max_examples=40)
    @given(
        mechanism=mechanisms(SUBSETS),
        rate=st.integers(1, 15).map(lambda k: Fraction(k, 16)),
        half=st.sampled_from(["add", "remove"]),
        count=st.integers(1, 2),
        epsilon=st.floats(0, 3),
    )
    def test_dominates_every_mechanism(self, mechanism, rate, half, count, epsilon):
        def ordered(without, with_it):
            return (without, with_it) if half == "add" else (with_it, without)

        neighbours = [
            ordered(mechanism[s], mechanism[s | {x}])
            for s in SUBSETS
            for x in RECORDS
            if x not in s
        ]
        profile = worst_profile(neighbours, np.linspace(-6, 6, 13).tolist())
        loss = count * taut.from_profile(profile, adjacency=half).poisson(float(rate))
        claimed = loss.delta(epsilon)
        for data in SUBSETS:
            for x in set(RECORDS) - data:
                outputs = [self._sampled(mechanism, d, rate) for d in (data, data | {x})]
                truth = oracles.finite_delta([ordered(*outputs)] * count, epsilon)
                assert claimed >= truth * (1 - mp.mpf(1e-12)) - mp.mpf(1e-15)

    @staticmethod
    def _sampled(mechanism, data, rate):
        samples = [
            frozenset(s) for n in range(len(data) + 1) for s in itertools.combinations(data, n)
        ]
        weights = {s: rate ** len(s) * (1 - rate) ** (len(data) - len(s)) for s in samples}
        return mixture(mechanism, weights)

    @pytest.mark.parametrize(
        "base",
        [
            taut.gaussian(1.0),
            taut.laplace(1.0),
            taut.randomized_response(0.7),
            taut.discrete_gaussian(2.0),
            variance_pair(1.0, 2.0),
            taut.finite([1.0, 0.0], [0.5, 0.5]),
            taut.approximate(1.0, 1e-3),
        ],
        ids=repr,
    )
    @pytest.mark.parametrize("count", [1, 5])
    def test_limits_of_the_rate(self, base, count):
        for delta in (0.3, 1e-4):
            everybody, all_of_it = count * base.poisson(1.0), count * base
            assert everybody.epsilon_bounds(delta) == all_of_it.epsilon_bounds(delta)
        assert (count * base.poisson(0.0)).epsilon_bounds(0) == (0.0, 0.0)

    @given(first=st.floats(0.01, 1), second=st.floats(0.01, 1))
    def test_sampling_twice_multiplies_the_rates(self, first, second):
        twice = taut.gaussian(1.0).poisson(first).poisson(second)
        assert twice == taut.gaussian(1.0).poisson(second * first)

    def test_sampling_nothing_is_free(self):
        assert taut.zero().poisson(0.5) == taut.zero()

    def test_a_certain_answer_survives_when_sampled(self):
        loss = taut.randomized_response(1.0).poisson(0.125)
        assert taut.PrivacyLoss(loss.terms, "remove").epsilon(0.1249) == math.inf
        assert taut.PrivacyLoss(loss.terms, "remove").epsilon(0.126) == 0
        # Adding a record leaves the unsampled case possible.
        add = taut.PrivacyLoss(loss.terms, "add")
        assert add.epsilon(0) == pytest.approx(-math.log1p(-0.125), rel=1e-12)

    def test_one_sided_counterexample_to_the_printed_theorem(self):
        # p = (1, 0) without the record, (1/2, 1/2) with it: removal reveals it at rate / 2.
        loss = taut.finite([1.0, 0.0], [0.5, 0.5], adjacency="remove").poisson(0.1)
        for epsilon in (0.0, math.log(1.1), 3.0):
            assert loss.delta_bounds(epsilon).lower <= 0.05 <= loss.delta(epsilon) <= 0.0501

    @pytest.mark.parametrize("half", ["add", "remove"])
    @pytest.mark.parametrize(
        ("sigma", "shift", "rate"), [(2.0, 1, 0.1), (1.0, 10, 0.1), (3.0, 7, 0.5)]
    )
    def test_two_sampled_discrete_gaussians(self, sigma, shift, rate, half):
        x = np.arange(-60, 61 + shift)
        p = np.exp(-((x / sigma) ** 2) / 2)
        q = np.exp(-(((x - shift) / sigma) ** 2) / 2)
        p, q = p / p.sum(), q / q.sum()
        mixed = (1 - rate) * p + rate * q
        first, second = (p, mixed) if half == "add" else (mixed, p)
        product = np.outer(first, first), np.outer(second, second)
        loss = 2 * taut.discrete_gaussian(sigma, shift, adjacency=half).poisson(rate)
        for epsilon in (0.05, 0.5, 2.0):
            # Summing 2e4 doubles is accurate to 1e-12.
            truth = float(np.maximum(product[0] - math.exp(epsilon) * product[1], 0).sum())
            if truth > 1e-13:
                check_delta(loss.delta_bounds(epsilon), mp.mpf(truth), oracle_error=1e-9)
            else:
                assert loss.delta(epsilon) < 1e-12


POPULATION = (0, 1, 2, 3)
BATCH = 2
BATCHES = [frozenset(s) for s in itertools.combinations((*POPULATION, 4), BATCH)]


class TestFixedSize:
    @staticmethod
    def _sampled(mechanism, data):
        samples = [frozenset(s) for s in itertools.combinations(sorted(data), BATCH)]
        return mixture(mechanism, {s: Fraction(1, len(samples)) for s in samples})

    @pytest.mark.slow
    @settings(max_examples=20)
    @given(
        mechanism=mechanisms(BATCHES),
        relation=st.sampled_from(["add", "remove", "replace"]),
        count=st.integers(1, 2),
        epsilon=st.floats(0, 3),
    )
    def test_dominates_every_mechanism(self, mechanism, relation, count, epsilon):
        exchanged = [
            (mechanism[s], mechanism[t])
            for s in BATCHES
            for t in BATCHES
            if len(s & t) == BATCH - 1
        ]
        profile = worst_profile(exchanged, np.linspace(0, 6, 7).tolist())
        points = {e: d for e, d in profile.items() if e >= 0}
        base = taut.from_profile(points, adjacency="replace")
        sampled = base.fixed_size(BATCH, len(POPULATION), adjacency=relation)
        claimed = (count * sampled).delta(epsilon)
        larger = self._sampled(mechanism, POPULATION)
        if relation == "replace":
            others = [self._sampled(mechanism, {*POPULATION, 4} - {x}) for x in POPULATION]
            pairs = [(larger, other) for other in others] + [(other, larger) for other in others]
        else:
            others = [self._sampled(mechanism, set(POPULATION) - {x}) for x in POPULATION]
            pairs = [(o, larger) if relation == "add" else (larger, o) for o in others]
        for pair in pairs:
            truth = oracles.finite_delta([pair] * count, epsilon)
            assert claimed >= truth * (1 - mp.mpf(1e-12)) - mp.mpf(1e-15)

    @pytest.mark.parametrize("relation", ["add", "remove"])
    @pytest.mark.parametrize("count", [1, 3])
    @pytest.mark.parametrize("delta", [1e-1, 1e-2, 1e-4])
    def test_is_attained_by_a_mechanism_that_reports_one_record(self, relation, count, delta):
        # Symmetric under exchange: q is p reversed, so both orders have one profile.
        p = [Fraction(1, 8), Fraction(1, 4), Fraction(5, 8)]
        q, rate = p[::-1], Fraction(1, 4)
        base = taut.finite([float(x) for x in p], [float(x) for x in q], adjacency="replace")
        loss = count * base.fixed_size(25, 100, adjacency=relation)
        pair = oracles.mixed(p, q, rate, relation)
        truth = partial(oracles.finite_delta, [pair] * count)
        check_epsilon(loss.epsilon_bounds(delta), delta, truth, oracle_error=1e-14)

    @pytest.mark.parametrize("epsilon", [0.0, 0.01, 0.3, 1.0, 3.0])
    @pytest.mark.parametrize(("mu", "batch"), [(2.0, 10), (0.5, 50), (4.0, 99)])
    def test_replace_profile_of_one_gaussian(self, mu, batch, epsilon):
        base = taut.gaussian(1.0, mu, adjacency="replace")
        loss = base.fixed_size(batch, 100, adjacency="replace")
        with mp.workdps(40):
            rate = mp.mpf(batch / 100)
            truth = rate * oracles.gaussian_delta(mu, mp.log1p(mp.expm1(epsilon) / rate))
        check_delta(loss.delta_bounds(epsilon), truth, 1e-6)

    @pytest.mark.parametrize("epsilon", [0.02, 0.5, 1.5])
    @pytest.mark.parametrize(
        ("mu", "batch"), [(2.0, 10), pytest.param(1.0, 50, marks=pytest.mark.slow)]
    )
    def test_replace_profile_of_two_gaussians(self, mu, batch, epsilon):
        # The pair with h(t) = rate H(1 + (t - 1)/rate) above one and its swap below: Q has the
        # density h''(t), an atom where the slope jumps at t = 1, and P = t Q.
        with mp.workdps(25):
            mu, rate = mp.mpf(mu), mp.mpf(batch / 100)

            def curvature(t):  # of H
                return mp.exp(-((mu / 2 + mp.log(t) / mu) ** 2) / 2) / mp.sqrt(2 * mp.pi) / mu / t

            def profile(e):
                if e >= 0:
                    return rate * oracles.gaussian_delta(mu, mp.log1p(mp.expm1(e) / rate))
                return 1 - mp.exp(e) + mp.exp(e) * profile(-e)

            def density(e):  # of the loss under P
                t = mp.exp(e)
                if e > 0:
                    return t * t * curvature(1 + (t - 1) / rate) / rate
                return mp.exp(e) * density(-e)  # symmetric pair

            slope = mp.erfc(mu / 2 / mp.sqrt(2)) / 2  # -H'(1)
            h_one = rate * oracles.gaussian_delta(mu, 0)
            # Slopes at 1: right -slope; left, by the swap rule, h(1) - 1 + slope... their jump is
            # the Q-mass of the atom at zero loss.
            atom = (-slope) - (h_one - 1 + slope)
            top = mp.log1p(rate * (mp.exp(mu * 12) - 1))
            pieces = sorted({-top, -3, -1, -mp.mpf("0.1"), 0, mp.mpf("0.1"), epsilon, 1, 3, 8, top})
            law = oracles.Law(density, lambda e: e, pieces, [(mp.mpf(0), atom)])
            assert abs(law.mean(lambda _: mp.mpf(1)) - 1) < 1e-8
            truth = oracles.composed_delta(law, profile, epsilon)
        base = taut.gaussian(1.0, float(mu), adjacency="replace")
        loss = 2 * base.fixed_size(batch, 100, adjacency="replace")
        check_delta(loss.delta_bounds(epsilon), truth, oracle_error=1e-7)

    def test_everybody_is_the_base(self):
        base = taut.gaussian(1.0, adjacency="replace")
        whole = base.fixed_size(100, 100, adjacency="replace")
        assert whole.epsilon(1e-5) == pytest.approx(base.epsilon(1e-5), rel=1e-12)

    def test_of_nothing_is_free(self):
        assert taut.zero().fixed_size(1, 10) == taut.zero()

    def test_more_is_lost_than_with_poisson_sampling(self):
        poisson = 1000 * taut.gaussian(1.0).poisson(0.01)
        fixed = 1000 * taut.gaussian(1.0, 2.0, adjacency="replace").fixed_size(100, 10_000)
        assert poisson.epsilon(1e-5) < 1.83
        assert fixed.epsilon(1e-5) > 13.3
