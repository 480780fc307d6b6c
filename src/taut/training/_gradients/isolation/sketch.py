"""Gradients of examples, each as a few numbers that change if it does.

The gradient of an example at a matrix is multiplied with random vectors from both sides. Its
factors are enough for that, so that a batch of long gradients is compared in little memory: the
square of such a number has the squared norm of the gradient as its mean, whatever the gradient.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass

import numpy as np
import torch
from torch import Tensor

from taut.training._gradients.layers.records import OuterProduct, Record, Rows, Sum
from taut.training._tensors.numbers import parts_of

__all__ = ["Sketch", "Sketching"]

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
        for parameter, one, two in self._pairs(other, mine, theirs):
            if not bool(((one == two) | (one.isnan() & two.isnan())).all()):
                return parameter
        return None

    def distance(self, other: Sketch, mine: Tensor, theirs: Tensor) -> tuple[float, Tensor]:
        """Return by how much examples differ at most, relative to their gradients, and where.

        Gradients that are too short to matter beside the longest in single precision are measured
        as if they were as long as that.
        """
        pairs = self._pairs(other, mine, theirs)
        squares = torch.stack([(one - two).double().square().mean(1) for _, one, two in pairs])
        own, other_own = (
            torch.stack([pair[side].double().square().mean(1) for pair in pairs]).sum(0)
            for side in (1, 2)
        )
        whole = torch.stack([v.double().square().mean(1) for v in self.values.values()]).sum(0)
        longest = (
            whole[whole.isfinite()].amax() if bool(whole.isfinite().any()) else whole.new_ones(())
        )
        lost = ~own.isfinite() & ~other_own.isfinite()  # both contribute nothing
        scale = own.clamp(min=float(longest) * 2.0**-48).clamp(min=torch.finfo(torch.float64).tiny)
        relative = torch.where(lost, 0.0, (squares / scale).nan_to_num(nan=torch.inf))
        worst = int(relative.amax(1).argmax())
        return float(relative.sum(0).amax().sqrt()), pairs[worst][0]

    def _pairs(
        self, other: Sketch, mine: Tensor, theirs: Tensor
    ) -> list[tuple[Tensor, Tensor, Tensor]]:
        """Return values here and there for every parameter; none is as good as zero."""
        return [
            (parameter, _rows(self.values, parameter, mine), _rows(other.values, parameter, theirs))
            for parameter in dict.fromkeys([*self.values, *other.values])
        ]


class Sketching:
    """Makes sketches of records as layers leave them, so that a pass need not keep any.

    Args:
        parameters: parameters of the model, in the order of `Sketch.of`.
        keep: whether records are wanted beside their sketch.
    """

    def __init__(self, parameters: Sequence[Tensor], *, keep: bool) -> None:
        self._places = {parameter: i for i, parameter in enumerate(parameters)}
        self._keep = keep
        self._found: dict[Tensor, Tensor] = {}

    @torch.no_grad()
    def __call__(self, record: Record) -> Record:
        """Return the record, or what stands for it with no more than the number of examples."""
        parameter = record.parameter
        values = _projected(record, *_vectors(self._places[parameter], parameter))
        known = self._found.get(parameter)
        if known is None or len(known) != len(values):  # what has another length is refused later
            self._found[parameter] = values
        else:
            self._found[parameter] = known + values
        return record if self._keep else Rows(parameter, values.new_zeros(record.batch, 0))

    def clear(self) -> None:
        """Forget what was seen."""
        self._found = {}

    def taken(self, scale: float = 1.0) -> Sketch:
        """Return the sketch of all that was seen, in the order of parameters."""
        return Sketch({p: self._found[p] * scale for p in self._places if p in self._found})


def _rows(values: Mapping[Tensor, Tensor], parameter: Tensor, places: Tensor) -> Tensor:
    if parameter in values:
        return values[parameter][places]
    like = next(iter(values.values()))
    return like.new_zeros(len(places), _NUMBERS)


def _vectors(index: int, parameter: Tensor) -> tuple[Tensor, Tensor]:
    # From NumPy, as torch draws the same number again and again within `ConstantDraws`: such a
    # vector is orthogonal to gradients of a softmax, whose entries sum to zero.
    bits = np.random.default_rng(_SEED + index)
    first = parameter.shape[0] if parameter.dim() else 1
    rest = parameter.numel() // max(first, 1)
    left, right = (torch.from_numpy(bits.standard_normal((n, _NUMBERS))) for n in (first, rest))
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
