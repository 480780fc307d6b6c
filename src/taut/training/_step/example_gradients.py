"""Gradients of single examples: recorded or written out, checked, and tested for isolation."""

from __future__ import annotations

import logging
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager, nullcontext
from functools import partial
from typing import Any, TypeAlias

import torch
from torch import Tensor, nn

from taut.errors import UnsoundConfiguration
from taut.training._gradients.apart.checks import check_apart, check_instead
from taut.training._gradients.apart.example_calls import ExampleCalls
from taut.training._gradients.apart.materialised import Materialised
from taut.training._gradients.copies import MeanOverCopies, OnCopies, check_copies
from taut.training._gradients.isolation.checks import Extent, Isolation, Run
from taut.training._gradients.isolation.circumstances import Counts
from taut.training._gradients.isolation.draws import Draws
from taut.training._gradients.isolation.memory import is_large, memory_test
from taut.training._gradients.isolation.schedule import Schedule
from taut.training._gradients.isolation.sketch import Sketch, Sketching
from taut.training._gradients.layers.records import Record
from taut.training._gradients.layers.spectral_norm import settled_norms
from taut.training._gradients.own_rows import MeanOverOwn
from taut.training._gradients.self_check import check_examples, check_losses, sum_of_squares
from taut.training._gradients.suitable import check_model
from taut.training._gradients.tape import Backend, NotExamples, Tape, tape_for
from taut.training._tensors.examples import LossFunction, apply, batch_size, copied

__all__ = ["Absorb", "Before", "ExampleGradients"]

_LOG = logging.getLogger(__name__)

Absorb: TypeAlias = Callable[[dict[Tensor, Record], int, float], None]
"""Takes the records of so many examples, out of the dictionary, and what their gradients are
multiplied with."""


class Before:
    """What a pass that is to be tested began with.

    Args:
        model: what is trained.
        how: how much of the batch is to be tested.
    """

    def __init__(self, model: nn.Module, how: Extent) -> None:
        self.how = how
        self.draws = Draws(model)
        self.counts = Counts(model)


class ExampleGradients:
    """Takes batches through a model and hands on the gradients of their examples.

    Args:
        model: what is trained.
        names: names of its trainable parameters.
        absorb: where gradients go.
        forget: called if a batch whose gradients have gone there is refused.
        backend: back end, as in `PrivateGradient`.
        compile: hand the materialised back end to `torch.compile`.
        self_check: compare the first batch with plain autograd.
        unchecked: leave out the test that examples are kept apart.
        copies: how many augmented copies every example has.
    """

    def __init__(
        self,
        model: nn.Module,
        names: Mapping[Tensor, str],
        absorb: Absorb,
        forget: Callable[[], None],
        *,
        backend: Backend,
        compile: bool,  # noqa: A002
        self_check: bool,
        unchecked: bool,
        copies: int,
    ) -> None:
        self.model = model
        self.names = names
        self._parameters: list[Tensor] = list(names)
        self._absorb, self._forget = absorb, forget
        self._copies = copies
        self._tape: Tape | ExampleCalls | None = tape_for(model, backend, copies)
        self._called: Callable[..., Any] = model if copies == 1 else OnCopies(model, copies)
        self._to_check = self_check
        self.schedule = Schedule(model, active=self_check and not unchecked)
        """Which batches are run again in other company."""
        self._keeps_sketch = False
        self._sketch: Sketch | None = None
        self._alone: Sketch | None = None
        self._memory_test: Callable[[], None] | None = None
        self._may_change = backend == "auto"
        self._materialised = Materialised(model, compile=compile, copies=copies)

    @property
    def backend(self) -> Backend:
        """The back end that is used."""
        return "bookkeeping" if isinstance(self._tape, Tape) else "materialised"

    @property
    def tape(self) -> Tape | ExampleCalls:
        """What records passes: the tape of the book-keeping back end, or calls by example."""
        if self._tape is None:
            raise UnsoundConfiguration(
                "this model is served by the materialised back end, which needs the inputs and "
                "the loss function: call accumulate_batch(inputs, targets, loss_fn)"
            )
        return self._tape

    def call_by_example(self) -> ExampleCalls:
        """Change to calls of the model with one example each, and return what records them."""
        self._tape = ExampleCalls(self.model)
        return self._tape

    def clear(self) -> None:
        """Forget what was recorded."""
        if self._tape is not None:
            self._tape.clear()

    # --- passes --------------------------------------------------------------------------------

    def of_batch(self, inputs: Any, targets: Any, loss_fn: LossFunction) -> Tensor:
        """Take one physical batch through the model, and return its losses."""
        losses = self._of_examples(inputs, loss_fn)
        self._check_memory()  # of a large model, whose first batch takes long enough
        if self._to_check:
            check_model(self.model)
            with settled_norms(self.model):
                self._check_recording(inputs, targets, losses)
        if self._tape is None:
            return self._write_out(inputs, targets, losses)
        try:
            return self._recorded(inputs, targets, losses)
        except NotExamples as problem:
            if not self._may_change:
                raise
            # Nothing of this batch is in the sum: layers are looked at before.
            _LOG.info("falling back to the materialised back end: %s", problem)
            self._tape = None
            return self._write_out(inputs, targets, losses)

    def of_losses(self, losses: Callable[[], Tensor]) -> Tensor:
        """Run a forward pass that returns one loss per example, and hand on its gradients."""
        with self.tape.recording():
            values = losses()
        if values.dim() != 1:
            raise ValueError(
                f"losses must be one per example, got shape {tuple(values.shape)}; use "
                "reduction='none' and sum over all axes but the first"
            )
        if self._to_check and len(values) and isinstance(self._tape, Tape):
            check_losses(self._tape, self.names, values)
            self._to_check = len(values) < 2
        if len(values):
            torch.autograd.backward(values.sum())
        self.of_backward(len(values))
        return values.detach()

    def of_backward(self, batch: int, *, scale: float = 1.0) -> None:
        """Hand on what the tape holds of the last backward pass."""
        if batch == 0:
            self.tape.clear()
            return
        records = self.tape.records(batch)
        if len(records) != len(self._parameters):
            self._refuse_missing(records)
        if self._keeps_sketch:
            self._sketch = self._sketch_of(records, scale)
            self._keeps_sketch = False
        for parameter in self._parameters:
            if parameter.grad is not None:
                raise UnsoundConfiguration(
                    f"parameter {self.names[parameter]!r} also got a gradient outside of its "
                    "layer, such as from a penalty in the loss; use the optimizer's weight_decay, "
                    "and parameters only through their layers"
                )
        self._absorb(records, batch, scale)

    def _recorded(self, inputs: Any, targets: Any, loss_fn: LossFunction) -> Tensor:
        before = self.before(batch_size(inputs))
        given = inputs if before is None else copied(inputs)  # the model may write to them
        with nullcontext() if before is None else self._sketching(keep=True):
            self._keeps_sketch = before is not None
            losses = self.of_losses(lambda: loss_fn(apply(self._called, inputs), targets))
        if before is not None:
            self.test(partial(self._run, loss_fn), given, targets, before)
        return losses

    def _write_out(self, inputs: Any, targets: Any, loss_fn: LossFunction) -> Tensor:
        before = self.before(batch_size(inputs))
        given = inputs if before is None else copied(inputs)
        losses, sketches = [], []
        for records, values in self._materialised.records(inputs, targets, loss_fn):
            if before:
                sketches.append(Sketch.of(records, self._parameters))
            self._absorb(records, len(values), 1.0)
            losses.append(values)
        if before is not None:
            # One example is seen at a time; what a model keeps in attributes is still there later.
            self._sketch = Sketch.joined(sketches)
            self.test(partial(self._run_apart, loss_fn), given, targets, before)
        return torch.cat(losses)

    def _of_examples(self, inputs: Any, loss_fn: LossFunction) -> LossFunction:
        """Return the loss of examples, and refuse inputs without their copies."""
        if self._copies == 1:
            return loss_fn
        check_copies(inputs, self._copies)
        if isinstance(loss_fn, MeanOverOwn):  # rows with targets of their own, and their mean
            return loss_fn
        return MeanOverCopies(loss_fn, self._copies)

    def _call_of(self, model: nn.Module, inputs: Any) -> Any:
        return apply(model if self._copies == 1 else OnCopies(model, self._copies), inputs)

    def _refuse_missing(self, records: Mapping[Tensor, Record]) -> None:
        for parameter in self._parameters:
            if parameter not in records:
                raise UnsoundConfiguration(
                    f"parameter {self.names[parameter]!r} got no gradient from this batch; freeze "
                    "it with requires_grad_(False) if the loss does not depend on it, or call its "
                    "layer (not a function on its weight) in the forward pass"
                )
        raise UnsoundConfiguration(
            "a parameter became trainable after PrivateGradient was made; make a new one"
        )

    # --- isolation -----------------------------------------------------------------------------

    def before(self, batch: int) -> Before | None:
        """Return what a pass begins with, None if it is not to be tested."""
        how = self.schedule.due(batch)
        return None if how is None else Before(self.model, how)

    def keep_sketch(self) -> None:
        """Keep a sketch of what is handed on next, for `test`."""
        self._keeps_sketch = True

    def sketched(self, batch: int, *, scale: float = 1.0) -> Sketch:
        """Return the sketch of what the tape holds, which is forgotten."""
        return self._sketch_of(self.tape.records(batch), scale)

    @contextmanager
    def _sketching(self, *, keep: bool) -> Iterator[None]:
        """Make sketches inside as layers leave their records.

        Factors of all layers at once would set the peak of memory.

        Args:
            keep: whether records are wanted as well.
        """
        tape = self._tape
        assert isinstance(tape, Tape)
        tape.sketching = Sketching(self._parameters, keep=keep)
        try:
            yield
        finally:
            tape.sketching = None

    def _sketch_of(self, records: Mapping[Tensor, Record], scale: float) -> Sketch:
        sketching = self._tape.sketching if isinstance(self._tape, Tape) else None
        if sketching is None:
            return Sketch.of(records, self._parameters, scale)
        return sketching.taken(scale)

    def test(
        self, run: Run, inputs: Any, targets: Any, before: Before, *, by_loop: bool = False
    ) -> None:
        """Run the batch that was handed on last in other company, and compare.

        Args:
            run: takes a batch through the model and returns its sketch.
            inputs: inputs of that batch,
            targets: targets, or what the loss takes beside them.
            before: what its pass began with.
            by_loop: whether the backward pass was that of a user, not of `run`.

        Raises:
            UnsoundConfiguration: if a gradient changes; what was summed up is forgotten.
        """
        found, self._sketch = self._sketch, None
        assert found is not None
        is_apart = not isinstance(self._tape, Tape)
        alone, self._alone = self._alone, None
        isolation = Isolation(
            self.model, self.names, run, by_loop=by_loop, is_apart=is_apart, alone=alone
        )
        draws, counts, how = before.draws, before.counts, before.how
        batch = batch_size(inputs)
        try:
            with self.schedule.testing(how):
                if isolation.check(inputs, targets, found, draws, counts, how) and how != "few":
                    self.schedule.passed(batch)
        except BaseException:
            self._forget()
            raise

    def _run(self, loss_fn: LossFunction, inputs: Any, targets: Any) -> Sketch:
        """Take a batch through the model, and keep no more of it than a sketch."""
        with self._sketching(keep=False):
            with torch.enable_grad(), self.tape.recording():
                values = loss_fn(apply(self._called, inputs), targets)
            torch.autograd.backward(values.sum())
            return self.sketched(len(values))

    def _run_apart(self, loss_fn: LossFunction, inputs: Any, targets: Any) -> Sketch:
        parts = self._materialised.records(inputs, targets, loss_fn)
        return Sketch.joined([Sketch.of(records, self._parameters) for records, _ in parts])

    # --- the first batch -----------------------------------------------------------------------

    def check(self, inputs: Any, targets: Any, loss_fn: LossFunction | None) -> None:
        """Compare a few examples with plain autograd, and run the batch in other company."""
        loss = self._of_examples(inputs, sum_of_squares if loss_fn is None else loss_fn)
        check_model(self.model)
        with settled_norms(self.model):
            self._check_recording(inputs, targets, loss)
            self._check_memory()
            tape = self._tape
            if not isinstance(tape, Tape) or batch_size(inputs) < 2 or not self.schedule.active:
                return
            before, run = Before(self.model, "whole"), partial(self._run, loss)
            with before.draws.again():
                found = run(copied(inputs), targets)
            alone, self._alone = self._alone, None
            isolation = Isolation(self.model, self.names, run, alone=alone)
            isolation.check(inputs, targets, found, before.draws, before.counts, before.how)

    def _check_recording(self, inputs: Any, targets: Any, loss: LossFunction) -> None:
        if self.schedule.active:
            self._memory_test = memory_test(self.model, self._call_of, inputs)
            if not is_large(self.model):
                self._check_memory()
        if isinstance(self._tape, Tape):
            self._check_tape(self._tape, inputs, targets, loss)
        else:
            self._check_apart(inputs)
        self._to_check = self._to_check and batch_size(inputs) < 2

    def _check_memory(self) -> None:
        test, self._memory_test = self._memory_test, None
        if test is not None:
            test()

    def _check_tape(self, tape: Tape, inputs: Any, targets: Any, loss: LossFunction) -> None:
        names = self.names
        try:
            with tape.learning():
                self._alone = check_examples(
                    self.model, tape, names, inputs, targets, loss, forward=self._called
                )
        except (UnsoundConfiguration, RuntimeError) as problem:
            if not self._may_change:
                raise
            check_instead(problem, partial(self._check_apart, inputs))
            self._tape = None

    def _check_apart(self, inputs: Any) -> None:
        calls = ExampleCalls(self.model)
        called = partial(apply, self._called)
        check_apart(self.model, calls, self.names, inputs, called)
