"""A run of noisy sums, as people describe it: one vocabulary, and one loss, for every room.

A sampler is described here and nowhere else: its name, how its batches may be given, the relations
that it has a theorem for, and the loss of a run. To add one, add a member to `Sampler` and a rule
to `_RULES`; the commands, comparisons, reports, statements and plans follow.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Iterator
from dataclasses import dataclass, fields
from enum import StrEnum

from taut._base import validate
from taut.accounting._adjacency import Adjacency
from taut.accounting._loss import PrivacyLoss
from taut.accounting._mechanisms.noise import gaussian
from taut.accounting._releases.allocated import Allocated
from taut.accounting._releases.release import Release
from taut.accounting._releases.truncated import TruncatedPoisson, truncation_probability

__all__ = ["GaussianRun", "Sampler", "samplers_of"]

_LEAST_RATE = 1e-18  # an epoch then has as many steps as 64 bits count
_WHOLE = 1e-12  # relative: what division adds to a whole number of steps must not cost one more
_WHOLE_EPOCH = 1e-9  # relative: a rate that was printed or divided still means a whole epoch
_SELDOM = 1e-6  # of batches: what a cap costs then is mostly beyond the printed digits
_EXCHANGE = 2.0  # in clipping norms: an exchanged record takes one away and adds another


class Sampler(StrEnum):
    """How a step chooses its records: the names that commands, plans and statements share.

    A name is found whatever its case, with hyphens, blanks or underscores.

    **Guarantee**: none of its own. What a sampler promises is the loss of a `GaussianRun`.

    Raises:
        ValueError: for a name that is not known.

    Example:
        >>> from taut.accounting import Sampler
        >>> Sampler("fixed-size"), Sampler("Poisson").usual_adjacency
        (<Sampler.FIXED_SIZE: 'fixed_size'>, <Adjacency.ADD_REMOVE: 'add_remove'>)
    """

    POISSON = "poisson"
    """Every record joins a step independently, with one probability."""
    TRUNCATED_POISSON = "truncated_poisson"
    """As Poisson, but of more records than a cap a uniform subset of that size is kept."""
    ALLOCATION = "allocation"
    """Every record draws one step of every epoch, uniformly, and joins that step alone."""
    FIXED_SIZE = "fixed_size"
    """Every step draws a subset of one size afresh, uniform among all of that size."""
    SHUFFLE = "shuffle"
    """Records are permuted once an epoch, and batches are cut from that order."""
    NONE = "none"
    """Every step looks at all records."""

    @property
    def usual_adjacency(self) -> Adjacency:
        """The relation that is meant if none is named: the one that training accounts for.

        Batches of one size have it for replace-one, where the number of records is public.
        Adding a record changes which sizes are possible, and needs a word from whoever claims it.
        """
        return _RULES[self].usual

    @property
    def compared_adjacencies(self) -> tuple[Adjacency, ...]:
        """The relations for which `compare_samplers` shows the sampler; none for no sampling."""
        return _RULES[self].compared

    @classmethod
    def _missing_(cls, value: object) -> Sampler:
        word = value.strip().lower() if isinstance(value, str) else ""
        word = word.replace("-", "_").replace(" ", "_")
        if word in cls.__members__.values():
            return cls(word)
        raise ValueError(f"sampler must be one of {', '.join(cls)}, got sampler={value!r}")


@dataclass(frozen=True)
class GaussianRun:
    """Equal steps of a clipped sum with Gaussian noise, under one sampler; noise is left open.

    Make one with `of`, which derives what is not given.

    Args:
        sampler: how a step chooses its records.
        rate: the share of all records that a step looks at.
        steps: the number of steps.
        epochs: the number of passes over the data that the steps are, rounded up.
        sizes: the batch size and the number of records, where they are known.
        cap: the most records of a batch, and of a dataset, for the sampler truncated_poisson.

    **Guarantee**: `loss` bounds what all steps together reveal, under the relation that is asked
    for, if batches are drawn as the sampler says and stay secret.

    Example:
        >>> from taut.accounting import GaussianRun
        >>> run = GaussianRun.of("poisson", rate=0.01, steps=1_000)
        >>> round(run.loss(sigma=1.0).epsilon(delta=1e-5), 2)
        1.83
        >>> shuffled = GaussianRun.of("shuffle", batch_size=100, examples=10_000, epochs=10)
        >>> shuffled.steps, round(shuffled.loss(sigma=1.0).epsilon(delta=1e-5), 2)
        (1000, 17.86)
    """

    sampler: Sampler
    rate: float
    steps: int
    epochs: int
    sizes: tuple[int, int] | None = None
    cap: tuple[int, int] | None = None

    @classmethod
    def of(
        cls,
        sampler: Sampler | str,
        *,
        steps: int | None = None,
        epochs: float | None = None,
        rate: float | None = None,
        batch_size: int | None = None,
        examples: int | None = None,
        cap: int | None = None,
        named: Callable[[str], str] = repr,
    ) -> GaussianRun:
        """Return the run that people describe so.

        Args:
            sampler: how a step chooses its records.
            steps: the number of steps; or
            epochs: the number of passes over the data, which may be a fraction.
            rate: the share of all records that a step looks at; or
            batch_size: the (expected) number of records in a batch, together with
            examples: the number of records that batches are drawn from.
            cap: the most records of a batch, for the sampler truncated_poisson alone.
            named: how messages spell the name of an argument.

        Raises:
            ValueError: if something is missing, given twice, or does not fit.
        """
        kind = Sampler(sampler)
        given = {"rate": rate, "batch_size": batch_size, "examples": examples}
        share, sizes = _batches(kind, {k: v for k, v in given.items() if v is not None}, named)
        most = _capped(kind, cap, share, examples, named)
        if steps is not None and epochs is not None:
            raise ValueError(f"give either {named('steps')} or {named('epochs')}, not both")
        if epochs is not None:
            passes = validate.positive(epochs=epochs)
            if not share > 0:
                raise ValueError(f"{named('rate')} must be greater than 0 for epochs, got rate=0")
            count = max(math.ceil(passes / share * (1 - _WHOLE)), 1)
            return cls(kind, share, count, math.ceil(passes), sizes, most)
        if steps is None:
            raise ValueError(f"give either {named('steps')} or {named('epochs')}")
        run = cls(kind, share, validate.integer(steps=steps), 0, sizes)
        return cls(kind, share, run.steps, -(-run.steps // run.epoch_steps), sizes, most)

    @property
    def epoch_steps(self) -> int:
        """The number of whole batches in one pass over the data."""
        if self.sizes is not None:
            size, examples = self.sizes
            return examples // size
        if self.sampler is Sampler.ALLOCATION:
            return round(1 / self.rate)
        return max(math.floor(1 / self.rate * (1 + _WHOLE)), 1) if self.rate > 0 else 1

    def loss(
        self, sigma: float, adjacency: Adjacency | None = None, *, exchange: float = _EXCHANGE
    ) -> PrivacyLoss:
        """Return the loss of all steps.

        Args:
            sigma: the standard deviation of the noise over the clipping norm.
            adjacency: the neighbouring relation; that of the sampler by default.
            exchange: the distance, in clipping norms, by which an exchanged record moves the sum.
                Whoever changes it computes what a mistaken account would say.

        **Guarantee**: under replace-one, the sum moves by twice the clipping norm. Shuffled epochs
        are credited with no amplification: a record is in one batch of an epoch, so an epoch costs
        one release.
        """
        relation = self.sampler.usual_adjacency if adjacency is None else adjacency
        return _RULES[self.sampler].loss(self, _NoisySum(sigma, exchange), relation)

    def assumes(self, adjacency: Adjacency | None = None) -> str:
        """Return what has to hold for the loss under a relation, in words."""
        relation = self.sampler.usual_adjacency if adjacency is None else adjacency
        public = "; size public" if relation is Adjacency.REPLACE else ""
        rule = _RULES[self.sampler]
        cap, records = self.cap or (0, 0)
        words = rule.assumes.format(epoch_steps=self.epoch_steps, cap=cap, records=records)
        return words + (public if rule.draws else "")


# --- what each sampler is worth ------------------------------------------------------------------


@dataclass(frozen=True)
class _NoisySum:
    """The sum of one step over a given batch, clipped at one."""

    sigma: float
    exchange: float

    def under(self, relation: Adjacency) -> PrivacyLoss:
        if relation is Adjacency.REPLACE:
            return gaussian(self.sigma, sensitivity=self.exchange, adjacency=relation)
        return gaussian(self.sigma, adjacency=relation)


def _poisson(run: GaussianRun, step: _NoisySum, relation: Adjacency) -> PrivacyLoss:
    # A sample may hold the old record, the new one or none: the last takes a loss of its own.
    removal = step.under(Adjacency.ADD_REMOVE) if relation is Adjacency.REPLACE else None
    return run.steps * step.under(relation).poisson(run.rate, removal=removal)


def _truncated_poisson(run: GaussianRun, step: _NoisySum, relation: Adjacency) -> PrivacyLoss:
    # A full batch exchanges a record, and how full batches are must not depend on a secret size.
    if run.cap is None:
        raise ValueError("the sampler truncated_poisson needs a cap and a number of records")
    cap, records = run.cap
    exchange = step.under(Adjacency.REPLACE)
    return run.steps * step.under(relation).truncated_poisson(
        run.rate, cap, records, exchange, or_fewer=True
    )


def _allocation(run: GaussianRun, step: _NoisySum, relation: Adjacency) -> PrivacyLoss:
    # An epoch that was stopped in the middle has a loss of its own, less than that of a whole one.
    epochs, taken = divmod(run.steps, run.epoch_steps)
    once = step.under(relation)
    whole = epochs * once.allocated(run.epoch_steps)
    return whole + once.allocated(run.epoch_steps, taken=taken) if taken else whole


def _fixed_size(run: GaussianRun, step: _NoisySum, relation: Adjacency) -> PrivacyLoss:
    # Batches of one size differ by an exchanged record, whatever the relation.
    if run.sizes is None:
        raise ValueError("the sampler fixed_size needs a batch size and a number of records")
    return run.steps * step.under(Adjacency.REPLACE).fixed_size(*run.sizes, relation)


def _shuffle(run: GaussianRun, step: _NoisySum, relation: Adjacency) -> PrivacyLoss:
    return run.epochs * step.under(relation)


def _none(run: GaussianRun, step: _NoisySum, relation: Adjacency) -> PrivacyLoss:
    return run.steps * step.under(relation)


@dataclass(frozen=True)
class _Rule:
    """What is known of a sampler."""

    usual: Adjacency
    loss: Callable[[GaussianRun, _NoisySum, Adjacency], PrivacyLoss]
    assumes: str
    compared: tuple[Adjacency, ...] = ()
    draws: bool = True
    """Whether batches are random and secret, and their size matters under replace-one."""
    needs_sizes: bool = False
    needs_cap: bool = False
    """Whether batches have a cap; how often it cuts them depends on the number of records."""


_RULES = {
    Sampler.POISSON: _Rule(
        Adjacency.ADD_REMOVE,
        _poisson,
        "each record joins independently; sample and its size stay secret",
        compared=(Adjacency.ADD_REMOVE, Adjacency.REPLACE),
    ),
    Sampler.TRUNCATED_POISSON: _Rule(
        Adjacency.ADD_REMOVE,
        _truncated_poisson,
        "as poisson, of more than {cap} records a uniform subset is kept; sizes stay secret, at "
        "most {records} records",
        compared=(Adjacency.ADD_REMOVE,),
        needs_cap=True,
    ),
    Sampler.ALLOCATION: _Rule(
        Adjacency.ADD_REMOVE,
        _allocation,
        "each record draws one of the {epoch_steps} steps of every epoch; draws and sizes stay "
        "secret",
        compared=(Adjacency.ADD_REMOVE,),
    ),
    Sampler.FIXED_SIZE: _Rule(
        Adjacency.REPLACE,
        _fixed_size,
        "uniform subsets, fresh at each step and secret",
        compared=(Adjacency.ADD_REMOVE, Adjacency.REPLACE),
        needs_sizes=True,
    ),
    Sampler.SHUFFLE: _Rule(
        Adjacency.ZERO_OUT,
        _shuffle,
        "a record is in at most one batch of an epoch, of which there are at least "
        "{epoch_steps}; no amplification is claimed",
        compared=(Adjacency.ZERO_OUT,),
        draws=False,
    ),
    Sampler.NONE: _Rule(
        Adjacency.ADD_REMOVE, _none, "every step looks at all records", draws=False
    ),
}


# --- how batches are described -------------------------------------------------------------------


def _batches(
    sampler: Sampler, given: dict[str, float], named: Callable[[str], str]
) -> tuple[float, tuple[int, int] | None]:
    """Return the rate, and the batch and the number of records if they are given."""
    both = f"{named('batch_size')} and {named('examples')}"
    if sampler is Sampler.NONE:
        unused = " and ".join(named(key) for key in sorted(given.keys() - {"examples"}))
        if unused:
            raise ValueError(
                f"the sampler none looks at all records and does not use {unused}; leave that out, "
                "or choose another sampler"
            )
        return 1.0, None
    if given.keys() >= {"batch_size", "examples"} and "rate" not in given:
        size = validate.positive_integer(batch_size=given["batch_size"])
        examples = validate.positive_integer(examples=given["examples"])
        if size > examples:
            raise ValueError(
                f"batch_size must be at most examples={examples}, got batch_size={size}"
            )
        if sampler is Sampler.ALLOCATION:  # of all epochs that may be meant, the costliest
            return 1 / (examples // size), None
        return size / examples, (size, examples)
    if _RULES[sampler].needs_sizes:
        raise ValueError(f"the sampler {sampler} needs {both}, not a rate")
    if _RULES[sampler].needs_cap and "examples" not in given:
        raise ValueError(f"the sampler {sampler} needs {named('examples')}: how often batches fill")
    if "rate" not in given or "batch_size" in given:
        raise ValueError(f"the sampler {sampler} needs either {named('rate')}, or {both}")
    return _rate(given["rate"], sampler), None


def _capped(
    sampler: Sampler,
    cap: object,
    rate: float,
    examples: object,
    named: Callable[[str], str],
) -> tuple[int, int] | None:
    """Return the most records of a batch, and of a dataset, for a sampler with a cap."""
    if not _RULES[sampler].needs_cap:
        if cap is not None:
            raise ValueError(
                f"{named('cap')} is for the sampler {Sampler.TRUNCATED_POISSON}, not for "
                f"{sampler}; leave it out, or choose that sampler"
            )
        return None
    records = validate.positive_integer(examples=examples)
    if cap is None:
        raise ValueError(
            f"the sampler {sampler} needs {named('cap')}, the most records of a batch; "
            f"{_usual_cap(rate, records)} cuts one batch in a million"
        )
    most = validate.positive_integer(cap=cap)
    if most < rate * records * (1 - _WHOLE):
        raise ValueError(
            f"{named('cap')} must be at least the expected batch, {rate * records:g} records, got "
            f"cap={most}: nearly every batch would be cut and cost an exchange. Use "
            f"{_usual_cap(rate, records)}, which cuts one batch in a million, smaller batches, or "
            "the sampler fixed_size"
        )
    return most, records


def _usual_cap(rate: float, examples: int) -> int:
    """Return the least cap that all but one batch in a million stay below."""
    low, high = 1, examples
    while low < high:
        middle = (low + high) // 2
        if truncation_probability(rate, middle + 1, examples + 1) <= _SELDOM:
            high = middle
        else:
            low = middle + 1
    return low


def _rate(value: object, sampler: Sampler) -> float:
    rate = validate.probability(rate=value)
    if rate < _LEAST_RATE and (rate > 0 or sampler is not Sampler.POISSON):
        raise ValueError(f"rate must be greater than 0, at least {_LEAST_RATE}, got {rate=!r}")
    if sampler is Sampler.ALLOCATION:
        steps = round(1 / rate)
        if not math.isclose(steps * rate, 1.0, rel_tol=_WHOLE_EPOCH):
            fewer = math.floor(1 / rate)
            raise ValueError(
                f"rate must be one over the whole number of steps in an epoch for the sampler "
                f"allocation, got {rate=!r}; the nearest are 1/{fewer} and 1/{fewer + 1}"
            )
        return 1 / steps
    return rate


# --- and found in a loss -------------------------------------------------------------------------

_POISSON = ("poisson", "poisson_replace", "poisson_rdp", "twice_sampled", "twice_sampled_blocks")
"""Releases whose record rate is that of a Poisson sample, whatever its value."""


def samplers_of(loss: PrivacyLoss) -> tuple[Sampler, ...]:
    """Return the samplers by which the releases of a loss draw records, as far as they say so.

    Args:
        loss: the loss to look at; releases inside of other releases count.

    **Guarantee**: none. A loss of shuffled epochs, which are credited with no sampling, names none.

    Example:
        >>> import taut
        >>> from taut.accounting import samplers_of
        >>> samplers_of(10 * taut.gaussian(1.0).poisson(0.1))
        (<Sampler.POISSON: 'poisson'>,)
    """
    validate.instance(PrivacyLoss, loss=loss)
    found = {sampler for release, _ in loss.terms for sampler in _drawn(release)}
    return tuple(sampler for sampler in Sampler if sampler in found)


def _drawn(release: Release) -> Iterator[Sampler]:
    """Yield the samplers of a release and of those inside of it."""
    if release.kind == TruncatedPoisson.kind:
        yield Sampler.TRUNCATED_POISSON
    elif release.draws_batches:
        yield Sampler.FIXED_SIZE
    if release.kind in _POISSON:
        yield Sampler.POISSON
    if release.kind == Allocated.kind:
        yield Sampler.ALLOCATION
    for field in fields(release):
        value = getattr(release, field.name)
        for part in value if isinstance(value, tuple) else (value,):
            if isinstance(part, Release):
                yield from _drawn(part)
