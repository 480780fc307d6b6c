"""Layers that are computed by other means while a tape records, so that it can tap inside of them.

A rewrite takes the layer, a `Tap` and the arguments of `forward`, and returns what `forward` would.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import contextmanager
from functools import partial
from typing import Any, TypeAlias

from torch import nn

from taut.training._gradients.layers.attention import attention
from taut.training._gradients.layers.normalisation import group_norm, instance_norm
from taut.training._gradients.layers.records import without_tap
from taut.training._gradients.layers.recurrent import gru, gru_cell, lstm, lstm_cell, rnn, rnn_cell

__all__ = ["RECURRENT", "Rewrite", "rewrite_for", "rewritten"]

RECURRENT = (nn.RNNBase, nn.RNNCellBase)
"""Layers with a state that goes from step to step."""

Rewrite: TypeAlias = Callable[..., Any]
"""Takes a layer, a tap and the arguments of the layer's `forward`."""


def rewrite_for(module: nn.Module) -> Rewrite | None:
    """Return the rewrite of a layer, or None if there is none.

    A subclass is rewritten only if it does the same as its base: its `forward` must be that of the
    base, and none of its parameters may be computed from others.
    """
    rewrite = _REWRITES.get(type(module).forward)
    plain = rewrite is not None and "forward" not in vars(module)
    return rewrite if plain and _has_plain_names(module) else None


@contextmanager
def rewritten(model: nn.Module, kinds: tuple[type, ...] = RECURRENT) -> Iterator[None]:
    """Rewrite layers inside, without taps.

    Args:
        model: model whose layers they are.
        kinds: kinds of layers; by default the recurrent ones, which `torch.vmap` knows only step by
            step.
    """
    chosen = [m for m in model.modules() if isinstance(m, kinds) and rewrite_for(m)]
    for module in chosen:
        rewrite = _REWRITES[type(module).forward]
        vars(module)["forward"] = partial(rewrite, module, without_tap)
    try:
        yield
    finally:
        for module in chosen:
            del vars(module)["forward"]


def _has_plain_names(module: nn.Module) -> bool:
    """Whether parameters have the names of the class: norms of weights add names of their own."""
    if hasattr(module, "parametrizations"):
        return False
    derived = ("_g", "_v", "_orig")
    return not any(name.endswith(derived) for name in module._parameters if name != "bias_v")


_REWRITES: dict[object, Rewrite] = {
    nn.GroupNorm.forward: group_norm,
    nn.InstanceNorm1d.forward: instance_norm,
    nn.MultiheadAttention.forward: attention,
    nn.LSTM.forward: lstm,
    nn.GRU.forward: gru,
    nn.RNN.forward: rnn,
    nn.LSTMCell.forward: lstm_cell,
    nn.GRUCell.forward: gru_cell,
    nn.RNNCell.forward: rnn_cell,
}
