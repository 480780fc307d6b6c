"""Twice sampling in training: exact masks, unbiased sums, plans, refusals, runs that go on."""

import itertools
import json
import math
from fractions import Fraction

import numpy as np
import pytest
import torch
from scipy.stats import chi2
from torch import nn
from training.ranks import in_processes
from training.runs import data, model, weights

import taut
from taut.errors import UnsoundConfiguration
from taut.noise import RandomSource, SeededForExperiments, Subspaces
from taut.training import (
    Callback,
    FlatClip,
    GroupClip,
    HybridClip,
    IndependentNoise,
    L2LInfClip,
    Plan,
    PoissonSampling,
    PrivateGradient,
    PrivateTrainer,
    Sampling,
    TrainingResult,
    TwiceSampling,
)
from taut.training import _masks as masks_module
from taut.training._masks import Masks, dyadic_rate

LOSS = nn.CrossEntropyLoss(reduction="none")
CLIP = L2LInfClip.spread_over(1.0, spread=16)


class Counting(RandomSource):
    """Gives the bytes that it was given, in turn."""

    secure = True

    def __init__(self, data):
        self._data, self.used = bytes(data), 0

    def bytes(self, n):
        start, self.used = self.used, self.used + n
        return self._data[start : self.used]


def plan_of(clipping=CLIP, **changes):
    settings = {
        "examples": 200, "rate": 0.25, "steps": 6, "noise_multiplier": 1.0, "delta": 1e-3,
        "sampling": TwiceSampling(spread=16),
    } | changes  # fmt: skip
    return Plan(clipping=clipping, **settings)


def random_subspaces(dimension, ranks, seed=0):
    basis = np.linalg.qr(np.random.default_rng(seed).normal(size=(dimension, sum(ranks)))).Q
    rest = dimension - sum(ranks)
    return Subspaces(basis, (*ranks, rest) if rest else tuple(ranks), np.ones(sum(ranks)), "public")


def hybrid(dimension, ranks=(3, 5), **options):
    bounds = [0.6, 0.4, 0.5][: len(ranks) + (sum(ranks) < dimension)]
    settings = {"entry_bounds": [b / 2 for b in bounds]} | options
    return HybridClip(random_subspaces(dimension, ranks), bounds, **settings)


class TestMasks:
    @pytest.mark.parametrize("numerator", range(1, 16))
    def test_all_patterns_of_bits_give_exactly_the_rate(self, numerator):
        """Enumerate what every coordinate can be given: of 16 patterns, `numerator` keep it."""
        rate = numerator / 16
        planes = Fraction(rate).denominator.bit_length() - 1
        kept = 0
        for pattern in itertools.product((0, 255), repeat=planes):
            found = Masks(rate, Counting(pattern)).cut(torch.ones(1, 8))
            assert found.unique().numel() == 1
            kept += int(found[0, 0])
        assert Fraction(kept, 2**planes) == Fraction(numerator, 16)

    def test_half_keeps_where_a_bit_is_one(self):
        source = Counting([0b10110000, 0b00000001])
        found = Masks(0.5, source).cut(torch.full((2, 8), 3.0))
        assert found.tolist() == [[3, 0, 3, 3, 0, 0, 0, 0], [0, 0, 0, 0, 0, 0, 0, 3]]
        assert source.used == 2

    def test_finest_rate(self):
        """A multiple of 2^-16 takes sixteen bits a coordinate; the rarest needs all of them."""
        source = Counting([255] * 16)
        assert Masks(2.0**-16, source).cut(torch.ones(1, 8)).tolist() == [[1.0] * 8]
        assert source.used == 16
        assert not Masks(2.0**-16, Counting([255] * 15 + [0])).cut(torch.ones(1, 8)).any()

    @pytest.mark.parametrize("rate", [0.5, 0.25, 5 / 16, 1 - 2.0**-16])
    def test_coordinates_rows_and_calls_are_independent(self, rate):
        masks = Masks(rate, SeededForExperiments(seed=1))
        count = 2_000
        calls = [masks.cut(torch.ones(count, 3)).numpy() for _ in range(2)]
        bits = np.concatenate(calls, axis=1).astype(int)  # six bits that must not know each other
        expected = [
            rate ** sum(p) * (1 - rate) ** (6 - sum(p)) for p in itertools.product((0, 1), repeat=6)
        ]
        found = np.bincount(bits @ (1 << np.arange(5, -1, -1)), minlength=64)
        large = np.array(expected) * count >= 5
        rest = count - found[large].sum(), count * (1 - np.array(expected)[large].sum())
        seen = np.append(found[large], rest[0])
        want = np.append(np.array(expected)[large] * count, rest[1])
        seen, want = seen[want > 0.5], want[want > 0.5]
        if len(seen) > 1:
            statistic = ((seen - want) ** 2 / want).sum()
            assert chi2.sf(statistic, len(seen) - 1) > 1e-4
        assert abs(bits.mean() - rate) <= 5 * math.sqrt(rate * (1 - rate) / bits.size) + 1e-9

    def test_rows_next_to_each_other_differ(self):
        found = Masks(0.5, SeededForExperiments(seed=2)).cut(torch.ones(50, 64))
        assert len({tuple(row) for row in found.tolist()}) == 50

    def test_portions_are_masked_alike(self, monkeypatch):
        monkeypatch.setattr(masks_module, "_PORTION", 64)
        found = Masks(0.5, SeededForExperiments(seed=3)).cut(torch.ones(40, 25))
        assert abs(float(found.mean()) - 0.5) < 0.1
        assert torch.equal(found, found.bool().float())

    def test_memory_is_bounded(self):
        """Bits are drawn for a portion at a time, whatever the batch."""
        sizes = []

        class Spy(SeededForExperiments):
            def bytes(self, n):
                sizes.append(n)
                return super().bytes(n)

        Masks(0.5, Spy(seed=0)).cut(torch.ones(64, 20_000))
        assert max(sizes) <= masks_module._PORTION // 8
        assert sum(sizes) == 64 * 20_000 // 8

    def test_rates_that_bits_cannot_draw_name_their_neighbours(self):
        with pytest.raises(ValueError, match=r"21845/2\*\*16 and 21846/2\*\*16"):
            dyadic_rate(coordinate_rate=1 / 3)
        for rate in (0.0, 1.0):
            with pytest.raises(ValueError, match="between 0 and 1"):
                TwiceSampling(coordinate_rate=rate)


class TestSum:
    @staticmethod
    def gradient(net, noise, **options):
        return PrivateGradient(
            net, CLIP, noise=noise, expected_batch_size=4, self_check=False, **options
        )

    def test_mean_and_variance_over_masks(self):
        """E o/(n q) is the mean, and its error (1-q)/(q n^2) sum |y|^2 (Proposition 5.1)."""
        net = nn.Linear(6, 1, bias=False)
        rate, n = 0.25, 4
        rows = torch.randn(n, 6, generator=torch.Generator().manual_seed(0))
        clipped = CLIP.clip_rows(rows)
        step = self.gradient(
            net, IndependentNoise((0.0,), (0,), rate), generator=SeededForExperiments(seed=5)
        )
        found = []
        for _ in range(3_000):
            step.accumulate_batch(rows, torch.zeros(n), lambda out, _: out[:, 0])
            step.finish()
            found.append(net.weight.grad[0].clone())
            net.weight.grad = None
        found = torch.stack(found).double()
        exact = clipped.mean(0).double()
        error = ((found - exact) ** 2).sum(1)
        expected = taut.sampled_mean_error(clipped.numpy(), rate)
        assert float(error.mean()) == pytest.approx(expected, rel=0.08)
        deviations = (found.mean(0) - exact) / (found.std(0) / math.sqrt(len(found)) + 1e-12)
        assert float(deviations.abs().max()) < 4.5

    def test_geo_27(self):
        rows = [[1.0, 2.0], [0.5, -1.0], [0.0, 3.0]]
        assert taut.sampled_mean_error(rows, 0.2) == pytest.approx(6.777777777777779)

    def test_no_masks_without_noise_for_them(self):
        net = nn.Linear(6, 1, bias=False)
        assert self.gradient(net, IndependentNoise((1.0,), (0,))).masks is None
        step = self.gradient(net, IndependentNoise((1.0,), (0,), 0.5))
        assert step.masks.rate == 0.5

    def test_empty_batch_is_noise_over_the_same_constant(self):
        net = nn.Linear(3_000, 1, bias=False)
        step = self.gradient(net, IndependentNoise((2.0,), (0,), 0.25))
        step.finish()
        assert float(net.weight.grad.std()) == pytest.approx(2.0 / (4 * 0.25), rel=0.1)

    def test_examples_that_are_not_finite_count_for_nothing(self):
        net = nn.Linear(3, 1, bias=False)
        step = self.gradient(net, IndependentNoise((0.0,), (0,), 0.5))
        rows = torch.tensor([[math.nan, 1.0, 1.0], [math.inf, 0.0, 0.0]])
        step.accumulate_batch(rows, torch.zeros(2), lambda out, _: out[:, 0])
        assert step.dropped == 2
        step.finish()
        assert not net.weight.grad.any()

    def test_masked_noise_needs_a_clipping_of_entries(self):
        net = nn.Linear(3, 1, bias=False)
        with pytest.raises(UnsoundConfiguration, match="bounds no entries"):
            PrivateGradient(
                net, FlatClip(1.0), noise=IndependentNoise((1.0,), (0,), 0.5), expected_batch_size=1
            )


class TestHybrid:
    DIMENSION = 40

    def test_parts_obey_both_bounds_in_the_turned_basis(self):
        clipping = hybrid(self.DIMENSION)
        rows = 5 * torch.randn(64, self.DIMENSION, dtype=torch.float64)
        within, rest = clipping._cut(rows)
        parts = [*within.split([3, 5], 1), rest]
        for part, bound, entry in zip(parts, clipping.bounds, clipping.entry_bounds, strict=True):
            assert float(part.norm(dim=1).max()) <= bound * (1 + 1e-12)
            assert float(part.abs().max()) <= entry

    def test_basis_is_turned_inside_of_blocks_alone(self):
        plain, turned = hybrid(self.DIMENSION, entry_bounds=None), hybrid(self.DIMENSION)
        one, other = (c._basis.on(torch.float64, torch.device("cpu")) for c in (plain, turned))
        assert not torch.allclose(one, other)
        for block in (slice(0, 3), slice(3, 8)):
            spans = [columns[:, block] @ columns[:, block].T for columns in (one, other)]
            torch.testing.assert_close(*spans, atol=1e-10, rtol=0)

    @pytest.mark.parametrize("ranks", [(3, 5), (15, 25)], ids=["complement", "whole"])
    def test_sum_is_that_of_clipped_rows(self, ranks):
        clipping = hybrid(self.DIMENSION, ranks)
        rows = 5 * torch.randn(16, self.DIMENSION, dtype=torch.float64)
        whole = clipping.restored(clipping.sum_rows(rows.clone()))
        torch.testing.assert_close(whole, clipping.clip_rows(rows).sum(0))

    def test_generous_entry_bounds_change_nothing(self):
        rows = torch.randn(16, self.DIMENSION, dtype=torch.float64)
        one = hybrid(self.DIMENSION, entry_bounds=None).clip_rows(rows)
        other = hybrid(self.DIMENSION, entry_bounds=[9.0, 9.0, 9.0]).clip_rows(rows)
        # Without entries the residual's length is taken for a little larger than it is.
        torch.testing.assert_close(one, other, atol=2e-3, rtol=0)

    def test_masked_sum_is_unbiased(self):
        clipping = hybrid(self.DIMENSION)
        rows = torch.randn(4, self.DIMENSION, dtype=torch.float64)
        masks = Masks(0.5, SeededForExperiments(seed=0))
        exact = clipping.clip_rows(rows).sum(0)
        found = torch.stack(
            [2 * clipping.restored(clipping.sum_rows(rows.clone(), masks)) for _ in range(3_000)]
        )
        deviations = (found.mean(0) - exact) / (found.std(0) / math.sqrt(len(found)))
        assert float(deviations.abs().max()) < 4.5

    def test_plan_and_json(self):
        plan = plan_of(hybrid(self.DIMENSION), sampling=TwiceSampling(coordinate_rate=0.25))
        noise = plan.noise({"a": 30, "b": 10})
        lengths = [c / s for c, s in zip(plan.clipping.bounds, noise.scales, strict=True)]
        assert math.hypot(*lengths) == pytest.approx(1.0)
        assert noise.coordinate_rate == 0.25
        assert Plan.from_json(plan.to_json()) == plan
        release, _ = plan.step_loss.terms[0]
        accounted = [e * s for e, s in zip(release.clip_infs, noise.scales, strict=True)]
        np.testing.assert_allclose(accounted, plan.clipping.entry_bounds, rtol=1e-12)

    def test_promise_is_kept_with_the_least_noise(self):
        clipping = hybrid(self.DIMENSION, entry_bounds=[0.6, 0.4, 0.1])
        plan = plan_of(clipping, noise_multiplier=None, epsilon=3.0)
        assert plan.loss.epsilon(plan.delta) <= 3.0
        scales = plan.noise({"a": 40}).scales
        total = np.multiply([3, 5, 32], np.square(scales)).sum()
        shape = TwiceSampling(rate=0.25).for_clipping(clipping)
        found = taut.calibrate(lambda z: shape.loss(z, 200, 6), epsilon=3.0, delta=plan.delta)
        proportional = shape.noise(clipping, ["a"], [40], found.value).scales
        assert total <= np.multiply([3, 5, 32], np.square(proportional)).sum() * (1 + 1e-3)

    def test_changed_bounds_are_refused(self):
        plan = plan_of(hybrid(self.DIMENSION), sampling=TwiceSampling())
        changed = json.loads(plan.to_json())
        changed["clipping"]["entry_bounds"][1] *= 1.5
        with pytest.raises(UnsoundConfiguration, match="accounts for"):
            Plan.from_dict(changed)

    def test_old_json_of_a_clipping_loads(self):
        clipping = hybrid(self.DIMENSION, entry_bounds=None)
        assert "entry_bounds" not in clipping.to_dict()
        assert HybridClip.from_dict(clipping.to_dict()) == clipping

    def test_from_public_bounds_entries(self):
        public = np.random.default_rng(0).normal(size=(50, 40)) / np.arange(1, 41)
        clipping = HybridClip.from_public(public, [3, 9], 1.0, provenance="public", spread=2.0)
        spreads = np.square(np.divide(clipping.bounds, clipping.entry_bounds))
        np.testing.assert_allclose(spreads, [1.0, 1.0, 2.0])

    def test_noise_is_projected(self):
        plan = plan_of(hybrid(self.DIMENSION), sampling=TwiceSampling())
        noise = plan.noise({"a": 40})
        drawn = torch.stack(
            [
                noise.draw(
                    [torch.Size([40])],
                    SeededForExperiments(seed=i),
                    factor=1.0,
                    dtype=torch.float64,
                    device=torch.device("cpu"),
                )[0]
                for i in range(4_000)
            ]
        )
        columns = noise.basis.on(torch.float64, torch.device("cpu"))
        inside = drawn @ columns
        rest = drawn - inside @ columns.T
        assert float(inside[:, :3].std()) == pytest.approx(noise.scales[0], rel=0.05)
        assert float(rest.square().sum(1).mean()) == pytest.approx(
            32 * noise.scales[2] ** 2, rel=0.05
        )


class TestPlan:
    def test_loss_is_that_of_twice_sampling(self):
        plan = plan_of()
        step = taut.twice_sampled(0.25, 0.5, 1.0, clip_inf=0.25, dimension=1_000)
        assert plan.epsilon == pytest.approx((6 * step).epsilon(1e-3), rel=1e-9)
        assert plan.noise({"w": 12}).scales == (1.0,)

    def test_noise_does_not_shrink_with_the_model(self):
        """Three coordinates cannot hold the norm, but the loss counts on noise for all of it."""
        plan = plan_of(L2LInfClip.spread_over(2.0, spread=16))
        assert plan.noise({"w": 3}).scales == (2.0,)

    def test_tighter_entries_are_accepted(self):
        assert plan_of(L2LInfClip(1.0, 0.1)).epsilon == plan_of().epsilon

    @pytest.mark.parametrize(
        ("clipping", "message"),
        [
            (FlatClip(1.0), "L2LInfClip.spread_over"),
            (GroupClip(1.0), "bounds no single entries"),
            (L2LInfClip(1.0, 0.5), "spread=4"),
            (hybrid(40, entry_bounds=None), "entry_bounds"),
        ],
    )
    def test_refuses_other_clippings_with_the_way_out(self, clipping, message):
        with pytest.raises(UnsoundConfiguration, match=message):
            plan_of(clipping)

    def test_promise(self):
        plan = plan_of(noise_multiplier=None, epsilon=2.0)
        assert 2.0 * (1 - 2e-3) <= plan.loss.epsilon(1e-3) <= 2.0

    def test_json(self):
        plan = plan_of()
        assert Plan.from_json(plan.to_json()) == plan
        data = json.loads(plan.to_json())
        assert data["sampling"]["name"] == "twice"
        assert Sampling.from_dict({"name": "poisson", "rate": 0.1}) == PoissonSampling(0.1)

    def test_lowered_epsilon_is_noticed(self):
        changed = json.loads(plan_of().to_json())
        changed["epsilon"] /= 2
        with pytest.raises(UnsoundConfiguration, match="changed by hand"):
            Plan.from_dict(changed)

    def test_scales_alone_would_forget_the_masks(self):
        with pytest.raises(UnsoundConfiguration, match="masks"):
            plan_of().noise_scales({"w": 12})

    def test_equal_compute_is_always_named(self):
        plan = plan_of()
        (note,) = plan.notes
        plain = taut.equal_compute_plan(plan.loss, plan.delta)
        assert plain.epsilon < plan.epsilon
        assert plain.epsilon <= plain.renyi_epsilon <= plain.twice_epsilon
        assert f"noise multiplier {plain.multiplier:.6g}" in note
        assert taut._rounding.round_up(plain.epsilon, 4) in note
        assert note in str(plan)

    def test_rates_and_batches_are_those_of_records(self):
        plan = plan_of()
        assert plan.batch_size == 50.0
        assert len(plan.sampling.draw(1_000, SeededForExperiments(seed=0))) in range(190, 310)


class Killed(Exception):
    pass


class Kill(Callback):
    def on_step_end(self, trainer, event):
        if event.step == 4:
            raise Killed


def trained(net, clipping, directory=None, *, seed=5, callbacks=(), **options):
    plan = plan_of(clipping, examples=60, sampling=TwiceSampling(spread=16))
    generator = None if seed is None else SeededForExperiments(seed=seed)
    trainer = PrivateTrainer(
        net, LOSS, plan, run_dir=directory, generator=generator, callbacks=list(callbacks),
        checkpoint_every=2, **options,
    )  # fmt: skip
    return trainer.fit(data())


class TestRuns:
    def test_resumed_run_is_bit_by_bit_the_undisturbed_one(self, tmp_path):
        whole, cut, net = model(), model(), model(seed=9)
        trained(whole, CLIP, tmp_path / "whole")
        with pytest.raises(Killed):
            trained(cut, CLIP, tmp_path / "cut", callbacks=[Kill()])
        trained(net, CLIP, tmp_path / "cut")
        assert torch.equal(weights(net), weights(whole))

    def test_secure_run_and_its_statement(self):
        result = trained(model(), CLIP, seed=None)
        assert result.is_secure
        assert "(twice sampling)" in result.statement
        assert "For comparison: without masks" in result.statement
        again = TrainingResult.from_json(result.to_json())
        assert again.statement == result.statement

    def test_hybrid(self, tmp_path):
        net = model()
        size = sum(p.numel() for p in net.parameters())
        clipping = hybrid(size).saved(tmp_path / "spaces.npz")
        assert clipping.entry_bounds == hybrid(size).entry_bounds
        result = trained(net, clipping, tmp_path / "run", seed=None)
        assert result.steps == 6


def _masks_of(rank):
    net = nn.Linear(64, 1, bias=False)
    noise = IndependentNoise((0.0,), (0,), 0.5)
    step = PrivateGradient(
        net, L2LInfClip(8.0, 1.0), noise=noise, expected_batch_size=1.0, self_check=False,
        generator=SeededForExperiments(seed=3),
    )  # fmt: skip
    found = []
    for _ in range(3):
        # Two examples in the first process and one in the other: a sum of three masked rows.
        step.accumulate_batch(
            torch.ones(2 - rank, 64), torch.zeros(2 - rank), lambda out, _: out[:, 0]
        )
        step.finish()
        found.append((net.weight.grad[0] * 0.5).tolist())
        net.weight.grad = None
    return found, step.masks.state_dict()["seed"]


def test_every_process_masks_its_own_rows():
    (first, one), (second, other) = in_processes(_masks_of)
    assert first == second
    assert one != other
    sums = np.array(first).round().astype(int)
    assert set(sums.ravel()) <= {0, 1, 2, 3}
    counts = np.bincount(sums.ravel(), minlength=4)
    expected = len(sums) * 64 * np.array([1, 3, 3, 1]) / 8
    assert chi2.sf(((counts - expected) ** 2 / expected).sum(), 3) > 1e-4
    assert len({tuple(step) for step in sums.tolist()}) == 3
