"""Group clipping: every layer, or named group of parameters, has a bound of its own."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from fnmatch import fnmatchcase
from typing import TYPE_CHECKING, Any, TypeAlias

import numpy as np

from taut._base import validate
from taut.noise import Blocks, optimal_gaussian
from taut.training._clipping.clipping import NormClipping
from taut.training._noise.step_noise import IndependentNoise

if TYPE_CHECKING:
    from torch import Tensor

__all__ = ["GroupClip", "GroupShare"]

Named: TypeAlias = tuple[float, ...] | tuple[tuple[str, float], ...]
"""Numbers of groups: in their order, or by name."""


@dataclass(frozen=True)
class GroupShare:
    """What the noise does to one group.

    Attributes:
        group: its name.
        numbers: how many trainable parameters it has.
        bound: on the l2 norm of an example's gradient in it.
        scale: the standard deviation of the noise on every number of the sum.
        signal_to_noise: how long an example at its bound is, relative to the noise in the group.
            Divide by the expected batch size for the noise of the mean.
    """

    group: str
    numbers: int
    bound: float
    scale: float
    signal_to_noise: float


@dataclass(frozen=True, init=False)
class GroupClip(NormClipping):
    """Scale the gradient of every group of parameters down to a bound of its own.

    Args:
        norm: the same bound for each of M groups, norm / sqrt(M), so that the whole gradient is as
            long as `FlatClip(norm)` allows.
        bounds: bounds of the groups instead of one norm, in their order or by name.
        groups: ``"layers"``, one group per layer, named by it and in the order of the model; or
            group names by patterns of parameter names, such as ``{"body.*": "body", "*": "rest"}``,
            where the first that matches counts. What a function should decide is such a mapping as
            well: ``{name: choose(name) for name, _ in model.named_parameters()}``.
        importance: how much noise in a group counts, in the order of groups or by name; one each
            by default.

    Noise is of least total variance: sigma_m^2 = z^2 C_m A / sqrt(w_m K_m) on each of the K_m
    numbers of a group, with A = sum C_m sqrt(w_m K_m) and importance w_m. Unweighted it sums to
    z^2 A^2, never above that of `FlatClip` at the same norm, with equality only for C_m in
    proportion to sqrt(K_m). Small groups get more noise per number than large ones: see `shares`.

    **Guarantee**: adding or removing one example changes the sum of clipped gradients by a member
    of `taut.noise.Blocks`; sum C_m^2 / sigma_m^2 <= 1 / z^2 (Xiao, Wan and Devadas 2023, Theorem
    4.6; Muthukrishnan and Kalyani 2025, section VI-C, who cut every coordinate at C_m / sqrt(K_m)
    where norms of groups are clipped here: the same noise hides both). Importance never touches
    that constraint. Rounding as for `FlatClip`.

    Raises:
        ValueError: for no bounds or two kinds of them, and later, when the model is known, if
            names or numbers of groups do not fit.

    Example:
        >>> from taut.training import GroupClip
        >>> sizes = {"body.weight": 9_900, "body.bias": 100, "head.weight": 100}
        >>> for share in GroupClip(1.0).shares(sizes):
        ...     print(share.group, share.numbers, round(share.bound, 3), round(share.scale, 3))
        body 10000 0.707 0.742
        head 100 0.707 2.345
    """

    name = "group"

    norm: float | None
    bounds: Named | None
    groups_by: tuple[tuple[str, str], ...] | None
    importance: Named | None

    def __init__(
        self,
        norm: float | None = None,
        *,
        bounds: Sequence[float] | Mapping[str, float] | Named | None = None,
        groups: str | Mapping[str, str] | Sequence[tuple[str, str]] = "layers",
        importance: Sequence[float] | Mapping[str, float] | Named | None = None,
    ) -> None:
        if (norm is None) == (bounds is None):
            raise ValueError(f"give either norm or bounds, got norm={norm!r} and bounds={bounds!r}")
        fields = {
            "norm": None if norm is None else validate.positive(norm=norm),
            "bounds": None if bounds is None else _numbers(bounds, "bounds"),
            "groups_by": _patterns(groups),
            "importance": None if importance is None else _numbers(importance, "importance"),
        }
        for name, value in fields.items():
            object.__setattr__(self, name, value)

    def groups(self, names: Sequence[str]) -> list[int]:
        labels = [self._label(name) for name in names]
        order = self._order(labels)
        for name, label in zip(names, labels, strict=True):
            if label not in order:
                raise ValueError(
                    f"bounds must name the group of every trainable parameter, got none for "
                    f"{label!r}, the group of {name!r}; there are {sorted(set(labels))}"
                )
        missing = [label for label in order if label not in labels]
        if missing:
            raise ValueError(
                f"groups and bounds must name groups of the model, got {missing[0]!r}; there are "
                f"{sorted(set(labels))}"
            )
        for values, argument in ((self.bounds, "bounds"), (self.importance, "importance")):
            if values is not None:
                _in_order(values, order, argument)
        return [order.index(label) for label in labels]

    def weights(self, squared_norms: Tensor) -> Tensor:
        from taut.training._tensors.numbers import positive_lengths

        bounds = squared_norms.new_tensor(self._bounds(len(squared_norms)))
        return (bounds[:, None] / positive_lengths(squared_norms)).clamp_(max=1.0)

    def sensitivity(self, names: Sequence[str], sizes: Sequence[int]) -> Blocks:
        numbers = np.bincount(self.groups(names), weights=sizes).astype(np.int64)
        return Blocks([int(n) for n in numbers], self._bounds(len(numbers)))

    def noise(
        self, names: Sequence[str], sizes: Sequence[int], multiplier: float
    ) -> IndependentNoise:
        blocks = self.sensitivity(names, sizes)
        order = self._order([self._label(name) for name in names])
        importance = None if self.importance is None else _in_order(self.importance, order, "")
        least = optimal_gaussian(blocks, multiplier=multiplier, weights=importance)
        return IndependentNoise.of(least, self.groups(names), sizes)

    def shares(self, sizes: Mapping[str, int], multiplier: float = 1.0) -> list[GroupShare]:
        """Return bound, noise and their ratio for every group.

        Args:
            sizes: the number of entries of every trainable parameter, by name.
            multiplier: the plan's noise multiplier.
        """
        names, counts = list(sizes), list(sizes.values())
        blocks, noise = self.sensitivity(names, counts), self.noise(names, counts, multiplier)
        order = self._order([self._label(name) for name in names])
        return [
            GroupShare(label, rank, float(bound), scale, float(bound) / (scale * math.sqrt(rank)))
            for label, rank, bound, scale in zip(
                order, blocks.ranks, blocks.l2, noise.scales, strict=True
            )
        ]

    def __repr__(self) -> str:
        given = {"norm": self.norm, "bounds": _shown(self.bounds), "groups": _shown(self.groups_by)}
        given["importance"] = _shown(self.importance)
        inside = ", ".join(f"{key}={value!r}" for key, value in given.items() if value is not None)
        return f"GroupClip({inside})"

    def to_dict(self) -> dict[str, Any]:
        data = super().to_dict()
        data["groups"] = data.pop("groups_by") or "layers"
        return data

    def _label(self, name: str) -> str:
        if self.groups_by is None:
            return name.rpartition(".")[0]
        for pattern, label in self.groups_by:
            if fnmatchcase(name, pattern):
                return label
        raise ValueError(
            f"groups must have a pattern for every trainable parameter, got none for {name!r}; "
            "end with '*' to gather the rest"
        )

    def _order(self, labels: Sequence[str]) -> list[str]:
        """Return the names of groups in the order that numbers without names refer to."""
        if self.groups_by is not None:
            return list(dict.fromkeys(label for _, label in self.groups_by))
        if self.bounds is not None and isinstance(self.bounds[0], tuple):
            return [label for label, _ in self.bounds]
        return list(dict.fromkeys(labels))

    def _bounds(self, count: int) -> list[float]:
        if self.norm is not None:
            return [self.norm / math.sqrt(count)] * count
        assert self.bounds is not None
        order = [] if self.groups_by is None else self._order([])
        if isinstance(self.bounds[0], tuple) and not order:
            return [bound for _, bound in self.bounds]
        return _in_order(self.bounds, order or [""] * count, "bounds")


def _shown(values: Any) -> Any:
    """Return pairs as the mapping that they were given as."""
    return dict(values) if values is not None and isinstance(values[0], tuple) else values


def _numbers(values: Any, name: str) -> Named:
    """Return positive numbers in order, or by name; refuse anything else."""
    if isinstance(values, Mapping):
        values = tuple(values.items())
    if isinstance(values, str) or not isinstance(values, Sequence | np.ndarray):
        raise validate.WrongType(
            f"{name} must be numbers in the order of groups, or a mapping from their names, "
            f"got {name}={values!r}"
        )
    if not len(values):
        raise ValueError(f"{name} must hold a number for every group, got none")
    if isinstance(values[0], tuple):
        return tuple((str(key), validate.positive(**{name: number})) for key, number in values)
    return tuple(validate.positive(**{name: number}) for number in values)


def _patterns(groups: Any) -> tuple[tuple[str, str], ...] | None:
    if isinstance(groups, str) and groups == "layers":
        return None
    pairs = tuple(groups.items()) if isinstance(groups, Mapping) else groups
    if isinstance(pairs, str) or not isinstance(pairs, Sequence) or not pairs:
        raise ValueError(
            f"groups must be 'layers' or group names by pattern, got groups={groups!r}; what a "
            "function decides is {name: choose(name) for name, _ in model.named_parameters()}"
        )
    return tuple((str(pattern), str(label)) for pattern, label in pairs)


def _in_order(values: Named, order: Sequence[str], name: str) -> list[float]:
    """Return the numbers in the order of groups."""
    if not isinstance(values[0], tuple):
        if len(values) != len(order):
            raise ValueError(
                f"{name} must hold one number for each of {len(order)} groups, got {len(values)}"
            )
        return list(values)
    named = dict(values)
    if set(named) != set(order) or len(values) != len(order):
        raise ValueError(
            f"{name} must name each group once, {list(order)}, got {[key for key, _ in values]}"
        )
    return [named[label] for label in order]
