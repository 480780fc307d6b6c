"""Passes of the user's own loop, recorded from the moment the model is called."""

from __future__ import annotations

import sys
import weakref
from collections.abc import Callable
from contextlib import AbstractContextManager, nullcontext
from functools import partial
from typing import Any

import torch
from torch import Tensor, nn

from taut.errors import UnsoundConfiguration
from taut.training._gradients.apart.checks import check_apart, check_instead
from taut.training._gradients.apart.example_calls import ExampleCalls
from taut.training._gradients.isolation.memory import check_memory
from taut.training._gradients.isolation.sketch import Sketch
from taut.training._gradients.layers.spectral_norm import settled_norms
from taut.training._gradients.self_check import check_examples
from taut.training._gradients.suitable import check_model
from taut.training._gradients.tape import Tape
from taut.training._step.handed_out import HandedOut, Numbers
from taut.training._step.loop_loss import Criterion, LoopLoss
from taut.training._step.private_gradient import PrivateGradient
from taut.training._tensors.examples import apply, batch_size, copied

__all__ = ["RecordedPasses", "check_detached"]

_ATTACHED: weakref.WeakSet[nn.Module] = weakref.WeakSet()


def check_detached(model: nn.Module) -> None:
    """Refuse a model whose passes are already recorded."""
    if model in _ATTACHED:
        raise UnsoundConfiguration(
            "this module is already private; call remove() of its optimizer first"
        )


class _Hook:
    """A hook of the module itself: copies of the module, also in files, get one without effect.

    What it leads to holds sums of gradients without noise, which must not get into a file.
    """

    def __init__(self, call: Callable[..., Any]) -> None:
        self._call = call

    def __call__(self, *args: Any) -> Any:
        return self._call(*args)

    def __reduce__(self) -> tuple[Any, ...]:
        return _Hook, (_do_nothing,)


def _do_nothing(*_: Any) -> None:
    return None


class RecordedPasses:
    """Records every call of a model in training mode, and gives what was recorded to the gradient.

    Args:
        gradient: private gradient of the model.
        is_mean: whether losses are means over the batch, so that gradients of examples are that
            much smaller.
        criterion: makes a loss of single examples; None if the loop's is to be recognised.

    Unless the gradient is unchecked, the loop's loss is judged in every batch, and batches are run
    again in other company now and then. What a backward pass leaves is taken at the next call or at
    the step, whichever is first, so that never more than one pass is kept.
    """

    def __init__(
        self, gradient: PrivateGradient, *, is_mean: bool, criterion: Criterion | None = None
    ) -> None:
        model = gradient.model
        check_detached(model)
        self._gradient = gradient
        self._compiled = _taken_apart(model)
        self._tape = gradient.tape if gradient.backend == "bookkeeping" else self._by_example()
        self._is_mean = is_mean
        self._open: AbstractContextManager[None] | None = None
        self._size: int | None = None
        self._batch: Any = None
        self._call: _Call | None = None
        self._handed: HandedOut | None = None
        self._numbers = Numbers()
        self._loss = (
            LoopLoss(criterion, is_mean=is_mean) if gradient.examples.schedule.active else None
        )
        self._is_absorbed = False
        self._is_checked = False
        self._is_late = False  # whether the call that goes on began before it was taken apart
        self._is_checking = False
        self._hooks = [
            model.register_forward_pre_hook(_Hook(self._enter), with_kwargs=True),
            model.register_forward_hook(_Hook(self._leave), with_kwargs=True, always_call=True),
        ]
        _ATTACHED.add(model)

    def expect(self, size: int, batch: Any) -> None:
        """Take the next pass for that of a batch with so many examples."""
        self._size, self._batch, self._is_absorbed = size, batch, False
        self._handed = None if self._loss is None else HandedOut(batch, size)

    def take(self) -> None:
        """Clip and add what the pass of the expected batch left.

        Raises:
            UnsoundConfiguration: if there was none.
        """
        self._absorb()
        if not self._is_absorbed:
            raise UnsoundConfiguration(
                "no gradients of examples were recorded for this batch: call the module itself, in "
                "training mode (module.train()) and with gradients enabled, and loss.backward() "
                "before optimizer.step()"
            )
        self._test()
        self._size = self._batch = self._call = self._handed = None

    def forget(self) -> None:
        """Drop a batch that was begun."""
        self._gradient.discard()
        self._size = self._batch = self._call = self._handed = None

    def remove(self) -> None:
        """Leave the model as it was."""
        for hook in self._hooks:
            hook.remove()
        if isinstance(self._tape, ExampleCalls):
            self._tape.detach()
        for module, compiled in self._compiled.items():
            module._compiled_call_impl = compiled
        _ATTACHED.discard(self._gradient.model)

    def _absorb(self) -> None:
        if self._tape.is_empty:
            return
        if self._size is None:
            self._tape.clear()
            raise UnsoundConfiguration(
                "gradients were computed from examples that the private loader did not hand out "
                "for this step; iterate over the loader that make_private returned"
            )
        if self._is_absorbed:
            self._tape.clear()
            raise UnsoundConfiguration(
                "a batch went through the model twice with a backward pass each: its examples "
                "would count twice. Add the losses and call backward() once; to compute a batch in "
                "parts, use max_physical_batch_size"
            )
        if self._call is not None and self._call.before is not None:
            self._gradient.examples.keep_sketch()
        self._gradient.absorb(self._size, scale=float(self._size) if self._is_mean else 1.0)
        self._is_absorbed = True

    def _enter(self, module: nn.Module, args: tuple[Any, ...], kwargs: dict[str, Any]) -> None:
        if self._is_checking or self._open is not None:
            return
        if not module.training or not torch.is_grad_enabled():
            return
        self._absorb()
        if not self._is_checked:
            self._check(module, args, kwargs)
        if self._handed is not None:
            inputs = {"args": args, "kwargs": kwargs}
            self._call = _Call(self._gradient, inputs, self._handed, self._numbers)
        opened = self._tape.recording()
        opened.__enter__()
        self._tape.enter(args, kwargs)
        self._open = opened

    def _leave(
        self, module: nn.Module, args: tuple[Any, ...], kwargs: dict[str, Any], output: Any
    ) -> Any:
        if self._open is None or self._is_checking:
            return None
        if self._is_late and sys.exc_info()[0] is None:
            output = self._again(module, args, kwargs)
        opened, self._open = self._open, None
        opened.__exit__(*sys.exc_info())
        if self._loss is None or self._call is None or output is None:
            return output
        return self._loss.through(output, self._batch, self._call.size, self._call.check)

    def _again(self, module: nn.Module, args: tuple[Any, ...], kwargs: dict[str, Any]) -> Any:
        """Call the module, whose first call showed how to record it, once more with its batch."""
        self._is_late, self._is_checking = False, True
        try:
            return module(*args, **kwargs)
        finally:
            self._is_checking = False

    def _test(self) -> None:
        """Run the batch of this step again in other company, if it is its turn."""
        call = self._call
        if call is None or call.before is None:
            return
        self._is_checking = True
        try:
            self._gradient.examples.test(
                self._run, call.inputs, self._batch, call.before, by_loop=True
            )
        finally:
            self._is_checking = False

    def _run(self, inputs: Any, batch: Any) -> Sketch:
        """Take a batch through the model with the loss of single examples."""
        assert self._loss is not None
        assert self._call is not None
        size = batch_size(inputs)
        with torch.enable_grad(), self._call.autocast(), self._tape.recording():
            outputs = self._gradient.model(*inputs["args"], **inputs["kwargs"])
        self._loss.pull(outputs, batch, size)
        return self._gradient.examples.sketched(size, scale=float(size) if self._is_mean else 1.0)

    def _check(self, module: nn.Module, args: tuple[Any, ...], kwargs: dict[str, Any]) -> None:
        """Compare a few examples with autograd and with each alone, before the first pass."""
        names: dict[Tensor, str] = {p: n for n, p in module.named_parameters() if p.requires_grad}
        forward: Any = lambda args, kwargs: module(*args, **kwargs)  # noqa: E731
        inputs = {"args": args, "kwargs": kwargs}
        check_model(module)
        self._is_checking = True
        try:
            with settled_norms(module):
                if self._loss is not None:
                    check_memory(module, _called, inputs)
                if isinstance(self._tape, Tape):
                    self._tape = self._checked_tape(self._tape, names, inputs, forward)
                if isinstance(self._tape, ExampleCalls):
                    check_apart(module, self._tape, names, inputs, partial(apply, forward))
        finally:
            self._is_checking = False
        self._tape.clear()
        self._is_checked = batch_size(inputs) > 1  # one example alone cannot be compared

    def _checked_tape(
        self, tape: Tape, names: dict[Tensor, str], inputs: Any, forward: Any
    ) -> Tape | ExampleCalls:
        """Return the tape, or calls by example for a model that it cannot record."""
        model = self._gradient.model
        try:
            with tape.learning():
                check_examples(model, tape, names, inputs, forward=forward)
        except (UnsoundConfiguration, RuntimeError) as problem:
            apart = model, ExampleCalls(model), names, inputs, partial(apply, forward)
            check_instead(problem, partial(check_apart, *apart))
            self._is_late = True
            return self._by_example()
        return tape

    def _by_example(self) -> ExampleCalls:
        calls = self._gradient.examples.call_by_example()
        calls.attach()
        return calls


def _taken_apart(model: nn.Module) -> dict[nn.Module, Any]:
    """Let modules that were compiled in place run layer by layer, and return how they were called.

    Calls of layers are what is recorded, and compiled code would have to compile the recording.
    """
    found = {
        module: compiled
        for module in model.modules()
        if (compiled := vars(module).get("_compiled_call_impl")) is not None
    }
    for module in found:
        module._compiled_call_impl = None
    return found


def _called(module: nn.Module, inputs: Any) -> Any:
    return module(*inputs["args"], **inputs["kwargs"])


class _Call:
    """What a call of the model was given, for the same call in other company."""

    def __init__(
        self, gradient: PrivateGradient, inputs: Any, handed: HandedOut, numbers: Numbers
    ) -> None:
        self.size = handed.size
        self._handed, self._given = handed, inputs
        self._problem: UnsoundConfiguration | None = None
        try:
            handed.check_unchanged()
            handed.check_inputs(inputs)
            numbers.check(inputs)
        except UnsoundConfiguration as problem:  # of no matter unless gradients follow
            self._problem = problem
        self.before = gradient.examples.before(self.size)
        self.inputs = inputs if self.before is None else copied(inputs)  # the model may write there
        self._parameter = gradient.parameters[0]
        kind = self._parameter.device.type
        self._kind = kind if torch.is_autocast_enabled(kind) else None
        self._dtype = torch.get_autocast_dtype(kind)

    def check(self) -> None:
        """Refuse a call with anything but the batch as it was handed out."""
        if self._problem is not None:
            raise self._problem
        self._handed.check_unchanged(self._given)

    def autocast(self) -> AbstractContextManager[Any]:
        """Compute as the loop did, or in double precision if that is asked for."""
        if self._kind is None or self._parameter.dtype == torch.float64:
            return nullcontext()
        return torch.autocast(self._kind, dtype=self._dtype)
