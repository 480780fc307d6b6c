"""Which arguments of a layer hold examples, and which are the same for all of them.

A tensor with as many rows as the batch has examples need not be one of examples: a table of
positions may have that length by chance. Batches of another size tell the two apart.
"""

from __future__ import annotations

from collections.abc import Sequence

from torch import Tensor

from taut.errors import UnsoundConfiguration

__all__ = ["Arguments"]


class Arguments:
    """What batches of different sizes have shown of the arguments at one place of a model.

    Args:
        name: of the layer, for messages.
    """

    def __init__(self, name: str) -> None:
        self._name = name
        self._first: dict[int, int] = {}
        self._holds_examples: dict[int, bool] = {}

    def observe(self, leaves: Sequence[object], batch: int) -> None:
        """Take note of a call with so many examples."""
        for i, leaf in enumerate(leaves):
            if not _has_rows(leaf, batch):
                self._holds_examples[i] = False
            elif self._first.setdefault(i, batch) != batch:
                self._holds_examples.setdefault(i, True)

    def of_examples(self, leaves: Sequence[object], batch: int) -> list[bool]:
        """Return which arguments are to be taken apart by examples.

        Raises:
            UnsoundConfiguration: if several may be meant, and no batch of another size was seen.
        """
        rows = [i for i, leaf in enumerate(leaves) if _has_rows(leaf, batch)]
        unknown = [i for i in rows if i not in self._holds_examples]
        if batch > 1 and unknown and len({id(leaves[i]) for i in rows}) > 1:
            raise UnsoundConfiguration(
                f"layer {self._name!r} was given several tensors with {batch} rows, and it is not "
                "known which of them hold one row per example; call check(inputs) of the private "
                "gradient with two examples or more first, which tries another batch size"
            )
        chosen = {i for i in rows if self._holds_examples.get(i, True)}
        return [i in chosen for i in range(len(leaves))]


def _has_rows(leaf: object, batch: int) -> bool:
    return isinstance(leaf, Tensor) and leaf.dim() > 0 and len(leaf) == batch
