"""Hybrid clipping: parts in public subspaces and their complement, and noise in that basis."""

import json
import math
from dataclasses import replace

import numpy as np
import pytest
import torch
from oracles.gradients import assert_equal, cross_entropy, loop
from torch import nn
from training.runs import data, model, plan

from taut.errors import UnsoundConfiguration
from taut.noise import SeededForExperiments, optimal_gaussian
from taut.noise.geometry import Subspaces, public_subspaces
from taut.training import HybridClip, Plan, PrivateTrainer, public_gradients
from taut.training._noise.basis import Basis
from taut.training.extend import BasisNoise, Clipping, Draw, PrivateGradient

BACKENDS = ["bookkeeping", "materialised"]
RANKS = [3, 5]
BOUNDS = [0.3, 0.1, 0.2]


def public_rows(net):
    x, y = data(200, seed=7).tensors
    return public_gradients(net, x.to(net[0].weight.dtype), y, cross_entropy)


def spaces_of(net, ranks=RANKS):
    return public_subspaces(public_rows(net), ranks, provenance="public")


def sizes_of(net):
    return {name: p.numel() for name, p in net.named_parameters()}


def numbers_of(net):
    return sum(sizes_of(net).values())


def random_subspaces(dimension, ranks, seed=0):
    draw = np.random.default_rng(seed).normal(size=(dimension, sum(ranks)))
    rest = dimension - sum(ranks)
    whole = (*ranks, rest) if rest else tuple(ranks)
    return Subspaces(np.linalg.qr(draw).Q, whole, np.ones(sum(ranks)), "public")


def clipped(row, spaces, bounds):
    """Clip one gradient with the complement written out."""
    whole = np.linalg.qr(spaces.basis, mode="complete").Q
    whole[:, : spaces.basis.shape[1]] = spaces.basis
    result, start = np.zeros_like(row), 0
    for rank, bound in zip(spaces.ranks, bounds, strict=True):
        columns = whole[:, start : start + rank]
        part = columns @ (columns.T @ row)
        length = np.linalg.norm(part)
        if start >= spaces.basis.shape[1]:  # lengths in the complement are taken for larger
            length = math.sqrt(length**2 + 1e-3 * row @ row)
        result += part * min(1.0, bound / length)
        start += rank
    return result


@pytest.mark.parametrize("backend", BACKENDS)
def test_sum_is_that_of_a_loop(backend):
    net = model().double()
    spaces = spaces_of(net)
    clipping = HybridClip(spaces, BOUNDS)
    x, y = data(9).tensors
    rows = loop(net, x.double(), y, cross_entropy)
    flat = torch.cat([g.flatten(1) for g in rows.values()], 1).numpy()
    total = torch.from_numpy(np.sum([clipped(row, spaces, BOUNDS) for row in flat], axis=0))
    pieces = total.split(list(sizes_of(net).values()))
    expected = {
        name: piece.view(g.shape[1:]) for (name, g), piece in zip(rows.items(), pieces, strict=True)
    }
    silent = BasisNoise(Basis(spaces.basis), RANKS, [0.0, 0.0, 0.0])
    step = PrivateGradient(net, clipping, noise=silent, expected_batch_size=1, backend=backend)
    step.accumulate_batch(x[:4].double(), y[:4], cross_entropy)
    step.accumulate_batch(x[4:].double(), y[4:], cross_entropy)
    step.finish()
    assert_equal({name: p.grad for name, p in net.named_parameters()}, expected, 1e-10)


@pytest.mark.parametrize("ranks", [[3, 5], [4], [6, 6]])
def test_clipped_rows_are_in_the_set(ranks):
    spaces = random_subspaces(12, ranks)
    bounds = [0.5, 0.2, 0.4][: len(spaces.ranks)]
    rows = np.random.default_rng(1).normal(size=(50, 12)) * np.geomspace(1e-3, 1e3, 50)[:, None]
    clipping = HybridClip(spaces, bounds)
    table = torch.from_numpy(rows)
    found = clipping.clip_rows(table)
    assert spaces.blocks(bounds).gauges(found.numpy()).max() <= 1 + 1e-9
    torch.testing.assert_close(clipping.restored(clipping.sum_rows(table)), found.sum(0))
    expected = np.stack([clipped(row, spaces, bounds) for row in rows])
    np.testing.assert_allclose(found.numpy(), expected, atol=1e-10)
    short = np.linalg.norm(rows, axis=1) < 0.1  # nothing is clipped
    np.testing.assert_allclose(found.numpy()[short], rows[short], atol=1e-12)


def test_single_precision_stays_within_what_noise_allows_for():
    """Gradients nearly inside of the subspaces, and long: residuals are differences of much."""
    spaces = random_subspaces(4_000, [20, 30])
    draw = np.random.default_rng(2)
    inside = spaces.basis @ draw.normal(size=(50, 40))
    outside = draw.normal(size=(4_000, 40)) * np.geomspace(1e-7, 1.0, 40)
    rows = torch.from_numpy((1e3 * inside + outside).T.astype(np.float32))
    clipping = HybridClip(spaces, [1.0, 0.5, 0.3])
    one_by_one = [clipping.restored(clipping.sum_rows(row[None])) for row in rows]
    released = torch.stack(one_by_one).double().numpy()
    assert spaces.blocks([1.0, 0.5, 0.3]).gauges(released).max() <= 1 + 1e-4


def test_too_long_to_be_squared_contributes_nothing():
    clipping = HybridClip(random_subspaces(12, [3]), [1.0, 1.0])
    rows = torch.full((1, 12), 1e30)
    assert not clipping.restored(clipping.sum_rows(rows)).any()
    assert not clipping.clip_rows(rows).any()


class Unit:
    """Hands out the numbers of a unit vector in the place of normal ones."""

    def __init__(self, place):
        self.place = place

    def standard_normal(self, size):
        numbers = np.zeros(size)
        if 0 <= self.place < size:
            numbers[self.place] = 1.0
        self.place -= size
        return numbers


def drawn(noise, source, dtype):
    shapes = [torch.Size([4]), torch.Size([2, 3])]
    pieces = noise.draw(shapes, Draw(source, 1.0, dtype, torch.device("cpu")))
    assert [piece.shape for piece in pieces] == shapes
    return torch.cat([piece.flatten().double() for piece in pieces]).numpy()


# Blocks with more noise than the complement, and with less: each is drawn in its own way.
@pytest.mark.parametrize("bounds", [[0.8, 0.5, 0.1], [0.02, 0.5, 1.0], [0.3, 0.4]])
def test_drawn_noise_has_the_least_covariance(bounds):
    spaces = random_subspaces(10, [2, 3] if len(bounds) == 3 else [4, 6])
    noise = HybridClip(spaces, bounds).noise(["a", "b"], [4, 6], 1.5)
    # What is drawn is linear in normal numbers, so that unit vectors show its covariance.
    numbers = 10 + spaces.basis.shape[1]
    linear = np.stack([drawn(noise, Unit(i), torch.float64) for i in range(numbers)], axis=1)
    least = optimal_gaussian(spaces.blocks(bounds), multiplier=1.5)
    np.testing.assert_allclose(linear @ linear.T, least.covariance(), atol=1e-12)
    total = (1.5 * sum(c * math.sqrt(r) for c, r in zip(bounds, spaces.ranks, strict=True))) ** 2
    assert np.trace(linear @ linear.T) == pytest.approx(total, rel=1e-9)
    source, draws = SeededForExperiments(5), 1_000
    values = np.stack([drawn(noise, source, torch.float32) for _ in range(draws)])
    lengths = np.square(values).sum(axis=1)
    assert lengths.mean() == pytest.approx(total, abs=5 * lengths.std() / math.sqrt(draws))


@pytest.mark.parametrize("importance", [None, [9.0, 4.0, 1.0]])
def test_noise_is_as_strong_as_the_plan_says(importance):
    net = model()
    clipping = HybridClip(spaces_of(net), BOUNDS, importance=importance)
    noise = plan(clipping=clipping, noise_multiplier=1.7).noise(sizes_of(net))
    longest = math.hypot(*(c / s for c, s in zip(BOUNDS, noise.scales, strict=True)))
    assert longest <= 1 / 1.7
    assert longest == pytest.approx(1 / 1.7, rel=1e-9)


def test_paper_ratio_without_the_complement():
    """5.5 in Xiao, Wan and Devadas (2023), section 6; 5.533768213697495 in closed form."""
    spaces = random_subspaces(2_000, [7])
    noise = HybridClip(spaces, [2.5, 1.0]).noise(["a"], [2_000], 1.0)
    a, b = noise.scales
    closed = (2.5 * math.sqrt(7) + math.sqrt(1993)) ** 2
    assert 7 * a**2 + 1993 * b**2 == pytest.approx(closed, rel=1e-9)
    assert 291_898 * 7.25 / (2.5 * math.sqrt(1_000) + math.sqrt(290_898)) ** 2 == pytest.approx(
        5.533768213697495
    )


def test_bounds_from_public_gradients():
    net = model()
    rows = public_rows(net)
    clipping = HybridClip.from_public(rows, RANKS, 0.5, provenance="public")
    held = rows[1::2].astype(np.float64)  # the others found the subspaces
    parts = clipping.subspaces.blocks(clipping.bounds).parts(held)
    means = np.array([np.linalg.norm(part, axis=1).mean() for part in parts])
    np.testing.assert_allclose(clipping.bounds, 0.5 * means / np.linalg.norm(means), rtol=1e-3)


def test_public_gradients_are_those_of_a_loop():
    net = model()
    net[0].bias.requires_grad_(False)
    x, y = data(6).tensors
    rows = loop(net, x, y, cross_entropy)
    expected = torch.cat([g.flatten(1) for g in rows.values()], 1)
    torch.testing.assert_close(
        torch.from_numpy(public_gradients(net, x, y, cross_entropy)), expected
    )


@pytest.mark.parametrize("backend", BACKENDS)
def test_training_run(backend, tmp_path):
    net = model()
    clipping = HybridClip.from_public(public_rows(net), RANKS, 0.5, provenance="public")
    a_plan = plan(clipping=clipping, steps=3)
    before = [p.clone() for p in net.parameters()]
    trainer = PrivateTrainer(
        net, nn.CrossEntropyLoss(), a_plan, backend=backend,
        generator=SeededForExperiments(1), run_dir=tmp_path / "run",
    )  # fmt: skip
    assert trainer.fit(data()).steps == 3
    for old, new in zip(before, net.parameters(), strict=True):
        assert new.isfinite().all()
        assert not torch.equal(old, new)
    again = PrivateTrainer.resume(
        tmp_path / "run", model(), nn.CrossEntropyLoss(), backend=backend,
        generator=SeededForExperiments(1),
    )  # fmt: skip
    assert again.fit(data()).steps == 3
    assert again.plan == a_plan


def test_round_trip_with_the_subspaces_inside():
    net = model()
    clipping = HybridClip(spaces_of(net), BOUNDS, importance=[2.0, 1.0, 1.0])
    a_plan = plan(clipping=clipping)
    again = Plan.from_json(a_plan.to_json())
    assert again == a_plan
    assert hash(again.clipping) == hash(clipping)
    assert again.noise(sizes_of(net)).scales == a_plan.noise(sizes_of(net)).scales
    other = HybridClip(random_subspaces(numbers_of(net), RANKS), BOUNDS, importance=[2.0, 1.0, 1.0])
    assert other != clipping


def test_round_trip_with_the_subspaces_in_a_file(tmp_path):
    spaces = random_subspaces(3_000, [50])
    clipping = HybridClip(spaces, [1.0, 1.0])
    with pytest.raises(ValueError, match=r"too large for JSON.*saved"):
        clipping.to_dict()
    kept = clipping.saved(tmp_path / "spaces.npz")
    assert kept == clipping
    text = json.dumps(kept.to_dict())
    assert len(text) < 1_000
    assert Clipping.from_dict(json.loads(text)) == clipping
    HybridClip(random_subspaces(3_000, [50], seed=1), [1.0, 1.0]).saved(tmp_path / "spaces.npz")
    with pytest.raises(UnsoundConfiguration, match="are not those that were written"):
        Clipping.from_dict(json.loads(text))
    with pytest.raises(ValueError, match="must be a file that"):
        HybridClip(tmp_path / "none.npz", [1.0, 1.0])


def test_refuses_what_is_no_basis():
    good = random_subspaces(12, [3, 2])
    for basis in (
        good.basis * 1.001,
        np.concatenate([good.basis[:, :4], good.basis[:, :1]], axis=1),  # of rank four
        good.basis + 1e-3,
        np.full_like(good.basis, np.nan),
    ):
        with pytest.raises(ValueError, match="orthonormal basis"):
            HybridClip(replace(good, basis=basis), [1.0, 1.0, 1.0])
    with pytest.raises(ValueError, match="ranks must sum"):
        HybridClip(replace(good, ranks=(3, 2)), [1.0, 1.0])
    with pytest.raises(ValueError, match="numerical rank"):
        public_subspaces(np.ones((30, 12)), [2], provenance="public")
    with pytest.raises(UnsoundConfiguration, match="provenance"):
        HybridClip.from_public(np.eye(12), [2], 1.0, provenance="private")
    with pytest.raises(ValueError, match="subspaces must be Subspaces"):
        HybridClip(np.eye(3), [1.0])


def test_refuses_what_does_not_fit():
    good = random_subspaces(12, [3, 2])
    with pytest.raises(ValueError, match="one number for each of 3 blocks"):
        HybridClip(good, [1.0, 1.0])
    with pytest.raises(ValueError, match="bounds must be finite and greater than 0"):
        HybridClip(good, [1.0, 1.0, 0.0])
    with pytest.raises(ValueError, match="importance must hold"):
        HybridClip(good, [1.0, 1.0, 1.0], importance=[1.0])
    clipping = HybridClip(good, [1.0, 1.0, 1.0])
    with pytest.raises(ValueError, match="12; make them from gradients of this model"):
        plan(clipping=clipping).noise(sizes_of(model()))
    with pytest.raises(ValueError, match="noise is for 12 trainable parameters"):
        PrivateGradient(
            model(), clipping, noise=clipping.noise(["a"], [12], 1.0), expected_batch_size=1
        )
    with pytest.raises(UnsoundConfiguration, match="noise in a basis"):
        plan(clipping=clipping).noise_scales({"a": 12})
    apart = HybridClip(good, [1e-9, 1.0, 1.0], importance=[1e20, 1.0, 1.0])
    with pytest.raises(UnsoundConfiguration, match="too far apart"):
        apart.noise(["a"], [12], 1.0)


@pytest.mark.parametrize("count", [1, 15])
def test_too_few_public_gradients_are_refused(count):
    rows = np.random.default_rng(0).normal(size=(count, 40))
    with pytest.raises(ValueError, match="give at least 18 public examples"):
        HybridClip.from_public(rows, [9], 1.0, provenance="public")
