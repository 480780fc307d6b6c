"""Clippings: what they leave of gradients, what set that is, and how much noise hides it."""

import json
import math

import numpy as np
import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from oracles.gradients import assert_equal, cross_entropy, loop
from torch import nn
from training.runs import FEATURES, data, model, plan, private_loop, sgd

from taut.errors import UnsoundConfiguration
from taut.noise import SeededForExperiments
from taut.noise._sets.projections import project_l2_box
from taut.training import FlatClip, GroupClip, L2LInfClip, NormalisedClip, Plan, PrivateTrainer
from taut.training._gradients.layers.records import OuterProduct
from taut.training.extend import Clipping, IndependentNoise, PrivateGradient

BACKENDS = ["bookkeeping", "materialised"]
PATTERNS = {"0.weight": "body", "0.bias": "body", "*": "head"}
BY_NORMS = [
    NormalisedClip(0.7),
    GroupClip(0.4),
    GroupClip(bounds=[0.1, 0.3], importance=[1.0, 4.0]),
    GroupClip(bounds={"head": 0.3, "body": 0.1}, groups=PATTERNS),
    GroupClip(bounds={"2": 0.3, "0": 0.1}, importance={"0": 2.0, "2": 1.0}),
]
BY_ENTRIES = [L2LInfClip(0.4, 0.05), L2LInfClip(0.4, 0.05, exact=True)]
ALL = [FlatClip(0.5), *BY_NORMS, *BY_ENTRIES]


def sizes_of(net):
    return {name: p.numel() for name, p in net.named_parameters()}


def examples(batch=9):
    x, y = data(batch).tensors
    return x.double(), y


def grads_of(net):
    return {name: p.grad.clone() for name, p in net.named_parameters()}


def summed(net, clipping, x, y, backend="auto"):
    """Return the clipped sum that the engine sets without noise."""
    zero = [0.0] * (max(clipping.groups(list(sizes_of(net)))) + 1)
    step = PrivateGradient(net, clipping, scales=zero, expected_batch_size=1, backend=backend)
    step.accumulate_batch(x[:4], y[:4], cross_entropy)
    step.accumulate_batch(x[4:], y[4:], cross_entropy)
    step.finish()
    return grads_of(net)


def one_by_one(rows, clip, groups):
    """Clip a group of parameters of one example after the other."""
    result = {name: torch.zeros_like(g[0]) for name, g in rows.items()}
    for i in range(len(next(iter(rows.values())))):
        for label, members in groups.items():
            flat = torch.cat([rows[name][i].flatten() for name in members])
            pieces = clip(label, flat).split([rows[name][i].numel() for name in members])
            for name, piece in zip(members, pieces, strict=True):
                result[name] += piece.view_as(result[name])
    return result


def shortened(flat, bound):
    return flat * min(1.0, bound / float(flat.norm()))


@pytest.mark.parametrize("backend", BACKENDS)
@pytest.mark.parametrize("clipping", BY_NORMS, ids=repr)
def test_sum_is_that_of_a_loop(clipping, backend):
    net, (x, y) = model().double(), examples()
    rows = loop(net, x, y, cross_entropy)
    layers = {"0": ["0.weight", "0.bias"], "2": ["2.weight", "2.bias"]}
    if isinstance(clipping, NormalisedClip):
        whole = {"": list(rows)}
        expected = one_by_one(rows, lambda _, g: g * 0.7 / (float(g.norm()) + 0.01), whole)
    else:
        even = 0.4 / math.sqrt(2)
        bounds = {"0": even, "2": even} if clipping.norm else {"0": 0.1, "2": 0.3}
        expected = one_by_one(rows, lambda layer, g: shortened(g, bounds[layer]), layers)
    assert_equal(summed(net, clipping, x, y, backend), expected, 1e-10)


@pytest.mark.parametrize("exact", [False, True])
def test_entries_are_cut_as_in_a_loop(exact):
    net, (x, y) = model().double(), examples()
    rows = loop(net, x, y, cross_entropy)

    def clip(_, flat):
        if not exact:
            return shortened(flat, 0.4).clamp(-0.05, 0.05)
        row = project_l2_box(flat.numpy()[None], 0.05, 0.4)[0]
        return torch.from_numpy(row)

    expected = one_by_one(rows, clip, {"": list(rows)})
    assert_equal(summed(net, L2LInfClip(0.4, 0.05, exact=exact), x, y), expected, 1e-9)


@settings(max_examples=40)
@given(
    rows=st.lists(
        st.lists(st.floats(-50, 50, width=32), min_size=6, max_size=6), min_size=1, max_size=4
    ),
    norm=st.floats(0.01, 20),
    bound=st.floats(0.01, 20),
)
def test_exact_cut_is_the_projection(rows, norm, bound):
    table = np.array(rows)
    found = L2LInfClip(norm, bound, exact=True).clip_rows(torch.from_numpy(table)).numpy()
    expected = project_l2_box(table, bound, norm)
    np.testing.assert_allclose(found, expected, rtol=1e-7, atol=1e-7 * norm)
    assert (np.linalg.norm(found, axis=1) <= norm * (1 + 1e-9)).all()


def whitened(clipping, net, noise):
    """Return the largest length after division by the scales that are drawn with."""
    names, sizes = list(sizes_of(net)), list(sizes_of(net).values())
    if isinstance(clipping, GroupClip):
        bounds = clipping.sensitivity(names, sizes).l2
    else:
        bounds = [clipping.sensitivity(names, sizes).max_l2]
    return math.hypot(*(c / s for c, s in zip(bounds, noise.scales, strict=True)))


@pytest.mark.parametrize("clipping", ALL, ids=repr)
def test_noise_is_as_strong_as_the_plan_says(clipping):
    a_plan, net = plan(clipping=clipping, noise_multiplier=1.7), model()
    noise = a_plan.noise(sizes_of(net))
    assert whitened(clipping, net, noise) <= 1 / 1.7
    assert whitened(clipping, net, noise) == pytest.approx(1 / 1.7, rel=1e-9)


def test_least_total_noise_of_groups():
    net = model()
    numbers = [FEATURES * 8 + 8, 8 * 3 + 3]
    clipping = GroupClip(bounds=[0.1, 0.3])
    noise = clipping.noise(list(sizes_of(net)), list(sizes_of(net).values()), 2.0)
    total = sum(n * s**2 for n, s in zip(numbers, noise.scales, strict=True))
    reach = 0.1 * math.sqrt(numbers[0]) + 0.3 * math.sqrt(numbers[1])
    assert total == pytest.approx(4 * reach**2, rel=1e-9)
    assert total < 4 * sum(numbers) * (0.1**2 + 0.3**2)


def test_paper_ratio_of_two_groups():
    """5.5 in Xiao, Wan and Devadas (2023), section 6; 5.533768213697495 in closed form."""
    sizes = {"a.weight": 1_000, "b.weight": 290_898}
    (a, b) = GroupClip(bounds=[2.5, 1.0]).shares(sizes)
    flat = 291_898 * (2.5**2 + 1)
    assert flat / (1_000 * a.scale**2 + 290_898 * b.scale**2) == pytest.approx(
        5.533768213697495, rel=1e-9
    )
    # The total falls, and yet the noise on the leading block rises from 7.25 to 48.9.
    assert a.scale**2 == pytest.approx(48.9, abs=0.05)
    assert b.scale**2 == pytest.approx(1.15, abs=0.01)


def test_importance_moves_noise_away_at_the_same_privacy():
    sizes = {"a.weight": 100, "b.weight": 10_000}
    plain = GroupClip(1.0).shares(sizes)
    moved = GroupClip(1.0, importance={"a": 25.0, "b": 1.0}).shares(sizes)
    assert moved[0].scale < plain[0].scale
    assert moved[1].scale > plain[1].scale
    for shares in (plain, moved):
        assert sum((s.bound / s.scale) ** 2 for s in shares) == pytest.approx(1, rel=1e-9)
    # sigma_m^2 = C_m A / sqrt(w_m K_m)
    assert (moved[1].scale / moved[0].scale) ** 2 == pytest.approx(math.sqrt(2500 / 10_000))
    assert (plain[1].scale / plain[0].scale) ** 2 == pytest.approx(math.sqrt(100 / 10_000))
    assert plain[0].signal_to_noise == pytest.approx(plain[0].bound / plain[0].scale / 10)


def test_drawn_noise_has_the_variances_of_the_groups():
    net = nn.Sequential(nn.Linear(60, 50), nn.Linear(50, 2))
    a_plan = plan(clipping=GroupClip(bounds=[0.2, 1.0]), noise_multiplier=1.5)
    noise = a_plan.noise(sizes_of(net))
    step = PrivateGradient(
        net, a_plan.clipping, noise=noise, expected_batch_size=2,
        generator=SeededForExperiments(3), self_check=False,
    )  # fmt: skip
    drawn = [[], []]
    for _ in range(20):
        step.finish()
        for layer, values in zip(net, drawn, strict=True):
            values += [p.grad.flatten().double() for p in layer.parameters()]
    for values, scale in zip(drawn, noise.scales, strict=True):
        squares = torch.cat(values).square()
        error = 5 * math.sqrt(2 / len(squares))  # five standard errors of a variance
        assert float(squares.mean()) == pytest.approx((scale / 2) ** 2, rel=error + 3e-4)


@pytest.mark.parametrize("clipping", ALL, ids=repr)
def test_round_trip(clipping):
    a_plan = plan(clipping=clipping)
    again = Plan.from_json(a_plan.to_json())
    assert again == a_plan
    assert again.clipping == clipping
    assert hash(again.clipping) == hash(clipping)
    text = json.dumps(clipping.to_dict())
    assert Clipping.from_dict(json.loads(text)) == clipping


@pytest.mark.parametrize("clipping", ALL, ids=repr)
def test_training_run(clipping):
    net, a_plan = model(), plan(clipping=clipping, steps=3)
    before = [p.clone() for p in net.parameters()]
    trainer = PrivateTrainer(net, nn.CrossEntropyLoss(), a_plan, generator=SeededForExperiments(1))
    assert trainer.fit(data()).steps == 3
    for old, new in zip(before, net.parameters(), strict=True):
        assert new.isfinite().all()
        assert not torch.equal(old, new)


@pytest.mark.parametrize("clipping", [GroupClip(0.5), L2LInfClip(0.5, 0.1)], ids=repr)
def test_loop_of_a_user(clipping):
    net = model()
    before = [p.clone() for p in net.parameters()]
    private = private_loop(net, sgd(net), data(), steps=3, clipping=clipping, max_grad_norm=None)
    assert private.ledger.steps == 3
    for old, new in zip(before, net.parameters(), strict=True):
        assert not torch.equal(old, new)


@pytest.mark.parametrize(
    ("make", "message"),
    [
        (lambda: GroupClip(), "either norm or bounds"),
        (lambda: GroupClip(1.0, bounds=[1.0]), "either norm or bounds"),
        (lambda: GroupClip(0.0), "norm"),
        (lambda: GroupClip(bounds=[1.0, -1.0]), "bounds must be finite and greater than 0"),
        (lambda: GroupClip(bounds=[]), "bounds must hold"),
        (lambda: GroupClip(bounds=1.0), "bounds must be numbers"),
        (lambda: GroupClip(1.0, groups="blocks"), "groups must be 'layers'"),
        (lambda: GroupClip(1.0, groups={}), "groups must be 'layers'"),
        (lambda: GroupClip(1.0, groups=len), "groups must be 'layers'"),
        (lambda: NormalisedClip(1.0, stability=0.0), "stability"),
        (lambda: L2LInfClip(1.0, math.inf), "entry_bound"),
        (lambda: L2LInfClip(1.0, 0.1, exact=1), "exact"),
    ],
)
def test_refuses_what_bounds_nothing(make, message):
    with pytest.raises(ValueError, match=message):
        make()


@pytest.mark.parametrize(
    ("clipping", "message"),
    [
        (GroupClip(bounds=[0.1, 0.2, 0.3]), "for each of 2 groups, got 3"),
        (GroupClip(1.0, importance=[1.0]), "importance must hold one number for each of 2"),
        (GroupClip(bounds={"0": 0.1}), "got none for '2', the group of '2.weight'"),
        (GroupClip(bounds={"0": 0.1, "2": 0.1, "7": 1.0}), "got '7'"),
        (GroupClip(1.0, groups={"0.*": "body"}), "got none for '2.weight'"),
        (GroupClip(1.0, groups={"0.*": "body", "*": "head", "x": "tail"}), "got 'tail'"),
        (GroupClip(bounds={"body": 1.0}, groups=PATTERNS), "bounds must name each group once"),
        (GroupClip(1.0, importance={"0": 1.0, "1": 1.0}), "importance must name each group once"),
    ],
)
def test_refuses_groups_that_the_model_has_not(clipping, message):
    with pytest.raises(ValueError, match=message):
        plan(clipping=clipping).noise(sizes_of(model()))


def test_refuses_noise_of_another_model():
    net = model()
    with pytest.raises(ValueError, match="one number for each of 2 groups, got 1"):
        PrivateGradient(net, GroupClip(1.0), scales=[1.0], expected_batch_size=1)
    with pytest.raises(ValueError, match="either scales or noise"):
        PrivateGradient(net, FlatClip(1.0), expected_batch_size=1)
    noise = IndependentNoise((1.0,), (0, 0, 0))
    with pytest.raises(UnsoundConfiguration, match="ask the plan for the noise of this model"):
        PrivateGradient(net, FlatClip(1.0), noise=noise, expected_batch_size=1)


# --- extreme numbers -----------------------------------------------------------------------------


@pytest.fixture(params=[False, True], ids=["gradual", "flushed"])
def denormals(request):
    """Run with and without numbers below the least normal one: both are in use."""
    torch.set_flush_denormal(request.param)
    yield
    torch.set_flush_denormal(False)


def clipped_length(clipping, inputs, slope, backend="bookkeeping"):
    """Return how long the gradient of one example of a linear layer is once clipped."""
    net = nn.Linear(inputs.shape[-1], 3, bias=False)
    step = PrivateGradient(
        net, clipping, scales=[0.0], expected_batch_size=1, backend=backend, self_check=False
    )
    step.accumulate_batch(inputs, None, lambda out, _: slope * out.flatten(1).sum(1))
    step.finish()
    return float(net.weight.grad.double().norm())


@pytest.mark.usefixtures("denormals")
@pytest.mark.parametrize("positions", [1, 2, 40])
@pytest.mark.parametrize("norm", [1e-6, 1e-3, 1.0])
def test_huge_inputs_do_not_hide_how_long_gradients_are(norm, positions):
    # Squares of slopes vanish here, whatever they are multiplied with.
    for size in (1e10, 1e15, 1e18):
        inputs = torch.full((1, positions, 4), size) if positions > 1 else torch.full((1, 4), size)
        for slope in (1e-18, 1e-19, 1e-20, 1e-22, 1e-23):
            for clipping in (FlatClip(norm), NormalisedClip(norm, 1e-4)):
                assert clipped_length(clipping, inputs, slope) <= norm * (1 + 1e-4)


@pytest.mark.usefixtures("denormals")
@pytest.mark.parametrize("backend", BACKENDS)
@pytest.mark.parametrize(
    ("clipping", "norm"),
    [
        (FlatClip(1e-17), 1e-17),
        (NormalisedClip(1.0, 1e-28), 1.0),
        (L2LInfClip(1e-17, 9e-18), 1e-17),
        (L2LInfClip(1e-17, 9e-18, exact=True), 1e-17),
    ],
)
def test_squares_that_vanish_are_counted(clipping, norm, backend):
    for slope in (1e-15, 1e-18, 1e-20, 1e-22, 1e-23):
        assert clipped_length(clipping, torch.ones(1, 200), slope, backend) <= norm * (1 + 1e-4)


@pytest.mark.parametrize("positions", [1, 3])
def test_examples_without_a_gradient_have_no_length(positions):
    left = torch.zeros(2, positions, 3)
    left[0] = 1.0
    record = OuterProduct(torch.empty(3, 4), left, torch.full((2, positions, 4), 1e15))
    assert float(record.squared_norms()[1]) == 0.0
    net = nn.Sequential(nn.Linear(4, 4), nn.ReLU(), nn.Linear(4, 1))
    nn.init.constant_(net[0].bias, -100.0)  # nothing gets through, so that nothing comes back
    step = PrivateGradient(net, FlatClip(1.0), scales=[0.0], expected_batch_size=1)
    step.accumulate_batch(torch.rand(6, 4), None, lambda out, _: out[:, 0])


def test_ordinary_gradients_are_clipped_as_exactly_as_ever():
    inputs = torch.full((1, 4), 100.0)
    assert clipped_length(FlatClip(1.0), inputs, 10.0) == pytest.approx(1.0, rel=1e-6)
    assert clipped_length(FlatClip(1e6), inputs, 1e-9) == pytest.approx(2e-7 * 3**0.5, rel=1e-6)
