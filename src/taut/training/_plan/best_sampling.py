"""The cheaper of two samplings that use as many examples: one plan, made with both."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import TYPE_CHECKING, Any

from taut._base.rounding import round_up
from taut.errors import InfeasibleBudget
from taut.training._sampling.allocation import RandomAllocation
from taut.training._sampling.sampling import PoissonSampling

if TYPE_CHECKING:
    from taut.training._plan.plan import Plan

__all__ = ["BEST", "cheaper"]

BEST = "best"
"""What a plan is told to take the cheaper sampling."""
_SOLVED = {
    "noise_multiplier": "a noise multiplier of",
    "epsilon": "an epsilon of",
    "delta": "a delta of",
}


def cheaper(make: Callable[..., Plan], arguments: Mapping[str, Any]) -> tuple[Plan, str]:
    """Return the better of a plan with random allocation and one with Poisson batches, and why.

    Args:
        make: makes the plan with some arguments changed.
        arguments: those of the plan, None where they are not given.

    Both have the same steps and the same rate, that of an epoch of whole steps. The better one is
    that with the smaller value of what the plan is solved for: noise, epsilon or delta.

    Raises:
        InfeasibleBudget: if neither keeps the promise with noise that is of use.
    """
    try:
        allocated: Plan | None = make(sampling=RandomAllocation())
    except InfeasibleBudget:
        allocated = None
    rate = arguments["rate"] if allocated is None else allocated.rate
    same = {} if rate is None else {"rate": rate, "batch_size": None}
    try:
        poisson = make(sampling=PoissonSampling(), **same)
    except InfeasibleBudget:
        if allocated is None:
            raise
        return allocated, "sampling 'best' is allocation: Poisson batches cannot keep the promise"
    if allocated is None:
        return poisson, "sampling 'best' is poisson: allocation cannot keep the promise"
    (solved,) = (name for name in _SOLVED if arguments[name] is None)
    ours, other = getattr(allocated, solved), getattr(poisson, solved)
    best, less, names = (allocated, (ours, other), ("allocation", "Poisson batches"))
    if other <= ours:
        best, less, names = (poisson, (other, ours), ("poisson", "allocation"))
    share = 100 * (1 - less[0] / less[1]) if less[1] > 0 else 0.0
    return best, (
        f"sampling 'best' is {names[0]}, with {_SOLVED[solved]} {round_up(less[0], 6)}; {names[1]} "
        f"at the same rate would have {round_up(less[1], 6)}: this is {share:.2g} % less"
    )
