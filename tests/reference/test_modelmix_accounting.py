"""Reference values of Gaussian and Laplace noise plus uniform noise, one test per value.

The numbers are in ``modelmix_accounting.json``, with lengths in units of the clipping norm: noise
multiplier z, width r of the uniform noise, p = (clip / largest coordinate)^2.
"""

import json
import math
from pathlib import Path

import numpy as np
import pytest
from scipy.special import ndtr

from taut.accounting._adjacency import Half
from taut.accounting._comparisons.equal_variance import compare_mixing, fisher_information
from taut.accounting._mechanisms.uniform_moments import (
    gaussian_uniform_cumulants,
    laplace_uniform_cumulants,
)
from taut.accounting._mechanisms.uniform_noise import mixed_gaussian
from taut.accounting.renyi._conversions import epsilon_from_rdp

PATH = Path(__file__).parent / "values" / "modelmix_accounting.json"
CHECKS = json.loads(PATH.read_text(encoding="utf-8"))


def step(z, r, p, q):
    return mixed_gaussian(z, r, sensitivity_inf=1 / math.sqrt(p), rate=q)


def gaussian_moment(k, v, z, r):
    return gaussian_uniform_cumulants(v / z, r / z, 8)[k]


def laplace_moment(k, v, lam, w):
    return laplace_uniform_cumulants(lam * v, float(lam * w), 8)[k]


def edge(k, t):
    return 40 * math.expm1(gaussian_uniform_cumulants(t, 40.0, 8)[k])


def information(z, r):
    return fisher_information(z, r)


def epsilon(q, T, z, r, p, delta):
    """Return the value of integer orders and the classic conversion, as in the paper."""
    ((release, _),) = step(z, r, p, q).terms

    def rdp(orders):
        return T * release.renyi(Half.ADD, orders)

    return epsilon_from_rdp(rdp, delta, conversion="classic", orders=range(2, 65)).value


def certified_epsilon(q, T, z, r, p, delta):
    return (T * step(z, r, p, q)).epsilon(delta)


def compare(field, q, T, z, r, p, delta):
    return getattr(compare_mixing(T * step(z, r, p, q), delta, conversion="classic"), field)


def total_variation(z, r, p):
    """Return delta(0) of p equal shifts of total length 1, independently of the accountant."""
    if p is None:  # the dense limit is a Gaussian
        return 2 * ndtr(math.sqrt(fisher_information(z, r)) / 2) - 1
    size, reach = 2**15, 40.0
    shift = 1 / math.sqrt(p)
    x = (np.arange(400_001) - 200_000) * 1e-4
    edges = (ndtr((x + r / 2) / z) - ndtr((x - r / 2) / z)) / r
    moved = np.maximum((ndtr((x - shift + r / 2) / z) - ndtr((x - shift - r / 2) / z)) / r, 1e-290)
    loss = np.log(np.maximum(edges, 1e-290)) - np.log(moved)
    # Each loss is split between two points of a lattice so that its mean is kept.
    at = np.clip((loss + reach) / (2 * reach) * size, 0, size - 2)
    low = at.astype(int)
    mass = edges / edges.sum()
    lattice = np.bincount(low, mass * (1 - (at - low)), size)
    lattice += np.bincount(low + 1, mass * (at - low), size)
    powers = np.fft.ifft(np.fft.fft(np.roll(lattice, -(size // 2))) ** p).real
    values = np.fft.fftfreq(size, 1 / size) * (2 * reach / size)
    return float(np.sum(powers * np.maximum(-np.expm1(-values), 0.0)))


ASK = {
    "gaussian_moment": gaussian_moment,
    "laplace_moment": laplace_moment,
    "edge": edge,
    "fisher_information": information,
    "epsilon": epsilon,
    "certified_epsilon": certified_epsilon,
    "compare": compare,
    "total_variation": total_variation,
}


@pytest.mark.parametrize("check", CHECKS, ids=[check["id"] for check in CHECKS])
def test_reference(check):
    found, expected = ASK[check["ask"]](**check["with"]), check["expected"]
    if check["kind"] == "at_least":
        assert found >= expected
    else:
        assert found == pytest.approx(expected, rel=check["tolerance"], abs=0)
