"""One noisy sum from many processes: added up once, noise drawn once.

Every process has clipped sums over its own examples. A reduction turns them, at the end of a
logical batch, into the gradients of all: it is the only place where processes talk during a step.
So they may have different numbers of physical batches, or none.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from typing import TYPE_CHECKING, Any

import torch
from torch import Tensor, nn
from torch import distributed as dist

from taut.errors import UnsoundConfiguration
from taut.noise import RandomSource
from taut.training._tensors.processes import Processes

if TYPE_CHECKING:
    from taut.training._noise.step_noise import Draw, StepNoise

__all__ = ["Reduction", "Sharded", "reduction_for", "refuse_for_shards", "unwrapped"]


def unwrapped(model: nn.Module) -> nn.Module:
    """Return the model inside of DistributedDataParallel, whose own averaging is switched off.

    The wrapper can still be called. What it would have averaged are gradients that no example was
    clipped in, and it would wait for processes that have no batch.
    """
    if not isinstance(model, nn.parallel.DistributedDataParallel):
        return model
    model.require_backward_grad_sync = False
    model.require_forward_param_sync = False
    inside: nn.Module = model.module
    return inside


class Reduction(ABC):
    """How the processes make one noisy sum of what each of them has.

    Args:
        model: what is trained, without wrapper.
        processes: who takes part.
    """

    def __init__(self, model: nn.Module, processes: Processes) -> None:
        self.model = model
        self.processes = processes
        self.trained: dict[str, Tensor] = _trainable(model)
        """Who gets a gradient: what the optimizer holds, by name."""

    @contextmanager
    def whole(self) -> Iterator[dict[str, Tensor]]:
        """Give the model all of its parameters for a while; yield those that are trained."""
        yield self.trained

    def named_parameters(self) -> dict[str, Tensor]:
        """Return all parameters of the model as the optimizer knows them."""
        return dict(self.model.named_parameters())

    def begin(self) -> None:  # noqa: B027 (most have nothing to do)
        """Begin a logical batch, unless it has begun: the model has all of its parameters."""

    def source(self, generator: RandomSource) -> RandomSource:
        """Return where this process takes the noise from that it draws."""
        return generator

    def released(self, total: Tensor, noise: StepNoise, how: Draw) -> Tensor:
        """Return the noisy sum over processes of a count that each has, the same in all.

        Args:
            total: the count of this process.
            noise: the noise of the step, of which the first process alone draws.
            how: the way to draw it.
        """
        group = self.processes.group
        if group is None:
            return total + noise.draw_count(how)
        summed = total.reshape(1).clone()
        dist.reduce(summed, group=group, group_dst=0)
        if self.processes.is_first:
            summed += noise.draw_count(how)
        dist.broadcast(summed, group=group, group_src=0)
        return summed[0]

    @abstractmethod
    def finish(self, totals: Sequence[Tensor], noise: StepNoise, how: Draw) -> None:
        """Add up the totals of all processes, add noise once, and set the gradients.

        Args:
            totals: the sums of this process, whole, for every trained parameter.
            noise: the noise of the step.
            how: the way to draw it.
        """


class Alone(Reduction):
    """One process has all examples."""

    def finish(self, totals: Sequence[Tensor], noise: StepNoise, how: Draw) -> None:
        drawn = noise.draw([total.shape for total in totals], how)
        for parameter, total, part in zip(self.trained.values(), totals, drawn, strict=True):
            parameter.grad = part.add_(total).to(parameter.dtype)


class Replicated(Reduction):
    """All processes hold the same parameters, as with DistributedDataParallel.

    The first one alone gets the sum, adds the noise and gives it to the others, so that all have
    the same gradient to the last bit. Parameters and buffers begin as the first process has them.
    """

    def __init__(self, model: nn.Module, processes: Processes) -> None:
        super().__init__(model, processes)
        state = [*model.named_parameters(), *model.named_buffers()]
        # Strides too: values are sent in the order in which they lie in memory.
        processes.check_same(
            "the model", [(name, tuple(t.shape), t.stride(), t.dtype) for name, t in state]
        )
        for _, tensor in state:
            dist.broadcast(tensor.data, group=processes.group, group_src=0)

    def finish(self, totals: Sequence[Tensor], noise: StepNoise, how: Draw) -> None:
        flat = torch.cat([total.flatten() for total in totals])
        dist.reduce(flat, group=self.processes.group, group_dst=0)
        if self.processes.is_first:
            drawn = noise.draw([total.shape for total in totals], how)
            flat += torch.cat([part.flatten() for part in drawn])
        dist.broadcast(flat, group=self.processes.group, group_src=0)
        pieces = flat.split([total.numel() for total in totals])
        for parameter, piece in zip(self.trained.values(), pieces, strict=True):
            parameter.grad = piece.view(parameter.shape).to(parameter.dtype, copy=True)


class Sharded(Reduction):
    """Every process keeps a part of every parameter, as `fully_shard` of FSDP2 makes them.

    From the first physical batch to the end of a logical one the parameters are whole, so that
    passes need nothing from other processes; optimizer and weights between steps are in parts.
    Every process draws the noise of its part; what several processes keep is drawn by the first
    of them.
    """

    def __init__(self, model: nn.Module, processes: Processes) -> None:
        self._modules = list(_fsdp_modules(model))
        for module in self._modules:
            # Passes must not talk: other processes may have none.
            module.set_requires_gradient_sync(False, recurse=False)
            module.set_reshard_after_forward(False, recurse=False)
            module.set_reshard_after_backward(False, recurse=False)
            module.reshard()
        super().__init__(model, processes)
        self._named: dict[str, Tensor] = dict(model.named_parameters())
        self._has_begun = False
        for name, parameter in self.trained.items():
            _check_layout(name, parameter, processes)
        described = [(name, tuple(p.shape), p.dtype) for name, p in self.trained.items()]
        processes.check_same("the model", described)

    @contextmanager
    def whole(self) -> Iterator[dict[str, Tensor]]:
        self._gather()
        try:
            yield _trainable(self.model)
        finally:
            self._let_go()

    def named_parameters(self) -> dict[str, Tensor]:
        return self._named

    def begin(self) -> None:
        if not self._has_begun:
            self._gather()
            self._has_begun = True

    def source(self, generator: RandomSource) -> RandomSource:
        return self.processes.own(generator)

    def finish(self, totals: Sequence[Tensor], noise: StepNoise, how: Draw) -> None:
        self.begin()  # here too if this process has no batch: the others wait for it
        self._let_go()
        self._has_begun = False
        parameters: list[Any] = list(self.trained.values())
        drawn = noise.draw([parameter.to_local().shape for parameter in parameters], how)
        for parameter, total, part in zip(parameters, totals, drawn, strict=True):
            summed = _part_of_sum(total, parameter)
            summed += _of_all_copies(part, parameter)
            parameter.grad = _like(parameter, summed.to(parameter.dtype))

    def _gather(self) -> None:
        for module in self._modules:
            module.reshard()  # what was whole may be older than the last update
            module.unshard()

    def _let_go(self) -> None:
        for module in self._modules:
            module.reshard()


def reduction_for(model: nn.Module, processes: Processes) -> Reduction:
    """Return how gradients of a model are added up over processes."""
    if any(True for _ in _fsdp_modules(model)):
        return Sharded(model, processes)
    return (Alone if processes.group is None else Replicated)(model, processes)


def refuse_for_shards(*, mixing: bool, run_dir: bool) -> None:
    """Refuse what needs whole parameters where processes keep parts of them.

    Args:
        mixing: whether weights are mixed.
        run_dir: whether checkpoints are written.
    """
    if mixing:
        raise UnsoundConfiguration(
            "mixing is drawn by one process for whole parameters, and these are sharded; use "
            "DistributedDataParallel, or leave mixing out of the plan"
        )
    if run_dir:
        raise UnsoundConfiguration(
            "run_dir holds whole models, and this one is sharded; leave run_dir out, count steps "
            "with SharedLedger and save weights by torch.distributed.checkpoint"
        )


def _trainable(model: nn.Module) -> dict[str, Tensor]:
    return {name: p for name, p in model.named_parameters() if p.requires_grad}


def _fsdp_modules(model: nn.Module) -> Iterator[Any]:
    if not (dist.is_available() and dist.is_initialized()):
        return
    from torch.distributed.fsdp import FSDPModule

    yield from (module for module in model.modules() if isinstance(module, FSDPModule))


def _check_layout(name: str, parameter: Any, processes: Processes) -> None:
    """Refuse a parameter that is not spread over exactly the processes of the run."""
    from torch.distributed.tensor import DTensor

    if not isinstance(parameter, DTensor):
        raise UnsoundConfiguration(
            f"parameter {name!r} is not sharded while others are; call fully_shard on the model as "
            "well as on its parts, or freeze the parameter"
        )
    mesh, placements = parameter.device_mesh, parameter.placements
    spread = sorted(int(rank) for rank in mesh.mesh.flatten())
    if spread != sorted(dist.get_process_group_ranks(processes.group)):
        raise UnsoundConfiguration(
            f"parameter {name!r} is spread over the processes {spread}, which are not those of "
            "the run; every process must have examples of its own and a part of the model"
        )
    if not all(placement.is_shard() or placement.is_replicate() for placement in placements):
        raise UnsoundConfiguration(
            f"parameter {name!r} has placements {placements}; only whole copies and shards are "
            "supported"
        )


def _part_of_sum(total: Tensor, parameter: Any) -> Tensor:
    """Return this process's part of the sum over all processes."""
    from torch.distributed.tensor import DTensor, Partial

    mesh = parameter.device_mesh
    summands = DTensor.from_local(total, mesh, [Partial()] * mesh.ndim, run_check=False)
    part: Tensor = summands.redistribute(placements=parameter.placements).to_local()
    return part.clone()


def _of_all_copies(noise: Tensor, parameter: Any) -> Tensor:
    """Return the noise of the first among the processes that keep the same part."""
    mesh = parameter.device_mesh
    for axis, placement in enumerate(parameter.placements):
        if placement.is_replicate():
            dist.broadcast(noise, group=mesh.get_group(axis), group_src=0)
    return noise


def _like(parameter: Any, part: Tensor) -> Tensor:
    from torch.distributed.tensor import DTensor

    whole: Tensor = DTensor.from_local(
        part,
        parameter.device_mesh,
        parameter.placements,
        run_check=False,
        shape=parameter.shape,
        stride=parameter.stride(),
    )
    return whole
