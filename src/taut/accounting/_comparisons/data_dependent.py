"""Divergences at the data at hand: useful to study, not a guarantee, and sensitive themselves.

A bound that looks at the actual votes can be far below the data-independent one, but it is a
function of the private data: publishing it, logging it or choosing by it reveals something. It may
only feed a release that accounts for this, by smooth sensitivity (Papernot et al. 2018) or by
propose-test-release. So it comes as :class:`DataDependent`, which no loss accepts and no print
shows.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import NoReturn

import numpy as np
from numpy.typing import ArrayLike
from scipy.special import log_ndtr

from taut._base import validate
from taut._base.arrays import Vector, real_numbers
from taut._base.floats import RELATIVE_ERROR
from taut.accounting._mechanisms.screening import bernoulli_divergences, check_counts
from taut.errors import UnsoundConfiguration

__all__ = [
    "DataDependent",
    "data_dependent_gnmax",
    "data_dependent_lnmax",
    "data_dependent_screening",
]

# Beside one another they stay far within doubles, squared and multiplied as they are here.
_MOST_VOTES, _LARGEST_VOTE_ORDER = 2.0**53, 1e12
_LEAST_VOTE_NOISE, _MOST_VOTE_NOISE = 1e-6, 1e12  # votes, for the same reason

Orders = Sequence[float] | Vector


class DataDependent:
    """Renyi divergences at the data at hand: sensitive, and not a guarantee.

    Instances add up with each other and can be repeated, so that a run can be studied. They hold
    no place in a :class:`PrivacyLoss`, cannot be compared, converted, pickled or copied, and print
    without their values. :meth:`private_value` is the only way to the numbers.
    """

    __slots__ = ("__orders", "__values", "_name")

    def __init__(self, name: str, orders: Vector, values: Vector) -> None:
        """Keep ``values`` at ``orders`` (both shape (m,)), out of sight."""
        self._name = name
        self.__orders = orders.copy()
        self.__values = values.copy()

    def private_value(self) -> tuple[Vector, Vector]:
        """Return (orders, divergences): **sensitive**, never to be published, logged or acted on.

        For research, for tests, and for releases that account for the sensitivity of the value
        itself (smooth sensitivity, propose-test-release).
        """
        return self.__orders.copy(), self.__values.copy()

    def __repr__(self) -> str:
        """Return what it is about, without the value."""
        return f"<DataDependent {self._name}: sensitive, not shown>"

    __str__ = __repr__

    def __format__(self, spec: str) -> str:
        """Return the same text whatever the format."""
        return repr(self)

    def __add__(self, other: object) -> DataDependent:
        """Return the divergences of both, if ``other`` is data-dependent at the same orders."""
        if not isinstance(other, DataDependent):
            raise _refusal()
        if not np.array_equal(self.__orders, other.__orders):
            raise ValueError("data-dependent values add up at the same orders only")
        name = self._name if self._name == other._name else f"{self._name} and {other._name}"
        return DataDependent(name, self.__orders, self.__values + other.__values)

    def __radd__(self, other: object) -> DataDependent:
        """Let ``sum`` start from the integer zero; refuse anything else."""
        if isinstance(other, int) and other == 0:
            return self
        raise _refusal()

    def __mul__(self, count: object) -> DataDependent:
        """Return the divergences of ``count`` equal releases."""
        repeats = validate.integer(count=count)
        return DataDependent(self._name, self.__orders, repeats * self.__values)

    __rmul__ = __mul__

    def _refuse_comparison(self, other: object) -> NoReturn:
        raise _refusal()

    __lt__ = __le__ = __gt__ = __ge__ = _refuse_comparison

    def __reduce__(self) -> NoReturn:
        """Refuse: a pickle or a copy carries the value where nobody looks for it."""
        raise _refusal()


def data_dependent_gnmax(
    votes: ArrayLike, sigma: float, orders: Orders, *, reverse: bool = False
) -> DataDependent:
    """Return the divergence of the noisy winner of these votes, with N(0, sigma^2) on each count.

    Where one class leads clearly the winner hardly ever changes, and a second-order bound beats the
    data-independent order / sigma^2; never worse than that.

    Args:
        votes: counts of at least two classes, each voter voting once.
        sigma: standard deviation of the noise on every count.
        orders: real orders above one.
        reverse: bound the divergence of a neighbour's output from this one instead of this output
            from a neighbour's. The published theorem is about the latter alone, and its value can
            be 38 times too small for the former (docs/errata.md); here the winner's lead is then
            taken at the worst neighbour.

    Not a guarantee: see :class:`DataDependent`. A neighbour has one voter who chose otherwise
    (Papernot et al. 2018, Theorem 6, with mu_1 = mu_2 + 1).
    """
    deviation, at = _noise(sigma=sigma), _orders(orders)
    gaps = _gaps(votes, reverse=reverse)
    log_q = float(np.logaddexp.reduce(log_ndtr(-gaps / (math.sqrt(2) * deviation))))
    if gaps.min() >= 0:  # a leader wins with probability at least 1 / classes
        log_q = min(log_q, math.log1p(-1 / (gaps.size + 1)))
    plain = at / deviation**2
    return DataDependent("GNMax", at, np.minimum(_second_order(log_q, deviation, at), plain))


def _second_order(log_q: float, sigma: float, orders: Vector) -> Vector:
    """Return Theorem 6 of Papernot et al. (2018) at every order, infinite where it does not hold.

    ``log_q`` is the logarithm of a bound on the probability that another class wins.
    """
    infinite = np.full(orders.shape, math.inf)
    if log_q >= 0:
        return infinite
    mu_2 = sigma * math.sqrt(-log_q)
    mu_1 = mu_2 + 1
    e_1, e_2 = mu_1 / sigma**2, mu_2 / sigma**2
    if mu_2 <= 1 or log_q + e_2 >= 0:
        return infinite
    room = (mu_2 - 1) * e_2 - mu_2 * (math.log(mu_1 / (mu_1 - 1)) + math.log(mu_2 / (mu_2 - 1)))
    if log_q > room:
        return infinite
    log_stay = math.log1p(-math.exp(log_q))
    log_a = log_stay - math.log1p(-math.exp((log_q + e_2) * (mu_2 - 1) / mu_2))
    log_b = e_1 - log_q / (mu_1 - 1)
    moment = np.logaddexp(log_stay + (orders - 1) * log_a, log_q + (orders - 1) * log_b)
    value = (np.maximum(moment, 0.0) + 4 * RELATIVE_ERROR) / (orders - 1)
    return np.where(orders <= mu_1, value, math.inf)


def data_dependent_lnmax(
    votes: ArrayLike, scale: float, orders: Orders, *, reverse: bool = False
) -> DataDependent:
    """Return the divergence of the noisy winner of these votes, with Laplace noise on each count.

    Args:
        votes: counts of at least two classes, each voter voting once.
        scale: scale of the Laplace noise.
        orders: real orders above one.
        reverse: direction of the divergence, as in :func:`data_dependent_gnmax`.

    Not a guarantee: see :class:`DataDependent`. The least of the pure, the concentrated and the
    data-dependent bound (Papernot et al. 2017, Theorem 3 and Lemma 4).
    """
    noise, at = _noise(scale=scale), _orders(orders)
    single = 2 / noise  # the winner is (2 / scale)-DP
    gaps = _gaps(votes, reverse=reverse) / noise
    log_q = 0.0
    if gaps.min() >= 0:
        log_q = float(np.logaddexp.reduce(np.log(2 + gaps) - math.log(4) - gaps))
    power = at - 1
    bounds = [power * at * single**2 / 2, power * single]
    # q < (e^s - 1) / (e^{2 s} - 1) = 1 / (e^s + 1), so that e^s q < 1
    if log_q < -np.logaddexp(single, 0.0):
        q = math.exp(log_q)
        lead = math.log1p(-q) - math.log1p(-math.exp(single + log_q))
        moment = np.logaddexp(math.log1p(-q) + power * lead, log_q + power * single)
        bounds.append(np.maximum(moment, 0.0) + 4 * RELATIVE_ERROR)
    return DataDependent("LNMax", at, np.minimum.reduce(bounds) / power)


def data_dependent_screening(
    count: int, k: int, threshold: float, sigma: float, orders: Orders
) -> DataDependent:
    """Return the divergence of one noisy screening at the actual largest count.

    Args:
        count: the largest count of votes in the data, at most ``k``.
        k: how many neighbours vote.
        threshold: the level that the noisy count must exceed.
        sigma: standard deviation of the noise.
        orders: real orders above one.

    Not a guarantee: see :class:`DataDependent`. The larger over the neighbouring counts and both
    directions.
    """
    neighbours, at = validate.positive_integer(k=k), _orders(orders)
    largest = validate.integer(count=count)
    if largest > neighbours:
        raise ValueError(f"count must not exceed k={k!r}")  # the count itself is private
    level, deviation = validate.finite(threshold=threshold), validate.positive(sigma=sigma)
    check_counts(neighbours, level, deviation)
    others = np.array([t for t in (largest - 1, largest + 1) if 0 <= t <= neighbours], dtype=float)
    z, here = (others - level) / deviation, np.full(others.size, (largest - level) / deviation)
    return DataDependent("screening", at, bernoulli_divergences(z, here, at).max(axis=1))


def _gaps(votes: ArrayLike, *, reverse: bool) -> Vector:
    """Return by how much the winner leads each other class, shape (classes - 1,).

    One changed vote takes at most two from each; ``reverse`` asks for what is left then.
    """
    counts = np.asarray(votes)
    if counts.ndim != 1 or counts.size < 2 or counts.dtype.kind not in "fiu":
        raise ValueError("votes must be a vector of counts of at least two classes")
    counts = counts.astype(float)
    if not (counts >= 0).all() or not (counts <= _MOST_VOTES).all():
        raise ValueError("votes must be finite, at least 0 and at most 2^53")
    lead = np.delete(counts.max() - counts, int(counts.argmax()))
    return lead - 2.0 if reverse else lead


def _orders(orders: Orders) -> Vector:
    at = real_numbers(orders, "orders")
    if at.ndim != 1 or at.size == 0 or not (at > 1).all() or not (at <= _LARGEST_VOTE_ORDER).all():
        raise ValueError(
            f"orders must be numbers above 1, at most 1e12, and at least one, got {orders!r}"
        )
    return at


def _noise(**argument: float) -> float:
    """Return the size of noise on votes, in a range where nothing overflows."""
    ((name, value),) = argument.items()
    noise = validate.positive(**argument)
    if not _LEAST_VOTE_NOISE <= noise <= _MOST_VOTE_NOISE:
        raise ValueError(
            f"{name} must be between {_LEAST_VOTE_NOISE} and {_MOST_VOTE_NOISE} votes, "
            f"got {name}={value!r}"
        )
    return noise


def _refusal() -> UnsoundConfiguration:
    return UnsoundConfiguration(
        "a data-dependent divergence is sensitive and no guarantee: it does not add to losses and "
        "is not compared, converted or stored. Account the data-independent loss (noisy_vote, "
        "noisy_screening), or release the value by smooth sensitivity or propose-test-release"
    )
