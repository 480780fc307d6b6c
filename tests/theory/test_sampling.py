"""docs/theory/sampling.md: the rules, against mechanisms on all subsets of small datasets."""

import itertools
import math

import numpy as np
import pytest
from oracles.divergences import hockey_stick

import taut
from taut.accounting._adjacency import Half
from taut.accounting._pairs.gaussian import GaussianPair
from taut.accounting._pairs.sampled import ReplaceSampledPair, SampledPair

THRESHOLDS = np.exp(np.linspace(-1.5, 1.5, 13))


class Mechanism:
    """Any output distribution for every set of records."""

    def __init__(self, seed):
        self._rng = np.random.default_rng(seed)
        self._outputs = {}

    def __call__(self, records):
        key = frozenset(records)
        if key not in self._outputs:
            self._outputs[key] = self._rng.dirichlet(np.full(3, 0.5))
        return self._outputs[key]

    def on_subsets(self, records, size):
        return np.mean([self(s) for s in itertools.combinations(records, size)], axis=0)

    def on_sample(self, records, rate):
        total = np.zeros(3)
        for size in range(len(records) + 1):
            for sample in itertools.combinations(records, size):
                total += rate**size * (1 - rate) ** (len(records) - size) * self(sample)
        return total


@pytest.mark.parametrize("seed", range(20))
def test_poisson_rules_bound_every_mechanism(seed):
    mechanism, rate = Mechanism(seed), 0.3
    absent, present = "ab", "abx"
    contexts = [s for size in range(3) for s in itertools.combinations(absent, size)]

    def base(t, *, remove):
        pairs = [(mechanism(s), mechanism((*s, "x"))) for s in contexts]
        return max(hockey_stick(b, a, t) if remove else hockey_stick(a, b, t) for a, b in pairs)

    out, out_x = mechanism.on_sample(absent, rate), mechanism.on_sample(present, rate)
    for t in THRESHOLDS:
        rule = 1 - t if t < 1 - rate else rate * base((t - 1 + rate) / rate, remove=True)
        assert hockey_stick(out_x, out, t) <= rule + 1e-12
        left = 1 - t * (1 - rate)
        rule = left * base(t * rate / left, remove=False) if left > 0 else 0.0
        assert hockey_stick(out, out_x, t) <= rule + 1e-12


@pytest.mark.parametrize("seed", range(20))
def test_fixed_size_rules_bound_every_mechanism(seed):
    mechanism, size = Mechanism(100 + seed), 2
    universe = "abcxy"
    replaced = [
        (s, r)
        for s in itertools.permutations(universe, size)
        for r in itertools.permutations(universe, size)
        if len(set(s) & set(r)) == size - 1
    ]

    def base(t):
        return max(hockey_stick(mechanism(s), mechanism(r), t) for s, r in replaced)

    rate = size / 4
    smaller, larger = (mechanism.on_subsets(d, size) for d in ("abc", "abcx"))
    exchanged = mechanism.on_subsets("abcy", size)
    for t in THRESHOLDS:
        rule = 1 - t if t < 1 - rate else rate * base((t - 1 + rate) / rate)
        assert hockey_stick(larger, smaller, t) <= rule + 1e-12
        left = 1 - t * (1 - rate)
        rule = left * base(t * rate / left) if left > 0 else 0.0
        assert hockey_stick(smaller, larger, t) <= rule + 1e-12
        above = max(t, 1 / t)
        rule = rate * base(1 + (above - 1) / rate)
        rule = rule if t >= 1 else 1 - t + t * rule
        assert hockey_stick(larger, exchanged, t) <= rule + 1e-12


def profile_from_masses(pair, epsilon):
    """Return the profile as P[L > e] - exp(e) Q[L > e], from masses of narrow cells."""
    edges = np.linspace(epsilon, epsilon + 40.0, 40_001)
    mass, q_mass, _, _ = pair.cells(edges)
    losses, masses, _ = pair.atoms(1e-30)
    atoms = (masses * -np.expm1(np.minimum(epsilon - losses, 0.0))).sum()
    return mass.sum() - math.exp(epsilon) * q_mass.sum() + atoms + pair.mass_inf


PAIRS = [
    SampledPair(GaussianPair(1.3), 0.2, Half.REMOVE),
    SampledPair(GaussianPair(1.3), 0.2, Half.ADD),
    ReplaceSampledPair(GaussianPair(1.3), 0.2),
    ReplaceSampledPair(taut.laplace(0.7)._sums()[0].terms[0][0], 0.3),
    ReplaceSampledPair(taut.approximate(0.8, 0.05)._sums()[0].terms[0][0], 0.3),
    ReplaceSampledPair(taut.discrete_laplace(1.0, 2)._sums()[0].terms[0][0], 0.3),
]


@pytest.mark.parametrize("pair", PAIRS, ids=lambda pair: type(pair).__name__)
@pytest.mark.parametrize("epsilon", [-0.5, -0.1, 0.0, 0.05, 0.4])
def test_masses_and_profile_describe_one_pair(pair, epsilon):
    value = float(pair.profile(np.array([epsilon]))[0])
    assert profile_from_masses(pair, epsilon) == pytest.approx(value, rel=1e-8, abs=1e-14)


@pytest.mark.parametrize("pair", PAIRS, ids=lambda pair: type(pair).__name__)
def test_masses_sum_to_one(pair):
    edges = np.linspace(-60.0, 60.0, 4001)
    total = pair.cells(edges).mass.sum() + pair.atoms(1e-30).masses.sum() + pair.mass_inf
    assert total == pytest.approx(1.0, rel=1e-9)


@pytest.mark.parametrize("pair", PAIRS[:3], ids=lambda pair: type(pair).__name__)
def test_surplus_is_mass_minus_scaled_q_mass(pair):
    edges = np.array([-0.4, -0.15, 0.0, 0.03, 0.1, 0.2])
    cells = pair.cells(edges)
    direct = cells.mass - np.exp(edges[:-1]) * cells.q_mass
    assert cells.surplus == pytest.approx(direct, rel=1e-9, abs=1e-13)
