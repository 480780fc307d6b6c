"""Crafted neighbours: datasets in which one example shows as much as the claim allows."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray
from scipy.special import logsumexp

from taut._base import validate
from taut.accounting import Adjacency
from taut.audit._attacks.statistics import Runs, Statistic, StepValues

__all__ = ["Craft", "Rows", "crafted", "likelihood_ratios"]

Rows = NDArray[np.float64]
"""One row for every example: the gradient of its loss, before clipping."""

_MOST_CRAFTED = 10**8  # of one dataset: 800 megabytes, four times
_LARGEST_CRAFTED = 1e300  # a gradient is 64 times as long, and a double
_LONG = 64.0  # clipping norms: long enough that what is not clipped stands out


@dataclass(frozen=True)
class Craft:
    """Two neighbouring datasets, by the gradients of their examples.

    Gradients do not depend on the weights, as those of the loss <w, x> do not. All of them lie in
    the first coordinate, so that the others hold noise alone.

    Attributes:
        name: "silent", where only the canary has a gradient, or "opposed", where all others
            have the longest that is not clipped, in the opposite direction.
        without: the gradients of the dataset,
        including: dataset of its neighbour: with one example more, or with one turned around.
    """

    name: str
    without: Rows
    including: Rows


def crafted(
    examples: int, *, clip_norm: float, dimension: int, adjacency: Adjacency | str
) -> tuple[Craft, Craft]:
    """Return neighbours that show mistakes: one pair each for noise and clipping, and for averages.

    In the first pair the other examples are silent, and the sum is the canary's gradient or nothing
    but noise: the worst case of the sampled Gaussian. In the second they oppose the canary, so that
    an average over the batch that was drawn moves by twice what a sum over a constant does.

    Args:
        examples: number of examples of the dataset without the canary.
        clip_norm: what an example's gradient is clipped to.
        dimension: dimension of gradients, at least 2.
        adjacency: "add_remove" adds the canary, "replace" turns the last example around.

    Example:
        >>> from taut.audit import crafted
        >>> silent, opposed = crafted(3, clip_norm=1.0, dimension=2, adjacency="add_remove")
        >>> silent.without[:, 0].tolist(), opposed.including[:, 0].tolist()
        ([0.0, 0.0, 0.0], [-1.0, -1.0, -1.0, 64.0])
    """
    n = validate.positive_integer(examples=examples)
    norm = validate.positive(clip_norm=clip_norm)
    d = validate.positive_integer(dimension=dimension)
    if d < 2:
        raise ValueError(f"dimension must be at least 2, got dimension={dimension!r}")
    if n * d > _MOST_CRAFTED:
        raise ValueError(
            f"examples times dimension must be at most 10^8, got examples={examples!r} and "
            f"dimension={dimension!r}; mistakes show in small datasets"
        )
    if not norm <= _LARGEST_CRAFTED:
        raise ValueError(f"clip_norm must be at most 1e300, got clip_norm={clip_norm!r}")
    relation = Adjacency(adjacency)
    if relation not in (Adjacency.ADD_REMOVE, Adjacency.REPLACE):
        raise ValueError(
            f"adjacency must be 'add_remove' or 'replace', got adjacency={adjacency!r}"
        )
    return (
        _craft("silent", n, 0.0, norm, d, relation),
        _craft("opposed", n, -norm, norm, d, relation),
    )


def _craft(
    name: str, examples: int, others: float, norm: float, dimension: int, relation: Adjacency
) -> Craft:
    rows = np.zeros((examples, dimension))
    rows[:, 0] = others
    canary = np.zeros((1, dimension))
    canary[0, 0] = _LONG * norm
    if relation is Adjacency.REPLACE:
        return Craft(name, np.vstack([rows[:-1], -canary]), np.vstack([rows[:-1], canary]))
    return Craft(name, rows, np.vstack([rows, canary]))


def likelihood_ratios(
    craft: Craft, *, shift: StepValues, rate: StepValues, relation: Adjacency
) -> Mapping[str, Statistic]:
    """Return the statistics of Neyman and Pearson for the mechanism that was claimed.

    Args:
        craft: only where others are silent is the ratio known in closed form.
        shift: the length of a clipped gradient, in units of the noise's deviation; one number, or
            one for every step.
        rate: the probability that the canary is in a batch, likewise.
        relation: relation of the neighbours.

    Returns:
        "likelihood ratio", the sum over steps for batches that are drawn afresh, and "once in an
        epoch", the sum over epochs if the canary is in exactly one batch of every 1 / rate; the
        last epoch may be a part. Steps that differ have the first alone.
    """
    if craft.name != "silent":
        return {}

    def ratio(runs: Runs) -> NDArray[np.float64]:
        x = runs[:, :, 0]
        logs = _mixed(x, shift, rate) - _base(x, shift, rate, relation)
        return np.asarray(logs.sum(1))

    if isinstance(shift, np.ndarray) or isinstance(rate, np.ndarray):
        return {"likelihood ratio": ratio}

    def once(runs: Runs) -> NDArray[np.float64]:
        x = runs[:, :, 0]
        period = max(round(1 / rate), 1)
        epochs = [x[:, first : first + period] for first in range(0, x.shape[1], period)]
        logs = np.zeros(len(x))
        for part in epochs:
            logs += _once(part, shift, period)
            if relation is Adjacency.REPLACE:
                logs -= _once(-part, shift, period)
        return logs

    return {"likelihood ratio": ratio, "once in an epoch": once}


def _mixed(x: NDArray[np.float64], shift: StepValues, rate: StepValues) -> NDArray[np.float64]:
    """Return the log density of a step with the canary, over that of noise alone."""
    exponent = shift * x - shift**2 / 2
    with np.errstate(divide="ignore"):  # at a rate of one, no step is without
        without = np.log1p(-np.asarray(rate))
    return np.asarray(np.logaddexp(without, np.log(rate) + exponent))


def _once(x: NDArray[np.float64], shift: float, period: int) -> NDArray[np.float64]:
    """Return the log density of an epoch, or of its first steps, over that of noise alone."""
    exponents = shift * x - shift**2 / 2
    missing = period - x.shape[1]
    if missing:  # the canary may have drawn one of these, where it is not seen
        exponents = np.column_stack([exponents, np.full(len(x), np.log(missing))])
    return np.asarray(logsumexp(exponents, axis=1) - np.log(period))


def _base(
    x: NDArray[np.float64], shift: StepValues, rate: StepValues, relation: Adjacency
) -> NDArray[np.float64]:
    if relation is Adjacency.REPLACE:
        return _mixed(-x, shift, rate)
    return np.zeros_like(x)
