"""Clipping: what is done to one example's gradient before it is summed, and what that bounds."""

from __future__ import annotations

import math
from abc import abstractmethod
from collections.abc import Sequence
from dataclasses import dataclass
from typing import ClassVar

import torch
from torch import Tensor

from taut import _validate
from taut.noise import L2Ball, SensitivitySet
from taut.training._strategy import Strategy

__all__ = ["Clipping", "FlatClip"]


class Clipping(Strategy):
    """How long an example's gradient may be: a strategy that the plan and the step share.

    Parameters fall into groups; a strategy sees the norm of every group and answers with weights.
    A strategy that needs the coordinates themselves sets `needs_rows` and has `clip_rows` instead.
    """

    needs_rows: ClassVar[bool] = False
    """Whether gradients are written out and given to `clip_rows`; slower than by their norms."""

    def clip_rows(self, rows: Tensor) -> Tensor:
        """Return clipped gradients, finite and of shape (examples, coordinates) as given.

        Coordinates are in the order of `sensitivity`.
        """
        raise NotImplementedError(f"{type(self).__name__} clips by norms, not by coordinates")

    @abstractmethod
    def groups(self, names: Sequence[str]) -> list[int]:
        """Return for every parameter, by name, the number of its group, from zero up."""

    @abstractmethod
    def weights(self, squared_norms: Tensor) -> Tensor:
        """Return what gradients are multiplied with; both of shape (groups, batch), finite."""

    @abstractmethod
    def sensitivity(self, names: Sequence[str], sizes: Sequence[int]) -> SensitivitySet:
        """Return the set that holds every clipped gradient, all parameters in one vector.

        Coordinates are ordered by group, and by parameter within a group.
        """


@dataclass(frozen=True)
class FlatClip(Clipping):
    """Scale the whole gradient of an example down to l2 norm `norm`, if it is longer.

    Args:
        norm: the bound; infinity leaves gradients as they are, for tests without noise.

    **Guarantee**: adding or removing one example changes the sum of clipped gradients by at most
    `norm` in l2 (Abadi et al. 2016, Algorithm 1), up to a relative 1e-4 of rounding in float32,
    which the noise allows for.
    """

    name = "flat"

    norm: float

    def __post_init__(self) -> None:
        if self.norm != math.inf:
            _validate.positive(norm=self.norm)

    def groups(self, names: Sequence[str]) -> list[int]:
        return [0] * len(names)

    def weights(self, squared_norms: Tensor) -> Tensor:
        if self.norm == math.inf:
            return torch.ones_like(squared_norms)
        lengths = squared_norms.sqrt().clamp_(min=torch.finfo(squared_norms.dtype).tiny)
        return (self.norm / lengths).clamp_(max=1.0)

    def sensitivity(self, names: Sequence[str], sizes: Sequence[int]) -> SensitivitySet:
        return L2Ball(sum(sizes), self.norm)
