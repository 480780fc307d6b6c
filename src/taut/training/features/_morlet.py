"""Filters on a torus of image points: a Gaussian, and wavelets in several sizes and directions.

All filters are even in the real and odd in the imaginary part, so that their Fourier transforms are
real. Sizes and frequencies are those of Bruna and Mallat (2013) and of Oyallon and Mallat (2015).
"""

from __future__ import annotations

import math

import torch
from torch import Tensor

__all__ = ["FREQUENCY", "WIDTH", "gaussian", "littlewood_paley", "wavelets"]

WIDTH = 0.8
"""Deviation of the envelope of the smallest wavelet, in points."""
FREQUENCY = 3 * math.pi / 4
"""Where the smallest wavelet is centred, in radians per point."""
_COPIES = 2  # of the torus on every side: envelopes are far below rounding beyond them


def gaussian(size: int, width: float) -> Tensor:
    """Return a Gaussian of deviation `width` on a circle of points, in double precision; sums to 1.

    The first entry is its centre.
    """
    places = torch.arange(size, dtype=torch.float64)
    turns = torch.arange(-_COPIES, _COPIES + 1, dtype=torch.float64)
    values = torch.exp(-(((places[:, None] + turns * size) / width) ** 2) / 2).sum(1)
    return values / values.sum()


def wavelets(shape: tuple[int, int], scales: int, angles: int) -> Tensor:
    """Return the Fourier transforms of all wavelets, scaled to the largest that keep energy.

    Of shape (scales, angles, height, width), real and in double precision. With the Gaussian of
    deviation ``WIDTH * 2**(scales - 1)`` as low pass, `littlewood_paley` is at most one, and one
    somewhere.
    """
    bank = torch.stack(
        [
            _wavelet(shape, 2.0**scale, math.pi * angle / angles, angles)
            for scale in range(scales)
            for angle in range(angles)
        ]
    ).view(scales, angles, *shape)
    low, high = littlewood_paley(bank, scales)
    # At frequency zero there is no wavelet, and the low pass is one.
    room = ((1 - low) / high).flatten()[1:].min()
    return bank * room.sqrt()


def littlewood_paley(bank: Tensor, scales: int) -> tuple[Tensor, Tensor]:
    """Return the shares of energy that the low pass and that all wavelets keep, by frequency.

    For real images, whose spectrum is the same at opposite frequencies.
    """
    height, width = bank.shape[-2:]
    deviation = WIDTH * 2 ** (scales - 1)
    columns, rows = (torch.fft.fft(gaussian(n, deviation)).real for n in (height, width))
    energy = (bank**2).sum((0, 1))
    opposite = energy.flip(0, 1).roll((1, 1), (0, 1))
    return torch.outer(columns, rows) ** 2, (energy + opposite) / 2


def _wavelet(shape: tuple[int, int], scale: float, angle: float, angles: int) -> Tensor:
    """Return the transform of a Morlet wavelet: a plane wave in an envelope, with mean zero."""
    height, width = shape
    deviation = WIDTH * scale
    # Longer across its wave the more directions there are, to tell them apart.
    slant = 4 / angles
    wave = torch.zeros(shape, dtype=torch.complex128)
    envelope = torch.zeros(shape, dtype=torch.float64)
    for up in range(-_COPIES, _COPIES + 1):
        for left in range(-_COPIES, _COPIES + 1):
            y = torch.arange(height, dtype=torch.float64)[:, None] + up * height
            x = torch.arange(width, dtype=torch.float64) + left * width
            along = y * math.cos(angle) + x * math.sin(angle)
            across = x * math.cos(angle) - y * math.sin(angle)
            bell = torch.exp(-(along**2 + (slant * across) ** 2) / (2 * deviation**2))
            envelope += bell
            wave += bell * torch.exp(1j * FREQUENCY / scale * along)
    balanced = wave - envelope * (wave.sum() / envelope.sum())
    transformed: Tensor = torch.fft.fft2(balanced).real * slant / (2 * math.pi * deviation**2)
    return transformed
