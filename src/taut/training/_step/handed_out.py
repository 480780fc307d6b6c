"""Whether a model was called with the examples that the loader handed out, as they were."""

from __future__ import annotations

import zlib
from collections.abc import Mapping
from typing import Any

import torch
from torch import Tensor
from torch.utils import _pytree as pytree

from taut.errors import UnsoundConfiguration

__all__ = ["HandedOut", "Numbers"]

_INSTEAD = (
    "mixing them, or scaling by a statistic of the batch, would let one into the gradients of "
    "others. Do it in the dataset or collate_fn, which are tested, or inside of the module; or "
    "train with unchecked_isolation=True, which the ledger repeats"
)


class HandedOut:
    """A batch that the loader has handed out.

    Args:
        batch: what it is.
        size: how many examples that is.
    """

    def __init__(self, batch: Any, size: int) -> None:
        self.batch, self.size = batch, size
        plain = dict(batch) if isinstance(batch, Mapping) else batch
        leaves = [x for x in pytree.tree_leaves(plain) if isinstance(x, Tensor) and x.dim()]
        self._leaves = leaves
        self._marks = [_mark(leaf) for leaf in leaves]

    def check_unchanged(self, inputs: Any = ()) -> None:
        """Refuse a batch that something was written into, by torch or by numpy.

        Args:
            inputs: what the model was called with, and may have written to itself.
        """
        own = {id(x) for x in pytree.tree_leaves(inputs)}
        for leaf, mark in zip(self._leaves, self._marks, strict=True):
            if id(leaf) not in own and _mark(leaf) != mark:
                raise UnsoundConfiguration(
                    "the batch was changed in place after the loader had handed it out, and what "
                    f"was done to its examples cannot be tested: {_INSTEAD}"
                )

    @torch.no_grad()
    def check_inputs(self, inputs: Any) -> None:
        """Refuse inputs that were made of a batch in a way that cannot be tested.

        Args:
            inputs: all arguments of the model, before it was called.

        Inputs are tensors of the batch, in another shape or type, or integers that follow from
        those of a batch one by one, as masks do, or that are the same for all examples, as
        positions are.
        """
        given = [x for x in pytree.tree_leaves(inputs) if isinstance(x, Tensor) and x.dim()]
        for value in given:
            if len(value) != self.size:
                raise UnsoundConfiguration(
                    f"the model was called with {len(value)} examples where the loader handed out "
                    f"{self.size}: call it with the batch, with examples along the first axis"
                )
            if not any(_is_same(value, handed) for handed in self._leaves):
                if not value.is_floating_point() and _follows(value, self._leaves):
                    continue
                raise UnsoundConfiguration(
                    "the model was called with something else than the loader handed out, and what "
                    f"was done to the examples in between cannot be tested: {_INSTEAD}"
                )


class Numbers:
    """Numbers that a model is called with beside examples: the same in every step."""

    def __init__(self) -> None:
        self._known: list[float] | None = None

    def check(self, inputs: Any) -> None:
        """Refuse numbers that may follow from the batch.

        Args:
            inputs: all arguments of the model.
        """
        leaves = pytree.tree_leaves(inputs)
        if any(isinstance(x, Tensor) and not x.dim() and x.is_floating_point() for x in leaves):
            raise UnsoundConfiguration(
                "the model was called with a tensor of one number beside the examples, which may "
                "be a statistic of theirs: compute it inside of the module, where it is tested, or "
                "pass a float that is fixed in advance"
            )
        found = [x for x in leaves if isinstance(x, float)]
        known, self._known = self._known, found
        if known is not None and found != known:
            raise UnsoundConfiguration(
                "the model was called with another number than in the step before, and whether it "
                "follows from examples cannot be tested: compute it inside of the module; one that "
                "follows a schedule fixed in advance is an attribute to set on the module"
            )


@torch.no_grad()
def _mark(tensor: Tensor) -> tuple[int, float]:
    """Return what changes if something is written to a tensor.

    Torch counts what is written by itself. What numpy writes moves the length of floats, unless it
    does no more than move or turn them, and the checksum of labels and tokens.
    """
    if tensor.device.type != "cpu" or type(tensor) is not Tensor:
        return tensor._version, 0.0
    if tensor.element_size() > 1 and (tensor.is_floating_point() or tensor.is_complex()):
        return tensor._version, float(torch.linalg.vector_norm(tensor).nan_to_num())
    return tensor._version, zlib.crc32(tensor.contiguous().view(torch.uint8).numpy().data)


def _is_same(value: Tensor, handed: Tensor) -> bool:
    if value is handed:
        return True
    if value.numel() != handed.numel() or len(value) != len(handed):
        return False
    there = handed.to(value.device)
    if value.shape == there.shape:
        return torch.equal(value, there.to(value.dtype))
    if torch.equal(value.reshape(-1), there.to(value.dtype).reshape(-1)):
        return True
    # The same values of every example in another order: axes that changed places.
    one, two = (x.reshape(len(x), -1).sort(1).values for x in (value, there.to(value.dtype)))
    return torch.equal(one, two)


def _follows(value: Tensor, known: list[Tensor]) -> bool:
    if torch.equal(value, value[:1].expand_as(value)):
        return True
    for handed in known:
        if handed.is_floating_point() or handed.shape != value.shape:
            continue
        # One value here for every value there.
        there = handed.to(value.device).reshape(-1).long()
        pairs = torch.stack([there, value.reshape(-1).long()]).unique(dim=1)
        if pairs.shape[1] == len(there.unique()):
            return True
    return False
