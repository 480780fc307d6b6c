"""The loss of a user's loop: whatever it computes, what gets into the model is checked.

The outputs of the model are handed to the loop through one node of the graph. On its way back, the
gradient of every example at its outputs is compared with that of a loss of this example alone; the
latter goes on into the model. So no loss of pairs, no average with weights of others and no count
of others' tokens gets through.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import Any, TypeAlias

import torch
from torch import Tensor
from torch.autograd.function import FunctionCtx
from torch.utils import _pytree as pytree

from taut.errors import UnsoundConfiguration
from taut.training._step.usual_losses import OfLeaf, usual_losses
from taut.training._tensors.examples import LossFunction

__all__ = ["Criterion", "LoopLoss"]

Criterion: TypeAlias = Callable[[Any, Any, int], LossFunction]
"""Makes a loss of single examples of what the model says about a batch, its targets and size."""

_CLOSE = 1e-3  # of an example's gradient: other losses differ by much more, rounding by much less
_COARSE = 2.0**-5  # in half precision
_VALUE = 1e-4  # of a loss: averages over unequal numbers of labels differ by more

Grads: TypeAlias = Sequence[Tensor | None]


class LoopLoss:
    """Knows the loss of single examples, given or recognised by its gradients.

    Args:
        criterion: makes that loss; None if it is to be recognised.
        is_mean: whether the loop averages over examples, or sums up.
    """

    def __init__(self, criterion: Criterion | None, *, is_mean: bool) -> None:
        self._criterion = criterion
        self._is_mean = is_mean
        self._loss: LossFunction | None = None
        self._is_given = criterion is not None

    def through(self, outputs: Any, batch: Any, size: int, check: Callable[[], None]) -> Any:
        """Return the outputs for the loop; gradients of the loop are judged on their way back.

        Args:
            outputs: outputs of the model.
            batch: what the loader handed out.
            size: how many examples that is.
            check: refuses a call that cannot be judged, once its gradients come back.
        """
        leaves, structure = pytree.tree_flatten(outputs)
        places = [i for i, leaf in enumerate(leaves) if _is_open(leaf)]
        if not places:
            return outputs
        open_leaves = [leaves[i] for i in places]
        seen: list[bool] = []

        def judged(grads: Grads) -> Grads:
            if seen:
                raise UnsoundConfiguration(
                    "backward() ran twice on the outputs of one call of the model; add the losses "
                    "up and call backward() once"
                )
            seen.append(True)
            check()
            return self._judged(outputs, batch, size, grads)

        found = _Joint.apply(judged, *open_leaves)  # type: ignore[no-untyped-call]
        for place, leaf in zip(places, found, strict=True):
            leaves[place] = leaf
        return pytree.tree_unflatten(leaves, structure)

    def pull(self, outputs: Any, batch: Any, size: int) -> None:
        """Run the backward pass of the loss of single examples."""
        grads = self._expected(outputs, batch, size)
        pairs = [
            (leaf, grad)
            for leaf, grad in zip(_open_leaves(outputs), grads, strict=True)
            if grad is not None
        ]
        torch.autograd.backward([leaf for leaf, _ in pairs], [grad for _, grad in pairs])

    def _judged(self, outputs: Any, batch: Any, size: int, grads: Grads) -> Grads:
        leaves = _open_leaves(outputs)
        rows = [leaf.dim() > 0 and len(leaf) == size for leaf in leaves]
        scalars = [i for i, g in enumerate(grads) if g is not None and leaves[i].dim() == 0]
        others = [i for i, g in enumerate(grads) if g is not None and leaves[i].dim() > 0]
        if scalars and others:
            raise _not_a_mean("adds to a loss that the model returns")
        if scalars:
            return self._instead_of_scalar(outputs, batch, size, scalars, grads)
        if self._loss is None and self._is_given:
            self._expected(outputs, batch, size)
        if self._loss is not None:
            expected = self._expected(outputs, batch, size)
            if _agree(grads, expected):
                return expected
            _refuse_scaled(grads, expected)
        if self._is_given:
            raise _not_a_mean("is not the mean of criterion over the examples of the batch")
        chosen = [i for i in others if rows[i]]
        if len(chosen) == len(others) == 1:
            for loss in self._candidates(leaves, chosen, batch, size):
                self._loss = loss
                expected = self._expected(outputs, batch, size)
                if _agree(grads, expected):
                    return expected
                _refuse_scaled(grads, expected)
        self._loss = None
        raise _not_a_mean("is not a usual loss, averaged over the examples of the batch")

    def _instead_of_scalar(
        self, outputs: Any, batch: Any, size: int, scalars: list[int], grads: Grads
    ) -> Grads:
        """Return gradients at rows of outputs that have the same effect as a loss of the model."""
        leaves = _open_leaves(outputs)
        if self._is_given:
            return self._expected(outputs, batch, size)
        if len(scalars) == 1 and float(grads[scalars[0]] or 0.0) == 1.0:
            value = leaves[scalars[0]].detach()
            chosen = [i for i, leaf in enumerate(leaves) if leaf.dim() > 1 and len(leaf) == size]
            known = [] if self._loss is None else [self._loss]
            for loss in (*known, *self._candidates(leaves, chosen, batch, size)):
                with torch.no_grad():
                    values = loss(outputs, batch)
                found = values.mean() if self._is_mean else values.sum()
                if torch.isclose(found.to(value.dtype), value, rtol=_VALUE, atol=0.0):
                    self._loss = loss
                    return self._expected(outputs, batch, size)
        raise _not_a_mean(
            "is one that the model returns, and not the mean over examples of their own losses: "
            "with padded labels it divides by the tokens of all examples"
        )

    def _candidates(
        self, leaves: Sequence[Tensor], chosen: list[int], batch: Any, size: int
    ) -> list[LossFunction]:
        targets = [
            (place, leaf)
            for place, leaf in enumerate(pytree.tree_leaves(_plain(batch)))
            if isinstance(leaf, Tensor) and leaf.dim() and len(leaf) == size
        ]
        return [
            _Usual(loss, i, place)
            for i in chosen
            for place, target in reversed(targets)
            for loss in usual_losses(leaves[i], target)
        ]

    def _expected(self, outputs: Any, batch: Any, size: int) -> Grads:
        """Return the gradients of the losses of single examples at the outputs."""
        leaves, structure = pytree.tree_flatten(outputs)
        places = [i for i, leaf in enumerate(leaves) if _is_open(leaf)]
        own = [leaves[i].detach().requires_grad_() for i in places]
        for place, leaf in zip(places, own, strict=True):
            leaves[place] = leaf
        free = pytree.tree_unflatten(leaves, structure)
        moved = _moved(batch, own[0].device)
        if self._loss is None:
            assert self._criterion is not None
            targets = _targets(moved)
            made = self._criterion(
                pytree.tree_map(lambda x: x.detach() if isinstance(x, Tensor) else x, free),
                targets,
                size,
            )
            self._loss = lambda given, whole: made(given, _targets(whole))
        with torch.enable_grad():
            values = self._loss(free, moved)
            if values.shape != (size,):
                raise UnsoundConfiguration(
                    f"criterion must return one loss per example, got shape {tuple(values.shape)} "
                    f"for {size} examples; use reduction='none'"
                )
            total = values.sum() / size if self._is_mean else values.sum()
        return torch.autograd.grad(total, own, allow_unused=True)


class _Usual:
    """A usual loss of one output and one tensor of the batch, by their places."""

    def __init__(self, loss: OfLeaf, output: int, target: int) -> None:
        self._loss, self._output, self._target = loss, output, target

    def __call__(self, outputs: Any, batch: Any) -> Tensor:
        output = _open_leaves(outputs)[self._output]
        target = pytree.tree_leaves(_plain(batch))[self._target].to(output.device)
        return self._loss(output, target)


class _Joint(torch.autograd.Function):
    """Lets values through, and has the gradients of all of them judged at once."""

    @staticmethod
    def forward(ctx: FunctionCtx, judged: Any, *values: Tensor) -> tuple[Tensor, ...]:
        ctx.judged = judged  # type: ignore[attr-defined]
        ctx.set_materialize_grads(False)
        return tuple(value.detach() for value in values)

    @staticmethod
    def backward(ctx: FunctionCtx, *grads: Tensor | None) -> tuple[Tensor | None, ...]:
        return None, *ctx.judged(grads)  # type: ignore[attr-defined]


def _is_open(leaf: object) -> bool:
    return isinstance(leaf, Tensor) and leaf.requires_grad and leaf.is_floating_point()


def _open_leaves(outputs: Any) -> list[Tensor]:
    return [leaf for leaf in pytree.tree_leaves(outputs) if _is_open(leaf)]


def _plain(batch: Any) -> Any:
    """Return mappings of other libraries as dictionaries, whose values torch finds."""
    return dict(batch) if isinstance(batch, Mapping) else batch


def _moved(batch: Any, device: torch.device) -> Any:
    return pytree.tree_map(lambda x: x.to(device) if isinstance(x, Tensor) else x, _plain(batch))


def _targets(batch: Any) -> Any:
    """Return what a criterion takes beside outputs: the last of a tuple, or a whole mapping."""
    if isinstance(batch, tuple | list):
        return batch[-1] if len(batch) > 1 else None
    return batch if isinstance(batch, Mapping) else None


@torch.no_grad()
def _agree(grads: Grads, expected: Grads) -> bool:
    for one, other in zip(grads, expected, strict=True):
        if one is None and other is None:
            continue
        two = torch.zeros_like(one) if other is None else other  # type: ignore[arg-type]
        first = torch.zeros_like(two) if one is None else one
        if first.dim() == 0:
            return False
        tolerance = _COARSE if first.element_size() < 4 or two.element_size() < 4 else _CLOSE
        lengths = two.float().flatten(1).norm(dim=1) if two.dim() > 1 else two.float().abs()
        off = (first.float() - two.float()).reshape(len(two), -1).norm(dim=1)
        floor = tolerance * (
            lengths[lengths.isfinite()].amax() if bool(lengths.isfinite().any()) else 0
        )
        close = off <= tolerance * (lengths + floor)
        both_lost = ~first.reshape(len(two), -1).isfinite().all(1) & ~lengths.isfinite()
        if not bool((close | both_lost).all()):
            return False
    return True


@torch.no_grad()
def _refuse_scaled(grads: Grads, expected: Grads) -> None:
    """Refuse a loss that is a multiple of the mean over examples, and say which."""
    pairs = [
        (one.double(), two.double())
        for one, two in zip(grads, expected, strict=True)
        if one is not None and two is not None
    ]
    if not pairs:
        return
    length = float(sum((two.square().sum() for _, two in pairs), torch.zeros(())))
    factor = float(sum((one.mul(two).sum() for one, two in pairs), torch.zeros(()))) / (length or 1)
    scaled = [None if grad is None else grad * factor for grad in expected]
    if factor > 0 and _agree(grads, scaled):
        raise UnsoundConfiguration(
            f"the loss of this loop is {factor:.6g} times the mean of a loss over the examples of "
            "the batch (their sum, with loss_reduction='sum'): what is clipped would be scaled. "
            "GradScaler does that, and leaves out steps whose gradients are not finite, which "
            "depends on examples: use bfloat16, which needs no scaling. Instead of dividing a loss "
            "by a number of parts, give make_private max_physical_batch_size, and instead of "
            "weighing it, change the learning rate"
        )


def _not_a_mean(problem: str) -> UnsoundConfiguration:
    return UnsoundConfiguration(
        f"the loss of this loop {problem}: an example might get into the gradients of others by "
        "it. Say what the loss of one example is, and average in the loop:\n"
        "    criterion = lambda outputs, targets: ...  # one loss per example: reduction='none'\n"
        "    ... = make_private(..., criterion=criterion)  # targets: the last of a batch, or all "
        "of a dictionary\n"
        "    loss = criterion(model(x), y).mean()\n"
        "or train with unchecked_isolation=True, which the ledger repeats"
    )
