"""The noise and the sampling with the least error at a promise: a plan for `noise="best"`."""

from __future__ import annotations

import math
from dataclasses import dataclass

from taut._base.rounding import round_up
from taut.errors import UnsoundConfiguration
from taut.matrix import Encoder, RankedNoise, Workload, optimize
from taut.training._sampling.allocation import RandomAllocation
from taut.training._sampling.fixed_order import FixedOrderSampling
from taut.training._sampling.keyed import (
    BallsInBinsSampling,
    CyclicAllocationSampling,
    CyclicPoissonSampling,
)
from taut.training._sampling.sampling import PoissonSampling, Sampling

__all__ = ["BestNoise", "best_noise"]

_RANKED = {
    PoissonSampling.name: "poisson",
    RandomAllocation.name: "allocation",
    CyclicAllocationSampling.name: "allocation",
    CyclicPoissonSampling.name: "cyclic_poisson",
    BallsInBinsSampling.name: "balls_in_bins",
    FixedOrderSampling.name: "fixed_order",
}
"""What a ranking calls samplings. Balls in bins are ranked if they are asked for: cyclic allocation
hides as much and draws anew in every epoch."""
_USUAL = ("poisson", "allocation", "cyclic_poisson", "fixed_order")


@dataclass(frozen=True)
class BestNoise:
    """What was found, and why.

    Attributes:
        encoder: encoder of the noise; None for independent noise.
        sampling: sampling that goes with it.
        why: note for the plan.
    """

    encoder: Encoder | None
    sampling: Sampling
    why: str


def best_noise(
    steps: int, rate: float, epsilon: float | None, delta: float | None, sampling: Sampling | None
) -> BestNoise:
    """Return the noise with the least root mean square error of running sums at a promise.

    Args:
        steps: number of steps.
        rate: share of all examples in a step, one over whole steps of an epoch.
        epsilon: promise.
        delta: promise.
        sampling: sampling that is asked for; None for any.

    Raises:
        ValueError: if there is no promise to choose for.
        UnsoundConfiguration: for a sampling that is not ranked.
    """
    if epsilon is None or delta is None:
        raise ValueError("noise='best' is chosen for a promise; give epsilon and delta")
    wanted = None if sampling is None else sampling.name
    if wanted is not None and wanted not in _RANKED:
        raise UnsoundConfiguration(
            f"noise='best' is not ranked for sampling={wanted!r}; leave sampling out, or use one "
            f"of {', '.join(_RANKED)}"
        )
    ranking = optimize(
        Workload(steps),
        epochs=steps * rate,
        epsilon=epsilon,
        delta=delta,
        samplers=_USUAL if wanted is None else ("poisson", _RANKED[wanted]),
    )
    usual = ranking["independent, poisson"]
    rows = [row for row in ranking if wanted is None or _sampling(row).name == wanted]
    if not rows:
        raise ValueError(f"an epoch of {round(1 / rate)} steps has no groups for {wanted!r}")
    best = rows[0]
    encoder = None if best.noise == "independent" else best.encoder
    return BestNoise(encoder, _sampling(best), _why(best, usual))


def _sampling(row: RankedNoise) -> Sampling:
    """Return the sampling of a row, which a plan fits to its rate."""
    if row.sampling == "poisson":
        return PoissonSampling()
    if row.sampling == "allocation":
        return (
            RandomAllocation()
            if row.noise == "independent"
            else CyclicAllocationSampling(groups=row.bands)
        )
    if row.sampling == "cyclic_poisson":
        return CyclicPoissonSampling(groups=row.bands)
    return BallsInBinsSampling() if row.sampling == "balls_in_bins" else FixedOrderSampling()


def _why(best: RankedNoise, usual: RankedNoise) -> str:
    found, other = best.root_mean_square, usual.root_mean_square
    bands = "" if best.noise in ("independent", "square root") else f" ({best.bands})"
    name = f"noise 'best' is {best.noise}{bands} with sampling {_sampling(best).name!r}"
    if best is usual:
        return f"{name}: no other keeps the promise with a smaller error of running sums"
    share = 100 * (1 - found / other) if other > 0 and math.isfinite(other) else 0.0
    return (
        f"{name}, with an error of running sums of {round_up(found, 4)} clipping norms; "
        f"independent noise with Poisson batches at the same rate would have {round_up(other, 4)}: "
        f"this is {share:.2g} % less"
    )
