"""The update of a mixed model: a random point between the last two states, then the gradient."""

from __future__ import annotations

import math
from collections.abc import Callable, Iterable, Mapping
from typing import Any

import torch
from torch import Tensor
from torch import distributed as dist
from torch.optim import SGD, Optimizer

from taut._base import validate
from taut.errors import UnsoundConfiguration
from taut.noise import RandomSource
from taut.training._plan.mixing import ModelMix
from taut.training._plan.plan import Plan
from taut.training._tensors.processes import Processes

__all__ = ["MixedSGD", "mixed"]

_ROUNDING = 1 + 1e-4  # as of the Gaussian noise: sums in float32 are off by less
_LEAST = 2.0**20 * torch.finfo(torch.float32).tiny  # widths from which on draws are normal numbers
_HIDDEN = ("momentum", "dampening", "weight_decay", "nesterov", "maximize")


class MixedSGD(Optimizer):
    """Steps from a random point between the last two released states, of `ModelMix`.

    Args:
        parameters: parameters, as of other optimizers; every group has a learning rate `lr`.
        mixing: the width, and the momentum of released states.
        unit: the clipping norm over the expected batch size: what a width of one is in the mean
            gradient.
        generator: generator of the mixing, as secret as that of the noise.
        processes: processes that hold the same parameters; the first one draws for all.

    **Guarantee**: in every trainable coordinate, the next state is a function of the last two, plus
    uniform noise on an interval of length at least lr * width * unit, minus lr * gradient. Nothing
    else is kept: the state of the optimizer is the state before the last, the gradient is gone
    after the step, and what was drawn is in no attribute.
    """

    def __init__(
        self,
        parameters: Iterable[Any],
        *,
        lr: float,
        mixing: ModelMix,
        unit: float,
        generator: RandomSource,
        processes: Processes | None = None,
    ) -> None:
        super().__init__(parameters, {"lr": lr})
        self._mixing = mixing
        self._width = mixing.width * validate.positive(unit=unit) * _ROUNDING
        self._generator = generator
        self._processes = Processes() if processes is None else processes
        self._processes.check_same("mixing and the unit of its width", (repr(mixing), unit))
        for parameter in self._trainable():
            if parameter.dtype not in (torch.float32, torch.float64):
                raise UnsoundConfiguration(
                    f"mixing adds up noise of two kinds, for which {parameter.dtype} is too coarse "
                    "(the noisy gradient is rounded before it is mixed); use float32 parameters"
                )

    @torch.no_grad()
    def step(self, closure: Callable[[], float] | None = None) -> None:  # type: ignore[override]
        """Replace every trainable parameter by its next state, and forget its gradient.

        Gradients are forgotten also if there is no step.

        Raises:
            UnsoundConfiguration: if a trainable parameter has no gradient: unmixed, it would show
                what the others hide.
        """
        if closure is not None:
            raise UnsoundConfiguration(
                "closure would evaluate the loss again, at a cost of its own; leave it out"
            )
        try:
            self._move_all()
        finally:
            # With the gradient and the new state at hand, anybody could undo the mixing.
            for parameter in self._trainable():
                parameter.grad = None

    def _move_all(self) -> None:
        for parameter in self._trainable():
            if parameter.grad is None:
                raise UnsoundConfiguration(
                    f"a trainable parameter of shape {tuple(parameter.shape)} has no private "
                    "gradient in this step; freeze it before training is made private"
                )
        rates = [_rate(group, self._width) for group in self.param_groups]
        # States that differ by more than rounding, mixed by the same draws, would give these away.
        self._processes.check_same("learning rates", rates)
        draws = iter(self._draws())
        for group, rate in zip(self.param_groups, rates, strict=True):
            for parameter in group["params"]:
                if parameter.requires_grad:
                    self._move(parameter, rate, next(draws))

    def _move(self, parameter: Tensor, rate: float, drawn: Tensor) -> None:
        """Take the step of one parameter; `drawn` is uniform on [-1/2, 1/2], and is used up."""
        gradient = parameter.grad
        assert gradient is not None
        state = self.state[parameter]
        newer = parameter.clone()
        older = state.get("previous", newer)  # at first a tie, which is mixed as all others are
        apart = newer - older
        # All noise is summed up before it meets the weights, whose rounding then is the only one.
        gap = apart.abs().clamp_(min=rate * self._width)
        noisy = drawn.mul_(gap).sub_(gradient, alpha=rate)
        middle = older.lerp(newer, 0.5)
        if self._mixing.momentum:
            middle.add_(apart, alpha=self._mixing.momentum)
        parameter.copy_(middle.add_(noisy))
        state["previous"] = newer

    def _draws(self) -> list[Tensor]:
        """Return for every trainable parameter numbers uniform on [-1/2, 1/2], all independent."""
        parameters = self._trainable()
        sizes = [parameter.numel() for parameter in parameters]
        double = any(parameter.dtype == torch.float64 for parameter in parameters)
        flat = torch.empty(sum(sizes), dtype=torch.float64 if double else torch.float32)
        if self._processes.is_first:
            flat = _uniform(flat.numel(), double, self._generator)
        flat = flat.to(parameters[0].device)
        if self._processes.group is not None:
            dist.broadcast(flat, group=self._processes.group, group_src=0)
        return [
            part.view(parameter.shape).to(parameter)
            for part, parameter in zip(flat.split(sizes), parameters, strict=True)
        ]

    def _trainable(self) -> list[Tensor]:
        held = [p for group in self.param_groups for p in group["params"]]
        return [parameter for parameter in held if parameter.requires_grad]


def mixed(
    optimizer: Optimizer,
    plan: Plan,
    sizes: Mapping[str, int],
    generator: RandomSource,
    processes: Processes,
) -> Optimizer:
    """Return what takes the steps of a plan: the optimizer itself, or one that mixes in its place.

    Args:
        optimizer: optimizer of a plan with mixing, plain SGD.
        plan: the run's.
        sizes: the number of entries of every trainable parameter, by name.
        generator: generator of the mixing.
        processes: processes that train together.

    Raises:
        UnsoundConfiguration: if the optimizer keeps something of earlier gradients, or changes
            weights in another way than by the gradient.
    """
    if plan.mixing is None:
        return optimizer
    _check_plain(optimizer)
    norm = plan.mixing.norm(plan.clipping, plan.noise(sizes), plan.noise_multiplier)
    return MixedSGD(
        [{"params": group["params"], "lr": group["lr"]} for group in optimizer.param_groups],
        lr=float(optimizer.defaults["lr"]),
        mixing=plan.mixing,
        unit=norm / plan.batch_size,
        generator=generator,
        processes=processes,
    )


def _rate(group: Mapping[str, Any], width: float) -> float:
    """Return the learning rate of a group, if the uniform noise of that width is not lost."""
    rate = float(group["lr"])
    if not (rate >= 0 and math.isfinite(rate)):
        raise ValueError(f"lr must be finite and not negative, got lr={rate!r}")
    if rate > 0.0 and rate * width < _LEAST:
        raise ValueError(
            f"uniform noise of width {rate * width!r} is lost in float32; multiply the loss and "
            "the clipping norm by a constant"
        )
    return rate


def _check_plain(optimizer: Optimizer) -> None:
    found = [] if type(optimizer) is SGD else [type(optimizer).__name__]
    if not found:
        found = [
            f"{name}={group[name]!r}"
            for group in optimizer.param_groups
            for name in _HIDDEN
            if group[name]
        ]
    if found:
        raise UnsoundConfiguration(
            f"mixing needs plain SGD, got {found[0]}. An optimizer that remembers gradients shows "
            "each of them through many mixings, which average out: with a momentum of 0.9, where "
            "delta=1e-5 was claimed, 5.6e-3 was measured; weight decay makes the mixing narrower. "
            "Use torch.optim.SGD(parameters, lr=...), with ModelMix(momentum=...) for a momentum "
            "of released states, or leave mixing out of the plan"
        )


def _uniform(count: int, double: bool, source: RandomSource) -> Tensor:
    """Return numbers uniform on [-1/2, 1/2], of 32 bits each, or of 53 in double precision."""
    if double:
        return torch.from_numpy(source.uniform(count) - 0.5)
    words = torch.frombuffer(bytearray(source.bytes(4 * count)), dtype=torch.int32)
    return words.to(torch.float32).mul_(2.0**-32)
