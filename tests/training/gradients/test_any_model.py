"""Models as people write them: both ways to train must have the clipped sum of a plain loop."""

import copy

import pytest
import torch
from torch import nn
from torch.nn import functional
from torch.nn.utils import parametrizations, rnn
from torch.utils.checkpoint import checkpoint

from taut.errors import UnsoundConfiguration
from taut.training import FlatClip, check_model
from taut.training._gradients.apart.example_calls import ExampleCalls
from taut.training._gradients.suitable import train_mode
from taut.training._step.recorded_passes import RecordedPasses
from taut.training._tensors.examples import apply, examples_of
from taut.training.extend import PrivateGradient

N, WORDS, TIME, WIDTH = 7, 20, 5, 6


class Model(nn.Module):
    """Some layers, parameters of its own, and a forward pass that is given."""

    def __init__(self, forward, parameters=None, **layers):
        super().__init__()
        for name, layer in layers.items():
            setattr(self, name, layer)
        for name, shape in (parameters or {}).items():
            setattr(self, name, nn.Parameter(torch.randn(shape) * 0.3))
        self._forward = forward

    def forward(self, *inputs):
        return self._forward(self, *inputs)


def linear(width=WIDTH, out=WIDTH):
    return nn.Linear(width, out)


def words():
    return nn.Embedding(WORDS, WIDTH)


def tokens():
    return torch.randint(0, WORDS, (N, TIME))


def vectors(*shape):
    return torch.randn(N, *(shape or (WIDTH,)))


def sent_by_sign(m, x):
    out = torch.zeros_like(x)
    for expert, chosen in ((m.a, x[:, 0] > 0), (m.b, x[:, 0] <= 0)):
        out[chosen] = expert(x[chosen])
    return m.last(out)


def packed(m, x, lengths):
    given = rnn.pack_padded_sequence(m.e(x), lengths, batch_first=True, enforce_sorted=False)
    return m.last(m.r(given)[1][-1])


def class_token(m, x):
    x = torch.cat([m.token.expand(len(x), -1, -1), m.a(x)], 1) + m.places
    return m.last(torch.tanh(x))[:, 0]


def twins(m, x, y):
    a, b = m.a(torch.cat([x, y])).chunk(2)
    return (a * b).sum(1, keepdim=True)


def checkpointed(m, x, reentrant=False):
    return m.last(checkpoint(lambda h: torch.tanh(m.a(h)), x, use_reentrant=reentrant))


def bag(m, x):
    return m.last(m.e(x.reshape(-1), torch.arange(0, x.numel(), TIME)))


MODELS = {
    "positions": lambda: (
        Model(
            lambda m, x: m.last(m.e(x) + m.p(torch.arange(TIME))),
            e=words(),
            p=words(),
            last=linear(),
        ),
        (tokens(),),
    ),
    "positions in a row": lambda: (
        Model(
            lambda m, x: m.last(m.n(m.e(x) + m.p(torch.arange(TIME)[None]))),
            e=words(),
            p=words(),
            n=nn.LayerNorm(WIDTH),
            last=linear(),
        ),
        (tokens(),),
    ),
    "class token": lambda: (
        Model(
            class_token,
            {"token": (1, 1, WIDTH), "places": (1, TIME + 1, WIDTH)},
            a=linear(),
            last=linear(),
        ),
        (vectors(TIME, WIDTH),),
    ),
    "gates": lambda: (
        Model(
            lambda m, x: m.last(x + m.g[0] * m.a(x) * m.s),
            {"g": (2,), "s": (1,)},
            a=linear(),
            last=linear(),
        ),
        (vectors(),),
    ),
    "weight as a function": lambda: (
        Model(lambda m, x: functional.linear(torch.tanh(m.e(x)), m.e.weight), e=words()),
        (tokens(),),
    ),
    "time first": lambda: (
        Model(
            lambda m, x: m.last(torch.tanh(m.a(x.transpose(0, 1)))).transpose(0, 1),
            a=linear(),
            last=linear(),
        ),
        (vectors(TIME, WIDTH),),
    ),
    "time as examples": lambda: (
        Model(
            lambda m, x: m.last(
                torch.relu(m.a(x.reshape(-1, WIDTH))).view(len(x), -1, WIDTH).mean(1)
            ),
            a=linear(),
            last=linear(),
        ),
        (vectors(TIME, WIDTH),),
    ),
    "twins as one batch": lambda: (Model(twins, a=linear()), (vectors(), vectors())),
    "experts": lambda: (Model(sent_by_sign, a=linear(), b=linear(), last=linear()), (vectors(),)),
    "packed sequence": lambda: (
        Model(packed, e=words(), r=nn.GRU(WIDTH, WIDTH, batch_first=True), last=linear()),
        (tokens(), torch.randint(1, TIME + 1, (N,))),
    ),
    "bag with offsets": lambda: (
        Model(bag, e=nn.EmbeddingBag(WORDS, WIDTH, mode="sum"), last=linear()),
        (tokens(),),
    ),
    "weight norm": lambda: (
        nn.Sequential(parametrizations.weight_norm(linear()), nn.Tanh(), linear()),
        (vectors(),),
    ),
    "checkpoint": lambda: (Model(checkpointed, a=linear(), last=linear()), (vectors(),)),
    "in place after a layer of one's own": lambda: (
        nn.Sequential(
            linear(), Model(lambda m, x: x * m.w, {"w": (WIDTH,)}), nn.ReLU(inplace=True), linear()
        ),
        (vectors(),),
    ),
    "frozen statistics": lambda: (
        nn.Sequential(linear(), nn.BatchNorm1d(WIDTH).eval(), linear()),
        (vectors(),),
    ),
}
RECORDED = {"positions", "positions in a row", "class token", "in place after a layer of one's own",
            "frozen statistics"}  # fmt: skip


def squares(outputs, _):
    return outputs.flatten(1).square().sum(1)


def by_loop(model, inputs, norm):
    """Return the sum of clipped gradients by plain autograd, example by example."""
    parameters = [p for p in model.parameters() if p.requires_grad]
    total = [torch.zeros_like(p) for p in parameters]
    for i in range(N):
        outputs = apply(model, examples_of(inputs, slice(i, i + 1)))
        grads = torch.autograd.grad(squares(outputs, None).sum(), parameters, allow_unused=True,
                                    materialize_grads=True)  # fmt: skip
        length = torch.stack([g.norm() for g in grads]).norm()
        for sum_, grad in zip(total, grads, strict=True):
            sum_ += grad * min(1.0, norm / float(length))
    return total


def engine(model, norm=2.0, **options):
    return PrivateGradient(model, FlatClip(norm), scales=[0.0], expected_batch_size=1.0, **options)


def recorded(model, norm=2.0):
    """Return passes of a loop whose loss is known to be a mean over examples."""
    return RecordedPasses(engine(model, norm, unchecked_isolation=True), is_mean=True)


def assert_same(model, expected):
    for parameter, sum_ in zip(
        (p for p in model.parameters() if p.requires_grad), expected, strict=True
    ):
        torch.testing.assert_close(parameter.grad, sum_, rtol=2e-4, atol=1e-5)


@pytest.mark.parametrize("name", MODELS)
def test_trainer_has_the_sum_of_a_loop(name):
    torch.manual_seed(1)
    model, inputs = MODELS[name]()
    expected = by_loop(model, inputs, 2.0)
    private = engine(model)
    for _ in range(2):
        private.accumulate_batch(inputs, None, squares)
        private.finish()
        assert_same(model, expected)
    assert private.backend == ("bookkeeping" if name in RECORDED else "materialised")


@pytest.mark.parametrize("name", MODELS)
def test_loop_of_ones_own_has_the_sum_of_a_loop(name):
    torch.manual_seed(1)
    model, inputs = MODELS[name]()
    expected = by_loop(model, inputs, 2.0)
    passes = recorded(model)
    private = passes._gradient
    for _ in range(2):
        passes.expect(N, None)
        squares(apply(model, inputs), None).mean().backward()
        passes.take()
        private.finish()
        assert_same(model, expected)
    copied = copy.deepcopy(model)
    passes.remove()
    assert private.backend == ("bookkeeping" if name in RECORDED else "materialised")
    for left in (model, copied):  # nothing is left behind, nor got into the copy
        assert left._compiled_call_impl is None
        assert "forward" not in vars(left)


def test_shared_positions_stay_shared_when_the_batch_is_as_long():
    torch.manual_seed(2)
    model, _ = MODELS["positions"]()
    private = engine(model)
    for size in (N, TIME, TIME + 1):
        x = torch.randint(0, WORDS, (size, TIME))
        parameters = list(model.parameters())
        expected = [torch.zeros_like(p) for p in parameters]
        for row in x:
            grads = torch.autograd.grad(squares(model(row[None]), None).sum(), parameters)
            length = torch.stack([g.norm() for g in grads]).norm()
            expected = [
                e + g * min(1.0, 2.0 / float(length)) for e, g in zip(expected, grads, strict=True)
            ]
        private.accumulate_batch((x,), None, squares)
        private.finish()
        assert_same(model, expected)
    assert private.backend == "bookkeeping"


@pytest.mark.parametrize("padding", [0, 3, -1])
@pytest.mark.parametrize("tied", [False, True])
def test_padding_is_no_part_of_any_examples_gradient(padding, tied):
    torch.manual_seed(5)
    embedding = nn.Embedding(WORDS, WIDTH, padding_idx=padding)
    head = linear(out=WORDS)
    if tied:  # where the row of the padding is trained by the layer that it is tied to
        head.weight = embedding.weight
    model = Model(lambda m, x: m.b(m.a(x).mean(1)), a=embedding, b=head)
    x = tokens()
    x[:, 1] = padding % WORDS
    calls = ExampleCalls(model)
    with calls.recording():
        model(x).square().sum().backward()
    assert calls.vectorises
    records = calls.records(N)
    for i in range(N):
        parameters = list(model.parameters())
        expected = torch.autograd.grad(model(x[i : i + 1]).square().sum(), parameters)
        for parameter, grads in zip(parameters, expected, strict=True):
            torch.testing.assert_close(records[parameter].rows()[i], grads.flatten())


def test_one_number_is_the_mean_over_examples():
    class Loss(nn.Module):
        def __init__(self):
            super().__init__()
            self.gate, self.a = nn.Parameter(torch.ones(1)), linear()

        def forward(self, x, lengths):
            kept = (torch.arange(TIME) < lengths[:, None])[..., None]
            logits = self.gate * self.a(x)
            return {"loss": (logits.square() * kept).sum() / kept.sum(), "logits": logits}

    torch.manual_seed(3)
    model, x, lengths = Loss(), vectors(TIME, WIDTH), torch.randint(1, TIME + 1, (N,))
    alone = torch.stack([model(x[i : i + 1], lengths[i : i + 1])["loss"] for i in range(N)])
    passes = recorded(model, 1e6)
    passes.expect(N, None)
    found = model(x, lengths)["loss"]
    torch.testing.assert_close(found, alone.mean())
    found.backward()
    passes.take()
    passes._gradient.finish()
    expected = torch.autograd.grad(alone.sum(), list(model.parameters()))
    assert_same(model, expected)


def test_spectral_norm_moves_on_once_in_a_pass():
    torch.manual_seed(4)
    model = nn.Sequential(parametrizations.spectral_norm(linear()), nn.Tanh(), linear())
    with torch.no_grad():
        for _ in range(500):  # until the vectors stand still
            model(vectors())
    x = vectors()
    expected = by_loop(model, x, 2.0)
    private = engine(model)
    private.accumulate_batch(x, None, squares)
    private.finish()
    assert_same(model, expected)
    norm = model[0].parametrizations.weight[0]
    assert norm.training
    before = norm._u.clone()
    with torch.no_grad():
        model[0].parametrizations.weight.original.add_(torch.randn(WIDTH, WIDTH))
    private.accumulate_batch(x, None, squares)
    assert not torch.equal(before, norm._u)


@pytest.mark.filterwarnings("ignore:None of the inputs have requires_grad:UserWarning")
@pytest.mark.parametrize(
    ("forward", "message"),
    [
        (lambda m, x: m.last(m.g * m.a(x - x.mean(0))), "depends on the other examples"),
        (lambda m, x: checkpointed(m, m.g * x, reentrant=True), "use_reentrant=False"),
        (lambda m, x: m.last(m.g * x).T, "examples first"),
    ],
    ids=["mixing", "reentrant checkpoint", "examples last"],
)
def test_what_examples_apart_cannot_serve_is_refused(forward, message):
    model = Model(forward, {"g": (1,)}, a=linear(), last=linear(out=3))
    with pytest.raises(UnsoundConfiguration, match=message):
        engine(model).accumulate_batch((vectors(),), None, squares)
    passes = recorded(model)
    passes.expect(N, None)
    with pytest.raises(UnsoundConfiguration, match=message):
        model(vectors())


def test_other_examples_than_the_batch_are_refused():
    model, inputs = MODELS["gates"]()
    passes = recorded(model)
    passes.expect(N - 1, None)
    squares(apply(model, inputs), None).mean().backward()
    with pytest.raises(UnsoundConfiguration, match="called with 7 rows where the batch has 6"):
        passes.take()


def test_outputs_of_different_lengths_are_refused():
    def padded(m, x, lengths):
        given = rnn.pack_padded_sequence(m.e(x), lengths, batch_first=True, enforce_sorted=False)
        return rnn.pad_packed_sequence(m.r(given)[0], batch_first=True)[0]

    model = Model(padded, e=words(), r=nn.GRU(WIDTH, WIDTH, batch_first=True))
    with pytest.raises(UnsoundConfiguration, match="total_length="):
        engine(model).accumulate_batch((tokens(), torch.arange(N) % TIME + 1), None, squares)


@pytest.mark.filterwarnings("ignore:.*torch.jit.script:DeprecationWarning")
def test_scripted_module_is_refused():
    with pytest.raises(UnsoundConfiguration, match="script it afterwards"):
        check_model(torch.jit.script(nn.Sequential(linear())))


def test_statistics_are_fixed_only_where_the_model_trains():
    model = nn.Sequential(linear(), nn.BatchNorm1d(WIDTH), linear())
    with pytest.raises(UnsoundConfiguration, match="replace_batchnorm"):
        check_model(model.eval())
    model.train()[1].eval()
    check_model(model)
    train_mode(model)
    assert [layer.training for layer in model] == [True, False, True]
    private = engine(model)
    model.train()
    with pytest.raises(UnsoundConfiguration, match=r"eval\(\) of this layer"):
        private.accumulate_batch(vectors(), None, squares)
    model[1].eval()
    private.accumulate_batch(vectors(), None, squares)
    model.train()
    with pytest.raises(UnsoundConfiguration, match=r"eval\(\) of this layer"):
        private.accumulate_batch(vectors(), None, squares)


def test_older_spectral_norm_is_refused_with_the_one_that_is_taken():
    model = nn.Sequential(nn.utils.spectral_norm(nn.Linear(6, 6)), nn.Tanh(), nn.Linear(6, 3))
    private = PrivateGradient(model, FlatClip(1.0), scales=[0.0], expected_batch_size=1.0)
    with pytest.raises(UnsoundConfiguration, match=r"parametrizations\.spectral_norm is taken"):
        private.accumulate_batch(torch.randn(4, 6), None, lambda outputs, _: outputs.sum(1))


class Bytes(nn.Module):
    """A frozen layer whose weights are bytes, with one scale per row."""

    def __init__(self, linear):
        super().__init__()
        weight = linear.weight.detach()
        scale = weight.abs().amax(1, keepdim=True) / 127
        self.register_buffer("weight", (weight / scale).round().to(torch.int8))
        self.register_buffer("scale", scale)

    def forward(self, x):
        return functional.linear(x, self.weight.to(x.dtype) * self.scale)


class Adapted(nn.Module):
    """Adapters beside a frozen base; activations of the base may be quantised, too."""

    def __init__(self, by_batch=False):
        super().__init__()
        self.base, self.by_batch = Bytes(nn.Linear(6, 3)), by_batch
        self.down, self.up = nn.Linear(6, 2, bias=False), nn.Linear(2, 3, bias=False)
        self.last = nn.Linear(3, 3)

    def forward(self, x):
        given = x
        if self.by_batch:
            scale = x.abs().max() / 127
            given = (x / scale).round() * scale
        return self.last(torch.tanh(self.base(given) + self.up(self.down(x))))


def test_adapters_of_a_base_in_bytes_have_gradients_of_autograd():
    torch.manual_seed(0)
    model, x = Adapted(), torch.randn(5, 6)
    private = PrivateGradient(model, FlatClip(1e6), scales=[0.0], expected_batch_size=1.0)
    private.accumulate_batch(x, None, lambda outputs, _: outputs.square().sum(1))
    private.finish()
    found = [p.grad.clone() for p in model.parameters()]
    expected = torch.autograd.grad(model(x).square().sum(), list(model.parameters()))
    assert private.backend == "bookkeeping"
    for one, other in zip(found, expected, strict=True):
        torch.testing.assert_close(one, other)


def test_activations_quantised_by_the_batch_are_refused():
    model = Adapted(by_batch=True)
    private = PrivateGradient(model, FlatClip(1.0), scales=[0.0], expected_batch_size=1.0)
    with pytest.raises(UnsoundConfiguration, match="depends on the other examples"):
        private.accumulate_batch(
            torch.randn(8, 6), None, lambda outputs, _: outputs.square().sum(1)
        )
