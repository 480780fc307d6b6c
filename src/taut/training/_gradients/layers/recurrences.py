"""Recurrences over all steps of a sequence as one node of autograd's graph.

A tape needs the gradient of what every step adds to its gates, and no gradients of weights: those
are made of it later, example by example. So a pass writes gates and states into one tensor each,
what their derivatives are is computed for all steps at once, and a step on the way back is one
matrix product with a few products of entries before it. Unrolled by autograd, a step has a dozen
nodes and as many small tensors.

Gates are in the order of torch: those of an `nn.LSTM` are input, forget, candidate and output,
those of an `nn.GRU` reset, update and new. Sequences have the shape (batch, steps, width).
"""

from __future__ import annotations

from collections.abc import Callable, Iterable
from typing import Any

import torch
from torch import Tensor
from torch.autograd import Function
from torch.autograd.function import once_differentiable

from taut.training._tensors.products import affine, linear_map

__all__ = ["gru_steps", "input_share", "lstm_steps", "rnn_steps"]


class _InputShare(Function):
    """What the inputs of all steps add to gates, of which autograd wants gradients of inputs alone.

    The arguments of `apply` are inputs of shape (rows, width), the matrix they are multiplied with,
    and a bias or None.
    """

    @staticmethod
    def forward(ctx: Any, inputs: Tensor, weight: Tensor, bias: Tensor | None) -> Tensor:
        ctx.save_for_backward(weight)
        return affine(inputs, weight, bias)

    @staticmethod
    @once_differentiable
    def backward(ctx: Any, grads: Tensor) -> tuple[Tensor | None, ...]:
        (weight,) = ctx.saved_tensors
        return affine(grads, weight.T) if ctx.needs_input_grad[0] else None, None, None


class _LSTMRecurrence(Function):
    """Takes what inputs add to gates, and returns outputs, last states, and states before steps.

    The arguments of `apply` are gates of shape (batch, steps, 4 width) with all biases, the matrix
    that states are multiplied with, both states at the beginning, and whether the last step comes
    first.
    """

    @staticmethod
    def forward(
        ctx: Any, given: Tensor, fed: Tensor, hidden: Tensor, cell: Tensor, backwards: bool
    ) -> tuple[Tensor, ...]:
        width = hidden.shape[-1]
        gates, outputs = torch.empty_like(given), given.new_empty(*given.shape[:2], width)
        cells, bent = torch.empty_like(outputs), torch.empty_like(outputs)
        enter, forget, candidate, leave = (part.unbind(1) for part in gates.chunk(4, -1))
        kept, shown, turned = cells.unbind(1), bent.unbind(1), outputs.unbind(1)
        all_gates, shares, open_gates = gates.unbind(1), given.unbind(1), gates[..., : 2 * width]
        first_gates = open_gates.unbind(1)
        multiplied, h, c = linear_map(fed), hidden, cell
        for t in _order(given, backwards):
            torch.add(shares[t], multiplied(h), out=all_gates[t])
            first_gates[t].sigmoid_()
            candidate[t].tanh_()
            leave[t].sigmoid_()
            c = torch.mul(forget[t], c, out=kept[t]).addcmul_(enter[t], candidate[t])
            h = torch.mul(leave[t], torch.tanh(c, out=shown[t]), out=turned[t])
        before = _before(outputs, hidden, backwards)
        ctx.save_for_backward(fed, gates, cells, bent, cell)
        ctx.backwards = backwards
        ctx.mark_non_differentiable(before)
        return outputs, h.clone(), c.clone(), before

    @staticmethod
    @once_differentiable
    def backward(ctx: Any, *grads: Tensor) -> tuple[Tensor | None, ...]:
        of_outputs, of_hidden, of_cell, _ = grads
        fed, gates, cells, bent, cell = ctx.saved_tensors
        enter, forget, candidate, leave = gates.chunk(4, -1)
        slopes = torch.empty_like(gates)
        to_enter, to_forget, to_candidate, to_leave = slopes.chunk(4, -1)
        torch.mul(candidate, _logistic_slope(enter), out=to_enter)
        torch.mul(_before(cells, cell, ctx.backwards), _logistic_slope(forget), out=to_forget)
        torch.mul(enter, _tanh_slope(candidate), out=to_candidate)
        torch.mul(bent, _logistic_slope(leave), out=to_leave)
        through = torch.mul(leave, _tanh_slope(bent)).unbind(1)
        three = slopes.unflatten(-1, (4, cell.shape[-1]))[:, :, :3].unbind(1)
        last, whole = to_leave.unbind(1), slopes.unbind(1)
        forgets, shares = forget.unbind(1), of_outputs.unbind(1)
        multiplied, h, c = linear_map(fed.T), of_hidden, of_cell
        for t in _order(gates, not ctx.backwards):  # slopes become gradients on the way
            h = h + shares[t]
            c = torch.addcmul(c, h, through[t])
            three[t].mul_(c[:, None])
            last[t].mul_(h)
            c = c * forgets[t]
            h = multiplied(whole[t])
        return slopes, None, h, c, None


class _GRURecurrence(Function):
    """Takes what inputs add to gates, and returns outputs, last state, states before, and resets.

    The arguments of `apply` are gates of shape (batch, steps, 3 width), the matrix that states are
    multiplied with and its bias, the state at the beginning, and whether the last step comes first.
    """

    @staticmethod
    def forward(
        ctx: Any, given: Tensor, fed: Tensor, bias: Tensor | None, hidden: Tensor, backwards: bool
    ) -> tuple[Tensor, ...]:
        width = hidden.shape[-1]
        gates, outputs = torch.empty_like(given), given.new_empty(*given.shape[:2], width)
        candidates = torch.empty_like(outputs)
        resets, updates, news = (part.unbind(1) for part in gates.chunk(3, -1))
        two, of_two = (every[..., : 2 * width].unbind(1) for every in (gates, given))
        of_new, kept, turned = given[..., 2 * width :].unbind(1), candidates.unbind(1), outputs
        multiplied, h = linear_map(fed), hidden
        for t, output in _numbered(turned, backwards):
            share = multiplied(h) if bias is None else multiplied(h).add_(bias)
            torch.add(of_two[t], share[:, : 2 * width], out=two[t]).sigmoid_()
            candidate = kept[t].copy_(share[:, 2 * width :])
            torch.addcmul(of_new[t], resets[t], candidate, out=news[t]).tanh_()
            h = torch.lerp(news[t], h, updates[t], out=output)
        before = _before(outputs, hidden, backwards)
        reset = gates[..., :width].clone()
        ctx.save_for_backward(fed, gates, candidates, before)
        ctx.backwards = backwards
        ctx.mark_non_differentiable(before, reset)
        return outputs, h.clone(), before, reset

    @staticmethod
    @once_differentiable
    def backward(ctx: Any, *grads: Tensor) -> tuple[Tensor | None, ...]:
        of_outputs, of_hidden, *_ = grads
        fed, gates, candidates, before = ctx.saved_tensors
        reset, update, new = gates.chunk(3, -1)
        slopes, slopes_fed = torch.empty_like(gates), torch.empty_like(gates)
        to_reset, to_update, to_new = slopes.chunk(3, -1)
        torch.mul(1 - update, _tanh_slope(new), out=to_new)
        torch.mul(before - new, _logistic_slope(update), out=to_update)
        torch.mul(to_new * candidates, _logistic_slope(reset), out=to_reset)
        slopes_fed.copy_(slopes)
        slopes_fed.chunk(3, -1)[2].mul_(reset)
        sizes = (3, before.shape[-1])
        to_given, to_fed = (every.unflatten(-1, sizes).unbind(1) for every in (slopes, slopes_fed))
        updates, shares = update.unbind(1), of_outputs.unbind(1)
        multiplied, h = linear_map(fed.T), of_hidden
        for t in _order(gates, not ctx.backwards):  # slopes become gradients on the way
            h = h + shares[t]
            to_given[t].mul_(h[:, None])
            of_fed = to_fed[t].mul_(h[:, None]).flatten(1)
            h = multiplied(of_fed).addcmul_(h, updates[t])
        return slopes, None, None, h, None


class _RNNRecurrence(Function):
    """Takes what inputs add to states, and returns outputs, last state, and states before steps.

    The arguments of `apply` are sums of shape (batch, steps, width) with all biases, the matrix
    that states are multiplied with, the state at the beginning, whether the last step comes first,
    and whether states are bent by tanh, instead of being cut off below zero.
    """

    @staticmethod
    def forward(
        ctx: Any, given: Tensor, fed: Tensor, hidden: Tensor, backwards: bool, tanh: bool
    ) -> tuple[Tensor, ...]:
        outputs = torch.empty_like(given)
        shares, multiplied, h = given.unbind(1), linear_map(fed), hidden
        for t, output in _numbered(outputs, backwards):
            torch.add(shares[t], multiplied(h), out=output)
            h = output.tanh_() if tanh else output.relu_()
        before = _before(outputs, hidden, backwards)
        slopes = _tanh_slope(outputs) if tanh else (outputs > 0).to(outputs.dtype)
        ctx.save_for_backward(fed, slopes)
        ctx.backwards = backwards
        ctx.mark_non_differentiable(before)
        return outputs, h.clone(), before

    @staticmethod
    @once_differentiable
    def backward(ctx: Any, *grads: Tensor) -> tuple[Tensor | None, ...]:
        of_outputs, of_hidden, _ = grads
        fed, slopes = ctx.saved_tensors
        found = torch.empty_like(slopes)
        to_given, of_given, shares = (every.unbind(1) for every in (slopes, found, of_outputs))
        multiplied, h = linear_map(fed.T), of_hidden
        for t in _order(slopes, not ctx.backwards):
            h = multiplied(torch.mul(h + shares[t], to_given[t], out=of_given[t]))
        return found, None, h, None, None


def _order(sequence: Tensor, backwards: bool) -> Iterable[int]:
    steps = range(sequence.shape[1])
    return reversed(steps) if backwards else steps


def _numbered(sequence: Tensor, backwards: bool) -> Iterable[tuple[int, Tensor]]:
    places = sequence.unbind(1)
    return ((t, places[t]) for t in _order(sequence, backwards))


def _before(after: Tensor, start: Tensor, backwards: bool) -> Tensor:
    """Return the states before all steps, from those after them and the one at the beginning."""
    if backwards:
        return torch.cat([after[:, 1:], start[:, None]], 1)
    return torch.cat([start[:, None], after[:, :-1]], 1)


def _logistic_slope(value: Tensor) -> Tensor:
    return torch.addcmul(value, value, value, value=-1)


def _tanh_slope(value: Tensor) -> Tensor:
    return torch.addcmul(torch.ones_like(value), value, value, value=-1)


def input_share(inputs: Tensor, weight: Tensor, bias: Tensor | None) -> Tensor:
    """Return what the inputs of all steps add to gates, of shape (batch, steps, width of gates).

    Its shape is given outside of the node: what a node returns must be no view, to be written to.
    """
    rows = _InputShare.apply(inputs.flatten(0, 1), weight, bias)  # type: ignore[no-untyped-call]
    share: Tensor = rows.unflatten(0, inputs.shape[:2])
    return share


lstm_steps: Callable[..., tuple[Tensor, ...]] = _LSTMRecurrence.apply
gru_steps: Callable[..., tuple[Tensor, ...]] = _GRURecurrence.apply
rnn_steps: Callable[..., tuple[Tensor, ...]] = _RNNRecurrence.apply
