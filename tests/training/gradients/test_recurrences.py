"""Recurrences as one node of the graph, against the layers of torch."""

import pytest
import torch
from torch import nn

from taut.training._gradients.layers import recurrent
from taut.training._gradients.layers.records import without_tap
from taut.training._gradients.layers.rewrites import rewrite_for

LAYERS = {
    "lstm": lambda **more: nn.LSTM(6, 5, **more),
    "gru": lambda **more: nn.GRU(6, 5, **more),
    "rnn": lambda **more: nn.RNN(6, 5, **more),
    "rnn with relu": lambda **more: nn.RNN(6, 5, nonlinearity="relu", **more),
}


class Tap:
    """Keeps the records that gradients turn into."""

    def __init__(self):
        self.records = []

    def __call__(self, value, records, *inputs):
        del inputs
        if value.requires_grad:
            value.register_hook(lambda grads: self.records.extend(records(grads)))
        return value


def _states(layer, batch, bits):
    shape = 2 if layer.bidirectional else 1, batch, 5
    parts = [torch.randn(shape, dtype=torch.float64, generator=bits) for _ in range(2)]
    return [part.requires_grad_() for part in parts[: 2 if isinstance(layer, nn.LSTM) else 1]]


def _called(forward, inputs, states):
    given = tuple(states) if len(states) > 1 else states[0]
    output, end = forward(inputs, given)
    return [output, *(end if isinstance(end, tuple) else [end])]


@pytest.mark.parametrize("both_ways", [False, True])
@pytest.mark.parametrize("bias", [True, False])
@pytest.mark.parametrize("kind", LAYERS)
def test_outputs_and_gradients_are_those_of_the_layer(kind, bias, both_ways):
    bits = torch.Generator().manual_seed(1)
    layer = LAYERS[kind](bias=bias, bidirectional=both_ways, batch_first=True).double()
    inputs = torch.randn(3, 7, 6, dtype=torch.float64, generator=bits).requires_grad_()
    states = _states(layer, 3, bits)
    wanted = _called(layer, inputs, states)
    seeds = [torch.randn(value.shape, dtype=torch.float64, generator=bits) for value in wanted]
    weights = list(layer.parameters())
    by_torch = torch.autograd.grad(wanted, [inputs, *states, *weights], seeds)

    tap = Tap()
    layer.requires_grad_(False)
    rewrite = rewrite_for(layer)
    found = _called(lambda x, h: rewrite(layer, tap, x, h), inputs, states)
    for one, other in zip(found, wanted, strict=True):
        assert torch.allclose(one, other, rtol=1e-12, atol=1e-12)
    layer.requires_grad_(True)
    ours = torch.autograd.grad(found, [inputs, *states], seeds)
    sums = {record.parameter: record.rows().sum(0) for record in tap.records}
    ours += tuple(sums[weight].view(weight.shape) for weight in weights)
    for one, other in zip(ours, by_torch, strict=True):
        assert torch.allclose(one, other, rtol=1e-10, atol=1e-12)


@pytest.mark.parametrize("kind", LAYERS)
def test_steps_are_one_node_where_nothing_else_is_asked_for(kind, monkeypatch):
    pieces = []
    inside = recurrent._in_one_piece
    monkeypatch.setattr(
        recurrent, "_in_one_piece", lambda *a, **k: (pieces.append(1), inside(*a, **k))[1]
    )
    layer, inputs = LAYERS[kind](), torch.randn(4, 2, 6)
    rewrite = rewrite_for(layer)
    rewrite(layer, Tap(), inputs)
    assert pieces == [1]
    rewrite(layer, without_tap, inputs)  # as torch.vmap goes through it
    with torch.autocast("cpu", dtype=torch.bfloat16):
        rewrite(layer, Tap(), inputs)
    rewrite(layer, Tap(), inputs[:1])
    assert pieces == [1]


@pytest.mark.parametrize("kind", LAYERS)
def test_a_second_backward_pass_finds_the_same(kind):
    layer = LAYERS[kind](batch_first=True).requires_grad_(False)
    inputs = torch.randn(3, 5, 6, requires_grad=True)
    output = rewrite_for(layer)(layer, Tap(), inputs)[0]
    first, second = (
        torch.autograd.grad(output.square().sum(), inputs, retain_graph=True)[0] for _ in range(2)
    )
    assert torch.equal(first, second)


def test_outputs_may_be_changed_in_place():
    layer = nn.LSTM(6, 5, batch_first=True).requires_grad_(False)
    inputs = torch.randn(3, 5, 6, requires_grad=True)
    tap = Tap()
    output = rewrite_for(layer)(layer, tap, inputs)[0]
    plain = torch.autograd.grad(output.relu().sum(), inputs, retain_graph=True)[0]
    changed = torch.autograd.grad(output.relu_().sum(), inputs)[0]
    assert torch.equal(plain, changed)
