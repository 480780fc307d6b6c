"""What a comparison trains, from a file of arrays and the name of a model."""

from __future__ import annotations

import importlib
import os
import sys
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor, nn
from torch.optim import SGD, Optimizer
from torch.utils.data import TensorDataset

from taut._base.plain_arrays import read_arrays
from taut.comparison import Task
from taut.runs._code import allowed_factory, check_allowed, names_code
from taut.training.models import ResNet20, TanhCNN, mlp

__all__ = ["read_task"]

_HIDDEN = 64
_NEEDED = ("x", "y", "x_test", "y_test")
_KNOWN = (*_NEEDED, "x_validation", "y_validation", "x_public", "y_public")


def read_task(
    data: str, model: str, momentum: float, *, typed: bool = True, allow_code: str | None = None
) -> Task:
    """Return the task of a file, or the made-up one for "demo".

    Args:
        data: an .npz file with x, y, x_test and y_test; x_validation and y_validation, x_public
            and y_public if you like. Whole numbers in y are classes, others are regressed.
            Public inputs without labels get random ones.
        model: "linear", "mlp", "tanh-cnn", "resnet20", or "module:factory".
        momentum: of SGD.
        typed: whether the name of the model comes from the command line, and not from a file.
        allow_code: the module that a file may name.

    Raises:
        ValueError: if the file or the model cannot be used.
    """
    if not 0 <= momentum < 1:
        raise ValueError(f"--momentum must be in [0, 1), got {momentum!r}")
    if names_code(model) and not typed:
        check_allowed(model, allow_code, "model =")
    arrays = _demo() if data == "demo" else _read(Path(data))
    parts = {part: _dataset(arrays, part) for part in ("", "_test", "_validation", "_public")}
    train = parts[""]
    assert train is not None
    return Task(
        model=_factory(model, train, _outputs(arrays["y"]), typed, allow_code),
        loss_fn=nn.MSELoss() if arrays["y"].dtype.kind == "f" else nn.CrossEntropyLoss(),
        train=train,
        test=parts["_test"],
        validation=parts["_validation"],
        public=parts["_public"],
        optimizer=_Momentum(momentum),
    )


class _Momentum:
    """SGD; a class, so that its settings are seen where it is made, and its name stays the same."""

    def __init__(self, momentum: float) -> None:
        self._momentum = momentum

    def __call__(self, parameters: list[Tensor], learning_rate: float) -> Optimizer:
        return SGD(parameters, lr=learning_rate, momentum=self._momentum)


def _read(path: Path) -> Mapping[str, NDArray[Any]]:
    arrays = read_arrays(path)
    for name in _NEEDED:
        if name not in arrays:
            raise ValueError(f"{path} must hold {', '.join(_NEEDED)}; there is no {name!r}")
    for name in arrays:
        if name not in _KNOWN:
            raise ValueError(f"{path} holds {name!r}, which is none of {', '.join(_KNOWN)}")
    return arrays


def _dataset(arrays: Mapping[str, NDArray[Any]], part: str) -> TensorDataset | None:
    """Return inputs and targets of one part, None if the file has none."""
    if f"x{part}" not in arrays:
        return None
    inputs = np.asarray(arrays[f"x{part}"], dtype=np.float32)
    kind = arrays["y"]
    targets = arrays.get(f"y{part}")
    if targets is None and part == "_public":
        targets = np.random.default_rng(0).choice(kind, size=len(inputs))
    if targets is None or len(targets) != len(inputs):
        found = "none" if targets is None else str(len(targets))
        raise ValueError(f"y{part} must hold one target for each of {len(inputs)}, got {found}")
    if kind.dtype.kind == "f":
        values = torch.tensor(np.asarray(targets, dtype=np.float32).reshape(len(inputs), -1))
    else:
        if targets.dtype.kind not in "iu" or targets.ndim != 1 or targets.min(initial=0) < 0:
            raise ValueError(f"y{part} must hold classes 0, 1, ..., got {targets.dtype} of shape "
                             f"{targets.shape}")  # fmt: skip
        values = torch.tensor(targets.astype(np.int64))
    return TensorDataset(torch.tensor(inputs), values)


def _outputs(targets: NDArray[Any]) -> int:
    if targets.dtype.kind == "f":
        return int(np.prod(targets.shape[1:]))
    return int(targets.max()) + 1


def _factory(
    name: str, train: TensorDataset, outputs: int, typed: bool, allow_code: str | None
) -> Callable[[], nn.Module]:
    shape = tuple(train.tensors[0].shape[1:])
    numbers = int(np.prod(shape))
    ours: dict[str, Callable[[], nn.Module]] = {
        "linear": lambda: mlp((numbers, outputs)),
        "mlp": lambda: mlp((numbers, _HIDDEN, outputs)),
        "tanh-cnn": lambda: TanhCNN(outputs, shape[0]),
        "resnet20": lambda: ResNet20(outputs, shape[0]),
    }
    if name in ours:
        images = {"tanh-cnn": (28, 28), "resnet20": (32, 32)}
        if name in images and (len(shape) != 3 or shape[1:] != images[name]):
            raise ValueError(
                f"the model {name} takes inputs of shape (channels, {images[name][0]}, "
                f"{images[name][1]}), the file has {shape}"
            )
        return ours[name]
    if ":" not in name:
        raise ValueError(
            f"--model must be one of {', '.join(ours)} or module:factory, got {name!r}"
        )
    return _imported(name) if typed else allowed_factory(name, allow_code, Path.cwd())


def _imported(name: str) -> Callable[[], nn.Module]:
    module, _, factory = name.partition(":")
    if os.getcwd() not in sys.path:  # noqa: PTH109 (entries of the path are text)
        sys.path.insert(0, os.getcwd())  # noqa: PTH109
    try:
        found = getattr(importlib.import_module(module), factory)
    except (ImportError, AttributeError, ValueError) as error:
        raise ValueError(f"--model {name}: {error}") from None
    if not callable(found):
        raise ValueError(f"--model {name} must be a function that makes a model, got {found!r}")
    made: Callable[[], nn.Module] = found
    return made


def _demo() -> Mapping[str, NDArray[Any]]:
    """Return four overlapping clouds of points in 20 dimensions."""
    draw = np.random.default_rng(0)
    centres = draw.normal(scale=0.6, size=(4, 20))
    arrays: dict[str, NDArray[Any]] = {}
    for part, count in (("", 2_000), ("_test", 1_000), ("_public", 200)):
        arrays[f"y{part}"] = draw.integers(4, size=count)
        arrays[f"x{part}"] = centres[arrays[f"y{part}"]] + draw.normal(size=(count, 20))
    return arrays
