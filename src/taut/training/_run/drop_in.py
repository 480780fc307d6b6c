"""Privacy for a training loop that exists: same module, same lines, private gradients."""

from __future__ import annotations

import os
from functools import partial
from typing import Any, Literal, TypeVar, Unpack

from torch import nn
from torch.optim import Optimizer
from torch.utils.data import DataLoader

from taut._base import validate
from taut.errors import UnsoundConfiguration
from taut.matrix import Encoder
from taut.noise import RandomSource
from taut.training._clipping.clipping import Clipping
from taut.training._data.loader import PrivateLoader
from taut.training._data.loader_batches import LoaderBatches
from taut.training._data.per_example_loss import per_example
from taut.training._gradients.suitable import train_mode
from taut.training._ledger.ledger import RunLedger
from taut.training._noise.generators import split
from taut.training._plan.correlation import is_independent
from taut.training._plan.plan import Plan
from taut.training._plan.schedule import Changing, is_schedule
from taut.training._run.files.shared_ledger import SharedLedger
from taut.training._run.loop.followed_loader import FollowedLoader, followed, given_loader
from taut.training._run.loop.noise import begin_noise, plan_to_go_on, steps_without_promise
from taut.training._run.loop.opacus_arguments import OpacusArguments, clipping_of, settle
from taut.training._run.private_optimizer import PrivateOptimizer
from taut.training._sampling.sampling import Sampling
from taut.training._step.optimizer_checks import check_linear, check_optimizer
from taut.training._step.planned_step import PlannedStep
from taut.training._step.private_gradient import PrivateGradient
from taut.training._step.recorded_passes import check_detached
from taut.training._step.reduction import unwrapped

__all__ = ["make_private", "make_private_with_epsilon"]

Module = TypeVar("Module", bound=nn.Module)
Reduction = Literal["mean", "sum"]


def make_private(
    *,
    module: Module,
    optimizer: Optimizer,
    data_loader: DataLoader[Any] | PrivateLoader,
    noise_multiplier: float,
    max_grad_norm: float | None = None,
    poisson_sampling: bool = True,
    rate: float | None = None,
    sampling: Sampling | str | None = None,
    noise: Encoder | str | None = None,
    epochs: float | None = None,
    loss_reduction: Reduction = "mean",
    max_physical_batch_size: int | None = None,
    clipping: Clipping | str | None = None,
    criterion: Any = None,
    unchecked_isolation: bool = False,
    ledger: str | os.PathLike[str] | RunLedger | None = None,
    noise_generator: RandomSource | None = None,
    **elsewhere: Unpack[OpacusArguments],
) -> tuple[Module, PrivateOptimizer, PrivateLoader]:
    """Make a training loop private, with given noise and no end that is known in advance.

    Args:
        module: what is trained; the same object is returned.
        optimizer: optimizer of the module's parameters.
        data_loader: its dataset, length and fetching are kept, its shuffling is not. For the loader
            of an earlier run, the one that was given there is meant; the losses of both runs add
            up.
        noise_multiplier: standard deviation of the noise over the clipping norm.
        max_grad_norm: the clipping norm; or `clipping`.
        poisson_sampling: draw every example independently, for add/remove adjacency; otherwise
            batches of fixed size, for replace-one adjacency. A pass has as many batches as
            `data_loader` has.
        rate: the probability with which Poisson sampling draws an example; by default one over
            the length of `data_loader`, as in Opacus, so that a pass sees every example once on
            average. Where the batch size does not divide the number of examples, the expected
            batch is a little smaller than it, or larger with `drop_last=True`.
        sampling: instead of `poisson_sampling`, a sampling or its name: "allocation" lets every
            example take part in exactly one batch of every pass, drawn at random, which mostly
            costs less, and "best" takes it where it does; `TruncatedPoissonSampling(cap=...)` draws
            Poisson batches that never exceed a size. A pass that was left early is gone on
            with; a loop that goes on in another process begins a new one, which its ledger counts
            as such.
        noise: noise that is correlated over the steps of all passes, as in `Plan`: an encoder of
            `taut.matrix`, or "banded", "blt", "inverse" or "tree"; None for independent noise.
            Batches come in a fixed order then, unless `sampling` keeps secret steps apart, and
            `noise_multiplier` is the deviation of the independent noise on encoded gradients. The
            loss is that of all passes, spent with the first step. With a file as `ledger`, a loop
            that was stopped goes on with the step that the ledger is at, and keys beside it, which
            must stay private; without one it lives in memory, and cannot go on elsewhere.
        epochs: number of passes that there will be, for correlated noise alone; left out, the steps
            of an encoder. A further pass is refused.
        loss_reduction: reduction of the loss in the loop. For "mean", the gradient of a step is a
            mean over the expected batch size, for "sum" it is a sum.
        max_physical_batch_size: larger batches come in parts; `step()` waits for the last one.
        clipping: instead of `max_grad_norm`; or "flat" beside it, as in Opacus, whose "per_layer"
            is `GroupClip` and whose "adaptive" is `QuantileClip`.
        criterion: the loss of an example, if it is none of the usual ones: a function of the
            module's outputs and of the targets, which are the last of a batch that is a tuple, or
            the whole of a batch that is a dictionary. It returns one loss per example, or a mean
            or sum that is recognised. The loop uses the same loss; a loss that the model itself
            returns is replaced by it.
        unchecked_isolation: train without a test that examples are kept apart, neither by the
            module nor by the loss of the loop; the ledger repeats it.
        ledger: a file that counts steps through crashes, or a ledger for the same step.
        noise_generator: generator of noise and choices, by default the secure one.
        elsewhere: further arguments of Opacus: those that change nothing are accepted, the
            others refused with what to write here.

    Returns:
        the module, the optimizer and the loader for the loop, which stays as it was. A batch
        without examples, as Poisson sampling draws now and then, never gets to the loop: the
        loader takes its step of noise itself.

    **Guarantee**: `optimizer.get_epsilon(delta)` bounds what was spent by all steps of this
    optimizer, for a number of steps that does not depend on losses. Steps that do not follow a
    batch of the returned loader are refused, and so are inputs of the module that are not what the
    loader handed out. In every batch, the gradient of the loop's loss at the module's outputs is
    compared with that of a loss of single examples, which takes its place. That the module keeps
    examples apart is tested with the first batch, after changes of the module, and at random
    later: by runs in which half of the examples are exchanged. The number of examples, and with
    it the rate and the expected batch, is taken to be public; a rate that was fixed in advance
    does not depend on it.

    Raises:
        UnsoundConfiguration: if module, optimizer or loader cannot be used with privacy.

    Example:
        >>> import torch
        >>> from torch import nn
        >>> from torch.utils.data import DataLoader, TensorDataset
        >>> from taut.training import make_private
        >>> data = TensorDataset(torch.randn(200, 4), torch.randint(0, 2, (200,)))
        >>> model = nn.Linear(4, 2)
        >>> model, optimizer, loader = make_private(
        ...     module=model,
        ...     optimizer=torch.optim.SGD(model.parameters(), lr=0.1),
        ...     data_loader=DataLoader(data, batch_size=50),
        ...     noise_multiplier=1.0,
        ...     max_grad_norm=1.0,
        ... )
        >>> for x, y in loader:
        ...     optimizer.zero_grad()
        ...     loss = nn.functional.cross_entropy(model(x), y)
        ...     loss.backward()
        ...     optimizer.step()
        >>> optimizer.ledger.steps, optimizer.get_epsilon(delta=1e-3) < 4
        (4, True)
    """
    settle(elsewhere, clipping, max_grad_norm)
    if is_schedule(noise_multiplier):
        raise ValueError(
            "noise_multiplier must be one number in a loop without a planned end; use "
            "make_private_with_epsilon(..., noise_schedule=...), or a Plan and PrivateTrainer"
        )
    given = given_loader(data_loader)
    batches = LoaderBatches.of(
        given,
        poisson=poisson_sampling,
        rate=rate,
        sampling=sampling,
        correlated=not is_independent(noise),
    )
    plan = Plan(
        **batches.of_plan(),
        steps=steps_without_promise(batches, noise, epochs),
        noise_multiplier=noise_multiplier,
        delta=min(1e-5, 0.1 / batches.examples),
        clipping=clipping_of(clipping, max_grad_norm),
        noise=noise,
    )
    plan = plan_to_go_on(ledger, plan)
    choices, bits = split(noise_generator)
    gradient = _gradient(module, optimizer, plan, loss_reduction, bits, unchecked_isolation)
    has_end = plan.encoder is not None
    drawn = plan if has_end else plan.sampling
    loader = followed(given, batches, drawn, max_physical_batch_size, choices, unchecked_isolation)
    if isinstance(ledger, RunLedger):
        _check_ledger(ledger, plan, gradient)
        count = ledger
    else:
        count = SharedLedger(ledger, plan, enforce=has_end)
    private = _joined(optimizer, gradient, count, loader, loss_reduction, criterion, bits)
    return module, private, loader


def make_private_with_epsilon(
    *,
    module: Module,
    optimizer: Optimizer,
    data_loader: DataLoader[Any] | PrivateLoader,
    target_epsilon: float,
    target_delta: float,
    epochs: float,
    max_grad_norm: float | None = None,
    poisson_sampling: bool = True,
    rate: float | None = None,
    sampling: Sampling | str | None = None,
    noise: Encoder | str | None = None,
    noise_schedule: Changing | None = None,
    loss_reduction: Reduction = "mean",
    max_physical_batch_size: int | None = None,
    clipping: Clipping | str | None = None,
    criterion: Any = None,
    unchecked_isolation: bool = False,
    ledger: str | os.PathLike[str] | None = None,
    noise_generator: RandomSource | None = None,
    **elsewhere: Unpack[OpacusArguments],
) -> tuple[Module, PrivateOptimizer, PrivateLoader]:
    """Make a training loop private, with the least noise for a promise over some epochs.

    Args:
        module: what is trained; the same object is returned.
        optimizer: optimizer of the module's parameters.
        data_loader: data loader, as in `make_private`.
        target_epsilon: the promise.
        target_delta: the promise.
        epochs: how many passes over the loader there will be; a further one is refused.
        max_grad_norm: clipping norm, as in `make_private`.
        poisson_sampling: sampler, as in `make_private`.
        rate: sampling rate, as in `make_private`.
        sampling: sampling, as in `make_private`.
        noise: noise, as in `make_private`; "best" takes the noise and, unless it is given, the
            sampling with the least error of running sums, as `Plan` does.
        noise_schedule: schedule of factors by which noise changes from step to step, one for every
            step of all passes or pairs of steps and a factor, as in `Plan`. Noise follows the
            ledger: with a file as `ledger`, a loop that goes on does so where that one ends.
        loss_reduction: reduction, as in `make_private`.
        max_physical_batch_size: largest batch in memory, as in `make_private`.
        clipping: clipping, as in `make_private`.
        criterion: criterion, as in `make_private`.
        unchecked_isolation: flag, as in `make_private`.
        ledger: a file that counts steps through crashes.
        noise_generator: generator, as in `make_private`.
        elsewhere: further arguments of Opacus, as in `make_private`.

    Returns:
        as `make_private`.

    **Guarantee**: that of `make_private`, and the steps never exceed the promise: the ledger
    refuses the first one that would, with BudgetExceeded.

    Example:
        >>> import torch
        >>> from torch import nn
        >>> from torch.utils.data import DataLoader, TensorDataset
        >>> from taut.training import make_private_with_epsilon
        >>> data = TensorDataset(torch.randn(200, 4), torch.randint(0, 2, (200,)))
        >>> model = nn.Linear(4, 2)
        >>> model, optimizer, loader = make_private_with_epsilon(
        ...     module=model,
        ...     optimizer=torch.optim.SGD(model.parameters(), lr=0.1),
        ...     data_loader=DataLoader(data, batch_size=50),
        ...     target_epsilon=3.0,
        ...     target_delta=1e-3,
        ...     epochs=2,
        ...     max_grad_norm=1.0,
        ... )
        >>> optimizer.plan.steps
        8
    """
    settle(elsewhere, clipping, max_grad_norm)
    given = given_loader(data_loader)
    batches = LoaderBatches.of(
        given,
        poisson=poisson_sampling,
        rate=rate,
        sampling=sampling,
        correlated=not is_independent(noise),
    )
    plan = Plan(
        **batches.of_plan(),
        steps=batches.steps(validate.positive(epochs=epochs)),
        epsilon=target_epsilon,
        delta=target_delta,
        noise_schedule=noise_schedule,
        clipping=clipping_of(clipping, max_grad_norm),
        noise=noise,
    )
    plan = plan_to_go_on(ledger, plan)
    choices, bits = split(noise_generator)
    gradient = _gradient(module, optimizer, plan, loss_reduction, bits, unchecked_isolation)
    loader = followed(given, batches, plan, max_physical_batch_size, choices, unchecked_isolation)
    count = SharedLedger(ledger, plan, enforce=True)
    private = _joined(optimizer, gradient, count, loader, loss_reduction, criterion, bits)
    return module, private, loader


def _gradient(
    module: nn.Module,
    optimizer: Optimizer,
    plan: Plan,
    reduction: Reduction,
    noise: RandomSource,
    unchecked: bool,
) -> PrivateGradient:
    if reduction not in ("mean", "sum"):
        raise ValueError(
            f"loss_reduction must be 'mean' or 'sum', got loss_reduction={reduction!r}"
        )
    if isinstance(optimizer, PrivateOptimizer):
        raise UnsoundConfiguration(
            "optimizer belongs to an earlier private run; give the one inside, optimizer.inner"
        )
    check_detached(unwrapped(module))
    check_optimizer(module, optimizer)
    if plan.encoder is not None:
        check_linear(optimizer)
    named = unwrapped(module).named_parameters()
    sizes = {name: p.numel() for name, p in named if p.requires_grad}
    return PrivateGradient(
        module,
        plan.clipping,
        noise=plan.noise(sizes),
        expected_batch_size=plan.batch_size if reduction == "mean" else 1.0,
        generator=noise,
        backend="auto",
        unchecked_isolation=unchecked,
    )


def _joined(
    optimizer: Optimizer,
    gradient: PrivateGradient,
    ledger: RunLedger,
    loader: FollowedLoader,
    reduction: Reduction,
    criterion: Any,
    bits: RandomSource,
) -> PrivateOptimizer:
    try:
        begin_noise(gradient, ledger, loader, bits, divides=reduction == "mean")
    except BaseException:
        ledger.close()
        raise
    planned = None
    if ledger.plan.follows_ledger:
        named = gradient.model.named_parameters()
        sizes = {name: p.numel() for name, p in named if p.requires_grad}
        planned = PlannedStep(ledger.plan, gradient, sizes, divides=reduction == "mean")
    private = PrivateOptimizer(
        optimizer,
        gradient,
        ledger,
        is_mean=reduction == "mean",
        planned=planned,
        criterion=None if criterion is None else partial(per_example, criterion),
    )
    if not gradient.examples.schedule.active:
        ledger.note_unchecked_isolation()
    if not bits.secure:
        ledger.note_seed()
    private.follow(loader)
    loader.optimizer = private
    train_mode(gradient.model)
    return private


def _check_ledger(ledger: RunLedger, plan: Plan, gradient: PrivateGradient) -> None:
    """Refuse a ledger that was opened by others and cannot count for this loop."""
    if plan.sampling.epoch_steps > 1 or plan.encoder is not None:
        raise UnsoundConfiguration(
            f"steps with {plan.sampling!r} or with correlated noise are counted from the first one "
            "on, in a ledger that serves no other loop; give the path of the ledger, which this "
            "loop then opens"
        )
    if gradient.processes.size > 1 and not isinstance(ledger, SharedLedger):
        raise UnsoundConfiguration(
            "several processes train together, and ledger counts for one; open a SharedLedger in "
            "all of them, or give its path"
        )
    found = ledger.plan
    if found.is_scheduled or (found.step_loss, found.clipping, found.sampling) != (
        plan.step_loss,
        plan.clipping,
        plan.sampling,
    ):
        raise UnsoundConfiguration(
            "ledger was opened for steps of another cost than those of this loop; open it with a "
            "plan of the same noise multiplier, clipping and sampling, or give its path"
        )
