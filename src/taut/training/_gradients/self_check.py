"""Checks of the first batch: recorded gradients are those of autograd, and stand alone."""

from __future__ import annotations

import logging
import math
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager, nullcontext
from typing import Any

import torch
from torch import Tensor, nn
from torch.utils import _pytree as pytree

from taut.errors import UnsoundConfiguration
from taut.training._gradients.dropout import without_dropout
from taut.training._gradients.layers.rewrites import rewritten
from taut.training._gradients.tape import Tape
from taut.training._tensors.examples import LossFunction, apply, batch_size, examples_of

__all__ = ["check_examples", "check_losses", "sum_of_squares"]

_LOG = logging.getLogger(__name__)
_SEED = 20_260_101  # any: forward passes that are compared must drop the same values
_MOST_EXAMPLES = 3
_TOLERANCE = 1e-3  # relative to the whole gradient; mistakes of this kind are of its own size
_LEAK = 1e-12  # of a squared norm: what does not depend on an example has a gradient of zero there
_COARSE_TOLERANCE = 0.1  # of half precision


def check_losses(tape: Tape, names: Mapping[Tensor, str], losses: Tensor) -> None:
    """Refuse a pass in which the loss of one example has a gradient at another.

    Args:
        tape: holds the pass; it is empty afterwards.
        names: of the trainable parameters.
        losses: one per example, with the graph that leads to them; it is kept.
    """
    batch = len(losses)
    for chosen in {0, batch - 1}:
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
) -> None:
    """Compare the gradients of a few examples with those of autograd, and with each alone.

    Args:
        model: what is trained.
        tape: of the model.
        names: of the trainable parameters.
        inputs: of a batch, of which the first examples are used.
        targets: for the loss function.
        loss_fn: by default the sum of squares of all outputs.
        forward: calls the model with the inputs, by default the model itself.

    Examples alone are compared with the batch without dropout, which draws otherwise for them.
    Rounding differs between the two, and flips kinks of deep networks now and then: what differs
    in single precision is compared once more in double.

    Raises:
        UnsoundConfiguration: naming the parameter at which gradients differ.
    """
    few = min(batch_size(inputs), _MOST_EXAMPLES)
    loss = sum_of_squares if loss_fn is None else loss_fn
    called = model if forward is None else forward
    losses = _losses(called, loss, inputs, targets)
    together = slice(0, few)
    with _same_randomness(names):
        if few > 1 and tape.has_unknown_layers:
            with tape.recording():  # a batch of another size shows what they take
                losses(slice(0, 1))
        rows = _by_tape(tape, names, lambda: losses(together))
        is_stochastic = _is_stochastic(losses, together)
        # What a rewritten layer draws may be the same in another order.
        with rewritten(model, (nn.Module,)) if is_stochastic else nullcontext():
            expected = _by_autograd(names, lambda: losses(together))
        _compare(names, {p: g.sum(0) for p, g in rows.items()}, expected, _NOT_RECORDED)
        if few > 1:
            with without_dropout(model) if is_stochastic else nullcontext():
                try:
                    _check_alone(tape, names, losses, together)
                except _Differs as difference:
                    wide = _losses(called, loss, _doubled(inputs), _doubled(targets))
                    try:
                        with _in_double(model):
                            _check_alone(tape, names, wide, together)
                    except (RuntimeError, TypeError):  # a model that has a type of its own
                        raise difference from None


def _losses(
    called: Callable[..., Any], loss: LossFunction, inputs: Any, targets: Any
) -> Callable[[slice], Tensor]:
    def losses(part: slice) -> Tensor:
        outputs = apply(called, examples_of(inputs, part))
        return loss(outputs, examples_of(targets, part))

    return losses


def _check_alone(
    tape: Tape, names: Mapping[Tensor, str], losses: Callable[[slice], Tensor], together: slice
) -> None:
    if _is_stochastic(losses, together):
        _LOG.warning(
            "the model is stochastic without dropout too: that examples alone have the gradients "
            "that they have in the batch was not checked"
        )
        return
    rows = _by_tape(tape, names, lambda: losses(together))
    for i in range(together.stop):
        alone = _by_tape(tape, names, lambda i=i: losses(slice(i, i + 1)))  # type: ignore[misc]
        found = {parameter: grads[i] for parameter, grads in rows.items()}
        _compare(names, found, {p: grads[0] for p, grads in alone.items()}, _MIXED)


class _Differs(UnsoundConfiguration):
    """Gradients that should be equal are not, in the precision in which they were computed."""


@contextmanager
def _in_double(model: nn.Module) -> Iterator[None]:
    """Compute in double precision inside; parameters and buffers stay the objects that they are."""
    tensors = [*model.parameters(), *model.buffers()]
    kept = [(tensor, tensor.data) for tensor in tensors if tensor.dtype == torch.float32]
    try:
        for tensor, data in kept:
            tensor.data = data.double()
        yield
    finally:
        for tensor, data in kept:
            tensor.data = data


def _doubled(values: Any) -> Any:
    def double(value: Any) -> Any:
        single = isinstance(value, Tensor) and value.dtype == torch.float32
        return value.double() if single else value

    return pytree.tree_map(double, values)


_NOT_RECORDED = "is not that of autograd; use the parameter only in calls of its layer"
_MIXED = "depends on the other examples of the batch; remove what mixes examples in forward"


def _by_autograd(names: Mapping[Tensor, str], losses: Callable[[], Tensor]) -> dict[Tensor, Tensor]:
    torch.manual_seed(_SEED)
    found = torch.autograd.grad(losses().sum(), list(names), allow_unused=True)
    pairs = zip(names, found, strict=True)
    return {p: torch.zeros_like(p) if grad is None else grad for p, grad in pairs}


def _by_tape(
    tape: Tape, names: Mapping[Tensor, str], losses: Callable[[], Tensor]
) -> dict[Tensor, Tensor]:
    torch.manual_seed(_SEED)
    with tape.recording():
        values = losses()
    check_losses(tape, names, values)
    torch.autograd.backward(values.sum())
    found = tape.records(len(values))
    return {
        p: found[p].rows().view(-1, *p.shape) if p in found else p.new_zeros(len(values), *p.shape)
        for p in names
    }


def _compare(
    names: Mapping[Tensor, str],
    found: Mapping[Tensor, Tensor],
    expected: Mapping[Tensor, Tensor],
    problem: str,
) -> None:
    size = torch.stack([grad.float().norm() for grad in expected.values()]).norm()
    if not bool(size.isfinite()):
        for parameter, grad in expected.items():
            lost = not bool(grad.isfinite().all())
            if lost and bool(found[parameter].isfinite().all()):
                raise _Differs(
                    f"the gradient of an example at parameter {names[parameter]!r} is not finite "
                    f"on one of two ways to compute it: it {problem}"
                )
        return
    coarse = any(torch.is_autocast_enabled(p.device.type) or p.element_size() < 4 for p in names)
    tolerance = _COARSE_TOLERANCE if coarse else _TOLERANCE
    for parameter, grad in expected.items():
        # Written so that what is not finite on one side alone is refused as well.
        if not (found[parameter] - grad).float().norm() <= tolerance * size:
            raise _Differs(
                f"the gradient of an example at parameter {names[parameter]!r} {problem}"
            )


def _is_stochastic(losses: Callable[[slice], Tensor], part: slice) -> bool:
    with torch.no_grad():
        values = []
        for seed in (_SEED, _SEED + 1):
            torch.manual_seed(seed)
            values.append(losses(part))
    one, other = values
    return not bool(((one == other) | (one.isnan() & other.isnan())).all())


@contextmanager
def _same_randomness(names: Mapping[Tensor, str]) -> Iterator[None]:
    devices = {p.device.index for p in names if p.device.type == "cuda"}
    with torch.random.fork_rng(devices=sorted(devices)):
        yield


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
