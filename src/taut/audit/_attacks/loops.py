"""Loops of one's own, audited against a plan."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING

import numpy as np

from taut.audit._attacks.attack import Sides
from taut.audit._attacks.audit import collect, enough, judge, seeds
from taut.audit._attacks.crafted import Craft
from taut.audit._attacks.loop_game import Loop, LoopGame
from taut.audit._attacks.noise_checks import check_normal
from taut.audit._attacks.result import AuditResult
from taut.audit._verdict import DRAWS

if TYPE_CHECKING:
    from taut.training import Plan

__all__ = ["audit_loop"]


def audit_loop(
    loop: Loop,
    plan: Plan,
    *,
    trials: int = 1_000,
    confidence: float = 0.99,
    seed: int | None = None,
    dimension: int = 4,
    crafts: Sequence[Craft] | None = None,
    sizes: Mapping[str, int] | None = None,
) -> AuditResult:
    """Audit a training loop that is said to carry out a plan.

    Args:
        loop: called with an array of one gradient per example, before clipping, and a seed; it
            samples, clips, sums, adds noise and divides as it does in production, and returns what
            the optimizer gets, of shape (steps, dimension). A linear model with the loss <w, x> has
            the gradient x: give it the rows as inputs to audit a loop that computes gradients. For
            a plan that mixes it takes steps of learning rate one, and returns all states, that of
            the start first, of shape (steps + 1, dimension).
        plan: what is claimed. A small one shows most: a handful of examples and steps, little
            noise, and a rate well inside of (0, 1). The code that is audited is the same.
        trials: runs on each side, in each crafted pair.
        confidence: the probability that a loop which keeps its claim passes.
        seed: seed of the seeds that runs are given; by default they are drawn securely.
        dimension: dimension of gradients, at least 2.
        crafts: pairs of neighbours, by default both of :func:`crafted`. Other pairs must have
            gradients in the first coordinate alone.
        sizes: number of weights of every parameter by its name, for a clipping by groups of
            parameters; their sum takes the place of `dimension`.

    **Guarantee**: that of :class:`AuditResult`, for the adjacency of the plan's sampling and an
    attacker who sees every step. Noise is checked in the coordinates where no example speaks, and
    how often the canary is in a batch of an epoch where only the canary speaks: a loop that
    allocates is told from one that draws afresh, whichever was claimed.

    Raises:
        ValueError: if the loop returns other shapes than the plan says, or crafts do not fit.

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
    game = LoopGame(plan, dimension, crafts, sizes)
    # No seed serves two crafted pairs: runs with the same noise would count twice in its checks.
    drawn = seeds(2 * enough(trials) * len(game.crafts), seed)
    settings = []
    for place, craft in enumerate(game.crafts):
        without, including = collect(
            lambda with_canary, run_seed, craft=craft: game.run(  # type: ignore[misc]
                loop, craft, with_canary, run_seed
            ),
            drawn[2 * trials * place : 2 * trials * (place + 1)],
        )
        settings.append(Sides(craft.name, without, including, game.statistics(craft)))
    noise = [runs[:, :, 1:] for sides in settings for runs in (sides.without, sides.including)]
    draws = [
        check_normal(DRAWS, game.draws(sides.including))
        for sides in settings
        if sides.craft == game.draws_seen_in
    ]
    return judge(settings, np.concatenate(noise), game.claim, game.adjacency, confidence, draws)
