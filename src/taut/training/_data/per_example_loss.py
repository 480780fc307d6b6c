"""Losses of examples, from loss functions that return their mean or sum."""

from __future__ import annotations

import copy
import inspect
from collections.abc import Callable, Iterator
from functools import partial
from typing import Any

import torch
from torch import Tensor, nn
from torch.nn import functional
from torch.utils import _pytree as pytree

from taut.training._tensors.examples import LossFunction, examples_of

__all__ = ["per_example"]

_TOLERANCE = 1e-3


def per_example(loss_fn: Any, outputs: Any, targets: Any, batch: int) -> LossFunction:
    """Return a function with one loss per example, whose mean or sum is what `loss_fn` returns.

    Args:
        loss_fn: a loss module or a function of outputs and targets. One loss per example is taken
            as it is; a mean or a sum is told from its values on parts of the batch.
        outputs: what the model says about a few examples.
        targets: targets of the same examples.
        batch: how many they are.

    Raises:
        ValueError: if the value is neither a mean nor a sum over examples.
    """
    if not callable(loss_fn):
        raise ValueError(f"loss_fn must be a function of outputs and targets, got {loss_fn!r}")
    _refuse_class_weights(loss_fn)
    values = _value(loss_fn, outputs, targets)
    if values.dim() == 1 and len(values) == batch:
        _check_alone(loss_fn, values, outputs, targets)
        return _as_given(loss_fn)
    if values.numel() != 1:
        raise ValueError(
            f"loss_fn must return one loss per example, got shape {tuple(values.shape)} for "
            f"{batch} examples; average or sum over all axes but the first"
        )
    _refuse_loss_of_model(values, outputs)
    total = _total(loss_fn, values.reshape(()), outputs, targets, batch)
    for candidate in _candidates(loss_fn):
        if _reproduces(candidate, total, outputs, targets, batch):
            return candidate
    return partial(_one_by_one, loss_fn)


def _refuse_class_weights(loss_fn: Any) -> None:
    """Refuse a mean that is weighted by classes: it divides by the weights of the other examples.

    Examples of one class do not show it, so it is read off the function where that is possible.
    """
    weight, reduction = None, "mean"
    if isinstance(loss_fn, nn.CrossEntropyLoss | nn.NLLLoss):
        weight, reduction = loss_fn.weight, loss_fn.reduction
    elif isinstance(loss_fn, partial) and loss_fn.func in (
        functional.cross_entropy,
        functional.nll_loss,
    ):
        weight = loss_fn.keywords.get("weight")
        reduction = loss_fn.keywords.get("reduction", "mean")
    if weight is not None and reduction == "mean":
        raise ValueError(
            "loss_fn averages with class weights, so that the loss of an example depends on the "
            "labels of others; use weight=... with reduction='none', which multiplies the loss of "
            "every example by the weight of its class"
        )


def _refuse_loss_of_model(value: Tensor, outputs: Any) -> None:
    """Refuse a loss that the model has computed for the whole batch."""
    for leaf in pytree.tree_leaves(outputs):
        if isinstance(leaf, Tensor) and not leaf.dim() and torch.equal(leaf, value.reshape(())):
            raise ValueError(
                f"loss_fn returns a number that the model has computed for all examples {_OWN_LOSS}"
            )


_OWN_LOSS = (
    "(model(**batch).loss is a mean over the tokens of all): it must be one loss per example. Use "
    "causal_lm_loss, masked_lm_loss or seq2seq_loss of taut.training, which take the model's "
    "outputs and the labels"
)


def _as_given(loss_fn: Any) -> LossFunction:
    function: LossFunction = loss_fn
    return function


def _value(loss_fn: Any, outputs: Any, targets: Any) -> Tensor:
    value = loss_fn(outputs, targets)
    if value is None:
        raise ValueError(
            "loss_fn returns nothing: labels are given to the loss function, not to the model, so "
            f"that it has no loss {_OWN_LOSS}"
        )
    if not isinstance(value, Tensor) or not value.is_floating_point():
        raise ValueError(f"loss_fn must return a tensor of floats, got {type(value).__name__}")
    if bool(value.isnan().any()):
        raise ValueError(
            "loss_fn returns NaN for the first examples that were tried, whose outputs are not "
            "NaN; check their targets and the loss function"
        )
    return value.detach()


def _check_alone(loss_fn: Any, values: Tensor, outputs: Any, targets: Any) -> None:
    first = slice(0, 1)
    alone = _value(loss_fn, examples_of(outputs, first), examples_of(targets, first))
    if alone.numel() != 1 or not _close(alone.reshape(()), values[0]):
        raise ValueError(
            "loss_fn gives an example another loss alone than among others; its loss must depend "
            "on its own output and target only"
        )


def _total(loss_fn: Any, whole: Tensor, outputs: Any, targets: Any, batch: int) -> Tensor:
    """Return the sum over examples, after telling whether the value is a mean or a sum."""
    if batch < 2:
        raise ValueError(
            "loss_fn returns one number, and from one example it cannot be told of what; use "
            "reduction='none'"
        )
    is_mean = is_sum = True
    for cut in {1, batch - 1}:
        left, right = (
            _value(loss_fn, examples_of(outputs, part), examples_of(targets, part)).reshape(())
            for part in (slice(0, cut), slice(cut, batch))
        )
        is_mean &= _close(whole * batch, cut * left + (batch - cut) * right)
        is_sum &= _close(whole, left + right)
    if not (is_mean or is_sum):
        raise ValueError(
            "loss_fn returns one number that is neither the mean nor the sum over examples (class "
            "weights, an ignored index or pairs of examples do that); use reduction='none' and "
            "weight losses one by one"
        )
    return whole * batch if is_mean else whole


def _candidates(loss_fn: Any) -> Iterator[LossFunction]:
    """Yield functions of examples that could be what the loss function reduces."""
    unreduced = _unreduced(loss_fn)
    if unreduced is not None:
        yield partial(_rows, unreduced, Tensor.mean)
        yield partial(_rows, unreduced, Tensor.sum)
    yield partial(_vectorised, loss_fn)


def _unreduced(loss_fn: Any) -> Callable[[Any, Any], Tensor] | None:
    if isinstance(loss_fn, nn.Module):
        if not isinstance(getattr(loss_fn, "reduction", None), str):
            return None
        single: Any = copy.copy(loss_fn)
        single.reduction = "none"
        return _as_given(single)
    try:
        has_reduction = "reduction" in inspect.signature(loss_fn).parameters
    except (TypeError, ValueError):
        return None
    return partial(loss_fn, reduction="none") if has_reduction else None


def _rows(
    unreduced: Callable[[Any, Any], Tensor],
    reduce: Callable[[Tensor, int], Tensor],
    outputs: Any,
    targets: Any,
) -> Tensor:
    values = unreduced(outputs, targets)
    return values if values.dim() == 1 else reduce(values.flatten(1), 1)


def _vectorised(loss_fn: Any, outputs: Any, targets: Any) -> Tensor:
    if _examples(outputs) == 1:
        return _one_by_one(loss_fn, outputs, targets)

    def of_one(output: Any, target: Any) -> Tensor:
        with_batch = partial(pytree.tree_map, lambda x: x[None] if isinstance(x, Tensor) else x)
        value: Tensor = loss_fn(with_batch(output), with_batch(target))
        return value.reshape(())

    has_axis = [pytree.tree_map(lambda x: 0 if isinstance(x, Tensor) else None, outputs)]
    has_axis += [pytree.tree_map(lambda x: 0 if isinstance(x, Tensor) else None, targets)]
    values: Tensor = torch.vmap(of_one, tuple(has_axis), randomness="different")(outputs, targets)
    return values


def _one_by_one(loss_fn: Any, outputs: Any, targets: Any) -> Tensor:
    places = [slice(i, i + 1) for i in range(_examples(outputs))]
    values = [loss_fn(examples_of(outputs, i), examples_of(targets, i)) for i in places]
    return torch.stack([value.reshape(()) for value in values])


def _reproduces(
    candidate: LossFunction, total: Tensor, outputs: Any, targets: Any, batch: int
) -> bool:
    try:
        values = candidate(outputs, targets)
    except (RuntimeError, TypeError, ValueError, IndexError):
        return False
    return values.shape == (batch,) and _close(values.detach().sum(), total)


def _examples(values: Any) -> int:
    return next(len(x) for x in pytree.tree_leaves(values) if isinstance(x, Tensor))


def _close(found: Tensor, expected: Tensor) -> bool:
    return bool(torch.isclose(found, expected, rtol=_TOLERANCE, atol=1e-6))
