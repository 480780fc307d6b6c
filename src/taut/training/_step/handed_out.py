"""Whether a model was called with the examples that the loader handed out."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import torch
from torch import Tensor
from torch.utils import _pytree as pytree

from taut.errors import UnsoundConfiguration

__all__ = ["check_handed_out"]


@torch.no_grad()
def check_handed_out(inputs: Any, batch: Any, size: int) -> None:
    """Refuse inputs that were made of a batch in a way that cannot be tested.

    Args:
        inputs: all arguments of the model.
        batch: what the loader handed out.
        size: how many examples that is.

    Inputs are tensors of the batch, in another shape or type, or integers that follow from those
    of a batch one by one, as masks do, or that are the same for all examples, as positions are.
    """
    given = [x for x in pytree.tree_leaves(inputs) if isinstance(x, Tensor) and x.dim()]
    plain = dict(batch) if isinstance(batch, Mapping) else batch
    known = [x for x in pytree.tree_leaves(plain) if isinstance(x, Tensor) and x.dim()]
    for value in given:
        if len(value) != size:
            raise UnsoundConfiguration(
                f"the model was called with {len(value)} examples where the loader handed out "
                f"{size}: call it with the batch, with examples along the first axis"
            )
        if not any(_is_same(value, handed) for handed in known):
            if not value.is_floating_point() and _follows(value, known):
                continue
            raise UnsoundConfiguration(
                "the model was called with something else than the loader handed out, and what "
                "was done to the examples in between cannot be tested: mixing them, or scaling by "
                "a statistic of the batch, would let one into the gradients of others. Do it in "
                "the dataset or collate_fn, which are tested, or inside of the module; or train "
                "with unchecked_isolation=True, which the ledger repeats"
            )


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
