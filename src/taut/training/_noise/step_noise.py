"""The noise of one step: who draws it, and how its parts depend on each other."""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, ClassVar, Self

import numpy as np

from taut._base import validate
from taut.errors import UnsoundConfiguration
from taut.noise import GaussianNoise, RandomSource

if TYPE_CHECKING:
    import torch
    from torch import Tensor

__all__ = ["Draw", "IndependentNoise", "StepNoise"]


@dataclass(frozen=True)
class Draw:
    """How the noise of one step is to be drawn.

    Args:
        source: the source of random bits.
        factor: what the noise of the sum of clipped gradients is multiplied with.
        dtype: the type of the tensors.
        device: the place of the tensors.
    """

    source: RandomSource
    factor: float
    dtype: torch.dtype
    device: torch.device


class StepNoise(ABC):
    """Draws the noise of all trainable parameters, once per step, in the order of the steps.

    A step asks for parameters in the order of the model. Noise that remembers earlier steps, or
    that is not independent from one parameter to the next, is a subclass.
    """

    needs_whole: ClassVar[bool] = False
    """Whether all parameters must be asked for at once, so that shards of them cannot be."""

    hides_more: ClassVar[bool] = False
    """Whether a count that is released beside the sum is hidden too, by `draw_count`."""

    coordinate_rate: float = 1.0
    """The probability with which coordinates of clipped gradients take part, for which it is."""

    @abstractmethod
    def check(self, groups: Sequence[int], sizes: Sequence[int]) -> None:
        """Refuse a model with these groups and sizes of parameters, if the noise is for another."""

    @abstractmethod
    def draw(self, shapes: Sequence[torch.Size], how: Draw) -> list[Tensor]:
        """Return noise of the given shapes, one for every trainable parameter in their order."""

    def draw_count(self, how: Draw) -> Tensor:
        """Return noise for the number that is counted beside gradients, where it `hides_more`."""
        raise UnsoundConfiguration(
            f"{type(self).__name__} hides gradients alone, no count beside them; give the noise "
            "of a plan with this clipping, noise=plan.noise(sizes)"
        )


@dataclass(frozen=True)
class IndependentNoise(StepNoise):
    """Normal noise, independent in every coordinate, of one standard deviation per group.

    Args:
        scales: the standard deviation in every group.
        groups: the group of every parameter.
        coordinate_rate: probability with which a coordinate of a clipped gradient takes part, where
            the noise is for such sums alone.
    """

    scales: tuple[float, ...]
    groups: tuple[int, ...]
    coordinate_rate: float = 1.0

    def __post_init__(self) -> None:
        scales = tuple(validate.non_negative(scales=scale) for scale in self.scales)
        object.__setattr__(self, "scales", scales)
        needed = max(self.groups, default=-1) + 1
        if len(scales) != needed:
            raise ValueError(
                f"scales must hold one number for each of {needed} groups, got {len(scales)}"
            )

    @classmethod
    def of(cls, noise: GaussianNoise, groups: Sequence[int], sizes: Sequence[int]) -> Self:
        """Return the noise of a mechanism whose coordinates are ordered by group.

        Raises:
            UnsoundConfiguration: if it has a basis, or differs within a group.
        """
        totals = np.bincount(np.asarray(groups), weights=sizes).astype(np.int64)
        starts = np.concatenate([[0], np.cumsum(totals)[:-1]])
        scales = np.maximum.reduceat(noise.scales, starts)
        if noise.basis is not None or (scales != np.minimum.reduceat(noise.scales, starts)).any():
            raise UnsoundConfiguration(
                f"sensitivity={noise.sensitivity!r} asks for noise that differs within a group; "
                "split it"
            )
        return cls(tuple(float(scale) for scale in scales), tuple(groups))

    def check(self, groups: Sequence[int], sizes: Sequence[int]) -> None:
        if tuple(groups) != self.groups:
            raise UnsoundConfiguration(
                f"noise is for parameters in the groups {self.groups}, the model's are in "
                f"{tuple(groups)}; ask the plan for the noise of this model"
            )

    def draw(self, shapes: Sequence[torch.Size], how: Draw) -> list[Tensor]:
        from taut.training._tensors.normal import normal

        noise: dict[int, Tensor] = {}
        for group, scale in enumerate(self.scales):
            members = [i for i, other in enumerate(self.groups) if other == group]
            sizes = [shapes[i].numel() for i in members]
            flat = normal(sum(sizes), scale, how)
            for i, part in zip(members, flat.split(sizes), strict=True):
                noise[i] = part.view(shapes[i])
        return [noise[i] for i in range(len(shapes))]
