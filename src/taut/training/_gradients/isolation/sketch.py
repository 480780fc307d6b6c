"""Gradients of examples, each as a few numbers that change if it does.

The gradient of an example at a matrix is multiplied with random vectors from both sides. Its
factors are enough for that, so that a batch of long gradients is compared in little memory: the
square of such a number has the squared norm of the gradient as its mean, whatever the gradient.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass

import torch
from torch import Tensor

from taut.training._gradients.layers.records import OuterProduct, Record, Sum
from taut.training._tensors.numbers import parts_of

__all__ = ["Sketch"]

_NUMBERS = 4  # for each gradient; all of them miss nine tenths of a change once in 10 000 times
_SEED = 20_260_103  # any: sketches that are compared need the same vectors


@dataclass(frozen=True)
class Sketch:
    """What is kept of a batch.

    Attributes:
        values: values for every parameter, of shape (batch, numbers).
    """

    values: Mapping[Tensor, Tensor]

    @classmethod
    @torch.no_grad()
    def of(
        cls, records: Mapping[Tensor, Record], parameters: list[Tensor], scale: float = 1.0
    ) -> Sketch:
        """Return the sketch of what a pass has left.

        Args:
            records: records of the pass.
            parameters: parameters of the model; their order says which random vectors are theirs.
            scale: what gradients are multiplied with.
        """
        found = {}
        for i, parameter in enumerate(parameters):
            if parameter in records:
                found[parameter] = _projected(records[parameter], *_vectors(i, parameter)) * scale
        return cls(found)

    @classmethod
    def joined(cls, parts: Sequence[Sketch]) -> Sketch:
        """Return the sketch of a batch from those of its parts, in order."""
        return cls({p: torch.cat([part.values[p] for part in parts]) for p in parts[0].values})

    def differing(self, other: Sketch, mine: Tensor, theirs: Tensor) -> Tensor | None:
        """Return the parameter at which bits of some examples differ, None if there is none.

        Args:
            other: sketch of the same model.
            mine: the places of the examples here,
            theirs: rows to compare there.
        """
        if self.values.keys() != other.values.keys():
            return next(iter(self.values.keys() ^ other.values.keys()))
        for parameter, values in self.values.items():
            one, two = values[mine], other.values[parameter][theirs]
            if not bool(((one == two) | (one.isnan() & two.isnan())).all()):
                return parameter
        return None

    def distance(self, other: Sketch, mine: Tensor, theirs: Tensor) -> tuple[float, Tensor]:
        """Return by how much examples differ at most, relative to their gradients, and where.

        Gradients that are too short to matter beside the longest in single precision are measured
        as if they were as long as that.
        """
        shared = [p for p in self.values if p in other.values]
        missing = self.values.keys() ^ other.values.keys()
        if missing:
            return float("inf"), next(iter(missing))
        squares = {
            p: (self.values[p][mine] - other.values[p][theirs]).double().square().mean(1)
            for p in shared
        }
        own = torch.stack([self.values[p][mine].double().square().mean(1) for p in shared]).sum(0)
        whole = torch.stack([v.double().square().mean(1) for v in self.values.values()]).sum(0)
        longest = (
            whole[whole.isfinite()].amax() if bool(whole.isfinite().any()) else whole.new_ones(())
        )
        theirs_own = torch.stack(
            [other.values[p][theirs].double().square().mean(1) for p in shared]
        ).sum(0)
        lost = ~own.isfinite() & ~theirs_own.isfinite()  # both contribute nothing
        scale = own.clamp(min=float(longest) * 2.0**-48).clamp(min=torch.finfo(torch.float64).tiny)
        relative = torch.stack(
            [torch.where(lost, 0.0, (squares[p] / scale).nan_to_num(nan=torch.inf)) for p in shared]
        )
        worst = int(relative.amax(1).argmax())
        return float(relative.sum(0).amax().sqrt()), shared[worst]


def _vectors(index: int, parameter: Tensor) -> tuple[Tensor, Tensor]:
    bits = torch.Generator().manual_seed(_SEED + index)
    first = parameter.shape[0] if parameter.dim() else 1
    rest = parameter.numel() // max(first, 1)
    left, right = (
        torch.randn(n, _NUMBERS, generator=bits, dtype=torch.float64) for n in (first, rest)
    )
    if parameter.dim() < 2:
        right = torch.ones_like(right)
    return left, right


def _projected(record: Record, left: Tensor, right: Tensor) -> Tensor:
    if isinstance(record, Sum):
        first, *more = (_projected(use, left, right) for use in record.uses)
        return sum(more, start=first)
    if isinstance(record, OuterProduct):
        u, v = (x.to(record.right.device, record.right.dtype) for x in (left, right))
        if record.left.shape[-1:] == u.shape[:1] or record.is_sparse:
            on_left = u[record.left] if record.is_sparse else record.left @ u
            return (on_left * (record.right @ v)).sum(1)
    size = record.parameter.numel() * max(record.parameter.element_size(), 4)
    return torch.cat(
        [_of_rows(record.rows(part), left, right) for part in parts_of(record.batch, size)]
    )


def _of_rows(rows: Tensor, left: Tensor, right: Tensor) -> Tensor:
    u, v = (x.to(rows.device, rows.dtype) for x in (left, right))
    return ((rows.view(len(rows), len(u), len(v)) @ v) * u).sum(1)
