"""Normal numbers for training, from the bits of a random source, at the speed of torch's own."""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import TYPE_CHECKING

import torch
from torch import Tensor

from taut.noise import RandomSource

if TYPE_CHECKING:
    from taut.training._noise.step_noise import Draw

__all__ = ["fill_normal", "in_one_piece", "normal"]

_CHUNK = 1 << 16  # pairs: large enough to hide the calls, small enough for the cache
_THIN = 1 << 12  # radius words below this get further bits: the tail must not end at 6.7 deviations

_LEAST = {kind: 2.0**66 * torch.finfo(kind).tiny for kind in (torch.float32, torch.float64)}
"""Deviations from which on all but the smallest draws are normal numbers of the format, and so are
the factors that scale the longest gradients down to what such noise hides."""


def normal(count: int, scale: float, how: Draw) -> Tensor:
    """Return normal numbers in the place where they are wanted, zeros for a deviation of zero.

    Args:
        count: the number of them.
        scale: the standard deviation, before it is multiplied with the factor.
        how: the way to draw them.
    """
    drawn = torch.zeros(count, dtype=how.dtype)
    if scale > 0:
        fill_normal(drawn, scale * how.factor, how.source)
    return drawn.to(how.device)


def in_one_piece(parts: Sequence[Tensor]) -> Tensor:
    """Return the numbers of some tensors one after the other, in a tensor of their own."""
    return torch.cat([part.flatten() for part in parts])


def fill_normal(out: Tensor, scale: float, source: RandomSource) -> Tensor:
    """Fill a flat tensor on the CPU with independent normal numbers of the given deviation.

    The method of Box and Muller (1958), on a radius of 63 bits and an angle of 32. Magnitudes
    beyond 9.3, of probability below 1e-20, do not occur. Like all noise in floating point its low
    bits are not those of a real number: what is trained with it is protected from those who see
    parameters, not from those who know them to the last bit of every sum (Mironov 2012).
    """
    if not scale >= _LEAST[out.dtype]:
        raise ValueError(
            f"noise of deviation {scale!r} is lost in {out.dtype}; multiply the loss and the "
            "clipping norm by a constant"
        )
    if out.dtype != torch.float32:
        exact = torch.from_numpy(source.standard_normal(out.numel())).mul_(scale)
        return out.copy_(exact)
    for start in range(0, out.numel(), 2 * _CHUNK):
        part = out[start : start + 2 * _CHUNK]
        pairs = (part.numel() + 1) // 2
        radius, angle = _polar(pairs, scale, source)
        torch.mul(radius, angle.cos(), out=part[:pairs])
        rest = part.numel() - pairs
        torch.mul(radius[:rest], angle[:rest].sin(), out=part[pairs:])
    return out


def _polar(pairs: int, scale: float, source: RandomSource) -> tuple[Tensor, Tensor]:
    words = torch.frombuffer(bytearray(source.bytes(8 * pairs)), dtype=torch.int32)
    cut = words[:pairs].bitwise_and_(2**31 - 1)
    tail = cut.to(torch.float32)
    if int(cut.min()) < _THIN:
        thin = (cut < _THIN).nonzero()[:, 0]
        more = torch.frombuffer(bytearray(source.bytes(4 * thin.numel())), dtype=torch.int32)
        fraction = (more.double() + (2**31 + 0.5)) * 2.0**-32
        tail[thin] = (cut[thin].double() + fraction).float()
    # The square of a scale may be too small for a float32 where the scale is not.
    radius = tail.mul_(2.0**-31).log_().mul_(-2.0).clamp_(min=0.0).sqrt_().mul_(scale)
    return radius, words[pairs:].to(torch.float32).mul_(math.pi * 2.0**-31)
