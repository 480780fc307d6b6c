"""A linear model on features."""

from __future__ import annotations

import math
from collections.abc import Sequence

from torch import Tensor, nn

from taut._base import validate

__all__ = ["LinearProbe"]


class LinearProbe(nn.Module):
    """One linear layer on features that are normalised within each example.

    Features of one example are centred and scaled in groups of channels, as `nn.GroupNorm` does it:
    with nothing of other examples, so that it costs no privacy. The layer begins at zero.

    Args:
        features: shape of one example's features: a number, or channels and further dimensions.
        classes: the number of classes.
        groups: into how many groups channels are split; None leaves features as they are.

    Features may be stored in half precision; they are computed with as the layer is.

    Raises:
        ValueError: if channels cannot be split into groups of one size.

    Example:
        >>> import torch
        >>> from taut.training.models import LinearProbe
        >>> LinearProbe((81, 7, 7), 10, groups=9)(torch.rand(5, 81, 7, 7)).shape
        torch.Size([5, 10])
    """

    def __init__(
        self, features: int | Sequence[int], classes: int, *, groups: int | None = None
    ) -> None:
        super().__init__()
        shape = (features,) if isinstance(features, int) else tuple(features)
        if not shape or any(size < 1 for size in shape):
            raise ValueError(f"features must be sizes of at least 1, got features={features!r}")
        if groups is not None and (groups < 1 or shape[0] % groups):
            raise ValueError(
                f"groups must divide the {shape[0]} channels of features, got groups={groups!r}"
            )
        self.norm: nn.Module = nn.Identity()
        if groups is not None:
            self.norm = nn.GroupNorm(groups, shape[0], affine=False)
        self.flat = nn.Flatten()
        self.head = nn.Linear(math.prod(shape), validate.positive_integer(classes=classes))
        nn.init.zeros_(self.head.weight)
        nn.init.zeros_(self.head.bias)

    def forward(self, features: Tensor) -> Tensor:
        """Return one score per class."""
        scores: Tensor = self.head(self.flat(self.norm(features.to(self.head.weight.dtype))))
        return scores
