"""Convolutions whose kernels are standardised before use, and their per-example gradients."""

from __future__ import annotations

import torch
from torch import Tensor, nn

from taut.training._gradients.layers.records import Record, Rows
from taut.training._tensors.numbers import ALL, parts_of, squared_lengths

__all__ = ["Standardised", "StandardisedConv2d"]

_TINY = 1e-10


class StandardisedConv2d(nn.Conv2d):
    """A convolution whose kernels have mean zero and length one.

    Weight standardisation (Qiao et al. 2019), which replaces what batch normalisation does for
    the weights and mixes no examples; De et al. (2022) train with it under privacy.

    Example:
        >>> import torch
        >>> from taut.training.models import StandardisedConv2d
        >>> StandardisedConv2d(3, 8, 3, padding=1)(torch.zeros(2, 3, 5, 5)).shape
        torch.Size([2, 8, 5, 5])
    """

    def forward(self, input: Tensor) -> Tensor:  # noqa: A002 (torch's own name)
        """Return the convolution with the standardised kernels."""
        result: Tensor = self._conv_forward(input, _standardise(self.weight)[0], self.bias)
        return result


class Standardised(Record):
    """Gradients of a weight from those of its standardised kernels, a linear map of them.

    Args:
        inner: the gradients of the standardised kernels, with the weight as parameter.
    """

    def __init__(self, inner: Record) -> None:
        super().__init__(inner.parameter, inner.batch)
        self._inner = inner
        self._kernels, self._scales = _standardise(inner.parameter.detach())

    def cheapest(self) -> Record:
        self._inner = self._inner.cheapest()
        if isinstance(self._inner, Rows):
            return Rows(self.parameter, self.rows())
        return self

    def rows(self, part: slice = ALL) -> Tensor:
        return self._pulled_back(self._inner.rows(part)).flatten(1)

    def squared_norms(self) -> Tensor:
        parts = parts_of(self.batch, self.parameter.numel() * self.parameter.element_size())
        return torch.cat([squared_lengths(self.rows(part)) for part in parts])

    def weighted_sum(self, weights: Tensor) -> Tensor:
        return self._pulled_back(self._inner.weighted_sum(weights)).view(self.parameter.shape)

    def folded(self, copies: int) -> Record:
        return Standardised(self._inner.folded(copies))

    def drop(self, examples: Tensor) -> None:
        self._inner.drop(examples)

    def _pulled_back(self, grads: Tensor) -> Tensor:
        """Return the gradients before centring and scaling, of shape (..., kernels, fan-in)."""
        kernels = self._kernels.flatten(1)
        grads = grads.reshape(-1, *kernels.shape)
        along = (grads * kernels).sum(-1, keepdim=True)
        centred = torch.addcmul(grads, kernels, along, value=-1).mul_(self._scales)
        return centred.sub_(centred.mean(-1, keepdim=True))


def _standardise(weight: Tensor) -> tuple[Tensor, Tensor]:
    """Return kernels of mean zero and length one, and what each was multiplied with."""
    flat = weight.flatten(1)
    centred = flat - flat.mean(1, keepdim=True)
    scales = torch.rsqrt(centred.square().sum(1, keepdim=True) + _TINY)
    return (centred * scales).view_as(weight), scales
