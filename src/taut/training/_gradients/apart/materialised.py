"""The other back end: every example's gradient written out, for models that cannot be recorded."""

from __future__ import annotations

import logging
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, TypeAlias

import torch
from torch import Tensor, nn
from torch.nn.attention import SDPBackend, sdpa_kernel
from torch.utils import _pytree as pytree

from taut.training._gradients.copies import OnCopies
from taut.training._gradients.layers.records import Record, Rows
from taut.training._gradients.layers.rewrites import rewritten
from taut.training._gradients.other_layers import quiet
from taut.training._gradients.unchanged_state import State
from taut.training._tensors.examples import LossFunction, apply, batch_size, examples_of

__all__ = ["CANNOT_VECTORISE", "Materialised"]

_LOG = logging.getLogger(__name__)


_Gradients: TypeAlias = Callable[
    [dict[str, Tensor], list[Tensor]], tuple[dict[str, Tensor], Tensor]
]
"""Takes parameters and the tensors of a batch; returns gradients by name, and losses."""

_FEW_ROWS = 8  # fewer, such as checks run, take less time than compiling for their number does
_MOST_BYTES = 256 * 2**20

CANNOT_VECTORISE = (AssertionError, AttributeError, IndexError, RuntimeError, TypeError, ValueError)
"""What `torch.vmap` raises for code that looks at numbers, or that it has no rule for."""


class Materialised:
    """Gradients of examples one by one, vectorised over as many as memory allows.

    Args:
        model: what is trained.
        compile: hand the vectorised function to `torch.compile`.
        copies: how many rows of inputs an example has, along the second axis.
    """

    def __init__(
        self,
        model: nn.Module,
        *,
        compile: bool = False,  # noqa: A002
        copies: int = 1,
    ) -> None:
        self._model = model
        self._copies = copies
        self._compile = compile
        self._state = State(model)
        self._vectorises = True
        self._last: tuple[_Form, _Gradients] | None = None

    def records(
        self, inputs: Any, targets: Any, loss: LossFunction
    ) -> Iterator[tuple[dict[Tensor, Record], Tensor]]:
        """Yield the records and the losses of one part of the batch after the other."""
        named = {name: p for name, p in self._model.named_parameters() if p.requires_grad}
        detached = {name: parameter.detach() for name, parameter in named.items()}
        leaves, structure = pytree.tree_flatten((inputs, targets))
        tensors = [leaf for leaf in leaves if isinstance(leaf, Tensor)]
        rest = [None if isinstance(leaf, Tensor) else leaf for leaf in leaves]
        places = [i for i, leaf in enumerate(leaves) if isinstance(leaf, Tensor)]
        of_all = self._vectorised(_Form(structure, tuple(places), rest, loss))
        one = sum(p.numel() * p.element_size() for p in named.values())
        batch, step = batch_size(inputs), max(1, _MOST_BYTES // (4 * max(1, one)))
        for start in range(0, batch, step):
            part = slice(start, start + step)
            if not self._vectorises:
                yield self._in_turn(named, examples_of((inputs, targets), part), loss)
                continue
            # Attention in elementary operations: its fused kernels are not vectorised.
            kernels = sdpa_kernel(SDPBackend.MATH)
            rows_of = [self._filled(tensor[part]) for tensor in tensors]
            try:
                with self._state.unchanged(), rewritten(self._model), kernels, quiet():
                    grads, losses = of_all(detached, rows_of)
            except CANNOT_VECTORISE as problem:
                _LOG.info("examples are computed one after the other: %s", problem)
                self._vectorises = False
                yield self._in_turn(named, examples_of((inputs, targets), part), loss)
                continue
            size = min(step, batch - start)
            rows: dict[Tensor, Record] = {
                p: Rows(p, _precise(grads[name][:size])) for name, p in named.items()
            }
            yield rows, losses[:size].detach()

    def _in_turn(
        self, named: Mapping[str, Tensor], examples: tuple[Any, Any], loss: LossFunction
    ) -> tuple[dict[Tensor, Record], Tensor]:
        """Return the records and losses of examples by plain autograd, one after the other.

        The parameters are the model's own, since checkpoints of activations ask for them again in
        the backward pass.
        """
        inputs, targets = examples
        batch, called = batch_size(inputs), self._on_copies(self._model)
        dtypes = {p: torch.promote_types(p.dtype, torch.float32) for p in named.values()}
        rows = {
            p: torch.zeros(batch, p.numel(), dtype=d, device=p.device) for p, d in dtypes.items()
        }
        losses = []
        with self._state.unchanged(), torch.enable_grad():
            for i in range(batch):
                one = slice(i, i + 1)
                for parameter in rows:
                    parameter.grad = None
                value = self._loss_of(
                    called, examples_of(inputs, one), examples_of(targets, one), loss
                )
                torch.autograd.backward(value)
                losses.append(value.detach())
                for parameter, grads in rows.items():
                    if parameter.grad is not None:
                        grads[i] = parameter.grad.flatten()
                        parameter.grad = None
        return {p: Rows(p, grads) for p, grads in rows.items()}, torch.stack(losses)

    def _filled(self, values: Tensor) -> Tensor:
        """Return a few more rows if compiled, copies whose gradients are left out.

        A vectorised function is compiled for one number of examples, and batches have many: with
        four sizes between powers of two, few functions serve them all.
        """
        size = len(values)
        unit = max(1, 2 ** (size.bit_length() - 3))
        if not self._compile or size % unit == 0:
            return values
        return torch.cat([values, values[-1:].expand(-size % unit, *values.shape[1:])])

    def _vectorised(self, form: _Form) -> _Gradients:
        """Return the function for batches of one form; to compile it again would take seconds."""
        if self._last is None or self._last[0] != form:

            def of_one(parameters: dict[str, Tensor], tensors: list[Tensor]) -> Tensor:
                given, wanted = form.with_tensors([tensor[None] for tensor in tensors])
                return self._loss(parameters, given, wanted, form.loss)

            of_each = torch.func.grad_and_value(of_one)
            of_all: _Gradients = torch.vmap(of_each, (None, 0), randomness="different")
            self._last = form, _compiled(of_all) if self._compile else of_all
        return self._last[1]

    def _loss(
        self, parameters: dict[str, Tensor], inputs: Any, targets: Any, loss: LossFunction
    ) -> Tensor:
        return self._loss_of(
            self._on_copies(_Called(self._model, parameters)), inputs, targets, loss
        )

    def _on_copies(self, called: Callable[..., Any]) -> Callable[..., Any]:
        return OnCopies(called, self._copies) if self._copies > 1 else called

    @staticmethod
    def _loss_of(
        called: Callable[..., Any], inputs: Any, targets: Any, loss: LossFunction
    ) -> Tensor:
        value = loss(apply(called, inputs), targets)
        if value.numel() != 1:
            raise ValueError(
                "loss_fn must return one loss per example, got shape "
                f"{tuple(value.shape)} for one; use reduction='none'"
            )
        return value.sum()


@dataclass(frozen=True)
class _Form:
    """What batches have in common whatever their size: all but the tensors themselves."""

    structure: pytree.TreeSpec
    places: tuple[int, ...]
    rest: list[Any]
    loss: LossFunction

    def with_tensors(self, tensors: Sequence[Tensor]) -> Any:
        """Return inputs and targets of this form."""
        leaves = list(self.rest)
        for place, tensor in zip(self.places, tensors, strict=True):
            leaves[place] = tensor
        return pytree.tree_unflatten(leaves, self.structure)


class _Called:
    """A model with other values for its parameters."""

    def __init__(self, model: nn.Module, parameters: dict[str, Tensor]) -> None:
        self._model = model
        self._parameters = parameters

    def __call__(self, *args: Any, **kwargs: Any) -> Any:
        return torch.func.functional_call(self._model, self._parameters, args, kwargs)


def _precise(grads: Tensor) -> Tensor:
    return grads.float() if grads.element_size() < 4 else grads


def _compiled(of_all: _Gradients) -> _Gradients:
    """Return a function that is compiled for every number of rows but a few."""
    quick: _Gradients = torch.compile(of_all, dynamic=False)

    def chosen(
        parameters: dict[str, Tensor], tensors: list[Tensor]
    ) -> tuple[dict[str, Tensor], Tensor]:
        return (of_all if len(tensors[0]) < _FEW_ROWS else quick)(parameters, tensors)

    return chosen
