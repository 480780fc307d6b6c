"""The other back end: every example's gradient written out, for models that cannot be recorded."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from typing import Any, TypeAlias

import torch
from torch import Tensor, nn
from torch.nn.attention import SDPBackend, sdpa_kernel
from torch.utils import _pytree as pytree

from taut.errors import UnsoundConfiguration
from taut.training._leaf import quiet
from taut.training._records import Record, Rows
from taut.training._rewrites import rewritten
from taut.training._state import State

__all__ = ["LossFunction", "Materialised", "apply", "batch_size", "examples_of"]

LossFunction: TypeAlias = Callable[[Any, Any], Tensor]
"""Takes a model's outputs and the targets, and returns one loss per example."""

_MOST_BYTES = 256 * 2**20


class Materialised:
    """Gradients of examples one by one, vectorised over as many as memory allows.

    Args:
        model: what is trained.
        compile: hand the vectorised function to `torch.compile`.
    """

    def __init__(self, model: nn.Module, *, compile: bool = False) -> None:  # noqa: A002
        self._model = model
        self._compile = compile
        self._state = State(model)

    def records(
        self, inputs: Any, targets: Any, loss: LossFunction
    ) -> Iterator[tuple[dict[Tensor, Record], Tensor]]:
        """Yield the records and the losses of one part of the batch after the other."""
        named = {name: p for name, p in self._model.named_parameters() if p.requires_grad}
        detached = {name: parameter.detach() for name, parameter in named.items()}
        leaves, structure = pytree.tree_flatten((inputs, targets))
        places = [i for i, leaf in enumerate(leaves) if isinstance(leaf, Tensor)]

        def of_one(parameters: dict[str, Tensor], tensors: list[Tensor]) -> Tensor:
            alone = dict(zip(places, tensors, strict=True))
            parts = [alone[i][None] if i in alone else leaf for i, leaf in enumerate(leaves)]
            given, wanted = pytree.tree_unflatten(parts, structure)
            return self._loss(parameters, given, wanted, loss)

        tensors = [leaves[i] for i in places]
        of_all = torch.vmap(torch.func.grad_and_value(of_one), (None, 0), randomness="different")
        if self._compile:
            of_all = torch.compile(of_all)
        one = sum(p.numel() * p.element_size() for p in named.values())
        batch, step = batch_size(inputs), max(1, _MOST_BYTES // (4 * max(1, one)))
        for start in range(0, batch, step):
            part = slice(start, start + step)
            # Attention in elementary operations: its fused kernels are not vectorised.
            kernels = sdpa_kernel(SDPBackend.MATH)
            with self._state.unchanged(), rewritten(self._model), kernels, quiet():
                grads, losses = of_all(detached, [tensor[part] for tensor in tensors])
            yield {p: Rows(p, _precise(grads[name])) for name, p in named.items()}, losses.detach()

    def _loss(
        self, parameters: dict[str, Tensor], inputs: Any, targets: Any, loss: LossFunction
    ) -> Tensor:
        value = loss(apply(_Called(self._model, parameters), inputs), targets)
        if value.numel() != 1:
            raise ValueError(
                "loss_fn must return one loss per example, got shape "
                f"{tuple(value.shape)} for one; use reduction='none'"
            )
        return value.sum()


class _Called:
    """A model with other values for its parameters."""

    def __init__(self, model: nn.Module, parameters: dict[str, Tensor]) -> None:
        self._model = model
        self._parameters = parameters

    def __call__(self, *args: Any, **kwargs: Any) -> Any:
        return torch.func.functional_call(self._model, self._parameters, args, kwargs)


def apply(model: Callable[..., Any], inputs: Any) -> Any:
    """Call a model with its inputs: a tuple by position, a mapping by keyword, or a single one."""
    if isinstance(inputs, dict):
        return model(**inputs)
    if isinstance(inputs, tuple | list):
        return model(*inputs)
    return model(inputs)


def batch_size(inputs: Any) -> int:
    """Return the number of examples, which all tensors must share as their first axis."""
    sizes = {len(x) for x in pytree.tree_leaves(inputs) if isinstance(x, Tensor) and x.dim() > 0}
    if len(sizes) != 1:
        raise UnsoundConfiguration(
            f"inputs must share one first axis, that of examples; found sizes {sorted(sizes)}"
        )
    return sizes.pop()


def examples_of(values: Any, part: slice) -> Any:
    """Return some examples of inputs or targets, in whatever structure."""
    return pytree.tree_map(lambda x: x[part] if isinstance(x, Tensor) else x, values)


def _precise(grads: Tensor) -> Tensor:
    return grads.float() if grads.element_size() < 4 else grads
