"""Games of the mechanisms of `taut.noise`: what their code releases, seen through its density."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, replace
from functools import singledispatch
from typing import Any

import numpy as np
from numpy.typing import NDArray

from taut._base.arrays import Matrix, Vector, real_numbers
from taut.accounting import Adjacency
from taut.audit._mechanisms.games import MechanismGame
from taut.noise import (
    Box,
    FixedRows,
    GaussianMoments,
    GaussianNoise,
    GaussianProducts,
    GridGaussian,
    GroupedNoise,
    IntegerLaplaceNoise,
    LaplaceNoise,
    LInfBall,
    NoiseMechanism,
    RandomSource,
    StaircaseNoise,
)

__all__ = ["noise_game"]

_SLACK = 1 + 1e-9  # of a length that was computed, where the set is as long


@dataclass(frozen=True, eq=False)
class _Seen:
    """What is released with the record or without it, and where the noise is centred with it.

    Attributes:
        release: function that releases once: with the record or not, from a source of bits.
        moved: what the record adds, as a vector.
        log_density: function of noise, one vector per row: its log density, up to a constant.
    """

    release: Callable[[bool, RandomSource], Vector]
    moved: Vector
    log_density: Callable[[Matrix], Vector]


def noise_game(mechanism: Any, shift: Any) -> MechanismGame:
    """Return the game of a mechanism of `taut.noise` on one record.

    Args:
        mechanism: noise that `optimal_gaussian`, `optimal_laplace`, `staircase`, `grouped_linf`,
            `integer_laplace`, `grid_gaussian` or `gaussian_moments` returns, or the like; its
            `release` is audited, and what that rounds to.
        shift: what the record adds, a member of the sensitivity set, of shape (dimension,); the
            worst shows most. For `GaussianMoments` the row of the record, for `GaussianProducts` a
            pair, its left row and its right row.

    Raises:
        ValueError: for other mechanisms, and for what no record can add.

    Example:
        >>> from taut.audit import audit_mechanism, noise_game
        >>> from taut.noise import gaussian_moments
        >>> moments = gaussian_moments((1, 1), (1.0, 1.0), epsilon=2.0, delta=1e-2)
        >>> game = noise_game(moments, [1.0, -1.0])
        >>> audit_mechanism(game, delta=1e-2, trials=2_000, seed=0).passed
        True
    """
    seen = _seen(mechanism, shift)

    def log_ratios(with_record: bool, releases: int, source: RandomSource) -> NDArray[np.float64]:
        rows = np.stack([seen.release(with_record, source) for _ in range(releases)])
        return np.asarray(seen.log_density(rows - seen.moved) - seen.log_density(rows))

    return MechanismGame(type(mechanism).__name__, mechanism.loss, log_ratios)


@singledispatch
def _seen(mechanism: Any, shift: Any) -> _Seen:  # noqa: ARG001 (of the kind of those below)
    raise ValueError(
        f"mechanism must be noise of taut.noise that releases vectors or moments, got "
        f"{type(mechanism).__name__}; make a MechanismGame of its own for it"
    )


@_seen.register
def _of_noise(mechanism: NoiseMechanism, shift: Any) -> _Seen:
    moved = real_numbers(shift, "shift")
    dimension = mechanism.sensitivity.dimension
    if moved.shape != (dimension,) or not mechanism.sensitivity.contains(moved):
        raise ValueError(
            f"shift must be a member of the sensitivity set, of shape ({dimension},), got {shift!r}"
        )

    def release(with_record: bool, source: RandomSource) -> Vector:
        return mechanism.release(moved if with_record else np.zeros_like(moved), source)

    return _Seen(release, moved, _log_density(mechanism))


@_seen.register
def _of_grid(mechanism: GridGaussian, shift: Any) -> _Seen:
    moved = real_numbers(shift, "shift")
    is_member = np.linalg.norm(moved) <= mechanism.sensitivity * _SLACK
    if moved.shape != (mechanism.dimension,) or not is_member:
        raise ValueError(
            f"shift must be at most {mechanism.sensitivity!r} long, of shape "
            f"({mechanism.dimension},), got {shift!r}"
        )

    def release(with_record: bool, source: RandomSource) -> Vector:
        value = moved if with_record else np.zeros_like(moved)
        return replace(mechanism, generator=source).release(value)

    return _Seen(release, moved, _normal(np.full(moved.size, mechanism.sigma)))


@_seen.register
def _of_moments(mechanism: GaussianMoments, shift: Any) -> _Seen:
    _check_added(mechanism.adjacency)
    record = real_numbers(shift, "shift")
    if record.shape != (mechanism.columns,):
        raise ValueError(
            f"shift must be the row of a record, of shape ({mechanism.columns},), got {shift!r}"
        )
    upper = np.triu_indices(mechanism.columns)
    rows = {True: record[None, :], False: np.zeros((0, mechanism.columns))}
    added = np.outer(record, record)[upper]

    def release(with_record: bool, source: RandomSource) -> Vector:
        return mechanism.release(rows[with_record], source)[upper]

    return _Seen(release, added, _normal(mechanism.entry_scales[upper]))


@_seen.register
def _of_products(mechanism: GaussianProducts, shift: Any) -> _Seen:
    _check_added(mechanism.adjacency)
    if not isinstance(shift, tuple | list) or len(shift) != 2:
        raise ValueError(f"shift must be a pair, the left and the right row, got {shift!r}")
    left, right = (np.atleast_2d(real_numbers(row, "shift")) for row in shift)
    added = np.outer(left, right).ravel()
    fixed = {
        True: (left, FixedRows(right, mechanism.right_clip)),
        False: (left[:0], FixedRows(right[:0], mechanism.right_clip)),
    }

    def release(with_record: bool, source: RandomSource) -> Vector:
        return mechanism.release(*fixed[with_record], source).ravel()

    return _Seen(release, added, _normal(np.full(added.size, mechanism.scale)))


def _check_added(adjacency: Adjacency) -> None:
    if adjacency is not Adjacency.ADD_REMOVE:
        raise ValueError(
            f"mechanism must be for adjacency 'add_remove', got {str(adjacency)!r}: one record "
            "makes its game; make a MechanismGame of its own for two"
        )


def _normal(deviations: Vector) -> Callable[[Matrix], Vector]:
    """Return the log density of independent normal numbers; those without noise say nothing."""
    noisy = deviations > 0

    def log_density(rows: Matrix) -> Vector:
        return np.asarray(-np.square(rows[:, noisy] / deviations[noisy]).sum(1) / 2)

    return log_density


def _log_density(mechanism: NoiseMechanism) -> Callable[[Matrix], Vector]:
    """Return the logarithm of the density of noise at rows, up to a constant."""
    if isinstance(mechanism, StaircaseNoise):
        return lambda rows: np.log(mechanism.density(rows))
    if isinstance(mechanism, LaplaceNoise | IntegerLaplaceNoise):
        scales, noisy = mechanism.scales, mechanism.scales > 0
        return lambda rows: np.asarray(-np.abs(rows[:, noisy] / scales[noisy]).sum(1))
    if isinstance(mechanism, GroupedNoise):
        return lambda rows: _log_density_of_groups(mechanism, rows)
    if isinstance(mechanism, GaussianNoise):
        return _log_density_of_normal(mechanism)
    raise ValueError(
        f"mechanism must have a density that is known here, got {type(mechanism).__name__}; make "
        "a MechanismGame of its own for it"
    )


def _log_density_of_normal(mechanism: GaussianNoise) -> Callable[[Matrix], Vector]:
    along = _normal(mechanism.scales)
    axes, outside = mechanism.basis, mechanism.complement_scale
    if axes is None:
        return along

    def log_density(rows: Matrix) -> Vector:
        parts = rows @ axes
        found = along(parts)
        if outside > 0:
            rest = rows - parts @ axes.T
            found = found - np.square(rest / outside).sum(1) / 2
        return np.asarray(found)

    return log_density


def _log_density_of_groups(mechanism: GroupedNoise, rows: Matrix) -> Vector:
    """Return minus the sum of budget times length: a Gamma length of shape k + 1 leaves exp(-b r).

    Uniform in a box of k sides of a length with density in proportion to t^k exp(-b t), noise that
    reaches r has a density in proportion to the integral of exp(-b t) over t >= r.
    """
    box = mechanism.sensitivity
    assert isinstance(box, Box | LInfBall)
    widths = box.widths if isinstance(box, Box) else np.full(box.dimension, box.radius)
    found = np.zeros(len(rows))
    for group, budget in zip(mechanism.groups, mechanism.budgets, strict=True):
        found -= budget * np.abs(rows[:, group] / widths[group]).max(axis=1)
    return found
