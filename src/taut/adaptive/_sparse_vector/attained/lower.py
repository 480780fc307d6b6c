"""The largest epsilon below which no proof can go: that of the best attack that is found."""

from __future__ import annotations

import math
from collections.abc import Iterator
from functools import lru_cache

from taut.accounting import PrivacyLoss
from taut.adaptive._sparse_vector.attained.coins import best_coin_attack
from taut.adaptive._sparse_vector.attained.search import strongest
from taut.adaptive._sparse_vector.attained.streams import Attack, Streams
from taut.adaptive._sparse_vector.bounds import Comparisons

__all__ = ["certified_lower"]

_MANY = 10**6  # questions of an attack on a sparse vector without an end
_MOST = 10**9  # of any attack: rounding of binomials grows with their number
_SURE = 30  # answers below for each above, that tell of a high threshold where delta is zero
_HIGH = 3.0  # scales of its noise that it is high by
_OF_ONE = 0.02  # delta of one of many copies, which is told apart by its bulk


@lru_cache(maxsize=256)
def certified_lower(
    comparisons: Comparisons, moved: float, grid: float, copies: int, delta: float
) -> float:
    """Return an epsilon that a sparse vector has at least, at ``delta``.

    Args:
        comparisons: one sparse vector.
        moved: how far one record moves a query that is on the grid.
        grid: step of the grid.
        copies: how many of them there are, with noise of their own.
        delta: where epsilon holds.

    **Guarantee**: the answers to an explicit pair of streams on neighbours are told apart that
    well, whether noise is rounded to the grid or not.
    """
    searched = {delta} if copies == 1 else {delta, _OF_ONE}
    return max(
        (copies * loss).epsilon_bounds(delta).lower
        for at in searched
        for loss in _losses(comparisons, moved, grid, at)
    )


def _losses(
    comparisons: Comparisons, moved: float, grid: float, delta: float
) -> Iterator[PrivacyLoss]:
    """Yield losses that are reached."""
    streams = Streams(comparisons.threshold, comparisons.query, comparisons.tops, grid)
    queries = comparisons.queries or max(_MANY, 10 * comparisons.tops)
    queries = min(queries, max(_MOST, comparisons.tops))
    least = -math.inf
    if comparisons.margin is not None:
        # The margin of the bounds has two grid steps of room for rounding.
        least = -math.floor(comparisons.margin / grid - 2) * grid
    monotone = comparisons.shift <= comparisons.sensitivity
    apart = ((-moved, moved), (moved, -moved))
    alone = ((-moved, 0.0), (0.0, moved), (moved, 0.0), (0.0, -moved))
    if delta == 0:
        for pair in alone if monotone else apart:
            yield streams.loss(_far_out(streams, pair, queries, least))
        return
    attacks = strongest(
        streams,
        moves=alone if monotone else apart,
        queries=queries,
        least_level=least,
        delta=delta,
    )
    yield streams.loss(attacks[0])
    kinds = (moved, 0.0) if monotone else (moved, moved)
    coin = best_coin_attack(streams, queries, kinds, least, delta)
    if coin is not None:
        yield coin.loss


def _far_out(streams: Streams, moves: tuple[float, float], queries: int, least: float) -> Attack:
    """Return an attack whose rarest outcome has nearly the largest ratio of Laplace noise.

    Answers below show a threshold so high that answers above after them are in the tail.
    """
    tops = streams.tops
    first = min(queries - tops, _SURE * tops)
    levels = _HIGH * streams.threshold.scale, -2 * abs(moves[1]) - streams.query.scale
    placed = [
        max(round(level / streams.grid) * streams.grid, least - min(move, 0.0))
        for level, move in zip(levels, moves, strict=True)
    ]
    return Attack(first, placed[0], tops, placed[1], *moves)
