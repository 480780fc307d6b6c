"""The shape of public vectors: which directions hold them, and what blocks would save."""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import Any

import numpy as np
from numpy.typing import ArrayLike

from taut._base import validate
from taut._base.arrays import Matrix, Vector
from taut._base.public_vectors import (
    Provenance,
    Rows,
    as_provenance,
    portions,
    public_rows,
)
from taut.noise._sets.projections import row_norms
from taut.noise.geometry._block_suggestion import BlockSuggestion, suggest_blocks
from taut.noise.geometry._reductions import mean_magnitudes
from taut.noise.geometry._second_moment import PrivateSecondMoment
from taut.noise.geometry._subspaces import Subspaces, public_subspaces

__all__ = ["GeometryReport", "geometry_report"]

# Of the directions, at which the report tells what is left: points of a curve for people.
_SHOWN_SHARES = (0.01, 0.02, 0.05, 0.1, 0.2, 0.3, 0.4, 0.5, 0.6, 0.7, 0.8, 0.9, 1.0)
_SHOWN_QUANTILES = (0.05, 0.25, 0.5, 0.75, 0.95)  # of norms, in the report: for people
_MOST_DIRECTIONS = 512  # looked at, unless more are asked for


@dataclass(frozen=True, eq=False)
class GeometryReport:
    """What public vectors look like to someone who has to clip private ones.

    Lengths are means over the measured vectors, after scaling those longer than `clip` down to it;
    over a second moment they are root mean squares of rows of mean square length `clip`².

    Attributes:
        provenance: why looking costs no privacy.
        clip: the l2 norm that vectors were scaled down to.
        count: how many vectors were measured; zero for a second moment.
        subspaces: the leading directions, in one block.
        shares: shares of coordinates that are kept, largest in public mean magnitude first.
        share_residuals: the length that keeping them loses.
        direction_residuals: the length that projecting on the first 1, 2, ... directions loses.
        projected_means: the length of the projection itself.
        projected_deviations: its standard deviation over vectors; zero for a second moment.
        entries: the largest entry of every vector; empty for a second moment.
        variation: standard deviation over absolute mean, of every coordinate; infinite where the
            mean is zero. Empty for a second moment.
        notes: what to keep in mind, in sentences to show.

    **Guarantee**: none about records, as the vectors are none of theirs. All numbers are estimates.
    """

    provenance: Provenance
    clip: float
    count: int
    subspaces: Subspaces
    shares: Vector = field(repr=False)
    share_residuals: Vector = field(repr=False)
    direction_residuals: Vector = field(repr=False)
    projected_means: Vector = field(repr=False)
    projected_deviations: Vector = field(repr=False)
    entries: Vector = field(repr=False)
    variation: Vector = field(repr=False)
    notes: tuple[str, ...]
    _coefficients: Matrix = field(repr=False)
    _rest: Vector = field(repr=False)

    @property
    def dimension(self) -> int:
        """The number of coordinates."""
        return self.subspaces.dimension

    @property
    def spectrum(self) -> Vector:
        """The singular values of the vectors that the directions were found from.

        One for every direction that was found, the largest first.
        """
        return self.subspaces.singular_values

    def suggest(
        self,
        ranks: Sequence[int] | None = None,
        *,
        allocation: str = "mean",
        quantile: float = 0.9,
        seed: int = 0,
    ) -> BlockSuggestion:
        """Return blocks, their radii, and the noise that they would save.

        Args:
            ranks: ranks of the blocks before the complement. By default one block, of the rank for
                which the predicted total variance is least.
            allocation: ``"mean"``, radii in proportion to the mean length g_j in every block,
                c_j = clip g_j / (sum_l g_l²)^(1/2), as Xiao, Wan and Devadas (2023, Section 6);
                ``"quantile"``, that quantile of the length in every block.
            quantile: quantile of lengths for ``"quantile"``, and of largest entries for
                `entry_bounds`.
            seed: seed of the public rotation inside of blocks, which spreads vectors over entries.

        Raises:
            ValueError: if the ranks are beyond the directions of the report.
        """
        chosen = (self._best_rank(),) if ranks is None else tuple(ranks)
        return suggest_blocks(
            self.subspaces.split(chosen),
            self._coefficients,
            self._rest,
            clip=self.clip,
            allocation=allocation,
            quantile=quantile,
            seed=seed,
            entries_known=self.entries.size > 0,
        )

    def to_dict(self) -> dict[str, Any]:
        """Return numbers and lists for JSON; distributions as quantiles, infinity as None."""
        suggestion = self.suggest()
        return {
            "dimension": self.dimension,
            "count": self.count,
            "provenance": str(self.provenance),
            "clip": self.clip,
            "coordinates": {
                "share": self.shares.tolist(),
                "residual": self.share_residuals.tolist(),
            },
            "directions": {
                "residual": self.direction_residuals.tolist(),
                "projected_mean": self.projected_means.tolist(),
                "projected_deviation": self.projected_deviations.tolist(),
                "singular_value": self.spectrum.tolist(),
            },
            "entries": _quantiles(self.entries),
            "variation": _quantiles(self.variation),
            "suggestion": suggestion.to_dict(),
            "notes": list(self.notes),
        }

    def __str__(self) -> str:
        known = self.direction_residuals.size
        steps = np.unique(np.geomspace(1, known, min(known, 6)).astype(np.int64))
        measured = f"{self.count} {self.provenance} vectors" if self.count else "a second moment"
        lines = [f"{measured} in {self.dimension} dimensions, clipped to {self.clip:.4g}"]
        lines += [
            f"  {share:6.1%} of the coordinates leave {residual / self.clip:6.1%} of the clip"
            for share, residual in zip(self.shares, self.share_residuals, strict=True)
            if share in (0.1, 0.5)
        ]
        lines += [
            f"  {k:6d} directions leave         {self.direction_residuals[k - 1] / self.clip:6.1%}"
            for k in steps.tolist()
        ]
        return "\n".join([*lines, str(self.suggest()), *(f"note: {note}" for note in self.notes)])

    def _best_rank(self) -> int:
        """Return the rank of one block for which hybrid noise has the least total variance."""
        ranks = np.arange(1, self.projected_means.size + 1)
        inside, outside = self.projected_means, self.direction_residuals
        widths = inside * np.sqrt(ranks) + outside * np.sqrt(self.dimension - ranks)
        return int(ranks[np.argmin(widths**2 / (inside**2 + outside**2))])


def geometry_report(
    vectors: ArrayLike | PrivateSecondMoment,
    *,
    provenance: Provenance | str,
    clip: float | None = None,
    directions: int | None = None,
    iterations: int = 5,
    seed: int = 0,
) -> GeometryReport:
    """Measure public vectors, and suggest blocks for private ones like them.

    Args:
        vectors: one per row, or a released second moment. Rows at even places find directions and
            coordinates, rows at odd places are measured: on the same rows, as many directions as
            rows would seem to leave nothing.
        provenance: ``"public"`` or ``"released"``, see `Provenance`; the latter for a
            second moment.
        clip: the l2 norm to clip to; by default the median length, or the clip of the moment.
        directions: how many leading directions to look at; by default half as many as rows that
            find them, at most 512, or those of a second moment that stand out of its noise.
        iterations: number of rounds of the subspace iteration.
        seed: seed of its start. It need not be secret.

    The measures are those of Xiao, Wan and Devadas (2023, Section 3), which takes them on private
    data and leaves that unaccounted.

    Raises:
        UnsoundConfiguration: for private vectors; see `private_second_moment` for the way out.

    Example:
        >>> import numpy as np
        >>> from taut.noise.geometry import geometry_report
        >>> public = np.random.default_rng(0).normal(size=(400, 100)) / np.arange(1, 101)
        >>> report = geometry_report(public, provenance="public", clip=1.0)
        >>> suggestion = report.suggest()
        >>> suggestion.blocks.ranks
        (9, 91)
        >>> round(suggestion.variance_ratio, 2)
        3.06
    """
    if isinstance(vectors, PrivateSecondMoment):
        return _from_moment(vectors, as_provenance(provenance), clip, directions)
    rows = public_rows(vectors, provenance)
    if len(rows) < 4:
        raise ValueError(
            f"vectors must be at least 4, two to look and two to check, got {len(rows)}"
        )
    norms = np.concatenate([row_norms(part, 2.0) for part in portions(rows)])
    radius = float(np.median(norms)) if clip is None else validate.positive(clip=clip)
    if not radius > 0:
        raise ValueError("clip must be given where half of the vectors are zero")
    with np.errstate(over="ignore"):
        factors = np.minimum(1.0, radius / np.where(norms > 0, norms, 1.0))
    learnt, held = (_scaled(rows[start::2], factors[start::2]) for start in (0, 1))
    known = (
        min(len(learnt) // 2, rows.shape[1] - 1, _MOST_DIRECTIONS)
        if directions is None
        else directions
    )
    spaces = public_subspaces(
        learnt, [max(known, 1)], provenance=provenance, iterations=iterations, seed=seed
    )
    order = np.argsort(-mean_magnitudes(learnt), kind="stable")
    measured = [_measured(part, spaces.basis, order) for part in portions(held)]
    coefficients, rest, shares, entries = (
        np.concatenate(column) for column in zip(*measured, strict=True)
    )
    return _assembled(
        spaces,
        radius,
        coefficients,
        rest,
        shares.mean(axis=0),
        count=len(held),
        entries=entries,
        variation=_variation(held),
    )


def _from_moment(
    moment: PrivateSecondMoment,
    provenance: Provenance,
    clip: float | None,
    directions: int | None,
) -> GeometryReport:
    """Report on one row of root mean squares: of coordinates, and along eigenvectors."""
    if provenance is not Provenance.RELEASED:
        raise ValueError(f"provenance of a second moment is 'released', got {str(provenance)!r}")
    dimension = len(moment.matrix)
    spaces = moment.subspaces([dimension if directions is None else directions])
    # A direction found in noise holds less than its eigenvalue: for few directions above the
    # noise, and a level e, it is (eigenvalue² - e²)^(1/2) (Benaych-Georges and Nadakuditi 2011).
    inside = np.sqrt(np.maximum(spaces.singular_values**4 - moment.noise_level**2, 0.0))
    drowned = spaces.notes
    if directions is None:
        drowned = ()
        known = max(1, min(int(np.count_nonzero(inside)), dimension - 1))
        spaces, inside = spaces.split([known]), inside[:known]
    radius = moment.clip if clip is None else validate.positive(clip=clip)
    diagonal = np.maximum(np.diagonal(moment.matrix), 0.0)
    whole = float(np.trace(moment.matrix))
    if not whole > 0:
        raise ValueError("the second moment is all noise: its trace is not positive; add records")
    rest = max(whole - float(inside.sum()), 0.0)
    unit = radius**2 / (float(inside.sum()) + rest)
    # Not divided by zero: a diagonal of noise alone may sum to it.
    tails = _tails(np.sort(diagonal)[::-1][None, :] * radius**2 / max(diagonal.sum(), 1e-300))
    return _assembled(
        spaces,
        radius,
        np.sqrt(inside * unit)[None, :],
        np.array([math.sqrt(rest * unit)]),
        tails[0],
        count=0,
        entries=np.empty(0),
        variation=np.empty(0),
        notes=("lengths along directions found in a noisy matrix are estimates", *drowned),
    )


def _assembled(
    spaces: Subspaces,
    radius: float,
    coefficients: Matrix,
    rest: Vector,
    shares: Vector,
    *,
    count: int,
    entries: Vector,
    variation: Vector,
    notes: tuple[str, ...] = (),
) -> GeometryReport:
    squares = np.cumsum(coefficients**2, axis=1)
    beyond = np.cumsum((coefficients**2)[:, ::-1], axis=1)[:, ::-1]
    left = np.sqrt(
        np.concatenate([beyond[:, 1:], np.zeros((len(beyond), 1))], axis=1) + rest[:, None] ** 2
    )
    projected = np.sqrt(squares)
    return GeometryReport(
        spaces.provenance,
        radius,
        count,
        spaces,
        np.array(_SHOWN_SHARES),
        shares,
        left.mean(axis=0),
        projected.mean(axis=0),
        projected.std(axis=0),
        entries,
        variation,
        notes,
        coefficients,
        rest,
    )


def _scaled(rows: Rows, factors: Vector) -> Rows:
    """Scale rows in their own type, which leaves the norms as close as public vectors need."""
    scaled: Rows = rows * factors[:, None].astype(rows.dtype)
    return scaled


def _measured(rows: Matrix, basis: Matrix, order: Any) -> tuple[Matrix, Vector, Matrix, Vector]:
    """Return coefficients, length outside, residuals by share, and largest entry of every row."""
    coefficients = rows @ basis
    outside = row_norms(rows - coefficients @ basis.T, 2.0)
    return coefficients, outside, _tails(rows[:, order] ** 2), np.abs(rows).max(axis=1)


def _tails(squares: Matrix) -> Matrix:
    """Return the length that is left of every row after the first share of its squares."""
    width = squares.shape[1]
    left = np.zeros((len(squares), width + 1))
    left[:, :-1] = np.cumsum(squares[:, ::-1], axis=1)[:, ::-1]
    return np.sqrt(left[:, [math.ceil(share * width) for share in _SHOWN_SHARES]])


def _variation(rows: Rows) -> Vector:
    """Return the standard deviation over the absolute mean, of every coordinate."""
    mean = rows.mean(axis=0, dtype=np.float64)
    spread = rows.std(axis=0, dtype=np.float64)
    variation = np.where(spread > 0, math.inf, 0.0)
    np.divide(spread, np.abs(mean), out=variation, where=mean != 0)
    return variation


def _quantiles(values: Vector) -> dict[str, float | None]:
    """Return quantiles by name; those at infinity are None."""
    if not values.size:
        return {}
    found = np.quantile(values, _SHOWN_QUANTILES, method="lower").tolist()
    names = [f"{level:g}" for level in _SHOWN_QUANTILES]
    return {
        name: value if math.isfinite(value) else None
        for name, value in zip(names, found, strict=True)
    }
