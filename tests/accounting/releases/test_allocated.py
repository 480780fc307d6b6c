"""Random allocation against enumeration, quadrature, Monte Carlo and a prototype's brackets."""

import itertools
import math
from fractions import Fraction

import mpmath as mp
import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from scipy import stats

import taut
from taut import PrivacyLoss
from taut.accounting._adjacency import Adjacency, Half
from taut.accounting._releases.allocated import Allocated
from taut.errors import UnsoundConfiguration


def enumerated(p, q, steps, taken, epsilon):
    """Return delta of removal and of addition, over all outputs of the steps taken."""
    with mp.workdps(40):
        threshold, remove, add = mp.exp(mp.mpf(epsilon)), mp.mpf(0), mp.mpf(0)
        for outcome in itertools.product(range(len(p)), repeat=taken):
            without = math.prod(q[i] for i in outcome)
            chosen = (
                math.prod(p[i] if k == step else q[i] for k, i in enumerate(outcome))
                for step in range(steps)
            )
            mixed = sum(chosen) / steps
            a = mp.mpf(mixed.numerator) / mixed.denominator
            b = mp.mpf(without.numerator) / without.denominator
            remove += max(a - threshold * b, 0)
            add += max(b - threshold * a, 0)
        return remove, add


def both(loss, epsilon):
    """Return bounds on delta of removal and of addition."""
    halves = (Adjacency.REMOVE, Adjacency.ADD)
    return [PrivacyLoss(loss.terms, half).delta_bounds(epsilon) for half in halves]


class TestEnumeration:
    @settings(max_examples=25, deadline=None)
    @given(
        weights=st.lists(st.tuples(st.integers(1, 30), st.integers(1, 30)), min_size=2, max_size=3),
        steps=st.integers(1, 5),
        left=st.integers(0, 4),
        epsilon=st.floats(0.0, 3.0),
    )
    def test_tiny_cases(self, weights, steps, left, epsilon):
        taken = max(steps - left, 1)
        p, q = (
            [float(Fraction(w[i], sum(v[i] for v in weights))) for w in weights] for i in (0, 1)
        )
        p[-1], q[-1] = 1 - sum(p[:-1]), 1 - sum(q[:-1])
        loss = taut.finite(q, p).allocated(steps, taken)  # without the record first
        truths = enumerated(
            *([Fraction(x) for x in part] for part in (p, q)), steps, taken, epsilon
        )
        for bounds, truth in zip(both(loss, epsilon), truths, strict=True):
            assert bounds.lower <= truth + 1e-15
            assert bounds.upper >= truth - 1e-15

    def test_randomized_response(self):
        p, q = [Fraction(3, 4), Fraction(1, 4)], [Fraction(1, 4), Fraction(3, 4)]
        loss = taut.randomized_response(0.75).allocated(6)
        for epsilon in (0.0, 0.1, 0.3, 0.6):
            truths = enumerated(p, q, 6, 6, epsilon)
            for bounds, truth in zip(both(loss, epsilon), truths, strict=True):
                assert bounds.lower <= truth * (1 + 1e-12)
                assert bounds.upper >= truth * (1 - 1e-12)
                assert bounds.gap <= 2e-3 * float(truths[0]) + 1e-15

    @pytest.mark.parametrize("share", [6e-17, 1.4e-16, 1e-12, 2.5e-8])
    def test_outcome_that_the_record_all_but_excludes(self, share):
        # The Q-mass of an outcome is as certain as its loss, and p - q has lost p here.
        p, q = [share / 2, 1 - share / 2], [0.5, 0.5]
        truths = enumerated(*([Fraction(x) for x in part] for part in (p, q)), 4, 3, 0.3)
        loss = taut.finite(q, p).allocated(4, 3)
        for bounds, truth in zip(both(loss, 0.3), truths, strict=True):
            assert bounds.lower <= truth <= bounds.upper <= truth * (1 + 1e-9)

    def test_infinite_mass_is_that_of_one_step(self):
        loss = taut.finite([0.6, 0.4, 0.0], [0.5, 0.4, 0.1]).allocated(4)
        bounds = PrivacyLoss(loss.terms, Adjacency.REMOVE).delta_bounds(50.0)
        assert bounds.lower <= 0.1 <= bounds.upper <= 0.1 * (1 + 1e-9)


def two_or_three(sigma, steps, epsilon, reach=9, nodes=1201):
    """Return delta of removal and addition for two or three Gaussian steps, by quadrature.

    All but the last output are integrated by trapezoids, from ``reach`` deviations below to as many
    above; the last one has a closed form.
    """
    x = np.linspace(-reach * sigma, 1 + reach * sigma, nodes)
    density = stats.norm.pdf(x, 0, sigma) * (x[1] - x[0])
    ratio = np.exp((x - 0.5) / sigma**2)
    if steps == 3:
        ratio, density = np.add.outer(ratio, ratio).ravel(), np.outer(density, density).ravel()
    # R = (known + r) / steps against the threshold: where in r, and the mean beyond it.
    t = math.exp(epsilon)
    above = steps * t - ratio
    with np.errstate(divide="ignore", invalid="ignore"):
        at = np.where(above > 0, 0.5 + sigma**2 * np.log(np.maximum(above, 0)), -np.inf)
    remove = (stats.norm.sf(at, 1, sigma) - above * stats.norm.sf(at, 0, sigma)) / steps
    below = steps / t - ratio
    with np.errstate(divide="ignore", invalid="ignore"):
        at = np.where(below > 0, 0.5 + sigma**2 * np.log(np.maximum(below, 0)), -np.inf)
    add = t * (below * stats.norm.cdf(at, 0, sigma) - stats.norm.cdf(at, 1, sigma)) / steps
    return float(density @ remove), float(density @ add)


@pytest.mark.parametrize("sigma", [0.7, 1.0, 3.0])
@pytest.mark.parametrize("steps", [2, 3])
@pytest.mark.parametrize("epsilon", [0.05, 0.3, 0.8])
def test_quadrature(sigma, steps, epsilon):
    loss = taut.gaussian(sigma).allocated(steps)
    truths = two_or_three(sigma, steps, epsilon)
    for bounds, truth in zip(both(loss, epsilon), truths, strict=True):
        assert bounds.lower <= truth * (1 + 1e-6) + 1e-12
        assert bounds.upper >= truth * (1 - 1e-6) - 1e-12
        assert bounds.gap <= 5e-3 * truth + 1e-9


@pytest.mark.parametrize(
    ("sigma", "steps", "taken", "epochs", "epsilon"),
    [(1.0, 10, 10, 1, 0.3), (2.0, 10, 10, 10, 0.5), (0.8, 20, 7, 2, 0.2), (1.0, 100, 100, 3, 0.1)],
)
def test_monte_carlo(sigma, steps, taken, epochs, epsilon):
    """Both directions, by outputs drawn without the record, to five standard errors."""
    rng = np.random.default_rng(17)
    samples = 200_000
    total = np.ones(samples)
    for _ in range(epochs):
        ratios = np.zeros(samples)
        for _ in range(taken):
            ratios += np.exp((sigma * rng.standard_normal(samples) - 0.5) / sigma**2)
        total *= (steps - taken + ratios) / steps
    loss = epochs * taut.gaussian(sigma).allocated(steps, taken)
    values = (
        np.maximum(total - math.exp(epsilon), 0.0),
        np.maximum(1 - math.exp(epsilon) * total, 0.0),
    )
    for bounds, value in zip(both(loss, epsilon), values, strict=True):
        mean, error = float(value.mean()), float(value.std()) / math.sqrt(samples)
        assert bounds.lower - 5 * error <= mean <= bounds.upper + 5 * error


# Certified brackets of a prototype on another lattice: sharper ones lie inside of them.
PROTOTYPE = [
    (2.0, 10, 10, 1e-6, 2.421716477947277, 2.4243245642710733),
    (0.5, 100, 1, 1e-5, 5.396584694822668, 5.396773118958993),
    (0.7, 100, 10, 1e-5, 4.273199558266747, 4.276927782622126),
    (1.0, 1000, 1, 1e-6, 0.17136372343659056, 0.17242327128791748),
    (3.0, 50, 20, 1e-7, 1.0146433917089903, 1.0177873306184764),
    (0.6, 10, 3, 1e-5, 9.363070339628196, 9.364712754132634),
]


@pytest.mark.parametrize(("sigma", "steps", "epochs", "delta", "low", "high"), PROTOTYPE)
def test_sharpens_the_prototype(sigma, steps, epochs, delta, low, high):
    """At the default tolerance brackets are inside of the known ones."""
    bounds = (epochs * taut.gaussian(sigma).allocated(steps)).epsilon_bounds(delta)
    assert low <= bounds.lower <= bounds.upper <= high
    assert bounds.gap <= 2e-4 * bounds.upper


class TestLittleNoise:
    """Ratios from exp(-500) to exp(500): small ones decide addition, large ones removal."""

    @pytest.mark.parametrize(
        ("sigma", "epsilon"),
        [(0.5, 1.0), (0.5, 20.0), (0.2, 5.0), (0.2, 40.0), (0.1, 40.0), (0.1, 100.0)],
    )
    def test_quadrature(self, sigma, epsilon):
        truths = two_or_three(sigma, 2, epsilon, reach=16, nodes=400_001)
        loss = taut.gaussian(sigma).allocated(2)
        for bounds, truth in zip(both(loss, epsilon), truths, strict=True):
            assert bounds.lower <= truth * (1 + 1e-6)
            assert bounds.upper >= truth * (1 - 1e-6)
            assert bounds.gap <= 1e-3 * truth + 1e-59

    @pytest.mark.parametrize("sigma", [0.05, 0.04])
    @pytest.mark.parametrize("share", [0.5, 1.0, 1.4])
    def test_quadrature_beyond_floats(self, sigma, share):
        """Where the law of the mean is out of reach, the step and a sample of it bound it."""
        epsilon = share / (2 * sigma**2)
        loss = taut.gaussian(sigma).allocated(2)
        truths = two_or_three(sigma, 2, epsilon, nodes=400_001)
        for bounds, truth in zip(both(loss, epsilon), truths, strict=True):
            assert bounds.lower <= truth * (1 + 1e-6)
            assert bounds.upper >= truth * (1 - 1e-6)
        removal = both(loss, epsilon)[0]
        assert removal.lower > 0
        assert removal.upper == pytest.approx(taut.gaussian(sigma).delta(epsilon), rel=1e-6)

    @pytest.mark.parametrize("sigma", [0.01, 0.05, 0.1, 0.2, 0.5])
    @pytest.mark.parametrize("steps", [1, 2, 4, 100])
    @pytest.mark.parametrize("delta", [1e-3, 1e-10])
    def test_costs_a_step_at_most(self, sigma, steps, delta):
        """And at least that step less log(steps), in one epoch and in two."""
        for epochs in (1, 2):
            step = (epochs * taut.gaussian(sigma)).epsilon_bounds(delta)
            bounds = (epochs * taut.gaussian(sigma).allocated(steps)).epsilon_bounds(delta)
            assert 0 < bounds.lower <= bounds.upper <= step.upper * (1 + 2e-4)
            # R is at least r / steps for the ratio r of the step that was drawn.
            assert bounds.upper >= step.lower - epochs * math.log(steps)

    @pytest.mark.parametrize("count", [1, 3])
    def test_of_several_releases(self, count):
        base = count * taut.gaussian(0.05) + taut.laplace(0.02)
        bounds = base.allocated(3).epsilon_bounds(1e-6)
        assert bounds.upper <= base.epsilon(1e-6) * (1 + 1e-3)

    def test_stopped_early_is_a_sample_of_a_step(self):
        part = taut.gaussian(0.05).allocated(4, 2).epsilon_bounds(1e-6)
        sample = taut.gaussian(0.05).poisson(0.5).epsilon_bounds(1e-6)
        assert part.upper == pytest.approx(sample.upper)
        assert part.lower < sample.lower

    def test_does_not_merge_with_other_noise(self):
        """The lower bound of a sum is not that of the steps themselves."""
        loss = taut.gaussian(0.05).allocated(2) + taut.gaussian(0.05)
        bounds = loss.epsilon_bounds(1e-6)
        step = (2 * taut.gaussian(0.05)).epsilon_bounds(1e-6)
        assert taut.gaussian(0.05).epsilon(1e-6) < bounds.lower < step.lower - math.log(2)
        assert bounds.upper <= step.upper * (1 + 1e-3)


class TestValue:
    def test_costs_less_than_poisson_here(self):
        allocated = 10 * taut.gaussian(1.0).allocated(100)
        poisson = 1000 * taut.gaussian(1.0).poisson(0.01)
        assert allocated.epsilon(1e-5) <= 1.702
        assert poisson.epsilon_bounds(1e-5).lower > 1.82

    def test_grows_with_the_steps_taken(self):
        losses = [taut.gaussian(1.0).allocated(8, taken) for taken in (1, 3, 8)]
        epsilons = [loss.epsilon(1e-5) for loss in losses]
        assert epsilons == sorted(epsilons)
        assert losses[-1] == taut.gaussian(1.0).allocated(8)

    def test_first_step_is_a_poisson_sample(self):
        """After one step of t the record took part with probability 1/t."""
        one = taut.gaussian(1.0).allocated(50, 1).epsilon_bounds(1e-6)
        poisson = taut.gaussian(1.0).poisson(1 / 50).epsilon_bounds(1e-6)
        assert one.lower <= poisson.upper
        assert poisson.lower <= one.upper
        assert one.gap <= 2e-3 * one.upper

    def test_one_step_is_the_loss_itself(self):
        loss = taut.gaussian(1.0)
        assert loss.allocated(1).epsilon(1e-5) == loss.epsilon(1e-5)

    def test_of_a_zero_loss(self):
        assert (0 * taut.gaussian(1.0)).allocated(5) == 0 * taut.gaussian(1.0)

    def test_of_several_releases_and_of_laplace_noise(self):
        joint = (taut.gaussian(2.0) + taut.laplace(3.0)).allocated(20)
        bounds = joint.epsilon_bounds(1e-6)
        assert taut.gaussian(2.0).allocated(20).epsilon_bounds(1e-6).lower < bounds.lower
        assert bounds.gap <= 1e-2 * bounds.upper

    def test_json(self):
        loss = 3 * taut.gaussian(1.0).allocated(10, 4)
        assert PrivacyLoss.from_json(loss.to_json()) == loss
        assert "allocated(10, taken=4)" in repr(loss)

    def test_sampled_as_a_whole(self):
        """Who takes part in an epoch with probability 1/2 loses less than who always does."""
        epoch = taut.gaussian(1.0).allocated(10)
        assert epoch.poisson(0.5).epsilon(1e-6) < epoch.epsilon(1e-6)


class TestRefusals:
    def test_replace_one(self):
        with pytest.raises(UnsoundConfiguration, match="replace"):
            taut.gaussian(1.0, 2.0, adjacency="replace").allocated(10)

    @pytest.mark.parametrize("steps", [0, -1, 2.5])
    def test_no_steps(self, steps):
        with pytest.raises((ValueError, TypeError), match="steps"):
            taut.gaussian(1.0).allocated(steps)

    def test_more_steps_than_there_are(self):
        with pytest.raises(ValueError, match="taken must not exceed steps"):
            taut.gaussian(1.0).allocated(5, 6)

    def test_divergences_only(self):
        with pytest.raises(UnsoundConfiguration, match="Renyi"):
            taut.from_rdp(lambda order: 0.1 * order).allocated(5)

    def test_not_a_release(self):
        with pytest.raises(ValueError, match="base"):
            Allocated("gaussian", 5, 5)


class TestLargeLosses:
    """Ratios that no float holds, or none beside one."""

    @pytest.mark.parametrize("sigma", [0.005, 0.025, 0.03, 0.06])
    def test_ratios_beyond_the_nodes_cost_all(self, sigma):
        first = taut.gaussian(sigma).allocated(2, taken=1)  # a Poisson sample
        truth = taut.gaussian(sigma).poisson(0.5)
        for epsilon in (100.0, 600.0, 690.0, 800.0):
            assert first.delta(epsilon) >= truth.delta_bounds(epsilon).lower
        assert first.epsilon(1e-5) >= truth.epsilon_bounds(1e-5).lower
        assert taut.gaussian(sigma).allocated(10).delta(600.0) >= truth.delta_bounds(610.0).lower

    @pytest.mark.parametrize("epsilon", [30.0, 38.0, 100.0, 300.0, 800.0])
    def test_a_ratio_that_rounds_to_zero_is_not_zero(self, epsilon):
        bounds = taut.pure(epsilon).allocated(2).epsilon_bounds(1e-5)
        assert bounds.lower <= epsilon

    def test_atoms_beyond_the_nodes(self):
        bounds = taut.pure(300.0, adjacency="remove").allocated(2, taken=1).delta_bounds(250.0)
        assert bounds.lower <= 0.5 <= bounds.upper


def test_both_halves_come_from_one_law():
    release = taut.gaussian(1.0).allocated(4).terms[0][0]
    remove, add = release.pair(Half.REMOVE), release.pair(Half.ADD)
    assert remove.mass_minus_inf <= 1e-9
    assert np.allclose(sorted(-x for x in add.losses), remove.losses, atol=1e-9)


@pytest.mark.parametrize("sigma", [0.005, 0.04, 0.055, 0.06, 0.065, 0.1, 0.5, 2.0])
@pytest.mark.parametrize("steps", [2, 7])
def test_the_first_step_of_an_epoch_is_a_poisson_sample_at_any_noise(sigma, steps):
    # Two engines for one release, on both sides of where floats hold the ratios.
    found = taut.gaussian(sigma).allocated(steps, taken=1)
    sampled = taut.gaussian(sigma).poisson(1 / steps)
    for epsilon in (0.0, 0.3, 3.0, 30.0, 300.0):
        ours, theirs = found.delta_bounds(epsilon), sampled.delta_bounds(epsilon)
        assert ours.upper >= theirs.lower * (1 - 1e-12)
        assert ours.lower <= theirs.upper * (1 + 1e-12)


def rare_law(rng, size):
    """Return probabilities of which all but one may be as small as exp(-150)."""
    rest = np.exp(-rng.uniform(0.0, rng.choice([1.0, 10.0, 60.0, 150.0]), size - 1)) / size
    return rng.permutation(np.append(rest, 1 - rest.sum()))


@pytest.mark.parametrize("seed", range(12))
def test_thresholds_at_the_ratios_themselves(seed):
    """Errors of merged ratios show where a threshold meets one, from either side."""
    rng = np.random.default_rng(seed)
    size, steps = int(rng.integers(2, 4)), int(rng.integers(2, 5))
    p, q = rare_law(rng, size), rare_law(rng, size)
    with mp.workdps(60):
        exact_p, exact_q = ([mp.mpf(x) / mp.fsum(law) for x in law] for law in (p, q))
        atoms = [
            (mp.fprod(exact_q[i] for i in draw), mp.fsum(exact_p[i] / exact_q[i] for i in draw))
            for draw in itertools.product(range(size), repeat=steps)
        ]
        near = {abs(float(mp.log(total / steps))) for _, total in atoms}
        for epsilon in itertools.product(sorted(near)[:8], [1 - 1e-9, 1 - 1e-13, 1.0, 1 + 1e-9]):
            at = math.prod(epsilon)
            t = mp.exp(at)
            deltas = {
                "remove": mp.fsum(m * max(total / steps - t, 0) for m, total in atoms),
                "add": mp.fsum(m * max(1 - t * total / steps, 0) for m, total in atoms),
            }
            for half, delta in deltas.items():
                bounds = taut.finite(q, p, adjacency=half).allocated(steps).delta_bounds(at)
                # The laws that were given are rounded, and so is their sum.
                slack = delta * 1e-11 * (1 + at) + mp.mpf(1e-58)
                assert bounds.lower - slack <= delta <= bounds.upper + slack
