"""One source of random bits for a run, split into what chooses examples and what makes noise."""

from __future__ import annotations

from taut._base import validate
from taut.noise import RandomSource, SeededForExperiments, default_generator

__all__ = ["checked", "split"]

_WORD = 8


def checked(generator: object) -> RandomSource:
    """Refuse what is no source of random bits of this package."""
    if not isinstance(generator, RandomSource):
        raise validate.WrongType(
            f"the generator of choices and noise must be a RandomSource, got {generator!r}; leave "
            "it out for the secure one, or give SeededForExperiments(seed=0) to repeat an "
            "experiment (generators of torch are not secure)"
        )
    return generator


def split(generator: RandomSource | None) -> tuple[RandomSource, RandomSource]:
    """Return the sources for sampling and for noise.

    A secure source serves both. A seed is split in two, so that loading examples ahead of time does
    not shift the noise of an experiment that is repeated.
    """
    source = default_generator() if generator is None else checked(generator)
    if isinstance(source, SeededForExperiments):
        seed = int.from_bytes(source.bytes(_WORD), "little") >> 8
        return SeededForExperiments(seed=seed), source
    return source, source
