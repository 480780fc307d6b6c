"""What the same gradients would cost if they were drawn or batched otherwise."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass

from taut.accounting import Adjacency, PrivacyLoss, gaussian
from taut.report._privacy.evidence import Evidence

__all__ = ["Alternative", "Alternatives", "alternatives"]

_BATCHES = (0.25, 0.5, 2.0, 4.0)
_SHARPNESS = 1e-2
_MOST = 2.0**12  # times the noise of the run; nobody would train with more


@dataclass(frozen=True)
class Alternative:
    """One other way to spend the same gradients.

    Attributes:
        name: what would be different.
        adjacency: what its promise would be about.
        epsilon: an upper bound at the noise of the run; None where noise is chosen anew.
        noise_multiplier: that keeps the epsilon of the run; None if none was found.
        batch_size: the expected batch.
        steps: how many there would be.
    """

    name: str
    adjacency: Adjacency
    epsilon: float | None
    noise_multiplier: float | None
    batch_size: float
    steps: int


@dataclass(frozen=True)
class Alternatives:
    """Other samplers, and other batch sizes, at the same number of gradients."""

    samplers: tuple[Alternative, ...] = ()
    batches: tuple[Alternative, ...] = ()


def alternatives(evidence: Evidence, epsilon: float) -> Alternatives:
    """Return alternatives to a run at one price; none for other sums of releases."""
    plan = evidence.plan
    steps = evidence.counted_steps or 0
    if plan is None or not evidence.has_one_price or not epsilon > 0:
        return Alternatives()
    delta, noise = plan.delta, plan.noise_multiplier

    def needed(loss_with: Callable[[float], PrivacyLoss]) -> float | None:
        return _least_noise(loss_with, epsilon, delta, start=noise)

    samplers = []
    for name, relation, loss_of in _samplers(plan.examples, plan.batch_size):
        loss = loss_of(noise, steps)
        if loss == evidence.loss:
            continue
        cost = loss.epsilon(delta, tolerance=_SHARPNESS)
        samplers.append(
            Alternative(
                name,
                relation,
                cost,
                needed(lambda sigma, of=loss_of: of(sigma, steps)),  # type: ignore[misc]
                plan.batch_size,
                steps,
            )
        )
    batches = []
    for factor in _BATCHES:
        size, count = round(factor * plan.batch_size), round(steps / factor)
        if not 1 <= size < plan.examples or count < 1:
            continue
        sampling = plan.sampling.fitted(plan.examples, size / plan.examples)
        sigma = needed(lambda x, s=sampling, n=count: s.loss(x, plan.examples, n))  # type: ignore[misc]
        batches.append(Alternative("batch", plan.adjacency, None, sigma, float(size), count))
    return Alternatives(tuple(samplers), tuple(batches))


def _least_noise(
    loss_with: Callable[[float], PrivacyLoss], epsilon: float, delta: float, start: float
) -> float | None:
    """Return noise that keeps a promise, at most a per cent more than needed, None beyond reason.

    Rougher than `taut.calibrate` and many times faster for samplers whose sharp bounds are slow.
    """

    def keeps(sigma: float) -> bool:
        return loss_with(sigma).epsilon(delta, tolerance=_SHARPNESS) <= epsilon

    high = start
    while not keeps(high):
        high *= 2
        if high > _MOST * start:
            return None
    low = high / 2
    while low > start / _MOST and keeps(low):
        low, high = low / 2, low
    while high > (1 + _SHARPNESS) * low:
        middle = (low * high) ** 0.5
        low, high = (low, middle) if keeps(middle) else (middle, high)
    return high


LossOf = Callable[[float, int], PrivacyLoss]


def _samplers(examples: int, batch_size: float) -> list[tuple[str, Adjacency, LossOf]]:
    """Return ways to draw batches, as `taut.compare_samplers` accounts for them."""
    rate = batch_size / examples
    found: list[tuple[str, Adjacency, LossOf]] = [
        ("Poisson samples", Adjacency.ADD_REMOVE, lambda s, n: n * gaussian(s).poisson(rate)),
        (
            "Poisson samples",
            Adjacency.REPLACE,
            lambda s, n: n * _exchange(s).poisson(rate, removal=gaussian(s)),
        ),
    ]
    size = round(batch_size)
    if abs(size - batch_size) < 1e-9 * batch_size and 1 <= size < examples:
        epoch = examples // size
        found += [
            (
                "Fixed-size batches",
                Adjacency.REPLACE,
                lambda s, n: n * _exchange(s).fixed_size(size, examples, Adjacency.REPLACE),
            ),
            (
                "Shuffled epochs",
                Adjacency.ZERO_OUT,
                lambda s, n: -(-n // epoch) * gaussian(s, adjacency=Adjacency.ZERO_OUT),
            ),
        ]
    return found


def _exchange(sigma: float) -> PrivacyLoss:
    return gaussian(sigma, sensitivity=2.0, adjacency=Adjacency.REPLACE)
