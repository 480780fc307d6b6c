"""Watches what a model keeps: parameters and buffers are to be the same after a pass."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager

import torch
from torch import Tensor, nn

from taut.errors import UnsoundConfiguration
from taut.training._gradients.layers.spectral_norm import settled_norms

__all__ = ["State"]

_INTEGERS = {1: torch.int8, 2: torch.int16, 4: torch.int32, 8: torch.int64}
"""Integers of as many bytes as a number has."""

_AT_ONCE = 2**17  # integers that are summed: a megabyte, which stays in the cache
_FACTOR = 2_654_435_769  # 2^32 over the golden ratio: multiples of it spread over all bits


class State:
    """The parameters and buffers of a model, frozen ones included.

    Args:
        model: model whose they are.
    """

    def __init__(self, model: nn.Module) -> None:
        self._model = model
        self._modules = list(model.named_modules())
        self._were_values_compared = False

    @contextmanager
    def unchanged(self) -> Iterator[None]:
        """Refuse, at the end, a pass after which something is another tensor or was written to.

        The first pass compares all values, since what is written through `data` leaves no trace.
        """
        with settled_norms(self._model):
            before = dict(self._tensors())
            versions = {place: tensor._version for place, tensor in before.items()}
            whole = not self._were_values_compared
            sums = {place: _checksum(tensor) for place, tensor in before.items()} if whole else {}
            yield
            after = dict(self._tensors())
            for place in before | after:
                tensor = after.get(place)
                if tensor is None or tensor is not before.get(place):
                    raise _changed(place)
                if tensor._version != versions[place]:
                    raise _changed(place)
                if whole and _checksum(tensor) != sums[place]:
                    raise _changed(place)
            self._were_values_compared = True

    def _tensors(self) -> Iterator[tuple[tuple[str, str], Tensor]]:
        for module_name, module in self._modules:
            for kept in (module._parameters, module._buffers):
                for name, tensor in kept.items():
                    if tensor is not None:
                        yield (module_name, name), tensor


def _checksum(tensor: Tensor) -> int:
    """Return a number that is another one if bits of a tensor are; a copy would take its memory.

    Numbers count as integers with odd factors, modulo 2^64: one that is changed always shows, and
    several miss each other.
    """
    values = tensor.detach()
    if values.layout != torch.strided:
        values = values.to_dense()
    size = values.numel() * values.element_size()
    width = 8 if size % 8 == 0 else min(values.element_size(), 8)
    bits = values.contiguous().view(-1).view(_INTEGERS[width])
    factors = 2 * torch.arange(min(len(bits), _AT_ONCE), device=bits.device) * _FACTOR + 1
    total = 0
    for part in bits.split(_AT_ONCE):
        total = total * _FACTOR + int((part.long() * factors[: len(part)]).sum())
    return total % 2**64


def _changed(place: tuple[str, str]) -> UnsoundConfiguration:
    name = ".".join(part for part in place if part)
    instead = ""
    if place[1].endswith(("_u", "_v")):  # names that torch's older function gives
        instead = " (torch.nn.utils.parametrizations.spectral_norm is taken, the older one is not)"
    return UnsoundConfiguration(
        f"the forward pass changed {name!r}: what a model remembers of examples is not covered by "
        f"the noise; remove the layer that does it{instead}, or, if it is no more than a table "
        "made at the first call, call the model once before training"
    )
