"""What a comparison trains, from a file of arrays and the name of a model."""

from __future__ import annotations

from collections.abc import Callable
from functools import partial
from pathlib import Path
from typing import Any

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor, nn
from torch.optim import SGD, Optimizer
from torch.utils.data import TensorDataset

from taut._base import validate
from taut.comparison import Task
from taut.runs._code import allowed_factory, check_allowed, names_code, typed_factory
from taut.runs._data import Arrays, dataset, named_arrays
from taut.runs._models import our_model, suited, usual_arguments

__all__ = ["read_task"]


def read_task(
    data: str | Path,
    model: str,
    *,
    momentum: float = 0.0,
    typed: bool = True,
    allow_code: str | None = None,
) -> Task:
    """Return the task of a file, or the made-up one for "demo".

    Args:
        data: the path of an .npz file with the arrays x_train (or x), y_train (or y), x_test and
            y_test, and any of x_validation, y_validation, x_public and y_public, as for
            `train`. Whole numbers in y are classes, others are regressed. Public inputs without
            labels get random ones.
        model: the name of a model of `taut.training.models`, "linear", or "module:factory".
        momentum: the momentum of SGD, in [0, 1).
        typed: whether the name of the model was typed by whoever runs it, and not read from a file.
        allow_code: the module that a file may name.

    **Guarantee**: none. Data are compared on as if they were public.

    Raises:
        ValueError: if the file or the model cannot be used.
        OSError: if the file cannot be read.

    Example:
        >>> from taut.runs import read_task
        >>> task = read_task("demo", "linear")
        >>> len(task.train), task.sizes
        (2000, {'1.weight': 80, '1.bias': 4})
    """
    rate = validate.below_one(momentum=momentum)
    if names_code(model) and not typed:
        check_allowed(model, allow_code, "model =")
    arrays = _demo() if data == "demo" else named_arrays(Path(data))
    parts, source = {}, str(data)
    classes = "y_train" not in arrays or arrays["y_train"].dtype.kind != "f"
    for part in ("train", "test", "validation", "public"):
        if part in ("train", "test") or f"x_{part}" in arrays:
            parts[part] = _part(arrays, part, source, classes=classes)
    make = _factory(model, parts["train"], classes=classes, typed=typed, allow_code=allow_code)
    if not parts["train"].tensors[0].is_floating_point():
        with torch.random.fork_rng():
            made = make()
        if isinstance(made, nn.Module):  # else the task says so
            parts = {part: suited(made, found, model) for part, found in parts.items()}
    return Task(
        model=make,
        loss_fn=nn.CrossEntropyLoss() if classes else nn.MSELoss(),
        train=parts["train"],
        test=parts["test"],
        validation=parts.get("validation"),
        public=parts.get("public"),
        optimizer=_Momentum(rate),
    )


class _Momentum:
    """SGD; a class, so that its settings are seen where it is made, and its name stays the same."""

    def __init__(self, momentum: float) -> None:
        self._momentum = momentum

    def __call__(self, parameters: list[Tensor], learning_rate: float) -> Optimizer:
        return SGD(parameters, lr=learning_rate, momentum=self._momentum)


def _part(arrays: Arrays, part: str, source: str, *, classes: bool) -> TensorDataset:
    """Return inputs and targets of one part; targets are classes 0, 1, ... or rows of numbers."""
    if part == "public" and "y_public" not in arrays and "y_train" in arrays:
        some = np.random.default_rng(0).choice(arrays["y_train"], size=len(arrays["x_public"]))
        arrays = {**arrays, "y_public": some}
    found = dataset(arrays, part, source, classes=classes)
    inputs, targets = found.tensors
    if not classes:
        return TensorDataset(inputs, targets.flatten(1))
    if targets.dim() != 1 or int(targets.min()) < 0:
        raise ValueError(
            f"{source}: y_{part} must hold classes 0, 1, ..., one for each input, got shape "
            f"{tuple(targets.shape)}"
        )
    return found


def _factory(
    name: str, train: TensorDataset, *, classes: bool, typed: bool, allow_code: str | None
) -> Callable[[], nn.Module]:
    if names_code(name):
        if typed:
            return typed_factory(name, "--model")
        return allowed_factory(name, allow_code, Path.cwd())
    inputs, targets = train.tensors
    outputs = int(targets.max()) + 1 if classes else targets.shape[1]
    model: Callable[..., Any] = our_model(name, "--model")
    return partial(model, **usual_arguments(name, inputs.shape[1:], outputs))


def _demo() -> Arrays:
    """Return four overlapping clouds of points in 20 dimensions."""
    draw = np.random.default_rng(0)
    centres = draw.normal(scale=0.6, size=(4, 20))
    arrays: dict[str, NDArray[np.generic]] = {}
    for part, count in (("train", 2_000), ("test", 1_000), ("public", 200)):
        labels = draw.integers(4, size=count)
        arrays[f"y_{part}"] = labels
        arrays[f"x_{part}"] = centres[labels] + draw.normal(size=(count, 20))
    return arrays
