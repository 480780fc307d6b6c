"""What every noise mechanism can do: say what it costs and why it is enough, and release."""

from __future__ import annotations

import math
import operator
from abc import ABC, abstractmethod
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from fractions import Fraction
from typing import overload

import numpy as np
from numpy.typing import ArrayLike

from taut._base.arrays import Vector, real_numbers
from taut.accounting import PrivacyLoss
from taut.errors import UnsoundConfiguration
from taut.noise._exact.grid_values import exact_integers
from taut.noise._exact.release import ExactRelease, GridRelease
from taut.noise._exact_sums import FixedPoint, column_sums
from taut.noise._random.sources import RandomSource, default_generator
from taut.noise._sets.named_tables import NamedTable, arranged, by_name
from taut.noise._sets.sets import SensitivitySet
from taut.noise.recording import Release, released

__all__ = ["Certificate", "NoiseMechanism"]

_FAR = Fraction(2) ** 1000  # what a replay sees of values beyond doubles


@dataclass(frozen=True)
class Certificate:
    """What is proven about the noise of a mechanism.

    Attributes:
        radius: the largest length of a member of the set in the norm of the noise, recomputed from
            the scales that are returned: whitened l2 for Gaussian noise, where privacy needs at
            most 1 / multiplier; the sum of |s_i| / scale_i for Laplace noise, and the norm of
            the body for others, where pure privacy needs at most epsilon.
        error: the objective that the noise reaches.
        lower_bound: what no noise of the same kind can go below at the same loss; 0 if nothing is
            known.
        statement: the argument in words.
    """

    radius: float
    error: float
    lower_bound: float
    statement: str

    @property
    def gap(self) -> float:
        """By how much the error can be above the least, relative to it."""
        return self.error / self.lower_bound - 1 if self.lower_bound > 0 else math.inf


@dataclass(frozen=True, eq=False)
class NoiseMechanism(ABC):
    """Additive noise fitted to a sensitivity set.

    Attributes:
        sensitivity: the set that it hides.
        objective: the quantity that was minimised.
        certificate: what is proven about it.
    """

    sensitivity: SensitivitySet
    objective: str
    certificate: Certificate

    @property
    @abstractmethod
    def loss(self) -> PrivacyLoss:
        """The privacy loss of one release."""

    @property
    def error(self) -> float:
        """The predicted value of the objective."""
        return self.certificate.error

    @property
    @abstractmethod
    def total_variance(self) -> float:
        """The expected squared length of the noise."""

    @abstractmethod
    def coordinate_errors(self, power: float = 2.0) -> Vector:
        """Return E|noise_i|^power for every coordinate."""

    @abstractmethod
    def sample(self, generator: RandomSource | None = None) -> Vector:
        """Draw the noise of one release, from the secure generator unless another is given."""

    @property
    def grid(self) -> Vector:
        """The powers of two of which multiples are released, one per coordinate.

        If the noise lies along a basis, one per axis: coefficients are rounded, and a release is
        their combination, a function of them. One per coordinate follows where there is noise
        beside the basis. Zero where nothing but a public constant is released.
        """
        return self._rounded.grid

    def release(
        self,
        value: ArrayLike,
        generator: RandomSource | None = None,
        *,
        public: ArrayLike | None = None,
    ) -> Vector:
        """Return the value with noise, rounded to the public `grid`.

        Args:
            value: the vector to release.
            generator: where the noise comes from, by default the secure generator. Anything else,
                such as ``SeededForExperiments``, is for experiments that release nothing.
            public: what is released, instead of the value, in directions that no record can change
                and that get no noise; zero if left out.

        **Guarantee**: the release is distributed exactly as value plus noise in real numbers,
        rounded to the nearest multiple of the grid (coefficients, if there is a basis): its loss is
        `loss`, and no low bits tell more (docs/theory/rounding.md). Values, or coefficients, are
        cut at 2^52 grid steps, which is 2^41 scales or more.

        Raises:
            ValueError: if the shape is wrong or an entry is not a finite number. Sums of clipped
                rows are always finite, see `release_sum`.
        """
        vector = self._checked(value, "value")
        constant = np.zeros_like(vector) if public is None else self._checked(public, "public")
        source = default_generator() if generator is None else generator

        def draw() -> Vector:
            with np.errstate(all="ignore"):  # no value may be told by a warning
                noisy = self._rounded.release(vector, source)
                return noisy + (constant - self._hidden(constant))

        return released(draw, lambda: self._described(vector, constant), source)

    @overload
    def release_sum(
        self,
        rows: ArrayLike,
        generator: RandomSource | None = None,
        *,
        non_finite: str = "zero",
    ) -> Vector: ...

    @overload
    def release_sum(
        self,
        rows: NamedTable,
        generator: RandomSource | None = None,
        *,
        non_finite: str = "zero",
    ) -> dict[str, float]: ...

    def release_sum(
        self,
        rows: ArrayLike | NamedTable,
        generator: RandomSource | None = None,
        *,
        non_finite: str = "zero",
    ) -> Vector | dict[str, float]:
        """Clip one row per record to the set, and release their sum: nothing is left to trust.

        Args:
            rows: one row per record. Of a mapping or a data frame, the columns that the set names
                are taken, and the sums come back by name.
            generator: where the noise comes from, as for `release`.
            non_finite: what becomes of rows with NaN or infinity, as for the set's ``clip``.

        **Guarantee**: that of `release`. The sum is that of integers, so that one record moves it
        by its own clipped row or less; a sum in doubles can move by more (Casacuberta, Shoemate,
        Vadhan and Wagaman 2022). Without a basis entries of a row are cut at 2^42 grid steps.
        No row makes the call fail or warn, whatever finite or other numbers it holds.
        """
        table, names = arranged(rows, self.sensitivity.row_columns)
        if names is not None:
            sums = self.release_sum(table, generator, non_finite=non_finite)
            return by_name(self.sensitivity.columns or names, sums)
        clipped = np.atleast_2d(self.sensitivity.clip(real_numbers(table, "rows"), non_finite))
        source = default_generator() if generator is None else generator

        def draw() -> Vector:
            with np.errstate(all="ignore"):  # no record may be told by a warning
                return self._rounded.release_sum(clipped, source)

        return released(draw, lambda: self._described(column_sums(clipped).doubles()), source)

    def release_sum_blocks(
        self, blocks: Iterable[ArrayLike], generator: RandomSource | None = None
    ) -> Vector:
        """Do what `release_sum` does, of a table that comes in blocks of rows, one at a time.

        Args:
            blocks: tables with one row per record; how rows are spread over them makes no
                difference, to the last bit. Rows with NaN or infinity count as zero.
            generator: where the noise comes from, as for `release`.

        **Guarantee**: that of `release_sum`.

        Example:
            >>> from taut.noise import Box, optimal_laplace
            >>> noise = optimal_laplace(Box([1.0, 1.0]), epsilon=1.0)
            >>> noise.release_sum_blocks([[[0.5, 2.0]], [[0.25, -1.0], [1.0, 1.0]]]).shape
            (2,)
        """
        total = FixedPoint(np.zeros((1, self.sensitivity.dimension)), 0)
        for block in blocks:
            clipped = np.atleast_2d(self.sensitivity.clip(real_numbers(block, "rows")))
            total = total.plus(column_sums(clipped))
        source = default_generator() if generator is None else generator

        def draw() -> Vector:
            with np.errstate(all="ignore"):  # no record may be told by a warning
                return self._rounded.release_exact(total, source)

        return released(draw, lambda: self._described(total.doubles()), source)

    def release_integers(
        self,
        integers: Sequence[int],
        units: ArrayLike,
        generator: RandomSource | None = None,
    ) -> Vector:
        """Release a vector that is known exactly, as integers of units: sums of any engine.

        Args:
            integers: one integer of any size per coordinate; their neighbouring values must differ
                by a member of the set once they are multiplied by the units.
            units: what an integer of one stands for in every coordinate, powers of two.
            generator: where the noise comes from, as for `release`.

        **Guarantee**: that of `release`, without a rounding of the value.

        Raises:
            UnsoundConfiguration: for noise along a basis, which needs products with it.
            ValueError: if there are not as many as coordinates, or a unit is no power of two.

        Example:
            >>> from taut.noise import Box, optimal_laplace
            >>> noise = optimal_laplace(Box([0.5]), epsilon=1.0)
            >>> noise.release_integers([2**70 + 1], [2.0**-40]).shape
            (1,)
        """
        exact = self._rounded
        if not isinstance(exact, ExactRelease):
            raise UnsoundConfiguration(
                "integers are released along coordinates, and this noise has a basis; use release"
            )
        exponents = _exponents_of(units, self.sensitivity.dimension)
        given = [operator.index(integer) for integer in integers]
        if len(given) != len(exponents):
            raise ValueError(
                f"integers must be as many as coordinates, {len(exponents)}, got {len(given)}"
            )
        source = default_generator() if generator is None else generator

        def draw() -> Vector:
            with np.errstate(all="ignore"):  # no value may be told by a warning
                return exact.on_grid(exact_integers(given, exponents, exact.exponents), source)

        def described() -> Release:
            doubles = [_double(*pair) for pair in zip(given, exponents, strict=True)]
            return self._described(np.array(doubles))

        return released(draw, described, source)

    def _described(self, value: Vector, public: Vector | None = None) -> Release:
        """Return what a replay is told of a release."""
        errors = self.coordinate_errors(1.0)
        settings: dict[str, object] = {"errors": errors, "radius": self.certificate.radius}
        if public is not None:
            settings["public"] = public - self._hidden(public)
        return Release(
            type(self).__name__,
            self._hidden(value),  # nothing else of it is released
            self.sensitivity,
            settings,
            loss=lambda: self.loss,
            resolution=min(float(self.grid.max() / errors[errors > 0].min(initial=1.0)), 1.0),
        )

    @property
    @abstractmethod
    def _rounded(self) -> GridRelease:
        """The noise on its grid."""

    @abstractmethod
    def _hidden(self, vector: Vector) -> Vector:
        """Return the part of a vector in the directions that have noise."""

    def _checked(self, value: ArrayLike, name: str) -> Vector:
        vector = real_numbers(value, name)
        if vector.shape != (self.sensitivity.dimension,):
            raise ValueError(
                f"{name} must be a vector of {self.sensitivity.dimension} numbers, "
                f"got shape {vector.shape}"
            )
        if not np.isfinite(vector).all():
            raise ValueError(
                f"{name} must be finite, got NaN or infinity; clip every record first, as "
                "release_sum does"
            )
        return vector


def _exponents_of(units: ArrayLike, dimension: int) -> list[int]:
    """Return the binary logarithms of units."""
    given = real_numbers(units, "units")
    if given.shape != (dimension,):
        raise ValueError(f"units must be {dimension} numbers, got shape {given.shape}")
    halves, exponents = np.frexp(given)
    if not (halves == 0.5).all():
        wrong = float(given[np.argmin(halves == 0.5)])
        raise ValueError(f"units must be powers of two, got {wrong!r}")
    return [int(exponent) - 1 for exponent in exponents]


def _double(integer: int, exponent: int) -> float:
    """Return an integer times a power of two, for what looks at it in doubles."""
    value = Fraction(integer) * Fraction(2) ** exponent
    return float(max(min(value, _FAR), -_FAR))
