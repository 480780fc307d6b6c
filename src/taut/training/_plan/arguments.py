"""What the arguments of a plan say, checked and brought into one form."""

from __future__ import annotations

import math

from taut._base import validate
from taut.errors import InfeasibleBudget
from taut.training._sampling.allocation import RandomAllocation
from taut.training._sampling.sampling import (
    FixedSizeSampling,
    PoissonSampling,
    Sampling,
    positive_rate,
)

__all__ = ["batches_of", "sampling_of", "steps_of", "two_of_promise"]

_BY_NAME = {kind.name: kind for kind in (PoissonSampling, RandomAllocation, FixedSizeSampling)}


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


def batches_of(
    examples: int, batch_size: int | None, rate: float | None, kind: Sampling
) -> tuple[int, float, float, Sampling]:
    """Return the number of examples, the expected batch size, the rate and the fitted sampling."""
    n = validate.positive_integer(examples=examples)
    if (batch_size is None) == (rate is None):
        raise ValueError(
            f"give either batch_size or rate, got batch_size={batch_size!r} and rate={rate!r}"
        )
    if rate is not None:
        share = positive_rate(rate=rate)
        size = share * n
    else:
        size = float(validate.positive_integer(batch_size=batch_size))
        if size > n:
            raise ValueError(
                f"batch_size must be at most examples={n}, got batch_size={batch_size!r}"
            )
        share = kind.rate_of(size, n)
        if share != size / n:  # batches of such a size do not fill an epoch
            size = share * n
    if kind.is_fitted and not math.isclose(kind.expected_batch_size(n), size, rel_tol=1e-9):
        raise ValueError(
            f"sampling={kind!r} contradicts a batch of {size:g} out of examples={n}; "
            f"write {type(kind).__name__}() and the plan fits it"
        )
    return n, size, share, kind.fitted(n, share)


def steps_of(steps: int | None, epochs: float | None, rate: float) -> int:
    """Return the number of steps, given as such or by epochs."""
    if (steps is None) == (epochs is None):
        raise ValueError(f"give either steps or epochs, got steps={steps!r}, epochs={epochs!r}")
    if epochs is not None:
        # What rounding adds to a whole number of steps must not cost one more.
        exact = validate.positive(epochs=epochs) / rate * (1 - 1e-12)
        steps = max(math.ceil(exact), 1)
    return validate.positive_integer(steps=steps)


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
