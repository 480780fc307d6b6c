"""How unequal widths are, and what noise that follows them gains."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
from numpy.typing import ArrayLike

from taut._base import validate
from taut._base.floats import ALIKE
from taut.accounting import gaussian_mu
from taut.noise._sets.sets import frozen_vector

__all__ = ["Disparity", "disparity", "laplace_threshold", "majorises"]


@dataclass(frozen=True)
class Disparity:
    """Measures of how unequal the widths of a box are.

    Attributes:
        dimension: number of coordinates.
        nu: mean over maximum, from 1 / dimension to 1.
        gini: the Gini coefficient, from 0 (equal) to 1 - 1 / dimension.
        gain_gaussian: total variance of equal over that of optimal Gaussian noise.
        gain_laplace: the same for Laplace noise with a pure promise; never larger.
        k_eff: the dimension of the box of equal widths, with the same sum, for which Laplace noise
            has the same error relative to Gaussian noise; compare with `laplace_threshold`.
    """

    dimension: int
    nu: float
    gini: float
    gain_gaussian: float
    gain_laplace: float
    k_eff: float


def disparity(widths: ArrayLike) -> Disparity:
    """Return how unequal the widths are, in O(K log K).

    With M_p the sum of p-th powers, the gains are K M_2 / M_1^2 and K M_1^2 / M_{2/3}^3, and
    1 / dimension <= nu <= 1 / gain_gaussian <= 1 / gain_laplace <= 1: by Lyapunov's inequality
    Laplace noise gains less (Muthukrishnan and Kalyani 2025, Remark 5, says the opposite).

    Example:
        >>> from taut.noise import disparity
        >>> found = disparity(range(1, 21))
        >>> round(found.gain_gaussian, 4), round(found.gain_laplace, 4), round(found.gini, 4)
        (1.3016, 1.1339, 0.3167)
    """
    given = frozen_vector(widths, "widths", allow_zero=True)
    share = np.sort(given / given.max())
    size = share.size
    first, second, cubed = share.sum(), share @ share, np.cbrt(share**2).sum() ** 3
    ranks = np.arange(1, size + 1)
    return Disparity(
        dimension=size,
        nu=float(first / size),
        gini=max(float(2 * (ranks @ share) / (size * first) - (size + 1) / size), 0.0),
        gain_gaussian=float(size * second / first**2),
        gain_laplace=float(size * first**2 / cubed),
        k_eff=float(cubed / first**2),
    )


def laplace_threshold(epsilon: float, delta: float) -> float:
    """Return the k_eff below which Laplace noise with delta = 0 has less variance than Gaussian.

    It is epsilon^2 / (2 mu^2), with the largest mu of Gaussian noise within (epsilon, delta).

    Example:
        >>> from taut.noise import laplace_threshold
        >>> round(laplace_threshold(0.5, 1e-6), 3)
        8.116
    """
    at = validate.positive(epsilon=epsilon)
    return (at / gaussian_mu(at, delta)) ** 2 / 2


def majorises(one: ArrayLike, other: ArrayLike) -> bool:
    """Say whether one vector majorises another: equal sums, and larger sums of its k largest.

    If ``one`` majorises ``other``, Laplace noise for a box with its widths has at most the error
    (Muthukrishnan and Kalyani 2025, Theorem 10); for Gaussian noise the squares have to (ibid.,
    Theorem 9).

    Example:
        >>> from taut.noise import majorises
        >>> majorises([3, 1], [2, 2]), majorises([2, 2], [3, 1])
        (True, False)
    """
    a = frozen_vector(one, "one", allow_zero=True)
    b = frozen_vector(other, "other", allow_zero=True)
    if a.size != b.size:
        raise ValueError(f"other must hold {a.size} numbers, got {b.size}")
    tops, others = (np.cumsum(-np.sort(-vector)) for vector in (a, b))
    slack = ALIKE * float(tops[-1])
    same = abs(float(tops[-1] - others[-1])) <= slack
    return same and bool((tops >= others - slack).all())
