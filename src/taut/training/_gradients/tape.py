"""Writes down, during one pass, what the layers' parameters need for per-example gradients.

While a tape records, autograd sees the parameters as constants: it computes the gradients of
activations alone, and the tape turns them, layer by layer, into the records of parameters. Outside
of a recording the model carries no trace of it.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Iterator
from contextlib import contextmanager, nullcontext
from dataclasses import dataclass
from functools import partial
from typing import Any, Literal, TypeAlias

import torch
from torch import Tensor, nn
from torch.utils import _pytree as pytree

from taut.errors import UnsoundConfiguration
from taut.training._gradients.isolation.sketch import Sketching
from taut.training._gradients.layers.records import Record, Rows, merged
from taut.training._gradients.layers.rewrites import Rewrite, rewrite_for
from taut.training._gradients.layers.rules import Rule, rule_for
from taut.training._gradients.other_layers import Arguments, LeafCall, is_leaf, opened
from taut.training._gradients.stray_parameters import watched
from taut.training._gradients.unchanged_state import State
from taut.training._tensors.numbers import in_full_precision

__all__ = ["Backend", "NotExamples", "Tape", "tape_for"]

Backend: TypeAlias = Literal["auto", "bookkeeping", "materialised"]
"""How per-example gradients are had: kept as factors, or written out by `torch.func`."""


class NotExamples(UnsoundConfiguration):
    """A layer was given something else than examples along its first axis."""


_keeps_graph: Callable[[], bool] = torch._C._autograd._get_current_graph_task_keep_graph
"""Whether the running backward pass leaves the graph for another."""


@dataclass(frozen=True)
class _Layer:
    """A module with parameters of its own, and how it is recorded: by rule, rewrite, or neither."""

    name: str
    module: nn.Module
    rule: Rule | None = None
    rewrite: Rewrite | None = None
    broadcast: tuple[str, ...] = ()
    """Parameters that all examples share along a first axis of one, to be had by every example."""

    @property
    def device_type(self) -> str:
        """The kind of device that the layer is on."""
        return next(self.module.parameters()).device.type


class Tape:
    """Records the layers of a model, and returns the gradients of a batch by parameter.

    Args:
        model: what is trained; parameters that need no gradient are left alone.
        copies: how many rows of every batch belong to one example, next to each other.

    Raises:
        UnsoundConfiguration: if a trainable parameter belongs to a module whose uses of it cannot
            be recorded.
    """

    def __init__(self, model: nn.Module, copies: int = 1) -> None:
        self._model = model
        self._copies = copies
        self._layers = list(_layers(model))
        self._parameters = list(model.parameters())
        self._broadcast: dict[tuple[str, str], nn.Parameter] = {
            (layer.name, name): getattr(layer.module, name)
            for layer in self._layers
            for name in layer.broadcast
        }
        self._state = State(model)
        self._calls: Counter[str] = Counter()
        self._arguments: dict[tuple[str, int], Arguments] = {}
        self._records: dict[Tensor, list[tuple[str, Record]]] = {}
        self._waiting: list[Callable[[], None]] = []
        self._batch: int | None = None
        self._shared: set[tuple[str, int]] = set()
        self._is_learning = False
        self.sketching: Sketching | None = None
        """What looks at every record as it comes, and may leave less of it."""
        self._is_recording = False
        self._was_watched = False

    @contextmanager
    def learning(self) -> Iterator[None]:
        """Find out inside which calls of layers are the same for all examples.

        Those are given to every example as its own. Only passes that are compared with plain
        autograd may show it: afterwards a call of that kind at another place is refused.
        """
        self._is_learning = True
        try:
            yield
        finally:
            self._is_learning = False

    @contextmanager
    def recording(self) -> Iterator[None]:
        """Record the passes inside; parameters are constants for autograd until the end.

        Gradients that parameters have are removed: any that appear come from outside of the layers.
        """
        self.clear()
        self._calls.clear()
        parameters = [p for p in self._parameters if p.requires_grad]
        hooks = [self._attached(layer) for layer in self._layers if not layer.broadcast]
        enter = self._model.register_forward_pre_hook(
            lambda _, args, kwargs: self.enter(args, kwargs), with_kwargs=True
        )
        hooks.append(enter.remove)
        watch = nullcontext() if self._was_watched else watched(self._model, self._owners())
        for parameter in parameters:
            parameter.requires_grad_(False)
            parameter.grad = None
        self._is_recording = True
        try:
            with self._state.unchanged(), watch:
                try:
                    yield
                finally:
                    self._leave()
            self._was_watched = True
        finally:
            self._is_recording, self._batch = False, None
            for detach in hooks:
                detach()
            for parameter in parameters:
                parameter.requires_grad_(True)

    def records(self, batch: int) -> dict[Tensor, Record]:
        """Return what was recorded of a batch, one record for every parameter, and forget it."""
        for use in self._waiting:
            use()
        found, self._records = self._records, {}
        self._waiting.clear()
        for uses in found.values():
            for name, record in uses:
                if record.batch != batch:
                    raise _not_examples(name, record.batch, batch)
        return {p: merged([record for _, record in uses]) for p, uses in found.items()}

    @property
    def has_unknown_layers(self) -> bool:
        """Whether there are layers without a rule, of which batches must show what they take."""
        return any(layer.rule is None and layer.rewrite is None for layer in self._layers)

    @property
    def is_empty(self) -> bool:
        """Whether no backward pass was recorded since records were taken."""
        return not self._records and not self._waiting

    def clear(self) -> None:
        """Forget what was recorded."""
        self._records.clear()
        self._waiting.clear()
        if self.sketching is not None:
            self.sketching.clear()

    def _owners(self) -> dict[Tensor, list[nn.Module]]:
        owners: dict[Tensor, list[nn.Module]] = {}
        for layer in self._layers:
            if layer.broadcast:  # the module has copies of them: no use of them is recorded
                owners |= {self._broadcast[layer.name, name]: [] for name in layer.broadcast}
                continue
            for parameter in layer.module.parameters():
                if parameter.requires_grad:
                    owners.setdefault(parameter, []).append(layer.module)
        return owners

    def enter(self, args: tuple[Any, ...], kwargs: dict[str, Any]) -> None:
        """Take note of the number of examples, if all that the model was given agrees on it.

        Calls of the model inside of a recording do so; one that began before has to say so.
        """
        leaves = pytree.tree_leaves((args, kwargs))
        sizes = {len(x) for x in leaves if isinstance(x, Tensor) and x.dim() > 0}
        self._batch = sizes.pop() if len(sizes) == 1 else None
        for layer in self._layers:
            for name in layer.broadcast:
                layer.module._parameters[name] = self._own_copies(layer, name)

    def _leave(self) -> None:
        for layer in self._layers:
            for name in layer.broadcast:
                layer.module._parameters[name] = self._broadcast[layer.name, name]

    def _attached(self, layer: _Layer) -> Callable[[], None]:
        """Attach to a layer, and return what detaches."""
        if layer.rewrite is not None:
            tap = partial(self._tap, layer)
            vars(layer.module)["forward"] = partial(layer.rewrite, layer.module, tap)
            return partial(vars(layer.module).pop, "forward")
        hook = self._leaf_hook(layer) if layer.rule is None else self._hook(layer, layer.rule)
        return layer.module.register_forward_hook(hook, with_kwargs=True, prepend=True).remove

    def _own_copies(self, layer: _Layer, name: str) -> Any:
        """Return a parameter that is broadcast to examples, with one row for each of them."""
        parameter = self._broadcast[layer.name, name]
        if self._batch is None:
            return parameter

        def records(grads: Tensor) -> Iterator[Record]:
            yield Rows(parameter, grads)

        copies = parameter.detach().repeat(self._batch, *[1] * (parameter.dim() - 1))
        return self._tap(layer, copies, records)

    def _is_shared(self, layer: _Layer, inputs: Tensor) -> bool:
        """Whether a call is of something that all examples share, such as their positions."""
        place = layer.name, self._calls[layer.name]
        self._calls[layer.name] += 1
        batch, rows = self._batch, len(inputs) if inputs.dim() else 0
        if batch is None or batch == 1 == rows:
            return False
        is_row = rows == 1 or (inputs.dim() == 1 and isinstance(layer.module, nn.Embedding))
        if self._is_learning and is_row and rows != batch:
            self._shared.add(place)
        return is_row and place in self._shared

    def _hook(self, layer: _Layer, rule: Rule) -> Any:
        def keep(
            module: nn.Module, args: tuple[Any, ...], kwargs: dict[str, Any], output: Tensor
        ) -> Tensor:
            inputs, *_ = (*args, *kwargs.values())  # what else there is says no more than sizes
            kept = inputs.detach()
            if torch.is_grad_enabled() and self._is_shared(layer, kept):
                inputs, output = (_for_each(value, kept, self._batch) for value in (kept, output))
                kept = inputs

            def records(grads: Tensor) -> Iterator[Record]:
                if len(kept) != len(grads):
                    raise _not_examples(layer.name, len(kept), len(grads))
                given = kept.to(grads.dtype) if kept.is_floating_point() else kept
                return rule(module, given, grads)

            return self._tap(layer, output, records, inputs)

        return keep

    def _tap(
        self,
        layer: _Layer,
        value: Tensor,
        records: Callable[[Tensor], Iterator[Record]],
        *inputs: Tensor,
    ) -> Tensor:
        if not torch.is_grad_enabled():
            return value
        tapped = value if value.requires_grad else opened(value)
        versions = [(given, given._version) for given in (x.detach() for x in inputs)]
        held = [(records, versions)]

        def use(grads: Tensor) -> None:
            # The graph holds this function to its end: let go of the inputs as autograd does.
            turn, before = held[0] if _keeps_graph() else held.pop()
            for given, version in before:
                if given._version != version:
                    raise _changed_in_place(layer)
            self._keep(layer, partial(turn, _precise(grads)))

        tapped.register_hook(use)
        return tapped

    def _leaf_hook(self, layer: _Layer) -> Any:
        def keep(
            module: nn.Module, args: tuple[Any, ...], kwargs: dict[str, Any], output: Any
        ) -> Any:
            if not torch.is_grad_enabled():
                return output
            place = layer.name, self._calls[layer.name]
            self._calls[layer.name] += 1
            known = self._arguments.setdefault(place, Arguments(layer.name))
            call = LeafCall(module, layer.name, args, kwargs, known)
            versions = [given._version for given in call.tensors]

            def use(grads: tuple[Tensor, ...]) -> None:
                if versions != [given._version for given in call.tensors]:
                    raise _changed_in_place(layer)
                self._keep(layer, partial(call.records, grads))

            return call.through(output, use)

        return keep

    def _keep(self, layer: _Layer, records: Callable[[], Iterator[Record]]) -> None:
        # At once if possible: what is written out needs no factors, and they are still in cache.
        if self._is_recording:
            self._waiting.append(partial(self._keep, layer, records))
            return
        with torch.no_grad(), in_full_precision(layer.device_type):
            for record in records():
                uses = self._records.setdefault(record.parameter, [])
                kept = self._folded(layer, record).cheapest()
                uses.append((layer.name, kept if self.sketching is None else self.sketching(kept)))

    def _folded(self, layer: _Layer, record: Record) -> Record:
        """Return the record with copies of an example as one, which is what gets clipped."""
        if self._copies == 1:
            return record
        if record.batch % self._copies:
            raise NotExamples(
                f"layer {layer.name!r} has {record.batch} rows along its first axis, where every "
                f"example has copies={self._copies} of them; the first axis must be that of "
                "examples and their copies"
            )
        return record.folded(self._copies)


def tape_for(model: nn.Module, backend: Backend, copies: int) -> Tape | None:
    """Return a tape of the model, None if gradients are written out instead."""
    if backend not in ("auto", "bookkeeping", "materialised"):
        raise ValueError(
            f"backend must be 'auto', 'bookkeeping' or 'materialised', got backend={backend!r}"
        )
    if backend == "materialised":
        return None
    try:
        return Tape(model, copies)
    except UnsoundConfiguration:
        if backend == "bookkeeping":
            raise
        return None


def _for_each(value: Tensor, inputs: Tensor, batch: int | None) -> Tensor:
    """Return something that all examples share with a row for every example."""
    assert batch is not None
    rows = value if inputs.dim() > 1 else value[None]
    return rows.detach().repeat(batch, *[1] * (rows.dim() - 1))


def _precise(grads: Tensor) -> Tensor:
    """Return gradients in float32 at least: half precision is not enough for norms and sums."""
    return grads.float() if grads.element_size() < 4 else grads


def _layers(model: nn.Module) -> Iterator[_Layer]:
    inside: set[nn.Module] = set()
    for name, module in model.named_modules():
        if module in inside or not _has_own(module):
            continue
        rewrite, rule = rewrite_for(module), rule_for(module)
        if rewrite is not None:
            inside.update(module.modules())
            yield _Layer(name, module, rewrite=rewrite)
        elif rule is not None or is_leaf(module):
            yield _Layer(name, module, rule=rule)
        elif _is_broadcast(module):
            yield _Layer(name, module, broadcast=tuple(_own(module)))
        else:
            raise UnsoundConfiguration(
                f"{type(module).__name__} {name or '(the model)'!r} has parameters of its own "
                "beside those of its layers, and what it does with them cannot be recorded; put "
                "them into a layer of their own, freeze them, or use backend='materialised' with "
                "accumulate_batch"
            )


def _has_own(module: nn.Module) -> bool:
    """Whether a module has trainable parameters that its children do not have."""
    if isinstance(module, nn.MultiheadAttention):
        return any(p.requires_grad for p in module.parameters())
    return bool(_own(module))


def _own(module: nn.Module) -> list[str]:
    """Return the names of a module's trainable parameters that no layer inside has as well."""
    inside = {id(p) for child in module.children() for p in child.parameters()}
    return [
        name
        for name, p in module.named_parameters(recurse=False)
        if p.requires_grad and id(p) not in inside
    ]


def _is_broadcast(module: nn.Module) -> bool:
    """Whether a module's own parameters look as if they were broadcast to examples.

    Class tokens and positions have a first axis of one. That they are broadcast along it, the first
    batch must show.
    """
    own = [getattr(module, name) for name in _own(module)]
    return all(p.dim() > 1 and len(p) == 1 for p in own) and not hasattr(module, "parametrizations")


def _not_examples(name: str, found: int, batch: int) -> NotExamples:
    return NotExamples(
        f"layer {name!r} has {found} rows along its first axis where the batch has {batch} "
        "examples; the first axis must be that of examples. What all examples share, such as "
        "positions, is expanded to the batch before the layer; or use backend='materialised' with "
        "accumulate_batch"
    )


def _changed_in_place(layer: _Layer) -> UnsoundConfiguration:
    return UnsoundConfiguration(
        f"the input of layer {layer.name!r} was changed in place before its gradient was taken; "
        "use the out-of-place operation (inplace=False)"
    )
