"""Random models of all kinds of layers, by both back ends, against one example at a time."""

import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from oracles.gradients import assert_as_loop, cross_entropy
from torch import nn

ACTIVATIONS = (nn.ReLU, nn.Tanh, nn.GELU, nn.PReLU, nn.Identity)


class Recurrent(nn.Module):
    def __init__(self, kind, width, **options):
        super().__init__()
        self.layer = kind(width, width, batch_first=True, **options)

    def forward(self, x):
        y = self.layer(x)[0]
        return x + y[..., : x.shape[-1]] + y[..., -x.shape[-1] :]


class Residual(nn.Module):
    def __init__(self, inner):
        super().__init__()
        self.inner = inner

    def forward(self, x):
        return x + self.inner(x)


class Twice(nn.Module):
    def __init__(self, inner):
        super().__init__()
        self.inner = inner

    def forward(self, x):
        return self.inner(self.inner(x).tanh())


class Mean(nn.Module):
    def forward(self, x):
        return x.mean(1)


@st.composite
def image_models(draw):
    channels, size, layers = draw(st.sampled_from([1, 3])), draw(st.integers(7, 11)), []
    shape = (channels, size, size)
    for _ in range(draw(st.integers(1, 3))):
        groups = draw(st.sampled_from([1, 1, 2])) if channels % 2 == 0 else 1
        out = 2 * draw(st.integers(1, 4))
        kernel, stride = draw(st.integers(1, 3)), draw(st.integers(1, 2))
        mode = draw(st.sampled_from(["zeros", "reflect", "circular"]))
        layers.append(
            nn.Conv2d(
                channels, out, kernel, stride, draw(st.integers(0, 1)), groups=groups,
                bias=draw(st.booleans()), padding_mode=mode,
            )
        )  # fmt: skip
        size, channels = nn.Sequential(*layers)(torch.zeros(1, *shape)).shape[-1], out
        norm = draw(st.sampled_from(["none", "group", "instance"]))
        if norm == "group":
            layers.append(nn.GroupNorm(2, out))
        elif norm == "instance" and size > 1:
            layers.append(nn.InstanceNorm2d(out, affine=True))
        layers.append(draw(st.sampled_from(ACTIVATIONS))())
        if size < 4:
            break
    layers += [nn.Flatten(), nn.Linear(channels * size * size, 3)]
    return nn.Sequential(*layers), shape, None


@st.composite
def sequence_models(draw):
    width, length, words = 2 * draw(st.integers(1, 4)), draw(st.integers(1, 6)), 7
    embedding = nn.Embedding(words, width, padding_idx=draw(st.sampled_from([None, 2])))
    blocks = {
        "linear": lambda: nn.Linear(width, width),
        "norm": lambda: nn.LayerNorm(width),
        "rms": lambda: nn.RMSNorm(width),
        "transformer": lambda: nn.TransformerEncoderLayer(width, 2, 5, 0.0, batch_first=True),
        "lstm": lambda: Recurrent(nn.LSTM, width, bidirectional=draw(st.booleans())),
        "gru": lambda: Recurrent(nn.GRU, width, num_layers=draw(st.integers(1, 2))),
        "rnn": lambda: Recurrent(nn.RNN, width),
        "twice": lambda: Twice(nn.Linear(width, width)),
        "residual": lambda: Residual(nn.Sequential(nn.Linear(width, 3), nn.Linear(3, width))),
    }
    kinds = draw(st.lists(st.sampled_from(sorted(blocks)), max_size=3))
    layers = [embedding]
    for kind in kinds:
        layers += [blocks[kind](), draw(st.sampled_from(ACTIVATIONS))()]
    return nn.Sequential(*layers, Mean(), nn.Linear(width, 3)), (length,), words


@st.composite
def cases(draw):
    torch.manual_seed(draw(st.integers(0, 999)))
    model, shape, words = draw(st.one_of(image_models(), sequence_models()))
    batch = draw(st.integers(1, 6))
    x = torch.randn(batch, *shape) if words is None else torch.randint(0, words, (batch, *shape))
    return model, x, torch.randint(0, 3, (batch,))


def frozen_somewhere(model, draw_index):
    parameters = list(model.parameters())
    if len(parameters) > 2:
        parameters[draw_index % (len(parameters) - 1)].requires_grad_(False)


@settings(max_examples=30)
@given(case=cases(), index=st.integers(0, 20), freeze=st.booleans())
def test_random_model_is_that_of_a_loop(case, index, freeze):
    model, x, y = case
    model = model.double()
    if freeze:
        frozen_somewhere(model, index)
    x = x if x.dtype == torch.long else x.double()
    for backend in ("bookkeeping", "materialised"):
        assert_as_loop(model, x, y, cross_entropy, backend=backend, tolerance=1e-8)


@pytest.mark.slow
@settings(max_examples=300)
@given(case=cases(), index=st.integers(0, 20), freeze=st.booleans())
def test_many_random_models_are_those_of_a_loop(case, index, freeze):
    test_random_model_is_that_of_a_loop.hypothesis.inner_test(case, index, freeze)
