"""Arms whose noise is correlated over steps."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass

from taut._base import validate
from taut._base.public_vectors import Rows
from taut.comparison._settings import Settings
from taut.comparison.arms._arms import Arm, ArmSkipped
from taut.matrix import FixedOrder, Workload, banded_inverse
from taut.training import FlatClip, Plan

__all__ = ["Banded", "Buffered", "Inverse"]


@dataclass(frozen=True)
class Banded(Arm):
    """Bands that take noise back, with secret steps: as many as have the least error.

    Args:
        sampling: sampling that hides the steps, such as "cyclic_allocation", "cyclic_poisson" or
            "balls_in_bins"; "fixed_order" hides nothing.

    Its noise multiplier is that of encoded gradients, and adjacency is zero-out.
    """

    name = "banded"

    sampling: str = "cyclic_allocation"

    def plan(self, settings: Settings, sizes: Mapping[str, int], public: Rows | None) -> Plan:
        try:
            return settings.plan(FlatClip(settings.norm), noise="best", sampling=self.sampling)
        except ValueError as error:
            if "has no groups" in str(error):
                raise ArmSkipped(str(error)) from None
            raise

    def notes(self, plan: Plan) -> tuple[str, ...]:
        return plan.notes


@dataclass(frozen=True)
class Buffered(Arm):
    """Buffers that take noise back, in a fixed public order, without amplification."""

    name = "blt"

    def plan(self, settings: Settings, sizes: Mapping[str, int], public: Rows | None) -> Plan:
        return settings.plan(FlatClip(settings.norm), noise="blt")


@dataclass(frozen=True)
class Inverse(Arm):
    """Bands of an inverse with the least error, in a fixed public order.

    Args:
        bands: number of bands of the inverse; two are DP-lambda-CGD with the best share.
    """

    name = "inverse"

    bands: int = 16

    def __post_init__(self) -> None:
        validate.positive_integer(bands=self.bands)

    def plan(self, settings: Settings, sizes: Mapping[str, int], public: Rows | None) -> Plan:
        epoch = max(settings.examples // settings.batch_size, 1)
        steps = settings.steps
        encoder = banded_inverse(Workload(steps), min(self.bands, steps), FixedOrder(epoch))
        return settings.plan(FlatClip(settings.norm), noise=encoder)
