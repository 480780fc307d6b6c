"""Runs from their configuration: begun once, gone on with as often as it takes."""

from __future__ import annotations

import os
from collections.abc import Callable, Sequence
from contextlib import nullcontext
from dataclasses import dataclass
from pathlib import Path
from typing import Any, TypeVar

import torch
from torch import Tensor, nn
from torch.optim import SGD, Adam, AdamW, Optimizer, RMSprop
from torch.optim.lr_scheduler import CosineAnnealingLR, LinearLR, LRScheduler
from torch.utils.data import TensorDataset

from taut.errors import TautError
from taut.noise import SeededForExperiments
from taut.runs._code import check_allowed, names_code
from taut.runs._config import RunConfig
from taut.runs._data import read_data
from taut.runs._models import make_model, suited
from taut.runs._run_directory import (
    begun,
    check_files,
    check_new,
    check_trained_weights,
    plan_in,
)
from taut.runs._sections import TrainingSection
from taut.training import (
    Callback,
    Checkpointing,
    CSVLog,
    Evaluation,
    Loading,
    Logs,
    Plan,
    PrivateTrainer,
    RunDirectory,
    TrainingResult,
)

__all__ = ["PreparedRun", "RunOutcome", "prepare", "resume", "train"]

Result = TypeVar("Result")

_ROWS = 1_000  # of the metrics, about


@dataclass(frozen=True)
class PreparedRun:
    """A run of which everything was checked that can be checked before the first step.

    Attributes:
        config: where it came from.
        examples: examples to train on.
        held_out: examples to evaluate on, if there are any.
        model: model with its first weights.
        plan: what the run will cost.
    """

    config: RunConfig
    examples: TensorDataset
    held_out: TensorDataset | None
    model: nn.Module
    plan: Plan


@dataclass(frozen=True)
class RunOutcome:
    """What came of a run.

    Attributes:
        result: the promise.
        evaluation: on the held-out examples; the promise does not cover it. None without them.
        directory: directory of the run: config.toml, plan.json, ledger.jsonl, metrics.csv,
            checkpoint.pt, model.pt (the weights, averaged if `ema` was set) and result.json.
    """

    result: TrainingResult
    evaluation: Evaluation | None
    directory: Path


def prepare(config: RunConfig, *, allow_code: str | None = None) -> PreparedRun:
    """Read the data, make the model, solve the plan, and check all that the first step checks.

    Args:
        config: configuration from `RunConfig.from_toml`.
        allow_code: modules that may be imported, as of `train`.

    **Guarantee**: nothing is trained, released, counted or written; see `PrivateTrainer.check`.

    Raises:
        ValueError: if parts of the configuration do not fit together.
        UnsoundConfiguration: if the model cannot be trained with privacy.
        InfeasibleBudget: if no noise of use keeps the promise.
        OSError: if the data cannot be read.
    """
    prepared = _prepared(config, None, allow_code)
    trainer = _trainer(prepared, run_dir=None)
    _in_one_line(lambda: trainer.check(prepared.examples), prepared)
    return prepared


def train(
    config: RunConfig,
    *,
    allow_code: str | None = None,
    callbacks: Sequence[Callback] = (),
    progress: bool = True,
) -> RunOutcome:
    """Begin the run that a configuration describes, and carry it to its end.

    Args:
        config: configuration from `RunConfig.from_toml`.
        allow_code: the module whose code a model "module:factory" may run; it must lie below the
            working directory. Without it the configuration can name models of taut alone.
        callbacks: are told about the course of the run.
        progress: show the course of the run, if standard error is a terminal.

    **Guarantee**: that of `taut.training.PrivateTrainer`. The directory holds all it takes to go
    on: a run that was interrupted or killed is taken up by `resume`, and never forgets what it has
    spent. If the first step is never taken, no directory is left behind.

    Raises:
        ValueError: as `prepare`, and if the directory already holds a run.
        RunInUse: if another process trains there.
        KeyboardInterrupt: after a checkpoint, if the run was interrupted; see `PrivateTrainer.fit`.

    Example:
        >>> import tempfile
        >>> from pathlib import Path
        >>> import numpy as np
        >>> from taut.runs import RunConfig, resume, train
        >>> text = '''
        ... [data]
        ... path = "points.npz"
        ... [model]
        ... name = "mlp"
        ... widths = [2, 2]
        ... [plan]
        ... batch_size = 20
        ... steps = 5
        ... epsilon = 3
        ... delta = 1e-3
        ... [run]
        ... directory = "run"
        ... '''
        >>> with tempfile.TemporaryDirectory() as folder:
        ...     home = Path(folder)
        ...     np.savez(home / "points.npz", x=np.ones((100, 2)), y=np.arange(100) % 2)
        ...     _ = (home / "points.toml").write_text(text)
        ...     outcome = train(RunConfig.from_toml(home / "points.toml"))
        ...     again = resume(home / "run")
        >>> outcome.result.steps, outcome.result.epsilon.upper <= 3, again.result.counted_steps
        (5, True, 5)
    """
    directory = config.directory
    check_new(RunDirectory(directory))
    prepared = _prepared(config, None, allow_code)
    with begun(RunDirectory(directory), config.moved(directory).to_toml()):
        trainer = _trainer(prepared, directory, callbacks, progress=progress)
        result = _fitted(trainer, prepared)
    return _outcome(trainer, prepared, result)


def resume(
    directory: str | os.PathLike[str],
    *,
    allow_code: str | None = None,
    callbacks: Sequence[Callback] = (),
    progress: bool = True,
) -> RunOutcome:
    """Go on with the run in a directory, with the configuration that it was begun with.

    Args:
        directory: directory of a run that `train` began.
        allow_code: modules that may be imported, as of `train`; a configuration in a directory is
            as little to be trusted.
        callbacks: callbacks, as of `train`.
        progress: progress bar, as of `train`.

    **Guarantee**: as `train`. Steps that are taken again after a crash count again; after an
    interrupt none are. A finished run is only evaluated.

    Raises:
        ValueError: if there is no run, its files are damaged or links to others, or its
            configuration was changed so that it no longer describes the run's plan.
        RunInUse: if another process trains there.
        UnsoundConfiguration: if the ledger was lost.
    """
    place = RunDirectory(directory)
    if not place.config.exists():
        raise ValueError(
            f"no run was begun in {str(place.path)!r}: it has no config.toml; begin one with "
            "taut train CONFIG.toml"
        )
    check_files(place)
    config = RunConfig.from_toml(place.config)
    if config.directory.resolve() != place.path.resolve():
        raise ValueError(f"{place.config} is for a run in {config.directory}; go on with that")
    check_trained_weights(place)
    plan = plan_in(place)
    if plan is not None:
        config.plan.check(plan)
    prepared = _prepared(config, plan, allow_code)
    trainer = _trainer(prepared, place.path, callbacks, progress=progress)
    return _outcome(trainer, prepared, _fitted(trainer, prepared))


def _prepared(config: RunConfig, plan: Plan | None, allow_code: str | None) -> PreparedRun:
    if names_code(config.model.name):
        check_allowed(config.model.name, allow_code)  # before anything else is opened
    examples, held_out = read_data(
        config.data,
        config.data_path,
        config.validation_path,
        classes=config.training.loss == "cross_entropy",
    )
    if plan is None:
        plan = config.plan.plan(len(examples))
    if config.training.seed is not None:
        torch.manual_seed(config.training.seed)
    _check_device(config.training.device)
    model = make_model(config.model, config.code, allow_code=allow_code)
    examples = suited(model, examples, config.model.name)
    if held_out is not None:
        held_out = suited(model, held_out, config.model.name)
    if held_out is not None and config.training.loss == "cross_entropy":
        _check_labels(model, held_out)
    return PreparedRun(config, examples, held_out, model, plan)


def _trainer(
    prepared: PreparedRun,
    run_dir: Path | None,
    callbacks: Sequence[Callback] = (),
    *,
    progress: bool = False,
) -> PrivateTrainer:
    config, plan = prepared.config, prepared.plan
    training, seed = config.training, config.training.seed
    logs = []
    if run_dir is not None:
        logs = [CSVLog(RunDirectory(run_dir).metrics, every=max(plan.steps // _ROWS, 1))]
    return PrivateTrainer(
        prepared.model,
        _LOSSES[training.loss](),
        plan,
        optimizer=lambda parameters: _optimizer(training, parameters),
        scheduler=_scheduler(training, plan.steps),
        run_dir=run_dir,
        loading=Loading(
            max_physical_batch_size=training.physical_batch_size, num_workers=training.workers
        ),
        checkpoints=Checkpointing(seconds=config.run.checkpoint_seconds),
        logs=Logs(callbacks=[*logs, *callbacks], progress=progress),
        ema=training.ema,
        device=training.device,
        generator=None if seed is None else SeededForExperiments(seed),
        names=config.run.names,
    )


def _outcome(trainer: PrivateTrainer, prepared: PreparedRun, result: TrainingResult) -> RunOutcome:
    """Save the weights, and say how good they are."""
    directory, held_out = prepared.config.directory, prepared.held_out
    with nullcontext(prepared.model) if trainer.average is None else trainer.averaged() as model:
        _save(RunDirectory(directory).model, model)
    return RunOutcome(
        result=result,
        evaluation=None if held_out is None else trainer.evaluate(held_out),
        directory=directory,
    )


def _fitted(trainer: PrivateTrainer, prepared: PreparedRun) -> TrainingResult:
    return _in_one_line(lambda: trainer.fit(prepared.examples), prepared)


def _in_one_line(action: Callable[[], Result], prepared: PreparedRun) -> Result:
    """Tell in one line what goes wrong in a model, or between it and its data."""
    try:
        return action()
    except (TautError, ValueError, OSError):
        raise
    except Exception as error:
        reason = str(error).strip().split("\n")[0]
        raise ValueError(
            f"[model] {prepared.config.model.name} could not be trained: {type(error).__name__}: "
            f"{reason}; taut.runs.train shows where"
        ) from error


_LOSSES: dict[str, Callable[[], nn.Module]] = {
    "cross_entropy": lambda: nn.CrossEntropyLoss(reduction="none"),
    "mse": nn.MSELoss,
    "binary": nn.BCEWithLogitsLoss,
}


def _optimizer(training: TrainingSection, parameters: list[Tensor]) -> Optimizer:
    options: dict[str, Any] = {
        "lr": training.learning_rate,
        "weight_decay": training.weight_decay,
    }
    if training.momentum is not None:
        options["momentum"] = training.momentum
    kinds = {"sgd": SGD, "adam": Adam, "adamw": AdamW, "rmsprop": RMSprop}
    optimizer: Optimizer = kinds[training.optimizer](parameters, **options)
    return optimizer


def _scheduler(training: TrainingSection, steps: int) -> Callable[[Optimizer], LRScheduler] | None:
    if training.schedule == "cosine":
        return lambda optimizer: CosineAnnealingLR(optimizer, T_max=steps)
    if training.schedule == "linear":
        return lambda optimizer: LinearLR(optimizer, 1.0, 1.0 / steps, total_iters=steps)
    return None


def _check_labels(model: nn.Module, held_out: TensorDataset) -> None:
    """Refuse labels of held-out examples that the model has no output for, before training."""
    inputs, labels = held_out.tensors
    with torch.no_grad(), torch.random.fork_rng():
        outputs = model.eval()(inputs[:1])
    if not isinstance(outputs, Tensor) or outputs.dim() < 2:
        return
    least, most, classes = int(labels.min()), int(labels.max()), outputs.shape[1]
    if least < 0 or most >= classes:
        raise ValueError(
            f"[data] y_test holds labels from {least} to {most}, but the model has {classes} "
            f"outputs: labels must be from 0 to {classes - 1}"
        )


def _check_device(device: str | None) -> None:
    if device is None:
        return
    try:
        torch.empty(1, device=device)
    except (RuntimeError, AssertionError, NotImplementedError) as error:
        reason = str(error).split("\n")[0]
        raise ValueError(f"[training] device {device!r} is not there: {reason}") from None


def _save(path: Path, model: nn.Module) -> None:
    temporary = path.with_name(path.name + ".part")
    torch.save(model.state_dict(), temporary)
    temporary.replace(path)
