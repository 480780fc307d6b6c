"""Twice sampling in training: plans, subspaces, refusals, runs that go on."""

import json
import math

import numpy as np
import pytest
import torch
from torch import nn
from training.runs import Kill, Killed, data, model, weights

import taut
from taut.accounting import equal_compute_plan, twice_sampled
from taut.errors import UnsoundConfiguration
from taut.noise import SeededForExperiments
from taut.noise.geometry import Subspaces
from taut.training import (
    Checkpointing,
    FlatClip,
    GroupClip,
    HybridClip,
    L2LInfClip,
    Logs,
    Plan,
    PoissonSampling,
    PrivateTrainer,
    TrainingResult,
    TwiceSampling,
)
from taut.training._sampling.masks import Masks
from taut.training.extend import Draw, Sampling

LOSS = nn.CrossEntropyLoss(reduction="none")
CLIP = L2LInfClip.spread_over(1.0, spread=16)


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


class TestHybrid:
    DIMENSION = 40

    def test_parts_obey_both_bounds_in_the_turned_basis(self):
        clipping = hybrid(self.DIMENSION)
        rows = 5 * torch.randn(64, self.DIMENSION, dtype=torch.float64)
        within, rest = clipping._rows(rows)._cut(rows, clipping.entry_bounds)
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

    @pytest.mark.slow
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
        hows = (
            Draw(SeededForExperiments(seed=i), 1.0, torch.float64, torch.device("cpu"))
            for i in range(4_000)
        )
        drawn = torch.stack([noise.draw([torch.Size([40])], how)[0] for how in hows])
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
        step = twice_sampled(0.25, 0.5, 1.0, clip_inf=0.25, dimension=1_000)
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
        plain = equal_compute_plan(plan.loss, plan.delta)
        assert plain.epsilon < plan.epsilon
        assert plain.epsilon <= plain.renyi_epsilon <= plain.twice_epsilon
        assert f"noise multiplier {plain.multiplier:.6g}" in note
        assert taut._base.rounding.round_up(plain.epsilon, 4) in note
        assert note in str(plan)

    def test_rates_and_batches_are_those_of_records(self):
        plan = plan_of()
        assert plan.batch_size == 50.0
        assert len(plan.sampling.draw(1_000, SeededForExperiments(seed=0))) in range(190, 310)


def trained(net, clipping, directory=None, *, seed=5, callbacks=(), **options):
    plan = plan_of(clipping, examples=60, sampling=TwiceSampling(spread=16))
    generator = None if seed is None else SeededForExperiments(seed=seed)
    trainer = PrivateTrainer(
        net, LOSS, plan, run_dir=directory, generator=generator,
        logs=Logs(callbacks=callbacks), checkpoints=Checkpointing(every=2), **options,
    )  # fmt: skip
    return trainer.fit(data())


class TestRuns:
    def test_resumed_run_is_bit_by_bit_the_undisturbed_one(self, tmp_path):
        whole, cut, net = model(), model(), model(seed=9)
        trained(whole, CLIP, tmp_path / "whole")
        with pytest.raises(Killed):
            trained(cut, CLIP, tmp_path / "cut", callbacks=[Kill(4)])
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
