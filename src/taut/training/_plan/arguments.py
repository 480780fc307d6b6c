"""What the arguments of a plan say, checked and brought into one form."""

from __future__ import annotations

import math
from typing import NamedTuple

from taut._base import validate
from taut.errors import InfeasibleBudget
from taut.training._plan.schedule import Changing, Schedule, is_schedule
from taut.training._sampling.allocation import RandomAllocation
from taut.training._sampling.fixed_order import FixedOrderSampling
from taut.training._sampling.keyed import (
    BallsInBinsSampling,
    CyclicAllocationSampling,
    CyclicPoissonSampling,
)
from taut.training._sampling.sampling import (
    FixedSizeSampling,
    PoissonSampling,
    Sampling,
    positive_rate,
)
from taut.training._sampling.truncated import TruncatedPoissonSampling

__all__ = ["Batches", "batches_of", "noise_of", "sampling_of", "steps_of", "two_of_promise"]

_KINDS = (
    PoissonSampling,
    TruncatedPoissonSampling,
    RandomAllocation,
    FixedSizeSampling,
    FixedOrderSampling,
    CyclicPoissonSampling,
    CyclicAllocationSampling,
    BallsInBinsSampling,
)
_BY_NAME: dict[str, type[Sampling]] = {kind.name: kind for kind in _KINDS}


def sampling_of(sampling: object) -> Sampling:
    """Return the sampling that is meant by an argument: a sampling, its name, or None for Poisson.

    Raises:
        ValueError: for a name of no sampling.
    """
    if sampling is None:
        return PoissonSampling()
    if isinstance(sampling, Sampling):
        return sampling
    if not isinstance(sampling, str):
        raise validate.WrongType(
            f"sampling must be a Sampling or a name, got sampling={sampling!r}; try "
            "PoissonSampling()"
        )
    kind = _BY_NAME.get(sampling.strip().lower().replace("-", "_"))
    if kind is None:
        raise ValueError(f"sampling must be one of {', '.join(_BY_NAME)}, got {sampling!r}")
    return kind()


class Batches(NamedTuple):
    """The batches of a plan.

    Attributes:
        examples: how many there are to draw from.
        size: expected number in a batch; its mean, if it changes.
        rate: share of all examples that this is.
        sampling: fitted to the rate, or left unfitted if that changes.
        schedule: rate of every step, if it changes.
    """

    examples: int
    size: float
    rate: float
    sampling: Sampling
    schedule: Schedule | None = None


def batches_of(
    examples: int,
    batch_size: int | Changing | None,
    rate: float | Changing | None,
    kind: Sampling,
) -> Batches:
    """Return the batches that are meant, with the sampling fitted to them."""
    n = validate.positive_integer(examples=examples)
    if (batch_size is None) == (rate is None):
        raise ValueError(
            f"give either batch_size or rate, got batch_size={batch_size!r} and rate={rate!r}"
        )
    name, given = ("rate", rate) if batch_size is None else ("batch_size", batch_size)
    if not is_schedule(given):
        return _constant(n, name, given, kind)
    asked = Schedule.of(given, name)
    if kind.is_fitted:
        raise ValueError(
            f"sampling={kind!r} has one batch size, and {name} changes; write "
            f"{type(kind).__name__}() and the plan fits it"
        )
    fitted = {
        value: _constant(n, name, _as_given(value, name), kind) for _, value in asked.stretches
    }
    rates = Schedule(tuple((count, fitted[value].rate) for count, value in asked.stretches))
    if len(rates.stretches) == 1:
        (only,) = fitted.values()
        return only
    return Batches(n, rates.mean * n, rates.mean, kind, rates)


def _as_given(value: float, name: str) -> float:
    """Return a batch size as an integer, if it is one."""
    return int(value) if name == "batch_size" and value.is_integer() else value


def _constant(n: int, name: str, given: object, kind: Sampling) -> Batches:
    """Return batches of one expected size."""
    if name == "rate":
        share = positive_rate(rate=given)
        size = share * n
    else:
        size = float(validate.positive_integer(batch_size=given))
        if size > n:
            raise ValueError(f"batch_size must be at most examples={n}, got batch_size={given!r}")
        share = kind.rate_of(size, n)
        if share != size / n:  # batches of such a size do not fill an epoch
            size = share * n
    if kind.is_fitted and not math.isclose(kind.expected_batch_size(n), size, rel_tol=1e-9):
        raise ValueError(
            f"sampling={kind!r} contradicts a batch of {size:g} out of examples={n}; "
            f"write {type(kind).__name__}() and the plan fits it"
        )
    return Batches(n, size, share, kind.fitted(n, share))


def steps_of(
    steps: int | None, epochs: float | None, rate: float, schedules: dict[str, Schedule | None]
) -> int:
    """Return the number of steps, given as such, by epochs, or by the length of a schedule.

    Args:
        steps: number of steps, or None.
        epochs: number of epochs, or None.
        rate: share of all examples in a step; its mean, if it changes.
        schedules: schedules of the plan, by name, which must be as long.

    Raises:
        ValueError: if too much or too little is given, or a schedule has another length.
    """
    found = {name: schedule for name, schedule in schedules.items() if schedule is not None}
    if steps is not None and epochs is not None:
        raise ValueError(f"give either steps or epochs, got steps={steps!r}, epochs={epochs!r}")
    if steps is None and epochs is None:
        if not found:
            raise ValueError(f"give either steps or epochs, got steps={steps!r}, epochs={epochs!r}")
        steps = next(iter(found.values())).steps
    if epochs is not None:
        # What rounding adds to a whole number of steps must not cost one more.
        exact = validate.positive(epochs=epochs) / rate * (1 - 1e-12)
        steps = max(math.ceil(exact), 1)
    count = validate.positive_integer(steps=steps)
    for name, schedule in found.items():
        schedule.check_steps(count, name)
    return count


def noise_of(
    noise_multiplier: float | Changing | None, noise_schedule: Changing | None, *, solved: bool
) -> tuple[float | None, Schedule | None]:
    """Return the least noise multiplier, None if it is to be found, and noise in its units.

    Args:
        noise_multiplier: one number, or a schedule, or None.
        noise_schedule: a schedule of factors, or None.
        solved: whether noise is to be found for a promise.

    Raises:
        ValueError: if noise is given by two schedules, or although it is to be found.
    """
    if is_schedule(noise_multiplier):
        if solved:
            raise ValueError(
                "give two of epsilon, delta and noise_multiplier; noise that changes in given "
                "proportions, to keep a promise, is noise_schedule"
            )
        if noise_schedule is not None:
            raise ValueError(
                "noise_multiplier is a schedule already; give noise_schedule beside one number, "
                "or beside epsilon and delta"
            )
        noise_multiplier, noise_schedule = 1.0, noise_multiplier  # type: ignore[assignment]
    if noise_schedule is None:
        return noise_multiplier, None  # type: ignore[return-value]
    factors = Schedule.of(noise_schedule, "noise_schedule")
    least = None
    if noise_multiplier is not None:
        least = validate.positive(noise_multiplier=noise_multiplier) * factors.least
    return least, factors.over(factors.least)


def two_of_promise(
    epsilon: float | None, delta: float | None, noise_multiplier: float | None
) -> tuple[float | None, float | None, float | None]:
    """Return the three, of which exactly one must be None.

    Raises:
        InfeasibleBudget: for a delta of zero.
    """
    if [epsilon, delta, noise_multiplier].count(None) != 1:
        raise ValueError(
            "give two of epsilon, delta and noise_multiplier, got "
            f"epsilon={epsilon!r}, delta={delta!r}, noise_multiplier={noise_multiplier!r}"
        )
    if noise_multiplier is not None:
        noise_multiplier = validate.positive(noise_multiplier=noise_multiplier)
    if epsilon is not None:
        epsilon = validate.positive(epsilon=epsilon)
    if delta is not None and (delta := validate.below_one(delta=delta)) == 0:
        raise InfeasibleBudget(
            "no Gaussian noise keeps delta=0, however much of it; give a delta above 0, usually "
            "well below 1 / examples"
        )
    return epsilon, delta, noise_multiplier
