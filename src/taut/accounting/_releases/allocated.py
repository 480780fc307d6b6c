"""Random allocation: every record takes part in one step of an epoch, drawn uniformly."""

from __future__ import annotations

import math
from dataclasses import dataclass
from functools import lru_cache

import numpy as np

from taut._base.floats import RELATIVE_ERROR
from taut._base.validate import PositiveInteger
from taut.accounting._adjacency import Adjacency, Half
from taut.accounting._engines.ratios import RATIO_TAIL, Ratios, ratio_sums
from taut.accounting._pairs.bracketed import BracketedPair
from taut.accounting._pairs.discretisation import BeyondLattice
from taut.accounting._pairs.finite import FinitePair
from taut.accounting._pairs.pair import Pair
from taut.accounting._pairs.sampled import SampledPair
from taut.accounting._releases.product import EnclosedPair
from taut.accounting._releases.release import Base, Release, refuse_batches
from taut.accounting._releases.renyi_only import refuse_renyi_only

__all__ = ["Allocated"]

# Nodes of a level to either side: ten epochs are then known to some 5e-5 of epsilon.
_NODES = 512


@dataclass(frozen=True)
class Allocated(Release):
    """``base`` in one of ``steps`` steps for each record, of which ``taken`` were taken so far.

    Each record draws its step uniformly, independently of all others, and the draw stays secret.
    """

    kind = "allocated"
    no_exchange = (
        "allocated(steps) has no theorem for adjacency='replace': the steps of the other "
        "record change as well, so that no step is left as it was. Use a loss for "
        "adjacency='add_remove' or 'zero_out', for a sum clipped at C: "
        "gaussian(sigma, sensitivity=C).allocated(steps)"
    )
    base: Base
    steps: PositiveInteger
    taken: PositiveInteger

    def check_fields(self) -> None:
        """Check the parameters."""
        refuse_renyi_only(
            self.base,
            "allocated(steps) needs a dominating pair, and the loss is known by its Renyi "
            "divergences only; use poisson(rate), which keeps divergences",
        )
        if self.taken > self.steps:
            raise ValueError(
                f"taken must not exceed steps, got taken={self.taken}, steps={self.steps}"
            )
        refuse_batches(self.base)

    def pair(self, half: Half) -> Pair:
        """Return the pair of the mean ratio, spread, with the merged one inside.

        Where ratios are too large for floats, noise is so little that an epoch costs about what
        the step costs that the record takes part in, and that step's pair dominates.
        """
        if self.steps == 1:
            return self.base.pair(half)
        return _enclosed(self, half) or _one_step(self, half)

    def check(self, adjacency: Adjacency) -> None:
        """A step without the record must be a step for which another record was drawn."""
        self.base.check(adjacency)
        super().check(adjacency)

    def __str__(self) -> str:
        """Return the call chain."""
        taken = f", taken={self.taken}" if self.taken < self.steps else ""
        return f"{self.base}.allocated({self.steps}{taken})"


@lru_cache(maxsize=64)
def _enclosed(release: Allocated, half: Half) -> Pair | None:
    """Return the laws of the mean ratio as pairs, or nothing if floats cannot hold them."""
    epoch = _epoch(release)
    if epoch is None:
        return None
    upper, lower, infinite, absent = epoch
    return EnclosedPair(
        *_as_fields(upper, release, infinite[0], 1.0, half, upper=True),
        inside=FinitePair(*_as_fields(lower, release, infinite[1], absent, half, upper=False)),
    )


def _one_step(release: Allocated, half: Half) -> Pair:
    """Return what is known without the law of the mean.

    A mean of independent copies is below one copy in convex order; and who looks at the first
    step alone sees a Poisson sample.
    """
    base = release.base.pair(half)
    share = release.taken / release.steps
    above = base if share == 1 else SampledPair(base, share, half)
    return BracketedPair(above, SampledPair(base.reached, 1 / release.steps, half))


@lru_cache(maxsize=64)
def _epoch(release: Allocated) -> tuple[Ratios, Ratios, tuple[float, float], float] | None:
    """Return the sum of the ratios of all steps taken, spread and merged, and infinite masses.

    Last, the Q-mass of outputs that surely tell that no step had the record.
    """
    pair = release.base.pair(Half.REMOVE)
    try:
        with np.errstate(over="ignore", under="ignore", divide="ignore"):
            upper, lower = ratio_sums(pair, release.taken, _NODES)
    except (BeyondLattice, ArithmeticError):
        return None
    share = release.taken / release.steps
    infinite = (share * (pair.mass_inf + RATIO_TAIL), share * pair.reached.mass_inf)
    absent = pair.reached.mass_minus_inf**release.taken if share == 1 else 0.0
    return upper, lower, infinite, absent


def _as_fields(
    ratios: Ratios, release: Allocated, infinite: float, most: float, half: Half, *, upper: bool
) -> tuple[tuple[float, ...], tuple[float, ...], float, float]:
    """Return losses, log masses and infinite masses of one direction, errors to the safe side.

    The mean ratio is R = 1 + (S - taken) / steps for the sum S of the ratios of the steps taken.
    Where it is too small for its rounding it is zero here, of which ``most`` is believed.
    """
    steps, taken = release.steps, release.taken
    shift = (ratios.values - taken) / steps
    ratio = (steps - taken + ratios.values) / steps
    zero = ratio <= 0
    absent = min(float(ratios.masses[zero].sum()), most) + (RATIO_TAIL if upper else 0.0)
    shift, ratio, masses = shift[~zero], ratio[~zero], ratios.masses[~zero]
    log_ratio = np.where(shift > -0.5, np.log1p(np.maximum(shift, -0.5)), np.log(ratio))
    label = ratios.label_error * (1 + ratios.centre / (steps * ratio)) + RELATIVE_ERROR * np.abs(
        log_ratio
    )
    slack = ratios.mass_error + 8 * RELATIVE_ERROR
    sign = 1.0 if upper else -1.0
    log_masses = np.log(masses)
    if half is Half.ADD:
        losses, log_masses = -log_ratio[::-1], log_masses[::-1]
        label, gone, missing = label[::-1], absent, infinite
    else:
        losses, log_masses = log_ratio, log_masses + log_ratio
        gone, missing = infinite, absent
    log_masses = log_masses + sign * (slack + (label if half is Half.REMOVE else 0.0))
    losses = losses + sign * label
    gone = gone * (1 + sign * slack)
    q_total = math.fsum(np.exp(log_masses - losses).tolist())
    return (
        tuple(losses.tolist()),
        tuple(log_masses.tolist()),
        max(gone, 0.0),
        max(1 - q_total, missing, 0.0),
    )
