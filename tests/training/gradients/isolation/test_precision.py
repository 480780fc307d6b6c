"""Comparisons in double precision: for every product, and only where rounding stays small."""

import pytest
import torch
from torch import nn
from torch.nn import functional

from taut.training import FlatClip
from taut.training._gradients.isolation.checks import Isolation, Mixes
from taut.training._gradients.isolation.precision import in_double, nudged
from taut.training.extend import PrivateGradient

ENDS = torch.tensor([3, 3, 8, 12], dtype=torch.int32)


@pytest.mark.parametrize(
    ("left", "right"),
    [((12, 8), (4, 8, 16)), ((8, 12), (12, 16)), ((4, 8, 16), (16, 12))],
    ids=["rows", "terms", "columns"],
)
def test_grouped_products_are_those_of_single_precision(left, right):
    torch.manual_seed(0)
    one, two = torch.randn(left), torch.randn(right)
    short = functional.grouped_mm(one, two, offs=ENDS)
    with in_double(nn.Linear(1, 1)):
        found = functional.grouped_mm(one.double(), two.double(), offs=ENDS)
    assert found.dtype == torch.float64
    torch.testing.assert_close(found.float(), short)


def test_gradients_of_grouped_products_are_double_as_well():
    torch.manual_seed(0)
    rows, experts = torch.randn(12, 8, dtype=torch.float64), torch.randn(4, 8, 16)
    experts = experts.double().requires_grad_()
    with in_double(nn.Linear(1, 1)):
        functional.grouped_mm(rows, experts, offs=ENDS).square().sum().backward()
    groups = torch.repeat_interleave(torch.arange(4), torch.tensor([3, 0, 5, 4]))
    wanted = torch.zeros_like(experts)
    for row, group in zip(rows, groups, strict=True):
        wanted[group] += 2 * torch.outer(row, row @ experts.detach()[group])
    torch.testing.assert_close(experts.grad, wanted)


def test_nudged_weights_are_close_and_come_back():
    model = nn.Linear(3, 2)
    before = [p.detach().clone() for p in model.parameters()]
    with nudged(model, 1e-3):
        for parameter, weight in zip(model.parameters(), before, strict=True):
            assert not torch.equal(parameter, weight)
            torch.testing.assert_close(parameter.float(), weight, rtol=1.1e-3, atol=0)
    assert all(torch.equal(*pair) for pair in zip(model.parameters(), before, strict=True))


class Chaotic(nn.Module):
    """Magnifies the last bits of large scores, as experts do that are chosen by saturated ones.

    The last bit, times what the batch is, stands for roundings, which follow shapes of products.
    """

    leaks = False

    def __init__(self):
        super().__init__()
        self.weight = nn.Parameter(torch.randn(4))

    def forward(self, x):
        scores = x @ self.weight
        if self.leaks:
            scores = scores + (scores.abs() > 20) * scores.sum()
        large = (scores.abs() > 500).to(x.dtype)
        rounding = torch.finfo(x.dtype).eps * x.detach().clamp(-9, 9).sum()
        return scores + large * torch.sin(1e12 * scores * (1 + rounding))


def _first_batch(model):
    torch.manual_seed(1)
    private = PrivateGradient(model, FlatClip(1.0), scales=[0.0], expected_batch_size=1.0)
    private.accumulate_batch(torch.randn(16, 4), torch.randn(16), lambda y, t: (y - t).square())


def test_roundings_of_a_magnified_model_are_no_leak():
    torch.manual_seed(0)
    _first_batch(Chaotic())


def test_without_that_they_would_be_taken_for_one(monkeypatch):
    monkeypatch.setattr(Isolation, "_is_unsteady", lambda *_: False)
    torch.manual_seed(0)
    with pytest.raises(Mixes):
        _first_batch(Chaotic())


class Leaky(Chaotic):
    """Mixes examples as well, from a threshold below on which all is steady."""

    leaks = True


def test_a_leak_of_a_magnified_model_is_found_where_it_is_steady():
    torch.manual_seed(0)
    with pytest.raises(Mixes):
        _first_batch(Leaky())
