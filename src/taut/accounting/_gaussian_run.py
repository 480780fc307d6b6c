"""A run of noisy sums, as people describe it: one vocabulary, and one loss, for every command."""

from __future__ import annotations

import math
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass, fields
from enum import StrEnum
from typing import Any

from taut._base import validate
from taut.accounting._adjacency import Adjacency
from taut.accounting._loss import PrivacyLoss
from taut.accounting._mechanisms.noise import gaussian
from taut.accounting._releases.release import Release

__all__ = ["GaussianRun", "Sampler", "as_sampler", "samplers_of"]

_POISSON = ("poisson", "poisson_replace", "poisson_rdp", "twice_sampled", "twice_sampled_blocks")
"""Releases whose record rate is that of a Poisson sample, whatever its value."""

_LEAST_RATE = 1e-18  # an epoch then has as many steps as 64 bits count
_WHOLE = 1e-12  # relative: what division adds to a whole number of steps must not cost one more


class Sampler(StrEnum):
    """How a step chooses its records; the names are those of plans and statements."""

    POISSON = "poisson"
    FIXED_SIZE = "fixed_size"
    SHUFFLE = "shuffle"
    NONE = "none"

    @property
    def usual_adjacency(self) -> Adjacency:
        """The relation that is meant if none is named: the one that training accounts for.

        Batches of one size have it for replace-one, where the number of records is public.
        Adding a record changes which sizes are possible, and needs a word from whoever claims it.
        """
        return _USUAL[self]


_USUAL = {
    Sampler.POISSON: Adjacency.ADD_REMOVE,
    Sampler.FIXED_SIZE: Adjacency.REPLACE,
    Sampler.SHUFFLE: Adjacency.ZERO_OUT,
    Sampler.NONE: Adjacency.ADD_REMOVE,
}


def as_sampler(name: object) -> Sampler:
    """Return the sampler of a name; fixed-size and fixed_size are one.

    Raises:
        ValueError: for any other name.
    """
    word = name.strip().lower().replace("-", "_").replace(" ", "_") if isinstance(name, str) else ""
    try:
        return Sampler(word)
    except ValueError:
        known = ", ".join(Sampler)
        raise ValueError(f"sampler must be one of {known}, got sampler={name!r}") from None


@dataclass(frozen=True)
class GaussianRun:
    """Equal steps of a clipped sum with Gaussian noise, under one sampler; noise is left open.

    Attributes:
        sampler: how a step chooses its records.
        rate: the share of all records that a step looks at.
        steps: how many there are.
        epochs: how many passes over the data they are, rounded up.
        sizes: the batch and the number of records, where they are known.
    """

    sampler: Sampler
    rate: float
    steps: int
    epochs: int
    sizes: tuple[int, int] | None = None

    def loss(
        self, sigma: float, adjacency: Adjacency | None = None, *, exchange: float = 2.0
    ) -> PrivacyLoss:
        """Return the loss of all steps.

        Args:
            sigma: standard deviation of the noise over the clipping norm.
            adjacency: the relation; that of the sampler by default.
            exchange: how far an exchanged record moves the sum, in clipping norms.

        **Guarantee**: under replace-one, the sum moves by twice the clipping norm. Shuffled epochs
        are credited with no amplification: a record is in one batch of an epoch, so an epoch costs
        one release.
        """
        relation = self.sampler.usual_adjacency if adjacency is None else adjacency
        other = gaussian(sigma, sensitivity=exchange, adjacency=Adjacency.REPLACE)
        if self.sampler is Sampler.FIXED_SIZE:
            assert self.sizes is not None
            return self.steps * other.fixed_size(*self.sizes, relation)
        is_exchange = relation is Adjacency.REPLACE
        plain = other if is_exchange else gaussian(sigma, adjacency=relation)
        if self.sampler is Sampler.POISSON:
            removal = gaussian(sigma) if is_exchange else None
            return self.steps * plain.poisson(self.rate, removal=removal)
        return (self.epochs if self.sampler is Sampler.SHUFFLE else self.steps) * plain

    @classmethod
    def described(
        cls,
        sampler: Sampler,
        given: Mapping[str, Any],
        *,
        named: Callable[[str], str] = repr,
        steps: int | None = None,
    ) -> GaussianRun:
        """Return the run that `given` describes.

        Args:
            sampler: how a step chooses its records.
            given: `rate`, or `batch_size` and `examples`; `steps` or `epochs`.
            named: how messages spell such a name.
            steps: how many there are if nothing is said.

        Raises:
            ValueError: if something is missing, given twice, or does not fit.
        """
        rate, sizes = _batches(sampler, given, named)
        per_epoch = max(math.floor(1 / rate * (1 + _WHOLE)), 1) if rate > 0 else 1
        if "steps" in given and "epochs" in given:
            raise ValueError(f"give either {named('steps')} or {named('epochs')}, not both")
        if "epochs" in given:
            epochs = validate.positive(epochs=given["epochs"])
            if not rate > 0:
                raise ValueError(f"{named('rate')} must be greater than 0 for epochs, got rate=0")
            count = max(math.ceil(epochs / rate * (1 - _WHOLE)), 1)
            return cls(sampler, rate, count, math.ceil(epochs), sizes)
        if "steps" not in given and steps is None:
            raise ValueError(f"give either {named('steps')} or {named('epochs')}")
        count = validate.integer(steps=given.get("steps", steps))
        return cls(sampler, rate, count, -(-count // per_epoch), sizes)


def _batches(
    sampler: Sampler, given: Mapping[str, Any], named: Callable[[str], str]
) -> tuple[float, tuple[int, int] | None]:
    """Return the rate, and the batch and the number of records if they are given."""
    keys = {key for key in ("rate", "batch_size", "examples") if key in given}
    both = f"{named('batch_size')} and {named('examples')}"
    if sampler is Sampler.NONE:
        unused = " and ".join(named(key) for key in sorted(keys - {"examples"}))
        if unused:
            raise ValueError(
                f"the sampler none looks at all records and does not use {unused}; leave that out, "
                "or choose another sampler"
            )
        return 1.0, None
    if keys >= {"batch_size", "examples"} and "rate" not in keys:
        size = validate.positive_integer(batch_size=given["batch_size"])
        examples = validate.positive_integer(examples=given["examples"])
        if size > examples:
            raise ValueError(
                f"batch_size must be at most examples={examples}, got batch_size={size}"
            )
        return size / examples, (size, examples)
    if sampler is Sampler.FIXED_SIZE:
        raise ValueError(f"the sampler {sampler} needs {both}, not a rate")
    if "rate" not in keys or "batch_size" in keys:
        raise ValueError(f"the sampler {sampler} needs either {named('rate')}, or {both}")
    return _rate(given["rate"], sampler), None


def _rate(value: object, sampler: Sampler) -> float:
    rate = validate.probability(rate=value)
    if rate < _LEAST_RATE and (rate > 0 or sampler is not Sampler.POISSON):
        raise ValueError(f"rate must be greater than 0, at least {_LEAST_RATE}, got {rate=!r}")
    return rate


def samplers_of(loss: PrivacyLoss) -> tuple[Sampler, ...]:
    """Return the ways in which releases of a loss draw records, as far as they say so."""
    found = {sampler for release, _ in loss.terms for sampler in _drawn(release)}
    return tuple(sampler for sampler in Sampler if sampler in found)


def _drawn(release: Release) -> Iterator[Sampler]:
    """Yield the samplers of a release and of those inside of it."""
    if release.draws_batches:
        yield Sampler.FIXED_SIZE
    if release.kind in _POISSON:
        yield Sampler.POISSON
    for field in fields(release):
        value = getattr(release, field.name)
        for part in value if isinstance(value, tuple) else (value,):
            if isinstance(part, Release):
                yield from _drawn(part)
