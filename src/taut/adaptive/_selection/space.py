"""Public spaces of settings, of which every trial draws one."""

from __future__ import annotations

import copy
import json
import math
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from itertools import product
from pathlib import Path
from typing import Any

from taut._base import validate
from taut.noise import RandomSource

__all__ = ["Range", "Setting", "Space"]

_MOST_SETTINGS = 10_000  # of a grid: every one of them has a loss that is added up


@dataclass(frozen=True)
class Range:
    """Numbers between two bounds, all as likely, or all of their logarithms.

    Attributes:
        low: least value.
        high: largest value.
        log: whether the logarithm is uniform; both bounds are then positive.

    Example:
        >>> from taut.adaptive import Range
        >>> Range(1e-3, 1.0, log=True).at(0.5)
        0.0316...
    """

    low: float
    high: float
    log: bool = False

    def __post_init__(self) -> None:
        low, high = validate.finite(low=self.low), validate.finite(high=self.high)
        if not low < high:
            raise ValueError(f"low must be below high, got low={low!r}, high={high!r}")
        if validate.flag(log=self.log):
            validate.positive(low=low)

    def at(self, share: float) -> float:
        """Return the value that a share of the range lies below."""
        if self.log:
            low, high = math.log(self.low), math.log(self.high)
            value = math.exp(low * (1 - share) + high * share)
        else:
            value = self.low * (1 - share) + self.high * share
        return min(max(value, self.low), self.high)


class Setting(Mapping[str, Any]):
    """The values of one trial by name, and where the trial may keep files.

    Attributes:
        directory: directory of the trial alone, private, there again after a kill; None if the
            search keeps no files.
    """

    def __init__(self, values: Mapping[str, Any], directory: Path | None = None) -> None:
        """Take values by name.

        Args:
            values: what was drawn.
            directory: directory of the trial.
        """
        # A list that a trial changed would tell the next one about the data.
        self._values = copy.deepcopy(dict(values))
        self.directory = directory

    def __getitem__(self, name: str) -> Any:
        return self._values[name]

    def __iter__(self) -> Iterator[str]:
        return iter(self._values)

    def __len__(self) -> int:
        return len(self._values)

    def __repr__(self) -> str:
        return f"Setting({self._values!r})"


@dataclass(frozen=True)
class Space:
    """A public space of settings: for every name a list of values, or a `Range`.

    **Guarantee**: none is needed, if the space was written without a look at the private data:
    names, values and bounds are published. A grid that was narrowed after earlier trials on the
    same data is not public; those trials count too.

    Attributes:
        axes: values by name.

    Example:
        >>> from taut.adaptive import Range, Space
        >>> Space({"norm": [0.1, 1.0], "optimizer": ["sgd", "adam"]}).size
        4
        >>> Space({"rate": Range(0.01, 1.0, log=True)}).size is None
        True
    """

    axes: Mapping[str, Sequence[Any] | Range]

    def __post_init__(self) -> None:
        if not isinstance(self.axes, Mapping) or not self.axes:
            raise ValueError("a space needs a name with values at least, got an empty one")
        for name, values in self.axes.items():
            if not isinstance(name, str):
                raise validate.WrongType(f"names of a space must be texts, got {name!r}")
            if isinstance(values, Range):
                continue
            if isinstance(values, str | bytes) or not isinstance(values, Sequence):
                raise validate.WrongType(
                    f"values of {name!r} must be a list or a Range, got {values!r}"
                )
            if not values:
                raise ValueError(f"values of {name!r} must not be empty: there is nothing to try")
            for value in values:
                if isinstance(value, float) and not math.isfinite(value):
                    raise ValueError(f"values of {name!r} must be finite, got {value!r}")
        if self.size is not None and self.size > _MOST_SETTINGS:
            raise ValueError(
                f"a grid may have {_MOST_SETTINGS} settings, got {self.size}; leave some out, or "
                "use a Range"
            )

    def checked(self, *, plain: bool) -> Space:
        """Return a space whose values every trial can have a copy of.

        Args:
            plain: whether values are to be what JSON makes of them, such as lists of tuples: those
                of a search that was killed and goes on.

        Raises:
            TypeError: if a value cannot be copied, or JSON cannot hold it.
        """
        axes: dict[str, Any] = {}
        for name, values in self.axes.items():
            axes[name] = values
            try:
                if plain and not isinstance(values, Range):
                    axes[name] = json.loads(json.dumps(list(values)))
                else:
                    copy.deepcopy(values)
            except Exception as error:
                how = "that JSON can hold, as files are kept" if plain else "that can be copied"
                raise validate.WrongType(
                    f"values of {name!r} must be ones {how}, such as numbers of Python, texts and "
                    f"lists: {error}"
                ) from None
        return Space(axes)

    @property
    def size(self) -> int | None:
        """How many settings there are; None if a range has no end of them."""
        sizes = [1 if isinstance(v, Range) else len(v) for v in self.axes.values()]
        ranged = any(isinstance(values, Range) for values in self.axes.values())
        return None if ranged else math.prod(sizes)

    @property
    def settings(self) -> list[dict[str, Any]]:
        """All settings of a grid.

        Raises:
            ValueError: if there is no end of them.
        """
        if self.size is None:
            raise ValueError("a space with a Range has no list of settings")
        lists = [v for v in self.axes.values() if not isinstance(v, Range)]
        return [dict(zip(self.axes, values, strict=True)) for values in product(*lists)]

    def draw(self, generator: RandomSource) -> dict[str, Any]:
        """Return a setting: of a grid, all are exactly as likely."""
        drawn = {}
        for name, values in self.axes.items():
            if isinstance(values, Range):
                drawn[name] = values.at(float(generator.uniform(1)[0]))
            else:
                drawn[name] = values[int(generator.uniform_below(len(values), 1)[0])]
        return drawn
