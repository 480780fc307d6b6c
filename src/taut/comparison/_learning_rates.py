"""Learning rates: where to look for a better one, by one rule for every arm."""

from __future__ import annotations

from collections.abc import Sequence

from taut.comparison._run_file import Run
from taut.comparison._summary import best_learning_rate

__all__ = ["FACTOR", "beyond"]

FACTOR = 2.0
"""What separates an added learning rate from the last one: optima are broader than that."""


def beyond(runs: Sequence[Run]) -> tuple[float, ...]:
    """Return the learning rates to try next: beyond the end where the best one lies.

    Args:
        runs: runs of one arm, with the same seeds for every learning rate.

    One of a single learning rate lies at both ends. None are returned if the best lies inside.
    """
    tried, best = {run.learning_rate for run in runs}, best_learning_rate(runs)
    below = (min(tried) / FACTOR,) if best == min(tried) else ()
    above = (max(tried) * FACTOR,) if best == max(tried) else ()
    return below + above
