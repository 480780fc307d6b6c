"""Foreign code that takes part in replays: noise that is drawn first and added later.

A generator does not see what its numbers are added to. So a draw is an array that remembers being
one: multiplied by a constant it still is, and added to a value it makes a release of the sum.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np
from numpy.typing import NDArray

from taut._base import validate
from taut.audit._replay.wrapped_functions import KINDS, foreign_release
from taut.noise.recording import active

__all__ = ["NoiseDraw", "recorded_generator"]

_ADDS = (np.add, np.subtract)


class NoiseDraw(np.ndarray[Any, Any]):
    """Noise that has not been added to anything yet.

    Attributes:
        kind: name of the distribution.
        scale: its scale.
        sensitivity: declared bound on what one record changes in the value it is added to.
        is_spent: whether something else was written into it, a value above all: then it is an array
            like any other.
    """

    kind: str
    scale: float
    sensitivity: object
    source: object
    is_spent: bool

    def __array_finalize__(self, parent: Any) -> None:
        self.kind = getattr(parent, "kind", "noise")
        self.scale = getattr(parent, "scale", 0.0)
        self.sensitivity = getattr(parent, "sensitivity", 0.0)
        self.source = getattr(parent, "source", None)
        self.is_spent = getattr(parent, "is_spent", False)

    def __setitem__(self, key: Any, value: Any) -> None:
        self.is_spent = True
        np.asarray(self)[key] = value

    def __getitem__(self, key: Any) -> Any:
        """Return a part of the noise, a single number among it, as noise."""
        part = np.asarray(self)[key]
        return part if self.is_spent else _draw(np.asarray(part), self, self.scale)

    def __array_ufunc__(self, ufunc: Any, method: str, *inputs: Any, **options: Any) -> Any:
        """Make a release of a sum, a draw of a multiple, and plain numbers of everything else."""
        if method == "__call__" and _is_plain(inputs, options):
            if ufunc in _ADDS and (release := self._added(ufunc, *inputs, **options)) is not None:
                return release
            if (factor := _factor(ufunc, *inputs)) is not None:
                return self._multiplied(factor, **options)
        plain = [np.asarray(part) if isinstance(part, NoiseDraw) else part for part in inputs]
        if "out" in options:
            options["out"] = tuple(_written(part) for part in options["out"])
        return getattr(ufunc, method)(*plain, **options)

    def _multiplied(self, factor: float, out: tuple[Any, ...] = ()) -> Any:
        """Return a multiple of the noise, which may be written into itself."""
        product = np.multiply(np.asarray(self), factor)
        if not out:
            return _draw(product, self, abs(factor) * self.scale)
        (place,) = out
        np.copyto(_written(place), product, casting="same_kind")
        if place is self:
            self.scale, self.is_spent = abs(factor) * self.scale, False
        return place

    def _added(self, ufunc: Any, one: Any, other: Any, **options: Any) -> Any:
        """Return the release of value plus noise; None if this is a sum of draws."""
        if _is_noise(one) and (_is_noise(other) or ufunc is np.subtract):
            return None
        value = other if _is_noise(one) else one
        noise = np.asarray(self)

        def draw() -> Any:
            return ufunc(*(noise if part is self else part for part in (one, other)))

        recorder = active()
        if recorder is None:
            outcome = draw()
        else:
            shaped = np.broadcast_to(np.asarray(value, dtype=np.float64), np.shape(draw()))
            norm = KINDS.get(self.kind, 2.0)
            release = foreign_release(self.kind, shaped, self.sensitivity, self.scale, norm)
            outcome = recorder.release(draw, release, self.source)
        if "out" in options:
            np.copyto(_written(options["out"][0]), outcome, casting="same_kind")
            return options["out"][0]
        return outcome


class RecordedGenerator:
    """A generator of NumPy whose draws of noise take part in replays; made by `recorded_generator`.

    Args:
        generator: the generator that draws.
        sensitivity: declared bound on what one record changes in values that noise is added to.
    """

    def __init__(self, generator: np.random.Generator, sensitivity: object) -> None:
        self._generator = generator
        self._sensitivity = sensitivity

    def __getattr__(self, name: str) -> Any:
        if name.startswith("__") or name == "_generator":  # a copy asks before it has one
            raise AttributeError(name)
        found = getattr(self._generator, name)
        if not callable(found):
            return found

        def drawn(*arguments: Any, **named: Any) -> Any:
            recorder = active()
            if recorder is not None:
                recorder.follow(self._generator)
            return found(*arguments, **named)

        return drawn

    def normal(self, loc: Any = 0.0, scale: Any = 1.0, size: Any = None) -> Any:
        """Draw normal noise: a part of a release, if it is not moved."""
        return self._noise("gaussian", self._generator.normal, loc, scale, size)

    def laplace(self, loc: Any = 0.0, scale: Any = 1.0, size: Any = None) -> Any:
        """Draw Laplace noise: a part of a release, if it is not moved."""
        return self._noise("laplace", self._generator.laplace, loc, scale, size)

    def standard_normal(self, size: Any = None, dtype: Any = np.float64, out: Any = None) -> Any:
        """Draw normal noise of deviation one, which may be multiplied with a scale."""
        recorder = active()
        if recorder is None:
            return self._generator.standard_normal(size, dtype, out)
        if out is not None:
            raise validate.WrongType(
                "a recorded generator draws into no array of the program; leave out= away"
            )
        recorder.follow(self._generator)
        noise = np.asarray(self._generator.standard_normal(size, dtype))
        return _new_draw(noise, "gaussian", 1.0, self._sensitivity, self._generator)

    def _noise(self, kind: str, draw: Callable[..., Any], loc: Any, scale: Any, size: Any) -> Any:
        recorder = active()
        if recorder is None:
            return draw(loc, scale, size)
        recorder.follow(self._generator)
        if np.ndim(scale):
            raise validate.WrongType(
                "a recorded generator draws noise of one scale at a time; draw with scale 1 and "
                "multiply, or wrap the function with taut.audit.recorded"
            )
        noise = np.asarray(draw(0.0, scale, np.shape(loc) if size is None else size))
        drawn = _new_draw(noise, kind, float(scale), self._sensitivity, self._generator)
        # Many write the value as the centre of the noise: then the release is right here.
        return drawn if isinstance(loc, int | float) and loc == 0 else loc + drawn


def recorded_generator(generator: np.random.Generator, *, sensitivity: object) -> Any:
    """Return a generator of NumPy whose noise takes part in replays, wherever it is added.

    Args:
        generator: generator of the program, such as ``np.random.default_rng()``.
        sensitivity: what one record may change in a value that gets noise: a sensitivity set, or a
            length, in l2 for normal noise and in l1 for Laplace noise.

    `normal`, `laplace` and `standard_normal` then return arrays that know that they are noise. Such
    an array may be multiplied with a number, in place too; added to a value, or taken from it, the
    sum is a release, and what was written into is noise no more. All else that is done with it
    makes plain numbers of it: a release that a replay does not see, and whose result it finds to
    depend on the data. Give such functions to `recorded`.

    **Guarantee**: outside of a replay, the numbers and types of the generator itself.

    Example:
        >>> import numpy as np
        >>> from taut.audit import recorded_generator, replay
        >>> draw = recorded_generator(np.random.default_rng(), sensitivity=1.0)
        >>> def private_sum(rows):
        ...     return np.sum(rows) + 2.0 * draw.standard_normal()
        >>> ages = np.array([0.3, 2.7, 0.5])
        >>> result = replay(private_sum, ages[:2], ages[:1], crafted=True)
        >>> round(result.releases[0].measured, 6)
        2.7
    """
    if not isinstance(generator, np.random.Generator):
        raise validate.WrongType(
            f"generator must be one of numpy.random.default_rng(), got generator={generator!r}; "
            "wrap functions that add noise with taut.audit.recorded"
        )
    return RecordedGenerator(generator, sensitivity)


def _new_draw(
    noise: NDArray[np.floating[Any]], kind: str, scale: float, sensitivity: object, source: object
) -> NoiseDraw:
    drawn = noise.view(NoiseDraw)
    drawn.kind, drawn.scale, drawn.sensitivity, drawn.source = kind, scale, sensitivity, source
    drawn.is_spent = False
    return drawn


def _draw(noise: NDArray[np.float64], like: NoiseDraw, scale: float) -> NoiseDraw:
    return _new_draw(np.asarray(noise), like.kind, scale, like.sensitivity, like.source)


def _is_noise(part: Any) -> bool:
    return isinstance(part, NoiseDraw) and not part.is_spent


def _is_plain(inputs: tuple[Any, ...], options: dict[str, Any]) -> bool:
    return not set(options) - {"out"} and any(_is_noise(part) for part in inputs)


def _written(place: Any) -> Any:
    """Return an array that something is written into; noise is no noise after that."""
    if isinstance(place, NoiseDraw):
        place.is_spent = True
        return np.asarray(place)
    return place


def _factor(ufunc: Any, one: Any, other: Any = None) -> float | None:
    """Return the number that a draw is multiplied with, if that is all that happens."""
    if other is None:
        return -1.0 if ufunc is np.negative else None
    number, is_left = (other, True) if _is_noise(one) else (one, False)
    if isinstance(number, NoiseDraw) or np.ndim(number):
        return None
    if ufunc is np.multiply:
        return float(number)
    is_quotient = ufunc in (np.divide, np.true_divide) and is_left and number
    return 1 / float(number) if is_quotient else None
