"""Made-up images with the statistics of natural ones."""

from __future__ import annotations

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor
from torch.nn import functional

from taut._base import validate

__all__ = ["dead_leaves"]

_SMALLEST, _LARGEST = 2.0, 24.0  # radii of leaves, in points
_MOST = 200  # leaves; what they leave open is the ground
_COLOUR = 0.12  # deviation of colours around a common brightness
_SHADE = 0.02  # deviation of the slope of brightness on a leaf


def dead_leaves(
    count: int, shape: tuple[int, int] = (32, 32), *, channels: int = 3, seed: int = 0
) -> Tensor:
    """Return images of leaves that cover each other: made up, and like natural images in small.

    Ellipses of many sizes hide one another, as things do before a camera: edges, flat regions and
    correlations at all distances (the "dead leaves" of Matheron 1968; Lee, Mumford and Huang 2001).
    Statistics of features that need *some* images can be taken from these.

    Args:
        count: how many.
        shape: height and width.
        channels: 1 for grey images, 3 for colours.
        seed: seed of the generator; the same seed gives the same images.

    Returns:
        A tensor of shape (count, channels, height, width), with values in [0, 1].

    **Guarantee**: they depend on the arguments alone: public, whatever the private data.

    Example:
        >>> from taut.training.features import dead_leaves
        >>> dead_leaves(5, (28, 28), channels=1).shape
        torch.Size([5, 1, 28, 28])
    """
    validate.positive_integer(count=count)
    validate.positive_integer(channels=channels)
    height, width = shape
    validate.positive_integer(height=height)
    validate.positive_integer(width=width)
    draw = np.random.default_rng(validate.integer(seed=seed))
    images = np.stack([_image(draw, height, width, channels) for _ in range(count)])
    return _blurred(torch.from_numpy(images))


def _image(
    draw: np.random.Generator, height: int, width: int, channels: int
) -> NDArray[np.float32]:
    y, x = np.mgrid[:height, :width].astype(np.float64)
    image = np.full((channels, height, width), draw.uniform(0.2, 0.8), dtype=np.float32)
    is_open = np.ones((height, width), dtype=bool)
    margin = _LARGEST / 3
    for _ in range(_MOST):
        # Areas are as 1 / r^3 in density: as much is covered at every scale.
        radius = _SMALLEST / np.sqrt(draw.uniform((_SMALLEST / _LARGEST) ** 2, 1))
        down, right = (
            y - draw.uniform(-margin, height + margin),
            x - draw.uniform(-margin, width + margin),
        )
        angle, flatness = draw.uniform(0, np.pi), draw.uniform(0.5, 1)
        along = down * np.cos(angle) + right * np.sin(angle)
        across = (right * np.cos(angle) - down * np.sin(angle)) / flatness
        # The nearest leaves come first, so that nothing has to be painted twice.
        leaf = (along**2 + across**2 < radius**2) & is_open
        colour = draw.uniform() + _COLOUR * draw.standard_normal(channels)
        slope = _SHADE * draw.standard_normal(2)
        shade = slope[0] * down[leaf] + slope[1] * right[leaf]
        image[:, leaf] = np.clip(np.clip(colour, 0, 1)[:, None] + shade, 0, 1)
        is_open &= ~leaf
        if not is_open.any():
            break
    return image


def _blurred(images: Tensor) -> Tensor:
    """Return images as a camera sees them: an edge is wider than a point."""
    line = torch.tensor([0.25, 0.5, 0.25])
    kernel = torch.outer(line, line)[None, None]
    planes = functional.pad(images.flatten(0, 1)[:, None], (1, 1, 1, 1), mode="replicate")
    return functional.conv2d(planes, kernel).view(images.shape)
