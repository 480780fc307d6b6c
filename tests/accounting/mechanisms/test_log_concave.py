"""Mixed and general additive noise, against 40-digit integrals and quadrature of the densities."""

import math

import mpmath as mp
import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

import taut
from taut.accounting._adjacency import Adjacency, Half
from taut.accounting._comparisons.equal_variance import (
    compare_mixing,
    estimate_loss_moments,
    fisher_information,
)
from taut.accounting._mechanisms.log_concave import AdditiveNoise, additive_noise
from taut.accounting._mechanisms.uniform_moments import (
    gaussian_uniform_cumulants,
    laplace_cumulants,
    laplace_uniform_cumulants,
)
from taut.accounting._mechanisms.uniform_noise import (
    MixedGaussian,
    MixedLaplace,
    mixed_gaussian,
    mixed_laplace,
)
from taut.errors import UnsoundConfiguration

BOTH = (Half.REMOVE, Half.ADD)


def at(release, half, order):
    return float(release.renyi(half, np.array([float(order)]))[0])


def only(loss):
    ((release, _),) = loss.terms
    return release


# --- truths --------------------------------------------------------------------------------------


def mp_gaussian_uniform(width):
    """Return the density of N(0, 1) plus uniform noise, in high precision."""
    half = mp.mpf(width) / 2

    def density(x):
        x = -abs(x)
        root = mp.sqrt(2)
        return (mp.erfc(-(x + half) / root) - mp.erfc(-(x - half) / root)) / (4 * half)

    return density


def mp_laplace_uniform(width):
    """Return the density of Laplace noise of scale 1 plus uniform noise, in high precision."""
    w = mp.mpf(width)

    def density(x):
        x = abs(x)
        if x <= w / 2:
            return (2 - mp.exp(x - w / 2) - mp.exp(-x - w / 2)) / (2 * w)
        return mp.exp(w / 2 - x) * -mp.expm1(-w) / (2 * w)

    return density


def mp_cumulant(density, order, shift, width, reach):
    """Return log int f(x - v)^k f(x)^(1-k) dx with 20 digits."""
    with mp.workdps(22):
        k, v, half = mp.mpf(order), mp.mpf(shift), mp.mpf(width) / 2
        ends = [-half - reach, -half, -half + v, half, half + v, half + k * v / 2, half + k * v]
        ends = sorted({*ends, half + k * v + reach, mp.mpf(0)})
        return mp.log(mp.quad(lambda x: density(x - v) ** k * density(x) ** (1 - k), ends))


class TestGaussianUniformMoments:
    @pytest.mark.parametrize(
        ("order", "shift", "width", "accuracy"),
        [
            (2, 1.0, 4.0, 1e-11),
            (3, 3.0, 20.0, 1e-11),
            (4, 0.1 / 0.335, 11.25 / 0.335, 1e-11),
            (8, 2.0, 0.5, 1e-11),
            (9, 2.0, 0.5, 1e-11),
            (5, 0.7, 0.05, 1e-11),
            (30, 0.3, 50.0, 1e-11),
            (64, 0.5, 5.0, 1e-11),
            (2, 0.01, 3.0, 1e-8),
            (3, 1e-3, 10.0, 1e-6),
        ],
    )
    def test_is_a_tight_upper_bound(self, order, shift, width, accuracy):
        exact = mp_cumulant(mp_gaussian_uniform(width), order, shift, width, 14)
        found = gaussian_uniform_cumulants(shift, width, max(order, 8))[order]
        assert exact <= found <= exact * (1 + accuracy)

    @pytest.mark.slow
    @settings(max_examples=25)
    @given(order=st.integers(2, 20), shift=st.floats(0.1, 3.0), width=st.floats(0.02, 60.0))
    def test_random_parameters(self, order, shift, width):
        x = np.arange(-width / 2 - 12, width / 2 + order * shift + 12, 0.03)
        terms = order * log_f("gaussian", 1.0, width, x - shift)
        terms += (1 - order) * log_f("gaussian", 1.0, width, x)
        peak = terms.max()
        exact = peak + math.log(np.exp(terms - peak).sum() * 0.03)
        found = gaussian_uniform_cumulants(shift, width, 20)[order]
        assert exact * (1 - 1e-9) <= found <= exact * (1 + 1e-9)

    @pytest.mark.parametrize("width", [40.0, 1e3, 1e6, 1e10])
    def test_far_edges_do_not_see_each_other(self, width):
        # (A - 1) width tends to a constant of the edges, here for order 2 and shift 1.
        found = gaussian_uniform_cumulants(1.0, width, 8)[2]
        assert math.expm1(found) * width == pytest.approx(
            2.7281225597785, rel=1e-14 * width + 1e-12
        )
        assert math.expm1(found) * width >= 2.72812255977

    @pytest.mark.parametrize("width", [0.0, 1e-9, 0.00999])
    def test_narrow_mixing_counts_as_none(self, width):
        found = gaussian_uniform_cumulants(0.7, width, 16)
        k = np.arange(17)
        assert found == pytest.approx(k * (k - 1) * 0.49 / 2, rel=1e-12)

    def test_never_above_the_gaussian(self):
        k = np.arange(301)
        for shift, width in [(0.01, 0.02), (1.0, 0.02), (30.0, 3.0), (5.0, 1e5), (400.0, 1.0)]:
            found = gaussian_uniform_cumulants(shift, width, 300)
            assert (found <= k * (k - 1) * shift**2 / 2 * (1 + 1e-12)).all()
            assert found[301 // 2] > 0

    def test_the_window_follows_the_shift(self):
        # A window that ends eight deviations past the edge misses the peak at k v.
        exact = mp_cumulant(mp_gaussian_uniform(33.5), 4, 3.0, 33.5, 14)
        with mp.workdps(30):
            f = mp_gaussian_uniform(33.5)
            cut = mp.log(
                mp.quad(lambda x: f(x - 3) ** 4 * f(x) ** -3, [-25, -16.75, 0, 16.75, 24.75])
            )
        assert cut < exact - 4
        assert gaussian_uniform_cumulants(3.0, 33.5, 8)[4] >= exact


class TestLaplaceUniformMoments:
    @pytest.mark.parametrize(
        ("order", "shift", "width"),
        [
            (2, 1.0, 10.0),
            (5, 0.5, 3.0),
            (20, 1.0, 10.0),
            (64, 0.2, 20.0),
            (3, 2.0, 1.0),
            (4, 5.0, 0.2),
            (2, 0.01, 0.02),
            (6, 0.3, 200.0),
            (128, 1.0, 5.0),
        ],
    )
    def test_is_a_tight_upper_bound(self, order, shift, width):
        exact = mp_cumulant(mp_laplace_uniform(width), order, shift, width, 90)
        found = laplace_uniform_cumulants(shift, width, order)[order]
        assert exact <= found <= exact * (1 + 1e-9)

    def test_never_above_laplace_noise_alone(self):
        for shift, width in [(0.5, 0.0), (0.5, 0.005), (2.0, 3.0), (9.0, 1e4), (1e5, 1.0)]:
            k = np.arange(2.0, 301.0)
            found = laplace_uniform_cumulants(shift, width, 300)[2:]
            assert (found <= laplace_cumulants(shift, k)).all()

    def test_laplace_alone_is_the_closed_form(self):
        for k in (2, 3, 17):
            exact = math.log(
                k / (2 * k - 1) * math.exp((k - 1) * 0.7)
                + (k - 1) / (2 * k - 1) * math.exp(-k * 0.7)
            )
            assert laplace_cumulants(0.7, np.array([float(k)]))[0] == pytest.approx(
                exact, rel=1e-13
            )


# --- releases ------------------------------------------------------------------------------------

AXIS = np.arange(-30.0, 60.0, 0.02)


def log_f(kind, noise, width, x):
    """Return the log-density of the mixed noise by direct numerical convolution."""
    nodes, weights = np.polynomial.legendre.leggauss(200)
    u = nodes * width / 2
    y = np.subtract.outer(x, u) / noise
    if kind == "gaussian":
        logs = -(y**2) / 2 - math.log(noise * math.sqrt(2 * math.pi))
    else:
        logs = -np.abs(y) - math.log(2 * noise)
    peak = logs.max(axis=1)
    return peak + np.log(np.exp(logs - peak[:, None]) @ weights / 2)


def sampled_divergence(log_p0, log_p1, rate, order, half, step):
    mixture = np.logaddexp(math.log1p(-rate) + log_p0, math.log(rate) + log_p1)
    p, q = (mixture, log_p0) if half is Half.REMOVE else (log_p0, mixture)
    terms = order * p + (1 - order) * q
    peak = terms.max()
    return (peak + math.log(np.exp(terms - peak).sum() * step)) / (order - 1)


class TestMixedGaussian:
    @pytest.mark.parametrize("half", BOTH)
    @pytest.mark.parametrize("order", [1.3, 2, 2.5, 3, 6, 7.1])
    @pytest.mark.parametrize("rate", [0.05, 0.6])
    def test_bounds_one_coordinate_in_both_directions(self, half, order, rate):
        release = only(mixed_gaussian(0.9, 4.0, rate=rate))
        p0, p1 = (log_f("gaussian", 0.9, 4.0, AXIS - v) for v in (0.0, 1.0))
        truth = sampled_divergence(p0, p1, rate, order, half, 0.02)
        found = at(release, half, order)
        assert truth <= found * (1 + 1e-10)
        if half is Half.REMOVE and order == int(order):
            assert found == pytest.approx(truth, rel=1e-9)

    @settings(max_examples=12)
    @given(
        angle=st.floats(0, math.pi / 2),
        rate=st.floats(0.05, 1.0),
        width=st.floats(0.5, 8.0),
        largest=st.floats(0.72, 1.0),
        order=st.integers(2, 6),
    )
    def test_no_direction_in_the_plane_exceeds_it(self, angle, rate, width, largest, order):
        v = np.minimum([math.cos(angle), math.sin(angle)], largest)
        x = np.arange(-width / 2 - 8, width / 2 + order + 8, 0.2)
        logs = [(log_f("gaussian", 0.8, width, x), log_f("gaussian", 0.8, width, x - s)) for s in v]
        p0 = np.add.outer(logs[0][0], logs[1][0]).ravel()
        p1 = np.add.outer(logs[0][1], logs[1][1]).ravel()
        release = only(mixed_gaussian(0.8, width, sensitivity_inf=largest, dimension=2, rate=rate))
        for half in BOTH:
            if rate < 1:
                truth = sampled_divergence(p0, p1, rate, order, half, 0.04)
                assert truth <= at(release, half, order) * (1 + 1e-8) + 1e-12

    @pytest.mark.parametrize("order", [2, 4, pytest.param(9, marks=pytest.mark.slow)])
    def test_vertex_with_remainder(self, order):
        release = only(mixed_gaussian(0.5, 3.0, sensitivity_inf=0.6))
        rest = math.sqrt(1 - 2 * 0.36)
        exact = 2 * mp_cumulant(mp_gaussian_uniform(6), order, 1.2, 6, 14)
        exact += mp_cumulant(mp_gaussian_uniform(6), order, rest / 0.5, 6, 14)
        assert at(release, Half.ADD, order) * (order - 1) == pytest.approx(float(exact), rel=1e-9)

    def test_few_coordinates(self):
        release = only(mixed_gaussian(0.5, 3.0, sensitivity_inf=0.6, dimension=2))
        exact = 2 * mp_cumulant(mp_gaussian_uniform(6), 3, 1.2, 6, 14)
        assert at(release, Half.ADD, 3) * 2 == pytest.approx(float(exact), rel=1e-9)

    @given(sensitivity=st.floats(0.1, 10.0))
    @settings(max_examples=10)
    def test_only_ratios_matter(self, sensitivity):
        one = only(mixed_gaussian(0.5, 3.0, sensitivity_inf=0.3, rate=0.1))
        scaled = only(
            mixed_gaussian(
                0.5 * sensitivity,
                3.0 * sensitivity,
                sensitivity=sensitivity,
                sensitivity_inf=0.3 * sensitivity,
                rate=0.1,
            )
        )
        assert at(one, Half.ADD, 5) == pytest.approx(at(scaled, Half.ADD, 5), rel=1e-9)

    @pytest.mark.parametrize("order", [1.2, 1.7, 2, 3, 4.5, 12, 40])
    @pytest.mark.parametrize("width", [0.0, 0.3, 5.0])
    def test_never_above_the_gaussian_alone(self, order, width):
        release = only(mixed_gaussian(0.4, width, rate=0.02))
        plain = taut.gaussian(0.4).poisson(0.02).rdp(order)
        assert at(release, Half.REMOVE, order) <= plain * (1 + 1e-8)
        if width == 0:
            assert at(release, Half.REMOVE, order) == pytest.approx(plain, rel=1e-8)

    def test_more_mixing_costs_less(self):
        values = [
            at(only(mixed_gaussian(0.4, width, rate=0.02)), Half.ADD, 4)
            for width in (0.0, 0.1, 0.5, 2.0, 10.0, 100.0, 1e5)
        ]
        assert values == sorted(values, reverse=True)
        assert len(set(values)) == len(values)

    def test_dense_shifts_tend_to_the_fisher_information(self):
        information = fisher_information(0.335, 11.25)
        found = at(only(mixed_gaussian(0.335, 11.25, sensitivity_inf=1e-3)), Half.ADD, 4)
        assert found == pytest.approx(4 * information / 2, rel=1e-4)
        assert found > 4 * information / 2

    def test_epsilon_and_sum(self):
        total = 3400 * mixed_gaussian(0.335, 11.25, sensitivity_inf=0.1, rate=0.03)
        assert total.epsilon(1e-5) == pytest.approx(7.249, abs=2e-3)
        assert (total + taut.laplace(10.0)).epsilon(1e-5) > total.epsilon(1e-5)

    def test_large_orders_are_unknown_or_finite(self):
        release = only(mixed_gaussian(0.5, 3.0, rate=0.1))
        assert math.isfinite(at(release, Half.ADD, 1000))
        assert at(release, Half.ADD, 1e7) == math.inf

    def test_sampling_multiplies_rates(self):
        release = only(mixed_gaussian(0.5, 3.0, rate=0.5)).sampled(0.5)
        assert release == only(mixed_gaussian(0.5, 3.0, rate=0.25))

    def test_names_itself(self):
        assert str(only(mixed_gaussian(0.5, 3.0))) == (
            "mixed_gaussian(sigma=0.5, width=3, sensitivity=1, sensitivity_inf=1, rate=1)"
        )
        assert "dimension=4" in str(MixedGaussian(0.5, 3.0, 1.0, 1.0, 4, 1.0))

    def test_the_gaussian_alone_dominates(self):
        assert only(mixed_gaussian(0.5, 3.0, rate=0.1)).plain == only(
            taut.gaussian(0.5).poisson(0.1)
        )


class TestMixedLaplace:
    @pytest.mark.parametrize("half", BOTH)
    @pytest.mark.parametrize("order", [1.3, 2, 3.5, 6])
    def test_bounds_one_coordinate_in_both_directions(self, half, order):
        release = only(mixed_laplace(1.0, 4.0, rate=0.3))
        x = np.abs(np.arange(-60.0, 60.0, 0.001) + np.array([[0.0], [-1.0]]))
        inside = (2 - np.exp(np.minimum(x, 2.0) - 2) - np.exp(-x - 2)) / 8
        p0, p1 = np.log(np.where(x <= 2, inside, np.exp(2 - x) * -math.expm1(-4) / 8))
        truth = sampled_divergence(p0, p1, 0.3, order, half, 0.001)
        found = at(release, half, order)
        assert truth <= found * (1 + 1e-6)
        if half is Half.REMOVE and order == int(order):
            assert found == pytest.approx(truth, rel=1e-6)

    @settings(max_examples=20)
    @given(share=st.floats(0.0, 1.0), order=st.integers(2, 8), width=st.floats(0.1, 20.0))
    def test_splitting_a_shift_costs_less(self, share, order, width):
        parts = [share * 1.5, (1 - share) * 1.5]
        total = sum(laplace_uniform_cumulants(part, width, 8)[order] for part in parts)
        release = only(mixed_laplace(1.0, width, sensitivity=1.5))
        limit = at(release, Half.ADD, order) * (order - 1)
        # The cap by the largest loss can undercut the one-hot moment, never the truth.
        assert total <= max(limit, laplace_uniform_cumulants(1.5, width, 8)[order]) * (1 + 1e-12)

    def test_largest_loss_caps_everything(self):
        for rate in (0.0, 0.1, 1.0):
            release = only(mixed_laplace(0.5, 3.0, rate=rate))
            cap = math.log1p(rate * math.expm1(2.0))
            assert at(release, Half.ADD, 1e9) == pytest.approx(cap, rel=1e-12)
            assert at(release, Half.ADD, 300) <= cap * (1 + 1e-12)
        assert only(mixed_laplace(1e-4, 1.0, rate=0.5)).max_loss == pytest.approx(1e4, rel=1e-3)

    def test_bound_on_coordinates(self):
        release = only(mixed_laplace(1.0, 3.0, sensitivity_inf=0.4))
        exact = 2 * laplace_uniform_cumulants(0.4, 3.0, 4)[4]
        exact += laplace_uniform_cumulants(0.2, 3.0, 4)[4]
        assert at(release, Half.ADD, 4) * 3 == pytest.approx(exact, rel=1e-9)

    def test_sampling_multiplies_rates(self):
        assert only(mixed_laplace(1.0, 3.0, rate=0.5)).sampled(0.5).rate == 0.25

    def test_without_mixing_it_is_laplace_noise(self):
        assert at(only(mixed_laplace(2.0, 0.0)), Half.ADD, 4) == pytest.approx(
            taut.laplace(2.0).rdp(4), rel=1e-12
        )
        assert only(mixed_laplace(2.0, 0.0, rate=0.5)).plain == only(taut.laplace(2.0).poisson(0.5))


class TestAdditiveNoise:
    def test_gaussian_noise(self):
        loss = additive_noise(
            lambda x: -(x**2) / 8, reach=0.0, tail_curvature=0.25, sensitivity=2.0, largest_order=24
        )
        for order in (2, 5, 24):
            assert order / 2 <= loss.rdp(order) <= order / 2 * (1 + 2e-6)

    def test_laplace_noise(self):
        loss = additive_noise(lambda x: 5 - x, reach=0.0, tail_curvature=0.0, largest_order=16)
        for order in (2, 5, 16):
            exact = laplace_cumulants(1.0, np.array([float(order)]))[0] / (order - 1)
            assert exact * (1 - 1e-12) <= loss.rdp(order) <= exact * (1 + 1e-8)

    @pytest.mark.parametrize("scale", [1e-4, 1.0, 1e5])
    def test_logistic_noise_of_any_scale(self, scale):
        loss = additive_noise(
            lambda x: -x / scale - 2 * np.log1p(np.exp(-x / scale)),
            reach=20 * scale,
            tail_curvature=1e-8 / scale**2,
            sensitivity=scale,
            largest_order=3,
        )
        with mp.workdps(25):

            def f(x):
                return mp.exp(-abs(x)) / (1 + mp.exp(-abs(x))) ** 2

            for order in (2, 3):
                exact = mp.log(
                    mp.quad(
                        lambda x, k=order: f(x - 1) ** k * f(x) ** (1 - k), [-80, -9, 0, 1, 9, 80]
                    )
                ) / (order - 1)
                assert exact <= loss.rdp(order) <= exact * (1 + 1e-5)

    @pytest.mark.parametrize("width", [0.5, 8.0])
    def test_agrees_with_mixed_noise(self, width):
        def log_density(x):
            nodes, weights = np.polynomial.legendre.leggauss(40)
            y = np.subtract.outer(x, nodes * width / 2)
            logs = -(y**2) / 2
            peak = logs.max(axis=1)
            return peak + np.log(np.exp(logs - peak[:, None]) @ weights)

        loss = additive_noise(log_density, reach=0.0, tail_curvature=1.0, largest_order=4)
        mixed = mixed_gaussian(1.0, width)
        for order in (2, 4):
            assert mixed.rdp(order) * (1 - 1e-9) <= loss.rdp(order) <= mixed.rdp(order) * (1 + 1e-4)

    def test_coordinates_and_sampling(self):
        def make(**change):
            return additive_noise(
                lambda x: -x, reach=0.0, tail_curvature=0.0, largest_order=6, **change
            )

        spread = make(sensitivity_inf=0.4)
        exact = 2 * laplace_cumulants(0.4, np.array([4.0]))[0]
        exact += laplace_cumulants(0.2, np.array([4.0]))[0]
        assert spread.rdp(4) * 3 == pytest.approx(exact, rel=1e-8)
        assert make(sensitivity_inf=0.4, dimension=1).rdp(4) * 3 == pytest.approx(
            laplace_cumulants(0.4, np.array([4.0]))[0], rel=1e-8
        )
        sampled = make(rate=0.2)
        assert sampled.rdp(4) == pytest.approx(taut.laplace(1.0).poisson(0.2).rdp(4), rel=1e-7)
        assert only(sampled).sampled(0.5).rate == 0.1
        assert sampled.rdp(3.5) <= sampled.rdp(4)

    def test_unknown_orders_are_infinite(self):
        release = AdditiveNoise((0.5, 1.5), 1.0)
        assert at(release, Half.ADD, 3) == pytest.approx(0.75)
        assert at(release, Half.ADD, 3.1) == math.inf
        assert str(release) == "additive_noise(2 orders, rate=1)"

    @pytest.mark.parametrize(
        ("log_density", "message"),
        [
            (lambda x: np.where(x < 1, 0.0, -np.inf), "one finite value per point"),
            (lambda x: -np.sqrt(x), "must be concave"),
            (lambda x: -3 * np.log1p(x**2), "must be concave"),
            (lambda x: 0 * x, "must fall"),
            (lambda x: -(x**4), "bends more beyond reach=1 than tail_curvature=0"),
            (lambda _: 0.0, "one finite value per point"),
        ],
    )
    def test_unsuitable_densities(self, log_density, message):
        with pytest.raises(ValueError, match=message):
            additive_noise(log_density, reach=1.0, tail_curvature=0.0, largest_order=32)

    def test_tails_must_outweigh_the_promised_bend(self):
        def logistic(x):
            return -x - 2 * np.log1p(np.exp(-x))

        with pytest.raises(ValueError, match="fall at least exponentially"):
            additive_noise(logistic, reach=0.0, tail_curvature=0.5, largest_order=4)

    @pytest.mark.parametrize(
        ("change", "message"),
        [
            ({"largest_order": 1}, "largest_order must be at least 2"),
            ({"sensitivity": 0.0}, "sensitivity must be"),
            ({"sensitivity_inf": -1.0}, "sensitivity_inf must be"),
            ({"dimension": 0}, "dimension must be at least 1"),
            ({"rate": 2.0}, "rate must be a probability"),
            ({"reach": -1.0}, "reach must be"),
            ({"tail_curvature": math.nan}, "tail_curvature must be"),
        ],
    )
    def test_bad_arguments(self, change, message):
        good = {"reach": 0.0, "tail_curvature": 0.0, "largest_order": 3}
        with pytest.raises(ValueError, match=message):
            additive_noise(lambda x: -x, **(good | change))

    def test_bad_fields(self):
        with pytest.raises(ValueError, match="cumulants must not be empty"):
            AdditiveNoise((), 1.0)
        with pytest.raises(ValueError, match="cumulant must be"):
            AdditiveNoise((-1.0,), 1.0)


class TestArguments:
    @pytest.mark.parametrize("make", [mixed_gaussian, mixed_laplace])
    @pytest.mark.parametrize(
        ("change", "message"),
        [
            ({"width": -1.0}, "width must be"),
            ({"width": math.inf}, "width must be"),
            ({"sensitivity": 0.0}, "sensitivity must be"),
            ({"sensitivity_inf": 0.0}, "sensitivity_inf must be"),
            ({"dimension": 0}, "dimension must be at least 1"),
            ({"rate": 1.1}, "rate must be a probability"),
            ({"adjacency": "nobody"}, "adjacency must be one of"),
        ],
    )
    def test_bad_values(self, make, change, message):
        with pytest.raises(ValueError, match=message):
            make(1.0, **({"width": 1.0} | change))

    def test_bad_noise(self):
        with pytest.raises(ValueError, match="sigma must be"):
            mixed_gaussian(0.0, 1.0)
        with pytest.raises(ValueError, match="scale must be"):
            MixedLaplace(-1.0, 1.0, 1.0, 1.0, None, 1.0)

    @pytest.mark.parametrize("make", [mixed_gaussian, mixed_laplace])
    def test_replace_has_no_theorem(self, make):
        with pytest.raises(UnsoundConfiguration, match=r"mixed_.*add_remove"):
            make(1.0, 1.0, rate=0.5, adjacency="replace")
        for relation in (Adjacency.ZERO_OUT, Adjacency.ADD, Adjacency.REMOVE):
            assert make(1.0, 1.0, rate=0.5, adjacency=relation).adjacency is relation

    @pytest.mark.parametrize("make", [mixed_gaussian, mixed_laplace])
    @pytest.mark.parametrize("order", [1.5, 2.0, 7.0])
    def test_without_sampling_all_relations_are_alike(self, make, order):
        found = {make(1.0, 1.0, adjacency=relation).rdp(order) for relation in Adjacency}
        assert len(found) == 1

    def test_replace_has_no_theorem_for_general_noise(self):
        with pytest.raises(UnsoundConfiguration, match=r"additive_noise.*add_remove"):
            additive_noise(
                lambda x: -x,
                reach=0.0,
                tail_curvature=0.0,
                largest_order=3,
                rate=0.5,
                adjacency="replace",
            )


@pytest.mark.parametrize(
    "loss",
    [
        mixed_gaussian(0.5, 3.0, sensitivity_inf=0.2, rate=0.1),
        2 * mixed_laplace(0.5, 3.0, dimension=4),
        additive_noise(lambda x: -x, reach=0.0, tail_curvature=0.0, largest_order=3),
    ],
)
def test_round_trip(loss):
    assert taut.PrivacyLoss.from_json(loss.to_json()) == loss


class TestComparison:
    @pytest.mark.slow
    @settings(max_examples=4)
    @given(
        sigma=st.floats(0.3, 2.0),
        width=st.floats(0.5, 20.0),
        rate=st.sampled_from([0.02, 0.5]),
        largest=st.sampled_from([0.1, 0.5, 1.0]),
    )
    def test_gaussian_noise_of_the_same_variance_hides_more(self, sigma, width, rate, largest):
        total = 100 * mixed_gaussian(sigma, width, sensitivity_inf=largest, rate=rate)
        found = compare_mixing(total, 1e-5)
        assert found.variance_ratio > 1
        assert found.epsilon_equal_variance < found.epsilon <= found.epsilon_without_mixing
        assert found.injected_std**2 == pytest.approx(sigma**2 + width**2 / 12)
        equal = 100 * mixed_gaussian(found.gaussian_std, 0.0, rate=rate)
        assert compare_mixing(equal, 1e-5).epsilon == pytest.approx(found.epsilon, rel=1e-5)

    @pytest.mark.parametrize("sigma", [0.3, 1.0])
    def test_where_mixing_gains_nothing_its_gaussian_part_is_as_good(self, sigma):
        total = 100 * mixed_gaussian(sigma, 0.5, sensitivity_inf=0.1, rate=0.5)
        found = compare_mixing(total, 1e-5)
        assert found.epsilon == found.epsilon_without_mixing
        assert found.gaussian_std == sigma
        assert found.variance_ratio == pytest.approx(1 + 0.25 / 12 / sigma**2, rel=1e-12)

    @pytest.mark.parametrize("loss", [taut.gaussian(1.0), taut.zero()])
    def test_other_losses_are_refused(self, loss):
        with pytest.raises(ValueError, match="multiple of one mixed_gaussian"):
            compare_mixing(loss, 1e-5)


class TestDiagnostics:
    def test_fisher_information_is_below_the_inverse_variance_bound(self):
        for sigma, width in [(1.0, 0.001), (1.0, 2.0), (0.3, 50.0)]:
            variance = sigma**2 + width**2 / 12
            assert 1 / variance <= fisher_information(sigma, width) <= 1 / sigma**2 * (1 + 1e-12)

    def test_loss_moments_of_a_gaussian(self):
        assert estimate_loss_moments(2.0, 0.0, 1.0) == pytest.approx((1 / 8, 1 / 4))
        mean, variance = estimate_loss_moments(2.0, 0.1, 1.0)
        assert (mean, variance) == pytest.approx((1 / 8, 1 / 4), rel=1e-3)

    def test_loss_moments_fall_as_one_over_the_width(self):
        for width in (50.0, 500.0, 5000.0):
            mean, variance = estimate_loss_moments(0.335, width, 1.0)
            assert mean * width == pytest.approx(3.11168749577555, rel=1e-7)
            assert (variance + mean**2) * width == pytest.approx(15.814, rel=1e-4)
