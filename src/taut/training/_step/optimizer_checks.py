"""Which optimizers can take private gradients: those that update what was made private, once."""

from __future__ import annotations

import gc
import inspect
from collections.abc import Iterable, Mapping
from typing import Any

from torch import Tensor, nn
from torch.optim import SGD, Optimizer, Rprop
from torch.optim.lr_scheduler import LRScheduler, ReduceLROnPlateau
from torch.optim.optimizer import _global_optimizer_pre_hooks

from taut._base import validate
from taut.errors import UnsoundConfiguration

__all__ = [
    "check_linear",
    "check_optimizer",
    "check_parameters",
    "optimizer_of",
    "refuse_plateau",
    "scheduler_of",
]


def optimizer_of(model: nn.Module, given: Any) -> Optimizer:
    """Return an optimizer of the model's parameters, made by `given` if that is a function."""
    parameters = [p for p in model.parameters() if p.requires_grad]
    if not parameters:
        raise ValueError("model has no trainable parameters; set requires_grad on some")
    if given is None:
        given = SGD(parameters, lr=0.1)
    elif not isinstance(given, Optimizer) and callable(given):
        given = given(parameters)
    check_optimizer(model, given)
    optimizer: Optimizer = given
    return optimizer


def scheduler_of(optimizer: Optimizer, given: Any) -> LRScheduler | None:
    """Return a scheduler of the optimizer, made by `given` if that is a function."""
    if given is None:
        return None
    if not isinstance(given, LRScheduler) and callable(given):
        given = given(optimizer)
    _check_scheduler(given, optimizer)
    scheduler: LRScheduler = given
    return scheduler


def check_optimizer(model: nn.Module, optimizer: Any) -> None:
    """Refuse an optimizer that needs several gradients for a step, or updates something else."""
    if not isinstance(optimizer, Optimizer):
        raise validate.WrongType(
            f"optimizer must be one torch.optim optimizer, got {type(optimizer).__name__}; give "
            "different settings to parts of a model by parameter groups of one optimizer"
        )
    closure = inspect.signature(optimizer.step).parameters.get("closure")
    if closure is not None and closure.default is inspect.Parameter.empty:
        raise UnsoundConfiguration(
            f"{type(optimizer).__name__} evaluates the loss several times in a step, and every "
            "evaluation would have to be paid for; use an optimizer that takes one gradient"
        )
    named = dict(model.named_parameters())
    check_parameters(named, optimizer, [p for p in named.values() if p.requires_grad])


def check_parameters(
    named: Mapping[str, Tensor], optimizer: Optimizer, private: Iterable[Tensor]
) -> None:
    """Refuse an optimizer whose parameters are not exactly those that get private gradients.

    Args:
        named: all parameters of the model.
        optimizer: frozen parameters in it are of no matter.
        private: the parameters whose gradients are clipped and noised.
    """
    names: dict[Tensor, str] = {p: name for name, p in named.items()}
    wanted = set(private)
    for parameter, name in names.items():
        if parameter.requires_grad != (parameter in wanted):
            now = "trainable" if parameter.requires_grad else "frozen"
            raise UnsoundConfiguration(
                f"parameter {name!r} was made {now} after training was made private; freeze and "
                "unfreeze before, and make training private again"
            )
    held = {p for group in optimizer.param_groups for p in group["params"] if p.requires_grad}
    for parameter in held - wanted:
        raise UnsoundConfiguration(
            f"optimizer holds a parameter of shape {tuple(parameter.shape)} that is not the "
            "model's: its gradient would be neither clipped nor noised; make the optimizer from "
            "model.parameters()"
        )
    for parameter in wanted - held:
        raise UnsoundConfiguration(
            f"optimizer lacks the trainable parameter {names[parameter]!r}, which would use up "
            "clipping norm without being trained; freeze it with requires_grad_(False) or make "
            "the optimizer from model.parameters()"
        )


def check_linear(optimizer: Optimizer, *, known: int | None = None) -> None:
    """Refuse an optimizer that looks at one noisy gradient alone, where noise is correlated.

    Later noise takes back earlier noise in sums; signs and lengths of single gradients keep it.

    Args:
        optimizer: optimizer that gets noisy gradients.
        known: number of a hook that looks at no gradient; None if there is no such hook.
    """
    hooks = optimizer._optimizer_step_pre_hooks.keys() - {known}
    if isinstance(optimizer, Rprop) or hooks or _global_optimizer_pre_hooks:
        raise UnsoundConfiguration(
            f"{type(optimizer).__name__} uses signs or lengths of single noisy gradients (or a "
            "hook before its step may), where correlated noise is not taken back; use SGD with "
            "momentum, without hooks, or independent noise"
        )


def _check_scheduler(scheduler: Any, optimizer: Optimizer) -> None:
    """Refuse a scheduler of another optimizer, or one that looks at losses."""
    if isinstance(scheduler, ReduceLROnPlateau):
        raise _follows_a_loss()
    if not isinstance(scheduler, LRScheduler):
        raise validate.WrongType(
            "scheduler must be a scheduler of torch.optim.lr_scheduler or a function from an "
            f"optimizer to one, got {type(scheduler).__name__}"
        )
    if scheduler.optimizer is not optimizer:
        raise ValueError(
            "scheduler must belong to the optimizer that is given; make it from that one, or give "
            "a function from an optimizer to a scheduler, which a plan that mixes weights needs"
        )


def refuse_plateau(*optimizers: Optimizer) -> None:
    """Refuse optimizers whose learning rate follows a loss, whoever made the scheduler.

    A loop does not say which schedulers it has; those that hold one of its optimizers are found
    among all objects, which takes about as long as a step.
    """
    for holder in gc.get_referrers(*optimizers):
        keys = holder.keys() if isinstance(holder, dict) else ()
        if isinstance(holder, ReduceLROnPlateau) or {"patience", "cooldown"} <= set(keys):
            raise _follows_a_loss()


def _follows_a_loss() -> UnsoundConfiguration:
    return UnsoundConfiguration(
        "ReduceLROnPlateau follows a loss, and that of training data is private; use a schedule "
        "that is fixed in advance, such as CosineAnnealingLR, or set the learning rate in "
        "param_groups yourself, by examples that are public"
    )
