"""Convolutions whose kernels are standardised before use."""

from __future__ import annotations

import torch
from torch import Tensor, nn

__all__ = ["StandardisedConv2d", "standardise"]

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
        result: Tensor = self._conv_forward(input, standardise(self.weight), self.bias)
        return result


def standardise(weight: Tensor) -> Tensor:
    """Return the weight with every kernel of mean zero and length one."""
    flat = weight.flatten(1)
    centred = flat - flat.mean(1, keepdim=True)
    scale = torch.rsqrt(centred.square().sum(1, keepdim=True) + _TINY)
    return (centred * scale).view_as(weight)
