"""For those who write a clipping, a sampling, a noise or a loop of their own.

A clipping is a :class:`Clipping`: most are a :class:`NormClipping`, one whose directions follow the
weights is a :class:`RefreshedClipping`. A :class:`Sampling` says which examples a step looks at, a
:class:`StepNoise` what hides them. :class:`PrivateGradient` is one private step for a loop without
trainer; the other names are what these take and return.
"""

from typing import TYPE_CHECKING

from taut._base import surface
from taut.training._clipping.clipping import Clipping, EntryBlock, NormClipping, RowClipping
from taut.training._clipping.group import GroupShare
from taut.training._clipping.quantile import CountedNoise
from taut.training._clipping.refreshed import RefreshedClipping
from taut.training._ledger.history import Segment
from taut.training._noise.basis import BasisNoise
from taut.training._noise.correlated import CorrelatedNoise
from taut.training._noise.step_noise import Draw, IndependentNoise, StepNoise
from taut.training._plan.planned_steps import PlannedSteps
from taut.training._plan.schedule import Schedule
from taut.training._sampling.sampling import Sampling

if TYPE_CHECKING:
    from taut.training._data.batches import inputs_and_targets
    from taut.training._data.loader import MicroBatch
    from taut.training._data.per_example_loss import per_example
    from taut.training._run.refresh import Refresh, refuse_private
    from taut.training._step.private_gradient import PrivateGradient
    from taut.training._tensors.examples import apply, length

__all__ = [
    "BasisNoise",
    "Clipping",
    "CorrelatedNoise",
    "CountedNoise",
    "Draw",
    "EntryBlock",
    "GroupShare",
    "IndependentNoise",
    "MicroBatch",
    "NormClipping",
    "PlannedSteps",
    "PrivateGradient",
    "Refresh",
    "RefreshedClipping",
    "RowClipping",
    "Sampling",
    "Schedule",
    "Segment",
    "StepNoise",
    "apply",
    "inputs_and_targets",
    "length",
    "per_example",
    "refuse_private",
]

_NEED_TORCH = {
    "taut.training._data.batches": ("inputs_and_targets",),
    "taut.training._data.loader": ("MicroBatch",),
    "taut.training._data.per_example_loss": ("per_example",),
    "taut.training._run.refresh": ("Refresh", "refuse_private"),
    "taut.training._step.private_gradient": ("PrivateGradient",),
    "taut.training._tensors.examples": ("apply", "length"),
}

surface.claim(globals(), _NEED_TORCH, needs="taut.training._tensors")
