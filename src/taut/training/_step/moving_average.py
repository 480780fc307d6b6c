"""The moving average of weights: free accuracy, since it only looks at what was released."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from typing import Any

import torch
from torch import Tensor, nn

from taut._base import validate

__all__ = ["MovingAverage"]


class MovingAverage:
    """The exponential moving average of a model's trainable parameters.

    Args:
        model: what is trained.
        decay: how much of the average stays at every update, in [0, 1); smaller at the beginning,
            (1 + t) / (10 + t) after t updates, so that the first weights are forgotten (De et al.
            2022).

    **Guarantee**: post-processing of the updates; it costs no privacy.
    """

    def __init__(self, model: nn.Module, decay: float) -> None:
        self.decay = validate.below_one(decay=decay)
        self.updates = 0
        self._parameters = {name: p for name, p in model.named_parameters() if p.requires_grad}
        self._average = {name: p.detach().clone() for name, p in self._parameters.items()}

    @torch.no_grad()
    def update(self) -> None:
        """Move the average towards the model's weights."""
        decay = min(self.decay, (1 + self.updates) / (10 + self.updates))
        self.updates += 1
        for name, parameter in self._parameters.items():
            self._average[name].lerp_(parameter.detach(), 1 - decay)

    @contextmanager
    def applied(self) -> Iterator[None]:
        """Give the model the averaged weights inside of the block."""
        own = {name: p.detach().clone() for name, p in self._parameters.items()}
        self._set(self._average)
        try:
            yield
        finally:
            self._set(own)

    def state_dict(self) -> dict[str, Any]:
        """Return what a resumed run needs."""
        return {"updates": self.updates, "average": dict(self._average)}

    def load_state_dict(self, state: Mapping[str, Any]) -> None:
        """Go on from a state."""
        self.updates = validate.integer(updates=state["updates"])
        for name, average in self._average.items():
            average.copy_(state["average"][name])

    @torch.no_grad()
    def _set(self, values: Mapping[str, Tensor]) -> None:
        for name, parameter in self._parameters.items():
            parameter.copy_(values[name])
