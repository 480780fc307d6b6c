"""Spectral norms of weights, which change vectors of their own in every forward pass.

The vectors depend on weights alone, and weights are already noisy. They are brought forward before
a pass, so that all passes over a batch, and those that are compared, see the same weight.
"""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from weakref import WeakKeyDictionary

import torch
from torch import nn
from torch.nn.utils.parametrizations import _SpectralNorm
from torch.nn.utils.parametrize import ParametrizationList

__all__ = ["settled_norms"]

_SETTLED: WeakKeyDictionary[nn.Module, int] = WeakKeyDictionary()
"""For which version of its weight a norm was last brought forward."""


@contextmanager
def settled_norms(model: nn.Module) -> Iterator[None]:
    """Bring the vectors of spectral norms forward once for every weight, and not inside.

    Args:
        model: model whose parametrisations are in training mode; others are left as they are.
    """
    found = [
        (norm, weight)
        for weight in model.modules()
        if isinstance(weight, ParametrizationList)
        for norm in weight
        if isinstance(norm, _SpectralNorm) and norm.training and len(weight) == 1
    ]
    for norm, weight in found:
        version = weight.original._version
        if weight.original.dim() > 1 and _SETTLED.get(norm) != version:
            with torch.no_grad():
                matrix = norm._reshape_weight_to_matrix(weight.original)
                norm._power_method(matrix, norm.n_power_iterations)
            _SETTLED[norm] = version
        norm.eval()
    try:
        yield
    finally:
        for norm, _ in found:
            norm.train()
