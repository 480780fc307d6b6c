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
_MULTIPLIES = {"mul", "mul_", "__mul__", "__rmul__", "__imul__"}
_DIVIDES = {"div", "div_", "__truediv__", "__itruediv__", "true_divide", "true_divide_"}
_NEGATES = {"neg", "neg_", "__neg__", "negative", "negative_"}
_IN_PLACE = {"__iadd__", "__isub__", "__imul__", "__itruediv__", "__setitem__"}
_KEEPS = {
    *("to", "type", "float", "double", "half", "bfloat16", "cpu", "cuda", "clone", "detach"),
    *("view", "reshape", "view_as", "reshape_as", "flatten", "squeeze", "unsqueeze", "ravel"),
    *("contiguous", "__getitem__"),
}
"""What leaves the numbers of a draw as they are, or some of them."""
_OUTPUTS = ("normal", "randn", "randn_like")
_FLOAT_ROUNDING = 2.0**-18  # relative, of a sum over a batch in single precision


class NoiseTensor(Tensor):
    """Normal noise that has not been added to anything yet.

    Attributes:
        scale: its deviation.
        sensitivity: declared bound on what one record changes in the value it is added to.
        is_spent: whether something else was written into it, a value above all: then it is a tensor
            like any other.
    """

    scale: float
    sensitivity: object
    is_spent: bool

    @classmethod
    def __torch_function__(
        cls, function: Any, types: Any, args: Any = (), kwargs: Any = None
    ) -> Any:
        """Make a release of a sum, noise of a multiple, and a plain tensor of everything else."""
        named = kwargs or {}
        name = getattr(function, "__name__", "")
        if name in _ADDS and len(args) == 2 and set(named) <= {"alpha"}:
            found = _added(function, *args, **named)
            if found is not None:
                return found
        noises = [part for part in args if _is_noise(part)]
        plain = tuple(_plain(part) for part in args)
        factor = _factor(name, args) if len(noises) == 1 and not named else None
        is_kept = name in _KEEPS and noises and args[0] is noises[0]
        result = function(*plain, **{key: _plain(part) for key, part in named.items()})
        if factor is None and not is_kept:
            _spend(name, args, named)
            return result
        noise, by = noises[0], 1.0 if factor is None else abs(factor)
        if not _is_in_place(name):
            return _noise(result, by * noise.scale, noise.sensitivity)
        noise.scale *= by
        return noise


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
    noise.scale, noise.sensitivity, noise.is_spent = float(scale), sensitivity, False
    return noise


def _is_noise(part: Any) -> bool:
    return isinstance(part, NoiseTensor) and not getattr(part, "is_spent", True)


def _is_in_place(name: str) -> bool:
    return name in _IN_PLACE or (name.endswith("_") and not name.endswith("__"))


def _spend(name: str, args: Any, named: dict[str, Any]) -> None:
    """Remember which noise a function has written something else into."""
    places = [named.get("out"), args[0] if args and _is_in_place(name) else None]
    for place in places:
        if isinstance(place, NoiseTensor):
            place.is_spent = True


def _factor(name: str, args: Any) -> float | None:
    """Return the number that a draw is multiplied with, if that is all that happens."""
    if name in _NEGATES and len(args) == 1:
        return -1.0
    if len(args) != 2:
        return None
    number = args[1] if isinstance(args[0], NoiseTensor) else args[0]
    if not isinstance(number, int | float):
        return None
    if name in _MULTIPLIES:
        return float(number)
    is_quotient = name in _DIVIDES and isinstance(args[0], NoiseTensor) and number
    return 1 / float(number) if is_quotient else None


def _plain(part: Any) -> Any:
    return part.as_subclass(Tensor) if isinstance(part, NoiseTensor) else part


def _added(function: Any, one: Any, other: Any, alpha: float = 1) -> Any:
    """Return the release of a value plus noise; None if no replay sees it, or no value is there."""
    recorder, name = active(), function.__name__
    if recorder is None or (_is_noise(one) and _is_noise(other)):
        return None
    if not isinstance(alpha, int | float) or (alpha != 1 and _is_noise(one)):
        return None
    noise, value = (one, other) if _is_noise(one) else (other, one)
    if not _is_noise(noise) or (noise is one and "sub" in name):
        return None
    shape = torch.broadcast_shapes(noise.shape, value.shape if isinstance(value, Tensor) else ())
    vector = torch.as_tensor(_plain(value)).detach().clone().broadcast_to(shape)
    scale = abs(alpha) * noise.scale
    release = foreign_release("gaussian", vector, noise.sensitivity, scale, 2.0)
    more = {} if alpha == 1 else {"alpha": alpha}
    outcome = recorder.release(lambda: function(_plain(one), _plain(other), **more), release, None)
    if not _is_in_place(name):
        return outcome
    if noise is one:
        noise.is_spent = True
    if outcome is not one:
        _plain(one).copy_(outcome)
    return one
