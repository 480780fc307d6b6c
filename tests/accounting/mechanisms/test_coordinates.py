"""Coordinate-wise and twice sampling, against enumeration of masks and quadrature of densities."""

import itertools
import math
import time

import mpmath as mp
import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from oracles.divergences import gridded_divergence

import taut
from taut._base.worst_record import vertex
from taut.accounting._adjacency import Adjacency, Half
from taut.accounting._comparisons.equal_compute import (
    equal_compute_plan,
    estimate_many_coordinates,
    sampled_mean_error,
)
from taut.accounting._mechanisms.coordinates import (
    Coordinatewise,
    TwiceSampled,
    coordinatewise,
    twice_sampled,
)
from taut.errors import UnsoundConfiguration

BOTH = (Half.REMOVE, Half.ADD)
STEP = 0.25


def at(release, half, order):
    return float(release.renyi(half, np.array([float(order)]))[0])


def grid(dimension, reach):
    """Return points of a lattice, shape (dimension, n); the trapezoid rule is spectral there."""
    axis = np.arange(-9.0, reach + 9.0, STEP)
    return np.array([part.ravel() for part in np.meshgrid(*[axis] * dimension, indexing="ij")])


def log_normal(points, centre):
    centre = np.asarray(centre, dtype=float)[:, None]
    return -((points - centre) ** 2).sum(axis=0) / 2 - len(centre) / 2 * math.log(2 * math.pi)


def log_mixture(points, parts):
    """Return the log-density of sum of weight * N(centre, I)."""
    logs = [math.log(weight) + log_normal(points, centre) for weight, centre in parts if weight > 0]
    return np.logaddexp.reduce(logs, axis=0)


def masked(row, rate):
    """Return (probability, masked row) for all masks of a row."""
    for mask in itertools.product((0, 1), repeat=len(row)):
        kept = sum(mask)
        yield rate**kept * (1 - rate) ** (len(row) - kept), np.asarray(row) * mask


def twice(row, record_rate, rate, start=None):
    """Return the mixture that the sum of ``start`` and a twice-sampled row is."""
    start = np.zeros(len(row)) if start is None else start
    parts = [(record_rate * p, start + s) for p, s in masked(row, rate)]
    return [(1 - record_rate, start), *parts]


def release_for(row, record_rate, rate):
    """Return the twice-sampled release with unit noise whose vertex is a flat ``row``."""
    norm = math.sqrt(len(row)) * row[0]
    return TwiceSampled(record_rate, rate, 1.0, norm, row[0], len(row), 2.0)


class TestAgainstQuadrature:
    @settings(max_examples=40)
    @given(
        dimension=st.integers(1, 2),
        shift=st.floats(0.05, 2.0),
        record_rate=st.floats(0.02, 1.0),
        rate=st.floats(0.02, 1.0),
        order=st.integers(2, 7),
    )
    def test_both_directions_of_a_flat_record(self, dimension, shift, record_rate, rate, order):
        row = [shift] * dimension
        points = grid(dimension, order * shift)
        present = log_mixture(points, twice(row, record_rate, rate))
        absent = log_normal(points, np.zeros(dimension))
        release = release_for(row, record_rate, rate)
        forward = gridded_divergence(present, absent, order, STEP**dimension)
        assert at(release, Half.REMOVE, order) == pytest.approx(forward, rel=1e-9, abs=1e-13)
        reverse = gridded_divergence(absent, present, order, STEP**dimension)
        assert reverse <= at(release, Half.ADD, order) * (1 + 1e-10) + 1e-14

    @pytest.mark.parametrize("order", [2, 3, 5])
    def test_three_dimensions(self, order):
        row, rates = [0.9, 0.9, 0.9], (0.3, 0.4)
        points = grid(3, order * 0.9)
        present = log_mixture(points, twice(row, *rates))
        absent = log_normal(points, np.zeros(3))
        release = release_for(row, *rates)
        assert at(release, Half.REMOVE, order) == pytest.approx(
            gridded_divergence(present, absent, order, STEP**3), rel=1e-9
        )
        assert gridded_divergence(absent, present, order, STEP**3) <= at(release, Half.ADD, order)

    @settings(max_examples=25)
    @given(
        other=st.lists(st.floats(-1.5, 1.5), min_size=2, max_size=2),
        shift=st.floats(0.1, 1.5),
        record_rate=st.floats(0.05, 0.95),
        rate=st.floats(0.05, 0.95),
        order=st.integers(2, 6),
    )
    def test_other_records_do_not_help_the_attacker(self, other, shift, record_rate, rate, order):
        row = [shift, shift]
        points = grid(2, order * shift)
        absent_parts = twice(np.array(other), record_rate, rate)
        present_parts = [
            (weight * more, centre)
            for weight, start in absent_parts
            for more, centre in twice(row, record_rate, rate, start)
        ]
        present, absent = log_mixture(points, present_parts), log_mixture(points, absent_parts)
        release = release_for(row, record_rate, rate)
        for half, pair in ((Half.REMOVE, (present, absent)), (Half.ADD, (absent, present))):
            truth = gridded_divergence(*pair, order, STEP**2)
            assert truth <= at(release, half, order) * (1 + 1e-9) + 1e-13

    @pytest.mark.parametrize("order", [1.01, 1.5, 2.5, 3.7, 6.2])
    @pytest.mark.parametrize("half", BOTH)
    def test_real_orders_bound_the_truth(self, order, half):
        row, rates = [1.1, 1.1], (0.2, 0.5)
        points = grid(2, 7 * 1.1)
        present = log_mixture(points, twice(row, *rates))
        absent = log_normal(points, np.zeros(2))
        pair = (present, absent) if half is Half.REMOVE else (absent, present)
        truth = gridded_divergence(*pair, order, STEP**2)
        assert truth <= at(release_for(row, *rates), half, order) * (1 + 1e-9)

    @pytest.mark.parametrize("order", [2, 3, 4.5, 6])
    def test_coordinatewise_is_twice_sampling_of_all_records(self, order):
        release = Coordinatewise(0.3, 1.0, 1.2, 0.7, 3, 2.0)
        same = TwiceSampled(1.0, 0.3, 1.0, 1.2, 0.7, 3, 2.0)
        for half in BOTH:
            assert at(release, half, order) == pytest.approx(at(same, half, order), rel=1e-13)


def exact_cumulant(rates, shifts, order):
    """Return the log of the moment of a record with the given shifts, in 40 digits."""
    with mp.workdps(40):
        record_rate, rate = map(mp.mpf, rates)

        def base(v):
            return mp.fprod(_moment(rate, mp.mpf(s) ** 2 / 2, v) for s in shifts)

        return mp.log(
            mp.fsum(
                mp.binomial(order, v) * (1 - record_rate) ** (order - v) * record_rate**v * base(v)
                for v in range(order + 1)
            )
        )


def _moment(rate, x, order):
    return mp.fsum(
        mp.binomial(order, v) * (1 - rate) ** (order - v) * rate**v * mp.exp(v * (v - 1) * x)
        for v in range(order + 1)
    )


class TestVertex:
    @settings(max_examples=60)
    @given(
        p=st.sampled_from([0.5, 1.0, 1.5, 2.0]),
        clip_inf=st.floats(0.15, 1.2),
        dimension=st.integers(1, 6),
        order=st.integers(2, 6),
        rates=st.tuples(st.floats(0.05, 1.0), st.floats(0.05, 1.0)),
        seed=st.integers(0, 10**6),
    )
    def test_no_clipped_record_exceeds_it(self, p, clip_inf, dimension, order, rates, seed):
        rng = np.random.default_rng(seed)
        release = TwiceSampled(*rates, 0.8, 1.0, clip_inf, dimension, p)
        limit = (order - 1) * at(release, Half.REMOVE, order)
        for _ in range(5):
            row = np.minimum(rng.exponential(size=dimension) ** rng.uniform(0.2, 4), 1e3)
            row *= (1 / np.sum(row**p)) ** (1 / p)
            row = np.minimum(row, clip_inf)
            assert exact_cumulant(rates, row / 0.8, order) <= limit * (1 + 1e-12)

    @pytest.mark.parametrize("order", [2, 5, 8])
    def test_is_attained(self, order):
        release = TwiceSampled(0.2, 0.4, 0.7, 1.0, 0.3, 1000, 2.0)
        shifts = [0.3] * 11 + [0.1]
        exact = exact_cumulant((0.2, 0.4), np.array(shifts) / 0.7, order)
        assert at(release, Half.REMOVE, order) * (order - 1) == pytest.approx(
            float(exact), rel=1e-11
        )

    def test_counts_are_never_rounded_down(self):
        for clip_inf in (0.1, 0.3, 1 / 3, 1 / math.sqrt(7), 0.999, 1e-5):
            full, large, rest = vertex(1.0, clip_inf, 10**12, 2.0)
            assert large == clip_inf
            with mp.workdps(40):
                assert full * mp.mpf(large) ** 2 + mp.mpf(rest) ** 2 >= 1
            assert full * large**2 + rest**2 == pytest.approx(1, rel=1e-12)

    def test_small_dimension_fills_all_coordinates(self):
        assert vertex(1.0, 0.3, 4, 2.0) == (4, 0.3, 0.0)
        assert vertex(1.0, 0.3, 1, 2.0) == (1, 0.3, 0.0)
        assert vertex(1.0, 2.0, 5, 2.0) == (1, 1.0, 0.0)

    def test_absurd_bounds_stay_finite_and_safe(self):
        assert vertex(1.0, 1e-300, 7, 2.0) == (7, 1e-300, 0.0)
        full, large, _ = vertex(1.0, 1e-300, None, 2.0)
        assert full * large**2 >= 1
        release = Coordinatewise(0.1, 1.0, 1.0, 1e-200, 10**18, 2.0)
        assert 0 < at(release, Half.REMOVE, 4) < 1e-250

    def test_beyond_two_the_flat_record_is_worse(self):
        # Why p is limited: with p = 4 and 16 coordinates the one-hot record is not the worst.
        one_hot = exact_cumulant((1, 0.3), [1.0], 4) / 3
        flat = exact_cumulant((1, 0.3), [16**-0.25] * 16, 4) / 3
        assert flat > 1.5 * one_hot


class TestNumbers:
    def test_ten_billion_coordinates_to_all_digits_and_fast(self):
        release = TwiceSampled(0.05, 0.001, 1.0, 1.0, 1e-5, 10**10, 2.0)
        orders = np.arange(2.0, 257.0)
        start = time.process_time()
        values = {half: release.renyi(half, orders) for half in BOTH}
        assert time.process_time() - start < 0.05
        for order in (2, 3, 8, 64, 256):
            # log A of one coordinate, to first and second order, times its number
            with mp.workdps(60):
                tiny = mp.mpf(1e-5) ** 2 / 2

                def base(v, tiny=tiny):
                    return mp.exp(10**10 * mp.log(_moment(mp.mpf(0.001), tiny, v)))

                q = mp.mpf(0.05)
                exact = mp.log1p(
                    mp.fsum(
                        mp.binomial(order, v) * (1 - q) ** (order - v) * q**v * (base(v) - 1)
                        for v in range(2, order + 1)
                    )
                ) / (order - 1)
            found = float(values[Half.REMOVE][order - 2])
            assert found == pytest.approx(float(exact), rel=1e-8)
            assert found >= exact * (1 - mp.mpf(10) ** -12)

    def test_odd_orders_are_as_tight_as_even_ones(self):
        release = TwiceSampled(0.02, 0.5, 0.6, 1.0, 0.1, 10**5, 2.0)
        at_4, at_5, at_6 = (at(release, Half.ADD, order) for order in (4, 5, 6))
        assert at_5 == at(release, Half.REMOVE, 5)
        assert at_5 * 4 < (3 * at_4 + 5 * at_6) / 2

    @pytest.mark.parametrize("order", [2, 3, 7, 31])
    @pytest.mark.parametrize("half", BOTH)
    def test_degenerate_cases_are_plain_sampling_at_every_order(self, order, half):
        one = TwiceSampled(0.3, 0.2, 0.8, 1.0, 1.0, 50, 2.0)
        product = TwiceSampled(0.3 * 0.2, 1.0, 0.8, 1.0, 1.0, 50, 2.0)
        unmasked = TwiceSampled(0.3, 1.0, 0.8, 1.0, 1 / 3, 50, 2.0)
        plain = TwiceSampled(0.3, 1.0, 0.8, 1.0, 1.0, 50, 2.0)
        assert at(one, half, order) == pytest.approx(at(product, half, order), rel=1e-11)
        assert at(unmasked, half, order) == pytest.approx(at(plain, half, order), rel=1e-11)

    @pytest.mark.parametrize("rates", [(0.0, 0.5), (0.5, 0.0), (0.0, 0.0)])
    def test_rate_zero_reveals_nothing(self, rates):
        release = TwiceSampled(*rates, 0.8, 1.0, 0.5, 50, 2.0)
        assert at(release, Half.ADD, 4) == 0
        assert at(release, Half.REMOVE, 2.5) == 0

    @given(
        low=st.floats(0.01, 0.9),
        more=st.floats(1.01, 1.1),
        order=st.sampled_from([2, 4, 8]),
    )
    @settings(max_examples=30)
    def test_more_sampling_and_less_noise_cost_more(self, low, more, order):
        def value(record_rate=low, rate=low, sigma=1.0, clip_inf=0.3):
            release = TwiceSampled(record_rate, rate, sigma, 1.0, clip_inf, 100, 2.0)
            return at(release, Half.ADD, order)

        high = min(low * more, 1.0)
        assert value() <= value(record_rate=high)
        assert value() <= value(rate=high)
        assert value() <= value(sigma=1 / more)
        assert value() <= value(clip_inf=0.3 * more)

    def test_plain_release_dominates(self):
        release = TwiceSampled(0.1, 0.5, 0.7, 1.0, 0.3, 1000, 2.0)
        orders = np.array([1.5, 2.0, 4.0, 9.0])
        plain = taut.PrivacyLoss([(release.plain, 1)])
        for half in BOTH:
            limits = [plain.rdp(order) for order in orders]
            assert (release.renyi(half, orders) <= limits).all()
        assert Coordinatewise(0.5, 0.7, 1.0, 0.3, 4, 2.0).plain.sensitivity == pytest.approx(0.6)

    def test_orders_beyond_the_table_are_unknown(self):
        release = TwiceSampled(0.1, 0.5, 0.7, 1.0, 0.3, 1000, 2.0)
        assert at(release, Half.ADD, 1e7) == math.inf


class TestLosses:
    def test_epsilon_comes_from_the_divergences(self):
        total = 5000 * twice_sampled(0.02, 0.5, 0.6, clip_inf=0.1, dimension=10**5)
        assert total.epsilon(1e-5) == pytest.approx(7.39, abs=0.01)
        assert total.rdp(4) == pytest.approx(5000 * 0.0008608149209370625, rel=1e-8)

    @pytest.mark.parametrize(
        "loss",
        [
            coordinatewise(0.1, 1.0, clip_inf=0.5, dimension=9, p=1.5),
            3 * twice_sampled(0.1, 0.5, 1.0, clip_inf=0.5, dimension=9, adjacency="zero_out"),
        ],
    )
    def test_round_trip(self, loss):
        assert taut.PrivacyLoss.from_json(loss.to_json()) == loss

    def test_there_is_no_pair(self):
        with pytest.raises(UnsoundConfiguration, match="Renyi"):
            Coordinatewise(0.1, 1.0, 1.0, 0.5, 9, 2.0).pair(Half.ADD)

    @pytest.mark.parametrize("relation", [a for a in Adjacency if a is not Adjacency.REPLACE])
    def test_relations_with_a_theorem(self, relation):
        loss = coordinatewise(0.1, 1.0, clip_inf=0.5, dimension=9, adjacency=relation)
        assert loss.adjacency is relation

    def test_replace_has_no_theorem(self):
        with pytest.raises(
            UnsoundConfiguration, match=r"coordinatewise has no theorem.*add_remove"
        ):
            coordinatewise(0.1, 1.0, clip_inf=0.5, dimension=9, adjacency="replace")
        with pytest.raises(UnsoundConfiguration, match="twice_sampled has no theorem"):
            twice_sampled(0.1, 0.5, 1.0, clip_inf=0.5, dimension=9, adjacency="replace")

    def test_sampling_records_makes_it_twice_sampled(self):
        release = Coordinatewise(0.5, 1.0, 1.0, 0.5, 9, 2.0).sampled(0.1)
        assert release == TwiceSampled(0.1, 0.5, 1.0, 1.0, 0.5, 9, 2.0)
        assert release.sampled(0.5).record_rate == 0.05

    @pytest.mark.parametrize(
        ("change", "message"),
        [
            ({"rate": 1.5}, "rate must be a probability"),
            ({"rate": math.nan}, "rate must be a probability"),
            ({"sigma": 0.0}, "sigma must be finite and greater than 0"),
            ({"clip": -1.0}, "clip must be"),
            ({"clip_inf": 0.0}, "clip_inf must be"),
            ({"dimension": 0}, "dimension must be at least 1"),
            ({"p": 2.5}, "p must be at most 2.*Convert the bound to l2"),
            ({"p": 0.0}, "p must be"),
        ],
    )
    def test_bad_arguments(self, change, message):
        good = {"rate": 0.5, "sigma": 1.0, "clip": 1.0, "clip_inf": 0.5, "dimension": 9, "p": 2.0}
        with pytest.raises(ValueError, match=message):
            coordinatewise(**(good | change))

    @pytest.mark.parametrize("name", ["record_rate", "coordinate_rate"])
    def test_bad_rates(self, name):
        good = {"record_rate": 0.5, "coordinate_rate": 0.5}
        with pytest.raises(ValueError, match=f"{name} must be a probability"):
            twice_sampled(**(good | {name: -0.1}), sigma=1.0, clip_inf=0.5, dimension=9)

    def test_dimension_must_be_whole(self):
        with pytest.raises(TypeError, match="dimension must be an integer"):
            coordinatewise(0.5, 1.0, clip_inf=0.5, dimension=9.5)


class TestEqualCompute:
    @settings(max_examples=12)
    @given(
        record_rate=st.floats(0.01, 0.5),
        rate=st.floats(0.1, 1.0),
        sigma=st.floats(0.4, 3.0),
        clip_inf=st.floats(0.1, 1.0),
        p=st.sampled_from([1.0, 2.0]),
        steps=st.sampled_from([1, 100, 3000]),
    )
    def test_plain_sampling_is_never_worse(self, record_rate, rate, sigma, clip_inf, p, steps):
        step = twice_sampled(record_rate, rate, sigma, clip_inf=clip_inf, dimension=1000, p=p)
        plan = equal_compute_plan(steps * step, 1e-5)
        assert plan.epsilon <= plan.twice_epsilon
        assert plan.rate == record_rate

    @settings(max_examples=40)
    @given(
        record_rate=st.floats(0.01, 1.0),
        rate=st.floats(0.05, 1.0),
        sigma=st.floats(0.3, 5.0),
        clip_inf=st.floats(0.05, 1.0),
        order=st.integers(2, 40),
    )
    def test_at_every_order(self, record_rate, rate, sigma, clip_inf, order):
        masked = TwiceSampled(record_rate, rate, sigma, 1.0, clip_inf, 1000, 2.0)
        plain = TwiceSampled(record_rate, 1.0, sigma / rate, 1.0, 1.0, 1, 2.0)
        for half in BOTH:
            assert at(plain, half, order) <= at(masked, half, order) * (1 + 1e-11)

    def test_multiplier_and_loss(self):
        step = twice_sampled(0.02, 0.5, 0.6, clip=2.0, clip_inf=0.2, dimension=1000)
        plan = equal_compute_plan(10 * step, 1e-5)
        assert plan.multiplier == pytest.approx(0.6)
        assert plan.loss == 10 * taut.gaussian(plan.multiplier).poisson(0.02)
        assert plan.delta == 1e-5

    def test_coordinatewise_touches_every_record(self):
        loss = coordinatewise(0.5, 1.0, clip_inf=0.5, dimension=16)
        assert equal_compute_plan(loss, 1e-5).rate == 1.0

    @pytest.mark.parametrize("make", [lambda: taut.gaussian(1.0), lambda: taut.zero()])
    def test_other_losses_are_refused(self, make):
        with pytest.raises(ValueError, match="multiple of one coordinatewise or twice_sampled"):
            equal_compute_plan(make(), 1e-5)

    def test_masking_everything_is_refused(self):
        loss = twice_sampled(0.5, 0.0, 1.0, clip_inf=0.5, dimension=16)
        with pytest.raises(ValueError, match="coordinate_rate=0"):
            equal_compute_plan(loss, 1e-5)


class TestEstimates:
    @pytest.mark.parametrize("order", [2, 4, 16])
    def test_limit_is_below_and_approached(self, order):
        def step(coordinates):
            clip_inf = 1 / math.sqrt(coordinates)
            return twice_sampled(0.02, 0.5, 0.6, clip_inf=clip_inf, dimension=10**9)

        limit = estimate_many_coordinates(step(16), order)
        found = [step(count).rdp(order) for count in (4, 16, 100, 10**8)]
        assert sorted(found, reverse=True) == found
        assert limit <= found[-1] * (1 + 1e-9)
        assert found[-1] == pytest.approx(limit, rel=1e-5)

    def test_coordinatewise_limit(self):
        step = coordinatewise(0.1, 0.7, clip_inf=0.01, dimension=10**6)
        assert estimate_many_coordinates(3 * step, 4) == pytest.approx(3 * 4 * 0.01 / (2 * 0.49))

    def test_orders_below_two_are_refused(self):
        with pytest.raises(ValueError, match="order must be at least 2"):
            estimate_many_coordinates(coordinatewise(0.1, 1.0, clip_inf=0.5, dimension=9), 1)

    def test_other_losses_are_refused(self):
        with pytest.raises(ValueError, match="multiple of one"):
            estimate_many_coordinates(taut.gaussian(1.0), 2)


class TestMeanError:
    def test_noise_adds_its_variance(self):
        rows = [[1.0, 2.0], [0.5, -1.0]]
        assert sampled_mean_error(rows, 0.5, sigma=2.0) == pytest.approx(
            sampled_mean_error(rows, 0.5) + 2 * 4 / 1
        )

    def test_bad_arguments(self):
        with pytest.raises(ValueError, match="rows must be a matrix"):
            sampled_mean_error([1.0, 2.0], 0.5)
        with pytest.raises(ValueError, match="rate must be greater than 0"):
            sampled_mean_error([[1.0]], 0.0)
