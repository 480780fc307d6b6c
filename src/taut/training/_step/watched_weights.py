"""Weights between steps: nobody but the private step may move them."""

from __future__ import annotations

from collections.abc import Sequence

import torch
from torch import Tensor

from taut.errors import UnsoundConfiguration

__all__ = ["WatchedWeights"]


class WatchedWeights:
    """Remembers what weights were after a step.

    Args:
        parameters: those that are trained; sharded ones are not watched.

    Lengths are compared beside the counts of changes that torch keeps, since what is written
    through `data` leaves no trace there. One pass over the weights takes less than a hundredth of
    the time of drawing noise for them.
    """

    def __init__(self, parameters: Sequence[Tensor]) -> None:
        self._parameters = [p for p in parameters if type(p) is torch.nn.Parameter]
        self._before: tuple[list[int], Tensor] | None = None

    def settle(self) -> None:
        """Take the weights as they are now."""
        self._before = self._now() if self._parameters else None

    def check(self) -> None:
        """Refuse weights that have changed since.

        Raises:
            UnsoundConfiguration: with what to do if the change was public.
        """
        if self._before is None:
            return
        versions, lengths = self._now()
        if versions != self._before[0] or not torch.equal(
            lengths.nan_to_num(), self._before[1].nan_to_num()
        ):
            raise UnsoundConfiguration(
                "weights have changed since the last private step, and what changed them is not "
                "covered by the noise. If it was nothing that depends on private examples, such as "
                "a bound on weights or a checkpoint of this run, do it within "
                "optimizer.public_change()"
            )

    @torch.no_grad()
    def _now(self) -> tuple[list[int], Tensor]:
        lengths = torch._foreach_norm([p.detach() for p in self._parameters])
        on_one = [length.double().cpu() for length in lengths]
        return [p._version for p in self._parameters], torch.stack(on_one)
