"""Truths that do not come from taut: closed forms in exact or 50-digit arithmetic.

Every function returns delta(epsilon). A bracket on epsilon is checked by evaluating the truth at
both of its ends, so no root search of our own can hide an error.
"""

from __future__ import annotations

import itertools
import math
from collections.abc import Callable, Iterable, Sequence
from fractions import Fraction

import mpmath as mp

DIGITS = 50
FLOOR = 1e-45  # Fourier sums are accurate absolutely; smaller values are not compared

Delta = Callable[[float], mp.mpf]


def number(value: float) -> mp.mpf:
    """Return a float exactly."""
    return mp.mpf(value)


def fraction(value: Fraction) -> mp.mpf:
    """Return a fraction to the working precision."""
    return mp.mpf(value.numerator) / value.denominator


# --- one release ---------------------------------------------------------------------------------


def gaussian_delta(mu: float | mp.mpf, epsilon: float | mp.mpf) -> mp.mpf:
    """Return Phi(mu/2 - e/mu) - exp(e) Phi(-mu/2 - e/mu)."""
    with mp.workdps(DIGITS + 30):
        mu, epsilon = mp.mpf(mu), mp.mpf(epsilon)
        return _upper_tail(epsilon / mu - mu / 2) - mp.exp(epsilon) * _upper_tail(
            epsilon / mu + mu / 2
        )


def gaussian_sum_mu(parts: Iterable[tuple[float, int]]) -> mp.mpf:
    """Return the mu of a sum of Gaussian losses given as (mu, count)."""
    with mp.workdps(DIGITS + 30):
        return mp.sqrt(mp.fsum(count * mp.mpf(mu) ** 2 for mu, count in parts))


def laplace_delta(scale: float, epsilon: float | mp.mpf) -> mp.mpf:
    """Return (1 - exp((e - 1/b)/2))_+ for e >= 0, and 1 - exp(e) below -1/b."""
    with mp.workdps(DIGITS):
        reach, epsilon = 1 / mp.mpf(scale), mp.mpf(epsilon)
        if epsilon < -reach:
            return 1 - mp.exp(epsilon)
        return max(1 - mp.exp((epsilon - reach) / 2), mp.mpf(0))


def exponential_delta(total: float, epsilon: float | mp.mpf) -> mp.mpf:
    """Return (1 - exp(-(e0 - e)/2))^2 / (1 - exp(-e0)) for |e| <= e0."""
    with mp.workdps(DIGITS):
        total, epsilon = mp.mpf(total), mp.mpf(epsilon)
        if epsilon >= total:
            return mp.mpf(0)
        if epsilon <= -total:
            return 1 - mp.exp(epsilon)
        return (1 - mp.exp((epsilon - total) / 2)) ** 2 / (1 - mp.exp(-total))


def variance_delta(sigma_p: float, sigma_q: float, epsilon: float | mp.mpf) -> mp.mpf:
    """Return the profile of N(0, sigma_p^2) against N(0, sigma_q^2)."""
    with mp.workdps(DIGITS + 20):
        s, t, epsilon = mp.mpf(sigma_p), mp.mpf(sigma_q), mp.mpf(epsilon)
        square = (mp.log(t / s) - epsilon) / ((s**-2 - t**-2) / 2)
        if square <= 0:  # the loss is beyond its peak: never above epsilon, or always
            return mp.mpf(0) if s < t else 1 - mp.exp(epsilon)
        x = mp.sqrt(square)
        if s > t:
            return mp.erfc(x / (s * mp.sqrt(2))) - mp.exp(epsilon) * mp.erfc(x / (t * mp.sqrt(2)))
        return mp.erf(x / (s * mp.sqrt(2))) - mp.exp(epsilon) * mp.erf(x / (t * mp.sqrt(2)))


def _upper_tail(x: mp.mpf) -> mp.mpf:
    return mp.erfc(x / mp.sqrt(2)) / 2


# --- sampling rules for one release --------------------------------------------------------------


def sampled_delta(base: Delta, swapped: Delta, rate: float, half: str) -> Delta:
    """Return the profile of one half after Poisson sampling (or fixed-size, with a replace base).

    ``base`` is H(P || Q) with P the output without the record; ``swapped`` is H(Q || P).
    """
    gamma = mp.mpf(rate)

    def add(epsilon: float | mp.mpf) -> mp.mpf:
        t = mp.exp(mp.mpf(epsilon))
        rest = 1 - t * (1 - gamma)
        return rest * base(mp.log(t * gamma / rest)) if rest > 0 else mp.mpf(0)

    def remove(epsilon: float | mp.mpf) -> mp.mpf:
        t = mp.exp(mp.mpf(epsilon))
        rest = t - (1 - gamma)
        return gamma * swapped(mp.log(rest / gamma)) if rest > 0 else 1 - t

    return {"add": add, "remove": remove}[half]


# --- sums ----------------------------------------------------------------------------------------


def randomized_response_delta(p: float, count: int, epsilon: float) -> mp.mpf:
    """Return the sum over j of Binomial(count, p)(j) (1 - exp(e - (2 j - count) e0))_+."""
    return failing_response_delta(_odds(p), 0.0, count, epsilon)


def _odds(p: float) -> mp.mpf:
    with mp.workdps(DIGITS):
        return mp.log(mp.mpf(p)) - mp.log(1 - mp.mpf(p))


def failing_response_delta(
    single: float | mp.mpf, failure: float, count: int, epsilon: float
) -> mp.mpf:
    """Return delta of ``count`` (single, failure)-DP releases (Kairouz, Oh and Viswanath 2015)."""
    with mp.workdps(DIGITS):
        single, epsilon = mp.mpf(single), mp.mpf(epsilon)
        p = 1 / (1 + mp.exp(-single))
        start = max(int(mp.floor((epsilon / single + count) / 2)) + 1, 0)
        total, term = mp.mpf(0), None
        for j in range(start, count + 1):
            if term is None:
                term = mp.exp(
                    mp.loggamma(count + 1)
                    - mp.loggamma(j + 1)
                    - mp.loggamma(count - j + 1)
                    + j * mp.log(p)
                    + (count - j) * mp.log(1 - p)
                )
            else:
                term *= (count - j + 1) * p / (j * (1 - p))
            total += term * -mp.expm1(epsilon - (2 * j - count) * single)
            if j > count * p and term < total * mp.mpf(10) ** -35:
                break
        survive = (1 - mp.mpf(failure)) ** count
        return 1 - survive + survive * total


def gaussian_and_response_delta(mu: mp.mpf, p: float, count: int, epsilon: float) -> mp.mpf:
    """Return a binomial mixture of shifted Gaussian profiles."""
    with mp.workdps(DIGITS):
        single, p, total = _odds(p), mp.mpf(p), mp.mpf(0)
        for j in range(count + 1):
            weight = mp.binomial(count, j) * p**j * (1 - p) ** (count - j)
            total += weight * gaussian_delta(mu, epsilon - (2 * j - count) * single)
        return total


def discrete_gaussian_delta(sigma: float, shift: int, count: int, epsilon: float) -> mp.mpf:
    """Return delta of ``count`` discrete Gaussians from the exact law of their sum.

    The loss depends on the sum S alone. Its law is the Fourier sum of the count-th power of the
    theta function; the window holds all but 1e-60 of the mass, the tail of S in the question is a
    geometric series.
    """
    with mp.workdps(DIGITS + 30):
        variance = mp.mpf(sigma) ** 2
        reach = math.ceil(19 * sigma + 2)
        weights = [mp.exp(-mp.mpf(x * x) / (2 * variance)) for x in range(reach + 1)]
        norm = weights[0] + 2 * mp.fsum(weights[1:])
        half = math.ceil(17 * sigma * math.sqrt(count) + count * shift / 2 + 2)
        size = 2 * half + 1
        epsilon = mp.mpf(epsilon)
        # loss(s) > epsilon iff s < bound
        bound = (count * mp.mpf(shift) ** 2 - 2 * variance * epsilon) / (2 * shift)
        top = int(mp.ceil(bound)) - 1
        if top < -half:
            return mp.mpf(0)
        top = min(top, half)
        slope = shift / variance  # exp(e - loss(s)) = exp(slope (s - bound))
        total = mp.mpf(0)
        for k in range(half + 1):
            angle = 2 * mp.pi * k / size
            cos = mp.cos(angle)
            previous, current = mp.mpf(1), cos
            phi = weights[0]
            for weight in weights[1:]:
                phi += 2 * weight * current
                previous, current = current, 2 * cos * current - previous
            power = (phi / norm) ** count
            if abs(power) < mp.mpf(10) ** -(DIGITS + 15):
                break
            step = mp.expj(-angle)
            plain = _geometric(step, -half, top)
            weighted = mp.exp(-slope * bound) * _geometric(step * mp.exp(slope), -half, top)
            total += power * (plain - weighted).real * (1 if k == 0 else 2)
        return total / size


def _geometric(ratio: mp.mpc, first: int, last: int) -> mp.mpc:
    """Return the sum of ratio^s for s from first to last."""
    if ratio == 1:
        return mp.mpf(last - first + 1)
    return (ratio ** (last + 1) - ratio**first) / (ratio - 1)


def laplace_sum_delta(scale: float, count: int, epsilon: float) -> mp.mpf:
    """Return delta of a few Laplace releases by direct convolution.

    One loss is r = 1/b with mass 1/2, -r with mass exp(-r)/2, else it has the density
    exp((l - r)/2)/4 on (-r, r). So the sum of m continuous ones has exp((s - m r)/2)/4^m times the
    m-fold convolution of the indicator, a spline, and the integrals are incomplete gammas.
    """
    with mp.workdps(DIGITS + 40):
        reach, epsilon = 1 / mp.mpf(scale), mp.mpf(epsilon)
        total = mp.mpf(0)
        for top in range(count + 1):
            for bottom in range(count + 1 - top):
                middle = count - top - bottom
                ways = mp.factorial(count) / (
                    mp.factorial(top) * mp.factorial(bottom) * mp.factorial(middle)
                )
                masses = mp.mpf(2) ** -(top + bottom) * mp.exp(-bottom * reach)
                cut = epsilon - (top - bottom) * reach
                total += ways * masses * _spline_tail(reach, middle, cut)
        return total


def _spline_tail(reach: mp.mpf, middle: int, cut: mp.mpf) -> mp.mpf:
    """Return the integral over s > cut of (1 - exp(cut - s)) times the law of ``middle`` losses."""
    if middle == 0:
        return -mp.expm1(cut) if cut < 0 else mp.mpf(0)
    total = mp.mpf(0)
    for k in range(middle + 1):
        knot = (middle - 2 * k) * reach
        width = knot - cut
        if width <= 0:
            break
        # Two exponentials e^(s/2) and e^(cut - s/2) against (knot - s)^(m-1) / (m-1)!
        rising = mp.exp(knot / 2) * _truncated_gamma(middle, mp.mpf(1) / 2, width)
        falling = mp.exp(cut - knot / 2) * _truncated_gamma(middle, -mp.mpf(1) / 2, width)
        total += (-1) ** k * mp.binomial(middle, k) * (rising - falling)
    return total * mp.exp(-middle * reach / 2) / mp.mpf(4) ** middle


def _truncated_gamma(shape: int, rate: mp.mpf, width: mp.mpf) -> mp.mpf:
    """Return the integral from 0 to width of exp(-rate y) y^(shape-1) / (shape-1)!, by parts."""
    x = rate * width
    series = mp.fsum(x**j / mp.factorial(j) for j in range(shape))
    return (1 - mp.exp(-x) * series) / rate**shape


def composed_delta(law: Law, profile: Delta, epsilon: float) -> mp.mpf:
    """Return delta of two releases: E over the first loss of the second profile at e - loss."""
    with mp.workdps(30):
        return mp.mpf(law.mean(lambda loss: profile(mp.mpf(epsilon) - loss)))


class Law:
    """The law of one loss under P: a density over x with loss(x), and atoms."""

    def __init__(
        self,
        density: Callable[[mp.mpf], mp.mpf] | None = None,
        loss: Callable[[mp.mpf], mp.mpf] | None = None,
        pieces: Sequence[float | mp.mpf] = (),
        atoms: Sequence[tuple[mp.mpf, mp.mpf]] = (),
        mass_inf: float | mp.mpf = 0,
    ) -> None:
        """Take the continuous part on ``pieces`` (integration is split there) and the atoms."""
        self.density, self.loss, self.pieces = density, loss, pieces
        self.atoms, self.mass_inf = atoms, mass_inf

    def mean(self, function: Callable[[mp.mpf], mp.mpf]) -> mp.mpf:
        """Return the expectation of ``function`` (of the loss; 1 at infinity)."""
        total = mp.mpf(self.mass_inf) + mp.fsum(mass * function(at) for at, mass in self.atoms)
        if self.density is not None:
            total += mp.quad(lambda x: self.density(x) * function(self.loss(x)), self.pieces)
        return total


# --- finitely many outcomes ----------------------------------------------------------------------


def finite_delta(
    pairs: Sequence[tuple[Sequence[Fraction], Sequence[Fraction]]], epsilon: float
) -> mp.mpf:
    """Return delta of the product of finite pairs, by enumeration of all outcomes."""
    with mp.workdps(DIGITS):
        threshold, total = mp.exp(mp.mpf(epsilon)), mp.mpf(0)
        for outcome in itertools.product(*(list(zip(p, q, strict=True)) for p, q in pairs)):
            mass_p = math.prod(p for p, _ in outcome)
            mass_q = math.prod(q for _, q in outcome)
            surplus = fraction(mass_p) - threshold * fraction(mass_q)
            if surplus > 0:
                total += surplus
        return total


def mixed(
    p: Sequence[Fraction], q: Sequence[Fraction], rate: Fraction, half: str
) -> tuple[list[Fraction], list[Fraction]]:
    """Return the pair (first, second) of a sampled release: p without the record, q with it."""
    mixture = [(1 - rate) * a + rate * b for a, b in zip(p, q, strict=True)]
    return (list(p), mixture) if half == "add" else (mixture, list(p))
