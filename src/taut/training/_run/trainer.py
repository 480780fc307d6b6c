"""The trainer: a plan carried out, step by step."""

from __future__ import annotations

import logging
import os
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager, nullcontext
from dataclasses import replace
from typing import Any, Literal, Never, Self

import torch
from torch import Tensor, nn
from torch.optim import Optimizer
from torch.optim.lr_scheduler import LRScheduler

from taut._base import validate
from taut._base.run_names import checked_names
from taut.errors import BudgetExceeded, UnsoundConfiguration
from taut.noise import RandomSource
from taut.training._data.augmentation import Augmentation
from taut.training._data.batches import LabelRange, check_finite, check_rows, inputs_and_targets
from taut.training._data.first_batch import first_examples
from taut.training._data.loader import MicroBatch, PrivateLoader
from taut.training._data.owned_examples import WithOwners
from taut.training._data.recognised_loss import recognised
from taut.training._gradients.own_rows import MeanOverOwn, by_owner, by_row
from taut.training._gradients.suitable import train_mode
from taut.training._gradients.tape import Backend
from taut.training._ledger.ledger import RunLedger
from taut.training._ledger.record import RunRecord
from taut.training._ledger.result import TrainingResult
from taut.training._ledger.run_directory import RunDirectory
from taut.training._noise.correlated import CorrelatedNoise
from taut.training._noise.generators import split
from taut.training._noise.keyed_bits import NoiseKeys
from taut.training._plan.plan import Plan
from taut.training._run.evaluation import Evaluation, evaluate
from taut.training._run.files.run_files import RunFiles
from taut.training._run.files.weights_origin import WeightsOrigin
from taut.training._run.interrupts import Interrupts, leave_interrupts_to_parent
from taut.training._run.logs.audience import Audience
from taut.training._run.logs.callbacks import Callback, CSVLog
from taut.training._run.mixed_sgd import mixed
from taut.training._run.refresh import refresh_of, refuse_private
from taut.training._run.settings import Checkpointing, Loading, Logs, check_settings
from taut.training._run.state import RunState
from taut.training._step.dropped_examples import warn_of_dropped
from taut.training._step.moving_average import MovingAverage
from taut.training._step.optimizer_checks import check_linear, optimizer_of, scheduler_of
from taut.training._step.planned_step import PlannedStep
from taut.training._step.private_gradient import PrivateGradient
from taut.training._step.recorded_passes import check_detached
from taut.training._step.reduction import refuse_for_shards, unwrapped
from taut.training._tensors.examples import LossFunction, batch_size
from taut.training._tensors.processes import Processes

__all__ = ["PrivateTrainer"]

_LOG = logging.getLogger(__name__)
_LOADING, _CHECKPOINTS, _LOGS = Loading(), Checkpointing(), Logs()


class PrivateTrainer:
    """Trains a model as a plan says, and keeps the promise through crashes.

    Args:
        model: what is trained, in place; also in DistributedDataParallel, or after `fully_shard`.
        loss_fn: a function of outputs and targets with one loss per example, such as
            `nn.CrossEntropyLoss(reduction="none")`; one that returns the mean or the sum over
            examples is recognised.
        plan: how, and at what cost.
        optimizer: any of `torch.optim` that takes one gradient per step, or a function from
            parameters to one; plain SGD with learning rate 0.1 if left out. It gets the mean
            gradient over the expected batch. With a plan that mixes, plain SGD or a function to
            it, in whose place the steps of `ModelMix` are taken at its learning rates.
        scheduler: scheduler of the optimizer's learning rate, or a function from an optimizer to
            one; it is advanced after every step. With a plan that mixes, such a function.
        run_dir: where ledger and checkpoints are kept, so that a killed run can go on.
        loading: how examples become batches: physical batches, workers, collation, augmentation.
        checkpoints: when checkpoints are written to `run_dir`.
        logs: callbacks, the progress bar, and a log of private losses.
        public: examples that are no secret, as (inputs, targets) or as a dataset, for a clipping
            that is refreshed; see `RefreshedHybridClip`. Random labels are enough if the examples
            have none.
        ema: decay of a moving average of the weights, such as 0.999; see `averaged`.
        device: where the model and batches are moved.
        generator: generator of choices and noise, by default the secure one.
        backend: back end of `PrivateGradient`.
        unchecked_isolation: train without a test that model, loss and collate function keep
            examples apart; statement and ledger repeat it.
        names: a title, an owner and the name of the dataset, for the record of the run in its
            result; they are published with it.
        unknown: none; for a name that moved into `loading`, `checkpoints` or `logs`, the error
            says where it is.

    **Guarantee**: every update is the plan's: batches as its sampling draws them, clipped
    gradients, noise once, division by the expected batch size; it is written to the ledger before
    it can be seen. What was written cannot be undone: steps that are repeated after a crash count
    again, and training stops where the plan's epsilon would be exceeded.

    Raises:
        UnsoundConfiguration: if model, optimizer or scheduler cannot be used with privacy.
        TypeError: for an argument that is unknown or of another type.

    Example:
        >>> import torch
        >>> from torch import nn
        >>> from torch.utils.data import TensorDataset
        >>> from taut.training import FlatClip, Plan, PrivateTrainer
        >>> data = TensorDataset(torch.randn(200, 4), torch.randint(0, 2, (200,)))
        >>> plan = Plan(
        ...     examples=200, batch_size=50, epochs=2, epsilon=3, delta=1e-3,
        ...     clipping=FlatClip(1.0),
        ... )
        >>> trainer = PrivateTrainer(nn.Linear(4, 2), nn.CrossEntropyLoss(), plan)
        >>> result = trainer.fit(data)
        >>> result.steps, result.epsilon.upper <= 3
        (8, True)
    """

    def __init__(
        self,
        model: nn.Module,
        loss_fn: Any,
        plan: Plan,
        *,
        optimizer: Optimizer | Callable[[list[Tensor]], Optimizer] | None = None,
        scheduler: LRScheduler | Callable[[Optimizer], LRScheduler] | None = None,
        run_dir: str | os.PathLike[str] | None = None,
        loading: Loading = _LOADING,
        checkpoints: Checkpointing = _CHECKPOINTS,
        logs: Logs = _LOGS,
        public: Any = None,
        ema: float | None = None,
        device: torch.device | str | None = None,
        generator: RandomSource | None = None,
        backend: Backend = "auto",
        unchecked_isolation: bool = False,
        names: Mapping[str, str | None] | None = None,
        **unknown: Never,
    ) -> None:
        check_settings(loading, checkpoints, logs, unknown)
        if not isinstance(plan, Plan):
            raise validate.WrongType(f"plan must be a Plan, got plan={plan!r}")
        model = unwrapped(model)
        check_detached(model)
        self.plan = plan
        self.device = None if device is None else torch.device(device)
        self.model = model if self.device is None else model.to(self.device)
        self._sampling_bits, self._noise_bits = split(generator)
        sizes = {name: p.numel() for name, p in model.named_parameters() if p.requires_grad}
        self.optimizer = mixed(
            optimizer_of(model, optimizer), plan, sizes, self._noise_bits, Processes.current()
        )
        if plan.encoder is not None:
            check_linear(self.optimizer)
        self.scheduler = scheduler_of(self.optimizer, scheduler)
        self.average = None if ema is None else MovingAverage(model, ema)
        self.step = 0
        """How many updates the model has had."""
        self.ledger: RunLedger | None = None
        """What was spent, once training has begun."""
        self._augment = Augmentation.of(loading.augment, loading.copies)
        self._gradient = PrivateGradient(
            model,
            plan.clipping,
            noise=plan.noise(sizes),
            expected_batch_size=plan.batch_size_at(0),
            generator=self._noise_bits,
            backend=backend,
            unchecked_isolation=unchecked_isolation,
            copies=loading.copies * plan.examples_each,
        )
        self._step_of_plan = PlannedStep(plan, self._gradient, sizes)
        self._public = public
        self.refresh = refresh_of(
            plan, self._gradient, public, collate_fn=loading.collate_fn, device=self.device
        )
        """When the clipping was last refreshed and how long that took; None if it is fixed."""
        self._processes = self._gradient.processes
        if self._gradient.is_sharded:
            refuse_for_shards(mixing=plan.mixing is not None, run_dir=run_dir is not None)
        self._origin = WeightsOrigin(model, lambda: self.ledger, at_once=False)
        self._files = RunFiles(run_dir, plan, checkpoints, processes=self._processes)
        self._loading = loading
        self._unchecked_isolation = unchecked_isolation
        self._loss_fn = loss_fn
        self._losses: LossFunction | None = None
        self._labels: LabelRange | None = None
        is_first = self._processes.is_first
        self._callbacks = [*logs.callbacks, *self._private_log(logs)] if is_first else []
        self._progress = logs.progress and is_first
        self._names = checked_names(names or {})
        self._noise_keys: NoiseKeys | None = None
        self._dropped = self._dropped_now = 0  # examples that contributed nothing

    @classmethod
    def resume(
        cls, run_dir: str | os.PathLike[str], model: nn.Module, loss_fn: Any, **arguments: Any
    ) -> Self:
        """Return a trainer for the run in a directory, with its plan; `fit` goes on with it.

        Args:
            run_dir: directory of the run.
            model: model of the same architecture; its weights are replaced by those of the
                checkpoint.
            loss_fn: loss function, as before.
            arguments: arguments, as before; optimizer and scheduler must be of the same kind.
        """
        return cls(model, loss_fn, RunDirectory(run_dir).read_plan(), run_dir=run_dir, **arguments)

    def fit(
        self,
        dataset: Any,
        *,
        owners: Any = None,
        resume: Literal["auto", "never", "changed_data"] = "auto",
    ) -> TrainingResult:
        """Train until the steps of the plan are taken, or its budget is spent.

        Args:
            dataset: anything with `__len__` and `__getitem__`, of inputs and targets.
            owners: names of the examples' owners, integers or strings in the order of the dataset,
                for a plan with `unit=Owners(...)`. They are as private as the examples, and get
                into no file.
            resume: "auto" goes on with the run in `run_dir`, if there is one; "never" refuses.
                "changed_data" goes on even if the dataset is not the one that the run began with,
                by the fingerprint in its ledger; ledger and statement say so.

        Raises:
            UnsoundConfiguration: if another process trains in `run_dir`, the run there began with
                another dataset, or the first batch shows that the model cannot be trained with
                privacy.
            BudgetExceeded: if this trainer has already spent what was planned.
            ValueError: for data that the model or the loss cannot use.
            KeyboardInterrupt: if the run was interrupted by Ctrl-C (SIGINT). The step that was
                going on is finished first and, with a `run_dir`, a checkpoint is written: the next
                `fit` goes on from there, and no step is lost. A second Ctrl-C stops at once.
            SystemExit: in the same way with exit code 143, if it was asked to end (SIGTERM).
        """
        if resume not in ("auto", "never", "changed_data"):
            raise ValueError(
                f"resume must be 'auto', 'never' or 'changed_data', got resume={resume!r}"
            )
        if resume == "changed_data" and self.plan.keeps_to_dataset:
            raise UnsoundConfiguration(
                "correlated noise and a fixed order are accounted for examples that keep to their "
                "steps, which those of another dataset do not; begin a new run, whose loss adds"
            )
        with Interrupts(self._processes, self._gradient.parameters[0].device) as interrupts:
            loader = self._loader(dataset, owners)
            self._prepare(dataset)
            seen = dataset if owners is None else WithOwners(dataset, owners)
            stopped = self._carried_out(seen, loader, resume, interrupts)
            result = None if stopped else self._ended()
        if result is None or interrupts.was_asked:
            interrupts.do(f"stopped after step {self.step} of {self.plan.steps}")
        return result

    def check(self, dataset: Any, *, owners: Any = None) -> None:
        """Check all that the first step checks, with examples of the dataset; take no step.

        Args:
            dataset: dataset, as for `fit`.
            owners: names of owners, as for `fit`.

        **Guarantee**: nothing is released and nothing is counted: gradients are computed, compared
        and forgotten, and weights stay as they are. What is refused may depend on examples, as in
        `fit`: messages are for their owner.

        Raises:
            UnsoundConfiguration: if the model cannot be trained with privacy.
            ValueError: for data that the model or the loss cannot use.
        """
        loader = self._loader(dataset, owners)
        self._prepare(dataset)
        batch = first_examples(
            dataset,
            self.plan.batch_size,
            self._loading.examples_at_once,
            self._loading.collate_fn,
            loader.owned,
        )
        rows = batch_size(inputs_and_targets(batch)[0]) // self.plan.examples_each
        if self.plan.unit is not None:
            batch = by_owner(batch, rows)
        train_mode(self.model)
        with torch.random.fork_rng():
            self._renew_clipping()
            try:
                self._accumulate(MicroBatch(batch, rows, 0, is_last=True))
            finally:
                self._gradient.discard()

    def insert(self, gradients: Mapping[str, Tensor]) -> None:
        """Add the gradients of made-up records to the batch of this step, clipped like any other.

        Args:
            gradients: gradients by the name of a trainable parameter, each of shape (records,
                *parameter.shape); zero for parameters that are not named.

        For canaries of an audit, from `Callback.on_batch_end`.

        **Guarantee**: what is inserted must not depend on examples but through what was released;
        the promise for examples is then what it was, as the sum of the others moves by a constant.

        Raises:
            ValueError: for a name that no trainable parameter has.
        """
        self._gradient.insert(gradients)

    def evaluate(
        self, dataset: Any, *, averaged: bool | None = None, batch_size: int = 1024
    ) -> Evaluation:
        """Return loss and accuracy on examples that are public or held out.

        Args:
            dataset: on examples of the training set the answer is not covered by the promise.
            averaged: use the moving average of the weights; by default if there is one.
            batch_size: how many examples are computed at a time.
        """
        self._prepare(dataset)
        assert self._losses is not None
        use = self.average is not None if averaged is None else averaged
        with self.averaged() if use else nullcontext():
            return evaluate(
                self.model,
                dataset,
                self._losses,
                batch=batch_size,
                collate_fn=self._loading.collate_fn,
                device=self.device,
            )

    @contextmanager
    def averaged(self) -> Iterator[nn.Module]:
        """Give the model its averaged weights inside of the block, to save or to evaluate it."""
        if self.average is None:
            raise ValueError("there is no average of weights; make the trainer with ema=0.999")
        with self.average.applied():
            yield self.model

    # --- before the first step -----------------------------------------------------------------

    def _loader(self, dataset: Any, owners: Any) -> PrivateLoader:
        refuse_private(self._public, dataset)
        loading = self._loading = self._loading.fitted(self.model, dataset, self._processes.size)
        return PrivateLoader(
            dataset,
            self.plan,
            steps=self.plan.steps,
            generator=self._sampling_bits,
            max_physical_batch_size=loading.examples_at_once,
            num_workers=loading.num_workers,
            collate_fn=loading.collate_fn,
            owners=owners,
            worker_init_fn=leave_interrupts_to_parent if loading.num_workers else None,
            unchecked_isolation=self._unchecked_isolation,
        )

    def _private_log(self, logs: Logs) -> Iterator[Callback]:
        directory = self._files.directory
        if logs.private_metrics:
            if directory is None:
                raise ValueError("private_metrics=True needs a run_dir to write to")
            yield CSVLog(RunDirectory(directory).private_losses, private=True)

    def _prepare(self, dataset: Any) -> None:
        """Find out about the loss function, from what the model says about a few examples."""
        if self._losses is not None:
            return
        self._losses, self._labels = recognised(
            self._loss_fn,
            self.model,
            dataset,
            self._loading.collate_fn,
            self.device,
            unchecked=self._unchecked_isolation,
        )

    def _state(self, loader: PrivateLoader, ledger: RunLedger) -> RunState:
        return RunState(
            self.plan,
            ledger,
            self.model,
            self.optimizer,
            self.scheduler,
            self.average,
            loader,
            self._noise_bits,
            self._processes,
            self._gradient,
            self.refresh,
            self._losses,
        )

    def _restored(self, state: RunState, resume: str) -> bool:
        """Load the checkpoint, if there is one; return whether training is already over."""
        saved = self._files.checkpoint()
        if resume == "never" and (saved is not None or state.ledger.steps):
            raise ValueError(
                f"run_dir={str(self._files.directory)!r} holds a run; go on with resume='auto', or "
                "use another directory"
            )
        if saved is not None:
            state.check(saved)
        if saved is not None and saved["step"] >= self.step:
            self._origin.forget()  # other weights that were loaded are replaced
            self.step = state.load(saved)
            return self.step >= self.plan.steps or self._has_left_schedule(state)
        if self.step >= self.plan.steps:
            raise BudgetExceeded(
                f"all {self.plan.steps} steps of the plan were taken; make a new plan, whose loss "
                "adds to that of this one"
            )
        state.loader.load_state_dict({"steps": self.step, "generator": None})
        return self._has_left_schedule(state)

    def _has_left_schedule(self, state: RunState) -> bool:
        """Go to the step of a schedule that the ledger is at; return whether there is none left.

        Steps that were lost in a crash count, and are left out of the schedule: what was spent is
        then always that of its first steps.
        """
        if not self.plan.follows_ledger:
            return False
        if state.loader.steps_taken != state.ledger.position:
            state.loader.load_state_dict({"steps": state.ledger.position, "generator": None})
        return state.ledger.position >= self.plan.steps

    # --- training ------------------------------------------------------------------------------

    def _carried_out(
        self, dataset: Any, loader: PrivateLoader, resume: str, interrupts: Interrupts
    ) -> bool:
        """Take the steps that are left; return whether the run was stopped before the last."""
        self.ledger = self._files.ledger()
        if self._unchecked_isolation:
            self.ledger.note_unchecked_isolation()
        if not self._noise_bits.secure:
            self.ledger.note_seed()
        began, stopped = None, False
        try:
            state = self._state(loader, self.ledger)
            is_over = self._restored(state, resume)
            self._origin.settle(self.ledger)
            self._files.note_data(self.ledger, dataset, may_change=resume == "changed_data")
            if not is_over:
                began = self.step
                if self.plan.encoder is not None:
                    check_linear(self.optimizer)  # hooks may have been added since
                self._gradient.check_processes(self.optimizer)
                self._begin_noise(self.ledger, loader)
                self._say_where(began)
                stopped = self._train(state, interrupts)
        finally:
            has_moved = stopped and self.step != began
            self._files.close(self.ledger, interrupted_after=self.step if has_moved else None)
        return stopped

    def _begin_noise(self, ledger: RunLedger, loader: PrivateLoader) -> None:
        """Give correlated noise a key for the steps from now on, and those of the steps before.

        Batches that are secret follow from the first of them.
        """
        noise = self._gradient.step_noise
        if not isinstance(noise, CorrelatedNoise):
            return
        if self._files.directory or not ledger.steps:
            named = dict(zip(self._gradient.names, self._gradient.parameters, strict=True))
            self._noise_keys = self._files.noise_keys(self._noise_bits, ledger, named)
            noise.go_on(self._noise_keys, ledger.position)
        assert self._noise_keys is not None
        loader.follow(self._noise_keys.of_batches)

    def _say_where(self, step: int) -> None:
        assert self.ledger is not None
        if self.ledger.steps:
            _LOG.info(
                "going on after step %d of %d; %d steps count so far",
                step,
                self.plan.steps,
                self.ledger.steps,
            )

    def _train(self, state: RunState, interrupts: Interrupts) -> bool:
        train_mode(self.model)
        self._gradient.discard()
        self._renew_clipping()
        audience = Audience(self, self._callbacks, self.plan, state.ledger, progress=self._progress)
        total, seen = 0.0, 0
        try:
            if interrupts.stop():
                return True
            for part in state.loader.microbatches():
                self._step_of_plan.come_to(part.place)
                total, seen = total + self._accumulate(part), seen + part.size
                if not part.is_last:
                    continue
                if not self._update(state.ledger, part.place):
                    break
                self._renew_clipping()
                self._files.save(self.step, lambda: state.saved(self.step))
                mean = total / seen if seen else None
                audience.step_ended(mean, self._dropped_now, self._gradient.clipping_norm)
                total, seen = 0.0, 0
                if interrupts.stop() and self.step < self.plan.steps:
                    self._files.save(self.step, lambda: state.saved(self.step), now=True)
                    self._tell_of_interrupt()
                    return True
        finally:
            audience.close()
        self._files.save(self.step, lambda: state.saved(self.step), now=True)
        return False

    def _tell_of_interrupt(self) -> None:
        for callback in self._callbacks:
            callback.on_interrupt(self)

    def _ended(self) -> TrainingResult:
        """Write down what the run promises."""
        assert self.ledger is not None
        result = TrainingResult.of(
            self.plan,
            self.ledger.history,
            steps=self.step,
            is_secure=self._noise_bits.secure and not self.ledger.history.seeded,
            dropped_examples=self._dropped,
        )
        record = self._files.finished(result) or RunRecord.now(self._names)
        result = replace(result, record=record)
        self._files.save_result(result)
        for callback in self._callbacks:
            callback.on_fit_end(self, result)
        return result

    def _renew_clipping(self) -> None:
        if self.refresh is not None and self.refresh.is_due(self.step):
            assert self._losses is not None
            self.refresh.renew(self.step, self._losses)

    def _accumulate(self, part: MicroBatch) -> float:
        """Absorb a physical batch; return the sum of its losses."""
        self._gradient.begin()
        if part.is_empty:
            return 0.0
        assert self._losses is not None
        assert self._labels is not None
        data = part.data if self.plan.unit is None else by_row(part.data)
        inputs, targets = inputs_and_targets(data, self.device)
        check_rows(inputs, part.size * self.plan.examples_each)
        check_finite(inputs)
        self._labels.check(targets)
        if self._augment is not None:
            inputs = self._augment(inputs)
        loss_fn = self._losses
        if (each := self.plan.examples_each) > 1:
            copies = self._loading.copies
            inputs, targets = by_owner(inputs, part.size, copies), by_owner(targets, part.size)
            loss_fn = MeanOverOwn(loss_fn, each, copies)
        losses = self._gradient.accumulate_batch(inputs, targets, loss_fn)
        return float(losses.sum())

    def _update(self, ledger: RunLedger, place: int) -> bool:
        """Take a step, unless steps that were repeated after a crash have used up the budget."""
        self._gradient.check_optimizer(self.optimizer)
        try:
            ledger.record(self.step, place)
        except BudgetExceeded:
            self._gradient.discard()
            return False
        self._dropped_now = self._gradient.dropped
        self._dropped = warn_of_dropped(self._dropped, self._dropped_now)
        for callback in self._callbacks:
            callback.on_batch_end(self)
        self._gradient.finish()
        self.optimizer.step()
        if self.scheduler is not None:
            self.scheduler.step()
        if self.average is not None:
            self.average.update()
        self.step += 1
        return True
