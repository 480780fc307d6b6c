"""Renyi divergences as a toolbox: curves, Poisson and fixed-size sampling, conversions, baselines.

A *curve* is a function from an array of orders above one to Renyi divergences that hold for both
orders of a pair of neighbours. Curves of independent or adaptive releases add up:

    >>> from taut.accounting import renyi
    >>> step = renyi.poisson(renyi.laplace(scale=2.0), rate=0.01)
    >>> count = renyi.gaussian(sigma=20.0)
    >>> total = lambda orders: 500 * step(orders) + count(orders)
    >>> round(renyi.epsilon_from_rdp(total, delta=1e-6).value, 3)
    0.512

Where a dominating pair is known, the losses of :mod:`taut` prove more; this is for releases known
by their Renyi divergences alone, for comparison, and for checking published numbers.
"""

from taut._base import surface
from taut.accounting.renyi._baselines import (
    abadi_moments,
    advanced_composition,
    fixed_size,
    optimal_composition,
)
from taut.accounting.renyi._conversions import Converted, delta_from_rdp, epsilon_from_rdp
from taut.accounting.renyi._curves import (
    gaussian,
    laplace,
    pure,
    randomized_response,
    tcdp,
    zcdp,
)
from taut.accounting.renyi._pearson_vajda import (
    pearson_vajda,
    pearson_vajda_gaussian,
    pearson_vajda_laplace,
)
from taut.accounting.renyi._poisson import poisson, sampled_gaussian

__all__ = [
    "Converted",
    "abadi_moments",
    "advanced_composition",
    "delta_from_rdp",
    "epsilon_from_rdp",
    "fixed_size",
    "gaussian",
    "laplace",
    "optimal_composition",
    "pearson_vajda",
    "pearson_vajda_gaussian",
    "pearson_vajda_laplace",
    "poisson",
    "pure",
    "randomized_response",
    "sampled_gaussian",
    "tcdp",
    "zcdp",
]

surface.claim(globals())
