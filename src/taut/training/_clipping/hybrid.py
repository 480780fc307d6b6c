"""Hybrid clipping: gradients are clipped in public subspaces, and in what these leave."""

from __future__ import annotations

import hashlib
import math
import os
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from functools import cached_property
from typing import TYPE_CHECKING, Any, Self

import numpy as np
from numpy.typing import ArrayLike

from taut._base import validate
from taut.errors import UnsoundConfiguration
from taut.noise import Blocks, optimal_gaussian
from taut.noise.geometry import Provenance, Subspaces, public_subspaces
from taut.training._clipping.clipping import EntryBlock, RowClipping
from taut.training._clipping.subspace_files import (
    from_json,
    read_subspaces,
    to_json,
    write_subspaces,
)
from taut.training._noise.basis import Basis, BasisNoise

if TYPE_CHECKING:
    from torch import Tensor

    from taut.training._sampling.masks import Masks
    from taut.training._tensors.subspace_rows import SubspaceRows

__all__ = ["HybridClip", "check_public_examples"]

_CUT_AT = 3.0  # deviations of the entries of a random direction
_LEAST = 0.05  # of the longest block's length: below, rounding would ask for larger bounds
_LEAK_IN, _LEAK_OUT, _ALLOWED = 1e-5, 1e-6, 5e-5  # see _check_resolution


@dataclass(frozen=True, init=False, eq=False, repr=False)
class HybridClip(RowClipping):
    """Clip the parts of a gradient in public subspaces, and what they leave, each to its bound.

    Args:
        subspaces: subspaces of as many dimensions as the model has trainable parameters, in the
            order of `model.named_parameters()`; or the path of a file with some, see `saved`.
        bounds: the largest l2 norm in every block of the subspaces; that of the complement is last.
        importance: how much noise in a block counts, one each by default.
        entry_bounds: the largest magnitude of a single coordinate in every block, for steps that
            sample coordinates (`TwiceSampling`). In the subspaces these are coordinates in a basis
            that was turned at random, from a public seed, since a few principal directions hold
            nearly everything; in the complement they are those of the model.
        sha256: the `digest` that the subspaces must have.

    Noise is of least total variance: sigma_j^2 = z^2 c_j A / sqrt(r_j) in each of the r_j
    directions of a block, A = sum c_j sqrt(r_j). It has more variance in small blocks, which hold
    most of the signal: weigh them by `importance`, and compare before choosing.

    With bounds on entries, the residual g - V a is clipped as a vector of all d coordinates, in l2
    and then entry by entry, masked, and summed; the sum and its noise are projected onto the
    complement at the end. It costs a second product with the basis.

    Otherwise the complement is never written out.

    **Guarantee**: adding or removing one example changes the sum of clipped gradients by a member
    of `taut.noise.Blocks` in the basis of the subspaces; sum c_j^2 / sigma_j^2 <= 1 / z^2 (Xiao,
    Wan and Devadas 2023, Theorem 4.6). It needs subspaces and bounds that do not depend on the
    private examples. Lengths outside of the subspaces are taken for larger than they are, by
    1e-3 of the squared length of the whole, so that rounding stays within what noise allows for
    (docs/theory/clipping.md).

    Raises:
        ValueError: if bounds or dimensions do not fit.
        UnsoundConfiguration: if bounds are too far apart for single precision.

    Example:
        >>> import numpy as np
        >>> from taut.noise.geometry import public_subspaces
        >>> from taut.training import HybridClip
        >>> public = np.random.default_rng(0).normal(size=(40, 12)) / np.arange(1, 13)
        >>> spaces = public_subspaces(public, [2], provenance="public")
        >>> clipping = HybridClip(spaces, bounds=[1.0, 0.2])
        >>> noise = clipping.noise(["weight", "bias"], [10, 2], 1.0)
        >>> print(*(round(scale, 4) for scale in noise.scales))
        1.203 0.3598
    """

    name = "hybrid"

    subspaces: Subspaces
    bounds: tuple[float, ...]
    importance: tuple[float, ...] | None
    entry_bounds: tuple[float, ...] | None
    _basis: Basis
    _file: str | None

    def __init__(
        self,
        subspaces: Subspaces | str | os.PathLike[str] | Mapping[str, Any],
        bounds: Sequence[float],
        *,
        importance: Sequence[float] | None = None,
        entry_bounds: Sequence[float] | None = None,
        sha256: str | None = None,
    ) -> None:
        spaces = _as_subspaces(subspaces)
        weights = None if importance is None else _per_block(importance, spaces, "importance")
        entries = None if entry_bounds is None else _per_block(entry_bounds, spaces, "entry_bounds")
        values = {
            "subspaces": spaces,
            "bounds": _per_block(bounds, spaces, "bounds"),
            "importance": weights,
            "entry_bounds": entries,
            "_basis": Basis((spaces if entries is None else spaces.rotated()).basis),
            "_file": os.fspath(subspaces) if isinstance(subspaces, str | os.PathLike) else None,
        }
        for name, value in values.items():
            object.__setattr__(self, name, value)
        if sha256 not in (None, self.digest):
            raise UnsoundConfiguration(
                f"the subspaces in {self._file or 'JSON'} are not those that were written with "
                "the plan; restore them"
            )

    @classmethod
    def from_public(
        cls,
        gradients: ArrayLike,
        ranks: Sequence[int],
        norm: float,
        *,
        provenance: Provenance | str,
        importance: Sequence[float] | None = None,
        spread: float | None = None,
        iterations: int = 5,
        seed: int = 0,
    ) -> Self:
        """Return a clipping for the principal subspaces of public gradients.

        Gradients at even places find the subspaces, those at odd places are measured: in
        directions fitted to the measured gradients themselves, nothing would seem to be left over.

        Args:
            gradients: one per row, see `public_gradients`, in an order that says nothing.
            ranks: ranks of the subspaces.
            norm: length of the longest gradient that is left; split in proportion to the mean
                length of the measured gradients in every block, c_j = norm g_j / |g|, with at
                least a twentieth of the longest block's length in every other.
            provenance: ``"public"`` or ``"released"``.
            importance: weights of noise in the blocks, one each by default.
            spread: bound entries, so that a part of full length reaches over so many coordinates
                of its block; over a ninth of them in blocks where that is fewer, so that entries
                of a random direction are hardly cut.
            iterations: the number of subspace iterations, for gradients that are many: more than
                directions times twice the iterations. Fewer are solved for all at once.
            seed: the seed of the start of the iteration. It is no secret.

        Raises:
            ValueError: if gradients are too few: those at even places must be at least as many as
                the directions they are to find.
        """
        rows = np.asarray(gradients)
        check_public_examples(len(rows), ranks)
        finding, measured = rows[::2], rows[1::2]
        # Products of all pairs of gradients take fewer operations than the iteration.
        is_few = len(finding) <= 2 * iterations * sum(ranks)
        spaces = public_subspaces(
            finding,
            ranks,
            provenance=provenance,
            iterations=iterations,
            seed=seed,
            method="gram" if is_few else "iteration",
        )
        bounds = spaces.split_norm(norm, measured, least=_LEAST)
        entries = None
        if spread is not None:
            most = validate.positive(spread=spread)
            filled = [max(min(most, rank / _CUT_AT**2), 1.0) for rank in spaces.ranks]
            entries = [c / math.sqrt(n) for c, n in zip(bounds, filled, strict=True)]
        return cls(spaces, bounds, importance=importance, entry_bounds=entries)

    def saved(self, path: str | os.PathLike[str]) -> Self:
        """Write the subspaces to a file; return a clipping whose JSON refers to it.

        A plan with large subspaces has to: small ones are part of its JSON.
        """
        write_subspaces(path, self.subspaces)
        return type(self)(
            path, self.bounds, importance=self.importance, entry_bounds=self.entry_bounds
        )

    # --- one step ------------------------------------------------------------------------------

    @property
    def row_bytes(self) -> int:
        """Rows take as much as a quarter of the basis, which is read once for all of them."""
        return max(super().row_bytes, self._basis.dimension * self._basis.size)

    def clip_rows(self, rows: Tensor) -> Tensor:
        return self._rows(rows).clipped(rows)

    def sum_rows(self, rows: Tensor, masks: Masks | None = None) -> Tensor:
        return self._rows(rows).summed(rows, masks)

    def restored(self, total: Tensor) -> Tensor:
        return self._rows(total).restored(total)

    def _rows(self, like: Tensor) -> SubspaceRows:
        from taut.training._tensors.subspace_rows import SubspaceRows

        columns = self._basis.on(like.dtype, like.device)
        return SubspaceRows(columns, self._inner, self.bounds, self.entry_bounds)

    # --- noise ---------------------------------------------------------------------------------

    def sensitivity(self, names: Sequence[str], sizes: Sequence[int]) -> Blocks:
        self._check_dimension(sizes)
        return self.subspaces.blocks(self.bounds)

    def noise(self, names: Sequence[str], sizes: Sequence[int], multiplier: float) -> BasisNoise:
        self._check_dimension(sizes)
        ranks = self.subspaces.ranks
        # The same set in the coordinates of the basis: its scales do not depend on the basis.
        turned = Blocks(ranks, self.bounds)
        least = optimal_gaussian(turned, multiplier=multiplier, weights=self.importance)
        starts = np.cumsum([0, *ranks[:-1]])
        scales = [float(least.scales[start]) for start in starts]
        self._check_resolution(scales, multiplier)
        return BasisNoise(self._basis, self._inner, scales)

    @property
    def entry_blocks(self) -> tuple[EntryBlock, ...] | None:
        if self.entry_bounds is None:
            return None
        weights = self.importance or (1.0,) * len(self.bounds)
        fields = zip(self.subspaces.ranks, self.bounds, self.entry_bounds, weights, strict=True)
        return tuple(EntryBlock(*values) for values in fields)

    def block_noise(
        self,
        names: Sequence[str],
        sizes: Sequence[int],
        scales: Sequence[float],
        coordinate_rate: float,
    ) -> BasisNoise:
        self._check_dimension(sizes)
        lengths = [bound / scale for bound, scale in zip(self.bounds, scales, strict=True)]
        self._check_resolution(scales, 1 / math.hypot(*lengths))
        return BasisNoise(self._basis, self._inner, scales, coordinate_rate)

    def _check_dimension(self, sizes: Sequence[int]) -> None:
        if sum(sizes) != self.subspaces.dimension:
            raise ValueError(
                f"subspaces must have one dimension for each of the model's {sum(sizes)} trainable "
                f"numbers, got {self.subspaces.dimension}; make them from gradients of this model"
            )

    def _check_resolution(self, scales: Sequence[float], multiplier: float) -> None:
        """Refuse bounds so far apart that rounding in one block shows in another.

        In single precision a part of about 3e-7 of a vector ends up in the wrong block. A residual
        that is clipped to c was at most 1 / sqrt(1e-3) times as long before its projection, so
        that 1e-5 c bounds what it leaves in the subspaces; they leave 1e-6 of the whole in it.
        """
        whole = math.hypot(*self.bounds)
        leaks = [_LEAK_IN * self.bounds[-1]] * (len(self.bounds) - 1) + [_LEAK_OUT * whole]
        change = sum(
            leak * bound / scale**2
            for leak, bound, scale in zip(leaks, self.bounds, scales, strict=True)
        )
        if change * multiplier**2 > _ALLOWED:
            raise UnsoundConfiguration(
                f"bounds={self.bounds} are too far apart: rounding of long parts would show where "
                "noise is small; raise the smallest, or lower the importance of its block"
            )

    @property
    def _has_complement(self) -> bool:
        return self._basis.size < self._basis.dimension

    @property
    def _inner(self) -> tuple[int, ...]:
        ranks = self.subspaces.ranks
        return ranks[:-1] if self._has_complement else ranks

    # --- comparison and JSON -------------------------------------------------------------------

    @cached_property
    def digest(self) -> str:
        """The subspaces in 64 characters: SHA-256 of ranks and basis."""
        basis = np.ascontiguousarray(self.subspaces.basis, dtype="<f8")
        state = hashlib.sha256(repr((self.subspaces.ranks, basis.shape)).encode())
        state.update(basis.data)
        return state.hexdigest()

    def __repr__(self) -> str:
        weights = "" if self.importance is None else f", importance={self.importance}"
        if self.entry_bounds is not None:
            weights += f", entry_bounds={self.entry_bounds}"
        return (
            f"HybridClip(subspaces of ranks {self.subspaces.ranks}, sha256 {self.digest[:12]}, "
            f"bounds={self.bounds}{weights})"
        )

    def __eq__(self, other: object) -> bool:
        if not isinstance(other, HybridClip):
            return NotImplemented
        mine = self.bounds, self.importance, self.entry_bounds
        its = other.bounds, other.importance, other.entry_bounds
        return mine == its and self.digest == other.digest

    def __hash__(self) -> int:
        return hash((self.subspaces.ranks, self.bounds, self.importance, self.entry_bounds))

    def to_dict(self) -> dict[str, Any]:
        entries = {} if self.entry_bounds is None else {"entry_bounds": list(self.entry_bounds)}
        return {
            "name": self.name,
            **entries,
            "bounds": list(self.bounds),
            "importance": None if self.importance is None else list(self.importance),
            "subspaces": self._file or to_json(self.subspaces),
            "sha256": self.digest,
        }


def check_public_examples(count: int, ranks: Sequence[int]) -> None:
    """Refuse too few public examples: every other one finds directions.

    Raises:
        ValueError: with how many there would have to be.
    """
    finding, wanted = (count + 1) // 2, sum(ranks)
    if finding < wanted or count < 2:
        raise ValueError(
            f"ranks={tuple(ranks)} sum to {wanted} directions, and {finding} of {count} public "
            "examples find them (the others measure lengths): lower the ranks to a sum of at "
            f"most {finding}, or give at least {2 * wanted} public examples"
        )


def _as_subspaces(given: Any) -> Subspaces:
    if isinstance(given, Subspaces):
        columns, ranks = given.basis.shape[1], given.ranks
        if sum(ranks) != given.dimension or columns not in (sum(ranks), sum(ranks[:-1])):
            raise ValueError(
                f"ranks must sum to the dimension {given.dimension}, with the complement of "
                f"{columns} columns as the last, got subspaces of ranks {ranks}"
            )
        return given
    if isinstance(given, Mapping):
        return from_json(given)
    if isinstance(given, str | os.PathLike):
        return read_subspaces(given)
    raise validate.WrongType(
        f"subspaces must be Subspaces or a file of them, got subspaces={given!r}; try "
        "taut.noise.geometry.public_subspaces(...)"
    )


def _per_block(values: Sequence[float], spaces: Subspaces, name: str) -> tuple[float, ...]:
    numbers = tuple(validate.positive(**{name: value}) for value in values)
    if len(numbers) != len(spaces.ranks):
        raise ValueError(
            f"{name} must hold one number for each of {len(spaces.ranks)} blocks, of ranks "
            f"{spaces.ranks}, got {len(numbers)}"
        )
    return numbers
