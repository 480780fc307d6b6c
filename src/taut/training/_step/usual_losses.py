"""Losses of examples that most loops use, to be recognised by the gradients that they give."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from functools import partial
from typing import TypeAlias

from torch import Tensor
from torch.nn import functional

__all__ = ["OfLeaf", "usual_losses"]

OfLeaf: TypeAlias = Callable[[Tensor, Tensor], Tensor]
"""Takes one output of a model and one tensor of a batch, and returns one loss per example."""

_IGNORED = -100  # torch's label for what does not count


def usual_losses(output: Tensor, target: Tensor) -> Iterator[OfLeaf]:
    """Yield losses that may be meant, as far as shapes and types allow."""
    if target.is_floating_point():
        yield from _of_numbers(output, target)
        if target.shape == output.shape and output.dim() > 1:
            yield _soft_labels
        return
    if output.dim() > 1 and target.shape == (len(output), *output.shape[2:]):
        yield from (partial(of, 1, 0, total) for of in _OF_LABELS for total in (False, True))
    if output.dim() > 2 and target.shape == output.shape[:-1]:
        for shift in (0, 1) if output.dim() == 3 else (0,):  # of language models
            yield from (partial(_labels, -1, shift, total) for total in (False, True))
    yield from _of_numbers(output, target)


def _labels(axis: int, shift: int, total: bool, output: Tensor, target: Tensor) -> Tensor:
    """Cross entropy, summed over an example's own labels or averaged over those that count."""
    return _counted(functional.cross_entropy, axis, shift, total, output, target)


def _likelihoods(axis: int, shift: int, total: bool, output: Tensor, target: Tensor) -> Tensor:
    return _counted(functional.nll_loss, axis, shift, total, output, target)


_OF_LABELS = (_labels, _likelihoods)


def _counted(
    of: Callable[..., Tensor], axis: int, shift: int, total: bool, output: Tensor, target: Tensor
) -> Tensor:
    if shift:
        output, target = output[:, :-shift], target[:, shift:]
    wanted = target.long()
    values = of(output.movedim(axis, 1), wanted, reduction="none").reshape(len(output), -1)
    if total:
        return values.sum(1)
    return values.sum(1) / (wanted != _IGNORED).reshape(len(output), -1).sum(1).clamp(min=1)


def _soft_labels(output: Tensor, target: Tensor) -> Tensor:
    values = functional.cross_entropy(output, target.to(output.dtype), reduction="none")
    return values.reshape(len(output), -1).mean(1)


def _of_numbers(output: Tensor, target: Tensor) -> Iterator[OfLeaf]:
    if output.numel() != target.numel():
        return
    for of in (
        functional.mse_loss,
        functional.binary_cross_entropy_with_logits,
        functional.l1_loss,
        functional.smooth_l1_loss,
        functional.binary_cross_entropy,
    ):
        yield partial(_numbers, of, False)
        yield partial(_numbers, of, True)


def _numbers(of: Callable[..., Tensor], total: bool, output: Tensor, target: Tensor) -> Tensor:
    wanted = target.to(output.dtype).reshape(len(output), -1)
    values = of(output.reshape(len(output), -1), wanted, reduction="none")
    return values.sum(1) if total else values.mean(1)
