"""Programs with torch that take part in replays: noise of torch, and optimizers of Opacus."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import Any

import torch
from torch import Tensor

from taut._base import validate
from taut.audit._replay.wrapped_functions import as_vector, foreign_release
from taut.noise.recording import Release, active

__all__ = ["NoiseTensor", "recorded_optimizer", "recorded_torch"]

_ADDS = {"add", "add_", "__add__", "__radd__", "__iadd__", "sub", "sub_", "__sub__", "__isub__"}
_MULTIPLIES = {"mul", "__mul__", "__rmul__"}
_OUTPUTS = ("normal", "randn", "randn_like")
_FLOAT_ROUNDING = 2.0**-18  # relative, of a sum over a batch in single precision


class NoiseTensor(Tensor):
    """Normal noise that has not been added to anything yet."""

    scale: float
    sensitivity: object

    @classmethod
    def __torch_function__(
        cls, function: Any, types: Any, args: Any = (), kwargs: Any = None
    ) -> Any:
        """Make a release of a sum, noise of a multiple, and a plain tensor of everything else."""
        named = kwargs or {}
        name = getattr(function, "__name__", "")
        if name in _ADDS and len(args) == 2 and not named:
            found = _added(function, *args)
            if found is not None:
                return found
        noises = [part for part in args if isinstance(part, NoiseTensor)]
        plain = tuple(_plain(part) for part in args)
        result = function(*plain, **{key: _plain(part) for key, part in named.items()})
        if name in _MULTIPLIES and len(noises) == 1 and len(args) == 2:
            (factor,) = (part for part in args if not isinstance(part, NoiseTensor))
            if isinstance(factor, int | float):
                scale = abs(factor) * noises[0].scale
                return _noise(result, scale, noises[0].sensitivity)
        return result


@contextmanager
def recorded_torch(*, sensitivity: object) -> Iterator[None]:
    """Let noise of `torch.normal`, `torch.randn` and `torch.randn_like` take part in replays.

    Args:
        sensitivity: what one record may change in a value that gets noise, a sensitivity set or a
            length in l2.

    Inside of the block, and of a replay, the three functions return tensors that know that they
    are noise, as arrays of `recorded_generator` do. Put the block into the function that is
    replayed. Noise of many parameters of one model belongs together: see `recorded_optimizer`.

    **Guarantee**: nothing is changed outside of a replay, and nothing after the block.
    """
    before = {name: getattr(torch, name) for name in _OUTPUTS}
    if active() is None:
        yield
        return
    for name, function in before.items():
        setattr(torch, name, _drawing(name, function, sensitivity))
    try:
        yield
    finally:
        for name, function in before.items():
            setattr(torch, name, function)


def recorded_optimizer(optimizer: Any) -> Any:
    """Let an optimizer of Opacus take part in replays: the sum of clipped gradients is its value.

    Args:
        optimizer: a `DPOptimizer`, or another with `params`, `add_noise`, `max_grad_norm` and
            `noise_multiplier`, whose parameters keep their sums in `summed_grad`.

    Returns:
        The same optimizer; `add_noise` is a release of all parameters together, with the l2
        sensitivity `max_grad_norm`. All that it does later, dividing by an expected batch size
        among it, is part of the program, and is compared.

    **Guarantee**: outside of a replay, `add_noise` is as it was.
    """
    missing = [
        name
        for name in ("params", "add_noise", "max_grad_norm", "noise_multiplier")
        if not hasattr(optimizer, name)
    ]
    if missing:
        raise validate.WrongType(
            f"optimizer must be a DPOptimizer of Opacus, got {type(optimizer).__name__} without "
            f"{missing[0]}; wrap the function that adds noise with taut.audit.recorded"
        )
    add_noise = optimizer.add_noise

    def add_recorded() -> None:
        recorder = active()
        if recorder is None:
            add_noise()
            return
        release = _summed(optimizer)

        def draw() -> list[Tensor]:
            add_noise()
            return [parameter.grad.clone() for parameter in optimizer.params]

        for parameter, part in zip(
            optimizer.params, recorder.release(draw, release, None), strict=True
        ):
            parameter.grad = part

    optimizer.add_noise = add_recorded
    return optimizer


def _summed(optimizer: Any) -> Release:
    norm = float(optimizer.max_grad_norm)
    scale = float(optimizer.noise_multiplier) * norm
    value = as_vector([parameter.summed_grad for parameter in optimizer.params])
    found = foreign_release("gaussian", value, norm, scale, 2.0)
    # Many steps of a sampled Gaussian cost less than their sum, so that no loss is given here.
    return Release(
        "gaussian", found.value, found.sensitivity, found.parameters, rounding=_FLOAT_ROUNDING
    )


def _drawing(
    name: str, function: Callable[..., Tensor], sensitivity: object
) -> Callable[..., Tensor]:
    def drawn(*arguments: Any, **named: Any) -> Any:
        values = tuple(_plain(part) for part in arguments)
        if name != "normal":
            return _noise(function(*values, **named), 1.0, sensitivity)
        mean = named.pop("mean", values[0] if values else 0.0)
        scale = named.pop("std", values[1] if len(values) > 1 else 1.0)
        if isinstance(scale, Tensor):
            return function(mean, scale, *values[2:], **named)
        if isinstance(mean, Tensor):
            return mean + _noise(function(torch.zeros_like(mean), scale), scale, sensitivity)
        return _noise(function(mean, scale, *values[2:], **named), float(scale), sensitivity)

    return drawn


def _noise(tensor: Tensor, scale: float, sensitivity: object) -> NoiseTensor:
    noise: NoiseTensor = tensor.as_subclass(NoiseTensor)
    noise.scale, noise.sensitivity = float(scale), sensitivity
    return noise


def _plain(part: Any) -> Any:
    return part.as_subclass(Tensor) if isinstance(part, NoiseTensor) else part


def _added(function: Any, one: Any, other: Any) -> Any:
    """Return the release of a value plus noise; None if no replay sees it, or no value is there."""
    recorder = active()
    if recorder is None or (isinstance(one, NoiseTensor) and isinstance(other, NoiseTensor)):
        return None
    noise, value = (one, other) if isinstance(one, NoiseTensor) else (other, one)
    in_place = function.__name__ in ("add_", "sub_", "__iadd__", "__isub__")
    if noise is one and (in_place or "sub" in function.__name__):
        return None
    shape = torch.broadcast_shapes(noise.shape, value.shape if isinstance(value, Tensor) else ())
    vector = torch.as_tensor(value).detach().clone().broadcast_to(shape)
    release = foreign_release("gaussian", vector, noise.sensitivity, noise.scale, 2.0)
    outcome = recorder.release(lambda: function(_plain(one), _plain(other)), release, None)
    if in_place and outcome is not value:
        value.copy_(outcome)
        return value
    return outcome
