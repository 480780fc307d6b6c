"""What cannot be trained privately is refused, with the name of the layer and the way out."""

import pytest
import torch
from oracles.gradients import assert_as_loop, cross_entropy, squares
from torch import nn
from torch.nn import functional

from taut.errors import UnsoundConfiguration
from taut.training import FlatClip, check_model, replace_batchnorm
from taut.training.extend import PrivateGradient
from taut.training.models import ResNet20


def engine(model, **options):
    return PrivateGradient(model, FlatClip(1.0), scales=[0.0], expected_batch_size=4, **options)


class Net(nn.Module):
    """Two layers, and a forward pass that does one thing wrong."""

    def __init__(self, forward):
        super().__init__()
        self.a, self.b = nn.Linear(6, 6), nn.Linear(6, 6)
        self.register_buffer("seen", torch.zeros(6))
        self.frozen = nn.Parameter(torch.zeros(6), requires_grad=False)
        self._forward = forward

    def forward(self, x):
        return self._forward(self, x)


def remembers(model, x):
    model.seen.add_(x.detach().sum(0))
    return model.b(model.a(x))


def remembers_by_a_new_buffer(model, x):
    model.seen = 0.9 * model.seen + x.detach().mean(0)
    return model.b(model.a(x))


def remembers_by_data(model, x):
    model.seen.data.copy_(x.mean(0))
    return model.b(model.a(x))


def remembers_in_a_frozen_parameter(model, x):
    model.frozen = nn.Parameter(model.frozen + x.detach().mean(0), requires_grad=False)
    return model.b(model.a(x))


def remembers_under_a_new_name(model, x):
    model.register_buffer("late", x.detach().mean(0))
    return model.b(model.a(x))


def changes_weights_by_data(model, x):
    model.a.weight.data.copy_(x.detach()[:1].expand(6, 6))
    return model.b(model.a(x))


def changes_weights(model, x):
    with torch.no_grad():
        model.a.weight.mul_(0.9)
    return model.b(model.a(x))


def in_place(model, x):
    y = model.a(x)
    z = model.b(y)
    y.mul_(2.0)
    return z + y


X = torch.randn(4, 6, generator=torch.Generator().manual_seed(1))


@pytest.mark.parametrize(
    ("layer", "message"),
    [
        (nn.BatchNorm1d(6), "BatchNorm1d '1' .*replace_batchnorm"),
        (nn.BatchNorm2d(6), "BatchNorm2d '1'"),
        (nn.BatchNorm3d(6, affine=False), "BatchNorm3d '1'"),
        (nn.SyncBatchNorm(6), "SyncBatchNorm '1'"),
        (nn.LazyBatchNorm1d(), "LazyBatchNorm1d '1' has no parameters yet"),
        (nn.InstanceNorm1d(6, track_running_stats=True), "track_running_stats=False"),
        (nn.Embedding(5, 6, max_norm=1.0), "max_norm=1.0"),
        (nn.Embedding(5, 6, scale_grad_by_freq=True), "scale_grad_by_freq"),
        (nn.Embedding(5, 6, sparse=True), "sparse=True"),
    ],
)
def test_layer_is_refused_by_name(layer, message):
    model = nn.Sequential(nn.Linear(6, 6), layer)
    with pytest.raises(UnsoundConfiguration, match=message):
        check_model(model)
    with pytest.raises(UnsoundConfiguration, match=message):
        engine(model)


def test_all_problems_are_named_at_once():
    model = nn.Sequential(nn.BatchNorm1d(6), nn.Sequential(nn.BatchNorm1d(6)))
    with pytest.raises(UnsoundConfiguration, match=r"'0' .*'1\.0' "):
        check_model(model)


WRONG = {
    "mixes by mean": (lambda m, x: m.b(m.a(x) - m.a(x).mean(0)), "mixes examples"),
    "mixes by a constant mean": (
        lambda m, x: m.b(m.a(x)) * (1 + x.mean(0).detach()), "depends on the other examples"),
    "mixes the first into others": (
        lambda m, x: m.b(m.a(x - x[:1].detach())), "depends on the other examples"),
    "mixes by a constant of single precision": (
        lambda m, x: m.b(m.a(x)) * (1 + x.float().mean(0).detach()),
        "depends on the other examples"),
    "mixes by batch norm": (
        lambda m, x: m.b(functional.batch_norm(m.a(x), None, None, training=True)), "mixes"),
    "function on a weight": (
        lambda m, x: m.b(m.a(x)) + functional.linear(x, m.a.weight), "'a.weight' is used outside"),
    "weight by an operator": (lambda m, x: m.b(m.a(x)) + x @ m.b.weight.T, "'b.weight' is used"),
    "forward instead of a call": (lambda m, x: m.b(m.a.forward(x)), "'a.weight' is used outside"),
    "remembers": (remembers, "changed 'seen'"),
    "remembers by a new buffer": (remembers_by_a_new_buffer, "changed 'seen'"),
    "remembers by data": (remembers_by_data, "changed 'seen'"),
    "remembers in a frozen parameter": (remembers_in_a_frozen_parameter, "changed 'frozen'"),
    "remembers under a new name": (remembers_under_a_new_name, "changed 'late'"),
    "changes weights by data": (changes_weights_by_data, "changed 'a.weight'"),
    "changes weights": (changes_weights, "changed 'a.weight'"),
    "unused": (lambda m, x: m.a(x), "parameter 'b.weight' got no gradient .* freeze"),
    "in place": (in_place, "input of layer 'b' was changed in place"),
    "examples last": (lambda m, x: m.b(m.a(x.expand(3, *x.shape))).sum(0), "axis"),
}  # fmt: skip


VALUES_MIX = {name for name in WRONG if "constant" in name or "first" in name}
"""What only an example alone shows, which a closure does not give."""


@pytest.mark.parametrize("name", WRONG)
def test_forward_pass_is_refused(name):
    forward, message = WRONG[name]
    with pytest.raises(UnsoundConfiguration, match=message):
        engine(Net(forward), backend="bookkeeping").accumulate_batch(X, None, squares)


@pytest.mark.parametrize("name", sorted(WRONG.keys() - VALUES_MIX))
def test_forward_pass_in_a_closure_is_refused(name):
    forward, message = WRONG[name]
    model = Net(forward)
    with pytest.raises(UnsoundConfiguration, match=message):
        engine(model).accumulate(lambda: squares(model(X), None))
    assert all(p.requires_grad for n, p in model.named_parameters() if n != "frozen")


def test_flipped_kinks_are_not_taken_for_mixing():
    """A ResNet whose gradients differ by 1e-3 alone and in the batch, in single precision only."""
    torch.manual_seed(3)
    model, x, y = ResNet20(), torch.randn(3, 3, 32, 32), torch.randint(10, (3,))
    before = {name: value.clone() for name, value in model.state_dict().items()}
    engine(model).check(x, y, cross_entropy)
    for name, value in model.state_dict().items():
        assert value.dtype == before[name].dtype
        assert value.equal(before[name])


def test_memory_that_begins_later_is_refused():
    for change in (remembers, remembers_by_a_new_buffer):
        model = Net(lambda m, x: m.b(m.a(x)))
        private = engine(model)
        private.accumulate_batch(X, None, squares)
        model._forward = change
        with pytest.raises(UnsoundConfiguration, match="changed 'seen'"):
            private.accumulate_batch(X, None, squares)


def test_memory_is_refused_by_the_other_back_end():
    private = engine(Net(remembers_by_a_new_buffer), backend="materialised")
    with pytest.raises(UnsoundConfiguration, match="changed 'seen'"):
        private.accumulate_batch(X, None, squares)


def test_looking_at_a_parameter_is_no_use_of_it():
    def forward(model, x):
        weight = model.a.weight
        with torch.no_grad():
            size = weight.norm()
        y = x.to(weight).type_as(weight) + weight.new_zeros(6) + torch.zeros_like(weight)[0]
        y = y.to(weight.device, weight.dtype) * weight.shape[0] / weight.numel()
        return model.b(model.a(y)) / (size + weight.detach().norm() + weight.data.norm())

    assert_as_loop(Net(forward).double(), X.double())


@pytest.mark.parametrize("size", [1, 2, 3, 4, 7])
def test_axis_of_the_size_of_the_batch_is_not_taken_for_it(size):
    class TimeFirst(nn.Module):
        def __init__(self):
            super().__init__()
            self.layer = nn.Linear(6, 6)

        def forward(self, x):
            return self.layer(x.transpose(0, 1)).transpose(0, 1)

    if size == 1:
        assert_as_loop(TimeFirst(), torch.randn(1, 1, 6))
        return
    model, x = TimeFirst(), torch.randn(size, size, 6)
    with pytest.raises(UnsoundConfiguration, match="first"):
        engine(model, backend="bookkeeping").accumulate_batch(x, None, squares)
    with pytest.raises(UnsoundConfiguration, match="first"):
        engine(model).accumulate(lambda: squares(model(x), None))


def test_shared_positions_of_the_size_of_the_batch_are_refused():
    class Positions(nn.Module):
        def __init__(self):
            super().__init__()
            self.positions = nn.Embedding(4, 6)
            self.layer = nn.Linear(6, 6)

        def forward(self, x):
            return self.layer(x + self.positions(torch.arange(4)))

    model, x = Positions(), torch.randn(4, 4, 6)
    with pytest.raises(UnsoundConfiguration, match="'positions"):
        engine(model).accumulate(lambda: squares(model(x), None))
    assert_as_loop(model.double(), x.double(), backend="materialised")


@pytest.mark.parametrize("shape", [(5,), (1, 5)])
def test_shared_positions_are_recorded_and_refused_elsewhere_with_the_way_out(shape):
    class Positions(nn.Module):
        def __init__(self, expanded):
            super().__init__()
            self.words, self.positions = nn.Embedding(9, 6), nn.Embedding(5, 6)
            self.expanded = expanded

        def forward(self, tokens):
            places = torch.arange(5).view(shape)
            places = places.expand(len(tokens), 5) if self.expanded else places
            return self.words(tokens) + self.positions(places)

    tokens = torch.randint(0, 9, (3, 5))
    model = Positions(expanded=False)
    with pytest.raises(UnsoundConfiguration, match=r"'positions' .*expanded to the batch"):
        engine(model, backend="bookkeeping").accumulate(lambda: squares(model(tokens), None))
    assert_as_loop(Positions(expanded=False), tokens, backend="bookkeeping")
    assert_as_loop(Positions(expanded=True), tokens)
    assert_as_loop(Positions(expanded=False), tokens, backend="materialised")


def test_penalty_in_the_loss_is_refused():
    model = Net(lambda m, x: m.b(m.a(x)))
    private = engine(model, self_check=False)
    with private.tape.recording():
        losses = squares(model(X), None)
    (losses.sum() + model.a.weight.square().sum()).backward()
    with pytest.raises(
        UnsoundConfiguration, match=r"'a\.weight' also got a gradient.*weight_decay"
    ):
        private.absorb(4)


def test_norm_over_examples_is_refused():
    model = nn.LayerNorm((4, 6))
    with pytest.raises(UnsoundConfiguration, match="normalises over the examples"):
        engine(model, self_check=False).accumulate(lambda: model(X).square().sum(1))


def test_attention_without_examples_is_refused():
    model = nn.MultiheadAttention(6, 2)
    with pytest.raises(UnsoundConfiguration, match="without an axis of examples"):
        engine(model).accumulate(lambda: model(X, X, X)[0].sum(1))


def test_packed_sequence_is_refused():
    model = nn.GRU(6, 3, batch_first=True)
    packed = nn.utils.rnn.pack_padded_sequence(torch.randn(2, 3, 6), [3, 2], batch_first=True)
    with pytest.raises(UnsoundConfiguration, match="PackedSequence; give it a padded tensor"):
        engine(model).accumulate(lambda: model(packed)[1][0].sum(1))


def test_random_layer_without_a_rule_is_not_recorded():
    class Noisy(nn.Module):
        def __init__(self):
            super().__init__()
            self.gain = nn.Parameter(torch.ones(6))

        def forward(self, x):
            return functional.dropout(x * self.gain, 0.5)

    with pytest.raises(UnsoundConfiguration, match=r"Noisy .* backend='materialised'"):
        engine(nn.Sequential(Noisy()), backend="bookkeeping").accumulate_batch(X, None, squares)
    private = engine(nn.Sequential(Noisy()))
    private.accumulate_batch(X, None, squares)
    assert private.backend == "materialised"


class Positioned(nn.Module):
    """Has a parameter of its own beside its layers, as vision transformers do."""

    def __init__(self):
        super().__init__()
        self.positions = nn.Parameter(torch.randn(3, 6))
        self.layer = nn.Linear(6, 6)

    def forward(self, x):
        return self.layer(x + self.positions)


def parametrized():
    return nn.utils.parametrizations.weight_norm(nn.Linear(6, 3))


@pytest.mark.parametrize(
    ("build", "shape"),
    [(Positioned, (5, 3, 6)), (parametrized, (5, 6))],
    ids=["own", "weight norm"],
)
def test_what_cannot_be_recorded_is_materialised(build, shape):
    model = build().double()
    with pytest.raises(UnsoundConfiguration, match=r"layer of their own|backend='materialised'"):
        engine(model, backend="bookkeeping")
    assert engine(model).backend == "materialised"
    assert_as_loop(model, torch.randn(*shape, dtype=torch.float64))


class Tokens(nn.Module):
    """Adds a table of positions that has no axis of examples, in a shape that cannot be widened."""

    def __init__(self):
        super().__init__()
        self.positions = nn.Embedding(9, 6)
        self.last = nn.Linear(6, 3)

    def forward(self, x):
        table = self.positions(torch.arange(x.shape[1])).view(x.shape[1], 6)
        return self.last(x + table)


def test_layer_without_examples_changes_the_back_end(caplog):
    model, x = Tokens().double(), torch.randn(4, 5, 6, dtype=torch.float64)
    with caplog.at_level("INFO"):
        assert_as_loop(model, x)
    assert caplog.text.count("falling back to the materialised back end") == 1
    private = engine(model)
    private.accumulate_batch(x, None, squares)
    assert private.backend == "materialised"
    with pytest.raises(RuntimeError, match="invalid for input"):
        engine(model, backend="bookkeeping").accumulate_batch(x, None, squares)
    with pytest.raises(UnsoundConfiguration, match="'positions'"):
        engine(model).accumulate(lambda: squares(model(x), None))


class Weighted(nn.Module):
    """A layer without a rule that takes examples and what they share."""

    def __init__(self):
        super().__init__()
        self.gain = nn.Parameter(torch.randn(6))

    def forward(self, x, table):
        return x * self.gain + (self.gain * table).sum(0)


class WithTable(nn.Module):
    def __init__(self, rows):
        super().__init__()
        self.layer, self.rows = Weighted(), rows

    def forward(self, x):
        return self.layer(x, torch.linspace(0.0, 1.0, self.rows * 6, dtype=x.dtype).view(-1, 6))


@pytest.mark.parametrize("rows", [1, 2, 3, 4, 5])
def test_table_of_the_length_of_the_batch_is_shared(rows):
    model, x = WithTable(rows).double(), X.double()
    for batch in (x, x[:3], x[:2]):
        assert_as_loop(model, batch, backend="bookkeeping", tolerance=1e-9)


def test_arguments_that_may_be_either_are_refused_until_another_batch_is_seen():
    model = WithTable(4)
    private = engine(model)
    with pytest.raises(UnsoundConfiguration, match="several tensors with 4 rows"):
        private.accumulate(lambda: squares(model(X), None))
    private.check(X)
    private.accumulate(lambda: squares(model(X), None))


def test_materialised_needs_the_batch():
    private = engine(Positioned())
    with pytest.raises(UnsoundConfiguration, match="call accumulate_batch"):
        private.accumulate(lambda: torch.zeros(4))
    with pytest.raises(UnsoundConfiguration, match="call accumulate_batch"):
        private.absorb(4)


@pytest.mark.parametrize("backend", ["bookkeeping", "materialised"])
def test_loss_must_be_one_per_example(backend):
    private = engine(nn.Linear(6, 3), backend=backend, self_check=False)
    with pytest.raises(ValueError, match=r"one.* per example"):
        private.accumulate_batch(X, None, lambda outputs, _: outputs)


def test_bad_arguments():
    model = nn.Linear(6, 3)
    with pytest.raises(ValueError, match="backend='fast'"):
        engine(model, backend="fast")
    with pytest.raises(ValueError, match="no trainable parameters"):
        engine(nn.ReLU())
    with pytest.raises(ValueError, match="expected_batch_size"):
        PrivateGradient(model, FlatClip(1.0), scales=[1.0], expected_batch_size=0)
    with pytest.raises(ValueError, match="scales"):
        PrivateGradient(model, FlatClip(1.0), scales=[float("nan")], expected_batch_size=1)
    with pytest.raises(UnsoundConfiguration, match=r"found sizes \[3, 4\]"):
        engine(nn.Bilinear(6, 6, 2)).accumulate_batch((X, X[:3]), None, squares)


def test_parameter_that_became_trainable():
    model = nn.Sequential(nn.Linear(6, 6), nn.Linear(6, 3))
    model[0].requires_grad_(False)
    private = engine(model, self_check=False)
    private.accumulate_batch(X, None, squares)
    model[0].requires_grad_(True)
    private = engine(model, self_check=False)
    model[0].bias.requires_grad_(False)
    with pytest.raises(UnsoundConfiguration, match=r"'0\.bias' got no gradient"):
        private.accumulate_batch(X, None, squares)


def test_replaced_batchnorm_keeps_the_affine_map():
    model = nn.Sequential(
        nn.Conv2d(3, 48, 3), nn.BatchNorm2d(48), nn.Sequential(nn.BatchNorm2d(48, affine=False)),
        nn.InstanceNorm2d(48, affine=True, track_running_stats=True),
    )  # fmt: skip
    nn.init.normal_(model[1].weight)
    model[1].bias.requires_grad_(False)
    new = replace_batchnorm(model.double())
    assert isinstance(model[1], nn.BatchNorm2d)
    assert isinstance(new[1], nn.GroupNorm)
    assert new[1].num_groups == 16
    assert new[1].weight.dtype == torch.float64
    torch.testing.assert_close(new[1].weight, model[1].weight)
    assert not new[1].bias.requires_grad
    check_model(new)
    assert_as_loop(new, torch.randn(3, 3, 8, 8, dtype=torch.float64))
    with pytest.raises(ValueError, match="most_groups=0"):
        replace_batchnorm(model, most_groups=0)


def test_replaced_batchnorm_of_a_shared_layer_is_shared():
    norm = nn.BatchNorm1d(6)
    new = replace_batchnorm(nn.Sequential(norm, nn.ReLU(), norm))
    assert new[0] is new[2]
    assert isinstance(replace_batchnorm(norm), nn.GroupNorm)


class Noisy(nn.Module):
    def forward(self, x):
        return x * torch.rand_like(x)


class NoiseOfTheBatch(nn.Module):
    def forward(self, x):
        return x + 0.1 * torch.randn_like(x) * x.detach().std(0)


def test_stochastic_models_are_tested_with_their_draws():
    labels = torch.zeros(4, dtype=torch.long)
    sound = nn.Sequential(nn.Linear(6, 6), Noisy(), nn.Linear(6, 3))
    engine(sound).accumulate_batch(X, labels, cross_entropy)
    mixed = nn.Sequential(nn.Linear(6, 6), NoiseOfTheBatch(), nn.Linear(6, 3))
    with pytest.raises(UnsoundConfiguration, match="depends on the other examples"):
        engine(mixed).accumulate_batch(X, labels, cross_entropy)


DROPOUT = {
    "layer": (nn.Dropout(0.5), lambda m, x: m.drop(x)),
    "function": (nn.Identity(), lambda m, x: functional.dropout(x, 0.5, m.training)),
    "of channels": (nn.Dropout1d(0.5), lambda m, x: m.drop(x[:, None])[:, 0]),
    "attention": (
        nn.MultiheadAttention(6, 2, dropout=0.5, batch_first=True),
        lambda m, x: m.drop(x[:, None], x[:, None], x[:, None], need_weights=False)[0][:, 0]),
    "recurrent": (
        nn.LSTM(6, 6, 2, dropout=0.5, batch_first=True), lambda m, x: m.drop(x[:, None])[0][:, 0]),
    "fused attention": (
        nn.Identity(),
        lambda _, x: functional.scaled_dot_product_attention(
            x[:, None], x[:, None], x[:, None], None, 0.5, False)[:, 0]),
}  # fmt: skip


@pytest.mark.parametrize("kind", DROPOUT)
def test_dropout_hides_no_mixing(kind, caplog):
    layer, drop = DROPOUT[kind]

    def centred(model, x):
        return model.b(drop(model, model.a(x - x.mean(0))))

    model = Net(centred)
    model.drop = layer
    with pytest.raises(UnsoundConfiguration, match="depends on the other examples"):
        engine(model).accumulate_batch(X, None, squares)
    model._forward = lambda m, x: m.b(drop(m, m.a(x)))
    engine(model).accumulate_batch(X, None, squares)
    assert "stochastic" not in caplog.text
    if isinstance(layer, nn.LSTM | nn.MultiheadAttention):
        assert layer.dropout == 0.5


@pytest.mark.filterwarnings("ignore:std")
def test_example_that_is_finite_only_in_company_is_refused():
    model = Net(lambda m, x: m.b(m.a((x - x.mean(0)) / x.std(0))))
    with pytest.raises(UnsoundConfiguration, match="depends on the other examples"):
        engine(model).accumulate_batch(X, None, squares)


def test_example_that_is_not_finite_does_not_stop_the_check():
    x = X.clone()
    x[1] = float("inf")
    engine(Net(lambda m, x: m.b(m.a(x)))).accumulate_batch(x, None, squares)
    with pytest.raises(UnsoundConfiguration, match="depends on the other examples"):
        engine(Net(lambda m, x: m.b(m.a(x - x.nan_to_num(posinf=9.0).mean(0))))).accumulate_batch(
            x, None, squares
        )


def test_check_waits_for_a_second_example():
    private = engine(Net(lambda m, x: m.b(m.a(x) - m.a(x).mean(0) + x)))
    private.accumulate_batch(X[:1], None, squares)
    with pytest.raises(UnsoundConfiguration, match="mixes examples"):
        private.accumulate_batch(X, None, squares)


def test_check_by_itself_needs_no_loss():
    engine(Net(lambda m, x: m.b(m.a(x)))).check(X)
    with pytest.raises(UnsoundConfiguration, match="depends on the other examples"):
        engine(Net(lambda m, x: m.b(m.a(x)) * (1 + x.mean(0).detach()))).check(X)
