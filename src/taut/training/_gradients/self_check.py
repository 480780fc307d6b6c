"""A check of the first batch: recorded gradients are those of autograd."""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping
from contextlib import nullcontext
from functools import partial
from typing import Any

import torch
from torch import Tensor, nn
from torch.utils import _pytree as pytree

from taut.errors import UnsoundConfiguration
from taut.training._gradients.isolation.draws import Draws
from taut.training._gradients.isolation.sketch import Sketch
from taut.training._gradients.layers.records import Record
from taut.training._gradients.layers.rewrites import rewritten
from taut.training._gradients.tape import Tape
from taut.training._tensors.examples import LossFunction, apply, batch_size, copied, examples_of

__all__ = ["check_examples", "check_losses", "sum_of_squares"]

_SEED = 20_260_101  # any: forward passes that are compared must drop the same values
_MOST_EXAMPLES = 3
_FEWEST_EXAMPLES = 2  # of a large model: one of them has company already
_LARGE = 2**24  # parameters: from here on every further example takes a noticeable time
_TOLERANCE = 1e-3  # relative to the whole gradient; mistakes of this kind are of its own size
_LEAK = 1e-12  # of a squared norm: what does not depend on an example has a gradient of zero there
_COARSE_TOLERANCE = 0.1  # of half precision


def check_losses(tape: Tape, names: Mapping[Tensor, str], losses: Tensor) -> None:
    """Refuse a pass in which the loss of one example has a gradient at another.

    Args:
        tape: holds the pass; it is empty afterwards.
        names: names of the trainable parameters.
        losses: one per example, with the graph that leads to them; it is kept.
    """
    batch = len(losses)
    for chosen in {batch - 1} if _is_large(names) else {0, batch - 1}:
        tape.clear()
        torch.autograd.backward(losses[chosen], retain_graph=True)
        for parameter, record in tape.records(batch).items():
            norms = record.squared_norms()
            own = norms[chosen].item()
            norms[chosen] = 0.0
            if norms.sum().item() > _LEAK * own and math.isfinite(own):
                raise UnsoundConfiguration(
                    f"the loss of example {chosen} has a gradient in the rows of other examples at "
                    f"parameter {names[parameter]!r}: the model mixes examples, or an axis that is "
                    "not that of examples comes first"
                )
    tape.clear()


def check_examples(
    model: nn.Module,
    tape: Tape,
    names: Mapping[Tensor, str],
    inputs: Any,
    targets: Any = None,
    loss_fn: LossFunction | None = None,
    *,
    forward: Callable[..., Any] | None = None,
) -> Sketch:
    """Compare the gradients of a few examples with those of autograd.

    Args:
        model: what is trained.
        tape: tape of the model.
        names: names of the trainable parameters.
        inputs: inputs of a batch, of which the last examples are used.
        targets: targets for the loss function.
        loss_fn: loss function; by default the sum of squares of all outputs.
        forward: calls the model with the inputs, by default the model itself.

    Every pass over a large model counts: that of the tape serves both comparisons, and whether the
    model is stochastic is asked only if it drew something.

    Returns:
        a sketch of the gradients of these examples, which had no other company and another place.

    Raises:
        UnsoundConfiguration: naming the parameter at which gradients differ.
    """
    is_large = _is_large(names)
    batch = batch_size(inputs)
    few = min(batch, _FEWEST_EXAMPLES if is_large else _MOST_EXAMPLES)
    loss = sum_of_squares if loss_fn is None else loss_fn
    losses = _losses(model if forward is None else forward, loss, inputs, targets)
    together = slice(batch - few, batch)
    draws = Draws(model)
    with draws.again():
        if few > 1 and tape.has_unknown_layers:
            with tape.recording():  # a batch of another size shows what they take
                losses(slice(batch - 1, batch))
        with draws.again():
            with tape.recording():
                values = losses(together)
            # What a rewritten layer draws may be the same in another order.
            is_stochastic = draws.were_used and _is_stochastic(losses, together)
        check_losses(tape, names, values)
        found = _by_tape(tape, values)
        del values  # and with them the graph
        sketch = Sketch.of(found, list(names))
        with rewritten(model, (nn.Module,)) if is_stochastic else nullcontext(), draws.again():
            expected = _by_autograd(names, lambda: losses(together))
        _compare(names, partial(_summed, found, few), expected)
    return sketch


def _is_large(names: Mapping[Tensor, str]) -> bool:
    return sum(parameter.numel() for parameter in names) > _LARGE


def _losses(
    called: Callable[..., Any], loss: LossFunction, inputs: Any, targets: Any
) -> Callable[[slice], Tensor]:
    def losses(part: slice) -> Tensor:
        outputs = apply(called, copied(examples_of(inputs, part)))
        return loss(outputs, examples_of(targets, part))

    return losses


_NOT_RECORDED = "is not that of autograd; use the parameter only in calls of its layer"


def _by_autograd(names: Mapping[Tensor, str], losses: Callable[[], Tensor]) -> dict[Tensor, Tensor]:
    found = torch.autograd.grad(losses().sum(), list(names), allow_unused=True)
    pairs = zip(names, found, strict=True)
    return {p: torch.zeros_like(p) if grad is None else grad for p, grad in pairs}


def _by_tape(tape: Tape, values: Tensor) -> dict[Tensor, Record]:
    """Return the records of a pass whose losses are given."""
    torch.autograd.backward(values.sum())
    return tape.records(len(values))


def _summed(found: dict[Tensor, Record], batch: int, parameter: Tensor) -> Tensor:
    """Return the sum of examples' gradients at a parameter, whose record is let go."""
    record = found.pop(parameter, None)
    if record is None:
        return torch.zeros_like(parameter)
    kind = torch.float64 if parameter.dtype == torch.float64 else torch.float32
    return record.weighted_sum(torch.ones(batch, dtype=kind, device=parameter.device))


@torch.no_grad()
def _compare(
    names: Mapping[Tensor, str],
    summed: Callable[[Tensor], Tensor],
    expected: Mapping[Tensor, Tensor],
) -> None:
    size = torch.stack([grad.float().norm() for grad in expected.values()]).norm()
    if not bool(size.isfinite()):
        for parameter, grad in expected.items():
            lost = not bool(grad.isfinite().all())
            if lost and bool(summed(parameter).isfinite().all()):
                raise UnsoundConfiguration(
                    f"the gradient of an example at parameter {names[parameter]!r} is not finite "
                    f"on one of two ways to compute it: it {_NOT_RECORDED}"
                )
        return
    coarse = any(torch.is_autocast_enabled(p.device.type) or p.element_size() < 4 for p in names)
    tolerance = _COARSE_TOLERANCE if coarse else _TOLERANCE
    for parameter, grad in expected.items():
        # Written so that what is not finite on one side alone is refused as well.
        if not (summed(parameter) - grad).float().norm() <= tolerance * size:
            raise UnsoundConfiguration(
                f"the gradient of an example at parameter {names[parameter]!r} {_NOT_RECORDED}"
            )


def _is_stochastic(losses: Callable[[slice], Tensor], part: slice) -> bool:
    with torch.no_grad():
        values = []
        for seed in (_SEED, _SEED + 1):
            torch.manual_seed(seed)
            values.append(losses(part))
    one, other = values
    return not bool(((one == other) | (one.isnan() & other.isnan())).all())


def sum_of_squares(outputs: Any, _: Any) -> Tensor:
    """Return a loss of every example that depends on all of its outputs."""
    leaves = [
        x
        for x in pytree.tree_leaves(outputs)
        if isinstance(x, Tensor) and x.is_floating_point() and x.dim() > 0
    ]
    if not leaves:
        raise UnsoundConfiguration("the module must return tensors with examples first")
    precise = [x.float() if x.element_size() < 4 else x for x in leaves]
    return torch.stack([x.reshape(len(x), -1).square().sum(1) for x in precise]).sum(0)
