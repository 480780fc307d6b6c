"""Clipping: what is done to one example's gradient before it is summed, and what that bounds."""

from __future__ import annotations

import math
from abc import abstractmethod
from collections.abc import Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, ClassVar, NamedTuple, Self

from taut._base import validate
from taut._base.registry import Strategy
from taut.errors import UnsoundConfiguration
from taut.noise import L2Ball, SensitivitySet, optimal_gaussian
from taut.training._noise.step_noise import IndependentNoise, StepNoise

if TYPE_CHECKING:
    from torch import Tensor

    from taut.training._sampling.masks import Masks
    from taut.training._tensors.clipped_sum import ClippedSum, Layout

__all__ = ["Clipping", "EntryBlock", "FlatClip", "NormClipping", "NormalisedClip", "RowClipping"]


class EntryBlock(NamedTuple):
    """Coordinates of which single entries are bounded, beside their l2 norm.

    Attributes:
        rank: how many coordinates of noise count there.
        norm: bound on the l2 norm.
        entry_bound: bound on every entry.
        weight: how much the variance of the noise counts.
    """

    rank: int
    norm: float
    entry_bound: float
    weight: float = 1.0


class Clipping(Strategy):
    """How long an example's gradient may be: a strategy that the plan and the step share.

    It clips by norms (`NormClipping`) or by coordinates (`RowClipping`).
    """

    releases_more: ClassVar[bool] = False
    """Whether a step releases something beside the sum of gradients. What hides the sum better than
    its noise, such as mixing models, does not hide that."""

    follows_weights: ClassVar[bool] = False
    """Whether gradients are clipped and hidden in coordinates that weights decide. Processes would
    have to agree on these to the last bit, so that one alone may train."""

    @abstractmethod
    def groups(self, names: Sequence[str]) -> list[int]:
        """Return for every parameter, by name, the number of its group, from zero up."""

    @abstractmethod
    def sensitivity(self, names: Sequence[str], sizes: Sequence[int]) -> SensitivitySet:
        """Return the set that holds every clipped gradient, all parameters in one vector.

        Coordinates are ordered by group, and by parameter within a group.
        """

    def fitted(self, batch_size: float) -> Self:
        """Return the clipping for batches of this expected size; most serve all of them."""
        del batch_size
        return self

    def noise(self, names: Sequence[str], sizes: Sequence[int], multiplier: float) -> StepNoise:
        """Return the noise that hides a member of `sensitivity`, at a noise multiplier.

        **Guarantee**: of every member the length after whitening is at most 1 / multiplier, so that
        accountants see scalar noise of the multiplier for sensitivity one.
        """
        least = optimal_gaussian(self.sensitivity(names, sizes), multiplier=multiplier)
        return IndependentNoise.of(least, self.groups(names), sizes)

    def check_noise(self, noise: StepNoise) -> None:
        """Refuse noise that is for another kind of clipping.

        Raises:
            UnsoundConfiguration: if only one of clipping and noise is about more than the sum.
        """
        if self.releases_more != noise.hides_more:
            raise UnsoundConfiguration(
                f"{type(noise).__name__} is not the noise of clipping={self!r}; give the noise of "
                "a plan with this clipping, noise=plan.noise(sizes)"
            )

    def sum(
        self,
        parameters: Sequence[Tensor],
        groups: Sequence[int],
        expected: float,
        masks: Masks | None = None,
    ) -> ClippedSum:
        """Return an empty sum of clipped gradients.

        Args:
            parameters: the trainable parameters, in the order of the model.
            groups: the group of every parameter.
            expected: the batch size that sums are divided by.
            masks: the coordinates of clipped gradients that take part, by default all.

        Raises:
            UnsoundConfiguration: if there are masks, and entries are not bounded.
            NotImplementedError: if the clipping can plan, and says nothing about tensors.
        """
        self.check_masks(masks)
        return self._empty_sum((parameters, groups, expected), masks)

    def _empty_sum(self, layout: Layout, masks: Masks | None) -> ClippedSum:
        raise NotImplementedError(
            f"{type(self).__name__} does not say how tensors are clipped; derive it from "
            "NormClipping or RowClipping, or define sum()"
        )

    def check_masks(self, masks: Masks | None) -> None:
        """Refuse to sample coordinates where single entries are not bounded."""
        if masks is not None and not self.entry_blocks:
            raise UnsoundConfiguration(
                f"noise is for sums of which coordinates are sampled, and clipping={self!r} bounds "
                "no entries; use the clipping of the plan"
            )

    @property
    def entry_blocks(self) -> tuple[EntryBlock, ...] | None:
        """The blocks in which entries are bounded too, so that coordinates may be sampled."""
        return None

    def block_noise(
        self,
        names: Sequence[str],
        sizes: Sequence[int],
        scales: Sequence[float],
        coordinate_rate: float,
    ) -> StepNoise:
        """Return noise with a standard deviation for each of `entry_blocks`, for masked rows."""
        return IndependentNoise(tuple(scales), tuple(self.groups(names)), coordinate_rate)


class NormClipping(Clipping):
    """A clipping that needs the norms of gradients alone: they are never written out."""

    @abstractmethod
    def weights(self, squared_norms: Tensor) -> Tensor:
        """Return what gradients are multiplied with; both of shape (groups, batch), finite."""

    def _empty_sum(self, layout: Layout, masks: Masks | None) -> ClippedSum:
        from taut.training._tensors.clipped_sum import WeightedSum

        return WeightedSum(self, *layout)


class RowClipping(Clipping):
    """A clipping that needs every coordinate of a gradient: slower than by norms."""

    @property
    def row_bytes(self) -> int:
        """How much memory rows may take that are clipped at once."""
        from taut.training._tensors.numbers import MOST_ROW_BYTES

        return MOST_ROW_BYTES

    def groups(self, names: Sequence[str]) -> list[int]:
        """Return one group for all parameters, in the order of the model."""
        return [0] * len(names)

    @abstractmethod
    def clip_rows(self, rows: Tensor) -> Tensor:
        """Return clipped gradients, finite and of shape (examples, coordinates) as given.

        Coordinates are in the order of `sensitivity`.
        """

    def sum_rows(self, rows: Tensor, masks: Masks | None = None) -> Tensor:
        """Return the sum over examples of clipped gradients, as `restored` takes it.

        Args:
            rows: gradients of examples, as for `clip_rows`; they may be overwritten.
            masks: masks that say which coordinates of clipped gradients take part, by default all.
        """
        clipped = self.clip_rows(rows)
        return (clipped if masks is None else masks.cut(clipped)).sum(0)

    def _empty_sum(self, layout: Layout, masks: Masks | None) -> ClippedSum:
        from taut.training._tensors.clipped_sum import SumOfRows

        return SumOfRows(self, *layout, masks)

    def restored(self, total: Tensor) -> Tensor:
        """Return a sum of what `sum_rows` returned as one vector of all coordinates; linear."""
        return total


@dataclass(frozen=True)
class FlatClip(NormClipping):
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
            validate.positive(norm=self.norm)

    def groups(self, names: Sequence[str]) -> list[int]:
        return [0] * len(names)

    def weights(self, squared_norms: Tensor) -> Tensor:
        from taut.training._tensors.numbers import positive_lengths

        if self.norm == math.inf:
            return squared_norms.new_ones(squared_norms.shape)
        return (self.norm / positive_lengths(squared_norms)).clamp_(max=1.0)

    def sensitivity(self, names: Sequence[str], sizes: Sequence[int]) -> SensitivitySet:
        return L2Ball(sum(sizes), self.norm)


@dataclass(frozen=True)
class NormalisedClip(NormClipping):
    """Scale every gradient g to g * norm / (|g| + stability): "automatic clipping".

    Short gradients grow to nearly the length of long ones, so that there is no norm to tune: twice
    the norm is the same as twice the learning rate.

    Args:
        norm: what no gradient reaches.
        stability: keeps gradients of examples that are already learnt short; above zero.

    **Guarantee**: as `FlatClip`: every scaled gradient is shorter than `norm` in l2 (Bu, Wang, Zha
    and Karypis 2023, equation 4.1).

    Example:
        >>> import torch
        >>> from taut.training import NormalisedClip
        >>> NormalisedClip(1.0, stability=0.01).weights(torch.tensor([[0.0, 1.0, 9801.0]]))
        tensor([[1.0000e+02, 9.9010e-01, 1.0100e-02]])
    """

    name = "normalised"

    norm: float
    stability: float = 0.01

    def __post_init__(self) -> None:
        validate.positive(norm=self.norm)
        validate.positive(stability=self.stability)

    def groups(self, names: Sequence[str]) -> list[int]:
        return [0] * len(names)

    def weights(self, squared_norms: Tensor) -> Tensor:
        return self.norm / (squared_norms.sqrt() + self.stability)

    def sensitivity(self, names: Sequence[str], sizes: Sequence[int]) -> SensitivitySet:
        return L2Ball(sum(sizes), self.norm)
