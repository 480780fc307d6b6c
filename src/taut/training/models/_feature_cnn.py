"""A small convolutional network on features."""

from __future__ import annotations

from collections.abc import Sequence

from torch import Tensor, nn

from taut._base import validate

__all__ = ["FeatureCNN"]


class FeatureCNN(nn.Module):
    """Two convolutions and a linear layer on features of images, with tanh between them.

    The first convolution mixes the channels of each point into a few, so that most of what is
    trained sees few numbers: noise grows with parameters. Bounded activations keep gradients near
    the clipping norm (Papernot et al. 2021).

    Args:
        features: shape of one example's features: channels, height and width.
        classes: the number of classes.
        width: channels of both convolutions.

    Features may be stored in half precision; they are computed with as the layers are.

    Raises:
        ValueError: if features are not of that shape, or smaller than 2 by 2 points.

    Example:
        >>> import torch
        >>> from taut.training.models import FeatureCNN
        >>> FeatureCNN((243, 8, 8), 10)(torch.rand(5, 243, 8, 8)).shape
        torch.Size([5, 10])
    """

    def __init__(self, features: Sequence[int], classes: int, *, width: int = 32) -> None:
        super().__init__()
        shape = tuple(features) if isinstance(features, Sequence) else ()
        whole = len(shape) == 3 and all(isinstance(size, int) for size in shape)
        if not whole or shape[0] < 1 or min(shape[1:]) < 2:
            raise ValueError(
                "features must be channels, height and width, of at least 2 by 2 points, "
                f"got features={features!r}"
            )
        channels, height, broad = shape
        width = validate.positive_integer(width=width)
        self.mix = nn.Conv2d(channels, width, kernel_size=1)
        self.look = nn.Conv2d(width, width, kernel_size=3, padding=1)
        self.bend = nn.Tanh()
        self.pool = nn.MaxPool2d(2)
        self.flat = nn.Flatten()
        self.head = nn.Linear(
            width * (height // 2) * (broad // 2), validate.positive_integer(classes=classes)
        )

    def forward(self, features: Tensor) -> Tensor:
        """Return one score per class."""
        mixed = self.bend(self.mix(features.to(self.mix.weight.dtype)))
        seen = self.pool(self.bend(self.look(mixed)))
        scores: Tensor = self.head(self.flat(seen))
        return scores
