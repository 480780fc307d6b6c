"""The private gradient: examples clipped and summed, noise added once, divided by a constant."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from functools import partial
from typing import Any

import torch
from torch import Tensor, nn
from torch.optim import Optimizer

from taut._base import validate
from taut.errors import UnsoundConfiguration
from taut.noise import RandomSource, default_generator
from taut.training._clipping.clipping import Clipping, RowClipping
from taut.training._gradients.apart.example_calls import ExampleCalls
from taut.training._gradients.layers.records import Record, Rows
from taut.training._gradients.suitable import check_model
from taut.training._gradients.tape import Backend, Tape
from taut.training._noise.step_noise import Draw, IndependentNoise, StepNoise
from taut.training._sampling.masks import Masks
from taut.training._step.example_gradients import ExampleGradients
from taut.training._step.optimizer_checks import check_parameters
from taut.training._step.reduction import Sharded, reduction_for, unwrapped
from taut.training._step.same_updates import check_same_updates
from taut.training._tensors.examples import LossFunction, batch_size
from taut.training._tensors.processes import Processes
from taut.training._tensors.recorded_step import released_count, released_step

__all__ = ["PrivateGradient"]

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
            self.examples = ExampleGradients(
                self.model,
                self._names,
                self._add,
                self.discard,
                backend=backend,
                compile=compile,
                self_check=self_check,
                unchecked=unchecked_isolation,
                copies=validate.positive_integer(copies=copies),
            )
            """What takes batches through the model, and checks it."""
        self._parameters: list[Tensor] = list(self._names)
        self.clipping = clipping
        groups = clipping.groups(list(self._names.values()))
        self._step_noise = self._noise_for(clipping, groups, scales, noise)
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

    @property
    def parameters(self) -> list[Tensor]:
        """Whose `grad` is set."""
        return list(self._reduction.trained.values())

    @property
    def names(self) -> list[str]:
        """The names of the trainable parameters, in the order of the model."""
        return list(self._names.values())

    @property
    def expected_batch_size(self) -> float:
        """What noisy sums are divided by: the expected number of examples and coordinates."""
        return self._expected

    @property
    def step_noise(self) -> StepNoise:
        """The noise of the next logical batch."""
        return self._step_noise

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
        return self.examples.backend

    @property
    def tape(self) -> Tape | ExampleCalls:
        """What records passes: the tape of the book-keeping back end, or calls by example."""
        return self.examples.tape

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
        return self.examples.of_batch(inputs, targets, loss_fn)

    def accumulate(self, losses: Callable[[], Tensor]) -> Tensor:
        """Run a forward pass that returns one loss per example, and absorb its gradients.

        With several copies, rows of the pass are the copies of the first example, then those of the
        second; losses are means over the copies of an example.
        """
        self.begin()
        return self.examples.of_losses(losses)

    def absorb(self, batch: int, *, scale: float = 1.0) -> None:
        """Clip what the tape holds of the last backward pass, and add it to the sum.

        Args:
            batch: the number of examples in that pass.
            scale: what gradients are multiplied with first: the batch size, if the loss was a mean.
        """
        self.examples.of_backward(batch, scale=scale)

    @torch.no_grad()
    def insert(self, gradients: Mapping[str, Tensor]) -> None:
        """Clip the gradients of made-up records, and add them to the sum like those of examples.

        Args:
            gradients: gradients by the name of a trainable parameter, each of shape (records,
                *parameter.shape); zero for parameters that are not named.

        **Guarantee**: what is inserted must not depend on examples but through what was released.
        The sum of the others then moves by a constant, and their guarantee is what it was; that of
        an inserted record is that of an example which is in this batch.
        """
        self.begin()
        named = {name: parameter for parameter, name in self._names.items()}
        if unknown := sorted(set(gradients) - set(named)):
            raise ValueError(f"gradients must name trainable parameters, got {unknown[0]!r}")
        count = len(next(iter(gradients.values()), ()))
        rows = {
            named[name]: Rows(named[name], g.to(self._sum.dtype)) for name, g in gradients.items()
        }
        if isinstance(self.clipping, RowClipping):  # it needs every coordinate
            for parameter in self._parameters:
                empty = torch.zeros(count, *parameter.shape, dtype=self._sum.dtype)
                rows.setdefault(parameter, Rows(parameter, empty.to(parameter.device)))
        if count:
            self._add(dict(rows), count, 1.0)

    def _add(self, records: dict[Tensor, Record], batch: int, scale: float) -> None:
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
        self.examples.clear()

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
        self.examples.check(inputs, targets, loss_fn)

    @torch.no_grad()
    def finish(self) -> None:
        """Add noise to the sum, divide, and set the gradients; the next logical batch begins."""
        votes, noise = self._sum.votes, self._step_noise
        factor = _ROUNDING / self._expected * (self._sum.norm or 1.0)
        totals, how = self._sum.taken(), self._how(factor)
        released_step(self, totals, how.source, lambda: self._reduction.finish(totals, noise, how))
        self._sum.restore([grad for p in self.parameters if (grad := p.grad) is not None])
        if votes is not None:
            count = partial(self._reduction.released, votes, noise, self._how(_ROUNDING))
            self._sum.move(float(released_count(self, votes, how.source, count)))

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
        self._check_coordinates(noise)
        groups = clipping.groups(list(self._names.values()))
        self._step_noise = self._noise_for(clipping, groups, None, noise)
        self._sum = clipping.sum(self._parameters, groups, self._expected, self.masks)
        self.clipping = clipping
        self.processes.check_same("clipping and noise", (repr(clipping), repr(noise)))

    def change(self, noise: StepNoise, expected_batch_size: float) -> None:
        """Take other noise and another divisor from the next logical batch on; clipping stays.

        Args:
            noise: noise of the step, as `plan.noise(sizes, step)` has it.
            expected_batch_size: divisor of the step, as `plan.batch_size_at(step)` has it.

        Raises:
            UnsoundConfiguration: within a logical batch, whose examples would be hidden by noise
                for another.
        """
        if not self._sum.is_empty:
            raise UnsoundConfiguration(
                "noise cannot be changed within a logical batch; call finish() or discard() first"
            )
        self._check_coordinates(noise)
        groups = self.clipping.groups(list(self._names.values()))
        self._step_noise = self._noise_for(self.clipping, groups, None, noise)
        kept = noise.coordinate_rate
        self._expected = validate.positive(expected_batch_size=expected_batch_size) * kept
        self._sum.expected = self._expected

    def _check_coordinates(self, noise: StepNoise) -> None:
        if noise.coordinate_rate != self._step_noise.coordinate_rate:
            raise UnsoundConfiguration(
                f"noise is for coordinates sampled at {noise.coordinate_rate:g}, and masks are "
                f"drawn at {self._step_noise.coordinate_rate:g}; give the noise of the plan"
            )

    def check_optimizer(self, optimizer: Optimizer) -> None:
        """Refuse an optimizer whose parameters are not exactly those that get a gradient here."""
        check_parameters(self._reduction.named_parameters(), optimizer, self.parameters)

    def check_processes(self, optimizer: Optimizer) -> None:
        """Refuse processes whose optimizers or weights differ; all of them call this."""
        check_same_updates(self.processes, optimizer, self.model, sharded=self.is_sharded)

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
        if clipping.follows_weights and self.processes.size > 1:
            raise UnsoundConfiguration(
                f"clipping={clipping!r} has coordinates that weights decide, on which "
                f"{self.processes.size} processes may differ by rounding; train with one, or use "
                "FlatClip"
            )
        if noise.needs_whole and self.is_sharded:
            raise UnsoundConfiguration(
                f"{type(noise).__name__} is drawn for all parameters at once, and these are "
                "sharded; use DistributedDataParallel, or a clipping by groups"
            )
        return noise
