"""Clipping in subspaces that follow the weights: recomputed from public examples now and then."""

from __future__ import annotations

from abc import abstractmethod
from collections.abc import Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING

from taut._base import validate
from taut._base.public_vectors import Rows
from taut.errors import UnsoundConfiguration
from taut.noise import L2Ball
from taut.noise.geometry import Provenance
from taut.training._clipping.clipping import RowClipping
from taut.training._clipping.hybrid import HybridClip, check_public_examples

if TYPE_CHECKING:
    from torch import Tensor

__all__ = ["RefreshedClipping", "RefreshedHybridClip"]


class RefreshedClipping(RowClipping):
    """A clipping that is made anew of public gradients, every so many steps.

    It clips nothing itself: `PrivateTrainer(..., public=...)` asks it for the clipping of the
    steps to come. What the plan promises holds for every such clipping, since each has its noise at
    the plan's multiplier.
    """

    every: int
    """How many steps lie between two refreshes."""
    seed: int
    """Of everything that a refresh draws at random; it is no secret."""

    @abstractmethod
    def sensitivity(self, names: Sequence[str], sizes: Sequence[int]) -> L2Ball:
        """Return a ball that holds every clipped gradient, whatever the subspaces."""

    @abstractmethod
    def check_examples(self, count: int) -> None:
        """Refuse too few public examples."""

    @abstractmethod
    def refreshed(self, gradients: Rows, names: Sequence[str], sizes: Sequence[int]) -> RowClipping:
        """Return the clipping for the public gradients at some weights."""

    def clip_rows(self, rows: Tensor) -> Tensor:
        raise UnsoundConfiguration(
            f"clipping={self!r} has no subspaces before public examples are given: train with "
            "PrivateTrainer(..., public=(inputs, targets)), or make subspaces once, by "
            "public_subspaces(...) and HybridClip(...)"
        )


@dataclass(frozen=True)
class RefreshedHybridClip(RefreshedClipping):
    """Hybrid clipping whose subspaces and bounds follow the weights.

    Args:
        ranks: ranks of the subspaces; what they leave is one block more.
        norm: length of the longest gradient that is left. At every refresh it is split over the
            blocks in proportion to the mean length of public gradients in each, c_j = norm g_j /
            |g|.
        every: how many steps lie between two refreshes.
        importance: how much noise in a block counts, one each by default, that of the complement
            last; see `HybridClip`.
        iterations: number of rounds of the subspace iteration, for public examples that are many:
            more than directions times twice the iterations. Fewer are solved for all at once.
        seed: seed of its start. It need not be secret.

    Public examples at even places find the subspaces, those at odd places are measured: in
    directions fitted to the measured gradients themselves, nothing would seem to be left over.

    **Guarantee**: that of `HybridClip` at every step, at the plan's noise multiplier, for whoever
    sees all updates. A refresh looks at public examples and at weights that were already released,
    so it reveals nothing more (docs/theory/clipping.md). The promise needs examples that are
    public: not a part of the training set.

    Raises:
        ValueError: if ranks or importance do not fit, or public examples are too few: the even
            ones must be at least as many as the directions they are to find.

    Example:
        >>> import torch
        >>> from torch import nn
        >>> from torch.utils.data import TensorDataset
        >>> from taut.training import Plan, PrivateTrainer, RefreshedHybridClip
        >>> private = TensorDataset(torch.randn(200, 4), torch.randint(0, 2, (200,)))
        >>> public = torch.randn(40, 4), torch.randint(0, 2, (40,))
        >>> plan = Plan(
        ...     examples=200, batch_size=50, steps=8, epsilon=3, delta=1e-3,
        ...     clipping=RefreshedHybridClip([2], 1.0, every=4),
        ... )
        >>> trainer = PrivateTrainer(nn.Linear(4, 2), nn.CrossEntropyLoss(), plan, public=public)
        >>> trainer.fit(private).steps, trainer.refresh.count
        (8, 2)
    """

    name = "refreshed_hybrid"

    ranks: tuple[int, ...]
    norm: float
    every: int
    importance: tuple[float, ...] | None = None
    iterations: int = 5
    seed: int = 0

    def __post_init__(self) -> None:
        ranks = tuple(validate.positive_integer(rank=rank) for rank in self.ranks)
        if not ranks:
            raise ValueError("ranks must name at least one subspace, got none; try FlatClip(norm)")
        object.__setattr__(self, "ranks", ranks)
        validate.positive(norm=self.norm)
        validate.positive_integer(every=self.every)
        validate.positive_integer(iterations=self.iterations)
        validate.integer(seed=self.seed)
        if self.importance is not None:
            weights = tuple(validate.positive(importance=value) for value in self.importance)
            if len(weights) != len(ranks) + 1:
                raise ValueError(
                    f"importance must hold one number for each of {len(ranks)} subspaces and one "
                    f"for what they leave, got {len(weights)}"
                )
            object.__setattr__(self, "importance", weights)

    def sensitivity(self, names: Sequence[str], sizes: Sequence[int]) -> L2Ball:
        """Return what holds clipped gradients whatever the subspaces: the ball of `norm`."""
        return L2Ball(sum(sizes), self.norm)

    def check_examples(self, count: int) -> None:
        check_public_examples(count, self.ranks)

    def refreshed(self, gradients: Rows, names: Sequence[str], sizes: Sequence[int]) -> HybridClip:
        self.check_examples(len(gradients))
        dimension = sum(sizes)
        if sum(self.ranks) >= dimension:
            raise ValueError(
                f"ranks={self.ranks} must sum to less than the model's {dimension} trainable "
                "numbers"
            )
        return HybridClip.from_public(
            gradients,
            self.ranks,
            self.norm,
            provenance=Provenance.PUBLIC,
            importance=self.importance,
            iterations=self.iterations,
            seed=self.seed,
        )
