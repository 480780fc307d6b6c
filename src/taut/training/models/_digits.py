"""Models for images of 28 by 28 points, and for plain vectors."""

from __future__ import annotations

from collections.abc import Sequence
from itertools import pairwise

from torch import Tensor, nn

__all__ = ["TanhCNN", "mlp"]


class TanhCNN(nn.Sequential):
    """Two convolutions and two linear layers with tanh between them; 26,010 parameters.

    The network of Papernot et al. (2021): bounded activations keep gradients near the clipping
    norm.

    Args:
        classes: the number of classes.
        channels: number of channels of the input, of shape (batch, channels, 28, 28).

    Example:
        >>> import torch
        >>> from taut.training.models import TanhCNN
        >>> TanhCNN()(torch.zeros(2, 1, 28, 28)).shape
        torch.Size([2, 10])
    """

    def __init__(self, classes: int = 10, channels: int = 1) -> None:
        super().__init__(
            nn.Conv2d(channels, 16, kernel_size=8, stride=2, padding=3),
            nn.Tanh(),
            nn.MaxPool2d(kernel_size=2, stride=1),
            nn.Conv2d(16, 32, kernel_size=4, stride=2),
            nn.Tanh(),
            nn.MaxPool2d(kernel_size=2, stride=1),
            nn.Flatten(),
            nn.Linear(32 * 4 * 4, 32),
            nn.Tanh(),
            nn.Linear(32, classes),
        )

    def forward(self, images: Tensor) -> Tensor:
        """Return one score per class."""
        # On CPUs pooling is 8 times as fast where the channels of a point lie side by side.
        first, *others = self
        seen = first(images).movedim(1, -1).contiguous().movedim(-1, 1)
        for layer in others:
            seen = layer(seen)
        scores: Tensor = seen
        return scores


def mlp(widths: Sequence[int] = (784, 512, 256, 10)) -> nn.Sequential:
    """Return linear layers of the given widths with ReLU between them; inputs are flattened.

    Example:
        >>> from taut.training.models import mlp
        >>> sum(p.numel() for p in mlp().parameters())
        535818
    """
    if len(widths) < 2:
        raise ValueError(f"widths must name an input and an output, got widths={widths!r}")
    layers: list[nn.Module] = [nn.Flatten()]
    for before, after in pairwise(widths):
        layers += [nn.Linear(before, after), nn.ReLU()]
    return nn.Sequential(*layers[:-1])
