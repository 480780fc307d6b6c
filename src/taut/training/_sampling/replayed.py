"""Batches of a replay: the same examples in both runs, and the one in which they differ."""

from __future__ import annotations

from collections.abc import Iterator

from taut.noise.recording import Recorder, active
from taut.training._sampling.allocation import RandomAllocation
from taut.training._sampling.fixed_order import FixedOrderSampling
from taut.training._sampling.sampling import FixedSizeSampling, Indices, PoissonSampling, Sampling

__all__ = ["replayed"]


def replayed(sampling: Sampling, batches: Iterator[Indices], examples: int) -> Iterator[Indices]:
    """Return the batches; in a replay, those of the recorded run.

    The example in which the two datasets differ is in every batch that may hold it, so that two
    runs show what it can do: in all under Poisson sampling, in the first of every epoch under
    random allocation. Nothing is chosen in a fixed order, and nothing is changed.
    """
    recorder = active()
    if recorder is None or isinstance(sampling, FixedOrderSampling):
        return batches
    return _with_record(sampling, batches, examples, recorder)


def _with_record(
    sampling: Sampling, batches: Iterator[Indices], examples: int, recorder: Recorder
) -> Iterator[Indices]:
    most = sampling.batch_size if isinstance(sampling, FixedSizeSampling) else None
    most = getattr(sampling, "cap", most)
    for step, batch in enumerate(batches):
        if not recorder.is_here:  # a loader that outlives its replay draws as it must
            yield batch
            continue
        joins = True if isinstance(sampling, PoissonSampling | FixedSizeSampling) else None
        if isinstance(sampling, RandomAllocation):
            joins = step % sampling.epoch_steps == 0
        yield recorder.batch(batch, examples, joins=joins, most=most)
