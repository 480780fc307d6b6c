"""Company for examples: batches in which some stay where they are, and the others are replaced.

What mixes examples may do so on a coincidence alone: where two share a key, where a value passes a
threshold, where one is the largest. So others are made to share keys with those that stay, to be
louder than all of them, silent, or too large for their type.
"""

from __future__ import annotations

import math
import secrets
from dataclasses import dataclass
from typing import Any, Literal, TypeAlias

import torch
from torch import Tensor
from torch.utils import _pytree as pytree

__all__ = [
    "COMPANIES",
    "COPIES",
    "LOUD",
    "PLAIN",
    "Company",
    "Everyone",
    "everyone",
    "half_of",
    "is_other",
    "rows_of",
    "some_of",
]

Integers: TypeAlias = Literal["copied", "least", "largest"]


@dataclass(frozen=True)
class Company:
    """How examples that do not stay are replaced, each by one that stays, which is then changed.

    Args:
        factors: what floats are multiplied with, one row after the other.
        integers: whether keys, tokens and labels are those of the example that stays, or the least
            or the largest of the batch.
        shared: columns whose values are left as they are, so that two examples share a key and
            differ in what belongs to it: every second one, from the first or from the second on, or
            one half of all of them, since keys may be several columns side by side. Columns are
            counted through all tensors of a batch; halves are those of each tensor.
    """

    factors: tuple[float, ...]
    integers: Integers = "copied"
    shared: Literal["none", "even", "odd", "first", "last"] = "none"

    def of(self, values: Any, stays: Tensor, *, scaled: bool = True) -> Any:
        """Return values with other examples in the place of those that do not stay.

        Args:
            values: inputs or targets, in whatever structure.
            stays: mask of the rows that stay, of shape (batch,).
            scaled: whether floats are multiplied, so that they are like none of the batch.
        """
        batch = len(stays)
        kept, gone = stays.nonzero()[:, 0], (~stays).nonzero()[:, 0]
        order, factors = torch.arange(batch), torch.ones(batch, dtype=torch.float64)
        order[gone] = kept[torch.arange(len(gone)) % len(kept)]
        given = torch.tensor(self.factors, dtype=torch.float64)
        factors[gone] = given[torch.arange(len(gone)) % len(given)]
        columns = 0

        def other(value: Any) -> Any:
            nonlocal columns
            if isinstance(value, list) and len(value) == batch:
                return [value[place] for place in order.tolist()]
            if not isinstance(value, Tensor) or not value.dim() or len(value) != batch:
                return value
            taken = value.detach()[order.to(value.device)]
            first, columns = columns, columns + value[0].numel()
            changed = self._changed(taken, stays.to(value.device), factors, scaled=scaled)
            return self._with_shared(taken, changed, first)

        return pytree.tree_map(other, values, is_leaf=_is_list_of_values)

    def _changed(self, taken: Tensor, stays: Tensor, factors: Tensor, *, scaled: bool) -> Tensor:
        axes = [1] * (taken.dim() - 1)
        if taken.is_floating_point() or taken.is_complex():
            others = _multiplied(taken, factors.view(-1, *axes)) if scaled else taken
        elif self.integers == "copied" or not taken.numel():
            return taken
        else:
            others = taken.amin() if self.integers == "least" else taken.amax()
        return torch.where(stays.view(-1, *axes), taken, others)

    def _with_shared(self, taken: Tensor, changed: Tensor, first: int) -> Tensor:
        if self.shared == "none":
            return changed
        count = taken[0].numel()
        columns = torch.arange(first, first + count, device=taken.device)
        if self.shared in ("even", "odd"):
            is_shared = columns % 2 == (0 if self.shared == "even" else 1)
        else:
            is_shared = (columns - first < (count + 1) // 2) == (self.shared == "first")
        return torch.where(is_shared.view(taken.shape[1:]), taken, changed)


def _multiplied(values: Tensor, factors: Tensor) -> Tensor:
    """Return products as far as the type goes: what overflows is to do so inside of the model."""
    if values.is_complex():
        return (values * factors.to(values.device)).to(values.dtype)
    largest = torch.finfo(values.dtype).max
    products = (values.double() * factors.to(values.device)).nan_to_num(nan=0.0)
    return products.clamp(-largest, largest).to(values.dtype)


PLAIN = Company((-2.0, 0.0, 8.0))
"""Means, deviations, largest and least values of floats all change; keys are those of others."""

LOUD = Company((4096.0, -4096.0), "largest")
"""Beyond thresholds of usual activations, and all of one label."""

COPIES = Company((1.0,))
"""Others are examples that the model has taken already."""

COMPANIES = (
    PLAIN,
    Company((0.0,), "least"),  # those that stay are the largest
    LOUD,
    Company((math.inf, -math.inf), "largest"),  # overflows in the model, and in its loss
    Company((-3.0, 5.0), "largest", "even"),  # equal keys, other values
    Company((-3.0, 5.0), "least", "odd"),
    Company((-3.0, 5.0), "largest", "first"),
    Company((-3.0, 5.0), "least", "last"),
    Company((1.0 + 2.0**-8, 1.0)),  # twins, and all but twins
)
"""Companies that are tried one after the other; the first changes what most code looks at."""


@dataclass(frozen=True)
class Everyone:
    """Companies at the same time: examples that do not stay take turns among them.

    What mixes examples on a coincidence finds it with any of them. One pass stands for many where
    passes are dear.

    Args:
        companies: companies that take turns.
        begin: number of the first in turn; few examples do not meet all, so it is drawn, once for
            all passes that are compared.
    """

    companies: tuple[Company, ...]
    begin: int = 0

    def of(self, values: Any, stays: Tensor, *, scaled: bool = True) -> Any:
        """Return values with others of every company; as `Company.of` does for one."""
        batch, count = len(stays), len(self.companies)
        gone = (~stays).nonzero()[:, 0]
        whose = torch.zeros(batch, dtype=torch.long)
        whose[gone] = (torch.arange(len(gone)) + self.begin) % count
        found = [company.of(values, stays, scaled=scaled) for company in self.companies]

        def chosen(*given: Any) -> Any:
            if isinstance(given[0], list) and len(given[0]) == batch:
                return [given[who][place] for place, who in enumerate(whose.tolist())]
            if not isinstance(given[0], Tensor) or not given[0].dim() or len(given[0]) != batch:
                return given[0]
            return torch.stack([given[who][place] for place, who in enumerate(whose.tolist())])

        return pytree.tree_map(chosen, *found, is_leaf=_is_list_of_values)


def everyone() -> Everyone:
    """Return all companies at once, in turns that begin with any of them."""
    return Everyone(COMPANIES, secrets.randbelow(len(COMPANIES)))


def half_of(batch: int) -> Tensor:
    """Return whether each example stays: every second one of them, in a secret random order."""
    stays = torch.zeros(batch, dtype=torch.bool)
    stays[some_of(batch, (batch + 1) // 2)] = True
    return stays


def some_of(batch: int, count: int) -> Tensor:
    """Return the places of some examples, drawn in secret."""
    return torch.tensor(secrets.SystemRandom().sample(range(batch), count))


def is_other(one: Any, two: Any) -> bool:
    """Whether two batches of one form differ."""
    pairs = zip(pytree.tree_leaves(one), pytree.tree_leaves(two), strict=True)
    return any(
        not torch.equal(a, b) for a, b in pairs if isinstance(a, Tensor) and isinstance(b, Tensor)
    )


def rows_of(values: Any, places: Tensor, batch: int) -> Any:
    """Return some examples of a batch, in whatever structure."""

    def taken(value: Any) -> Any:
        if isinstance(value, list) and len(value) == batch:
            return [value[place] for place in places.tolist()]
        is_many = isinstance(value, Tensor) and value.dim() > 0 and len(value) == batch
        return value[places.to(value.device)] if is_many else value

    return pytree.tree_map(taken, values, is_leaf=_is_list_of_values)


def _is_list_of_values(value: Any) -> bool:
    leaves = pytree.tree_leaves(value) if isinstance(value, list) else [torch.empty(0)]
    return not any(isinstance(leaf, Tensor) for leaf in leaves)
