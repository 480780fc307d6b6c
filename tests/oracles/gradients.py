"""Per-example gradients the slow way: one example at a time, by plain autograd."""

import math

import torch
from torch.nn import functional
from torch.utils import _pytree as pytree

from taut.training import FlatClip
from taut.training.extend import PrivateGradient


def squares(outputs, targets):
    """Return a loss that weighs all outputs differently, so that no permutation goes unseen."""
    del targets
    leaves = [leaf for leaf in pytree.tree_leaves(outputs) if leaf is not None]
    total = 0.0
    for leaf in leaves:
        flat = leaf.flatten(1) if leaf.dim() > 1 else leaf[:, None]
        ramp = torch.linspace(-1.0, 1.0, flat.shape[1], dtype=flat.dtype)
        total = total + (flat * ramp + 0.3).square().sum(1)
    return total


def cross_entropy(outputs, targets):
    return functional.cross_entropy(outputs, targets, reduction="none")


def pick(values, i):
    """Return example i alone, as a batch of one."""
    return pytree.tree_map(lambda x: x[i : i + 1] if isinstance(x, torch.Tensor) else x, values)


def call(model, inputs):
    if isinstance(inputs, dict):
        return model(**inputs)
    return model(*inputs) if isinstance(inputs, tuple) else model(inputs)


def loop(model, inputs, targets=None, loss=squares):
    """Return every example's gradient by parameter name, of shape (batch, *shape)."""
    batch = len(pytree.tree_leaves(inputs)[0])
    named = {name: p for name, p in model.named_parameters() if p.requires_grad}
    rows = {name: [] for name in named}
    for i in range(batch):
        value = loss(call(model, pick(inputs, i)), pick(targets, i)).sum()
        for name, grad in zip(named, torch.autograd.grad(value, named.values()), strict=True):
            rows[name].append(grad)
    return {name: torch.stack(grads) for name, grads in rows.items()}


def clipped_sum(rows, norm):
    """Return the sum over examples of gradients clipped to one norm."""
    lengths = torch.stack([g.flatten(1).norm(dim=1) for g in rows.values()]).norm(dim=0)
    factor = torch.ones_like(lengths) if norm == math.inf else (norm / lengths).clamp(max=1.0)
    return {name: torch.einsum("b,b...->...", factor, g) for name, g in rows.items()}


def median_norm(rows):
    lengths = torch.stack([g.flatten(1).norm(dim=1) for g in rows.values()]).norm(dim=0)
    return float(lengths.median())


def private(model, inputs, targets=None, loss=squares, *, norm, **options):
    """Return the gradients that PrivateGradient sets without noise."""
    engine = PrivateGradient(model, FlatClip(norm), scales=[0.0], expected_batch_size=1, **options)
    engine.accumulate_batch(inputs, targets, loss)
    engine.finish()
    return {name: p.grad for name, p in model.named_parameters() if p.requires_grad}


def assert_equal(found, expected, tolerance):
    assert found.keys() == expected.keys()
    whole = torch.stack([g.norm() for g in expected.values()]).norm()
    for name, grad in expected.items():
        error = float((found[name] - grad).norm())
        assert error <= tolerance * float(whole), (name, error, float(whole))


def assert_as_loop(model, inputs, targets=None, loss=squares, *, tolerance=1e-5, **options):
    """Compare with the loop, half of the examples clipped."""
    rows = loop(model, inputs, targets, loss)
    norm = median_norm(rows)
    found = private(model, inputs, targets, loss, norm=norm, **options)
    assert_equal(found, clipped_sum(rows, norm), tolerance)
