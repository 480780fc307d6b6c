"""Which noise is meant for which clipping, and for which model."""

from __future__ import annotations

from collections.abc import Sequence

from taut.errors import UnsoundConfiguration
from taut.training._clipping.clipping import Clipping
from taut.training._clipping.quantile import CountedNoise, QuantileClip
from taut.training._noise.step_noise import IndependentNoise, StepNoise

__all__ = ["checked_noise"]


def checked_noise(
    clipping: Clipping,
    groups: Sequence[int],
    sizes: Sequence[int],
    scales: Sequence[float] | None,
    noise: StepNoise | None,
    *,
    is_sharded: bool,
) -> StepNoise:
    """Return the noise that was asked for, if it fits model and clipping.

    Args:
        clipping: what the noise is to hide.
        groups: of every parameter, by the clipping.
        sizes: the number of entries of every parameter.
        scales: one standard deviation for every group;
        noise: or instead the noise of a plan.
        is_sharded: whether processes keep parts of the parameters.

    Raises:
        ValueError: if not exactly one of scales and noise is given.
        UnsoundConfiguration: if the noise is for another clipping or another model.
    """
    if (scales is None) == (noise is None):
        raise ValueError("give either scales or noise")
    if noise is None:
        assert scales is not None
        noise = IndependentNoise(tuple(scales), tuple(groups))
    if isinstance(clipping, QuantileClip) != isinstance(noise, CountedNoise):
        raise UnsoundConfiguration(
            f"{type(noise).__name__} is not the noise of clipping={clipping!r}; give the noise of "
            "a plan with this clipping, noise=plan.noise(sizes)"
        )
    noise.check(groups, sizes)
    if noise.needs_whole and is_sharded:
        raise UnsoundConfiguration(
            f"{type(noise).__name__} is drawn for all parameters at once, and these are sharded; "
            "use DistributedDataParallel, or a clipping by groups"
        )
    return noise
