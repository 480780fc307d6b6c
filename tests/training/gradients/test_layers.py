"""Every layer, by both back ends, against one example at a time."""

import pytest
import torch
from oracles.gradients import assert_as_loop, assert_equal, loop, squares
from torch import nn

from taut.training import FlatClip
from taut.training.extend import PrivateGradient

BATCH = 5


class Only(nn.Module):
    """Calls one layer and returns what it returns."""

    def __init__(self, layer, call=None):
        super().__init__()
        self.before = nn.Linear(6, 6)
        self.layer = layer
        self.call = call

    def forward(self, x):
        return self.call(self, x) if self.call else self.layer(self.before(x))


class LoRA(nn.Module):
    def __init__(self):
        super().__init__()
        self.base = nn.Linear(6, 4).requires_grad_(False)
        self.down, self.up = nn.Linear(6, 2, bias=False), nn.Linear(2, 4, bias=False)

    def forward(self, x):
        return self.base(x) + self.up(self.down(x))


class Tied(nn.Module):
    """A token model whose last layer is its first one's matrix."""

    def __init__(self, padding_idx=None):
        super().__init__()
        self.embedding = nn.Embedding(11, 6, padding_idx=padding_idx)
        self.middle = nn.Linear(6, 6)
        self.last = nn.Linear(6, 11)
        self.last.weight = self.embedding.weight

    def forward(self, tokens):
        return self.last(self.middle(self.embedding(tokens)).tanh())


class Scale(nn.Module):
    """A layer without a rule: two outputs, a keyword, something that is no tensor."""

    def __init__(self):
        super().__init__()
        self.gain = nn.Parameter(torch.randn(6))
        self.shift = nn.Parameter(torch.randn(6))

    def forward(self, x, *, power, label="none"):
        del label
        return {"a": x.pow(power) * self.gain, "b": (x.sum(-1), self.shift + x)}


class TwoInputs(nn.Module):
    def __init__(self):
        super().__init__()
        self.layer = nn.Bilinear(6, 6, 3)
        self.other = nn.Linear(6, 6)

    def forward(self, x, *, y):
        return self.layer(self.other(input=x), y)


class Cells(nn.Module):
    def __init__(self, cell):
        super().__init__()
        self.cell = cell

    def forward(self, x):
        state = None
        for t in range(x.shape[1]):
            state = self.cell(x[:, t], state)
        return state


def attention(layer, **options):
    def call(model, x):
        y = model.before(x)
        turned = y if layer.batch_first else y.transpose(0, 1)
        out, weights = layer(turned, turned, turned, **options)
        out = out if layer.batch_first else out.transpose(0, 1)
        return out if weights is None else (out, weights)

    return Only(layer, call)


def cross_attention(layer, **options):
    def call(model, x):
        y = model.before(x)
        key = y[:, :3, : layer.kdim]
        value = y[:, :3, : layer.vdim] if layer.vdim != layer.kdim else key
        return layer(y, key, value, **options)[0]

    return Only(layer, call)


def time_first(layer):
    def call(model, x):
        return layer(model.before(x).transpose(0, 1))[0].transpose(0, 1)

    return Only(layer, call)


def with_state(layer):
    def call(model, x):
        y = model.before(x)
        start = y.mean(1)[None, :, :4].contiguous()
        out, (hidden, cell) = layer(y, (start, start.tanh()))
        return out, hidden.transpose(0, 1), cell.transpose(0, 1)

    return Only(layer, call)


def image(channels=4, size=7, dims=2):
    return lambda: torch.randn(BATCH, channels, *[size] * dims)


def sequence(length=4):
    return lambda: torch.randn(BATCH, length, 6)


def vectors():
    return torch.randn(BATCH, 6)


def tokens():
    return torch.randint(0, 11, (BATCH, 7))


MASK = torch.triu(torch.ones(4, 4, dtype=torch.bool), 1)

CASES = {
    "linear": (lambda: nn.Linear(6, 3), vectors),
    "linear without bias": (lambda: nn.Linear(6, 3, bias=False), vectors),
    "linear on sequences": (lambda: nn.Linear(6, 3), sequence(9)),
    "linear on grids": (lambda: nn.Linear(6, 3), lambda: torch.randn(BATCH, 2, 3, 6)),
    "wide linear on sequences": (lambda: nn.Linear(6, 300), sequence(3)),
    "embedding": (lambda: nn.Embedding(11, 4), tokens),
    "embedding of one token": (lambda: nn.Embedding(11, 4), lambda: torch.arange(BATCH)),
    "embedding with padding": (
        lambda: nn.Sequential(nn.Embedding(11, 4, padding_idx=3), nn.Linear(4, 2)), tokens),
    "conv1d": (lambda: nn.Conv1d(4, 6, 3, stride=2, dilation=2, padding=1), image(4, 11, 1)),
    "conv2d": (lambda: nn.Conv2d(4, 6, 3, stride=2, padding=1), image()),
    "conv2d grouped": (lambda: nn.Conv2d(4, 8, (3, 2), groups=2, dilation=(1, 2)), image()),
    "conv2d depthwise": (lambda: nn.Conv2d(4, 4, 3, groups=4, bias=False), image()),
    "conv2d same": (lambda: nn.Conv2d(4, 3, 3, dilation=2, padding="same"), image()),
    "conv2d valid": (lambda: nn.Conv2d(4, 3, 4, padding="valid"), image()),
    "conv2d reflect": (
        lambda: nn.Conv2d(4, 3, 3, padding=2, padding_mode="reflect", stride=2), image()),
    "conv2d circular": (lambda: nn.Conv2d(4, 3, 3, padding=1, padding_mode="circular"), image()),
    "conv2d of a point": (lambda: nn.Conv2d(4, 3, 1, stride=2), image()),
    "conv2d of a padded point": (lambda: nn.Conv2d(4, 3, 1, padding=1), image()),
    "wide conv2d": (
        lambda: nn.Conv2d(16, 40, 3, stride=2, padding=1, dilation=2), image(16, 6)),
    "wide conv2d of few places": (
        lambda: nn.Conv2d(16, 40, (3, 2), stride=(2, 1), padding=(1, 2), dilation=2), image(16, 6)),
    "wide conv1d": (lambda: nn.Conv1d(16, 40, 5, padding=2, bias=False), image(16, 5, 1)),
    "wide conv3d": (lambda: nn.Conv3d(8, 40, 2, stride=(1, 2, 2)), image(8, 3, 3)),
    "conv3d": (lambda: nn.Conv3d(2, 3, 2, stride=(1, 2, 1), padding=1), image(2, 4, 3)),
    "conv transposed": (lambda: nn.ConvTranspose2d(4, 3, 3, stride=2, output_padding=1), image()),
    "conv1d transposed": (
        lambda: nn.ConvTranspose1d(4, 6, 4, stride=3, padding=2, dilation=2, groups=2),
        image(4, 5, 1)),
    "conv2d transposed, larger": (
        lambda: nn.ConvTranspose2d(
            4, 6, 2, stride=(1, 2), padding=1, output_padding=(2, 1), dilation=3, bias=False),
        image()),
    "conv2d transposed to a size": (
        lambda: Only(nn.ConvTranspose2d(4, 3, 3, stride=2),
                     lambda m, x: m.layer(x, output_size=(16, 15))), image()),
    "conv3d transposed": (lambda: nn.ConvTranspose3d(2, 3, 2, stride=(1, 2, 1)), image(2, 3, 3)),
    "wide conv transposed": (lambda: nn.ConvTranspose2d(40, 16, 3, padding=1), image(40, 2)),
    "layer norm": (lambda: nn.LayerNorm(6), sequence()),
    "layer norm of vectors": (lambda: nn.LayerNorm(6), vectors),
    "layer norm over two": (lambda: nn.LayerNorm((4, 6)), sequence()),
    "layer norm without bias": (lambda: nn.LayerNorm(6, bias=False), sequence()),
    "group norm": (lambda: nn.Sequential(nn.Conv2d(4, 6, 3), nn.GroupNorm(3, 6)), image()),
    "group norm first": (lambda: nn.GroupNorm(2, 4), image()),
    "instance norm": (lambda: nn.InstanceNorm2d(4, affine=True), image()),
    "instance norm 1d": (lambda: nn.InstanceNorm1d(4, affine=True), image(4, 7, 1)),
    "rms norm": (lambda: nn.RMSNorm(6), sequence()),
    "prelu": (lambda: nn.Sequential(nn.Conv2d(4, 3, 3), nn.PReLU(3)), image()),
    "prelu of one": (lambda: nn.PReLU(), vectors),
    "attention": (lambda: attention(nn.MultiheadAttention(6, 2, batch_first=True)), sequence()),
    "attention, length first": (lambda: attention(nn.MultiheadAttention(6, 2)), sequence()),
    "attention alone": (
        lambda: attention(nn.MultiheadAttention(6, 2, batch_first=True), need_weights=False),
        sequence()),
    "attention, all heads": (
        lambda: attention(nn.MultiheadAttention(6, 3), average_attn_weights=False), sequence()),
    "attention, causal": (
        lambda: attention(
            nn.MultiheadAttention(6, 2, batch_first=True), need_weights=False, attn_mask=MASK,
            is_causal=True),
        sequence()),
    "attention, masked": (
        lambda: attention(nn.MultiheadAttention(6, 2, bias=False), attn_mask=MASK), sequence()),
    "attention, one more key": (
        lambda: attention(
            nn.MultiheadAttention(6, 2, add_bias_kv=True, add_zero_attn=True), attn_mask=MASK),
        sequence()),
    "attention with padding": (
        lambda: Only(nn.MultiheadAttention(6, 2, batch_first=True),
                     lambda m, x: m.layer(*[m.before(x)] * 3, key_padding_mask=x[..., 0] > 1.0)[0]),
        sequence()),
    "attention across": (
        lambda: cross_attention(nn.MultiheadAttention(6, 2, batch_first=True)), sequence()),
    "attention of other widths": (
        lambda: cross_attention(nn.MultiheadAttention(6, 2, batch_first=True, kdim=5, vdim=3)),
        sequence()),
    "transformer layer": (
        lambda: nn.TransformerEncoderLayer(6, 2, 8, 0.0, batch_first=True), sequence()),
    "transformer decoder": (
        lambda: Only(nn.TransformerDecoderLayer(6, 2, 8, 0.0, batch_first=True),
                     lambda m, x: m.layer(x, m.before(x))), sequence()),
    "lstm": (lambda: Only(nn.LSTM(6, 4, batch_first=True), lambda m, x: m.layer(m.before(x))[0]),
             sequence()),
    "lstm, deep both ways": (
        lambda: Only(nn.LSTM(6, 4, 2, bidirectional=True, batch_first=True),
                     lambda m, x: m.layer(m.before(x))[0]), sequence()),
    "lstm, time first": (lambda: time_first(nn.LSTM(6, 4, 2)), sequence()),
    "lstm, projected": (lambda: time_first(nn.LSTM(6, 4, proj_size=3, bidirectional=True)),
                        sequence()),
    "lstm with a state": (lambda: with_state(nn.LSTM(6, 4, batch_first=True, bias=False)),
                          sequence()),
    "gru": (lambda: time_first(nn.GRU(6, 4)), sequence()),
    "gru, deep both ways": (lambda: time_first(nn.GRU(6, 4, 2, bidirectional=True)), sequence()),
    "rnn": (lambda: time_first(nn.RNN(6, 4, 2)), sequence()),
    "rnn with relu": (lambda: time_first(nn.RNN(6, 4, nonlinearity="relu")), sequence()),
    "lstm cell": (lambda: Cells(nn.LSTMCell(6, 4)), sequence()),
    "gru cell": (lambda: Cells(nn.GRUCell(6, 4)), sequence()),
    "rnn cell": (lambda: Cells(nn.RNNCell(6, 4)), sequence()),
    "shared layer": (
        lambda: Only(nn.Linear(6, 6), lambda m, x: m.layer(m.layer(x).tanh())), sequence()),
    "shared vector layer": (
        lambda: Only(nn.Linear(6, 6), lambda m, x: m.layer(m.layer(x).tanh())), vectors),
    "shared convolution": (
        lambda: Only(nn.Conv2d(4, 4, 3, padding=1), lambda m, x: m.layer(m.layer(x).tanh())),
        image()),
    "shared norm": (
        lambda: Only(nn.GroupNorm(2, 4), lambda m, x: m.layer(m.layer(x).tanh() + x)), image()),
    "tied": (Tied, tokens),
    "tied with padding": (lambda: Tied(padding_idx=3), tokens),
    "lora": (LoRA, vectors),
    "lora on sequences": (LoRA, sequence()),
    "no rule": (lambda: Only(Scale(), lambda m, x: m.layer(m.before(x), power=2, label="x")),
                vectors),
    "two inputs": (TwoInputs, lambda: {"x": torch.randn(BATCH, 6), "y": torch.randn(BATCH, 6)}),
}  # fmt: skip


def made(name, dtype):
    torch.manual_seed(7)
    build, draw = CASES[name]
    model, inputs = build().to(dtype), draw()
    if name.startswith("shared") or name.endswith("to a size"):
        model.before.requires_grad_(False)
    cast = torch.utils._pytree.tree_map(
        lambda x: x.to(dtype) if x.is_floating_point() else x, inputs
    )
    return model, cast


pytestmark = pytest.mark.filterwarnings("ignore:LSTM with projections is not supported with oneDNN")


@pytest.mark.parametrize("name", CASES)
@pytest.mark.parametrize("backend", ["bookkeeping", "materialised"])
def test_layer_is_that_of_a_loop(name, backend):
    model, inputs = made(name, torch.float64)
    assert_as_loop(model, inputs, backend=backend, tolerance=1e-9)


@pytest.mark.parametrize("name", CASES)
def test_layer_in_single_precision(name):
    model, inputs = made(name, torch.float32)
    assert_as_loop(model, inputs, backend="bookkeeping", tolerance=1e-5)


@pytest.mark.parametrize("name", ["conv2d", "conv2d grouped", "wide conv2d", "linear on sequences"])
def test_gradients_that_are_not_written_out(name, monkeypatch):
    monkeypatch.setattr("taut.training._gradients.layers.convolution.MOST_ROW_BYTES", 0)
    monkeypatch.setattr("taut.training._gradients.layers.records.MOST_ROW_BYTES", 0)
    model, inputs = made(name, torch.float64)
    assert_as_loop(model, inputs, tolerance=1e-9)
    halves = PrivateGradient(model, FlatClip(1e9), scales=[0.0], expected_batch_size=1)
    for part in (inputs[:2], inputs[2:]):
        halves.accumulate_batch(part, None, squares)
    halves.finish()
    expected = {n: g.sum(0) for n, g in loop(model, inputs).items()}
    assert_equal({n: p.grad for n, p in model.named_parameters()}, expected, 1e-9)
