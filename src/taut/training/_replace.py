"""Ways out for layers that cannot be trained privately."""

from __future__ import annotations

import copy
import math

import torch
from torch import nn
from torch.nn.modules.batchnorm import _BatchNorm
from torch.nn.modules.instancenorm import _InstanceNorm

from taut._base import validate

__all__ = ["replace_batchnorm"]


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
