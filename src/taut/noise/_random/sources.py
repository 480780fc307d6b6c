"""Random bits that releases draw from: secure unless an experiment says otherwise.

Noise hides a record only from those who cannot predict it. Ordinary generators are predictable from
their past output, so releases draw from ChaCha20 keyed by the operating system, or from the
operating system itself where the ``cryptography`` package is not installed.
"""

from __future__ import annotations

import copy
import decimal
import importlib
import math
import os
import threading
from abc import ABC, abstractmethod
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from fractions import Fraction
from numbers import Rational, Real
from typing import Any, ClassVar, TypeAlias

import numpy as np
from numpy.typing import NDArray
from scipy.special import ndtri

from taut._base import validate
from taut.noise.recording import active

__all__ = [
    "RandomSource",
    "SecureGenerator",
    "SeededForExperiments",
    "below_exp",
    "default_generator",
    "exp_bounds",
    "rational",
]

Words: TypeAlias = NDArray[np.uint64]
Fill: TypeAlias = Callable[[int], bytes]

_WORD_BITS = 64  # of a draw from the generator
_POOL_BYTES = 1 << 16  # that small draws share: a call for each would cost more than its bytes
_NORMAL_PIECE = 1 << 14  # normal numbers made at a time, so that they stay in the cache
_KEY_BYTES = 1 << 30  # of one key, after which a new one is drawn
_MOST_BYTES = 1 << 36  # of one draw: with a key's, below 2^38, where the block counter would wrap

_forks = 0


def _count_fork() -> None:
    global _forks
    _forks += 1


if hasattr(os, "register_at_fork"):
    os.register_at_fork(after_in_child=_count_fork)


class RandomSource(ABC):
    """Independent uniform bits, and exact draws made of them."""

    secure: ClassVar[bool]
    """Whether nobody can predict the bits; releases to others need True."""

    @abstractmethod
    def bytes(self, n: int) -> bytes:
        """Return ``n`` uniform bytes."""

    def integers_u64(self, n: int) -> Words:
        """Return ``n`` independent integers, uniform on 0, ..., 2^64 - 1, as a read-only array."""
        count = _count(n)
        return np.frombuffer(self.bytes(_WORD_BITS // 8 * count), dtype="<u8")

    def standard_normal(self, size: int) -> NDArray[np.float64]:
        """Return ``size`` normal numbers in floating point, for vectors that are not put on a grid.

        One word each: a sign and 63 bits of the distribution function. The low bits of a double
        can betray what the noise was added to (Mironov 2012); :func:`grid_gaussian` has no such
        bits. Magnitudes beyond 9.2, of probability below 1e-19, do not occur.
        """
        result = np.empty(_count(size))
        for start in range(0, result.size, _NORMAL_PIECE):
            part = result[start : start + _NORMAL_PIECE]
            words = self.integers_u64(part.size).view(np.int64)
            np.add(words, 0.5, out=part)  # half-integers, as many below zero as above
            np.abs(part, out=part)
            part *= 2.0**-64
            ndtri(part, out=part)
            np.copysign(part, words, out=part)
        return result

    def uniform(self, size: int) -> NDArray[np.float64]:
        """Return ``size`` numbers, uniform on the open interval (0, 1), in floating point.

        Multiples of 2^-53, shifted by half of one: neither end occurs.
        """
        words = self.integers_u64(size)
        return ((words >> np.uint64(11)).astype(np.float64) + 0.5) * 2.0**-53

    def standard_exponential(self, size: int) -> NDArray[np.float64]:
        """Return ``size`` exponential numbers of mean one, in floating point, all above zero.

        One word each, whose 64 bits are the tail: values beyond 45.1, of probability below 3e-20,
        do not occur. The caveat of :meth:`standard_normal` about low bits holds here too.
        """
        return -np.log(_tails(self.integers_u64(size)))

    def standard_laplace(self, size: int) -> NDArray[np.float64]:
        """Return ``size`` Laplace numbers of scale one, in floating point, none of them zero.

        One word each: a sign and 63 bits of the tail. The caveat of :meth:`standard_normal` about
        low bits holds here too; :func:`discrete_laplace_noise` is exact, on integers.
        """
        words = self.integers_u64(size)
        magnitude = -np.log(_tails(words & ~np.uint64(1)))
        return np.where(words & np.uint64(1), magnitude, -magnitude)

    def uniform_below(self, bound: int, size: int) -> Words:
        """Return ``size`` independent integers, exactly uniform on 0, ..., ``bound`` - 1.

        Words from the last, incomplete multiple of ``bound`` are drawn again, so no value is
        favoured.

        Args:
            bound: an integer from 1 to 2^64.
            size: how many.

        Raises:
            ValueError: if ``bound`` is outside its range or ``size`` is negative.
        """
        if isinstance(bound, bool) or not isinstance(bound, int | np.integer):
            raise validate.WrongType(f"bound must be an integer, got bound={bound!r}")
        if not 1 <= bound <= 1 << 64:
            raise ValueError(f"bound must lie between 1 and 2^64, got bound={bound!r}")
        bound = int(bound)
        if bound & (bound - 1) == 0:
            return self.integers_u64(size) & np.uint64(bound - 1)
        last = np.uint64((1 << 64) - (1 << 64) % bound - 1)
        words = self.integers_u64(size).copy()
        missing = np.flatnonzero(words > last)
        while missing.size:
            words[missing] = self.integers_u64(missing.size)
            missing = missing[words[missing] > last]
        return words % np.uint64(bound)

    def bernoulli_exp(self, exponent: int | float | Fraction, size: int) -> NDArray[np.bool_]:
        """Return ``size`` independent bits, each true with probability exactly exp(-exponent).

        Args:
            exponent: a rational number, at least 0; floats are taken as the rationals they are.
            size: how many bits.

        Raises:
            ValueError: if ``exponent`` is negative or not finite, or ``size`` is negative.
        """
        power = rational(exponent=exponent)
        if power < 0:
            raise ValueError(f"exponent must be at least 0, got exponent={exponent!r}")
        words = self.integers_u64(size)
        if power == 0:
            return np.ones(words.shape, dtype=np.bool_)
        low, high = exp_bounds(power, _WORD_BITS)
        result = words < np.uint64(low)
        for i in np.flatnonzero((words >= np.uint64(low)) & (words <= np.uint64(high))):
            result[i] = below_exp(power, int(words[i]), _WORD_BITS, self)
        return result


@dataclass
class _Pool:
    """Unused bytes of one thread in one process, and where more come from."""

    fill: Fill
    born: tuple[int, int]
    left: int
    block: bytes = b""
    used: int = 0

    def take(self, n: int) -> bytes:
        """Return ``n`` bytes that nobody was given before."""
        if n >= _POOL_BYTES:
            self.left -= n
            return self.fill(n)
        if self.used + n > len(self.block):
            self.left -= _POOL_BYTES
            self.block, self.used = self.fill(_POOL_BYTES), 0
        start, self.used = self.used, self.used + n
        return self.block[start : self.used]


@dataclass(frozen=True)
class SecureGenerator(RandomSource):
    """Bits that cannot be predicted: ChaCha20 under a key of the operating system, or its own bits.

    Every thread of every process has a key of its own, drawn from ``os.urandom``; after a fork
    and after 2^30 bytes a new one is drawn. So threads and children never share bits, and no lock
    is needed. Without the ``cryptography`` package the bits are those of ``os.urandom``, equally
    secure and some eight times slower.

    Example:
        >>> from taut.noise import SecureGenerator
        >>> generator = SecureGenerator()
        >>> generator.secure, len(generator.bytes(32)), generator.uniform_below(6, size=3).max() < 6
        (True, 32, np.True_)
    """

    secure = True
    _local: threading.local = field(
        default_factory=threading.local, init=False, repr=False, compare=False
    )

    @property
    def source(self) -> str:
        """Where the bits come from, for the report: ``"ChaCha20"`` or ``"os.urandom"``."""
        return "os.urandom" if _ciphers() is None else "ChaCha20"

    def bytes(self, n: int) -> bytes:
        """Return ``n`` uniform bytes that were never returned before, in any thread or process."""
        recorder = active()
        replayed = None if recorder is None else recorder.bits(_count(n))
        return self._pool().take(_count(n)) if replayed is None else replayed

    def __reduce__(self) -> tuple[type[SecureGenerator], tuple[()]]:
        """A pickled generator wakes up with new keys: bits must not be repeated elsewhere."""
        return SecureGenerator, ()

    def _pool(self) -> _Pool:
        pool: _Pool | None = getattr(self._local, "pool", None)
        # The process id alone could come back after two forks; the count misses forks made in C.
        now = (os.getpid(), _forks)
        if pool is None or pool.born != now or pool.left <= 0:
            pool = self._local.pool = _Pool(_new_stream(), now, _KEY_BYTES)
        return pool


class SeededForExperiments(RandomSource):
    """Repeatable bits from a seed, for tests and simulations: never for a release to others.

    Whoever knows or guesses the seed can subtract the noise, and the bits of NumPy's generator can
    be predicted from earlier ones. ``secure`` is False, which reports show.

    Example:
        >>> from taut.noise import SeededForExperiments
        >>> first, second = SeededForExperiments(seed=7), SeededForExperiments(seed=7)
        >>> first.secure, first.bytes(8) == second.bytes(8)
        (False, True)
    """

    secure = False

    def __init__(self, seed: int) -> None:
        self.seed = validate.integer(seed=seed)
        self._bits = np.random.default_rng(self.seed)

    def bytes(self, n: int) -> bytes:
        """Return the next ``n`` bytes that follow from the seed."""
        if (recorder := active()) is not None:
            recorder.follow(self)
        return self._bits.bytes(_count(n))

    def state_dict(self) -> dict[str, Any]:
        """Return where the generator stands, JSON-ready, so that an experiment can be resumed."""
        return {"seed": self.seed, "bits": copy.deepcopy(dict(self._bits.bit_generator.state))}

    def load_state_dict(self, state: Mapping[str, Any]) -> None:
        """Go on from where `state_dict` was taken."""
        self.seed = validate.integer(seed=state["seed"])
        self._bits.bit_generator.state = copy.deepcopy(state["bits"])

    def __repr__(self) -> str:
        return f"SeededForExperiments(seed={self.seed})"


def _tails(words: Words) -> NDArray[np.float64]:
    """Return numbers in (0, 1) with 64 random bits: fine near zero, and never one."""
    tails = (words.astype(np.float64) + 0.5) * 2.0**-64
    return np.minimum(tails, 1 - 2.0**-53)


_DEFAULT = SecureGenerator()


def default_generator() -> SecureGenerator:
    """Return the secure generator that releases draw from unless they are given another."""
    return _DEFAULT


def _count(n: int) -> int:
    count = validate.integer(n=n)
    if count > _MOST_BYTES:
        raise ValueError(f"n must be at most 2^36 bytes, got n={n!r}; draw in portions")
    return count


def _ciphers() -> object | None:
    """Return the module of ChaCha20, if the package that has it is installed."""
    try:
        return importlib.import_module("cryptography.hazmat.primitives.ciphers")
    except ImportError:
        return None


def _new_stream() -> Fill:
    """Return a function that yields fresh bytes, from a key that nobody else has."""
    ciphers = _ciphers()
    return os.urandom if ciphers is None else _chacha20(ciphers)


def _chacha20(ciphers: object) -> Fill:
    # The first four bytes of the "nonce" are the block counter: it starts at zero.
    nonce = bytes(4) + os.urandom(12)
    cipher = ciphers.Cipher(  # type: ignore[attr-defined]
        ciphers.algorithms.ChaCha20(os.urandom(32), nonce),  # type: ignore[attr-defined]
        mode=None,
    )
    encrypt = cipher.encryptor().update

    def fill(n: int) -> bytes:
        stream: bytes = encrypt(bytes(n))
        return stream

    return fill


def below_exp(exponent: Fraction, cut: int, bits: int, source: RandomSource) -> bool:
    """Return whether the uniform number that begins with the bits ``cut`` is below exp(-exponent).

    Draws further bits until an interval around the power decides.
    """
    if exponent == 0:
        return True
    while True:
        low, high = exp_bounds(exponent, bits)
        if cut < low:
            return True
        if cut > high:
            return False
        cut = (cut << _WORD_BITS) | int(source.integers_u64(1)[0])
        bits += _WORD_BITS


def exp_bounds(exponent: Fraction, bits: int) -> tuple[int, int]:
    """Return integers with low <= exp(-exponent) 2^bits < high + 1."""
    if exponent == 0:
        return 1 << bits, 1 << bits
    if exponent >= bits:
        return 0, 0
    # Decimal's exp is correctly rounded, to half a unit of the last of its digits.
    context = decimal.Context(bits // 3 + 10, decimal.ROUND_FLOOR, decimal.MIN_EMIN)
    power = context.divide(-exponent.numerator, exponent.denominator)
    low = context.multiply(context.next_minus(context.exp(power)), 1 << bits)
    context.rounding = decimal.ROUND_CEILING
    power = context.divide(-exponent.numerator, exponent.denominator)
    high = context.multiply(context.next_plus(context.exp(power)), 1 << bits)
    return math.floor(low), min(math.floor(high), (1 << bits) - 1)


def rational(**argument: object) -> Fraction:
    """Return the argument as the rational number that it is."""
    ((name, value),) = argument.items()
    if isinstance(value, bool) or not isinstance(value, Real):
        raise validate.WrongType(
            f"{name} must be a real number, got {name}={value!r}; give an int, float or Fraction"
        )
    if isinstance(value, Rational):
        return Fraction(int(value.numerator), int(value.denominator))
    return Fraction(validate.finite(**{name: value}))
