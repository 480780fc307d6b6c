"""Calls of a model in which every example has parameters of its own, for loops that exist.

What the model computes for an example then sees that example alone, whatever its code does, and
what comes back to the example's parameters is its gradient. This serves models that no tape can
record, at the price of gradients that are written out.
"""

from __future__ import annotations

import logging
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from functools import partial
from typing import Any

import torch
from torch import Tensor, nn
from torch.nn.attention import SDPBackend, sdpa_kernel
from torch.utils import _pytree as pytree

from taut.errors import UnsoundConfiguration
from taut.training._gradients.apart.materialised import CANNOT_VECTORISE
from taut.training._gradients.apart.padding import PaddingApart
from taut.training._gradients.layers.records import Record, Rows
from taut.training._gradients.layers.rewrites import rewritten
from taut.training._gradients.other_layers import quiet
from taut.training._gradients.unchanged_state import State
from taut.training._tensors.examples import batch_size

__all__ = ["ExampleCalls"]

_LOG = logging.getLogger(__name__)


class ExampleCalls:
    """Records a model as a tape does, by calling it with one example at a time.

    Examples are vectorised where `torch.vmap` can do it, and come one after the other where it
    cannot: code that branches on numbers, packed sequences, checkpoints of activations.

    Args:
        model: what is trained; it must take and return tensors with examples first. An output that
            is one number, such as a loss, becomes the mean of those of the examples.
    """

    has_unknown_layers = False

    def __init__(self, model: nn.Module) -> None:
        self._model = model
        self._state = State(model)
        self._rows: dict[Tensor, Tensor] = {}
        self._is_recording = False
        self._call_before: Any = None
        self._forward_before: Any = None
        self.is_attached = False
        """Whether calls of the model come here first."""
        self.vectorises = True
        """Whether examples are computed side by side."""

    def attach(self) -> None:
        """Let calls of the model come here first; nothing of it gets into copies or files.

        The place is that of a compiled call, which torch leaves out when it copies a module.
        """
        self._call_before = self._model._compiled_call_impl
        self._model._compiled_call_impl = self._call
        self.is_attached = True

    def detach(self) -> None:
        """Leave the model as it was."""
        self._model._compiled_call_impl = self._call_before
        self.is_attached = False

    @contextmanager
    def recording(self) -> Iterator[None]:
        """Take calls of the model inside apart into examples."""
        self.clear()
        for parameter in self._trainable().values():
            parameter.grad = None
        is_mine = not self.is_attached
        if is_mine:
            self.attach()
        self._is_recording = True
        try:
            with self._state.unchanged():
                yield
        finally:
            self._is_recording = False
            if is_mine:
                self.detach()

    def enter(self, args: tuple[Any, ...], kwargs: dict[str, Any]) -> None:
        """Do nothing: a call says itself how many examples it has."""

    def records(self, batch: int) -> dict[Tensor, Record]:
        """Return what backward passes left, one record for every parameter, and forget it."""
        found, self._rows = self._rows, {}
        for rows in found.values():
            if len(rows) != batch:
                raise UnsoundConfiguration(
                    f"the module was called with {len(rows)} rows where the batch has {batch} "
                    "examples; call it with the batch that the loader handed out, examples first"
                )
        # An expert that no example was sent to, say, has a gradient of zero.
        return {
            parameter: Rows(
                parameter,
                found.get(parameter, parameter.new_zeros(batch, 1)).expand(
                    batch, parameter.numel()
                ),
            )
            for parameter in self._trainable().values()
        }

    @property
    def is_empty(self) -> bool:
        """Whether no backward pass was recorded since records were taken."""
        return not self._rows

    def clear(self) -> None:
        """Forget what was recorded."""
        self._rows = {}

    @contextmanager
    def learning(self) -> Iterator[None]:
        """Do nothing: there is nothing that a first batch has to show."""
        yield

    def _trainable(self) -> dict[str, Tensor]:
        return {name: p for name, p in self._model.named_parameters() if p.requires_grad}

    def _call(self, *args: Any, **kwargs: Any) -> Any:
        own = vars(self._model)
        if own.get("forward") != self._forward:  # a call may go on inside of another
            self._forward_before = own.get("forward")
        own["forward"] = self._forward
        try:
            return self._model._call_impl(*args, **kwargs)  # with its hooks, once for the batch
        finally:
            self._restore_forward()

    def _restore_forward(self) -> Callable[..., Any]:
        vars(self._model).pop("forward", None)
        if self._forward_before is not None:
            vars(self._model)["forward"] = self._forward_before
        restored: Callable[..., Any] = self._model.forward
        return restored

    def _forward(self, *args: Any, **kwargs: Any) -> Any:
        forward = self._restore_forward()
        if not self._is_recording:
            return forward(*args, **kwargs)
        call = _Call(_Bare(self._model, forward), args, kwargs)
        if self.vectorises:
            try:
                return call.vectorised(self._own_rows(call.batch))
            except CANNOT_VECTORISE as problem:
                _LOG.info("examples are computed one after the other: %s", problem)
                self.vectorises = False
        return call.in_turn(partial(self._own_row, call.batch))

    def _own_rows(self, batch: int) -> dict[str, Tensor]:
        """Return parameters with one row for every example."""

        def keep(parameter: Tensor, copies: Tensor) -> None:
            grads, copies.grad = _taken(copies).flatten(1), None
            known = self._rows.get(parameter)
            self._rows[parameter] = grads if known is None else known + grads

        return {
            name: _leaf(p.detach()[None].expand(batch, *p.shape), partial(keep, p))
            for name, p in self._trainable().items()
        }

    def _own_row(self, batch: int, example: int) -> dict[str, Tensor]:
        """Return the parameters of one example."""

        def keep(parameter: Tensor, copy: Tensor) -> None:
            grads, copy.grad = _taken(copy).flatten(), None
            if parameter not in self._rows:
                self._rows[parameter] = grads.new_zeros(batch, len(grads))
            self._rows[parameter][example] += grads

        return {name: _leaf(p.detach(), partial(keep, p)) for name, p in self._trainable().items()}


class _Bare(nn.Module):
    """A model without its hooks, which are for the batch."""

    def __init__(self, model: nn.Module, forward: Callable[..., Any]) -> None:
        super().__init__()
        self.model = model
        self._called = forward

    def forward(self, *args: Any, **kwargs: Any) -> Any:
        return self._called(*args, **kwargs)


class _Call:
    """One call of a model with a batch."""

    def __init__(self, model: _Bare, args: tuple[Any, ...], kwargs: dict[str, Any]) -> None:
        self._model = model
        self._leaves, self._structure = pytree.tree_flatten((args, kwargs))
        self.batch = batch_size((args, kwargs))

    def vectorised(self, parameters: dict[str, Tensor]) -> Any:
        """Return the outputs for all examples, each computed with its own parameters."""
        kinds: list[Any] = []

        def of_one(own: dict[str, Tensor], rows: list[Tensor]) -> list[Tensor]:
            outputs = self._called(own, [row[None] for row in rows])
            leaves, kinds[:] = outputs[0], [outputs[1], [_Output(leaf) for leaf in outputs[0]]]
            return [
                _of_example(leaf) if leaf.dim() else leaf
                for leaf in leaves
                if isinstance(leaf, Tensor)
            ]

        rows = [leaf for leaf in self._leaves if _has_rows(leaf)]
        # Attention in elementary operations: its fused kernels are not vectorised.
        kernels = sdpa_kernel(SDPBackend.MATH)
        with rewritten(self._model), kernels, quiet(), PaddingApart():
            found = iter(torch.vmap(of_one, randomness="different")(parameters, rows))
        structure, kept = kinds
        leaves = [_joined(next(found), kind) if kind.is_tensor else kind.value for kind in kept]
        return pytree.tree_unflatten(leaves, structure)

    def in_turn(self, parameters: Callable[[int], dict[str, Tensor]]) -> Any:
        """Return the outputs for all examples, computed one after the other."""
        found = []
        for i in range(self.batch):
            rows = [leaf[i : i + 1] for leaf in self._leaves if _has_rows(leaf)]
            found.append(self._called(parameters(i), rows))
        structure = found[0][1]
        kinds = [_Output(leaf) for leaf in found[0][0]]
        leaves = []
        for kind, column in zip(
            kinds, zip(*(leaves for leaves, _ in found), strict=True), strict=True
        ):
            if not kind.is_tensor:
                leaves.append(kind.value)
                continue
            values = [_of_example(leaf) if leaf.dim() else leaf for leaf in column]
            if len({value.shape for value in values}) > 1:
                raise UnsoundConfiguration(
                    "the module returns outputs of another shape for one example than for "
                    "another; let it return the same for all, such as with total_length= of "
                    "pad_packed_sequence"
                )
            leaves.append(_joined(torch.stack(values), kind))
        return pytree.tree_unflatten(leaves, structure)

    def _called(
        self, parameters: dict[str, Tensor], rows: Sequence[Tensor]
    ) -> tuple[list[Any], pytree.TreeSpec]:
        mine = iter(rows)
        leaves = [next(mine) if _has_rows(leaf) else leaf for leaf in self._leaves]
        args, kwargs = pytree.tree_unflatten(leaves, self._structure)
        named = {f"model.{name}": value for name, value in parameters.items()}
        output = torch.func.functional_call(self._model, named, args, kwargs)
        return pytree.tree_flatten(output)


class _Output:
    """What an output of one example is: a tensor with rows, a number, or something else."""

    def __init__(self, leaf: object) -> None:
        self.is_tensor = isinstance(leaf, Tensor)
        self.is_number = isinstance(leaf, Tensor) and leaf.dim() == 0
        plain = leaf is None or isinstance(leaf, bool | int | float | str)
        self.value = leaf if plain else None  # objects with tensors inside are of one example


def _joined(values: Tensor, kind: _Output) -> Tensor:
    if kind.is_number:
        return values.mean() if values.is_floating_point() else values[0]
    return values


def _of_example(leaf: Tensor) -> Tensor:
    if len(leaf) != 1:
        raise UnsoundConfiguration(
            f"the module returns a tensor of shape {tuple(leaf.shape)} for one example; outputs "
            "must have examples first"
        )
    return leaf[0]


def _has_rows(leaf: object) -> bool:
    return isinstance(leaf, Tensor) and leaf.dim() > 0


def _leaf(value: Tensor, keep: Callable[[Tensor], None]) -> Tensor:
    own = value.requires_grad_()
    own.register_post_accumulate_grad_hook(keep)
    return own


def _taken(own: Tensor) -> Tensor:
    grads = own.grad
    assert grads is not None
    return grads.float() if grads.element_size() < 4 else grads
