"""What can be seen of a model before training: layers that no clipping makes private."""

from __future__ import annotations

from collections.abc import Iterator

from torch import nn
from torch.nn.modules.batchnorm import _BatchNorm
from torch.nn.modules.instancenorm import _InstanceNorm
from torch.nn.modules.lazy import LazyModuleMixin

from taut.errors import UnsoundConfiguration

__all__ = ["check_model"]


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
        for problem in _problems(module)
    ]
    if problems:
        raise UnsoundConfiguration("; ".join(problems))


def _problems(module: nn.Module) -> Iterator[str]:
    if isinstance(module, LazyModuleMixin) and module.has_uninitialized_params():
        yield "has no parameters yet; run the model once on some input before training"
    elif isinstance(module, _InstanceNorm):
        if module.track_running_stats:
            yield "keeps statistics of examples; make it with track_running_stats=False"
    elif isinstance(module, _BatchNorm):
        yield (
            "normalises over the examples of a batch, so that no example's gradient is its own; "
            "use taut.training.replace_batchnorm(model), before the optimizer is made"
        )
    elif isinstance(module, nn.Embedding | nn.EmbeddingBag):
        for option in ("max_norm", "scale_grad_by_freq", "sparse"):
            if getattr(module, option):
                yield f"has {option}={getattr(module, option)!r}, which is not supported; leave out"
