"""Subspaces that follow the weights, and the published baseline with embeddings."""

import json
import logging
import math

import numpy as np
import pytest
import torch
from oracles.gradients import cross_entropy
from torch import nn
from torch.utils.data import Subset, TensorDataset
from training.ranks import in_processes
from training.runs import data, model, plan, weights

from taut.errors import UnsoundConfiguration
from taut.noise import SeededForExperiments
from taut.noise.geometry import public_subspaces
from taut.training import (
    Callback,
    Checkpointing,
    FlatClip,
    GEPClip,
    HybridClip,
    Logs,
    Plan,
    PrivateTrainer,
    RefreshedGEPClip,
    RefreshedHybridClip,
    public_gradients,
)
from taut.training.extend import Draw, PrivateGradient

LOSS = nn.CrossEntropyLoss(reduction="none")
RANKS = (3, 5)
PUBLIC = data(80, seed=7).tensors


def clip(**changes):
    return RefreshedHybridClip(**({"ranks": RANKS, "norm": 0.5, "every": 3} | changes))


def trainer(net=None, *, clipping=None, steps=8, public=PUBLIC, seed=5, **options):
    return PrivateTrainer(
        model() if net is None else net,
        LOSS,
        plan(steps=steps, clipping=clip() if clipping is None else clipping),
        public=public,
        generator=SeededForExperiments(seed=seed),
        **options,
    )


def numbers_of(net):
    return sum(p.numel() for p in net.parameters())


class Seen(Callback):
    """Keeps the clipping and the noise of every step."""

    def __init__(self, kill=None):
        self.steps, self._kill = [], kill

    def on_step_end(self, trainer, event):
        self.steps.append((trainer._gradient.clipping, trainer._gradient._step_noise))
        if event.step == self._kill:
            raise KeyboardInterrupt


# --- what a refresh does ---------------------------------------------------------------------


def test_clipping_is_that_of_the_weights_at_the_refresh():
    net, snapshots = model(), {}

    class Weights(Callback):
        def on_step_end(self, trainer, event):
            snapshots[event.step] = (weights(net).clone(), trainer._gradient.clipping)

    run = trainer(net, steps=4, logs=Logs(callbacks=[Weights()]))
    first = model()
    run.fit(data())
    rows = public_gradients(first, *PUBLIC, cross_entropy)
    spaces = public_subspaces(rows[::2], RANKS, provenance="public", method="gram")
    # One step after the first refresh, the clipping still is that of the first weights.
    used = snapshots[2][1]
    assert used.digest == HybridClip(spaces, [1.0, 1.0, 1.0]).digest
    again = model()
    nn.utils.vector_to_parameters(snapshots[3][0], again.parameters())
    rows = public_gradients(again, *PUBLIC, cross_entropy)
    later = public_subspaces(rows[::2], RANKS, provenance="public", method="gram")
    assert snapshots[4][1].digest == HybridClip(later, [1.0, 1.0, 1.0]).digest
    assert (run.refresh.step, run.refresh.count) == (3, 2)
    assert run.refresh.seconds > 0


def test_bounds_are_mean_lengths_of_examples_that_found_no_direction():
    net = model()
    rows = public_gradients(net, *PUBLIC, cross_entropy).astype(np.float64)
    made = clip().refreshed(rows, ["all"], [numbers_of(net)])
    basis = made.subspaces.basis
    held = rows[1::2]
    inside = held @ basis
    lengths = [
        np.linalg.norm(inside[:, :3], axis=1).mean(),
        np.linalg.norm(inside[:, 3:], axis=1).mean(),
        np.linalg.norm(held - inside @ basis.T, axis=1).mean(),
    ]
    expected = 0.5 * np.array(lengths) / np.linalg.norm(lengths)
    assert made.bounds == pytest.approx(tuple(expected), rel=1e-9)
    assert math.hypot(*made.bounds) == pytest.approx(0.5, rel=1e-12)


def test_many_public_examples_are_iterated_over():
    net = model()
    rows = public_gradients(net, *data(200, seed=7).tensors, cross_entropy)
    made = clip(ranks=(2,), iterations=3, seed=4).refreshed(rows, ["all"], [numbers_of(net)])
    spaces = public_subspaces(rows[::2], [2], provenance="public", iterations=3, seed=4)
    assert made.digest == HybridClip(spaces, [1.0, 1.0]).digest


@pytest.mark.parametrize(
    "clipping", [clip(every=1), clip(importance=(4.0, 2.0, 1.0)), RefreshedGEPClip(6, 0.4, 0.3)]
)
def test_every_step_hides_its_own_set_at_the_multiplier_of_the_plan(clipping):
    seen = Seen()
    run = trainer(clipping=clipping, logs=Logs(callbacks=[seen]), steps=5)
    run.fit(data())
    assert run.refresh.count == math.ceil(5 / clipping.every)
    for used, noise in seen.steps:
        # Whitened length of the longest member, from the covariance itself.
        basis, ranks = used.subspaces.basis, used.subspaces.ranks
        member = np.concatenate(
            [
                np.eye(rank)[0] * bound
                for rank, bound in zip(ranks[:-1], used.bounds[:-1], strict=True)
            ]
        )
        random = np.random.default_rng(0).normal(size=len(basis))
        outside = random - basis @ (basis.T @ random)
        vector = basis @ member + used.bounds[-1] * outside / np.linalg.norm(outside)
        inner = np.repeat(noise.scales[:-1], ranks[:-1])
        covariance = noise.scales[-1] ** 2 * (np.eye(len(basis)) - basis @ basis.T)
        covariance += (basis * inner**2) @ basis.T
        whitened = math.sqrt(vector @ np.linalg.solve(covariance, vector))
        assert whitened <= (1 + 1e-9) / run.plan.noise_multiplier
        if isinstance(used, HybridClip) and not isinstance(used, GEPClip):
            assert whitened == pytest.approx(1 / run.plan.noise_multiplier, rel=1e-6)


def test_training_randomness_is_left_alone():
    class Dropping(nn.Sequential):
        pass

    torch.manual_seed(3)
    net = Dropping(nn.Linear(5, 8), nn.Dropout(0.5), nn.Linear(8, 3))
    run = trainer(net, steps=1)
    run._prepare(data())
    net.train()
    before = torch.get_rng_state()
    run.refresh.renew(0, run._losses)
    assert torch.equal(before, torch.get_rng_state())
    assert all(module.training for module in net.modules())
    first = run._gradient.clipping.digest
    run.refresh.renew(0, run._losses)  # masks would differ
    assert run._gradient.clipping.digest == first


def test_cost_is_logged(caplog):
    with caplog.at_level(logging.INFO, logger="taut.training._run.refresh"):
        trainer(steps=4).fit(data())
    messages = [r.getMessage() for r in caplog.records if "refreshed" in r.getMessage()]
    assert len(messages) == 2
    assert "after step 3 from 80 public examples in" in messages[1]


# --- crashes and processes -------------------------------------------------------------------


@pytest.mark.parametrize("kill", [3, 4])
def test_resumed_run_ends_where_the_undisturbed_one_does(tmp_path, kill):
    whole = model()
    trainer(whole, run_dir=tmp_path / "whole", checkpoints=Checkpointing(every=1)).fit(data())
    seen = Seen(kill)
    with pytest.raises(KeyboardInterrupt):
        trainer(
            run_dir=tmp_path / "cut",
            checkpoints=Checkpointing(every=1),
            logs=Logs(callbacks=[seen]),
        ).fit(data())
    net, later = model(seed=99), Seen()
    resumed = PrivateTrainer.resume(
        tmp_path / "cut",
        net,
        LOSS,
        public=PUBLIC,
        generator=SeededForExperiments(seed=5),
        logs=Logs(callbacks=[later]),
    )
    assert resumed.fit(data()).steps == 8
    assert torch.equal(weights(net), weights(whole))
    if kill == 4:  # between two refreshes
        assert later.steps[0][0].digest == seen.steps[-1][0].digest
    plan_json = json.loads((tmp_path / "cut" / "plan.json").read_text())
    assert plan_json["clipping"] == {
        "name": "refreshed_hybrid",
        "ranks": [3, 5],
        "norm": 0.5,
        "every": 3,
        "importance": None,
        "iterations": 5,
        "seed": 0,
    }


def test_other_public_examples_after_a_crash_are_sound_and_said(tmp_path):
    with pytest.raises(KeyboardInterrupt):
        trainer(
            run_dir=tmp_path, checkpoints=Checkpointing(every=1), logs=Logs(callbacks=[Seen(4)])
        ).fit(data())
    with pytest.warns(UserWarning, match="as private, and not the same"):
        trainer(run_dir=tmp_path, public=data(80, seed=8).tensors).fit(data())


def of_rank(rank):
    net = model(seed=1 + rank)  # weights differ before they are wrapped, and not afterwards
    net = nn.parallel.DistributedDataParallel(net)
    seen = Seen()
    # A basis of its own in each process would do as much harm as other clipping.
    public = data(80, seed=7 + rank).tensors
    run = trainer(net, steps=5, public=public, logs=Logs(callbacks=[seen]))
    run.fit(data())
    return weights(run.model), repr(run._gradient.clipping), run.refresh.count


@pytest.mark.slow
def test_processes_clip_in_the_same_subspaces():
    (left, one, count), (right, other, _) = in_processes(of_rank)
    assert torch.equal(left, right)
    assert one == other
    assert count == 2


# --- refusals --------------------------------------------------------------------------------


def test_too_few_public_examples_are_refused_with_the_numbers():
    few = tuple(tensor[:15] for tensor in PUBLIC)
    with pytest.raises(ValueError, match=r"sum to 9 directions, and 8 of 15 public .* 18 public"):
        trainer(clipping=clip(ranks=(4, 5)), public=few)
    with pytest.raises(ValueError, match=r"5 public examples span at most .* rank=6"):
        trainer(
            clipping=RefreshedGEPClip(6, 0.4, 0.3), public=tuple(tensor[:5] for tensor in PUBLIC)
        )


def test_rank_deficient_public_gradients_are_refused_with_the_numbers():
    copies = tuple(tensor[:4].repeat(10, *[1] * (tensor.dim() - 1)) for tensor in PUBLIC)
    with pytest.raises(ValueError, match=r"numerical rank of the vectors, 2, got 8"):
        trainer(public=copies).fit(data())


def test_later_failure_keeps_the_last_subspaces():
    run = trainer(steps=7)
    seen = Seen()
    run._callbacks.append(seen)

    class Vanish(Callback):
        def on_step_end(self, trainer, event):
            if event.step == 1:
                x, y = PUBLIC
                trainer.refresh._inputs, trainer.refresh._targets = x[:1].repeat(80, 1), y

    run._callbacks.append(Vanish())
    with pytest.warns(UserWarning, match="keeping the subspaces of step 0"):
        assert run.fit(data()).steps == 7
    assert len({used.digest for used, _ in seen.steps}) == 1


def test_public_examples_are_asked_for_and_refused_where_useless():
    with pytest.raises(ValueError, match="needs public examples"):
        trainer(public=None)
    with pytest.raises(ValueError, match="of no use to clipping=FlatClip"):
        trainer(clipping=FlatClip(1.0))


def test_training_set_is_not_public():
    whole = data()
    inputs, labels = whole.tensors
    half = range(40)
    for public in (
        whole,
        Subset(whole, half),
        (inputs[:40], torch.zeros(40, dtype=torch.long)),
        TensorDataset(inputs[20:], labels[20:]),
    ):
        with pytest.raises(UnsoundConfiguration, match="those of the training set"):
            trainer(public=public).fit(whole)
    # Two parts of one dataset, one of them public, are fine.
    joint = data(140)
    run = trainer(public=Subset(Subset(joint, range(1, 121)), range(80)), steps=1)
    assert run.fit(Subset(joint, [0, *range(81, 140)])).steps == 1
    with pytest.raises(UnsoundConfiguration, match="those of the training set"):
        run.fit(Subset(joint, range(80, 140)))
    x, y = joint.tensors
    run = trainer(public=(x[:80], y[:80]), steps=1)
    assert run.fit(TensorDataset(x[80:], y[80:])).steps == 1


def test_without_a_trainer_there_are_no_subspaces():
    net = model()
    sizes = {name: p.numel() for name, p in net.named_parameters()}
    a_plan = plan(clipping=clip())
    step = PrivateGradient(net, clip(), noise=a_plan.noise(sizes), expected_batch_size=8)
    with pytest.raises(UnsoundConfiguration, match="no subspaces before public examples"):
        step.accumulate_batch(*data(8).tensors, cross_entropy)


def test_exchange_waits_for_the_end_of_a_logical_batch():
    net = model()
    step = PrivateGradient(net, FlatClip(1.0), scales=[1.0], expected_batch_size=8)
    step.accumulate_batch(*data(8).tensors, cross_entropy)
    other = FlatClip(0.1)
    noise = other.noise(*zip(*[(n, p.numel()) for n, p in net.named_parameters()], strict=True), 1)
    with pytest.raises(UnsoundConfiguration, match="within a logical batch"):
        step.exchange(other, noise)
    step.finish()
    step.exchange(other, noise)
    assert step.clipping == other


@pytest.mark.parametrize(
    ("changes", "match"),
    [
        ({"ranks": ()}, "at least one subspace"),
        ({"ranks": (0,)}, "rank"),
        ({"norm": 0.0}, "norm"),
        ({"every": 0}, "every"),
        ({"importance": (1.0, 2.0)}, "one for what they leave, got 2"),
    ],
)
def test_bad_arguments(changes, match):
    with pytest.raises(ValueError, match=match):
        clip(**changes)


def test_plan_round_trips_without_a_basis():
    for clipping in (clip(importance=(3.0, 2.0, 1.0)), RefreshedGEPClip(6, 0.4, 0.3, every=2)):
        a_plan = plan(clipping=clipping)
        assert Plan.from_json(a_plan.to_json()) == a_plan
        assert len(a_plan.to_json()) < 1500


# --- the baseline ----------------------------------------------------------------------------


def gep(net, **changes):
    rows = public_gradients(net, *PUBLIC, cross_entropy)
    settings = {"rank": 6, "embedding_norm": 0.4, "residual_norm": 0.3, "provenance": "public"}
    return GEPClip.from_public(rows, **(settings | changes)), rows


def test_gep_noise_is_the_published_one_at_sensitivity_root_two():
    net = model()
    clipping, _ = gep(net)
    dimension, z = numbers_of(net), 1.3
    noise = clipping.noise(["all"], [dimension], z)
    draws = torch.stack(
        [
            noise.draw(
                [torch.Size([dimension])],
                Draw(SeededForExperiments(seed=seed), 1.0, torch.float64, torch.device("cpu")),
            )[0]
            for seed in range(1500)
        ]
    ).numpy()
    basis = clipping.subspaces.basis
    published = 2 * z**2 * (0.4**2 * basis @ basis.T + 0.3**2 * np.eye(dimension))
    found = draws.T @ draws / len(draws)
    error = np.linalg.norm(found - published) / np.linalg.norm(published)
    assert error < 2.5 * math.sqrt(dimension / len(draws))
    assert np.trace(found) == pytest.approx(np.trace(published), rel=0.03)
    least = clipping.optimal.noise(["all"], [dimension], z)
    variances = [rank * scale**2 for rank, scale in zip((6, 69), least.scales, strict=True)]
    assert clipping.excess == pytest.approx(np.trace(published) / sum(variances), rel=1e-6)
    assert clipping.excess > 1


def test_gep_clips_as_published_and_as_hybrid_clipping():
    net = model()
    clipping, rows = gep(net)
    basis = clipping.subspaces.basis
    embedding = rows @ basis
    residual = rows - embedding @ basis.T
    # Residuals are taken for slightly longer than they are.
    longer = np.hypot(np.linalg.norm(residual, axis=1), 1e-3**0.5 * np.linalg.norm(rows, axis=1))
    embedding *= np.minimum(1.0, 0.4 / np.linalg.norm(embedding, axis=1))[:, None]
    residual *= np.minimum(1.0, 0.3 / longer)[:, None]
    found = clipping.clip_rows(torch.tensor(rows)).numpy()
    assert found == pytest.approx(embedding @ basis.T + residual, abs=1e-6)
    assert torch.equal(
        clipping.clip_rows(torch.tensor(rows)), clipping.optimal.clip_rows(torch.tensor(rows))
    )


def test_gep_directions_by_groups():
    net = model()
    clipping, _ = gep(net, rank=6, sizes=[48, 27])
    basis = clipping.subspaces.basis
    inside = [np.count_nonzero(np.abs(basis[part]).sum(0)) for part in (slice(48), slice(48, None))]
    assert inside == [3, 3]
    assert not basis[:48, 3:].any()
    assert not basis[48:, :3].any()
    unequal, _ = gep(net, rank=5, sizes=[70, 5])
    assert np.count_nonzero(unequal.subspaces.basis[:70].any(0)) == 4
    with pytest.raises(ValueError, match="at least the 2 groups"):
        gep(net, rank=1, sizes=[48, 27])
    with pytest.raises(ValueError, match="sum to the 75"):
        gep(net, sizes=[48, 20])


def test_gep_is_a_strategy_of_its_own(tmp_path):
    net = model()
    clipping, _ = gep(net)
    assert clipping != clipping.optimal
    assert clipping.optimal != clipping
    a_plan = plan(clipping=clipping, steps=2)
    assert Plan.from_json(a_plan.to_json()) == a_plan
    kept = clipping.saved(tmp_path / "subspace.npz")
    assert kept == clipping
    assert "subspace.npz" in json.dumps(kept.to_dict())
    assert "times the noise variance of HybridClip" in str(a_plan)
    assert PrivateTrainer(net, LOSS, a_plan).fit(data()).steps == 2
    spaces = public_subspaces(gep(net)[1], [2, 3], provenance="public")
    with pytest.raises(ValueError, match=r"one and its complement, got ranks \(2, 3, 70\)"):
        GEPClip(spaces, 1.0, 1.0)
