"""One step: what is summed, what is left out, what noise is added, and what stays untouched."""

import copy
import math
import pickle

import numpy as np
import pytest
import torch
from oracles.gradients import (
    assert_as_loop,
    assert_equal,
    clipped_sum,
    cross_entropy,
    loop,
    median_norm,
    private,
    squares,
)
from scipy import stats
from torch import nn

from taut.noise import SeededForExperiments
from taut.training import FlatClip
from taut.training._gradients.layers.records import OuterProduct
from taut.training.extend import Draw, IndependentNoise, PrivateGradient, RowClipping

BACKENDS = ["bookkeeping", "materialised"]


def net(dtype=torch.float32, *, inplace=False):
    torch.manual_seed(3)
    return nn.Sequential(
        nn.Conv2d(1, 4, 3), nn.GroupNorm(2, 4), nn.ReLU(inplace=inplace),
        nn.Conv2d(4, 6, 3, stride=2), nn.ReLU(inplace=inplace), nn.Flatten(), nn.Linear(24, 3),
    ).to(dtype)  # fmt: skip


def data(batch=6, dtype=torch.float32):
    generator = torch.Generator().manual_seed(5)
    x = torch.randn(batch, 1, 7, 7, generator=generator, dtype=torch.float64).to(dtype)
    return x, torch.randint(0, 3, (batch,), generator=generator)


def engine(model, norm=1.0, scale=0.0, expected=4.0, **options):
    return PrivateGradient(
        model, FlatClip(norm), scales=[scale], expected_batch_size=expected, **options
    )


def grads(model):
    return {name: p.grad.clone() for name, p in model.named_parameters()}


@pytest.mark.parametrize("backend", BACKENDS)
def test_without_clipping_and_noise_it_is_plain_sgd(backend):
    model, (x, y) = net(), data()
    plain = copy.deepcopy(model)
    for one, step in ((plain, None), (model, engine(model, math.inf, 0.0, 6.0, backend=backend))):
        optimizer = torch.optim.SGD(one.parameters(), lr=0.5)
        for _ in range(3):
            optimizer.zero_grad()
            if step is None:
                cross_entropy(one(x), y).mean().backward()
            else:
                step.accumulate_batch(x, y, cross_entropy)
                step.finish()
            optimizer.step()
    for mine, expected in zip(model.parameters(), plain.parameters(), strict=True):
        torch.testing.assert_close(mine, expected, rtol=1e-5, atol=1e-6)


@pytest.mark.parametrize("backend", BACKENDS)
def test_physical_batches_add_up(backend):
    model, (x, y) = net(torch.float64), data(7, torch.float64)
    whole = private(model, x, y, cross_entropy, norm=1.0, backend=backend)
    parts = engine(model, 1.0, 0.0, 1.0, backend=backend)
    losses = [
        parts.accumulate_batch(x[part], y[part], cross_entropy)
        for part in (slice(0, 3), slice(3, 3), slice(3, 4), slice(4, 7))
    ]
    parts.finish()
    assert_equal(grads(model), whole, 1e-12)
    torch.testing.assert_close(torch.cat(losses).double(), cross_entropy(model(x), y).detach())


def test_closure_and_batch_are_the_same():
    model, (x, y) = net(torch.float64), data(6, torch.float64)
    whole = private(model, x, y, cross_entropy, norm=1.0)
    step = engine(model, 1.0, 0.0, 1.0)
    step.accumulate(lambda: cross_entropy(model(x), y))
    step.finish()
    assert_equal(grads(model), whole, 1e-12)


def test_own_forward_and_backward():
    model, (x, y) = net(torch.float64), data(6, torch.float64)
    whole = private(model, x, y, cross_entropy, norm=1.0)
    for inside in (False, True):
        step = engine(model, 1.0, 0.0, 1.0)
        with step.tape.recording():
            outputs = model(x)
            if inside:
                cross_entropy(outputs, y).sum().backward()
        if not inside:
            cross_entropy(outputs, y).sum().backward()
        step.absorb(6)
        step.finish()
        assert_equal(grads(model), whole, 1e-12)


def test_backward_in_two_parts():
    model, (x, y) = net(torch.float64), data(6, torch.float64)
    whole = private(model, x, y, cross_entropy, norm=1.0)
    step = engine(model, 1.0, 0.0, 1.0)
    with step.tape.recording():
        losses = cross_entropy(model(x), y)
    losses[:2].sum().backward(retain_graph=True)
    losses[2:].sum().backward()
    step.absorb(6)
    step.finish()
    assert_equal(grads(model), whole, 1e-12)


@pytest.mark.parametrize("backend", BACKENDS)
def test_empty_batch_is_noise_alone(backend):
    model, (x, y) = net(), data(0)
    step = engine(model, 1.0, 2.0, 4.0, backend=backend)
    assert step.accumulate_batch(x, y, cross_entropy).shape == (0,)
    step.finish()
    values = torch.cat([p.grad.flatten() for p in model.parameters()])
    assert 0.3 < float(values.std()) < 0.7
    step = engine(model, 1.0, 0.0)
    if backend == "bookkeeping":
        step.accumulate(lambda: cross_entropy(model(x), y))
        step.absorb(0)
    step.finish()
    assert all(float(p.grad.abs().max()) == 0.0 for p in model.parameters())


@pytest.mark.parametrize("value", [math.nan, math.inf, 1e30])
@pytest.mark.parametrize("backend", BACKENDS)
def test_example_that_is_not_finite_contributes_zero(value, backend):
    model, (x, y) = net(), data()
    good = private(model, x[1:], y[1:], cross_entropy, norm=1.0)
    x = x.clone()
    x[0, 0, 2, 2] = value
    step = engine(model, 1.0, 0.0, 1.0, backend=backend, self_check=False)
    step.accumulate_batch(x, y, cross_entropy)
    if math.isfinite(value):
        step.finish()
        assert all(p.grad.isfinite().all() for p in model.parameters())
        return
    assert step.dropped == 1
    step.finish()
    assert step.dropped == 0
    assert_equal(grads(model), good, 1e-5)


def test_every_kind_of_record_drops_examples():
    class All(nn.Module):
        def __init__(self):
            super().__init__()
            self.embedding = nn.Embedding(9, 6)
            self.attention = nn.MultiheadAttention(6, 2, batch_first=True)
            self.convolution = nn.Conv1d(6, 6, 3, padding=1)
            self.last = nn.Linear(6, 9)
            self.last.weight = self.embedding.weight

        def forward(self, tokens, scale):
            x = self.embedding(tokens) * scale[:, None, None]
            x = x + self.attention(x, x + 1, x)[0]
            x = self.convolution(self.convolution(x.transpose(1, 2))).transpose(1, 2)
            return self.last(x)

    model = All()
    tokens, scale = torch.randint(0, 9, (5, 4)), torch.ones(5)
    good = private(model, (tokens[1:], scale[1:]), norm=1.0)
    scale[0] = math.inf
    assert_equal(private(model, (tokens, scale), norm=1.0, self_check=False), good, 1e-5)


def test_inplace_activations_work():
    model, (x, y) = net(inplace=True), data()
    expected = private(net(), x, y, cross_entropy, norm=1.0)
    assert_equal(private(model, x, y, cross_entropy, norm=1.0), expected, 1e-6)


def test_frozen_parameters_are_left_alone():
    model, (x, y) = net(torch.float64), data(6, torch.float64)
    model[0].requires_grad_(False)
    model[1].weight.requires_grad_(False)
    model[3].bias.requires_grad_(False)
    model[6].weight.requires_grad_(False)
    for backend in BACKENDS:
        assert_as_loop(model, x, y, cross_entropy, backend=backend, tolerance=1e-10)
    assert model[0].weight.grad is None


def test_bfloat16_by_autocast_has_norms_and_sums_in_float32():
    model, (x, y) = net(), data()
    with torch.autocast("cpu", torch.bfloat16):
        found = private(model, x, y, cross_entropy, norm=1.0)
        expected = clipped_sum(loop(model, x, y, cross_entropy), 1.0)
    assert all(g.dtype == torch.float32 for g in found.values())
    assert_equal(found, expected, 0.01)


@pytest.mark.parametrize("backend", BACKENDS)
def test_sums_under_autocast_are_not_rounded(backend):
    model = nn.Linear(1, 1, bias=False)
    x = torch.tensor([[1.0]] + [[2.0**-9]] * 64)
    with torch.autocast("cpu", torch.bfloat16):
        found = private(model, x, None, lambda out, _: out[:, 0].float(), norm=math.inf,
                        backend=backend)  # fmt: skip
    assert float(found["weight"]) == 1.125


def test_model_in_bfloat16():
    model, (x, y) = net(torch.bfloat16), data(6, torch.bfloat16)
    found = private(model, x, y, cross_entropy, norm=1.0)
    assert all(g.dtype == torch.bfloat16 for g in found.values())
    expected = private(net(), x.float(), y, cross_entropy, norm=1.0)
    assert_equal({name: g.float() for name, g in found.items()}, expected, 0.05)


def test_model_is_untouched_outside_of_a_recording():
    model, (x, y) = net(), data()
    before = model.eval()(x)
    step = engine(model)
    step.accumulate_batch(x, y, cross_entropy)
    step.finish()
    for module in model.modules():
        assert not module._forward_hooks
        assert not module._forward_pre_hooks
        assert "forward" not in vars(module)
    assert all(p.requires_grad for p in model.parameters())
    for again in (copy.deepcopy(model), pickle.loads(pickle.dumps(model))):
        with torch.inference_mode():
            torch.testing.assert_close(again(x), before)


def test_no_grad_inside_of_a_recording_leaves_nothing():
    model, (x, _) = net(), data()
    step = engine(model)
    with step.tape.recording(), torch.no_grad():
        model(x)
    assert step.tape.records(6) == {}


def test_exception_in_forward_restores_the_model():
    model, (x, _) = net(), data()
    step = engine(model)
    with pytest.raises(RuntimeError):
        step.accumulate(lambda: cross_entropy(model(x[:, 0, 0]), None))
    assert all(p.requires_grad for p in model.parameters())
    assert not any(module._forward_hooks for module in model.modules())


def test_dropout_draws_as_it_does_without_a_tape():
    torch.manual_seed(0)
    layers = [
        nn.TransformerEncoderLayer(6, 2, 8, 0.3, batch_first=True).double(),
        nn.LSTM(6, 6, 3, dropout=0.4, batch_first=True, bidirectional=True).double(),
    ]
    x = torch.randn(4, 5, 6, dtype=torch.float64)
    for layer in layers:
        torch.manual_seed(1)
        plain = layer(x)
        step = engine(layer)
        torch.manual_seed(1)
        with step.tape.recording():
            recorded = layer(x)
        for one, other in zip(
            torch.utils._pytree.tree_leaves(recorded),
            torch.utils._pytree.tree_leaves(plain),
            strict=True,
        ):
            torch.testing.assert_close(one, other)


def test_transformer_layer_in_eval_mode_is_recorded_too():
    model = nn.TransformerEncoderLayer(6, 2, 8, batch_first=True).double().eval()
    assert_as_loop(model, torch.randn(4, 5, 6, dtype=torch.float64), tolerance=1e-10)


class Boxed(RowClipping):
    """Cuts every coordinate off, and keeps what it was given."""

    def groups(self, names):
        return [i % 2 for i, _ in enumerate(names)]

    def clip_rows(self, rows):
        return rows.clamp(-0.01, 0.01)

    def sensitivity(self, names, sizes):
        raise NotImplementedError


@pytest.mark.parametrize("backend", BACKENDS)
def test_clipping_by_coordinates(backend):
    model, (x, y) = net(torch.float64), data(6, torch.float64)
    rows = loop(model, x, y, cross_entropy)
    x[5] = math.nan
    step = PrivateGradient(
        model, Boxed(), scales=[0.0, 0.0], expected_batch_size=2, backend=backend, self_check=False
    )
    step.accumulate_batch(x, y, cross_entropy)
    assert step.dropped == 1
    step.finish()
    expected = {name: g[:5].clamp(-0.01, 0.01).sum(0) / 2 for name, g in rows.items()}
    assert_equal(grads(model), expected, 1e-10)


def noise_of(steps, scale=3.0, expected=2.0, dtype=torch.float32):
    model = nn.Linear(100, 50).to(dtype)
    step = engine(model, 1.0, scale, expected, generator=SeededForExperiments(11), self_check=False)
    drawn = []
    for _ in range(steps):
        step.finish()
        drawn.append(torch.cat([p.grad.flatten() for p in model.parameters()]).double().numpy())
    return np.stack(drawn)


@pytest.mark.parametrize("dtype", [torch.float32, torch.float64])
def test_noise_is_normal_with_its_scale(dtype):
    values = noise_of(8, dtype=dtype).ravel() / 1.5
    assert stats.kstest(values, "norm").pvalue > 1e-3
    assert abs(values.var() - 1) < 5 * math.sqrt(2 / values.size) + 3e-4


@pytest.mark.parametrize("dtype", [torch.float32, torch.float64])
def test_noise_of_a_tiny_scale_is_not_lost(dtype):
    values = noise_of(2, scale=1e-14, expected=1000.0, dtype=dtype).ravel() / 1e-17
    assert abs(values.var() - 1) < 5 * math.sqrt(2 / values.size) + 3e-4
    # Below that, what scales a gradient of 1e18 down to the norm would be lost before the noise.
    with pytest.raises(ValueError, match="is lost in"):
        noise_of(1, scale=1e-26 if dtype == torch.float32 else 1e-320, dtype=dtype)


def test_norms_of_contributions_that_cancel_are_not_negative(monkeypatch):
    record = OuterProduct(torch.empty(1, 6), torch.ones(8, 2, 1), torch.ones(8, 2, 6))
    monkeypatch.setattr(record, "_inner", lambda _: torch.full((8, 2, 2), -1.0))
    assert bool((record.squared_norms() == record.doubt()).all())


def test_doubt_grows_with_the_width():
    def relative(width):
        ones = torch.ones(1, 2, 1)
        record = OuterProduct(torch.empty(1, width), ones, ones.expand(1, 2, width))
        return float(record.doubt()) / width

    assert relative(2**16) == pytest.approx(8 * relative(2**10))


def test_noise_is_independent_across_steps_and_coordinates():
    values = noise_of(6)
    bound = 5 / math.sqrt(values.shape[1])
    correlation = np.corrcoef(values)
    assert np.abs(correlation - np.eye(6)).max() < bound
    assert abs(np.corrcoef(values[0, 1:], values[0, :-1])[0, 1]) < bound
    assert np.unique(values).size > 0.99 * values.size


def test_clipped_lengths_are_bounded():
    model, (x, y) = net(), data()
    norm = 0.5 * median_norm(loop(model, x, y, cross_entropy))
    for i in range(6):
        found = private(model, x[i : i + 1], y[i : i + 1], cross_entropy, norm=norm)
        length = torch.stack([g.norm() for g in found.values()]).norm()
        assert float(length) <= norm * (1 + 1e-4)


@pytest.mark.parametrize(
    "build",
    [
        lambda: nn.TransformerEncoderLayer(6, 2, 8, 0.3, batch_first=True),
        lambda: nn.LSTM(6, 6, 2, dropout=0.4),
        lambda: nn.MultiheadAttention(6, 2, dropout=0.3),
    ],
)
def test_rewritten_layers_take_empty_batches_and_pass_the_check_with_dropout(build):
    class Steps(nn.Module):
        def __init__(self):
            super().__init__()
            self.layer = build()

        def forward(self, x):
            if isinstance(self.layer, nn.TransformerEncoderLayer):
                return self.layer(x)
            y = x.transpose(0, 1)
            given = (y,) if isinstance(self.layer, nn.LSTM) else (y, y, y)
            return self.layer(*given)[0].transpose(0, 1)

    model = Steps()
    step = engine(model)
    step.accumulate_batch(torch.randn(4, 5, 6), None, squares)
    step.accumulate(lambda: squares(model(torch.randn(0, 5, 6)), None))


@pytest.mark.slow
@pytest.mark.filterwarnings("ignore")
def test_compiled_gradients_are_the_same():
    model, (x, y) = net(torch.float64), data(6, torch.float64)
    expected = private(model, x, y, cross_entropy, norm=1.0)
    options = {"backend": "materialised", "compile": True}
    assert_equal(private(model, x, y, cross_entropy, norm=1.0, **options), expected, 1e-10)


def test_few_sizes_are_compiled(monkeypatch):
    sizes = []

    def compiled(function, **_):
        def called(parameters, tensors):
            sizes.append(len(tensors[0]))
            return function(parameters, tensors)

        return called

    monkeypatch.setattr(torch, "compile", compiled)
    model, (x, y) = net(torch.float64), data(40, torch.float64)
    step = engine(model, math.inf, expected=1.0, backend="materialised", compile=True)
    for size in range(33, 41):
        assert len(step.accumulate_batch(x[:size], y[:size], cross_entropy)) == size
        step.finish()
        expected = torch.autograd.grad(
            cross_entropy(model(x[:size]), y[:size]).sum(), list(model.parameters())
        )
        for parameter, grad in zip(model.parameters(), expected, strict=True):
            torch.testing.assert_close(parameter.grad, grad)
    assert set(sizes) == {40}


def test_noise_that_vanishes_is_not_taken_for_no_noise():
    how = Draw(SeededForExperiments(seed=0), 1e-200, torch.float64, torch.device("cpu"))
    with pytest.raises(ValueError, match="is lost in"):
        IndependentNoise((1e-200,), (0,)).draw([torch.Size([3])], how)
