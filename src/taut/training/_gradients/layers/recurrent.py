"""Recurrent layers with one tap on the gates of all steps.

What a step adds to its gates, the input's share and the state's, has one gradient: that of the
input's share, which is computed for the whole sequence before the first step and tapped there. The
steps are one node of the graph (`recurrences`); unrolled are cells, states with a projection,
mixed precision, and layers that `torch.vmap` goes through.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from functools import partial
from typing import TypeAlias

import torch
from torch import Tensor, nn
from torch.nn import functional

from taut.errors import UnsoundConfiguration
from taut.training._gradients.layers.records import Record, Tap, without_tap
from taut.training._gradients.layers.recurrences import (
    gru_steps,
    input_share,
    lstm_steps,
    rnn_steps,
)
from taut.training._gradients.layers.rules import linear_records

__all__ = ["gru", "gru_cell", "lstm", "lstm_cell", "rnn", "rnn_cell"]

_State: TypeAlias = tuple[Tensor, ...]
_Step: TypeAlias = Callable[[Tensor, Tensor, _State], tuple[_State, Tensor | None]]
"""Takes the input's share of the gates, the hidden state's, and the state, hidden part first;
returns the new state, and what the last third of the hidden state's share was multiplied with."""


@dataclass(frozen=True)
class _Weights:
    """The parameters of one layer in one direction."""

    given: Tensor
    fed: Tensor
    given_bias: Tensor | None
    fed_bias: Tensor | None
    projection: Tensor | None

    @classmethod
    def of(cls, module: nn.Module, suffix: str) -> _Weights:
        names = ("weight_ih", "weight_hh", "bias_ih", "bias_hh", "weight_hr")
        return cls(*(getattr(module, name + suffix, None) for name in names))  # type: ignore[arg-type]


def lstm(
    module: nn.LSTM,
    tap: Tap,
    input: Tensor,  # noqa: A002
    hx: tuple[Tensor, Tensor] | None = None,
) -> tuple[Tensor, tuple[Tensor, Tensor]]:
    """Return what `nn.LSTM` does."""
    output, (hidden, cell) = _unrolled(module, tap, input, hx, _lstm_step)
    return output, (hidden, cell)


def gru(
    module: nn.GRU,
    tap: Tap,
    input: Tensor,  # noqa: A002
    hx: Tensor | None = None,
) -> tuple[Tensor, Tensor]:
    """Return what `nn.GRU` does."""
    output, (hidden,) = _unrolled(module, tap, input, None if hx is None else (hx,), _gru_step)
    return output, hidden


def rnn(
    module: nn.RNN,
    tap: Tap,
    input: Tensor,  # noqa: A002
    hx: Tensor | None = None,
) -> tuple[Tensor, Tensor]:
    """Return what `nn.RNN` does."""
    step = _tanh_step if module.nonlinearity == "tanh" else _relu_step
    output, (hidden,) = _unrolled(module, tap, input, None if hx is None else (hx,), step)
    return output, hidden


def lstm_cell(
    module: nn.LSTMCell,
    tap: Tap,
    input: Tensor,  # noqa: A002
    hx: tuple[Tensor, Tensor] | None = None,
) -> tuple[Tensor, Tensor]:
    """Return what `nn.LSTMCell` does."""
    hidden, cell = _one_step(module, tap, input, hx, 2, _lstm_step)
    return hidden, cell


def gru_cell(
    module: nn.GRUCell,
    tap: Tap,
    input: Tensor,  # noqa: A002
    hx: Tensor | None = None,
) -> Tensor:
    """Return what `nn.GRUCell` does."""
    return _one_step(module, tap, input, None if hx is None else (hx,), 1, _gru_step)[0]


def rnn_cell(
    module: nn.RNNCell,
    tap: Tap,
    input: Tensor,  # noqa: A002
    hx: Tensor | None = None,
) -> Tensor:
    """Return what `nn.RNNCell` does."""
    step = _tanh_step if module.nonlinearity == "tanh" else _relu_step
    return _one_step(module, tap, input, None if hx is None else (hx,), 1, step)[0]


def _lstm_step(given: Tensor, fed: Tensor, state: _State) -> tuple[_State, None]:
    enter, forget, candidate, leave = (given + fed).chunk(4, -1)
    cell = forget.sigmoid() * state[1] + enter.sigmoid() * candidate.tanh()
    return (leave.sigmoid() * cell.tanh(), cell), None


def _gru_step(given: Tensor, fed: Tensor, state: _State) -> tuple[_State, Tensor]:
    given_reset, given_update, given_new = given.chunk(3, -1)
    fed_reset, fed_update, fed_new = fed.chunk(3, -1)
    reset = (given_reset + fed_reset).sigmoid()
    update = (given_update + fed_update).sigmoid()
    new = (given_new + reset * fed_new).tanh()
    return (new + update * (state[0] - new),), reset


def _tanh_step(given: Tensor, fed: Tensor, state: _State) -> tuple[_State, None]:
    del state
    return ((given + fed).tanh(),), None


def _relu_step(given: Tensor, fed: Tensor, state: _State) -> tuple[_State, None]:
    del state
    return ((given + fed).relu(),), None


def _one_step(
    module: nn.RNNCellBase, tap: Tap, inputs: Tensor, state: _State | None, parts: int, step: _Step
) -> _State:
    if inputs.dim() != 2:
        raise _no_examples(module, inputs)
    if state is None:
        state = (inputs.new_zeros(len(inputs), module.hidden_size),) * parts
    weights = _Weights.of(module, "")
    return _direction(weights, tap, inputs[:, None], state, step, backwards=False)[1]


def _unrolled(
    module: nn.RNNBase, tap: Tap, inputs: Tensor, states: _State | None, step: _Step
) -> tuple[Tensor, _State]:
    if not isinstance(inputs, Tensor) or inputs.dim() != 3:
        raise _no_examples(module, inputs)
    values = inputs if module.batch_first else inputs.transpose(0, 1)
    ways = 2 if module.bidirectional else 1
    if states is None:
        states = _zeros(module, values)
    ends: list[_State] = []
    for layer in range(module.num_layers):
        outputs = []
        for way in range(ways):
            weights = _Weights.of(module, f"_l{layer}" + ("_reverse" if way else ""))
            start = tuple(part[layer * ways + way] for part in states)
            output, end = _direction(weights, tap, values, start, step, backwards=way == 1)
            outputs.append(output)
            ends.append(end)
        values = torch.cat(outputs, -1)
        if module.dropout > 0 and module.training and layer < module.num_layers - 1:
            # Steps first, as the layer itself draws: the same seed drops the same values.
            turned = values.transpose(0, 1).contiguous()
            values = functional.dropout(turned, module.dropout).transpose(0, 1)
    final = tuple(torch.stack(part) for part in zip(*ends, strict=True))
    return values if module.batch_first else values.transpose(0, 1), final


def _zeros(module: nn.RNNBase, values: Tensor) -> _State:
    count = module.num_layers * (2 if module.bidirectional else 1)
    hidden = values.new_zeros(count, len(values), module.proj_size or module.hidden_size)
    if not isinstance(module, nn.LSTM):
        return (hidden,)
    return hidden, values.new_zeros(count, len(values), module.hidden_size)


def _direction(
    weights: _Weights, tap: Tap, values: Tensor, state: _State, step: _Step, *, backwards: bool
) -> tuple[Tensor, _State]:
    """Return the outputs of one layer in one direction, examples first, and its last state."""
    if tap is not without_tap and _is_alike(weights, values, state):
        return _in_one_piece(weights, tap, values, state, step, backwards=backwards)
    steps = values.shape[1]
    hidden: list[Tensor] = [values] * steps
    resets: list[Tensor] = []
    given = tap(
        functional.linear(values, weights.given, weights.given_bias),
        partial(_gate_records, weights, values.detach(), hidden, resets),
        values,
    )
    parts = given.unbind(1)
    project = _projection(weights, tap, values, steps) if weights.projection is not None else None
    outputs: list[Tensor] = [values] * steps
    for t in reversed(range(steps)) if backwards else range(steps):
        hidden[t] = state[0].detach()[:, None]
        fed = functional.linear(state[0], weights.fed, weights.fed_bias)
        state, reset = step(parts[t], fed, state)
        if reset is not None:
            resets.append(reset.detach()[:, None])
        if project is not None:
            state = (project(t, state[0]), *state[1:])
        outputs[t] = state[0]
    if backwards:
        resets.reverse()
    return torch.stack(outputs, 1), state


def _is_alike(weights: _Weights, values: Tensor, state: _State) -> bool:
    """Whether the steps of a layer can be one node: one type of numbers, and no projection."""
    kinds = {values.dtype, weights.given.dtype, weights.fed.dtype, *(part.dtype for part in state)}
    is_mixed = torch.is_autocast_enabled(values.device.type) or len(kinds) > 1
    return weights.projection is None and values.shape[1] > 1 and not is_mixed


def _in_one_piece(
    weights: _Weights, tap: Tap, values: Tensor, state: _State, step: _Step, *, backwards: bool
) -> tuple[Tensor, _State]:
    """Return the same, with all steps as one node of the graph."""
    hidden: list[Tensor] = []
    resets: list[Tensor] = []
    bias = weights.given_bias
    if bias is not None and weights.fed_bias is not None and step is not _gru_step:
        bias = bias + weights.fed_bias  # of which both have the gradient of the sum
    given = tap(
        input_share(values, weights.given, bias),
        partial(_gate_records, weights, values.detach(), hidden, resets),
        values,
    )
    if step is _lstm_step:
        output, last, cell, before = lstm_steps(given, weights.fed, *state, backwards)
        end: _State = (last, cell)
    elif step is _gru_step:
        output, last, before, reset = gru_steps(
            given, weights.fed, weights.fed_bias, *state, backwards
        )
        end = (last,)
        resets.append(reset)
    else:
        is_tanh = step is _tanh_step
        output, last, before = rnn_steps(given, weights.fed, *state, backwards, is_tanh)
        end = (last,)
    hidden.append(before)
    return output, end


def _gate_records(
    weights: _Weights,
    values: Tensor,
    hidden: Sequence[Tensor],
    resets: Sequence[Tensor],
    grads: Tensor,
) -> Iterator[Record]:
    shared: list[Tensor] | None = None if resets else []
    yield from linear_records(weights.given, weights.given_bias, values, grads, shared)
    fed = grads
    if resets:
        reset = torch.cat(list(resets), 1).to(grads.dtype)
        gates, new = grads.split([2 * reset.shape[-1], reset.shape[-1]], -1)
        fed = torch.cat([gates, new * reset], -1)
    before = torch.cat(list(hidden), 1)
    yield from linear_records(weights.fed, weights.fed_bias, before, fed, shared)


def _projection(
    weights: _Weights, tap: Tap, values: Tensor, steps: int
) -> Callable[[int, Tensor], Tensor]:
    """Return the projection of a step's hidden state, tapped at a zero that is added to it."""
    matrix = weights.projection
    assert matrix is not None
    before: list[Tensor] = [values] * steps

    def records(grads: Tensor) -> Iterator[Record]:
        yield from linear_records(matrix, None, torch.stack(before, 1), grads)

    zeros = tap(values.new_zeros(len(values), steps, len(matrix)), records).unbind(1)

    def project(t: int, hidden: Tensor) -> Tensor:
        before[t] = hidden.detach()
        return functional.linear(hidden, matrix) + zeros[t]

    return project


def _no_examples(module: nn.Module, inputs: object) -> UnsoundConfiguration:
    shape = tuple(inputs.shape) if isinstance(inputs, Tensor) else type(inputs).__name__
    return UnsoundConfiguration(
        f"{type(module).__name__} was given {shape}; give it a padded tensor with an axis of "
        "examples"
    )
