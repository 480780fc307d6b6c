"""Equal noisy sums under every sampler that settings may mean, with certified bounds."""

from __future__ import annotations

import math
from collections.abc import Callable
from dataclasses import dataclass, replace

from taut._base import validate
from taut.accounting import Adjacency, Bounds, GaussianRun, PrivacyLoss, Sampler, calibrate
from taut.audit._settings.result import SettingsReading
from taut.audit._statements.described_run import shuffled_floor
from taut.errors import InfeasibleBudget

__all__ = ["NoisySteps", "least_noise", "of_loss"]

_NOTHING_HIDDEN = Bounds(math.inf, math.inf)
_COARSE = 1e-3  # relative, of noise that a tool finds by a search of its own
_MOST_CALIBRATED = 10**9  # steps: the search takes seconds there, and minutes beyond


@dataclass(frozen=True)
class NoisySteps:
    """What was read of a run; None where nothing was.

    Args:
        sigma: standard deviation of the noise over the norm bound of one record.
        delta: probability delta of the bounds.
        steps: number of noisy sums.
        rate: the share of records that the tool accounts a step for.
        batch: number of records of a batch.
        records: number of records.
        epochs: passes over the data, where batches are cut from a shuffled order.
        grouped: whether examples are clipped in groups, of which one example can turn the clipped
            mean around; `sigma` is then over twice the norm bound.
        drops_last: whether records that do not fill a batch may be left out of an epoch.
    """

    sigma: float | None
    delta: float | None
    steps: int | None = None
    rate: float | None = None
    batch: int | None = None
    records: int | None = None
    epochs: float | None = None
    grouped: bool = False
    drops_last: bool = True

    def __post_init__(self) -> None:
        """Refuse numbers that no run has."""
        if self.sigma is not None:
            validate.non_negative(noise_multiplier=self.sigma)
        if self.rate is not None:
            validate.probability(rate=self.rate)

    def poisson(self, *, accounted: bool = True) -> SettingsReading:
        """Return the promise if every record joins every step by a coin of its own."""
        run = None
        if self.rate is not None and self.steps is not None:
            run = GaussianRun.of(Sampler.POISSON, rate=self.rate, steps=self.steps)
        return self._reading("Poisson batches", Sampler.POISSON, run, accounted=accounted)

    def fixed_size(self, *, accounted: bool = True) -> SettingsReading:
        """Return the promise if every step draws a fresh subset of one size."""
        run = None
        if self.batch is not None and self.records is not None and self.steps is not None:
            run = GaussianRun.of(
                Sampler.FIXED_SIZE, batch_size=self.batch, examples=self.records, steps=self.steps
            )
        name = "fresh batches of fixed size"
        return self._reading(name, Sampler.FIXED_SIZE, run, accounted=accounted)

    def all_records(self) -> SettingsReading:
        """Return the promise if nothing is known of who takes part in a step.

        The relation is zero-out: a mean has the same divisor with a record and without.
        """
        run = None if self.steps is None else GaussianRun.of(Sampler.NONE, steps=self.steps)
        return self._reading("no sampling", Sampler.NONE, run, Adjacency.ZERO_OUT)

    def shuffled(self) -> SettingsReading:
        """Return the promise if batches are cut from a shuffled order.

        One epoch costs one release, which is an upper bound. The lower bound is that of one epoch
        (`shuffled_floor`): a record is in exactly one batch, and batches of other sizes, such as
        the last one, differ by a shift that an attacker knows and takes away. A record that turns
        the mean of its group around moves a sum by two norm bounds, with it and without. Where a
        record may be left out of an epoch, no lower bound is claimed.
        """
        run = None
        if self.batch is not None and self.records is not None:
            count = {"epochs": self.epochs} if self.epochs is not None else {"steps": self.steps}
            if any(value is not None for value in count.values()):
                run = GaussianRun.of(
                    Sampler.SHUFFLE, batch_size=self.batch, examples=self.records, **count
                )
        reading = self._reading("shuffled batches", Sampler.SHUFFLE, run)
        if run is None or reading.bounds is None or not self.sigma or self.delta is None:
            return reading
        batches = -(-run.sizes[1] // run.sizes[0]) if run.sizes else 1
        whole = (self.steps is None or self.steps >= batches) and (self.epochs or 1.0) >= 1
        if self.drops_last and run.sizes and run.sizes[1] % run.sizes[0]:
            whole = False
        sigma, shift = (2 * self.sigma, 2.0) if self.grouped else (self.sigma, 1.0)
        floor = shuffled_floor(sigma, batches, shift, self.delta) if whole else 0.0
        return replace(
            reading, bounds=Bounds(min(floor, reading.bounds.upper), reading.bounds.upper)
        )

    def _reading(
        self,
        name: str,
        sampler: Sampler,
        run: GaussianRun | None,
        adjacency: Adjacency | None = None,
        *,
        accounted: bool = False,
    ) -> SettingsReading:
        relation = sampler.usual_adjacency if adjacency is None else adjacency
        if run is None:
            return SettingsReading(name, relation, _UNKNOWN_SIZES, accounted=accounted)
        bounds = None
        if self.sigma is not None and self.delta is not None:
            sigma, delta = self.sigma, self.delta
            bounds = (
                _NOTHING_HIDDEN if sigma == 0 else run.loss(sigma, relation).epsilon_bounds(delta)
            )
        return SettingsReading(name, relation, run.assumes(relation), bounds, accounted)


_UNKNOWN_SIZES = "what is listed as missing"


def least_noise(steps: NoisySteps, epsilon: float) -> float | None:
    """Return the least noise that keeps `epsilon` with Poisson batches, as far as that is known.

    Args:
        steps: the run, whose noise the tool chooses.
        epsilon: what the tool is asked for.

    Raises:
        ValueError: for more steps than any run has.
    """
    if steps.rate is None or steps.steps is None or steps.delta is None:
        return None
    if steps.steps > _MOST_CALIBRATED:
        raise ValueError(
            f"steps must be at most {_MOST_CALIBRATED:g} where noise is found for them, got "
            f"steps={steps.steps}"
        )
    run = GaussianRun.of(Sampler.POISSON, rate=steps.rate, steps=steps.steps)
    target = validate.positive(target_epsilon=epsilon)
    try:
        return calibrate(run.loss, epsilon=target, delta=steps.delta, tolerance=_COARSE).value
    except InfeasibleBudget:
        return None


def of_loss(
    name: str,
    assumes: str,
    adjacency: Adjacency,
    loss: Callable[[], PrivacyLoss] | None,
    delta: float | None,
    *,
    accounted: bool = True,
) -> SettingsReading:
    """Return the reading of a loss that is no run of equal steps.

    Args:
        name: the mechanism, in words.
        assumes: what has to hold.
        adjacency: the relation between neighbouring datasets.
        loss: what makes it; None if something is missing.
        delta: probability delta of the bounds, if it is known.
        accounted: whether the tool's own accountant reads the settings so.
    """
    bounds = None
    if loss is not None and delta is not None:
        bounds = loss().epsilon_bounds(delta)
    return SettingsReading(name, adjacency, assumes, bounds, accounted)
