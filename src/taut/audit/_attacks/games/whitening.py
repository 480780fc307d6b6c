"""Whitening: coordinates in which noise is standard normal, and the canary in the first."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import TYPE_CHECKING

import numpy as np
from numpy.typing import NDArray

from taut.noise import Blocks

if TYPE_CHECKING:
    from taut.training import Plan

__all__ = ["Whitening"]


@dataclass(frozen=True)
class Whitening:
    """How a sum of clipped gradients is turned, for noise with several deviations.

    Attributes:
        direction: the longest gradient that is not clipped, of shape (dimension,): at its bound in
            every block at once, which is the worst case of noise that differs by block.
        matrix: matrix that turns a noisy sum into standard normal noise, with the canary in the
            first coordinate, of shape (dimension, dimension).
        shift: how far the canary moves that coordinate.
    """

    direction: NDArray[np.float64]
    matrix: NDArray[np.float64]
    shift: float

    @classmethod
    def of(cls, plan: Plan, sizes: Mapping[str, int]) -> Whitening | None:
        """Return the whitening of a plan whose clipping has blocks; None if it has none.

        Args:
            plan: plan with a clipping by groups of parameters, or in subspaces.
            sizes: number of weights of every parameter, in the order of a release.

        Raises:
            ValueError: for blocks whose entries are bounded too.
        """
        names, numbers = list(sizes), list(sizes.values())
        members = plan.clipping.sensitivity(names, numbers)
        if not isinstance(members, Blocks) or len(members.ranks) == 1:
            return None
        if plan.clipping.entry_blocks is not None or members.linf is not None:
            raise ValueError(
                f"plan must have the same noise in all coordinates where entries are bounded, got "
                f"clipping={plan.clipping!r}; audit a plan with a clipping by norms"
            )
        blocks = _blocks(plan, sizes, members)
        scales = np.asarray(plan.noise(sizes).scales, dtype=np.float64)  # type: ignore[attr-defined]
        direction = sum(
            bound * block[:, 0] for bound, block in zip(members.l2, blocks, strict=True)
        )
        white = np.concatenate(
            [block.T / scale for block, scale in zip(blocks, scales, strict=True)]
        )
        moved = white @ np.asarray(direction)
        return cls(
            np.asarray(direction), _turned_to_first(moved) @ white, float(np.linalg.norm(moved))
        )


def _blocks(plan: Plan, sizes: Mapping[str, int], members: Blocks) -> list[NDArray[np.float64]]:
    """Return orthonormal columns of every block, each of shape (dimension, rank)."""
    total = sum(sizes.values())
    if members.basis is None:
        owner = np.repeat(plan.clipping.groups(list(sizes)), list(sizes.values()))
        return [np.eye(total)[:, owner == group] for group in range(len(members.ranks))]
    inside = np.asarray(members.basis, dtype=np.float64)
    whole = np.linalg.qr(np.column_stack([inside, np.eye(total)]))[0][:, :total]
    whole[:, : inside.shape[1]] = inside
    ends = np.cumsum(members.ranks)
    return [whole[:, end - rank : end] for rank, end in zip(members.ranks, ends, strict=True)]


def _turned_to_first(vector: NDArray[np.float64]) -> NDArray[np.float64]:
    """Return the reflection that takes a vector to the first axis (Householder)."""
    target = np.zeros_like(vector)
    target[0] = np.linalg.norm(vector)
    normal = vector - target
    square = float(normal @ normal)
    turned = np.eye(len(vector))
    return turned if square == 0 else turned - 2 * np.outer(normal, normal) / square
