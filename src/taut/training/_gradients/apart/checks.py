"""Checks of the first batch for models whose examples are computed apart from each other.

There, examples are private whatever the model does. What remains to be checked is that the model
means it so: that its outputs for an example do not change when other examples are gone.
"""

from __future__ import annotations

import logging
from collections.abc import Callable, Mapping
from contextlib import nullcontext
from typing import Any

import torch
from torch import Tensor, nn
from torch.utils import _pytree as pytree

from taut.errors import UnsoundConfiguration
from taut.training._gradients.apart.example_calls import ExampleCalls
from taut.training._gradients.dropout import without_dropout
from taut.training._gradients.self_check import sum_of_squares
from taut.training._gradients.tape import NotExamples
from taut.training._tensors.examples import batch_size, copied, examples_of

__all__ = ["check_apart", "check_instead"]

_LOG = logging.getLogger(__name__)
_SEED = 20_260_101  # any: passes that are compared must draw the same values
_MOST_EXAMPLES = 3  # whose gradients are compared; outputs are compared for the whole batch
_TOLERANCE = 1e-3  # relative to all outputs or gradients; mistakes of this kind are of their size
_COARSE_TOLERANCE = 0.1  # of half precision


def check_apart(
    model: nn.Module,
    calls: ExampleCalls,
    names: Mapping[Tensor, str],
    inputs: Any,
    forward: Callable[[Any], Any],
) -> None:
    """Compare examples that are computed apart with the batch that the model would compute.

    Args:
        model: what is trained.
        calls: calls of the model, with one example each.
        names: names of the trainable parameters.
        inputs: inputs of a batch.
        forward: calls the model with inputs.

    A model that draws random numbers besides dropout is not compared: a batch draws others.

    Raises:
        UnsoundConfiguration: if outputs or gradients differ.
    """
    devices = sorted({p.device.index for p in names if p.device.type == "cuda"})
    few = examples_of(inputs, slice(0, min(batch_size(inputs), _MOST_EXAMPLES)))
    with torch.random.fork_rng(devices=devices):
        is_stochastic = _differ(_outputs(forward, inputs), _outputs(forward, inputs, 1), names)
        with without_dropout(model) if is_stochastic else nullcontext():
            plain = _outputs(forward, inputs)
            if is_stochastic and _differ(plain, _outputs(forward, inputs, 1), names):
                _LOG.info("the model draws random numbers: examples were not compared")
                return
            with calls.recording():
                apart = _outputs(forward, inputs)
            if _differ(apart, plain, names):
                raise _Mixed(
                    "the output for an example depends on the other examples of the batch; remove "
                    "what mixes examples in forward"
                )
            expected = _by_autograd(names, lambda: sum_of_squares(forward(copied(few)), None))
            found = _summed(calls, names, lambda: sum_of_squares(forward(copied(few)), None))
    calls.clear()
    if _differ(found, expected, names):
        raise UnsoundConfiguration(
            "the gradients of examples that are computed apart do not add up to that of autograd; "
            "if activations are checkpointed, use use_reentrant=False"
        )


class _Mixed(UnsoundConfiguration):
    """Examples alone have other outputs than in the batch."""


def check_instead(problem: Exception, check: Callable[[], None]) -> None:
    """Check examples apart for a model that a tape has refused, and repeat that if it fails too.

    Args:
        problem: what the tape said, which knows the layer or the parameter.
        check: call of `check_apart` for the same batch.

    Raises:
        UnsoundConfiguration: if examples are mixed, or outputs cannot be taken apart.
    """
    says_more = isinstance(problem, UnsoundConfiguration) and not isinstance(problem, NotExamples)
    try:
        check()
    except Exception as found:
        if says_more and (isinstance(found, _Mixed) or not isinstance(found, UnsoundConfiguration)):
            raise problem from None
        raise
    _LOG.info("falling back to the materialised back end: %s", problem)


def _by_autograd(names: Mapping[Tensor, str], losses: Callable[[], Tensor]) -> list[Tensor]:
    """Return the plain gradient, by a backward pass: some checkpoints know no other way."""
    for parameter in names:
        parameter.grad = None
    torch.autograd.backward(losses().sum())
    found = [torch.zeros_like(p) if p.grad is None else p.grad for p in names]
    for parameter in names:
        parameter.grad = None
    return found


def _summed(
    calls: ExampleCalls, names: Mapping[Tensor, str], losses: Callable[[], Tensor]
) -> list[Tensor]:
    """Return the sum of the gradients of examples."""
    with calls.recording():
        values = losses()
    try:
        torch.autograd.backward(values.sum())
    except RuntimeError:  # what is computed again in the backward pass is not vectorised
        if not calls.vectorises:
            raise
        calls.vectorises = False
        return _summed(calls, names, losses)
    records = calls.records(len(values))
    rows = (records[parameter].rows() for parameter in names)
    return [grads.sum(0).view(p.shape) for grads, p in zip(rows, names, strict=True)]


def _outputs(forward: Callable[[Any], Any], inputs: Any, more: int = 0) -> list[Tensor]:
    """Return the outputs that have examples, without gradients."""
    torch.manual_seed(_SEED + more)
    with torch.no_grad():
        leaves = pytree.tree_leaves(forward(copied(inputs)))
    return [
        leaf
        for leaf in leaves
        if isinstance(leaf, Tensor) and leaf.is_floating_point() and leaf.dim() > 0
    ]


def _differ(found: list[Tensor], expected: list[Tensor], names: Mapping[Tensor, str]) -> bool:
    if [x.shape for x in found] != [x.shape for x in expected]:
        return True
    if not found:
        return False
    coarse = any(torch.is_autocast_enabled(p.device.type) or p.element_size() < 4 for p in names)
    tolerance = _COARSE_TOLERANCE if coarse else _TOLERANCE
    sizes, offs = [], []
    for value, wanted in zip(found, expected, strict=True):
        finite = wanted.isfinite()
        if not torch.equal(finite, value.isfinite()):
            return True
        sizes.append(torch.where(finite, wanted, 0.0).float().norm())
        offs.append(torch.where(finite, value - wanted, 0.0).float().norm())
    return not bool(torch.stack(offs).norm() <= tolerance * torch.stack(sizes).norm())
