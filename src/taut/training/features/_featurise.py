"""Features of a whole dataset, computed once and kept."""

from __future__ import annotations

import sys
from collections.abc import Callable, Iterable, Iterator
from contextlib import contextmanager
from typing import Any

import numpy as np
import torch
from torch import Tensor, nn
from torch.utils.data import TensorDataset, default_collate

from taut._base import validate
from taut.errors import UnsoundConfiguration
from taut.training._data.fetching import whole_tensors
from taut.training._tensors.examples import length

__all__ = ["featurise"]

_COMPARED = 2  # examples whose features are computed a second time, each alone


@torch.no_grad()
def featurise(
    dataset: Any,
    transform: Callable[[Tensor], Tensor],
    *,
    batch_size: int = 512,
    dtype: torch.dtype = torch.float32,
    device: torch.device | str | None = None,
    progress: bool = True,
) -> TensorDataset:
    """Return the features of all examples, with their targets, as tensors in memory.

    Args:
        dataset: a tensor of inputs, or anything with `__len__` and `__getitem__` whose examples are
            an input and further tensors or numbers, such as a target, which are kept.
        transform: function from a batch of inputs to a batch of features; a module is put into
            evaluation mode meanwhile.
        batch_size: how many examples are transformed at a time.
        dtype: data type, in which features are stored; `torch.float16` halves their memory.
        device: where inputs are moved to be transformed; features are stored on the CPU.
        progress: show how far it is, if standard error is a terminal.

    **Guarantee**: if `transform` was chosen without looking at private examples, features cost no
    privacy: each depends on its own example alone, so that datasets which differ in one example
    still do, and a model trained on features with some epsilon and delta has the same promise for
    the examples themselves. A transform that was *fitted* on private examples breaks this: means
    and deviations of the training set, its principal components, a network trained on it. Use
    normalisation within each example (`taut.training.models.LinearProbe`), statistics of public
    data (`PublicWhitening`), or pay for a private release of statistics and add its loss.

    Raises:
        UnsoundConfiguration: if features of an example change with the batch it is in, or the
            transform remembers examples: both are found out on the first batch.
        ValueError: for features that are not finite in `dtype`, and for an empty dataset.

    Example:
        >>> import torch
        >>> from torch.utils.data import TensorDataset
        >>> from taut.training.features import Scattering2d, featurise
        >>> images = TensorDataset(torch.rand(20, 1, 28, 28), torch.arange(20) % 10)
        >>> features = featurise(images, Scattering2d((28, 28)), dtype=torch.float16)
        >>> inputs, targets = features.tensors
        >>> inputs.shape, inputs.dtype
        (torch.Size([20, 81, 7, 7]), torch.float16)
    """
    size = validate.positive_integer(batch_size=batch_size)
    source = TensorDataset(dataset) if isinstance(dataset, Tensor) else dataset
    count = length(source)
    features: Tensor | None = None
    others: list[list[Tensor]] = []
    with _evaluating(transform):
        for start in _shown(range(0, count, size), wanted=progress):
            inputs, *rest = _fetched(source, start, min(start + size, count))
            inputs = inputs if device is None else inputs.to(device)
            found = _checked(transform, inputs) if features is None else transform(inputs)
            if features is None:
                features = torch.empty((count, *found.shape[1:]), dtype=dtype)
            features[start : start + size] = _stored(found, dtype)
            others.append(rest)
    assert features is not None  # there is at least one example
    kept = [torch.cat(parts) for parts in zip(*others, strict=True)]
    return TensorDataset(features, *kept)


def _fetched(dataset: Any, start: int, stop: int) -> list[Tensor]:
    whole = whole_tensors(dataset, None)
    if whole is not None:
        return whole(np.arange(start, stop))
    batch = default_collate([dataset[place] for place in range(start, stop)])
    parts = [batch] if isinstance(batch, Tensor) else batch
    if not isinstance(parts, list | tuple) or not all(isinstance(p, Tensor) for p in parts):
        raise ValueError(
            "examples must be an input and further tensors or numbers, got a batch of "
            f"{type(batch).__name__}; wrap the dataset so that it returns tensors"
        )
    return list(parts)


def _checked(transform: Callable[[Tensor], Tensor], inputs: Tensor) -> Tensor:
    """Return features of the first batch, after a look at whether they are each example's own."""
    state = _versions(transform)
    found = transform(inputs)
    if not isinstance(found, Tensor) or found.ndim < 1 or len(found) != len(inputs):
        raise ValueError(
            f"transform must return one row of features for each of {len(inputs)} inputs, got "
            f"{tuple(found.shape) if isinstance(found, Tensor) else type(found).__name__}"
        )
    if _versions(transform) != state:
        raise UnsoundConfiguration(
            "transform changed what it remembers when it saw examples, so that features say "
            "something about other examples; fit it on public data and freeze it"
        )
    for place in range(min(_COMPARED, len(inputs))):
        alone = transform(inputs[place : place + 1])[0].float()
        scale = found[place].float().abs().max()
        if not torch.allclose(alone, found[place].float(), rtol=1e-3, atol=1e-4 * float(scale)):
            raise UnsoundConfiguration(
                "features of an example change with the batch it is in, or from call to call; use "
                "a fixed transform of each example alone: put a network into evaluation mode, "
                "normalise within examples, and leave random augmentation out"
            )
    return found


def _versions(transform: object) -> list[int]:
    if not isinstance(transform, nn.Module):
        return []
    return [tensor._version for tensor in (*transform.parameters(), *transform.buffers())]


def _stored(found: Tensor, dtype: torch.dtype) -> Tensor:
    stored = found.to(device="cpu", dtype=dtype)
    if not stored.isfinite().all():
        raise ValueError(
            f"features hold values that are not finite numbers in {dtype}; scale inputs down, or "
            "store them with dtype=torch.float32"
        )
    return stored


@contextmanager
def _evaluating(transform: object) -> Iterator[None]:
    if not isinstance(transform, nn.Module):
        yield
        return
    modes = [(module, module.training) for module in transform.modules()]
    transform.eval()
    try:
        yield
    finally:
        for module, mode in modes:
            module.training = mode


def _shown(batches: range, *, wanted: bool) -> Iterable[int]:
    if not (wanted and sys.stderr.isatty()):
        return batches
    try:
        from rich.console import Console
        from rich.progress import track
    except ImportError:
        return batches
    return track(batches, description="features", console=Console(stderr=True))
