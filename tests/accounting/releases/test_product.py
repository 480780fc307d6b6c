"""Several releases from one sample: the product as a pair, and its amplification."""

import itertools
import math
from fractions import Fraction

import mpmath as mp
import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from oracles import accounting as oracles
from oracles.engines import OpaqueGaussian, check_delta

import taut
from taut import accounting
from taut.accounting._adjacency import Half
from taut.accounting._engines.convex_order import ConvexOrder
from taut.accounting._pairs.blurred import SmoothPair
from taut.accounting._pairs.discretisation import BeyondLattice
from taut.accounting._pairs.exponential import laplace_pair
from taut.accounting._pairs.finite import FinitePair, binary_pair
from taut.accounting._pairs.gaussian import GaussianPair, VariancePair
from taut.accounting._pairs.sampled import SampledPair
from taut.accounting._releases.product import product_pair

EPSILONS = np.array([-20.0, -5.0, -1.0, -0.1, 0.0, 0.3, 1.0, 2.0, 5.0, 10.0, 20.0, 40.0])
THIRDS = st.integers(1, 8)


def vectors(size):
    """Return exact probability vectors without zeros."""
    return st.lists(THIRDS, min_size=size, max_size=size).map(
        lambda parts: [Fraction(part, sum(parts)) for part in parts]
    )


def product(*vectors_):
    return [math.prod(parts) for parts in itertools.product(*vectors_)]


def floats(vector):
    return [float(value) for value in vector]


class TestProductOfGaussians:
    @pytest.mark.parametrize(
        "gaussians",
        [[(0.5, 4)], [(0.05, 400)], [(0.3, 1), (0.4, 1)], [(3.0, 2)], [(1e-3, 2)], [(8.0, 1)]],
        ids=str,
    )
    def test_is_enclosed(self, gaussians):
        pair = product_pair([(OpaqueGaussian(mu), n) for mu, n in gaussians])
        mu = math.sqrt(sum(n * mu**2 for mu, n in gaussians))
        truth = GaussianPair(mu).profile(EPSILONS * mu)
        upper, lower = pair.profile(EPSILONS * mu), pair.attained.profile(EPSILONS * mu)
        # Both profiles carry their own relative rounding error.
        slack = 1e-9 * truth + 1e-75
        assert (upper >= truth - slack).all()
        assert (lower <= truth + slack).all()
        near = np.abs(EPSILONS) <= 5
        assert (upper[near] - lower[near] <= 1e-2 * upper[near]).all()

    @given(count=st.integers(1, 60), mu=st.floats(0.05, 3), rate=st.floats(1e-3, 0.9))
    @settings(max_examples=25)
    def test_merge_exactly_when_sampled(self, count, mu, rate):
        several = (count * taut.gaussian(1 / mu)).poisson(rate)
        one = taut.gaussian(1 / (mu * math.sqrt(count))).poisson(rate)
        bounds, expected = several.epsilon_bounds(1e-6), one.epsilon_bounds(1e-6)
        assert bounds.upper == pytest.approx(expected.upper, rel=1e-9, abs=1e-12)


class TestProductOfFinitePairs:
    @settings(max_examples=60)
    @given(
        p=vectors(3),
        q=vectors(3),
        r=vectors(2),
        s=vectors(2),
        count=st.integers(1, 2),
        rate=st.integers(1, 15).map(lambda k: Fraction(k, 16)),
        half=st.sampled_from(["add", "remove"]),
        epsilon=st.floats(0, 3),
    )
    def test_sampled_sum_against_enumeration(self, p, q, r, s, count, rate, half, epsilon):
        without, with_it = product(p, *[r] * count), product(q, *[s] * count)
        mixed = [(1 - rate) * a + rate * b for a, b in zip(without, with_it, strict=True)]
        pair = (without, mixed) if half == "add" else (mixed, without)
        loss = taut.finite(floats(p), floats(q), adjacency=half)
        loss += count * taut.finite(floats(r), floats(s), adjacency=half)
        bounds = loss.poisson(float(rate)).delta_bounds(epsilon)
        truth = oracles.finite_delta([pair], epsilon)
        assert bounds.lower <= truth * (1 + mp.mpf(1e-9)) + mp.mpf(1e-12)
        assert bounds.upper >= truth * (1 - mp.mpf(1e-9)) - mp.mpf(1e-12)

    @pytest.mark.parametrize("count", [1, pytest.param(30, marks=pytest.mark.slow)])
    @pytest.mark.parametrize("delta", [1e-2, 1e-6, 1e-12])
    def test_responses_on_one_sample(self, count, delta):
        # Randomized responses share a lattice, so their product is exact.
        p, n, rate = 0.6, 12, 0.2
        loss = count * (n * taut.randomized_response(p)).poisson(rate)
        k = np.arange(n + 1)
        mass = np.array([math.comb(n, int(i)) * p**i * (1 - p) ** (n - i) for i in k])
        expected = count * taut.finite(mass.tolist(), mass[::-1].tolist()).poisson(rate)
        bounds, reference = loss.epsilon_bounds(delta), expected.epsilon_bounds(delta, 1e-5)
        assert bounds.lower <= reference.upper * (1 + 1e-9)
        assert bounds.upper >= reference.lower * (1 - 1e-9)
        assert bounds.gap <= 2e-3 * bounds.upper

    def test_certain_failure_stays_certain(self):
        loss = (taut.approximate(0.1, 0.01) + taut.laplace(1.0)).poisson(0.5)
        assert loss.epsilon(0.004) == math.inf
        assert math.isfinite(loss.epsilon(0.006))


class TestSamplers:
    def test_amplifying_the_sum_differs_from_the_sum_of_the_amplified(self):
        a, b = taut.gaussian(2.0), taut.laplace(3.0)
        together = 100 * (a + b).poisson(0.05)
        apart = 100 * a.poisson(0.05) + 100 * b.poisson(0.05)
        assert together.epsilon_bounds(1e-6).lower > apart.epsilon(1e-6)

    @pytest.mark.parametrize("steps", [1, 50, 5_000])
    def test_bracket_meets_its_tolerance(self, steps):
        loss = steps * (taut.gaussian(2.0) + taut.laplace(3.0)).poisson(0.01)
        bounds = loss.epsilon_bounds(1e-6)
        assert bounds.gap <= 1.5e-3 * bounds.upper

    def test_full_rate_is_the_sum(self):
        sum_ = taut.gaussian(2.0) + 2 * taut.laplace(3.0)
        one, whole = sum_.poisson(1.0).epsilon_bounds(1e-6), sum_.epsilon_bounds(1e-6)
        assert one.lower <= whole.upper
        assert whole.lower <= one.upper
        assert one.gap <= 2e-3 * one.upper

    @pytest.mark.parametrize("relation", ["add_remove", "replace", "zero_out"])
    def test_fixed_size_of_a_sum(self, relation):
        sum_ = 4 * taut.gaussian(2.0, adjacency="replace")
        merged = taut.gaussian(1.0, adjacency="replace")
        several = sum_.fixed_size(10, 100, adjacency=relation).epsilon(1e-6)
        assert several == pytest.approx(
            merged.fixed_size(10, 100, adjacency=relation).epsilon(1e-6), rel=1e-12
        )

    def test_round_trip(self):
        loss = 7 * (taut.gaussian(2.0) + 3 * taut.laplace(3.0)).poisson(0.1)
        assert taut.PrivacyLoss.from_json(loss.to_json()) == loss

    def test_reads_like_the_sum(self):
        loss = (taut.gaussian(2.0) + 3 * taut.laplace(3.0)).poisson(0.1)
        assert "(gaussian(sigma=2, sensitivity=1) + 3 * laplace(" in repr(loss)

    def test_batches_inside_a_poisson_sample_are_refused(self):
        batch = taut.gaussian(1.0, adjacency="replace").fixed_size(2, 10)
        with pytest.raises(taut.errors.UnsoundConfiguration, match="no theorem"):
            (batch + taut.gaussian(1.0)).poisson(0.1)


class TestSmoothPair:
    @given(p=vectors(5), q=vectors(5), epsilon=st.floats(-4, 4))
    def test_is_a_post_processing(self, p, q, epsilon):
        smooth = SmoothPair(tuple(floats(p)), tuple(floats(q)))
        bars = oracles.finite_delta([(p, q)], epsilon)
        assert float(smooth.profile(np.array([epsilon]))[0]) <= float(bars) + 1e-12

    @given(p=vectors(5), q=vectors(5), edges=st.lists(st.floats(-3, 3), min_size=2, max_size=9))
    def test_cells_are_integrals_of_the_densities(self, p, q, edges):
        edges = np.array(sorted({-5.0, *edges, 5.0}))
        smooth = SmoothPair(tuple(floats(p)), tuple(floats(q)))
        cells, atoms = smooth.cells(edges), smooth.atoms(0.0)
        assert cells.mass.sum() + atoms.masses.sum() == pytest.approx(1, abs=1e-12)
        assert cells.q_mass.sum() + atoms.q_masses.sum() == pytest.approx(1, abs=1e-12)
        plain = cells.mass - np.exp(edges[:-1]) * cells.q_mass
        assert cells.surplus == pytest.approx(plain, abs=1e-12)
        # The profile at an edge is what lies above it.
        atoms_above = atoms.losses > edges[:, None]
        p_above = np.append(np.cumsum(cells.mass[::-1])[::-1], 0.0)
        q_above = np.append(np.cumsum(cells.q_mass[::-1])[::-1], 0.0)
        p_above += (atoms_above * atoms.masses).sum(axis=1)
        q_above += (atoms_above * atoms.q_masses).sum(axis=1)
        expected = np.maximum(p_above - np.exp(edges) * q_above, 0.0)
        assert smooth.profile(edges) == pytest.approx(expected, abs=1e-10)

    @given(p=vectors(4), q=vectors(4), z=st.floats(-1, 3))
    def test_moments_follow_from_the_density(self, p, q, z):
        smooth = SmoothPair(tuple(floats(p)), tuple(floats(q)))
        edges = np.linspace(-3, 3, 20_001)
        cells, atoms = smooth.cells(edges), smooth.atoms(0.0)
        middle = (edges[1:] + edges[:-1]) / 2
        expected = (cells.mass * np.exp(z * middle)).sum()
        expected += (atoms.masses * np.exp(z * atoms.losses)).sum()
        moment = smooth.log_mgf(np.array([z], dtype=complex))[0].real
        assert moment == pytest.approx(math.log(expected), abs=1e-3)

    def test_empty_bars_leave_atoms(self):
        smooth = SmoothPair((0.7, 0.0, 0.3), (0.3, 0.0, 0.7))
        at = np.array([-2.0, 0.0, 0.5, 2.0])
        exact = FinitePair((math.log(3 / 7), math.log(7 / 3)), (math.log(0.3), math.log(0.7)))
        assert smooth.profile(at) == pytest.approx(exact.profile(at), abs=1e-15)


def test_lone_copies_keep_relative_accuracy_far_out():
    pair = product_pair([(OpaqueGaussian(0.5), 2), (binary_pair(0.1), 1)])
    at = np.array([8.0])
    with mp.workdps(30):
        truth = sum(
            weight * oracles.gaussian_delta(mp.sqrt(mp.mpf("0.5")), 8.0 - shift)
            for weight, shift in [
                (mp.exp(0.1) / (1 + mp.exp(0.1)), mp.mpf("0.1")),
                (1 / (1 + mp.exp(0.1)), mp.mpf("-0.1")),
            ]
        )
    assert truth < 1e-25
    bounds = taut.Bounds(float(pair.attained.profile(at)[0]), float(pair.profile(at)[0]))
    check_delta(bounds, truth, tolerance=0.05)


def test_replace_one_under_poisson_sampling_against_the_gaussian_pair():
    # For Gaussian sums the exchanged record moves the mean to either side of the unsampled one.
    sigma, rate = 1.5, 0.2
    loss = taut.gaussian(sigma, sensitivity=2.0, adjacency="replace")
    sampled = loss.poisson(rate, removal=taut.gaussian(sigma))

    def truth(epsilon):
        def density(x, mean):
            return mp.npdf(x, mean, sigma)

        def excess(x):
            p = (1 - rate) * density(x, 0) + rate * density(x, 1)
            q = (1 - rate) * density(x, 0) + rate * density(x, -1)
            return max(p - mp.exp(epsilon) * q, 0)

        # The ratio of the densities rises: quadrature starts where the excess does.
        start, end = mp.mpf(-12), mp.mpf(20)
        for _ in range(100):
            middle = (start + end) / 2
            start, end = (start, middle) if excess(middle) > 0 else (middle, end)
        return mp.quad(excess, [end, end + 1, end + 2, end + 4, end + 8, 25])

    for epsilon in (0.0, 0.2, 0.5, 1.0):
        lower, upper = sampled.delta_bounds(epsilon)
        assert lower <= float(truth(epsilon)) * (1 + 1e-12)
        assert upper >= float(truth(epsilon)) * (1 - 1e-12)
        assert upper - lower <= 1e-9 * upper


class TestPoissonUnderReplace:
    @settings(max_examples=30)
    @given(
        rows=st.lists(vectors(3), min_size=3, max_size=3),
        rate=st.integers(1, 15).map(lambda k: Fraction(k, 16)),
        epsilon=st.floats(0, 2),
        count=st.integers(1, 2),
    )
    def test_dominates_every_mechanism_of_one_record(self, rows, rate, epsilon, count):
        # Outputs with no record, with one record, and with the other one.
        none, one, other = rows
        exchange = taut.finite(floats(one), floats(other), adjacency="replace")
        removal = taut.from_profile(_worst([(one, none), (other, none)]), adjacency="add_remove")
        loss = count * exchange.poisson(float(rate), removal=removal)
        mixed = [
            [(1 - rate) * a + rate * b for a, b in zip(none, row, strict=True)]
            for row in (one, other)
        ]
        claimed = loss.delta(epsilon)
        for pair in (mixed, mixed[::-1]):
            truth = oracles.finite_delta([tuple(pair)] * count, epsilon)
            assert claimed >= truth * (1 - mp.mpf(1e-9)) - mp.mpf(1e-12)

    def test_limits_of_the_rate(self):
        base = taut.gaussian(1.0, sensitivity=2.0, adjacency="replace")
        removal = taut.gaussian(1.0)
        assert base.poisson(0.0, removal=removal).epsilon(0) == 0
        assert base.poisson(1.0, removal=removal).epsilon(1e-5) == base.epsilon(1e-5)

    def test_lies_between_sampled_removal_and_fixed_size(self):
        base = taut.gaussian(1.0, sensitivity=2.0, adjacency="replace")
        loss = 500 * base.poisson(0.01, removal=taut.gaussian(1.0))
        floor = 500 * taut.gaussian(1.0).poisson(0.01)
        ceiling = 500 * base.fixed_size(10, 1_000, adjacency="replace")
        assert floor.epsilon_bounds(1e-5).lower < loss.epsilon(1e-5) < ceiling.epsilon(1e-5)

    def test_round_trip(self):
        base = taut.gaussian(1.0, sensitivity=2.0, adjacency="replace")
        loss = base.poisson(0.1, removal=taut.gaussian(1.0))
        assert taut.PrivacyLoss.from_json(loss.to_json()) == loss

    def test_needs_the_cost_of_removal(self):
        with pytest.raises(taut.errors.UnsoundConfiguration, match="removal"):
            taut.gaussian(1.0, sensitivity=2.0, adjacency="replace").poisson(0.1)

    def test_is_not_for_other_relations(self):
        with pytest.raises(taut.errors.UnsoundConfiguration, match="adjacency='replace'"):
            taut.gaussian(1.0).poisson(0.1, removal=taut.gaussian(1.0))

    def test_removal_of_another_relation(self):
        base = taut.gaussian(1.0, sensitivity=2.0, adjacency="replace")
        with pytest.raises(taut.errors.AdjacencyMismatch, match="removal"):
            base.poisson(0.1, removal=base)

    @pytest.mark.parametrize("removal", [taut.gaussian(4.0), taut.gaussian(1.0, sensitivity=0.5)])
    def test_removal_of_another_release(self, removal):
        base = taut.gaussian(1.0, sensitivity=2.0, adjacency="replace")
        with pytest.raises(taut.errors.UnsoundConfiguration, match="not of one"):
            base.poisson(0.1, removal=removal)

    def test_removal_is_no_loss(self):
        base = taut.gaussian(1.0, sensitivity=2.0, adjacency="replace")
        with pytest.raises(TypeError, match="removal"):
            base.poisson(0.1, removal=1.0)

    def test_removal_is_not_free(self):
        base = taut.gaussian(1.0, sensitivity=2.0, adjacency="replace")
        with pytest.raises(ValueError, match="removal"):
            base.poisson(0.1, removal=taut.zero())


def _worst(pairs):
    """Return the largest profile over pairs in both orders, exact at every kink."""
    pairs = [*pairs, *[(q, p) for p, q in pairs]]
    kinks = {
        float(mp.log(oracles.fraction(p / q))) for a, b in pairs for p, q in zip(a, b, strict=True)
    }
    at = sorted({*np.linspace(-4, 4, 17).tolist(), *kinks})
    return {
        e: min(float(max(oracles.finite_delta([pair], e) for pair in pairs)) * (1 + 1e-15), 1.0)
        for e in at
    }


CURVE = {2: 1.0, 8: 2.0}


@pytest.mark.parametrize(
    "sample",
    [
        lambda batch: batch("replace").poisson(0.5, removal=taut.gaussian(1.0)),
        lambda batch: (taut.from_rdp(CURVE, adjacency="zero_out") + batch("zero_out")).poisson(0.5),
        lambda _: (
            taut.from_rdp(CURVE, adjacency="replace")
            .fixed_size(10, 100, adjacency="zero_out")
            .poisson(0.5)
        ),
        lambda _: (
            taut.from_rdp(CURVE, adjacency="replace")
            .fixed_size(10, 100, adjacency="replace")
            .fixed_size(5, 10, adjacency="replace")
        ),
        lambda batch: batch("replace").fixed_size(5, 10),
    ],
    ids=["replace", "sum", "divergences", "twice, divergences", "twice"],
)
def test_sampling_of_batches_is_refused(sample):
    def batch(relation):
        base = taut.gaussian(1.0, 2.0, adjacency="replace")
        return base.fixed_size(10, 100, adjacency=relation)

    with pytest.raises(taut.errors.UnsoundConfiguration, match="fixed_size"):
        sample(batch)


def test_many_copies_lose_no_mass_to_rounding():
    # Every convolution rounds; a pair whose masses sum to less than one dominates nothing.
    pair = product_pair([(laplace_pair(0.1), 100_000)])
    total = math.fsum(np.exp(np.array(pair.log_masses)).tolist()) + pair.mass_inf
    assert 1 <= total < 1 + 1e-6


@pytest.mark.parametrize("count", [10, 10_000, 1_000_000])
def test_many_copies_against_the_merged_gaussian(count):
    # As many Gaussians, which an engine may not recognise, are one, on the sample too.
    mu, rate = 2.0, 1e-3
    pair = product_pair([(OpaqueGaussian(mu / math.sqrt(count)), count)])
    for half in (Half.ADD, Half.REMOVE):
        truth = SampledPair(GaussianPair(mu), rate, half).profile(EPSILONS)
        upper = SampledPair(pair, rate, half).profile(EPSILONS)
        lower = SampledPair(pair.attained, rate, half).profile(EPSILONS)
        assert (upper >= truth * (1 - 1e-9) - 1e-75).all()
        assert (lower <= truth * (1 + 1e-9) + 1e-75).all()


def test_a_product_beyond_floats_is_bounded_trivially(monkeypatch):
    def beyond(*_):
        raise BeyondLattice("too far apart")

    monkeypatch.setattr(ConvexOrder, "compose", beyond)
    pair = product_pair([(laplace_pair(1.0), 3), (binary_pair(0.1), 1)])
    assert pair.mass_inf == 1
    assert pair.attained.profile(np.array([0.0]))[0] <= 1e-12


class TestOutcomesFarBelowZero:
    """Outcomes that Q has often and P all but never: what is cut there must not become Q-mass."""

    TERMS = ((OpaqueGaussian(1.83), 55), (VariancePair(8.04, 0.17), 1))

    def test_no_more_mass_than_there_is(self):
        atoms = product_pair(self.TERMS).atoms(0.0)
        assert atoms.losses[0] < -100
        assert math.fsum(atoms.q_masses) <= 1 + 1e-9

    def test_samples_are_bracketed(self):
        joint = 55 * taut.gaussian(0.774, math.sqrt(2)) + accounting.variance_pair(8.04, 0.17)
        bounds = (1_000 * joint.poisson(1e-4)).epsilon_bounds(1e-6)
        assert bounds.gap <= 1e-3 * bounds.upper
        # Looking at one step alone is post-processing.
        assert bounds.lower >= joint.poisson(1e-4).epsilon_bounds(1e-6).lower
