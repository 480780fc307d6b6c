"""Clipping of adapters in the geometry of their products, against explicit projections."""

import math

import numpy as np
import peft
import pytest
import torch
import transformers
from hypothesis import given, settings
from hypothesis import strategies as st
from oracles.gradients import cross_entropy
from torch import nn
from training.runs import plan

from taut.errors import UnsoundConfiguration
from taut.noise import SeededForExperiments
from taut.training import FlatClip, LoRAClip, Plan, PrivateTrainer, causal_lm_loss
from taut.training._tensors.processes import Processes
from taut.training._tensors.tangent_sum import Tangent
from taut.training.extend import Clipping, PrivateGradient

RANK, INPUTS, OUTPUTS, CLASSES = 2, 5, 4, 3


class Adapted(nn.Module):
    """A frozen layer with an adapter, and a head that is trained whole."""

    def __init__(self, b_scale=0.5, seed=0):
        super().__init__()
        torch.manual_seed(seed)
        self.frozen = nn.Linear(INPUTS, OUTPUTS).requires_grad_(False)
        self.lora_A = nn.Linear(INPUTS, RANK, bias=False)
        self.lora_B = nn.Linear(RANK, OUTPUTS, bias=False)
        self.head = nn.Linear(OUTPUTS, CLASSES)
        self.lora_B.weight.data.normal_().mul_(b_scale)
        self.double()

    def forward(self, x):
        return self.head(torch.tanh(self.frozen(x) + self.lora_B(self.lora_A(x))))


def examples(batch=6, seed=1):
    draw = torch.Generator().manual_seed(seed)
    x = torch.randn(batch, INPUTS, generator=draw, dtype=torch.float64)
    return x, torch.randint(0, CLASSES, (batch,), generator=draw)


def named_gradients(model, x, y):
    """Return the gradient of the sum of losses, and that of the product of the factors."""
    change = torch.zeros(OUTPUTS, INPUTS, dtype=torch.float64, requires_grad=True)
    hidden = model.frozen(x) + x @ (model.lora_B.weight @ model.lora_A.weight + change).T
    loss = cross_entropy(model.head(torch.tanh(hidden)), y).sum()
    named = {n: p for n, p in model.named_parameters() if p.requires_grad}
    found = torch.autograd.grad(loss, [*named.values(), change])
    return dict(zip(named, found, strict=False)), found[-1]


def projected(model, g):
    """Return the projection of a matrix onto changes B dA + dB A, by least squares."""
    a, b = model.lora_A.weight.detach(), model.lora_B.weight.detach()
    of_a = torch.kron(b, torch.eye(INPUTS, dtype=torch.float64))  # row-major (B dA)
    of_b = torch.kron(torch.eye(OUTPUTS, dtype=torch.float64), a.T.contiguous())
    basis = torch.cat([of_a, of_b], 1)
    left, values, _ = torch.linalg.svd(basis, full_matrices=False)
    kept = left[:, values > 1e-9 * values.max()] if values.max() > 0 else left[:, :0]
    return (kept @ (kept.T @ g.flatten())).view_as(g)


def length(model, x, y):
    """Return the intrinsic length of one example's gradient, by brute force."""
    gradients, product = named_gradients(model, x, y)
    rest = sum(g.square().sum() for n, g in gradients.items() if "lora" not in n)
    return float((projected(model, product).square().sum() + rest).sqrt())


def engine(model, norm, noise=0.0, generator=None):
    names = [n for n, p in model.named_parameters() if p.requires_grad]
    groups = max(LoRAClip(norm).groups(names)) + 1
    return PrivateGradient(
        model,
        LoRAClip(norm),
        scales=[noise] * groups,
        expected_batch_size=1,
        generator=generator,
        self_check=False,
    )


def released(model, norm, x, y):
    step = engine(model, norm)
    step.accumulate_batch(x[:2], y[:2], cross_entropy)
    if len(x) > 2:
        step.accumulate_batch(x[2:], y[2:], cross_entropy)
    step.finish()
    return {n: p.grad.clone() for n, p in model.named_parameters() if p.requires_grad}


@pytest.mark.parametrize("b_scale", [0.0, 1e-3, 0.5])
def test_without_clipping_the_gradient_is_the_plain_one(b_scale):
    model, (x, y) = Adapted(b_scale), examples()
    expected, _ = named_gradients(model, x, y)
    for name, found in released(model, 1e6, x, y).items():
        assert torch.allclose(found, expected[name], rtol=1e-9, atol=1e-12), name


@pytest.mark.parametrize("b_scale", [0.0, 1e-3, 0.5, 30.0])
@pytest.mark.parametrize("norm", [0.05, 0.6])
def test_every_example_is_weighed_by_the_length_of_its_projection(b_scale, norm):
    model, (x, y) = Adapted(b_scale), examples()
    expected = None
    for i in range(len(x)):
        one, _ = named_gradients(model, x[i : i + 1], y[i : i + 1])
        weight = min(1.0, norm / length(model, x[i : i + 1], y[i : i + 1]))
        part = {n: weight * g for n, g in one.items()}
        expected = part if expected is None else {n: expected[n] + g for n, g in part.items()}
    for name, found in released(model, norm, x, y).items():
        assert torch.allclose(found, expected[name], rtol=1e-7, atol=1e-11), name


@settings(max_examples=25, deadline=None)
@given(st.integers(0, 10**6), st.floats(-3, 3), st.floats(-3, 1))
def test_one_example_moves_the_sum_by_no_more_than_the_norm(seed, log_b, log_norm):
    """The sensitivity holds in the coordinates that noise is added to, whatever the weights."""
    model, (x, y) = Adapted(10.0**log_b, seed), examples(5, seed)
    norm = 10.0**log_norm
    sums = []
    for batch in (slice(0, 5), slice(0, 4)):
        step = engine(model, norm)
        step.accumulate_batch(x[batch], y[batch], cross_entropy)
        sums.append(torch.cat([total.flatten() for total in step._sum.taken()]))
    assert float((sums[0] - sums[1]).norm()) <= norm * (1 + 1e-9)


def test_factors_of_another_scale_make_the_same_step_in_the_product():
    """c A and B / c are one model: what is released of B A is the same."""
    x, y = examples()
    steps = []
    for c in (1.0, 37.0):
        model = Adapted()
        model.lora_A.weight.data.mul_(c)
        model.lora_B.weight.data.div_(c)
        found = released(model, 0.1, x, y)
        # gradients of factors are covectors: B^T G and G A^T
        steps.append((c * found["lora_A.weight"], found["lora_B.weight"] / c))
    for one, other in zip(*steps, strict=True):
        assert torch.allclose(one, other, rtol=1e-9, atol=1e-12)


@pytest.mark.parametrize("b_scale", [0.0, 0.5])
def test_noise_is_equal_in_all_directions_that_factors_can_take(b_scale):
    """The covariance is that of (B^T X, X A^T) for a projected matrix X of normal numbers."""
    model = Adapted(b_scale)
    step = engine(model, 1.0, 2.0, SeededForExperiments(5))
    draws = []
    for _ in range(4000):
        step.finish()
        draws.append(torch.cat([model.lora_A.weight.grad, model.lora_B.weight.grad.T], 1).flatten())
    found = torch.cov(torch.stack(draws).T)
    a, b = model.lora_A.weight.detach(), model.lora_B.weight.detach()
    columns = []
    for i in range(OUTPUTS * INPUTS):
        unit = torch.zeros(OUTPUTS * INPUTS, dtype=torch.float64)
        unit[i] = 1.0
        x = projected(model, unit.view(OUTPUTS, INPUTS))
        columns.append(torch.cat([b.T @ x, (x @ a.T).T], 1).flatten())
    wanted = 4.0 * torch.stack(columns, 1) @ torch.stack(columns, 1).T
    # entries of a sample covariance of 4,000 draws have deviations of at most sqrt(2 / 4000) times
    # the largest variance; five of them are not exceeded by chance in 324 entries
    assert float((found - wanted).abs().max()) < 5 * math.sqrt(2 / 4000) * float(wanted.max())
    if b_scale == 0.0:
        assert not model.lora_A.weight.grad.any()


def test_coordinates_of_a_plane_matrix_are_found_again():
    torch.manual_seed(3)
    a, b = torch.randn(RANK, INPUTS), torch.randn(OUTPUTS, RANK)
    tangent = Tangent.at(a, b, torch.float64)
    g = torch.randn(OUTPUTS, INPUTS, dtype=torch.float64)
    factors = b.double().T @ g, g @ a.double().T
    again = tangent.gradients(*tangent.coordinates(*factors))
    for one, other in zip(again, factors, strict=True):
        assert torch.allclose(one, other)


def test_a_rank_above_the_number_of_outputs_is_no_problem():
    a, b = torch.randn(6, 8, dtype=torch.float64), torch.randn(3, 6, dtype=torch.float64)
    tangent = Tangent.at(a, b, torch.float64)
    g = torch.randn(3, 8, dtype=torch.float64)
    of_a, of_b = tangent.coordinates(b.T @ g, g @ a.T)
    assert float(of_a.square().sum() + of_b.square().sum()) == pytest.approx(
        float(g.square().sum())  # factors of full rank can make every change
    )


def test_examples_without_a_finite_gradient_contribute_nothing():
    model, (x, y) = Adapted(), examples()
    step = engine(model, 0.3)
    bad = x.clone()
    bad[2] = math.inf
    step.accumulate_batch(bad, y, cross_entropy)
    assert step.dropped == 1
    step.finish()
    kept = [0, 1, 3, 4, 5]
    found = model.lora_B.weight.grad.clone()
    assert torch.allclose(found, released(model, 0.3, x[kept], y[kept])["lora_B.weight"])


def test_adapters_are_paired_by_their_names():
    names = [
        "base.q.lora_A.default.weight",
        "base.q.lora_B.default.weight",
        "base.e.lora_embedding_A.default",
        "base.e.lora_embedding_B.default",
        "score.weight",
        "florala_A.weight",
    ]
    assert LoRAClip(1.0).groups(names) == [0, 0, 1, 1, 2, 3]


@pytest.mark.parametrize(
    ("names", "message"),
    [
        (["weight", "bias"], "the model has none"),
        (["q.lora_B.weight"], "needs both factors"),
        (["q.lora_B.weight", "q.lora_A.weight"], "lora_A before lora_B"),
    ],
)
def test_what_is_no_adapter_is_refused(names, message):
    with pytest.raises(ValueError, match=message):
        LoRAClip(1.0).groups(names)


def test_a_norm_that_is_not_positive_is_refused():
    with pytest.raises(ValueError, match="norm"):
        LoRAClip(0.0)


def test_factors_without_a_product_are_refused():
    parameters = [torch.zeros(2, 5), torch.zeros(4, 3)]
    with pytest.raises(ValueError, match="have no product"):
        LoRAClip(1.0).sum(parameters, [0, 0], 8.0)


def test_several_processes_are_refused():
    model = Adapted()
    step = object.__new__(PrivateGradient)
    step.processes = Processes(rank=0, size=2)
    step._parameters = [p for p in model.parameters() if p.requires_grad]
    with pytest.raises(UnsoundConfiguration, match="train with one, or use FlatClip"):
        step._noise_for(LoRAClip(1.0), [0, 0, 1, 2], [1.0] * 3, None)


def test_it_is_described_in_json():
    assert Clipping.from_dict(LoRAClip(0.5).to_dict()) == LoRAClip(0.5)


def test_noise_is_that_of_a_ball():
    sizes = {"q.lora_A.weight": 10, "q.lora_B.weight": 8, "head": 3}
    planned = plan(clipping=LoRAClip(0.5))
    noise = planned.noise(sizes)
    assert np.allclose(noise.scales, 0.5 * planned.noise_multiplier)
    assert noise.groups == (0, 0, 1)


@pytest.mark.parametrize("clipping", [LoRAClip(5.0), FlatClip(1.0)])
def test_adapters_of_peft_are_trained(clipping):
    torch.manual_seed(0)
    config = transformers.LlamaConfig(
        vocab_size=20,
        hidden_size=8,
        intermediate_size=16,
        num_hidden_layers=1,
        num_attention_heads=2,
        num_key_value_heads=1,
        pad_token_id=0,
    )
    adapters = peft.LoraConfig(r=2, target_modules=["q_proj", "v_proj"])
    model = peft.get_peft_model(transformers.LlamaForCausalLM(config), adapters)
    rows = [
        {"input_ids": tokens, "attention_mask": torch.ones_like(tokens), "labels": tokens}
        for tokens in torch.randint(1, 20, (24, 6))
    ]
    before = {n: p.detach().clone() for n, p in model.named_parameters()}
    planned = Plan(examples=24, batch_size=8, steps=3, epsilon=8, delta=1e-3, clipping=clipping)
    result = PrivateTrainer(
        model,
        causal_lm_loss,
        planned,
        optimizer=lambda parameters: torch.optim.SGD(parameters, lr=0.1),
    ).fit(rows)
    moved = {n for n, p in model.named_parameters() if not torch.equal(before[n], p)}
    assert moved == {n for n, p in model.named_parameters() if p.requires_grad}
    assert result.epsilon.upper <= 8
