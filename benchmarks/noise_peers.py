"""The samplers that taut's are compared with, each as a call that draws a number of times."""

import math
import sys
import types
from collections.abc import Callable

import opendp.prelude as dp

# Its models fail to import beside the current scikit-learn; its mechanisms do not need them.
for _name in ("diffprivlib.models", "diffprivlib.tools"):
    sys.modules[_name] = types.ModuleType(_name)

from diffprivlib import mechanisms  # noqa: E402 - after the stand-ins

dp.enable_features("contrib", "honest-but-curious")

Draw = tuple[Callable[[], object], int]

VECTOR = 20_000
SINGLE = 2_000


def samplers(scale: float) -> dict[str, dict[str, Draw]]:
    """Return the draws by kind of noise and tool, each with how many numbers it draws."""
    return {
        "discrete Gaussian": {
            "OpenDP": _opendp(dp.m.make_gaussian, dp.l2_distance(T=int), int, scale),
            "diffprivlib GaussianDiscrete": _diffprivlib(_discrete_gaussian(scale), 0),
        },
        "discrete Laplace": {
            "OpenDP": _opendp(dp.m.make_laplace, dp.l1_distance(T=int), int, scale),
            "diffprivlib Geometric": _diffprivlib(
                mechanisms.Geometric(epsilon=1 / scale, sensitivity=1), 0
            ),
            "diffprivlib GeometricTruncated": _diffprivlib(
                mechanisms.GeometricTruncated(
                    epsilon=1 / scale, sensitivity=1, lower=-(10**6), upper=10**6
                ),
                0,
            ),
        },
        "Gaussian on a grid": {
            "OpenDP": _opendp(dp.m.make_gaussian, dp.l2_distance(T=float), float, scale),
        },
        "Gaussian in floating point": {
            "diffprivlib Gaussian": _diffprivlib(_gaussian(scale), 0.0),
        },
        "Laplace on a grid": {
            "OpenDP": _opendp(dp.m.make_laplace, dp.l1_distance(T=float), float, scale),
        },
        "Laplace in floating point": {
            "diffprivlib Laplace": _diffprivlib(
                mechanisms.Laplace(epsilon=1 / scale, sensitivity=1), 0.0
            ),
        },
    }


def _opendp(make: Callable[..., Callable], metric: object, number: type, scale: float) -> Draw:
    atoms = dp.atom_domain(T=int) if number is int else dp.atom_domain(T=float, nan=False)
    mechanism = make(dp.vector_domain(atoms), metric, scale=scale)
    zeros = [number(0)] * VECTOR
    return lambda: mechanism(zeros), VECTOR


def _diffprivlib(mechanism: object, zero: float) -> Draw:
    return lambda: [mechanism.randomise(zero) for _ in range(SINGLE)], SINGLE


def _gaussian(scale: float) -> mechanisms.Gaussian:
    """Return the mechanism of this scale: sqrt(2 log(1.25 / delta)) / epsilon at sensitivity 1."""
    delta = 1e-5
    epsilon = math.sqrt(2 * math.log(1.25 / delta)) / scale
    return mechanisms.Gaussian(epsilon=epsilon, delta=delta, sensitivity=1)


def _discrete_gaussian(scale: float) -> mechanisms.GaussianDiscrete:
    # The scale is found from the budget, and 0.3408 gives 10.00.
    if scale != 10.0:
        raise ValueError(f"scale must be 10, got {scale!r}")
    return mechanisms.GaussianDiscrete(epsilon=0.3408, delta=1e-5, sensitivity=1)
