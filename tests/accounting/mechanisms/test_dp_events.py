"""Exchange with dp-accounting: event trees in and out.

dp-accounting is not installed beside the package's own tools. Where it is (the benchmark
environment), these tests use it; elsewhere a stand-in with the same classes and attributes.
"""

import importlib.util
import math
import sys
import types
from dataclasses import dataclass, make_dataclass

import numpy as np
import pytest
from scipy.optimize import brentq

import taut
from taut import accounting
from taut.accounting._mechanisms import dp_events

# The classes of dp-accounting, the newest included: attributes in order, and whether the package
# re-exports them.
CLASSES = {
    "NoOpDpEvent": ([], True),
    "NonPrivateDpEvent": ([], True),
    "GaussianDpEvent": (["noise_multiplier"], True),
    "LaplaceDpEvent": (["noise_multiplier"], True),
    "DiscreteLaplaceDpEvent": (["noise_parameter", "sensitivity"], False),
    "RandomizedResponseDpEvent": (["noise_parameter", "num_buckets"], True),
    "SelfComposedDpEvent": (["event", "count"], True),
    "ComposedDpEvent": (["events"], True),
    "PoissonSampledDpEvent": (["sampling_probability", "event"], True),
    "SampledWithoutReplacementDpEvent": (
        ["source_dataset_size", "sample_size", "event"],
        True,
    ),
    "SampledWithReplacementDpEvent": (["source_dataset_size", "sample_size", "event"], True),
    "ZCDpEvent": (["rho", "xi"], True),
    "EpsilonDeltaDpEvent": (["epsilon", "delta"], True),
    "DiscreteGaussianDpEvent": (["sigma", "sensitivity", "dimension"], True),
    "ExponentialMechanismDpEvent": (["epsilon"], True),
    "PermuteAndFlipDpEvent": (["epsilon"], True),
    "MixtureOfGaussiansDpEvent": (
        ["standard_deviation", "sensitivities", "sampling_probs"],
        True,
    ),
    "SingleEpochTreeAggregationDpEvent": (["noise_multiplier", "step_counts"], True),
    "TruncatedSubsampledGaussianDpEvent": (
        ["dataset_size", "sampling_probability", "truncated_batch_size", "noise_multiplier"],
        True,
    ),
    "RepeatAndSelectDpEvent": (["event", "mean", "shape"], True),
    "UnsupportedDpEvent": ([], True),
}


@pytest.fixture
def events(monkeypatch):
    """Return the module that defines the events: the real one, or the stand-in."""
    if importlib.util.find_spec("dp_accounting") is not None:
        found = importlib.import_module("dp_accounting.dp_event")
        if all(hasattr(found, name) for name in CLASSES):
            return found
    package, module = (types.ModuleType(n) for n in ("dp_accounting", "dp_accounting.dp_event"))
    package.dp_event = module
    for name, (attributes, exported) in CLASSES.items():
        event = make_dataclass(name, attributes, frozen=True)
        setattr(module, name, event)
        if exported:
            setattr(package, name, event)
    monkeypatch.setitem(sys.modules, "dp_accounting", package)
    monkeypatch.setitem(sys.modules, "dp_accounting.dp_event", module)
    return module


@pytest.fixture
def without_library(monkeypatch):
    monkeypatch.setitem(sys.modules, "dp_accounting", None)
    monkeypatch.setitem(sys.modules, "dp_accounting.dp_event", None)


class TestReading:
    def test_nothing(self, events):
        assert taut.from_dp_event(events.NoOpDpEvent()) == taut.zero()

    def test_no_privacy(self, events):
        assert taut.from_dp_event(events.NonPrivateDpEvent()).epsilon(0.5) == math.inf

    def test_gaussian(self, events):
        assert taut.from_dp_event(events.GaussianDpEvent(1.5)) == taut.gaussian(1.5)

    def test_laplace(self, events):
        assert taut.from_dp_event(events.LaplaceDpEvent(1.5)) == taut.laplace(1.5)

    def test_replacing_a_record_moves_a_sum_twice_as_far(self, events):
        loss = taut.from_dp_event(events.GaussianDpEvent(1.5), adjacency="replace")
        assert loss == taut.gaussian(1.5, 2.0, adjacency="replace")
        loss = taut.from_dp_event(events.LaplaceDpEvent(1.5), adjacency="replace")
        assert loss == taut.laplace(1.5, 2.0, adjacency="replace")

    def test_discrete_laplace(self, events):
        loss = taut.from_dp_event(events.DiscreteLaplaceDpEvent(0.5, 3))
        assert loss == taut.discrete_laplace(2.0, 3)

    def test_randomized_response(self, events):
        loss = taut.from_dp_event(events.RandomizedResponseDpEvent(0.5, 2), adjacency="replace")
        assert loss.epsilon(0) == pytest.approx(math.log(3))

    def test_randomized_response_over_many_buckets(self, events):
        loss = taut.from_dp_event(events.RandomizedResponseDpEvent(0.5, 10), adjacency="replace")
        truth, other = 0.55, 0.05
        assert loss.epsilon(0) == pytest.approx(math.log(truth / other))
        assert loss.delta(1.0) == pytest.approx(truth - math.e * other)

    def test_composition(self, events):
        tree = events.ComposedDpEvent(
            [
                events.SelfComposedDpEvent(events.GaussianDpEvent(2.0), 10),
                events.LaplaceDpEvent(3.0),
                events.NoOpDpEvent(),
            ]
        )
        assert taut.from_dp_event(tree) == 10 * taut.gaussian(2.0) + taut.laplace(3.0)

    def test_empty_composition(self, events):
        assert taut.from_dp_event(events.ComposedDpEvent([])) == taut.zero()

    def test_concentrated_privacy(self, events):
        loss = taut.from_dp_event(events.ZCDpEvent(0.5, 0.1))
        assert loss.rdp(4.0) == pytest.approx(0.5 * 4 + 0.1)

    def test_a_sampled_sum_shares_its_sample(self, events):
        pair = events.ComposedDpEvent([events.GaussianDpEvent(2.0), events.LaplaceDpEvent(3.0)])
        loss = taut.from_dp_event(events.PoissonSampledDpEvent(0.1, pair))
        assert loss == (taut.gaussian(2.0) + taut.laplace(3.0)).poisson(0.1)
        assert taut.from_dp_event(taut.to_dp_event(loss)) == loss

    def test_composition_of_compositions(self, events):
        inner = events.SelfComposedDpEvent(events.GaussianDpEvent(2.0), 10)
        loss = taut.from_dp_event(events.SelfComposedDpEvent(inner, 5))
        assert loss == 50 * taut.gaussian(2.0)

    def test_poisson_sampling(self, events):
        step = events.PoissonSampledDpEvent(0.01, events.GaussianDpEvent(1.0))
        loss = taut.from_dp_event(events.SelfComposedDpEvent(step, 1000))
        assert loss == 1000 * taut.gaussian(1.0).poisson(0.01)

    def test_fixed_size_sampling(self, events):
        event = events.SampledWithoutReplacementDpEvent(1000, 10, events.GaussianDpEvent(1.0))
        base = taut.gaussian(1.0, 2.0, adjacency="replace")
        assert taut.from_dp_event(event) == base.fixed_size(10, 1000)
        assert taut.from_dp_event(event, adjacency="replace") == base.fixed_size(
            10, 1000, adjacency="replace"
        )

    def test_guarantee(self, events):
        loss = taut.from_dp_event(events.EpsilonDeltaDpEvent(0.5, 1e-6))
        assert loss == taut.approximate(0.5, 1e-6)

    def test_discrete_gaussian(self, events):
        event = events.DiscreteGaussianDpEvent(2.0, 3, 1)
        assert taut.from_dp_event(event) == taut.discrete_gaussian(2.0, 3)
        exchanged = taut.from_dp_event(event, adjacency="replace")
        assert exchanged == taut.discrete_gaussian(2.0, 6, adjacency="replace")

    @pytest.mark.parametrize(("sensitivity", "dimension"), [(3, None), (3, 5), (1.5, 1)])
    def test_discrete_gaussian_vectors_are_known_by_divergences(
        self, events, sensitivity, dimension
    ):
        event = events.DiscreteGaussianDpEvent(2.0, sensitivity, dimension)
        assert taut.from_dp_event(event).rdp(4.0) == pytest.approx(4 * sensitivity**2 / 8)

    def test_selection(self, events):
        event = events.ExponentialMechanismDpEvent(0.5)
        assert taut.from_dp_event(event) == taut.exponential(0.5)
        event = events.PermuteAndFlipDpEvent(0.5)
        assert taut.from_dp_event(event) == accounting.permute_and_flip(0.5)

    def test_mixture_of_gaussians(self, events):
        event = events.MixtureOfGaussiansDpEvent(2.0, [0.0, 1.0], [0.9, 0.1])
        loss = taut.from_dp_event(event)
        assert loss == accounting.mixture_of_gaussians([0.9, 0.1], [0.0, 1.0], 2.0)

    @pytest.mark.parametrize(
        ("steps", "levels"), [(1, 1), (2, 2), (3, 2), (4, 3), ([3, 8, 1], 4), ([], 0), (0, 0)]
    )
    def test_trees(self, events, steps, levels):
        event = events.SingleEpochTreeAggregationDpEvent(2.0, steps)
        wanted = taut.gaussian(2.0, math.sqrt(levels)) if levels else taut.zero()
        assert taut.from_dp_event(event) == wanted

    def test_capped_batches(self, events):
        event = events.TruncatedSubsampledGaussianDpEvent(10_000, 0.01, 160, 1.0)
        wide = taut.gaussian(1.0, 2.0, adjacency="replace")
        wanted = taut.gaussian(1.0).truncated_poisson(0.01, 160, 10_000, exchange=wide)
        assert taut.from_dp_event(event) == wanted

    def test_capped_batches_at_their_limits(self, events):
        nothing = events.TruncatedSubsampledGaussianDpEvent(100, 0.1, 0, 1.0)
        assert taut.from_dp_event(nothing) == taut.zero()
        bare = events.TruncatedSubsampledGaussianDpEvent(100, 0.1, 5, 0.0)
        assert taut.from_dp_event(bare).epsilon(0.5) == math.inf

    def test_poisson_under_replace(self, events):
        event = events.PoissonSampledDpEvent(0.1, events.GaussianDpEvent(1.0))
        exchange = taut.gaussian(1.0, 2.0, adjacency="replace")
        wanted = exchange.poisson(0.1, removal=taut.gaussian(1.0))
        assert taut.from_dp_event(event, adjacency="replace") == wanted


def best_of(law, powers):
    """Return the law of the largest of K outcomes, from the generating function of K."""
    return np.diff(powers(np.append(0.0, np.cumsum(law))))


class TestRepeating:
    """The best of a random number of runs, against laws that are added up exactly."""

    WITHOUT, WITH = np.array([0.6, 0.3, 0.1]), np.array([0.3, 0.5, 0.2])

    @pytest.mark.parametrize("mean", [1.5, 4.0, 30.0])
    @pytest.mark.parametrize("shape", [0.0, 0.5, 1.0, 3.0])
    def test_negative_binomial(self, events, monkeypatch, mean, shape):
        gamma = brentq(lambda g: self._mean(shape, g) - mean, 1e-12, 1 - 1e-9)
        loss = self._read(events, monkeypatch, mean, shape)

        def powers(x):
            if shape == 0:
                return np.log1p(-(1 - gamma) * x) / math.log(gamma)
            return ((1 - (1 - gamma) * x) ** -shape - 1) / (gamma**-shape - 1)

        self._holds(loss, powers)

    @pytest.mark.parametrize("mean", [1.0, 4.0, 30.0])
    def test_poisson(self, events, monkeypatch, mean):
        loss = self._read(events, monkeypatch, mean, math.inf)
        # No run at all is an outcome of its own, of the same probability on both sides.
        self._holds(loss, lambda x: np.exp(mean * (x - 1)), silent=math.exp(-mean))

    def test_one_run_is_itself(self, events):
        event = events.RepeatAndSelectDpEvent(events.GaussianDpEvent(2.0), 1.0, 1.0)
        assert taut.from_dp_event(event) == taut.gaussian(2.0)

    @pytest.mark.parametrize(("mean", "shape"), [(0.5, 1.0), (2.0, -0.5), (math.nan, 1.0)])
    def test_other_laws_are_refused(self, events, mean, shape):
        event = events.RepeatAndSelectDpEvent(events.GaussianDpEvent(2.0), mean, shape)
        with pytest.raises(ValueError, match="mean of at least 1"):
            taut.from_dp_event(event)

    @staticmethod
    def _mean(shape, gamma):
        if shape == 0:
            return (1 / gamma - 1) / math.log(1 / gamma)
        return shape * (1 - gamma) / (gamma * (1 - gamma**shape))

    def _read(self, events, monkeypatch, mean, shape):
        # No event stands for any finite mechanism: the reader of one is told to.
        once = taut.finite(self.WITHOUT, self.WITH)
        monkeypatch.setitem(dp_events._READERS, "NoOpDpEvent", lambda *_: once)
        return taut.from_dp_event(events.RepeatAndSelectDpEvent(events.NoOpDpEvent(), mean, shape))

    def _holds(self, loss, powers, silent=0.0):
        p, q = (np.append(best_of(law, powers), silent) for law in (self.WITHOUT, self.WITH))
        assert p.sum() == pytest.approx(1) == q.sum()
        for order in (1.5, 2.0, 5.0, 20.0):
            for one, other in ((p, q), (q, p)):
                keep = one > 0
                moment = (one[keep] ** order * other[keep] ** (1 - order)).sum()
                assert math.log(moment) / (order - 1) <= loss.rdp(order)
        worst = max(np.maximum(p - math.e * q, 0).sum(), np.maximum(q - math.e * p, 0).sum())
        assert worst <= loss.delta(1.0)


class TestWriting:
    @pytest.mark.parametrize(
        "loss",
        [
            taut.zero(),
            taut.gaussian(1.5),
            taut.gaussian(3.0, 2.0, adjacency="replace"),
            taut.laplace(1.5),
            taut.discrete_laplace(2.0, 3),
            taut.discrete_laplace(2.0, 4, adjacency="replace"),
            taut.randomized_response(0.75, adjacency="replace"),
            7 * taut.gaussian(1.5),
            7 * taut.gaussian(1.5) + taut.laplace(2.0),
            100 * taut.gaussian(1.0).poisson(0.01) + taut.laplace(2.0),
            taut.gaussian(1.0, 2.0, adjacency="replace").fixed_size(10, 1000),
            taut.gaussian(1.0, 2.0, adjacency="replace").fixed_size(10, 1000, adjacency="replace"),
            taut.pure(1.0),
            taut.approximate(0.5, 1e-6),
            taut.exponential(1.0),
            accounting.permute_and_flip(1.0),
            taut.discrete_gaussian(2.0, 4, adjacency="replace"),
            accounting.mixture_of_gaussians([0.9, 0.1], [0.0, 1.0], 2.0),
            taut.gaussian(1.0, 2.0, adjacency="replace").poisson(0.1, removal=taut.gaussian(1.0)),
            taut.gaussian(1.0).truncated_poisson(
                0.01, 160, 10_000, exchange=taut.gaussian(1.0, 2.0, adjacency="replace")
            ),
        ],
        ids=repr,
    )
    def test_round_trip(self, events, loss):
        event = taut.to_dp_event(loss)
        assert isinstance(event, tuple(getattr(events, name) for name in CLASSES))
        again = taut.from_dp_event(event, adjacency=loss.adjacency)
        assert again.epsilon(1e-5) == pytest.approx(loss.epsilon(1e-5), rel=1e-9)

    def test_sensitivity_becomes_the_noise_multiplier(self, events):
        assert taut.to_dp_event(taut.gaussian(3.0, 2.0)) == events.GaussianDpEvent(1.5)

    def test_mirrored_response(self, events):
        event = taut.to_dp_event(taut.randomized_response(0.25, adjacency="replace"))
        assert event == events.RandomizedResponseDpEvent(0.5, 2)


class TestRefusals:
    def test_event_without_counterpart(self, events):
        event = events.UnsupportedDpEvent()
        with pytest.raises(ValueError, match=r"UnsupportedDpEvent has .*GaussianDpEvent") as e:
            taut.from_dp_event(events.SelfComposedDpEvent(event, 3))
        assert "from_profile" in str(e.value)

    def test_with_replacement(self, events):
        event = events.SampledWithReplacementDpEvent(100, 10, events.GaussianDpEvent(1.0))
        with pytest.raises(ValueError, match="SampledWithReplacementDpEvent has no counterpart"):
            taut.from_dp_event(event)

    def test_something_else(self, events):
        with pytest.raises(ValueError, match="int has no counterpart"):
            taut.from_dp_event(3)

    def test_randomized_response_needs_a_record(self, events):
        with pytest.raises(ValueError, match="adjacency='replace'"):
            taut.from_dp_event(events.RandomizedResponseDpEvent(0.5, 2))

    def test_unknown_adjacency(self, events):
        with pytest.raises(ValueError, match="adjacency must be one of"):
            taut.from_dp_event(events.NoOpDpEvent(), adjacency="near")

    @pytest.mark.parametrize(
        "loss",
        [
            accounting.variance_pair(1.0, 2.0),
            taut.finite([0.5, 0.5], [0.25, 0.75]),
            accounting.stability_release(1.0, 1e-6),
            taut.from_profile({0.0: 0.1}),
            taut.discrete_laplace(2.0, 3, adjacency="replace"),
            taut.randomized_response(0.75),
            accounting.stability_release(1.0, 1e-6).poisson(0.1),
            taut.pure(1.0, adjacency="replace").poisson(0.1, removal=taut.pure(0.5)),
            taut.gaussian(1.0).truncated_poisson(
                0.1, 3, 10, exchange=taut.gaussian(1.0, 1.5, adjacency="replace")
            ),
        ],
        ids=repr,
    )
    def test_loss_without_counterpart(self, events, loss):
        with pytest.raises(ValueError, match="no counterpart") as caught:
            taut.to_dp_event(loss + taut.gaussian(1.0, adjacency=loss.adjacency))
        assert "to_json" in str(caught.value)

    def test_events_that_an_older_version_lacks(self, events, monkeypatch):
        monkeypatch.delattr(events, "PermuteAndFlipDpEvent")
        with pytest.raises(ValueError, match="no counterpart"):
            taut.to_dp_event(accounting.permute_and_flip(1.0))

    @pytest.mark.usefixtures("without_library")
    def test_library_missing(self):
        @dataclass
        class GaussianDpEvent:
            noise_multiplier: float = 1.0

        for call in (
            lambda: taut.to_dp_event(taut.zero()),
            lambda: taut.from_dp_event(GaussianDpEvent()),
        ):
            with pytest.raises(ImportError, match="pip install dp-accounting"):
                call()
