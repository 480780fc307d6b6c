"""Privacy for a training loop that exists: same module, same lines, private gradients."""

from __future__ import annotations

import math
import os
from collections.abc import Iterator
from typing import Any, Literal, TypeVar

from torch import nn
from torch.optim import Optimizer
from torch.utils.data import DataLoader

from taut import _validate
from taut.errors import UnsoundConfiguration
from taut.noise import RandomSource
from taut.training._clipping import Clipping, FlatClip
from taut.training._loader import MicroBatch, PrivateLoader
from taut.training._loader_checks import check_replaceable, length
from taut.training._optimizer import PrivateOptimizer, sizes_of
from taut.training._plan import Plan
from taut.training._private_gradient import PrivateGradient
from taut.training._randomness import split
from taut.training._run_ledger import RunLedger
from taut.training._sampling import FixedSizeSampling, PoissonSampling, Sampling

__all__ = ["make_private", "make_private_with_epsilon"]

Module = TypeVar("Module", bound=nn.Module)
Reduction = Literal["mean", "sum"]


def make_private(
    *,
    module: Module,
    optimizer: Optimizer,
    data_loader: DataLoader[Any],
    noise_multiplier: float,
    max_grad_norm: float | None = None,
    poisson_sampling: bool = True,
    loss_reduction: Reduction = "mean",
    max_physical_batch_size: int | None = None,
    clipping: Clipping | None = None,
    ledger: str | os.PathLike[str] | RunLedger | None = None,
    noise_generator: RandomSource | None = None,
) -> tuple[Module, PrivateOptimizer, PrivateLoader]:
    """Make a training loop private, with given noise and no end that is known in advance.

    Args:
        module: what is trained; the same object is returned.
        optimizer: of the module's parameters.
        data_loader: its dataset, batch size and fetching are kept, its shuffling is not.
        noise_multiplier: standard deviation of the noise over the clipping norm.
        max_grad_norm: the clipping norm; or `clipping`.
        poisson_sampling: draw every example independently, for add/remove adjacency; otherwise
            batches of fixed size, for replace-one adjacency, with as many in a pass as
            `data_loader` has.
        loss_reduction: of the loss in the loop. For "mean", the gradient of a step is a mean over
            the expected batch size, for "sum" it is a sum.
        max_physical_batch_size: larger batches come in parts; `step()` waits for the last one.
        clipping: instead of `max_grad_norm`.
        ledger: a file that counts steps through crashes, or a ledger for the same step.
        noise_generator: of noise and choices, by default the secure one.

    Returns:
        the module, the optimizer and the loader for the loop, which stays as it was. A batch
        without examples, as Poisson sampling draws now and then, never gets to the loop: the
        loader takes its step of noise itself.

    **Guarantee**: `optimizer.get_epsilon(delta)` bounds what was spent by all steps of this
    optimizer, for a number of steps that does not depend on losses. Steps that do not follow a
    batch of the returned loader are refused. The loss must be a mean (or sum) of terms with one
    example each; a loss over pairs of examples is not detected.

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
    sampling = _sampling(data_loader, poisson_sampling)
    examples = length(data_loader.dataset)
    plan = Plan(
        examples=examples,
        rate=sampling.expected_batch_size(examples) / examples,
        steps=len(data_loader),  # the ledger counts beyond it: this loop has no planned end
        noise_multiplier=noise_multiplier,
        delta=min(1e-5, 0.1 / examples),
        clipping=_clipping(clipping, max_grad_norm),
        sampling=sampling,
    )
    count = ledger if isinstance(ledger, RunLedger) else RunLedger(ledger, plan)
    _check_ledger(count, plan)
    return _assemble(
        module,
        optimizer,
        data_loader,
        count,
        sampling,
        loss_reduction,
        max_physical_batch_size,
        noise_generator,
    )


def make_private_with_epsilon(
    *,
    module: Module,
    optimizer: Optimizer,
    data_loader: DataLoader[Any],
    target_epsilon: float,
    target_delta: float,
    epochs: float,
    max_grad_norm: float | None = None,
    poisson_sampling: bool = True,
    loss_reduction: Reduction = "mean",
    max_physical_batch_size: int | None = None,
    clipping: Clipping | None = None,
    ledger: str | os.PathLike[str] | None = None,
    noise_generator: RandomSource | None = None,
) -> tuple[Module, PrivateOptimizer, PrivateLoader]:
    """Make a training loop private, with the least noise for a promise over some epochs.

    Args:
        module: what is trained; the same object is returned.
        optimizer: of the module's parameters.
        data_loader: its dataset, batch size and fetching are kept, its shuffling is not.
        target_epsilon: the promise.
        target_delta: the promise.
        epochs: how many passes over the loader there will be; a further one is refused.
        max_grad_norm: as in `make_private`.
        poisson_sampling: as in `make_private`.
        loss_reduction: as in `make_private`.
        max_physical_batch_size: as in `make_private`.
        clipping: as in `make_private`.
        ledger: a file that counts steps through crashes.
        noise_generator: as in `make_private`.

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
    sampling = _sampling(data_loader, poisson_sampling)
    examples = length(data_loader.dataset)
    rate = sampling.expected_batch_size(examples) / examples
    passes = _validate.positive(epochs=epochs)
    in_pass = 1 / rate if poisson_sampling else len(data_loader)
    plan = Plan(
        examples=examples,
        rate=rate,
        steps=max(math.ceil(passes * in_pass * (1 - 1e-12)), 1),
        epsilon=target_epsilon,
        delta=target_delta,
        clipping=_clipping(clipping, max_grad_norm),
        sampling=sampling,
    )
    return _assemble(
        module,
        optimizer,
        data_loader,
        RunLedger(ledger, plan, enforce=True),
        plan,
        loss_reduction,
        max_physical_batch_size,
        noise_generator,
    )


class _FollowedLoader(PrivateLoader):
    """Tells an optimizer about every batch before the loop gets it."""

    optimizer: PrivateOptimizer

    def microbatches(self) -> Iterator[MicroBatch]:
        """Yield the physical batches of one pass that hold examples."""
        self.optimizer.begin_pass()
        for part in super().microbatches():
            self.optimizer.expect(part)
            if not part.is_empty:
                yield part


def _assemble(
    module: Module,
    optimizer: Optimizer,
    data_loader: DataLoader[Any],
    ledger: RunLedger,
    drawn: Plan | Sampling,
    loss_reduction: Reduction,
    max_physical_batch_size: int | None,
    generator: RandomSource | None,
) -> tuple[Module, PrivateOptimizer, PrivateLoader]:
    if loss_reduction not in ("mean", "sum"):
        raise ValueError(
            f"loss_reduction must be 'mean' or 'sum', got loss_reduction={loss_reduction!r}"
        )
    plan, is_mean = ledger.plan, loss_reduction == "mean"
    choices, noise = split(generator)
    gradient = PrivateGradient(
        module,
        plan.clipping,
        scales=plan.noise_scales(sizes_of(module)),
        expected_batch_size=plan.batch_size if is_mean else 1.0,
        generator=noise,
        backend="bookkeeping",
        self_check=False,  # the passes are checked: here only sums of losses are seen
    )
    loader = _FollowedLoader.from_data_loader(
        data_loader,
        drawn,
        max_physical_batch_size=max_physical_batch_size,
        steps=None if isinstance(plan.sampling, PoissonSampling) else len(data_loader),
        generator=choices,
    )
    private = PrivateOptimizer(optimizer, gradient, ledger, is_mean=is_mean)
    private.follow(loader)
    loader.optimizer = private
    module.train()
    return module, private, loader


def _sampling(loader: DataLoader[Any], poisson: bool) -> Sampling:
    check_replaceable(loader)
    size = _validate.positive_integer(batch_size=loader.batch_size)
    examples = length(loader.dataset)
    if size > examples:
        raise ValueError(
            f"data_loader must have a batch_size of at most {examples}, the size of its dataset, "
            f"got batch_size={size}"
        )
    return PoissonSampling(rate=size / examples) if poisson else FixedSizeSampling(batch_size=size)


def _clipping(clipping: Clipping | None, norm: float | None) -> Clipping:
    if (clipping is None) == (norm is None):
        raise ValueError(
            f"give either max_grad_norm or clipping, got max_grad_norm={norm!r} and "
            f"clipping={clipping!r}"
        )
    if clipping is not None:
        return clipping
    return FlatClip(_validate.positive(max_grad_norm=norm))


def _check_ledger(ledger: RunLedger, plan: Plan) -> None:
    found = ledger.plan
    if (found.step_loss, found.clipping, found.sampling) != (
        plan.step_loss,
        plan.clipping,
        plan.sampling,
    ):
        raise UnsoundConfiguration(
            "ledger was opened for steps of another cost than those of this loop; open it with a "
            "plan of the same noise multiplier, clipping and sampling, or give its path"
        )
