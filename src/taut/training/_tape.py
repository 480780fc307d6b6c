"""Writes down, during one pass, what the layers' parameters need for per-example gradients.

While a tape records, autograd sees the parameters as constants: it computes the gradients of
activations alone, and the tape keeps for every layer its input and the gradient of its output.
Outside of a recording the model carries no trace of it.
"""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from typing import Any

import torch
from torch import Tensor, nn
from torch.autograd.function import FunctionCtx

from taut.errors import UnsoundConfiguration
from taut.training._records import Record
from taut.training._rules import Rule, rule_for

__all__ = ["Tape"]


@dataclass(frozen=True)
class _Layer:
    """A module with parameters of its own, and the rule for them."""

    name: str
    module: nn.Module
    rule: Rule


@dataclass(frozen=True)
class _Use:
    """One call of a layer that the loss depends on."""

    layer: _Layer
    inputs: Tensor
    grads: Tensor


class Tape:
    """Records the layers of a model, and returns the gradients of a batch by parameter.

    Args:
        model: what is trained; parameters that need no gradient are left alone.

    Raises:
        UnsoundConfiguration: if a trainable parameter belongs to a module that has no rule.
    """

    def __init__(self, model: nn.Module) -> None:
        self._layers = list(_layers(model))
        self._uses: list[_Use] = []

    @contextmanager
    def recording(self) -> Iterator[None]:
        """Record the passes inside; parameters are constants for autograd until the end."""
        self._uses.clear()
        parameters = [
            parameter
            for layer in self._layers
            for parameter in layer.module.parameters(recurse=False)
            if parameter.requires_grad
        ]
        hooks = [
            layer.module.register_forward_hook(self._hook(layer), with_kwargs=True)
            for layer in self._layers
        ]
        for parameter in parameters:
            parameter.requires_grad_(False)
        try:
            yield
        finally:
            for hook in hooks:
                hook.remove()
            for parameter in parameters:
                parameter.requires_grad_(True)

    def records(self, batch: int) -> dict[Tensor, list[Record]]:
        """Return the records of what was recorded, by parameter, and forget it."""
        found: dict[Tensor, list[Record]] = {}
        while self._uses:
            use = self._uses.pop()
            _check_batch(use, batch)
            for record in use.layer.rule(use.layer.module, use.inputs, use.grads):
                found.setdefault(record.parameter, []).append(record)
        return found

    def _hook(self, layer: _Layer) -> Any:
        def keep(
            _: nn.Module, args: tuple[Any, ...], kwargs: dict[str, Any], output: Tensor
        ) -> Tensor | None:
            if not torch.is_grad_enabled():
                return None
            (inputs,) = (*args, *kwargs.values())
            opened = output if output.requires_grad else _opened(output)
            version, kept = inputs._version, inputs.detach()

            def use(grads: Tensor) -> None:
                if kept._version != version:
                    raise UnsoundConfiguration(
                        f"the input of layer {layer.name!r} was changed in place before its "
                        "gradient was taken; use the out-of-place operation (inplace=False)"
                    )
                self._uses.append(_Use(layer, kept, grads))

            opened.register_hook(use)
            return opened

        return keep


class _Open(torch.autograd.Function):
    """Lets gradients reach the output of a layer whose input needs none."""

    @staticmethod
    def forward(ctx: FunctionCtx, output: Tensor, _: Tensor) -> Tensor:
        ctx.mark_dirty(output)
        return output

    @staticmethod
    def backward(_: FunctionCtx, *__: Tensor) -> tuple[None, None]:
        return None, None


def _opened(output: Tensor) -> Tensor:
    anchor = torch.empty(0, device=output.device, requires_grad=True)
    opened: Tensor = _Open.apply(output, anchor)  # type: ignore[no-untyped-call]
    return opened


def _layers(model: nn.Module) -> Iterator[_Layer]:
    for name, module in model.named_modules():
        if not any(p.requires_grad for p in module.parameters(recurse=False)):
            continue
        rule = rule_for(module)
        if rule is None:
            raise UnsoundConfiguration(f"no rule for {type(module).__name__} {name!r}")
        yield _Layer(name, module, rule)


def _check_batch(use: _Use, batch: int) -> None:
    if len(use.inputs) != batch or len(use.grads) != batch:
        raise UnsoundConfiguration(
            f"layer {use.layer.name!r} was given {tuple(use.inputs.shape)} where the batch has "
            f"{batch} examples; the first axis must be that of examples"
        )
