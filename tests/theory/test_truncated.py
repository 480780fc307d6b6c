"""docs/theory/sampling.md: Poisson samples of which at most so many records are kept."""

import itertools
import math

import mpmath
import numpy as np
import pytest

import taut
from taut.accounting import PrivacyLoss, truncation_probability
from taut.errors import AdjacencyMismatch, UnsoundConfiguration

OUTPUTS = np.linspace(-16.0, 16.0, 6401)
SIGMA = 1.0


def batches(size, rate, cap):
    """Return every batch of a dataset of ``size`` records with its probability."""
    found = {}
    for drawn in itertools.product((0, 1), repeat=size):
        chosen = tuple(i for i, bit in enumerate(drawn) if bit)
        chance = rate ** len(chosen) * (1 - rate) ** (size - len(chosen))
        kept = list(itertools.combinations(chosen, min(cap, len(chosen))))
        for batch in kept:
            found[batch] = found.get(batch, 0.0) + chance / len(kept)
    return found


def output(records, rate, cap):
    """Return the density of the noisy sum over a capped batch."""
    density = np.zeros(OUTPUTS.size)
    for batch, chance in batches(len(records), rate, cap).items():
        total = sum(records[i] for i in batch)
        density += chance * np.exp(-(((OUTPUTS - total) / SIGMA) ** 2) / 2)
    return density / density.sum()


def capped(rate, cap, population, adjacency="add_remove"):
    wide = taut.gaussian(SIGMA, 2.0, adjacency="replace")
    return taut.gaussian(SIGMA, adjacency=adjacency).truncated_poisson(
        rate, cap, population, exchange=wide
    )


@pytest.mark.parametrize("rate", [0.1, 0.5, 0.9])
@pytest.mark.parametrize("cap", [1, 2, 3])
@pytest.mark.parametrize("others", [(0, 0, 0), (-1, -1, -1), (1, 1, 1), (-1, 0, 1), (-1, -1, 0.5)])
def test_all_samples_of_small_datasets_stay_below(rate, cap, others):
    without = output(others, rate, cap)
    for record in (1.0, -1.0, 0.3):
        with_it = output((*others, record), rate, cap)
        for half, (p, q) in {"remove": (with_it, without), "add": (without, with_it)}.items():
            loss = PrivacyLoss(capped(rate, cap, 4).terms, half)
            for epsilon in (-1.0, -0.2, 0.0, 0.1, 0.5, 1.0, 2.0):
                exact = np.maximum(p - math.exp(epsilon) * q, 0).sum()
                assert exact <= loss.profile(math.exp(epsilon)) * (1 + 1e-6) + 1e-9


@pytest.mark.parametrize("rate", [0.1, 0.5, 0.9])
@pytest.mark.parametrize("cap", [1, 2, 3])
def test_null_records_reach_the_lower_bound(rate, cap):
    p, q = output((0, 0, 0, 1.0), rate, cap), output((0, 0, 0), rate, cap)
    for epsilon in (0.1, 0.5, 1.0):
        found = np.maximum(p - math.exp(epsilon) * q, 0).sum()
        lower, upper = capped(rate, cap, 4).delta_bounds(epsilon)
        # The grid errs at the kink of the integrand.
        assert lower == pytest.approx(found, rel=1e-4)
        assert found <= upper * (1 + 1e-4)


def test_two_steps_against_enumeration():
    p, q = output((-1, -1, 1.0), 0.3, 1), output((-1, -1), 0.3, 1)
    p, q = (part[:6400].reshape(-1, 8).sum(axis=1) for part in (p, q))  # merged outputs
    found = np.maximum(np.outer(p, p) - math.exp(0.4) * np.outer(q, q), 0).sum()
    assert found <= (2 * capped(0.3, 1, 3)).delta(0.4)


@pytest.mark.parametrize("adjacency", ["add_remove", "add", "remove"])
def test_a_cap_beyond_the_population_costs_nothing(adjacency):
    loss = capped(0.1, 50, 50, adjacency)
    plain = taut.gaussian(SIGMA, adjacency=adjacency).poisson(0.1)
    assert loss.epsilon_bounds(1e-5) == plain.epsilon_bounds(1e-5)


def test_a_full_sample_is_a_batch_of_fixed_size():
    wide = taut.gaussian(SIGMA, 2.0, adjacency="replace")
    loss = capped(1.0, 10, 1000)
    assert loss.delta(0.5) == pytest.approx(wide.fixed_size(10, 1000).delta(0.5), rel=1e-6)


def test_what_a_cap_costs_falls_with_it():
    plain = (1_000 * taut.gaussian(SIGMA).poisson(0.01)).epsilon(1e-5)
    costs = [(1_000 * capped(0.01, cap, 10_000)).epsilon(1e-5) - plain for cap in (130, 140, 160)]
    assert costs[0] > costs[1] > costs[2]
    assert costs[2] < 1e-3 * plain


@pytest.mark.parametrize(
    ("rate", "cap", "population"),
    [(0.01, 160, 10_000), (1e-6, 1_300, 10**9), (0.3, 1, 5), (1e-4, 140, 10**6)],
)
def test_tails_of_binomials(rate, cap, population):
    with mpmath.workdps(50):
        exact = mpmath.betainc(cap, population - cap, 0, mpmath.mpf(rate), regularized=True)
    found = truncation_probability(rate, cap, population)
    assert found == pytest.approx(float(exact), rel=1e-10)


def test_no_record_is_drawn_at_rate_zero():
    assert capped(0.0, 3, 10).epsilon(0) == 0
    assert taut.zero().truncated_poisson(0.1, 1, 2, exchange=taut.pure(1.0)) == taut.zero()


def test_survives_json():
    loss = 3 * capped(0.01, 160, 10_000)
    assert PrivacyLoss.from_json(loss.to_json()) == loss
    assert "cap=160" in str(loss)


class TestRefusals:
    @pytest.mark.parametrize(("cap", "population"), [(0, 10), (3, 0), (1.5, 10), (-1, 10)])
    def test_sizes(self, cap, population):
        with pytest.raises(ValueError, match=r"cap|population"):
            capped(0.1, cap, population)

    def test_rate(self):
        with pytest.raises(ValueError, match="rate"):
            capped(1.5, 3, 10)

    @pytest.mark.parametrize("adjacency", ["replace", "zero_out"])
    def test_relations_of_equal_size(self, adjacency):
        with pytest.raises(UnsoundConfiguration, match="without a cap"):
            capped(0.1, 3, 10, adjacency=adjacency)

    def test_an_exchange_for_another_relation(self):
        with pytest.raises(AdjacencyMismatch, match="exchange"):
            taut.gaussian(1.0).truncated_poisson(0.1, 3, 10, exchange=taut.gaussian(1.0))

    def test_no_loss(self):
        with pytest.raises(TypeError, match="exchange"):
            taut.gaussian(1.0).truncated_poisson(0.1, 3, 10, exchange=1.0)

    def test_curves(self):
        with pytest.raises(UnsoundConfiguration, match="Renyi"):
            taut.from_rdp({2.0: 1.0}).truncated_poisson(
                0.1, 3, 10, exchange=taut.pure(1.0, adjacency="replace")
            )

    def test_batches_inside(self):
        batch = taut.pure(1.0, adjacency="replace").fixed_size(1, 10)
        with pytest.raises(UnsoundConfiguration, match="fixed_size"):
            batch.truncated_poisson(0.1, 3, 10, exchange=taut.pure(1.0, adjacency="replace"))

    def test_files(self):
        broken = {
            "schema": "taut.privacy-loss/1",
            "adjacency": "add_remove",
            "terms": [
                {
                    "count": 1,
                    "release": {
                        "kind": "truncated_poisson",
                        "base": 3,
                        "exchange": 3,
                        "rate": 0.1,
                        "cap": 3,
                        "population": 10,
                    },
                }
            ],
        }
        with pytest.raises(ValueError, match="base must be a release"):
            PrivacyLoss.from_dict(broken)


class TestAllSizesUpToOne:
    """The bound for datasets of at most so many records, and one that is added."""

    @pytest.mark.parametrize("rate", [0.1, 0.5, 0.9])
    @pytest.mark.parametrize("cap", [1, 2, 3])
    @pytest.mark.parametrize("other", [-1.0, 0.0, 1.0])
    def test_all_samples_of_smaller_datasets_stay_below(self, rate, cap, other):
        wide = taut.gaussian(SIGMA, 2.0, adjacency="replace")
        losses = {
            half: taut.gaussian(SIGMA, adjacency=half).truncated_poisson(
                rate, cap, 4, exchange=wide, or_fewer=True
            )
            for half in ("remove", "add")
        }
        for size in range(5):
            without = output((other,) * size, rate, cap)
            with_it = output((*(other,) * size, 1.0), rate, cap)
            for half, (p, q) in {"remove": (with_it, without), "add": (without, with_it)}.items():
                for epsilon in (-1.0, 0.0, 0.1, 0.5, 2.0):
                    exact = np.maximum(p - math.exp(epsilon) * q, 0).sum()
                    bound = losses[half].profile(math.exp(epsilon))
                    assert exact <= bound * (1 + 1e-6) + 1e-9

    def test_covers_every_smaller_size(self):
        wide = taut.gaussian(0.3, 2.0, adjacency="replace")
        step = taut.gaussian(0.3)
        most = step.truncated_poisson(0.1, 12, 100, wide, or_fewer=True).delta(1.0)
        for population in (20, 80, 100, 101):
            assert step.truncated_poisson(0.1, 12, population, wide).delta(1.0) <= most
        plain = step.poisson(0.1)
        lower = step.truncated_poisson(0.1, 12, 100, wide, or_fewer=True).delta_bounds(1.0).lower
        assert lower == pytest.approx(plain.delta(1.0), rel=1e-3)

    def test_survives_json(self):
        wide = taut.gaussian(1.0, 2.0, adjacency="replace")
        loss = taut.gaussian(1.0).truncated_poisson(0.1, 12, 100, wide, or_fewer=True)
        assert PrivacyLoss.from_json(loss.to_json()) == loss
        assert "or_fewer=True" in str(loss)

    def test_noise_without_an_order_is_refused(self):
        wide = taut.laplace(1.0, 2.0, adjacency="replace")
        with pytest.raises(UnsoundConfiguration, match="or_fewer"):
            taut.laplace(1.0).truncated_poisson(0.1, 12, 100, wide, or_fewer=True)
        narrow = taut.gaussian(1.0, 0.5, adjacency="replace")
        with pytest.raises(UnsoundConfiguration, match="no less than a removal"):
            taut.gaussian(1.0).truncated_poisson(0.1, 12, 100, narrow, or_fewer=True)

    def test_a_flag_of_another_type_is_refused(self):
        wide = taut.gaussian(1.0, 2.0, adjacency="replace")
        with pytest.raises(ValueError, match="or_fewer"):
            taut.gaussian(1.0).truncated_poisson(0.1, 12, 100, wide, or_fewer="yes")
