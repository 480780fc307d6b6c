"""The private gradient: examples clipped and summed, noise added once, divided by a constant."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence

import torch
from torch import Tensor, nn

from taut.noise import RandomSource, default_generator
from taut.training._clipping import Clipping
from taut.training._normal import fill_normal
from taut.training._records import OuterProduct, Record, squared_lengths
from taut.training._tape import Tape

__all__ = ["PrivateGradient"]

_ROUNDING = 1 + 1e-4  # norms and sums in float32 are off by less


class PrivateGradient:
    """Turns the examples of one logical batch into the `grad` of every trainable parameter.

    Args:
        model: what is trained.
        clipping: what is done to one example's gradient.
        scales: the standard deviation of the noise in every group of the clipping.
        expected_batch_size: what the noisy sum is divided by, whatever the batch holds.
        generator: where noise comes from, by default the secure generator.

    `absorb` takes one physical batch after the other; `finish` adds the noise and sets `grad`.

    **Guarantee**: `finish` releases a sum over examples in the sensitivity set of the clipping plus
    independent normal noise; the realised batch size enters nowhere else. An example whose gradient
    is not finite contributes zero.
    """

    def __init__(
        self,
        model: nn.Module,
        clipping: Clipping,
        *,
        scales: Sequence[float],
        expected_batch_size: float,
        generator: RandomSource | None = None,
    ) -> None:
        named = [(name, p) for name, p in model.named_parameters() if p.requires_grad]
        self.parameters: list[Tensor] = [parameter for _, parameter in named]
        self.clipping = clipping
        groups = clipping.groups([name for name, _ in named])
        self._group_of: dict[Tensor, int] = dict(zip(self.parameters, groups, strict=True))
        self._scales = list(scales)
        self._expected = expected_batch_size
        self._generator = default_generator() if generator is None else generator
        self._totals: dict[Tensor, Tensor] = {}
        self.tape = Tape(model)
        self.dropped = 0
        """Examples of this logical batch that contributed zero; not for publication."""

    def accumulate(self, losses: Callable[[], Tensor]) -> Tensor:
        """Run a forward pass that returns one loss per example, and absorb its gradients."""
        with self.tape.recording():
            values = losses()
        torch.autograd.backward(values.sum())
        self.absorb(len(values))
        return values.detach()

    def absorb(self, batch: int) -> None:
        """Clip what the tape holds of the last backward pass, and add it to the sum."""
        records = self.tape.records(batch)
        weights = self._weights(records, batch)
        for parameter, uses in records.items():
            weight = weights[self._group_of[parameter]]
            while uses:
                self._add(parameter, uses.pop().weighted_sum(weight))

    def finish(self) -> None:
        """Add noise to the sum, divide, and set the gradients; the next logical batch begins."""
        noise = self._noise()
        for parameter, part in zip(self.parameters, noise, strict=True):
            total = self._totals.pop(parameter, None)
            parameter.grad = part if total is None else part.add_(total)
        self.dropped = 0

    def _weights(self, records: Mapping[Tensor, list[Record]], batch: int) -> Tensor:
        """Return clipping weights over the expected batch size, of shape (groups, batch)."""
        first = self.parameters[0]
        squares = torch.zeros(len(self._scales), batch, device=first.device)
        for parameter, uses in records.items():
            squares[self._group_of[parameter]] += _squared_norms(uses)
        lost = ~squares.sum(0).isfinite()
        if lost.any():
            self.dropped += int(lost.sum())
            squares[:, lost] = 0.0
            for uses in records.values():
                for record in uses:
                    record.drop(lost)
        return self.clipping.weights(squares).div_(self._expected)

    def _add(self, parameter: Tensor, part: Tensor) -> None:
        if parameter in self._totals:
            self._totals[parameter].add_(part)
        else:
            self._totals[parameter] = part

    def _noise(self) -> list[Tensor]:
        """Return noise for every parameter, drawn for a whole group at once."""
        noise: dict[Tensor, Tensor] = {}
        for group, scale in enumerate(self._scales):
            members = [p for p in self.parameters if self._group_of[p] == group]
            first = members[0]
            flat = torch.zeros(sum(p.numel() for p in members), dtype=first.dtype)
            if scale > 0:
                fill_normal(flat, scale * _ROUNDING / self._expected, self._generator)
            parts = torch.split(flat.to(first.device), [p.numel() for p in members])
            noise |= {p: part.view(p.shape) for p, part in zip(members, parts, strict=True)}
        return [noise[p] for p in self.parameters]


def _squared_norms(uses: list[Record]) -> Tensor:
    """Return the squared norms of the sum of all uses of one parameter."""
    if len(uses) == 1:
        return uses[0].squared_norms()
    products = [use for use in uses if isinstance(use, OuterProduct)]
    if len(products) < len(uses):
        return squared_lengths(torch.stack([use.rows() for use in uses]).sum(0))
    total = torch.stack([use.squared_norms() for use in products]).sum(0)
    for i, one in enumerate(products):
        for other in products[:i]:
            total += 2 * one.inner(other)
    return total
