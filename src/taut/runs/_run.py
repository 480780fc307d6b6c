"""Runs from their configuration: begun once, gone on with as often as it takes."""

from __future__ import annotations

import os
import secrets
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import torch
from torch import Tensor, nn
from torch.optim import SGD, Adam, AdamW, Optimizer, RMSprop
from torch.optim.lr_scheduler import CosineAnnealingLR, LinearLR, LRScheduler
from torch.utils.data import TensorDataset

from taut.errors import TautError
from taut.noise import SeededForExperiments
from taut.runs._config import RunConfig
from taut.runs._data import read_data
from taut.runs._models import make_model
from taut.runs._sections import TrainingSection
from taut.training import CSVLog, Evaluation, Plan, PrivateTrainer, TrainingResult

__all__ = ["PreparedRun", "RunOutcome", "prepare", "resume", "train"]

_ROWS = 1_000  # of the metrics, about


@dataclass(frozen=True)
class PreparedRun:
    """A run of which everything was checked that can be checked before the first step.

    Attributes:
        config: where it came from.
        examples: to train on.
        held_out: to evaluate on, if there are any.
        model: with its first weights.
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
        directory: of the run: config.toml, plan.json, ledger.jsonl, metrics.csv, checkpoint.pt,
            model.pt (the weights, averaged if `ema` was set) and result.json.
    """

    result: TrainingResult
    evaluation: Evaluation | None
    directory: Path


def prepare(config: RunConfig) -> PreparedRun:
    """Read the data, make the model and solve the plan of a configuration; train nothing.

    Raises:
        ValueError: if parts of the configuration do not fit together.
        InfeasibleBudget: if no noise of use keeps the promise.
        OSError: if the data cannot be read.
    """
    return _prepared(config, None)


def train(config: RunConfig, *, progress: bool = True) -> RunOutcome:
    """Begin the run that a configuration describes, and carry it to its end.

    Args:
        config: from `RunConfig.from_toml`.
        progress: show the course of the run, if standard error is a terminal.

    **Guarantee**: that of `taut.training.PrivateTrainer`. The directory holds all it takes to go
    on: a run that was killed is taken up by `resume`, and never forgets what it has spent.

    Raises:
        ValueError: as `prepare`, and if the directory already holds a run.
        RunInUse: if another process trains there.

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
    _check_new(directory)
    prepared = _prepared(config, None)
    directory.mkdir(parents=True, exist_ok=True)
    _write_once(directory / "config.toml", config.moved(directory).to_toml())
    return _carried_out(prepared, progress=progress)


def resume(directory: str | os.PathLike[str], *, progress: bool = True) -> RunOutcome:
    """Go on with the run in a directory, with the configuration that it was begun with.

    Args:
        directory: of a run that `train` began.
        progress: as of `train`.

    **Guarantee**: as `train`. Steps that are taken again after a crash count again; a finished run
    is only evaluated.

    Raises:
        ValueError: if there is no run, its files are damaged, or its configuration was changed so
            that it no longer describes the run's plan.
        RunInUse: if another process trains there.
        UnsoundConfiguration: if the ledger was lost.
    """
    place = Path(directory)
    if not (place / "config.toml").exists():
        raise ValueError(
            f"no run was begun in {os.fspath(place)!r}: it has no config.toml; begin one with "
            "taut train CONFIG.toml"
        )
    config = RunConfig.from_toml(place / "config.toml")
    if config.directory.resolve() != place.resolve():
        raise ValueError(
            f"{place / 'config.toml'} is for a run in {config.directory}; go on with that"
        )
    _check_trained_weights(place)
    plan = _plan_in(place / "plan.json")
    if plan is not None:
        config.plan.check(plan)
    return _carried_out(_prepared(config, plan), progress=progress)


def _check_trained_weights(place: Path) -> None:
    """Refuse to replace what was trained by weights that saw nothing."""
    is_there = {name: (place / name).exists() for name in ("model.pt", "checkpoint.pt")}
    if (place / "ledger.jsonl").exists() and is_there["model.pt"] > is_there["checkpoint.pt"]:
        raise ValueError(
            f"{place} has lost its checkpoint.pt; going on would replace model.pt, which holds "
            "what was trained; restore the checkpoint, or keep model.pt elsewhere"
        )


def _plan_in(path: Path) -> Plan | None:
    """Return the plan of a run, None if it was killed before it had one."""
    if not path.exists():
        return None
    try:
        return Plan.from_json(path.read_text(encoding="utf-8"))
    except (ValueError, RecursionError) as error:
        raise ValueError(f"{path} is damaged; restore it from a copy: {error}") from None


def _prepared(config: RunConfig, plan: Plan | None) -> PreparedRun:
    examples, held_out = read_data(
        config.data, config.data_path, classes=config.training.loss == "cross_entropy"
    )
    if plan is None:
        plan = config.plan.plan(len(examples))
    if config.training.seed is not None:
        torch.manual_seed(config.training.seed)
    _check_device(config.training.device)
    model = make_model(config.model, config.code, examples)
    if held_out is not None and config.training.loss == "cross_entropy":
        _check_labels(model, held_out)
    return PreparedRun(config, examples, held_out, model, plan)


def _carried_out(prepared: PreparedRun, *, progress: bool) -> RunOutcome:
    config, plan = prepared.config, prepared.plan
    training, directory = config.training, config.directory
    seed = training.seed
    trainer = PrivateTrainer(
        prepared.model,
        _LOSSES[training.loss](),
        plan,
        optimizer=lambda parameters: _optimizer(training, parameters),
        scheduler=_scheduler(training, plan.steps),
        run_dir=directory,
        max_physical_batch_size=training.physical_batch_size,
        num_workers=training.workers,
        ema=training.ema,
        callbacks=[CSVLog(directory / "metrics.csv", every=max(plan.steps // _ROWS, 1))],
        device=training.device,
        generator=None if seed is None else SeededForExperiments(seed),
        checkpoint_seconds=config.run.checkpoint_seconds,
        progress=progress,
    )
    result = _fitted(trainer, prepared)
    if training.ema is None:
        _save(directory / "model.pt", prepared.model)
    else:
        with trainer.averaged() as model:
            _save(directory / "model.pt", model)
    held_out = prepared.held_out
    return RunOutcome(
        result=result,
        evaluation=None if held_out is None else trainer.evaluate(held_out),
        directory=directory,
    )


def _fitted(trainer: PrivateTrainer, prepared: PreparedRun) -> TrainingResult:
    """Train; what goes wrong in a model, or between it and its data, is told in one line."""
    try:
        return trainer.fit(prepared.examples)
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


def _check_new(directory: Path) -> None:
    for name in ("config.toml", "plan.json", "ledger.jsonl", "checkpoint.pt"):
        if (directory / name).exists():
            raise ValueError(
                f"{directory} already holds a run ({name}); go on with taut resume {directory}, or "
                "choose another [run] directory"
            )


def _write_once(path: Path, text: str) -> None:
    """Write a file whole, unless another process was faster."""
    temporary = path.with_name(f"{path.name}.{secrets.token_hex(4)}.part")
    temporary.write_text(text, encoding="utf-8")
    try:
        os.link(temporary, path)
    except FileExistsError:
        _check_new(path.parent)
    finally:
        temporary.unlink()


def _save(path: Path, model: nn.Module) -> None:
    temporary = path.with_name(path.name + ".part")
    torch.save(model.state_dict(), temporary)
    temporary.replace(path)
