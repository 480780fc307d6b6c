"""Per-example gradients of a layer that nobody wrote a rule for, by torch's own transformations."""

from __future__ import annotations

import warnings
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from typing import Any

import torch
from torch import Tensor, nn
from torch.autograd.function import FunctionCtx
from torch.utils import _pytree as pytree

from taut.errors import UnsoundConfiguration
from taut.training._gradients.layers.records import Record, Rows

__all__ = ["Arguments", "LeafCall", "is_leaf", "opened", "quiet"]


def is_leaf(module: nn.Module) -> bool:
    """Whether all trainable parameters below a module are its own, and are what they are called."""
    inside = any(p.requires_grad for child in module.children() for p in child.parameters())
    return not inside and not isinstance(module, nn.utils.parametrize.ParametrizationList)


class LeafCall:
    """One call of a layer: its arguments and outputs, in whatever structure.

    Args:
        module: the layer.
        name: where it is in the model.
        args: positional arguments of the call.
        kwargs: keyword arguments.
        known: names of arguments which of them hold examples; all else is the same for every
            example.
    """

    def __init__(
        self,
        module: nn.Module,
        name: str,
        args: tuple[Any, ...],
        kwargs: dict[str, Any],
        known: Arguments,
    ) -> None:
        self.module = module
        self.name = name
        leaves, self._structure = pytree.tree_flatten((args, kwargs))
        self._leaves = [x.detach() if isinstance(x, Tensor) else x for x in leaves]
        self.tensors = [leaf for leaf in leaves if isinstance(leaf, Tensor)]
        self._given = leaves
        self._known = known

    def through(self, output: Any, use: Callable[[tuple[Tensor, ...]], None]) -> Any:
        """Return the output, and call `use` with its gradients on their way back."""
        leaves, structure = pytree.tree_flatten(output)
        places = [i for i, leaf in enumerate(leaves) if _has_gradient(leaf)]
        if not places:
            return output
        if leaves[places[0]].dim() > 0:
            self._known.observe(self._given, len(leaves[places[0]]))
        if len(places) == 1:
            leaves[places[0]] = self._watched(leaves[places[0]], use)
            return pytree.tree_unflatten(leaves, structure)
        anchor = torch.empty(0, device=leaves[places[0]].device, requires_grad=True)
        passed = _Through.apply(use, anchor, *(leaves[i] for i in places))  # type: ignore[no-untyped-call]
        for i, value in zip(places, passed, strict=True):
            leaves[i] = value
        return pytree.tree_unflatten(leaves, structure)

    def _watched(self, value: Tensor, use: Callable[[tuple[Tensor, ...]], None]) -> Tensor:
        """Return the only output, which may be changed in place afterwards."""
        if value.requires_grad:
            # A view of its own: other uses of what was only handed on are not the layer's.
            own = value.view_as(value) if any(value is x for x in self._given) else value
        else:
            own = opened(value.clone() if value._is_view() or self._has(value) else value)
        own.register_hook(lambda grads: use((grads,)))
        return own

    def _has(self, value: Tensor) -> bool:
        """Whether a value has its memory in common with an argument."""
        place = value.untyped_storage().data_ptr()
        return any(x.untyped_storage().data_ptr() == place for x in self.tensors)

    def records(self, grads: tuple[Tensor, ...]) -> Iterator[Record]:
        """Yield the gradients of every parameter, by a vector-Jacobian product per example."""
        batch = len(grads[0])
        named = {n: p for n, p in self.module.named_parameters() if p.requires_grad}
        mapped = self._known.of_examples(self._given, batch)

        def of_one(own: list[Tensor], grad: tuple[Tensor, ...]) -> dict[str, Tensor]:
            mine = iter(own)
            leaves = [
                next(mine)[None] if is_mapped else leaf
                for leaf, is_mapped in zip(self._leaves, mapped, strict=True)
            ]
            pull = torch.func.vjp(lambda given: self._outputs(given, leaves), named)[1]
            found: dict[str, Tensor] = pull(tuple(g[None] for g in grad))[0]
            return found

        own = [leaf for leaf, is_mapped in zip(self._leaves, mapped, strict=True) if is_mapped]
        try:
            with quiet():
                rows = torch.vmap(of_one, randomness="error")(own, grads)
        except (RuntimeError, ValueError) as error:
            raise UnsoundConfiguration(
                f"the per-example gradients of {type(self.module).__name__} {self.name!r} could "
                "not be computed from its calls; use backend='materialised' with accumulate_batch, "
                f"or build it of layers of torch.nn ({error})"
            ) from error
        for name, parameter in named.items():
            # Half precision is not enough for norms and sums.
            grads_of = rows[name]
            yield Rows(parameter, grads_of.float() if grads_of.element_size() < 4 else grads_of)

    def _outputs(self, parameters: dict[str, Tensor], leaves: list[Any]) -> tuple[Tensor, ...]:
        args, kwargs = pytree.tree_unflatten(leaves, self._structure)
        output = torch.func.functional_call(self.module, parameters, args, kwargs)
        return tuple(leaf for leaf in pytree.tree_leaves(output) if _has_gradient(leaf))


@contextmanager
def quiet() -> Iterator[None]:
    """Silence torch where it vectorises an operation by a loop: slow, and right."""
    with warnings.catch_warnings():
        warnings.filterwarnings("ignore", message="There is a performance drop")
        yield


class _Open(torch.autograd.Function):
    """Lets gradients reach a value that needs none itself."""

    @staticmethod
    def forward(ctx: FunctionCtx, output: Tensor, _: Tensor) -> Tensor:
        ctx.mark_dirty(output)
        return output

    @staticmethod
    def backward(_: FunctionCtx, *__: Tensor) -> tuple[None, None]:
        return None, None


def opened(output: Tensor) -> Tensor:
    """Return a value that needs no gradient itself, so that gradients reach it."""
    anchor = torch.empty(0, device=output.device, requires_grad=True)
    result: Tensor = _Open.apply(output, anchor)  # type: ignore[no-untyped-call]
    return result


class _Through(torch.autograd.Function):
    """Lets values through, and shows the gradients of all of them at once."""

    @staticmethod
    def forward(ctx: FunctionCtx, use: Any, _: Tensor, *values: Tensor) -> tuple[Tensor, ...]:
        ctx.use = use  # type: ignore[attr-defined]
        return tuple(value.view_as(value) for value in values)

    @staticmethod
    def backward(ctx: FunctionCtx, *grads: Tensor) -> tuple[Tensor | None, ...]:
        ctx.use(grads)  # type: ignore[attr-defined]
        return None, None, *grads


def _has_gradient(leaf: object) -> bool:
    return isinstance(leaf, Tensor) and leaf.is_floating_point()


class Arguments:
    """What batches of different sizes have shown of the arguments at one place of a model.

    Args:
        name: name of the layer, for messages.
    """

    def __init__(self, name: str) -> None:
        self._name = name
        self._first: dict[int, int] = {}
        self._holds_examples: dict[int, bool] = {}

    def observe(self, leaves: Sequence[object], batch: int) -> None:
        """Take note of a call with so many examples."""
        for i, leaf in enumerate(leaves):
            if not _has_rows(leaf, batch):
                self._holds_examples[i] = False
            elif self._first.setdefault(i, batch) != batch:
                self._holds_examples.setdefault(i, True)

    def of_examples(self, leaves: Sequence[object], batch: int) -> list[bool]:
        """Return which arguments are to be taken apart by examples.

        Raises:
            UnsoundConfiguration: if several may be meant, and no batch of another size was seen.
        """
        rows = [i for i, leaf in enumerate(leaves) if _has_rows(leaf, batch)]
        unknown = [i for i in rows if i not in self._holds_examples]
        if batch > 1 and unknown and len({id(leaves[i]) for i in rows}) > 1:
            raise UnsoundConfiguration(
                f"layer {self._name!r} was given several tensors with {batch} rows, and it is not "
                "known which of them hold one row per example; call check(inputs) of the private "
                "gradient with two examples or more first, which tries another batch size"
            )
        chosen = {i for i in rows if self._holds_examples.get(i, True)}
        return [i in chosen for i in range(len(leaves))]


def _has_rows(leaf: object, batch: int) -> bool:
    return isinstance(leaf, Tensor) and leaf.dim() > 0 and len(leaf) == batch
