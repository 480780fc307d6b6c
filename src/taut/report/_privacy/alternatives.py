"""What the same gradients would cost if they were drawn or batched otherwise."""

from __future__ import annotations

import math
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from functools import partial

from taut.accounting import Adjacency, GaussianRun, PrivacyLoss, Sampler, calibrate
from taut.errors import InfeasibleBudget
from taut.report._privacy.evidence import Evidence

__all__ = ["Alternative", "Alternatives", "alternatives"]

_BATCHES = (0.25, 0.5, 2.0, 4.0)
_SHARPNESS = 1e-2  # of epsilon: tables show three digits
_ACCURACY = 1e-2  # of noise, likewise; sharper bounds are slow for some samplers
_MOST = 2.0**12  # times the noise of the run; nobody would train with more


@dataclass(frozen=True)
class Alternative:
    """One other way to spend the same gradients.

    Attributes:
        name: the sampler, as plans and statements call it, or "batch" for another batch size.
        adjacency: what its promise would be about.
        epsilon: an upper bound at the noise of the run; None where noise is chosen anew.
        noise_multiplier: noise multiplier that keeps the epsilon of the run; None if none was
            found.
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
    """Return alternatives to a run of equal steps; none for other sums of releases."""
    plan = evidence.plan
    steps = evidence.counted_steps or 0
    if plan is None or plan.follows_ledger or not evidence.has_one_price or not epsilon > 0:
        return Alternatives()
    delta, noise = plan.delta, plan.noise_multiplier

    def needed(loss_with: Callable[[float], PrivacyLoss]) -> float | None:
        return _least_noise(loss_with, epsilon, delta, most=_MOST * noise)

    samplers = []
    for run, relation in _samplers(plan.examples, plan.batch_size, steps):
        loss = run.loss(noise, relation)
        if loss == evidence.loss:
            continue
        samplers.append(
            Alternative(
                run.sampler.value,
                relation,
                loss.epsilon(delta, tolerance=_SHARPNESS),
                needed(partial(run.loss, adjacency=relation)),
                plan.batch_size,
                steps,
            )
        )
    batches = []
    for factor in _BATCHES:
        size, count = round(factor * plan.batch_size), round(steps / factor)
        if not 1 <= size < plan.examples or count < 1:
            continue
        rate = plan.sampling.rate_of(size, plan.examples)
        try:
            sampling = plan.sampling.fitted(plan.examples, rate)
        except ValueError:  # batches of such a size exceed a cap
            continue
        sigma = needed(lambda x, s=sampling, n=count: s.loss(x, plan.examples, n))  # type: ignore[misc]
        batches.append(Alternative("batch", plan.adjacency, None, sigma, float(size), count))
    return Alternatives(tuple(samplers), tuple(batches))


def _least_noise(
    loss_with: Callable[[float], PrivacyLoss], epsilon: float, delta: float, most: float
) -> float | None:
    """Return noise that keeps a promise, and hardly more than needed; None beyond reason."""
    try:
        found = calibrate(loss_with, epsilon=epsilon, delta=delta, tolerance=_ACCURACY).value
    except InfeasibleBudget:
        return None
    return found if found <= most else None


def _samplers(
    examples: int, batch_size: float, steps: int
) -> Iterator[tuple[GaussianRun, Adjacency]]:
    """Yield ways to draw batches, with the relations that their promises would be about."""
    rate, size = batch_size / examples, round(batch_size)
    is_whole = abs(size - batch_size) < 1e-9 * batch_size and 1 <= size < examples
    for sampler in Sampler:
        for relation in sampler.compared_adjacencies:
            if relation not in (sampler.usual_adjacency, Adjacency.REPLACE):
                continue
            if sampler is Sampler.TRUNCATED_POISSON:  # a cap saves memory, never privacy
                continue
            if sampler is Sampler.POISSON:
                yield GaussianRun.of(sampler, steps=steps, rate=rate), relation
            elif sampler is Sampler.ALLOCATION:
                epoch = max(math.floor(examples / batch_size * (1 + 1e-9)), 1)  # a rounded quotient
                yield GaussianRun.of(sampler, steps=steps, rate=1 / epoch), relation
            elif is_whole:
                run = GaussianRun.of(sampler, steps=steps, batch_size=size, examples=examples)
                yield run, relation
