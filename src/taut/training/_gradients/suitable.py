"""What can be seen of a model before training: layers that no clipping makes private."""

from __future__ import annotations

import copy
import math
from collections.abc import Iterator

import torch
from torch import nn
from torch.nn.modules.batchnorm import _BatchNorm
from torch.nn.modules.instancenorm import _InstanceNorm
from torch.nn.modules.lazy import LazyModuleMixin

from taut._base import validate
from taut.errors import UnsoundConfiguration

__all__ = ["check_model", "replace_batchnorm", "train_mode"]


def check_model(model: nn.Module) -> None:
    """Refuse a model with layers that mix examples or remember them, naming each and the way out.

    Args:
        model: what is to be trained.

    Raises:
        UnsoundConfiguration: if a layer is known to make the gradient of one example depend on
            another, or to keep statistics of examples beside the parameters.

    **Guarantee**: none by itself: what a `forward` does is seen only when it runs. The first batch
    is checked for that.

    Example:
        >>> from torch import nn
        >>> from taut.training import check_model
        >>> check_model(nn.Sequential(nn.Linear(4, 2)))
    """
    problems = [
        f"{type(module).__name__} {name or '(the model)'!r} {problem}"
        for name, module in model.named_modules()
        for problem in _problems(module, is_fixed=model.training and not module.training)
    ]
    if problems:
        raise UnsoundConfiguration("; ".join(problems))


def _problems(module: nn.Module, *, is_fixed: bool) -> Iterator[str]:
    if isinstance(module, LazyModuleMixin) and module.has_uninitialized_params():
        yield "has no parameters yet; run the model once on some input before training"
    elif isinstance(module, _InstanceNorm):
        if module.track_running_stats:
            yield "keeps statistics of examples; make it with track_running_stats=False"
    elif isinstance(module, _BatchNorm):
        if not is_fixed or module.running_mean is None:
            yield (
                "normalises over the examples of a batch, so that no example's gradient is its "
                "own; use taut.training.replace_batchnorm(model), before the optimizer is made, or "
                "keep its statistics as they are: eval() of this layer after every model.train()"
            )
    elif isinstance(module, torch.jit.ScriptModule):
        yield (
            "is compiled by TorchScript, whose calls cannot be recorded; train the module that was "
            "scripted, and script it afterwards"
        )
    elif isinstance(module, nn.Embedding | nn.EmbeddingBag):
        for option in ("max_norm", "scale_grad_by_freq", "sparse"):
            if getattr(module, option):
                yield f"has {option}={getattr(module, option)!r}, which is not supported; leave out"


def train_mode(model: nn.Module) -> None:
    """Put a model into training mode, but for batch normalisation whose statistics are fixed."""
    fixed = [m for m in model.modules() if isinstance(m, _BatchNorm) and not m.training]
    kept = fixed if model.training else []
    model.train()
    for module in kept:
        module.eval()


def replace_batchnorm(model: nn.Module, *, most_groups: int = 32) -> nn.Module:
    """Return a copy of a model in which every batch normalisation is a group normalisation.

    Args:
        model: left as it is.
        most_groups: the number of groups is the largest divisor of it and of the channels.

    The affine parameters are those of the original; running statistics are not used. Instance
    normalisation that keeps running statistics becomes one that does not.

    Example:
        >>> from torch import nn
        >>> from taut.training import replace_batchnorm
        >>> replace_batchnorm(nn.Sequential(nn.BatchNorm2d(48)))[0].num_groups
        16
    """
    groups = validate.positive_integer(most_groups=most_groups)
    return _replaced(copy.deepcopy(model), groups, {})


def _replaced(module: nn.Module, groups: int, done: dict[nn.Module, nn.Module]) -> nn.Module:
    if module in done:
        return done[module]
    new = done[module] = _substitute(module, groups)
    for name, child in module._modules.items():
        if child is not None:
            setattr(new, name, _replaced(child, groups, done))
    return new


def _substitute(module: nn.Module, groups: int) -> nn.Module:
    if isinstance(module, _InstanceNorm):
        module.track_running_stats = False
        for name in ("running_mean", "running_var", "num_batches_tracked"):
            module.register_buffer(name, None)
        return module
    if not isinstance(module, _BatchNorm):
        return module
    channels = module.num_features
    new = nn.GroupNorm(math.gcd(groups, channels), channels, eps=module.eps, affine=module.affine)
    if module.affine:
        new.to(module.weight.device, module.weight.dtype)
        with torch.no_grad():
            new.weight.copy_(module.weight)
            new.bias.copy_(module.bias)
        new.weight.requires_grad_(module.weight.requires_grad)
        new.bias.requires_grad_(module.bias.requires_grad)
    return new.train(module.training)
