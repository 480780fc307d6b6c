"""The sum of clipped gradients over the parts of a logical batch."""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING, TypeAlias

import torch
from torch import Tensor

from taut.training._tensors.numbers import in_full_precision, parts_of, vanishing

if TYPE_CHECKING:
    from taut.training._clipping.clipping import NormClipping, RowClipping
    from taut.training._clipping.quantile import QuantileClip
    from taut.training._gradients.layers.records import Record
    from taut.training._sampling.masks import Masks

__all__ = ["ClippedSum", "Layout", "SumOfRows", "VotingSum", "WeightedSum"]

Layout: TypeAlias = tuple[Sequence[Tensor], Sequence[int], float]
"""Parameters, the group of each, and the batch size that sums are divided by."""


class ClippedSum(ABC):
    """Adds up what examples contribute, divided by the expected batch size.

    Args:
        parameters: parameters of the model, in its order.
        groups: groups of every parameter.
        expected: the batch size that sums are divided by.

    **Guarantee**: an example whose gradient is not finite contributes zero, every other one a
    member of the sensitivity set of the clipping.
    """

    def __init__(
        self, parameters: Sequence[Tensor], groups: Sequence[int], expected: float
    ) -> None:
        self.parameters = list(parameters)
        self.group_of = dict(zip(self.parameters, groups, strict=True))
        self.expected = expected
        self.dropped = 0
        """Examples of this logical batch that contributed zero; not for publication."""

    @property
    def norm(self) -> float | None:
        """The bound of this logical batch, if it changes from one to the next; public."""
        return None

    @property
    def votes(self) -> Tensor | None:
        """What is counted beside the sum for the next bound, if it changes; not yet noisy."""
        return None

    def go_on_with(self, norm: float | None) -> None:  # noqa: B027 (a constant bound stays)
        """Clip the next logical batch to the bound of an earlier run, if bounds change.

        Args:
            norm: None after a run whose bound was constant: a bound that changes begins anew.
        """

    def move(self, votes: float) -> None:
        """Set the bound of the next logical batch, from noisy votes on the last one."""
        raise NotImplementedError(f"{type(self).__name__} has a constant bound")

    @property
    def device(self) -> torch.device:
        """Where sums are kept."""
        return self.parameters[0].device

    @property
    def dtype(self) -> torch.dtype:
        """Return float64 if a parameter has it, else float32, in which noise is added."""
        double = any(parameter.dtype == torch.float64 for parameter in self.parameters)
        return torch.float64 if double else torch.float32

    def add(self, records: dict[Tensor, Record], batch: int, scale: float = 1.0) -> None:
        """Clip the gradients of a physical batch, multiplied by `scale`, and add them.

        Records may be taken out of the dictionary on the way.
        """
        with torch.no_grad(), in_full_precision(self.device.type):
            self._add(records, batch, scale)

    def taken(self) -> list[Tensor]:
        """Return the sum for every parameter, and begin the next logical batch."""
        totals = [
            torch.zeros(parameter.shape, dtype=self.dtype, device=parameter.device)
            if total is None
            else total
            for parameter, total in zip(self.parameters, self._totals(), strict=True)
        ]
        self.clear()
        return totals

    def restore(self, gradients: Sequence[Tensor]) -> None:  # noqa: B027 (most are gradients)
        """Make gradients of the noisy sum that was taken last, in place.

        Args:
            gradients: what `taken` returned with noise, one for every parameter in their order.
        """

    @property
    def is_empty(self) -> bool:
        """Whether no example was added to this logical batch."""
        return all(total is None for total in self._totals())

    def clear(self) -> None:
        """Forget what was added, as if no example had been seen."""
        self.dropped = 0
        self._forget()

    @abstractmethod
    def _add(self, records: dict[Tensor, Record], batch: int, scale: float) -> None: ...

    @abstractmethod
    def _totals(self) -> list[Tensor | None]: ...

    @abstractmethod
    def _forget(self) -> None: ...


class WeightedSum(ClippedSum):
    """For clipping by norms: gradients stay factors, and are weighted in their sum."""

    def __init__(
        self,
        clipping: NormClipping,
        parameters: Sequence[Tensor],
        groups: Sequence[int],
        expected: float,
    ) -> None:
        super().__init__(parameters, groups, expected)
        self._clipping = clipping
        self._sums: dict[Tensor, Tensor] = {}
        double = all(parameter.dtype == torch.float64 for parameter in self.parameters)
        numbers = sum(parameter.numel() for parameter in self.parameters)
        self._vanishing = vanishing(torch.float64 if double else torch.float32, numbers)

    def _add(self, records: dict[Tensor, Record], batch: int, scale: float) -> None:
        squares = self._squares(records, batch, scale)
        weights = self._clipping.weights(squares).mul_(scale / self.expected)
        for parameter in list(records):
            # Factors are let go as sums come: the two together would set the peak of memory.
            part = records.pop(parameter).weighted_sum(weights[self.group_of[parameter]])
            if parameter in self._sums:
                self._sums[parameter].add_(part)
            else:
                self._sums[parameter] = part

    def _squares(self, records: Mapping[Tensor, Record], batch: int, scale: float) -> Tensor:
        """Return squared norms, of shape (groups, batch): zero for examples that are dropped."""
        norms: list[list[Tensor]] = [[] for _ in range(max(self.group_of.values()) + 1)]
        for parameter, record in records.items():
            norms[self.group_of[parameter]].append(record.squared_norms())
        empty = torch.zeros(batch, dtype=self.dtype, device=self.device)
        squares = torch.stack([torch.stack(group).sum(0) if group else empty for group in norms])
        # Squares of short entries vanish: none may be all that a tiny bound would have cut.
        squares += self._vanishing
        squares *= scale**2
        if not bool(squares.sum().isfinite()):
            lost = ~squares.isfinite().all(0)
            self.dropped += int(lost.sum())
            squares[:, lost] = 0.0
            for record in records.values():
                record.drop(lost)
        return squares

    def _totals(self) -> list[Tensor | None]:
        return [self._sums.get(parameter) for parameter in self.parameters]

    def _forget(self) -> None:
        self._sums.clear()


class VotingSum(WeightedSum):
    """For a bound that follows a quantile: every example also votes on the bound.

    A gradient that is no longer than the bound counts one half, a longer one minus one half, and
    one that is not finite nothing.
    """

    def __init__(
        self,
        clipping: QuantileClip,
        parameters: Sequence[Tensor],
        groups: Sequence[int],
        expected: float,
    ) -> None:
        super().__init__(clipping, parameters, groups, expected)
        self._quantile = clipping
        self._norm = clipping.norm
        self._votes = self._no_votes()

    @property
    def norm(self) -> float:
        """The bound of this logical batch."""
        return self._norm

    def go_on_with(self, norm: float | None) -> None:
        if norm is not None:
            self._norm, self._clipping = norm, self._quantile.at(norm)

    @property
    def votes(self) -> Tensor:
        """The votes of this logical batch, which are as private as gradients."""
        return self._votes

    def move(self, votes: float) -> None:
        self.go_on_with(self._quantile.moved(self.norm, votes))

    def _squares(self, records: Mapping[Tensor, Record], batch: int, scale: float) -> Tensor:
        before = self.dropped
        squares = super()._squares(records, batch, scale)
        lost = self.dropped - before
        short = (squares[0] <= self.norm**2).sum()
        self._votes = self._votes + (short - lost) - 0.5 * (batch - lost)
        return squares

    def _forget(self) -> None:
        super()._forget()
        self._votes = self._no_votes()

    def _no_votes(self) -> Tensor:
        return torch.zeros((), dtype=self.dtype, device=self.device)


class SumOfRows(ClippedSum):
    """For clipping by coordinates: gradients are written out, part of a batch by part."""

    def __init__(
        self,
        clipping: RowClipping,
        parameters: Sequence[Tensor],
        groups: Sequence[int],
        expected: float,
        masks: Masks | None,
    ) -> None:
        super().__init__(parameters, groups, expected)
        self._clipping = clipping
        self._masks = masks
        # Coordinates are in the order of groups, and of parameters within a group.
        self._ordered = sorted(self.parameters, key=self.group_of.__getitem__)
        self._sum: Tensor | None = None

    def _add(self, records: dict[Tensor, Record], batch: int, scale: float) -> None:
        numbers = sum(parameter.numel() for parameter in self._ordered)
        for part in parts_of(batch, 4 * numbers, self._clipping.row_bytes):
            rows = torch.cat([records[parameter].rows(part) for parameter in self._ordered], 1)
            if scale != 1.0:  # every pass over the rows counts: they do not fit into the cache
                rows *= scale
            lost = ~torch.linalg.vector_norm(rows, dim=1).isfinite()
            if bool(lost.any()):
                self.dropped += int(lost.sum())
                rows[lost] = 0.0
            total = self._summed(rows).div_(self.expected)
            self._sum = total if self._sum is None else self._sum.add_(total)

    def _summed(self, rows: Tensor) -> Tensor:
        if self._masks is None:
            return self._clipping.sum_rows(rows)
        return self._clipping.sum_rows(rows, self._masks)

    def _totals(self) -> list[Tensor | None]:
        if self._sum is None:
            return [None] * len(self.parameters)
        whole = self._clipping.restored(self._sum)
        pieces = whole.split([parameter.numel() for parameter in self._ordered])
        found = {
            parameter: piece.view(parameter.shape)
            for parameter, piece in zip(self._ordered, pieces, strict=True)
        }
        return [found[parameter] for parameter in self.parameters]

    def _forget(self) -> None:
        self._sum = None
