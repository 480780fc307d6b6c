"""The private gradient: examples clipped and summed, noise added once, divided by a constant."""

from __future__ import annotations

import logging
from collections.abc import Callable, Mapping, Sequence
from functools import partial
from typing import Any

import torch
from torch import Tensor, nn
from torch.optim import Optimizer

from taut._base import validate
from taut.errors import UnsoundConfiguration
from taut.noise import RandomSource, default_generator
from taut.training._clipping.clipping import Clipping
from taut.training._gradients.apart.checks import check_apart, check_instead
from taut.training._gradients.apart.example_calls import ExampleCalls
from taut.training._gradients.apart.materialised import Materialised
from taut.training._gradients.copies import MeanOverCopies, OnCopies, check_copies
from taut.training._gradients.isolation.checks import Isolation, Run
from taut.training._gradients.isolation.draws import Draws
from taut.training._gradients.isolation.schedule import Schedule
from taut.training._gradients.isolation.sketch import Sketch
from taut.training._gradients.layers.records import Record
from taut.training._gradients.layers.spectral_norm import settled_norms
from taut.training._gradients.self_check import check_examples, check_losses, sum_of_squares
from taut.training._gradients.suitable import check_model
from taut.training._gradients.tape import Backend, NotExamples, Tape, tape_for
from taut.training._noise.step_noise import Draw, IndependentNoise, StepNoise
from taut.training._sampling.masks import Masks
from taut.training._step.optimizer_checks import check_parameters
from taut.training._step.reduction import Sharded, reduction_for, unwrapped
from taut.training._tensors.examples import LossFunction, apply, batch_size
from taut.training._tensors.processes import Processes

__all__ = ["PrivateGradient"]

_LOG = logging.getLogger(__name__)
_ROUNDING = 1 + 1e-4  # norms and sums in float32 are off by less


class PrivateGradient:
    """Turns the examples of one logical batch into the `grad` of every trainable parameter.

    Args:
        model: what is trained; also in DistributedDataParallel, or after `fully_shard`.
        clipping: what is done to one example's gradient.
        scales: the standard deviation of the noise in every group of the clipping;
        noise: noise of a plan instead of a multiplier, `plan.noise(sizes)`; needed if the bound
            changes from step to step, as that of `QuantileClip` does, or if coordinates are
            sampled.
        expected_batch_size: what the noisy sum is divided by, whatever the batch holds. If the
            noise is for sampled coordinates, their rate is a further divisor.
        generator: where noise and masks come from, by default the secure generator.
        backend: "bookkeeping" records the model's layers and is the faster; "materialised" serves
            every model that `torch.func` does, through `accumulate_batch` alone; "auto" takes the
            first if all trainable parameters belong to layers that can be recorded, and changes to
            the second if `accumulate_batch` meets a layer without an axis of examples.
        compile: hand the materialised back end to `torch.compile`.
        self_check: compare the first batch with plain autograd, and test that examples are kept
            apart; without it nothing is compared.
        unchecked_isolation: leave out the test that examples are kept apart, and answer for it.
        copies: how many augmented copies every example has: `accumulate_batch` then takes inputs of
            shape (examples, copies, ...). The gradient of an example is the mean over its copies,
            which is clipped as one vector (De et al. 2022).
        process_group: group of the processes that train together, by default all of them if
            torch.distributed is initialised. Every process must call `finish` once for each logical
            batch, and have examples that no other has.

    `accumulate_batch`, `accumulate` or `absorb` take one physical batch after the other; `finish`
    adds the noise and sets `grad`.

    Raises:
        UnsoundConfiguration: if the model mixes examples or cannot be recorded; also later, when a
            batch shows it.

    **Guarantee**: `finish` releases a sum over examples in the sensitivity set of the clipping plus
    normal noise that does not depend on it; the realised batch size enters nowhere else. An example
    whose gradient is not finite contributes zero. Sums of several processes are added up before
    noise is drawn, once for all of them. Row i of every call of the model within a physical batch,
    and of every layer, must belong to example i: a second call with the rows in another order would
    let one example into the gradients of two, which no check of a single call can see.

    Example:
        >>> import torch
        >>> from torch.nn.functional import cross_entropy
        >>> from taut.training import FlatClip
        >>> from taut.training.extend import PrivateGradient
        >>> model = torch.nn.Linear(4, 2)
        >>> step = PrivateGradient(model, FlatClip(1.0), scales=[1.1], expected_batch_size=8)
        >>> x, y = torch.randn(7, 4), torch.zeros(7, dtype=torch.long)
        >>> losses = step.accumulate_batch(
        ...     x, y, lambda outputs, targets: cross_entropy(outputs, targets, reduction="none")
        ... )
        >>> step.finish()
        >>> model.weight.grad.shape
        torch.Size([2, 4])
    """

    def __init__(
        self,
        model: nn.Module,
        clipping: Clipping,
        *,
        scales: Sequence[float] | None = None,
        noise: StepNoise | None = None,
        expected_batch_size: float,
        generator: RandomSource | None = None,
        backend: Backend = "auto",
        compile: bool = False,  # noqa: A002
        self_check: bool = True,
        unchecked_isolation: bool = False,
        copies: int = 1,
        process_group: Any = None,
    ) -> None:
        self.model = unwrapped(model)
        check_model(self.model)
        if not any(p.requires_grad for p in self.model.parameters()):
            raise ValueError("model has no trainable parameters; set requires_grad on some")
        self.processes = Processes.current(process_group)
        self._reduction = reduction_for(self.model, self.processes)
        with self._reduction.whole() as parameters:
            self._names: dict[Tensor, str] = {p: name for name, p in parameters.items()}
            self._copies = validate.positive_integer(copies=copies)
            self._tape: Tape | ExampleCalls | None = tape_for(self.model, backend, self._copies)
        self._parameters: list[Tensor] = list(self._names)
        self.clipping = clipping
        groups = clipping.groups(list(self._names.values()))
        self._step_noise = self._noise_for(clipping, groups, scales, noise)
        self._called: Callable[..., Any] = self.model
        if self._copies > 1:
            self._called = OnCopies(self.model, self._copies)
        given = default_generator() if generator is None else generator
        if given.secure:
            given.bytes(1)  # a source that fails should do so before it is trusted
        kept = self._step_noise.coordinate_rate
        self._expected = validate.positive(expected_batch_size=expected_batch_size) * kept
        self._generator = self._reduction.source(given)
        self.masks = Masks(kept, self.processes.own(given)) if kept < 1 else None
        """What samples coordinates, where the noise is for it; every process masks its rows."""
        self._sum = clipping.sum(self._parameters, groups, self._expected, self.masks)
        settings = (repr(clipping), repr(self._step_noise), self._expected)
        self.processes.check_same("clipping, noise and expected batch size", settings)
        self._to_check = self_check
        self.schedule = Schedule(self.model, active=self_check and not unchecked_isolation)
        """Which batches are run again in other company."""
        self._keeps_sketch = False
        self._sketch: Sketch | None = None
        self._may_change = backend == "auto"
        self._materialised = Materialised(self.model, compile=compile, copies=self._copies)

    @property
    def parameters(self) -> list[Tensor]:
        """Whose `grad` is set."""
        return list(self._reduction.trained.values())

    @property
    def dropped(self) -> int:
        """Examples of this logical batch that contributed zero; not for publication."""
        return self._sum.dropped

    @property
    def clipping_norm(self) -> float | None:
        """What the next logical batch is clipped to, if that changes; public. None otherwise."""
        return self._sum.norm

    def state_dict(self) -> dict[str, Any]:
        """Return what changes from step to step and is not in the model; all of it is public."""
        return {"clipping_norm": self.clipping_norm}

    def load_state_dict(self, state: Mapping[str, Any]) -> None:
        """Go on from a state, in all processes from the same.

        A bound that changes begins anew after a state in which it was constant.

        Raises:
            UnsoundConfiguration: if processes differ, since an example could then be clipped to
                another bound than noise is drawn for.
        """
        norm = state["clipping_norm"]
        self.processes.check_same("the clipping norm", norm)
        self._sum.go_on_with(None if norm is None else validate.positive(clipping_norm=norm))

    @property
    def is_sharded(self) -> bool:
        """Whether processes keep parts of the parameters."""
        return isinstance(self._reduction, Sharded)

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

    def accumulate_batch(self, inputs: Any, targets: Any, loss_fn: LossFunction) -> Tensor:
        """Absorb the gradients of one physical batch, and return its losses.

        Args:
            inputs: one tensor, or a tuple or mapping of arguments, examples first in all tensors,
                and then their copies, if there are several.
            targets: given to the loss function, examples first; None if it needs none.
            loss_fn: takes outputs and targets, and returns one loss per example.
        """
        self.begin()
        batch = batch_size(inputs)
        if batch == 0:
            return torch.zeros(0, device=self._sum.device)
        losses = self._of_examples(inputs, loss_fn)
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

    def _recorded(self, inputs: Any, targets: Any, loss_fn: LossFunction) -> Tensor:
        batch = batch_size(inputs)
        due = self.schedule.due(batch)
        draws = Draws(self.model) if due else None
        self._keeps_sketch = due is not None
        losses = self.accumulate(lambda: loss_fn(apply(self._called, inputs), targets))
        if draws is not None:
            self.test_isolation(
                partial(self._run, loss_fn), inputs, targets, draws, whole=due == "whole"
            )
        return losses

    def _run(self, loss_fn: LossFunction, inputs: Any, targets: Any) -> Sketch:
        """Take a batch through the model, and keep no more of it than a sketch."""
        with torch.enable_grad(), self.tape.recording():
            values = loss_fn(apply(self._called, inputs), targets)
        torch.autograd.backward(values.sum())
        return self.sketched(len(values))

    def sketched(self, batch: int, *, scale: float = 1.0) -> Sketch:
        """Return the sketch of what the tape holds, which is forgotten."""
        return Sketch.of(self.tape.records(batch), self._parameters, scale)

    def test_isolation(
        self,
        run: Run,
        inputs: Any,
        targets: Any,
        draws: Draws,
        *,
        whole: bool,
        by_loop: bool = False,
    ) -> None:
        """Run the batch that was absorbed last in other company, and compare.

        Args:
            run: takes a batch through the model and returns its sketch.
            inputs: inputs of that batch,
            targets: targets, or what the loss takes beside them.
            draws: random draws of the pass, from before it.
            whole: exchange all examples, one half after the other.
            by_loop: whether the backward pass was that of a user, not of `run`.

        Raises:
            UnsoundConfiguration: if a gradient changes; what was summed up is forgotten.
        """
        found, self._sketch = self._sketch, None
        assert found is not None
        try:
            isolation = Isolation(self.model, self._names, run, by_loop=by_loop)
            if isolation.check(inputs, targets, found, draws, whole=whole):
                self.schedule.passed(batch_size(inputs))
        except BaseException:
            self.discard()
            raise

    def _of_examples(self, inputs: Any, loss_fn: LossFunction) -> LossFunction:
        """Return the loss of examples, and refuse inputs without their copies."""
        if self._copies == 1:
            return loss_fn
        check_copies(inputs, self._copies)
        return MeanOverCopies(loss_fn, self._copies)

    def _write_out(self, inputs: Any, targets: Any, loss_fn: LossFunction) -> Tensor:
        due = self.schedule.due(batch_size(inputs))
        draws = Draws(self.model) if due else None
        losses, sketches = [], []
        for records, values in self._materialised.records(inputs, targets, loss_fn):
            if due:
                sketches.append(Sketch.of(records, self._parameters))
            self._sum.add(records, len(values))
            losses.append(values)
        if draws is not None:
            # One example is seen at a time; what a model keeps in attributes is still there later.
            self._sketch = Sketch.joined(sketches)
            run = partial(self._run_apart, loss_fn)
            self.test_isolation(run, inputs, targets, draws, whole=due == "whole")
        return torch.cat(losses)

    def _run_apart(self, loss_fn: LossFunction, inputs: Any, targets: Any) -> Sketch:
        parts = self._materialised.records(inputs, targets, loss_fn)
        return Sketch.joined([Sketch.of(records, self._parameters) for records, _ in parts])

    def accumulate(self, losses: Callable[[], Tensor]) -> Tensor:
        """Run a forward pass that returns one loss per example, and absorb its gradients.

        With several copies, rows of the pass are the copies of the first example, then those of the
        second; losses are means over the copies of an example.
        """
        self.begin()
        with self.tape.recording():
            values = losses()
        if values.dim() != 1:
            raise ValueError(
                f"losses must be one per example, got shape {tuple(values.shape)}; use "
                "reduction='none' and sum over all axes but the first"
            )
        if self._to_check and len(values) and isinstance(self._tape, Tape):
            check_losses(self._tape, self._names, values)
            self._to_check = len(values) < 2
        if len(values):
            torch.autograd.backward(values.sum())
        self.absorb(len(values))
        return values.detach()

    def absorb(self, batch: int, *, scale: float = 1.0) -> None:
        """Clip what the tape holds of the last backward pass, and add it to the sum.

        Args:
            batch: the number of examples in that pass.
            scale: what gradients are multiplied with first: the batch size, if the loss was a mean.
        """
        if batch == 0:
            self.tape.clear()
            return
        records = self.tape.records(batch)
        if len(records) != len(self._parameters):
            self._refuse_missing(records)
        if self._keeps_sketch:
            self._sketch = Sketch.of(records, self._parameters, scale)
            self._keeps_sketch = False
        for parameter in self._parameters:
            if parameter.grad is not None:
                raise UnsoundConfiguration(
                    f"parameter {self._names[parameter]!r} also got a gradient outside of its "
                    "layer, such as from a penalty in the loss; use the optimizer's weight_decay, "
                    "and parameters only through their layers"
                )
        self._sum.add(records, batch, scale)

    def begin(self) -> None:
        """Begin a logical batch, if it has not begun; every other method does so as well.

        Call it for a process without examples if processes talk before `finish`, as they do to
        count a step: parameters that are sharded are gathered here.
        """
        self._reduction.begin()

    def discard(self) -> None:
        """Forget what was absorbed since the last `finish`, as if no example had been seen."""
        self._sum.clear()
        if self._tape is not None:
            self._tape.clear()

    def keep_sketch(self) -> None:
        """Keep a sketch of what is absorbed next, for `test_isolation`."""
        self._keeps_sketch = True

    def check(self, inputs: Any, targets: Any = None, loss_fn: LossFunction | None = None) -> None:
        """Compare a few examples with plain autograd, and run the batch in other company.

        `accumulate_batch` does so with its first batch; those who run forward and backward passes
        of their own call this once. A batch of one example leaves the check to the next.

        Args:
            inputs: inputs of some examples.
            targets: targets for the loss function.
            loss_fn: loss function; by default the sum of squares of all outputs.

        Raises:
            UnsoundConfiguration: if gradients differ, naming the parameter.
        """
        loss = self._of_examples(inputs, sum_of_squares if loss_fn is None else loss_fn)
        check_model(self.model)
        with settled_norms(self.model):
            self._check_recording(inputs, targets, loss)
            tape = self._tape
            if not isinstance(tape, Tape) or batch_size(inputs) < 2 or not self.schedule.active:
                return
            draws, run = Draws(self.model), partial(self._run, loss)
            with draws.again():
                found = run(inputs, targets)
            Isolation(self.model, self._names, run).check(inputs, targets, found, draws, whole=True)

    def _check_recording(self, inputs: Any, targets: Any, loss: LossFunction) -> None:
        if isinstance(self._tape, Tape):
            self._check_tape(self._tape, inputs, targets, loss)
        else:
            self._check_apart(inputs)
        self._to_check = self._to_check and batch_size(inputs) < 2

    def call_by_example(self) -> ExampleCalls:
        """Change to calls of the model with one example each, and return what records them."""
        self._tape = ExampleCalls(self.model)
        return self._tape

    def _check_tape(self, tape: Tape, inputs: Any, targets: Any, loss: LossFunction) -> None:
        names = self._names
        try:
            with tape.learning():
                check_examples(self.model, tape, names, inputs, targets, loss, forward=self._called)
        except (UnsoundConfiguration, RuntimeError) as problem:
            if not self._may_change:
                raise
            check_instead(problem, partial(self._check_apart, inputs))
            self._tape = None

    def _check_apart(self, inputs: Any) -> None:
        calls = ExampleCalls(self.model)
        called = partial(apply, self._called)
        check_apart(self.model, calls, self._names, inputs, called)

    @torch.no_grad()
    def finish(self) -> None:
        """Add noise to the sum, divide, and set the gradients; the next logical batch begins."""
        votes, noise = self._sum.votes, self._step_noise
        factor = _ROUNDING / self._expected * (self._sum.norm or 1.0)
        self._reduction.finish(self._sum.taken(), noise, self._how(factor))
        if votes is not None:
            released = self._reduction.released(votes, noise, self._how(_ROUNDING))
            self._sum.move(float(released))

    def exchange(self, clipping: Clipping, noise: StepNoise) -> None:
        """Clip and add noise in another way from the next logical batch on.

        Args:
            clipping: must not depend on private examples but through what was released.
            noise: noise of that clipping, at the multiplier that the steps are accounted with.

        Raises:
            UnsoundConfiguration: within a logical batch, whose examples would be clipped in two
                ways and hidden by noise for one.
        """
        if not self._sum.is_empty:
            raise UnsoundConfiguration(
                "clipping cannot be exchanged within a logical batch; call finish() or discard() "
                "first"
            )
        if noise.coordinate_rate != self._step_noise.coordinate_rate:
            raise UnsoundConfiguration(
                f"noise is for coordinates sampled at {noise.coordinate_rate:g}, and masks are "
                f"drawn at {self._step_noise.coordinate_rate:g}; give the noise of the plan"
            )
        groups = clipping.groups(list(self._names.values()))
        self._step_noise = self._noise_for(clipping, groups, None, noise)
        self._sum = clipping.sum(self._parameters, groups, self._expected, self.masks)
        self.clipping = clipping
        self.processes.check_same("clipping and noise", (repr(clipping), repr(noise)))

    def check_optimizer(self, optimizer: Optimizer) -> None:
        """Refuse an optimizer whose parameters are not exactly those that get a gradient here."""
        check_parameters(self._reduction.named_parameters(), optimizer, self.parameters)

    def _refuse_missing(self, records: Mapping[Tensor, Record]) -> None:
        for parameter in self._parameters:
            if parameter not in records:
                raise UnsoundConfiguration(
                    f"parameter {self._names[parameter]!r} got no gradient from this batch; freeze "
                    "it with requires_grad_(False) if the loss does not depend on it, or call its "
                    "layer (not a function on its weight) in the forward pass"
                )
        raise UnsoundConfiguration(
            "a parameter became trainable after PrivateGradient was made; make a new one"
        )

    def _how(self, factor: float) -> Draw:
        return Draw(self._generator, factor, self._sum.dtype, self._sum.device)

    def _noise_for(
        self,
        clipping: Clipping,
        groups: Sequence[int],
        scales: Sequence[float] | None,
        noise: StepNoise | None,
    ) -> StepNoise:
        """Return the noise that was asked for, if it fits model and clipping."""
        if (scales is None) == (noise is None):
            raise ValueError("give either scales or noise")
        if noise is None:
            assert scales is not None
            noise = IndependentNoise(tuple(scales), tuple(groups))
        clipping.check_noise(noise)
        noise.check(groups, [parameter.numel() for parameter in self._parameters])
        if noise.needs_whole and self.is_sharded:
            raise UnsoundConfiguration(
                f"{type(noise).__name__} is drawn for all parameters at once, and these are "
                "sharded; use DistributedDataParallel, or a clipping by groups"
            )
        return noise
