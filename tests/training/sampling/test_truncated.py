"""Batches that never hold more examples than a cap: their draws, their loss, their refusals."""

import itertools
from math import comb

import numpy as np
import pytest

from taut.accounting import GaussianRun
from taut.errors import UnsoundConfiguration
from taut.noise import SeededForExperiments
from taut.training import FlatClip, ModelMix, Plan, PoissonSampling, TruncatedPoissonSampling
from taut.training.extend import Sampling


def plan_with(sampling=None, **changes):
    given = {
        "examples": 1_000,
        "batch_size": 100,
        "steps": 50,
        "noise_multiplier": 1.0,
        "delta": 1e-5,
        "clipping": FlatClip(1.0),
        "sampling": TruncatedPoissonSampling(cap=150) if sampling is None else sampling,
    }
    return Plan(**{**given, **changes})


class TestDraws:
    def test_no_batch_exceeds_the_cap_and_every_example_is_as_likely(self):
        sampling = TruncatedPoissonSampling(rate=0.5, cap=10)
        source = SeededForExperiments(7)
        batches = [sampling.draw(20, source) for _ in range(4_000)]
        assert max(map(len, batches)) == 10
        counts = np.bincount(np.concatenate(batches), minlength=20)
        expected = 4_000 * sampling.participation(20)
        assert np.abs(counts - expected).max() < 5 * np.sqrt(expected)

    def test_batches_below_the_cap_are_those_of_poisson_sampling(self):
        ours = TruncatedPoissonSampling(rate=0.1, cap=500).draw(1_000, SeededForExperiments(3))
        theirs = PoissonSampling(rate=0.1).draw(1_000, SeededForExperiments(3))
        assert np.array_equal(ours, theirs)

    def test_participation_is_that_of_every_sample(self):
        rate, n, cap = 0.3, 7, 2
        exact = sum(
            comb(n, k) * rate**k * (1 - rate) ** (n - k) * min(k, cap) / n for k in range(n + 1)
        )
        assert TruncatedPoissonSampling(rate=rate, cap=cap).participation(n) == pytest.approx(exact)
        assert TruncatedPoissonSampling(rate=rate, cap=n).participation(n) == rate
        assert PoissonSampling(rate=rate).participation(n) == pytest.approx(rate)

    def test_processes_share_one_cap(self):
        sampling = TruncatedPoissonSampling(rate=0.5, cap=11)
        parts = [
            next(sampling.shares(40, rank, 3, SeededForExperiments(5))).tolist()
            for rank in range(3)
        ]
        assert (
            sorted(itertools.chain(*parts)) == sampling.draw(40, SeededForExperiments(5)).tolist()
        )

    def test_a_cap_is_needed(self):
        with pytest.raises(ValueError, match="cap must be set"):
            TruncatedPoissonSampling(rate=0.5).draw(10)


class TestPlans:
    def test_loss_is_that_of_the_run(self):
        plan = plan_with()
        run = GaussianRun.of("truncated_poisson", steps=50, batch_size=100, examples=1_000, cap=150)
        assert plan.loss == run.loss(1.0)
        assert plan.sampling == TruncatedPoissonSampling(rate=0.1, cap=150)
        assert Plan.from_json(plan.to_json()) == plan

    def test_the_plan_says_what_the_cap_costs(self):
        wide, narrow = plan_with(), plan_with(TruncatedPoissonSampling(cap=120))
        plain = plan_with(PoissonSampling())
        assert plain.epsilon <= wide.epsilon * (1 + 1e-3) < narrow.epsilon
        (note,) = narrow.notes
        assert "batches are cut at 120 examples; without the cap epsilon would be" in note
        assert note in str(narrow)

    def test_schedules_add(self):
        plan = plan_with(batch_size=[(20, 50), (30, 100)], steps=None)
        assert plan.steps == 50
        assert plan.sampling_at(40) == TruncatedPoissonSampling(rate=0.1, cap=150)

    def test_smaller_datasets_are_covered_and_larger_ones_refused(self):
        sampling = plan_with().sampling
        sampling.check_examples(1_000, 995)
        with pytest.raises(UnsoundConfiguration, match="at most examples=1000"):
            sampling.check_examples(1_000, 1_001)

    @pytest.mark.parametrize("cap", [0, -3, 1.5, float("nan"), True])
    def test_caps_that_are_none(self, cap):
        with pytest.raises((ValueError, TypeError), match="cap"):
            TruncatedPoissonSampling(cap=cap)

    def test_a_cap_below_the_expected_batch_is_refused_with_the_way_out(self):
        with pytest.raises(ValueError, match=r"at least the expected batch.*Use 14\d"):
            plan_with(TruncatedPoissonSampling(cap=80))

    def test_a_name_without_a_cap_is_refused_with_one(self):
        with pytest.raises(ValueError, match=r"needs 'cap'.*14\d cuts one batch in a million"):
            plan_with("truncated_poisson")

    def test_mixing_has_no_theorem(self):
        with pytest.raises(UnsoundConfiguration, match="Poisson sampling alone"):
            plan_with(mixing=ModelMix(width=0.1))


def test_is_found_by_name():
    sampling = TruncatedPoissonSampling(rate=0.1, cap=150)
    assert Sampling.from_dict(sampling.to_dict()) == sampling


class TestRuns:
    def test_a_cap_belongs_to_one_sampler(self):
        with pytest.raises(ValueError, match="'cap' is for the sampler truncated_poisson"):
            GaussianRun.of("poisson", steps=1, rate=0.1, cap=3)

    def test_the_number_of_records_is_needed(self):
        with pytest.raises(ValueError, match="needs 'examples'"):
            GaussianRun.of("truncated_poisson", steps=1, rate=0.1, cap=3)

    def test_a_run_without_a_cap_has_no_loss(self):
        with pytest.raises(ValueError, match="needs a cap"):
            GaussianRun(
                GaussianRun.of("truncated_poisson", steps=1, rate=0.1, examples=9, cap=3).sampler,
                0.1,
                1,
                1,
            ).loss(1.0)
