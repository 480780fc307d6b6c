"""Residual networks for images of 32 by 32 points, with group normalisation."""

from __future__ import annotations

from collections.abc import Callable

from torch import Tensor, nn
from torch.nn import functional

from taut.training._gradients.layers.standardised import StandardisedConv2d

__all__ = ["ResNet20", "WideResNet"]


class _Block(nn.Module):
    """Two convolutions beside a shortcut, normalised after each of them."""

    def __init__(self, before: int, after: int, stride: int, groups: int) -> None:
        super().__init__()
        self.first = nn.Conv2d(before, after, 3, stride, 1, bias=False)
        self.first_norm = nn.GroupNorm(groups, after)
        self.second = nn.Conv2d(after, after, 3, 1, 1, bias=False)
        self.second_norm = nn.GroupNorm(groups, after)
        self.shortcut: nn.Module = nn.Identity()
        if stride != 1 or before != after:
            self.shortcut = nn.Sequential(
                nn.Conv2d(before, after, 1, stride, bias=False), nn.GroupNorm(groups, after)
            )

    def forward(self, images: Tensor) -> Tensor:
        inner = functional.relu(self.first_norm(self.first(images)))
        return functional.relu(self.second_norm(self.second(inner)) + self.shortcut(images))


class ResNet20(nn.Module):
    """The residual network of 20 layers of He et al. (2016), with group norm; 272,474 parameters.

    Args:
        classes: the number of classes.
        channels: number of channels of the input, of shape (batch, channels, height, width).
        groups: groups of the normalisation.

    Example:
        >>> import torch
        >>> from taut.training.models import ResNet20
        >>> ResNet20()(torch.zeros(2, 3, 32, 32)).shape
        torch.Size([2, 10])
    """

    def __init__(self, classes: int = 10, channels: int = 3, groups: int = 8) -> None:
        super().__init__()
        self.stem = nn.Sequential(
            nn.Conv2d(channels, 16, 3, 1, 1, bias=False), nn.GroupNorm(groups, 16), nn.ReLU()
        )
        blocks: list[nn.Module] = []
        before = 16
        for after, stride in ((16, 1), (32, 2), (64, 2)):
            for place in range(3):
                blocks.append(_Block(before, after, stride if place == 0 else 1, groups))
                before = after
        self.blocks = nn.Sequential(*blocks)
        self.head = nn.Linear(64, classes)

    def forward(self, images: Tensor) -> Tensor:
        """Return one score per class."""
        scores: Tensor = self.head(self.blocks(self.stem(images)).mean((2, 3)))
        return scores


class _PreActivation(nn.Module):
    """A block of a wide residual network: normalise, activate, convolve, twice."""

    def __init__(self, before: int, after: int, stride: int, groups: int) -> None:
        super().__init__()
        self.first_norm = nn.GroupNorm(groups, before)
        self.first = StandardisedConv2d(before, after, 3, stride, 1)
        self.second_norm = nn.GroupNorm(groups, after)
        self.second = StandardisedConv2d(after, after, 3, 1, 1)
        self.shortcut: Callable[[Tensor], Tensor] = nn.Identity()
        if stride != 1 or before != after:
            self.shortcut = StandardisedConv2d(before, after, 1, stride)

    def forward(self, images: Tensor) -> Tensor:
        inner = functional.relu(self.first_norm(images))
        outer = self.second(functional.relu(self.second_norm(self.first(inner))))
        changed = not isinstance(self.shortcut, nn.Identity)
        total: Tensor = outer + self.shortcut(inner if changed else images)
        return total


class WideResNet(nn.Module):
    """A wide residual network with group norm and weight standardisation (De et al. 2022).

    Args:
        depth: number of layers, 6 k + 4; 16 and 40 are usual.
        width: how many times wider than the plain network; 4 is usual with 16 layers.
        classes: the number of classes.
        channels: number of channels of the input, of shape (batch, channels, height, width).
        groups: groups of the normalisation.

    Example:
        >>> import torch
        >>> from taut.training.models import WideResNet
        >>> WideResNet(depth=10, width=1, groups=8)(torch.zeros(2, 3, 32, 32)).shape
        torch.Size([2, 10])
    """

    def __init__(
        self,
        depth: int = 16,
        width: int = 4,
        classes: int = 10,
        channels: int = 3,
        groups: int = 16,
    ) -> None:
        super().__init__()
        if depth < 10 or (depth - 4) % 6:
            raise ValueError(f"depth must be 6 k + 4 with k of at least 1, got depth={depth!r}")
        self.stem = StandardisedConv2d(channels, 16, 3, 1, 1)
        blocks: list[nn.Module] = []
        before = 16
        for after, stride in ((16 * width, 1), (32 * width, 2), (64 * width, 2)):
            for place in range((depth - 4) // 6):
                blocks.append(_PreActivation(before, after, stride if place == 0 else 1, groups))
                before = after
        self.blocks = nn.Sequential(*blocks)
        self.norm = nn.GroupNorm(groups, before)
        self.head = nn.Linear(before, classes)

    def forward(self, images: Tensor) -> Tensor:
        """Return one score per class."""
        features = functional.relu(self.norm(self.blocks(self.stem(images))))
        scores: Tensor = self.head(features.mean((2, 3)))
        return scores
