"""The release of one step, as a replay sees it."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import TYPE_CHECKING

import numpy as np
import torch
from torch import Tensor

from taut.errors import UnsoundConfiguration
from taut.noise import L2Ball
from taut.noise.recording import Release, active

if TYPE_CHECKING:
    from taut._base.arrays import Vector
    from taut.noise import RandomSource
    from taut.training._step.private_gradient import PrivateGradient

__all__ = ["released_count", "released_step"]

_ROUNDINGS = 32  # of a sum over a batch, which torch adds up in parts
_VOTE = 0.5  # of an example in a count
_ALLOWED = 1e-4  # of the sensitivity: what the noise of a step allows for rounding in float32


def released_step(
    gradient: PrivateGradient,
    totals: Sequence[Tensor],
    source: RandomSource,
    add: Callable[[], None],
) -> None:
    """Set noisy gradients, as `add` does; in a replay, through its recorder.

    Args:
        gradient: what clips and adds up.
        totals: sums of clipped gradients over the expected batch size, one for every parameter.
        source: source of the noise.
        add: the step at work: sums become gradients, with noise.
    """
    recorder = active()
    if recorder is None:
        add()
        return
    _refuse_many(gradient)

    def draw() -> list[Tensor]:
        add()
        return [p.grad.clone() for p in gradient.parameters if p.grad is not None]

    noisy = recorder.release(draw, _step(gradient, totals), source)
    for parameter, part in zip(gradient.parameters, noisy, strict=True):
        parameter.grad = part.clone()


def released_count(
    gradient: PrivateGradient, votes: Tensor, source: RandomSource, draw: Callable[[], Tensor]
) -> Tensor:
    """Return the noisy count beside a sum of gradients; in a replay, through its recorder."""
    recorder = active()
    if recorder is None:
        return draw()
    value = np.array([float(votes)])
    settings = {"noise": repr(gradient.step_noise)}
    bound = L2Ball(1, _VOTE * (1 + _ALLOWED))
    return recorder.release(draw, Release("count of a step", value, bound, settings), source)


def _step(gradient: PrivateGradient, totals: Sequence[Tensor]) -> Release:
    names, sizes = gradient.names, [total.numel() for total in totals]
    order = np.argsort(gradient.clipping.groups(names), kind="stable")
    norm = gradient.clipping_norm
    unit = gradient.expected_batch_size / (1.0 if norm is None else norm)
    value = np.concatenate([_flat(totals[i]) for i in order]) * unit
    settings = {
        "noise": repr(gradient.step_noise),
        "clipping": repr(gradient.clipping),
        "norm": norm,
        "divisor": gradient.expected_batch_size,
    }
    return Release(
        "step",
        value,
        L2Ball(sum(sizes), 1.0) if norm else gradient.clipping.sensitivity(names, sizes),
        settings,
        rounding=_ROUNDINGS * torch.finfo(totals[0].dtype).eps,
        slack=_ALLOWED,
    )


def _flat(total: Tensor) -> Vector:
    flat: Vector = total.detach().double().flatten().cpu().numpy()
    return flat


def _refuse_many(gradient: PrivateGradient) -> None:
    if gradient.processes.size > 1:
        raise UnsoundConfiguration(
            f"a replay sees one process, and {gradient.processes.size} train together; replay "
            "with one"
        )
