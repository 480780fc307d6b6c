"""Loops of one's own, audited against a plan."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import TYPE_CHECKING, TypeAlias

import numpy as np
from numpy.typing import ArrayLike, NDArray

from taut.audit._attacks.attack import Sides
from taut.audit._attacks.audit import collect, enough, judge, seeds
from taut.audit._attacks.claim import Claim
from taut.audit._attacks.crafted import Craft, Rows, crafted, likelihood_ratios
from taut.audit._attacks.draw_check import draw_check
from taut.audit._attacks.result import AuditResult
from taut.audit._attacks.statistics import StepValues
from taut.errors import UnsoundConfiguration

if TYPE_CHECKING:
    from taut.training import Plan

__all__ = ["Loop", "audit_loop"]

Loop: TypeAlias = Callable[[Rows, int], ArrayLike]
"""Trains on examples with these gradients, from this seed; returns the gradient of every step."""


def audit_loop(
    loop: Loop,
    plan: Plan,
    *,
    trials: int = 1_000,
    confidence: float = 0.99,
    seed: int | None = None,
    dimension: int = 4,
    crafts: Sequence[Craft] | None = None,
) -> AuditResult:
    """Audit a training loop that is said to carry out a plan.

    Args:
        loop: called with an array of one gradient per example, before clipping, and a seed; it
            samples, clips, sums, adds noise and divides as it does in production, and returns what
            the optimizer gets, of shape (steps, dimension). A linear model with the loss <w, x> has
            the gradient x: give it the rows as inputs to audit a loop that computes gradients.
        plan: what is claimed. A small one shows most: a handful of examples and steps, little
            noise, and a rate well inside of (0, 1). The code that is audited is the same.
        trials: runs on each side, in each crafted pair.
        confidence: the probability that a loop which keeps its claim passes.
        seed: seed of the seeds that runs are given; by default they are drawn securely.
        dimension: dimension of gradients, at least 2.
        crafts: pairs of neighbours, by default both of :func:`crafted`. Other pairs must have
            gradients in the first coordinate alone.

    **Guarantee**: that of :class:`AuditResult`, for the adjacency of the plan's sampling and an
    attacker who sees every step. Noise is checked in the coordinates where no example speaks, and
    how often the canary is in a batch of an epoch where only the canary speaks: a loop that
    allocates is told from one that draws afresh, whichever was claimed.

    Raises:
        ValueError: if the loop returns other shapes than the plan says, or crafts do not fit.
        UnsoundConfiguration: for a plan that mixes weights.

    Example:
        >>> import numpy as np
        >>> from taut.audit import audit_loop
        >>> from taut.training import FlatClip, Plan
        >>> plan = Plan(
        ...     examples=4, rate=0.5, steps=4, noise_multiplier=1.0, delta=1e-3,
        ...     clipping=FlatClip(1.0),
        ... )
        >>> def loop(gradients, seed):
        ...     draw = np.random.default_rng(seed)
        ...     released = []
        ...     for _ in range(plan.steps):
        ...         batch = gradients[draw.random(len(gradients)) < plan.rate]
        ...         norms = np.linalg.norm(batch, axis=1, keepdims=True)
        ...         clipped = batch / np.maximum(norms, 1.0)
        ...         noise = draw.normal(size=gradients.shape[1])
        ...         released.append((clipped.sum(0) + noise) / max(len(batch), 1))
        ...     return released
        >>> audit_loop(loop, plan, trials=200, seed=0).passed  # divides by the size of the batch
        False
    """
    if plan.mixing is not None:
        raise UnsoundConfiguration(
            "a plan that mixes weights promises nothing about gradients, which this audit looks "
            "at; audit the same plan without mixing, or states by audit_training"
        )
    if plan.encoder is not None:
        raise UnsoundConfiguration(
            "noise that is correlated over steps hides the run as a whole, and this audit looks at "
            "steps one by one; audit the same plan with independent noise"
        )
    deviation, kept = _noise(plan, dimension)
    norm = deviation / plan.noise_multiplier_at(0)
    adjacency = plan.adjacency
    is_usual = crafts is None
    if crafts is None:
        crafts = crafted(plan.examples, clip_norm=norm, dimension=dimension, adjacency=adjacency)
    _check_crafts(crafts, dimension)
    longest = norm
    if plan.clipping.entry_blocks is not None:  # a canary is in one coordinate
        longest = min(norm, plan.clipping.entry_blocks[0].entry_bound)
    scale, chosen = _units_of(plan, norm, longest, kept)
    claim = Claim(plan.loss, plan.delta)
    # No seed serves two crafted pairs: runs with the same noise would count twice in its checks.
    drawn = seeds(2 * enough(trials) * len(crafts), seed)
    settings = []
    is_allocated = plan.sampling.epoch_steps > 1
    for place, craft in enumerate(crafts):
        without, including = collect(
            lambda with_canary, run_seed, craft=craft: _units(  # type: ignore[misc]
                loop(craft.including if with_canary else craft.without, run_seed),
                (plan.steps, dimension),
                scale,
            ),
            drawn[2 * trials * place : 2 * trials * (place + 1)],
        )
        ratios = likelihood_ratios(craft, relation=adjacency, **chosen)
        settings.append(Sides(craft.name, without, including, ratios))
    noise = [runs[:, :, 1:] for sides in settings for runs in (sides.without, sides.including)]
    draws = [
        draw_check(sides.including, is_allocated=is_allocated, **chosen)
        for sides in settings
        if is_usual and sides.craft == "silent"
    ]
    return judge(settings, np.concatenate(noise), claim, adjacency, confidence, draws)


def _units_of(
    plan: Plan, norm: float, longest: float, kept: float
) -> tuple[StepValues, dict[str, StepValues]]:
    """Return the deviation of what is released, and how the canary moves that, in its units."""
    steps = range(plan.steps) if plan.is_scheduled else range(1)
    noises = np.array([norm * plan.noise_multiplier_at(step) for step in steps])
    sizes = np.array([plan.batch_size_at(step) for step in steps])
    drawn = [plan.sampling_at(step).participation(plan.examples) for step in steps]
    scale, shift, rate = noises / (sizes * kept), longest / noises, np.array(drawn) * kept
    if not plan.is_scheduled:
        return float(scale[0]), {"shift": float(shift[0]), "rate": float(rate[0])}
    return scale, {"shift": shift, "rate": rate}


def _noise(plan: Plan, dimension: int) -> tuple[float, float]:
    """Return the deviation of a step's noise, and how likely a coordinate takes part."""
    from taut.training.extend import IndependentNoise

    noise = plan.noise({"weight": dimension})
    if not isinstance(noise, IndependentNoise):
        raise ValueError(
            f"plan must have the same noise in all coordinates, got clipping={plan.clipping!r}; "
            "audit a plan with a clipping by norms or by entries"
        )
    return noise.scales[0], noise.coordinate_rate


def _check_crafts(crafts: Sequence[Craft], dimension: int) -> None:
    if not crafts or len({craft.name for craft in crafts}) < len(crafts):
        raise ValueError("crafts must be at least one, with different names")
    for craft in crafts:
        for rows in (craft.without, craft.including):
            if rows.ndim != 2 or rows.shape[1] != dimension or rows[:, 1:].any():
                raise ValueError(
                    f"craft {craft.name!r} must hold rows of dimension={dimension} that are zero "
                    "after the first coordinate"
                )


def _units(released: ArrayLike, shape: tuple[int, int], scale: StepValues) -> NDArray[np.float64]:
    """Return what a loop released in units of the claimed deviation."""
    run = np.asarray(released, dtype=np.float64)
    if run.shape != shape:
        raise ValueError(
            f"loop must return one gradient for every step of the plan, of shape {shape}, got "
            f"{run.shape}"
        )
    return np.asarray(run / np.reshape(scale, (-1, 1)))
