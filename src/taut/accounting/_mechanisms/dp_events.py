"""Exchange with dp-accounting: its ``DpEvent`` trees in and out.

dp-accounting is imported only when one of the two functions is called. Its noise multipliers are
relative to the norm bound of one record, so replacing a record has twice that sensitivity.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Iterable, Mapping
from importlib import import_module
from typing import Any

import numpy as np

from taut._base import validate
from taut.accounting._adjacency import Adjacency
from taut.accounting._loss import PrivacyLoss
from taut.accounting._mechanisms.given import (
    Approximate,
    Pure,
    approximate,
    finite,
    from_rdp,
    zero,
)
from taut.accounting._mechanisms.mixture import MixtureOfGaussians, mixture_of_gaussians
from taut.accounting._mechanisms.noise import (
    DiscreteGaussian,
    DiscreteLaplace,
    Gaussian,
    Laplace,
    discrete_gaussian,
    discrete_laplace,
    gaussian,
    laplace,
)
from taut.accounting._mechanisms.selection import (
    Exponential,
    PermuteAndFlip,
    RandomizedResponse,
    exponential,
    permute_and_flip,
    randomized_response,
)
from taut.accounting._pairs.pair import CUMULANT_ERROR
from taut.accounting._releases.release import Release
from taut.accounting._releases.sampled import FixedSize, Joint, Poisson, PoissonReplace
from taut.accounting._releases.truncated import TruncatedPoisson

__all__ = ["from_dp_event", "to_dp_event"]

# Orders at which the best of several runs is known: from many runs of much noise to few of little.
_REPEATED_ORDERS = 1 + np.geomspace(0.05, 1_000.0, 48)
_HALVINGS = 60  # of an interval for a logarithm: to the last digit


def from_dp_event(event: Any, *, adjacency: Adjacency | str = "add_remove") -> PrivacyLoss:
    """Return the loss of a dp-accounting event tree.

    Args:
        event: a ``dp_accounting.DpEvent``, or the same as nested mappings with a "class_name", as
            JSON holds it, which needs no dp-accounting.
        adjacency: the relation to read it under; under replace-one every record's norm bound
            counts twice.

    Raises:
        ValueError: if an event of the tree has no counterpart; it is named. For a mapping also if
            a field of an event is missing, or no number of its range.
        ImportError: if dp-accounting is not installed.

    Example:
        >>> import taut
        >>> step = {"class_name": "GaussianDpEvent", "noise_multiplier": 1.0}
        >>> sampled = {"class_name": "PoissonSampledDpEvent", "sampling_probability": 0.01}
        >>> loss = taut.accounting.from_dp_event({**sampled, "event": step})
        >>> round((1_000 * loss).epsilon(delta=1e-5), 2)
        1.83
    """
    if isinstance(event, Mapping):
        return _read_described(event, Adjacency(adjacency))
    _library()
    return _read(event, Adjacency(adjacency))


def to_dp_event(loss: PrivacyLoss) -> Any:
    """Return the dp-accounting event of a loss.

    Raises:
        ValueError: if a release of the sum has no counterpart; it is named.
        ImportError: if dp-accounting is not installed.
    """
    validate.instance(PrivacyLoss, loss=loss)
    return _write_sum(loss.terms, _moved(loss.adjacency), _library())


def _library() -> Any:
    try:
        return import_module("dp_accounting.dp_event")
    except ImportError:
        raise ImportError(
            "exchanging events needs dp-accounting; install it with: pip install dp-accounting"
        ) from None


def _read_described(event: Mapping[str, Any], adjacency: Adjacency) -> PrivacyLoss:
    try:
        return _read(_Described(event), adjacency)
    except (AttributeError, TypeError, ArithmeticError) as error:
        raise ValueError(f"malformed event: {error}") from None


class _Described:
    """An event as mappings hold it: its fields are attributes."""

    def __init__(self, fields: Mapping[str, Any]) -> None:
        self._fields = {**_FIELDS_LEFT_OUT, **fields}
        self.class_name = str(fields.get("class_name"))

    def __getattr__(self, name: str) -> Any:
        if name not in self._fields:
            raise AttributeError(f"{self.class_name} has no {name!r}")
        return _described(self._fields[name])


_FIELDS_LEFT_OUT = {"sensitivity": 1.0, "dimension": None, "xi": 0.0}
"""Defaults of dp-accounting's fields."""


def _described(value: Any) -> Any:
    if isinstance(value, Mapping):
        return _Described(value)
    return [_described(part) for part in value] if isinstance(value, list) else value


def _read(event: Any, adjacency: Adjacency) -> PrivacyLoss:
    name = event.class_name if isinstance(event, _Described) else type(event).__name__
    reader = _READERS.get(name)
    if reader is None:
        raise ValueError(
            f"{name} has no counterpart in taut; known are "
            f"{', '.join(sorted(_READERS))}. For anything else use taut.from_profile"
        )
    return reader(event, adjacency)


def _moved(adjacency: Adjacency) -> int:
    return 2 if adjacency is Adjacency.REPLACE else 1


def _read_randomized_response(event: Any, adjacency: Adjacency) -> PrivacyLoss:
    if adjacency is not Adjacency.REPLACE:
        raise ValueError(
            "RandomizedResponseDpEvent needs a record to report; read it with adjacency='replace'"
        )
    other = event.noise_parameter / event.num_buckets
    truth = 1 - event.noise_parameter + other
    if event.num_buckets == 2:
        return randomized_response(truth, adjacency=adjacency)
    rest = (event.num_buckets - 2) * other
    return finite([truth, other, rest], [other, truth, rest], adjacency=adjacency)


def _read_zcdp(event: Any, adjacency: Adjacency) -> PrivacyLoss:
    shift = getattr(event, "xi", 0.0)
    return from_rdp(lambda order: event.rho * order + shift, adjacency=adjacency)


def _read_fixed_size(event: Any, adjacency: Adjacency) -> PrivacyLoss:
    base = _read(event.event, Adjacency.REPLACE)
    return base.fixed_size(event.sample_size, event.source_dataset_size, adjacency=adjacency)


def _read_poisson(event: Any, adjacency: Adjacency) -> PrivacyLoss:
    base = _read(event.event, adjacency)
    if adjacency is not Adjacency.REPLACE or not base.terms:
        return base.poisson(event.sampling_probability)
    removal = _read(event.event, Adjacency.ADD_REMOVE)
    return base.poisson(event.sampling_probability, removal=removal)


def _read_truncated(event: Any, adjacency: Adjacency) -> PrivacyLoss:
    """Read a capped sample; a sum whose batch is full moves twice as far."""
    if event.noise_multiplier == 0:
        return randomized_response(1.0, adjacency=adjacency)
    if event.truncated_batch_size == 0:
        return zero(adjacency=adjacency)
    return gaussian(event.noise_multiplier, adjacency=adjacency).truncated_poisson(
        event.sampling_probability,
        event.truncated_batch_size,
        event.dataset_size,
        exchange=gaussian(event.noise_multiplier, 2.0, adjacency=Adjacency.REPLACE),
    )


def _read_discrete_gaussian(event: Any, adjacency: Adjacency) -> PrivacyLoss:
    """Read integer noise: exactly on one integer, by concentrated privacy on several."""
    moved = _moved(adjacency) * event.sensitivity
    if event.dimension == 1 and float(moved).is_integer():
        return discrete_gaussian(event.sigma, int(moved), adjacency=adjacency)
    rho = (moved / event.sigma) ** 2 / 2  # Canonne, Kamath and Steinke 2020, Theorem 14
    return from_rdp(lambda order: rho * order, adjacency=adjacency)


def _read_tree(event: Any, adjacency: Adjacency) -> PrivacyLoss:
    """Read trees that see every record once: it is in one node of every level of one tree."""
    counts = event.step_counts if isinstance(event.step_counts, Iterable) else [event.step_counts]
    levels = max((int(count).bit_length() for count in counts), default=0)
    if levels == 0:
        return zero(adjacency=adjacency)
    moved = _moved(adjacency) * math.sqrt(levels)
    return gaussian(event.noise_multiplier, moved, adjacency=adjacency)


def _read_repeated(event: Any, adjacency: Adjacency) -> PrivacyLoss:
    """Read the best of a random number of runs, by divergences (Papernot and Steinke 2022).

    Theorem 2 for truncated negative binomial numbers, Theorem 6 for Poisson ones.
    """
    one, mean, shape = _read(event.event, adjacency), float(event.mean), float(event.shape)
    if not (mean >= 1 and shape >= 0):
        raise ValueError(
            "RepeatAndSelectDpEvent must have a mean of at least 1 and a shape of at least 0, got "
            f"mean={event.mean!r}, shape={event.shape!r}"
        )
    if not one.terms or (mean == 1 and math.isfinite(shape)):  # nothing, or one run always
        return one
    rdp = np.array([one.rdp(order) for order in _REPEATED_ORDERS]) * (1 + CUMULANT_ERROR)
    more = rdp + math.log(mean) / (_REPEATED_ORDERS - 1)
    if math.isinf(shape):
        at = np.log1p(1 / (_REPEATED_ORDERS - 1))
        more += mean * np.array([one.delta(float(epsilon)) for epsilon in at])
    else:
        log_gamma = _log_gamma(shape, mean)
        more += (1 + shape) * float(
            np.min((1 - 1 / _REPEATED_ORDERS) * rdp - log_gamma / _REPEATED_ORDERS)
        )
    return from_rdp(
        dict(zip(_REPEATED_ORDERS.tolist(), more.tolist(), strict=True)), adjacency=adjacency
    )


def _log_gamma(shape: float, mean: float) -> float:
    """Return a lower bound on log gamma of a truncated negative binomial law with a mean.

    The mean falls as gamma grows to one; a smaller gamma costs more.
    """

    def larger(log_gamma: float) -> bool:
        gone = -math.expm1(log_gamma)
        if shape == 0:
            return gone / math.exp(log_gamma) / -log_gamma > mean
        return shape * gone / math.exp(log_gamma) / -math.expm1(shape * log_gamma) > mean

    low, high = -1.0, -1e-12  # a logarithm next to zero, where the mean of runs is without end
    while not larger(low):
        low *= 2
    for _ in range(_HALVINGS):
        middle = (low + high) / 2
        low, high = (middle, high) if larger(middle) else (low, middle)
    return low


_READERS: dict[str, Callable[[Any, Adjacency], PrivacyLoss]] = {
    "NoOpDpEvent": lambda _, adjacency: zero(adjacency=adjacency),
    "NonPrivateDpEvent": lambda _, adjacency: randomized_response(1.0, adjacency=adjacency),
    "GaussianDpEvent": lambda event, adjacency: gaussian(
        event.noise_multiplier, _moved(adjacency), adjacency=adjacency
    ),
    "LaplaceDpEvent": lambda event, adjacency: laplace(
        event.noise_multiplier, _moved(adjacency), adjacency=adjacency
    ),
    "DiscreteLaplaceDpEvent": lambda event, adjacency: discrete_laplace(
        1 / event.noise_parameter, _moved(adjacency) * event.sensitivity, adjacency=adjacency
    ),
    "RandomizedResponseDpEvent": _read_randomized_response,
    "ZCDpEvent": _read_zcdp,
    "SelfComposedDpEvent": lambda event, adjacency: event.count * _read(event.event, adjacency),
    "ComposedDpEvent": lambda event, adjacency: sum(
        (_read(part, adjacency) for part in event.events), zero(adjacency=adjacency)
    ),
    "PoissonSampledDpEvent": _read_poisson,
    "EpsilonDeltaDpEvent": lambda event, adjacency: approximate(
        event.epsilon, event.delta, adjacency=adjacency
    ),
    "DiscreteGaussianDpEvent": _read_discrete_gaussian,
    "ExponentialMechanismDpEvent": lambda event, adjacency: exponential(
        event.epsilon, adjacency=adjacency
    ),
    "PermuteAndFlipDpEvent": lambda event, adjacency: permute_and_flip(
        event.epsilon, adjacency=adjacency
    ),
    "MixtureOfGaussiansDpEvent": lambda event, adjacency: mixture_of_gaussians(
        event.sampling_probs, event.sensitivities, event.standard_deviation, adjacency=adjacency
    ),
    "SingleEpochTreeAggregationDpEvent": _read_tree,
    "TruncatedSubsampledGaussianDpEvent": _read_truncated,
    "SampledWithoutReplacementDpEvent": _read_fixed_size,
    "RepeatAndSelectDpEvent": _read_repeated,
}


def _write_sum(terms: Iterable[tuple[Release, int]], moved: int, events: Any) -> Any:
    singles = [(_write(release, moved, events), count) for release, count in terms]
    parts = [
        part if count == 1 else events.SelfComposedDpEvent(part, count) for part, count in singles
    ]
    if not parts:
        return events.NoOpDpEvent()
    return parts[0] if len(parts) == 1 else events.ComposedDpEvent(parts)


def _write(release: Release, moved: int, events: Any) -> Any:
    match release:
        case Gaussian():
            return events.GaussianDpEvent(moved * release.sigma / release.sensitivity)
        case Laplace():
            return events.LaplaceDpEvent(moved * release.scale / release.sensitivity)
        case DiscreteLaplace() if release.sensitivity % moved == 0:
            return events.DiscreteLaplaceDpEvent(1 / release.scale, release.sensitivity // moved)
        case RandomizedResponse() if moved == 2:
            return events.RandomizedResponseDpEvent(2 * min(release.p, 1 - release.p), 2)
        case Pure():
            return _event(events, "EpsilonDeltaDpEvent", release, release.epsilon, 0.0)
        case Approximate():
            return _event(events, "EpsilonDeltaDpEvent", release, release.epsilon, release.delta)
        case DiscreteGaussian() if release.sensitivity % moved == 0:
            size = release.sensitivity // moved
            return _event(events, "DiscreteGaussianDpEvent", release, release.sigma, size, 1)
        case Exponential():
            return _event(events, "ExponentialMechanismDpEvent", release, release.epsilon)
        case PermuteAndFlip():
            return _event(events, "PermuteAndFlipDpEvent", release, release.epsilon)
        case MixtureOfGaussians():
            return _event(
                events,
                "MixtureOfGaussiansDpEvent",
                release,
                release.sigma,
                list(release.shifts),
                list(release.probabilities),
            )
        case PoissonReplace() if _write(release.removal, 1, events) == _write(
            release.exchange, moved, events
        ):
            inner = _write(release.exchange, moved, events)
            return events.PoissonSampledDpEvent(release.rate, inner)
        case TruncatedPoisson(base=Gaussian() as base, exchange=Gaussian(), or_fewer=False) if (
            _write(release.base, 1, events) == _write(release.exchange, 2, events)
        ):
            return _event(
                events,
                "TruncatedSubsampledGaussianDpEvent",
                release,
                release.population,
                release.rate,
                release.cap,
                base.sigma / base.sensitivity,
            )
        case Joint():
            return _write_sum(zip(release.releases, release.counts, strict=True), moved, events)
        case Poisson():
            return events.PoissonSampledDpEvent(release.rate, _write(release.base, moved, events))
        case FixedSize():
            return events.SampledWithoutReplacementDpEvent(
                release.population, release.batch_size, _write(release.base, 2, events)
            )
    raise _no_counterpart(release)


def _event(events: Any, name: str, release: Release, *arguments: Any) -> Any:
    """Return an event that older versions of dp-accounting lack."""
    if not hasattr(events, name):
        raise _no_counterpart(release)
    return getattr(events, name)(*arguments)


def _no_counterpart(release: Release) -> ValueError:
    return ValueError(
        f"{release} has no counterpart among dp-accounting's events; keep it as JSON (to_json)"
    )
