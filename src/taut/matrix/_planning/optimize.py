"""The search for encoder, sampler and bands with the least error at one promise."""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from dataclasses import dataclass

import numpy as np

from taut._base import validate
from taut.accounting import PrivacyLoss, calibrate
from taut.matrix._encoders.objective import check_goal
from taut.matrix._errors import decoded_deviations
from taut.matrix._participation import FixedOrder
from taut.matrix._planning.candidates import SAMPLERS, Encoders, Family, families, run_loss
from taut.matrix._planning.ranking import RankedNoise, Ranking
from taut.matrix._workloads import Workload

__all__ = ["optimize"]

_EPOCHS_ERROR = 1e-9  # relative: what arithmetic does to a number of epochs
_BAND_REFINEMENTS = 2  # of the numbers of bands: errors are then within a per mille of the best
_BETWEEN = 5  # numbers of bands that are tried between two of the last refinement


def optimize(
    workload: Workload,
    *,
    epochs: float,
    epsilon: float,
    delta: float,
    samplers: Sequence[str] = SAMPLERS,
    bands: Sequence[int] | None = None,
    goal: str = "root_mean_square",
    progress: Callable[[int, int, str], None] | None = None,
) -> Ranking:
    """Return encoders and samplers ranked by their error, all at one certified promise.

    Every row has as many steps, and looks at as many examples in expectation: a step sees one in
    ``steps / epochs`` of them. Independent noise, that of DP-SGD, is in the rows, with Poisson
    batches and with random allocation.

    Args:
        workload: answers that are wanted; its number of steps is the length of the run.
        epochs: number of times that an example is seen on average; an epoch must have whole steps.
        epsilon: promise.
        delta: promise.
        samplers: names of the ways to draw batches: "poisson", "allocation", "cyclic_poisson",
            "balls_in_bins", and "fixed_order", which hides nothing.
        bands: numbers of bands to try; by default powers of two up to the steps of an epoch, and
            then others near the best of them.
        goal: error to rank by, "root_mean_square" over the steps or the "maximum".
        progress: function that is told how many rows are done, how many are known to come, and
            which one is next.

    **Guarantee**: the certified upper bound of every row's loss at ``delta`` is at most
    ``epsilon``, under zero-out adjacency, by the theorem of its sampler. That no other row would
    have a smaller error is not certified.

    Raises:
        ValueError: if an argument is out of its range, or an epoch would have no whole steps.

    Example:
        >>> from taut.matrix import Workload, optimize
        >>> few = {"bands": [2, 4], "samplers": ["allocation", "cyclic_poisson"]}
        >>> ranking = optimize(Workload(64), epochs=4, epsilon=2, delta=1e-6, **few)
        >>> ranking.best.noise, ranking.best.loss.epsilon(delta=1e-6) <= 2
        ('banded', True)
    """
    epoch = _epoch_steps(workload.steps, epochs)
    check_goal(goal)
    names = _checked(samplers)
    target = validate.positive(epsilon=epsilon)
    level = validate.below_one(delta=validate.positive(delta=delta))
    search = _Search(
        Encoders(workload, FixedOrder(epoch), goal), target, level, progress or _silent, {}
    )
    wanted = None if bands is None else sorted({validate.positive_integer(bands=b) for b in bands})
    tried = families(names, workload.steps, epoch)
    search.run(tried, wanted)
    rows = sorted(search.rows.values(), key=lambda row: float(getattr(row, goal)))
    if not rows:
        raise ValueError(f"no combination of samplers={samplers!r} has bands={bands!r}")
    return Ranking(tuple(rows), goal, target, level, epoch)


@dataclass
class _Search:
    """Rows that were tried, by kind and bands, and how to try others."""

    encoders: Encoders
    epsilon: float
    delta: float
    progress: Callable[[int, int, str], None]
    rows: dict[tuple[str, str, int], RankedNoise]

    def run(self, tried: Sequence[Family], wanted: Sequence[int] | None) -> None:
        """Try all families, with their own numbers of bands or those that are wanted."""
        starts = [self._start(family, wanted) for family in tried]
        total = sum(map(len, starts))
        for family, numbers in zip(tried, starts, strict=True):
            total = self._try(family, numbers, total)
            if wanted is not None or family.allows is None:
                continue
            for _ in range(_BAND_REFINEMENTS):
                near = self._near_best(family)
                total = self._try(family, near, total + len(near))

    def _start(self, family: Family, wanted: Sequence[int] | None) -> list[int]:
        if wanted is None or family.noise != "banded":
            return list(family.bands)
        allows = family.allows or (lambda b: b in family.bands)
        if family.sampling in ("fixed_order", "balls_in_bins"):
            separation = self.encoders.order.separation
            return [b for b in wanted if 1 < b <= min(separation, self.encoders.workload.steps)]
        return [b for b in wanted if b > 1 and allows(b)]

    def _try(self, family: Family, numbers: Sequence[int], total: int) -> int:
        for bands in numbers:
            text = f"{family.noise}, {bands} bands, {family.sampling}"
            self.progress(len(self.rows), total, text)
            self.rows[family.noise, family.sampling, bands] = self._row(family, bands)
        self.progress(len(self.rows), total, "")
        return total

    def _near_best(self, family: Family) -> list[int]:
        """Return numbers of bands around the best so far that were not tried."""
        kind = family.noise, family.sampling
        errors = {
            bands: getattr(row, self.encoders.goal)
            for (*of, bands), row in self.rows.items()
            if tuple(of) == kind
        }
        known = sorted(errors)
        best = known.index(min(known, key=errors.__getitem__))
        low, high = known[max(best - 1, 0)], known[min(best + 1, len(known) - 1)]
        spaced = np.geomspace(low, high, 2 * _BETWEEN + 1).round().astype(int).tolist()
        assert family.allows is not None
        return sorted({b for b in spaced if b not in errors and b > 1 and family.allows(b)})

    def _row(self, family: Family, bands: int) -> RankedNoise:
        noise = "banded" if family.noise == "independent" else family.noise
        encoder, sampler = self.encoders.get(noise, bands), family.sampler(bands)
        norm = float(encoder.column_norms().max())

        # In units of a column all parameters are near one, where the search for them begins.
        def loss(multiplier: float) -> PrivacyLoss:
            return run_loss(encoder, sampler, multiplier * norm, self.delta)

        multiplier = calibrate(
            loss, epsilon=self.epsilon, delta=self.delta, tolerance=family.tolerance
        ).value
        # Whoever recomputes epsilon with the usual accuracy must find it within the promise.
        while (excess := loss(multiplier).epsilon(self.delta) / self.epsilon) > 1:
            multiplier *= max(excess, 1 + 1e-5)
        sigma = multiplier * norm
        deviations = sigma * decoded_deviations(encoder, self.encoders.workload)
        return RankedNoise(
            family.noise,
            family.sampling,
            bands,
            encoder,
            sampler,
            sigma,
            multiplier,
            float(np.sqrt(np.mean(deviations**2))),
            float(deviations.max()),
            loss(multiplier),
        )


def _epoch_steps(steps: int, epochs: float) -> int:
    """Return the number of steps of an epoch."""
    passes = validate.positive(epochs=epochs)
    epoch = round(steps / passes)
    if epoch < 1 or not math.isclose(epoch * passes, steps, rel_tol=_EPOCHS_ERROR):
        raise ValueError(
            f"epochs must be the number of steps over a whole number of steps of an epoch, got "
            f"epochs={epochs!r} for {steps} steps; the nearest is {steps / max(epoch, 1)!r}"
        )
    return epoch


def _checked(samplers: Sequence[str]) -> tuple[str, ...]:
    names = tuple(samplers)
    unknown = [name for name in names if name not in SAMPLERS]
    if unknown or not names or isinstance(samplers, str):
        raise ValueError(
            f"samplers must be some of {', '.join(map(repr, SAMPLERS))}, got {samplers!r}"
        )
    return names


def _silent(_done: int, _total: int, _text: str) -> None:
    """Tell nobody."""
