"""Examples of a run: arrays from a file, or a small dataset that comes with a package."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor
from torch.utils.data import TensorDataset

from taut._base.plain_arrays import read_arrays
from taut.runs._sections import DataSection

__all__ = ["read_data"]

_NAMES = ("x_train", "y_train", "x_test", "y_test")


def read_data(
    section: DataSection, path: Path | None, *, classes: bool
) -> tuple[TensorDataset, TensorDataset | None]:
    """Return the examples to train on, and those to evaluate on if there are any.

    Args:
        section: what the configuration says.
        path: of the file, if there is one.
        classes: whether targets are labels; otherwise they are numbers.

    Raises:
        ValueError: if arrays are missing or do not fit together.
        OSError: if the file cannot be read.
        ImportError: if the package of a builtin dataset is not installed.
    """
    arrays = _digits() if path is None else _read(path)
    source = "[data] builtin" if path is None else f"[data] {path}"
    pairs = []
    for inputs, targets in (("x_train", "y_train"), ("x_test", "y_test")):
        if inputs not in arrays and targets not in arrays and inputs == "x_test":
            break
        for name in (inputs, targets):
            if name not in arrays:
                raise ValueError(f"{source} has no array {name!r}; there are {_listed(arrays)}")
        pairs.append(_dataset(arrays[inputs], arrays[targets], section, source, classes=classes))
    train, held_out = pairs[0], pairs[1] if len(pairs) == 2 else None
    if held_out is not None:
        _check_alike(train, held_out, source)
    return train, held_out


def _check_alike(train: TensorDataset, held_out: TensorDataset, source: str) -> None:
    """Refuse examples that the model could not be evaluated on, before anything is spent."""
    for name, ours, theirs in zip("xy", train.tensors, held_out.tensors, strict=True):
        if ours.shape[1:] != theirs.shape[1:]:
            raise ValueError(
                f"{source} has one {name}_test of shape {list(theirs.shape[1:])}, but one "
                f"{name}_train of shape {list(ours.shape[1:])}"
            )


def _read(path: Path) -> Mapping[str, NDArray[np.generic]]:
    if not path.exists():
        raise FileNotFoundError(f"[data] path: there is no file {path}")
    try:
        arrays = read_arrays(path)
    except ValueError as error:
        raise ValueError(f"[data] {error}") from None
    if "x" in arrays and "x_train" not in arrays:
        arrays = {
            "x_train" if n == "x" else "y_train" if n == "y" else n: a for n, a in arrays.items()
        }
    return arrays


def _digits() -> Mapping[str, NDArray[np.generic]]:
    """Return 8 x 8 images of digits, every fifth of them to evaluate on."""
    try:
        from sklearn.datasets import load_digits
    except ImportError:
        raise ImportError(
            "[data] builtin = 'digits' needs scikit-learn; install it with: pip install "
            "'taut[demo]'"
        ) from None
    images, labels = load_digits(return_X_y=True)
    held_out = np.arange(len(labels)) % 5 == 0
    parts = (images[~held_out] / 16, labels[~held_out], images[held_out] / 16, labels[held_out])
    return dict(zip(_NAMES, parts, strict=True))


def _dataset(
    inputs: NDArray[np.generic],
    targets: NDArray[np.generic],
    section: DataSection,
    source: str,
    *,
    classes: bool,
) -> TensorDataset:
    if inputs.ndim < 1 or len(inputs) == 0:
        raise ValueError(f"{source} holds no examples")
    if targets.ndim < 1 or len(targets) != len(inputs):
        raise ValueError(
            f"{source} holds {len(inputs)} inputs, and targets of shape {targets.shape}"
        )
    if section.shape is not None:
        if int(np.prod(section.shape)) != inputs[0].size:
            raise ValueError(
                f"[data] shape {list(section.shape)} does not fit inputs of {inputs[0].size} "
                "numbers"
            )
        inputs = inputs.reshape(len(inputs), *section.shape)
    numbers = _inputs(inputs, source)
    if section.scale is not None:
        numbers = numbers.float() * section.scale
    return TensorDataset(numbers, _targets(targets, source, classes=classes))


def _inputs(array: NDArray[np.generic], source: str) -> Tensor:
    if array.dtype.kind == "f" or array.dtype == np.uint8:  # bytes are the pixels of images
        return torch.from_numpy(np.ascontiguousarray(array, dtype=np.float32))
    if array.dtype.kind in "iu":
        return torch.from_numpy(np.ascontiguousarray(array, dtype=np.int64))
    raise ValueError(f"{source} must hold numbers, got inputs of type {array.dtype}")


def _targets(array: NDArray[np.generic], source: str, *, classes: bool) -> Tensor:
    if classes:
        if array.dtype.kind not in "iu":
            raise ValueError(
                f"{source} must hold labels 0, 1, 2, ... as integers, got targets of type "
                f"{array.dtype}; for numbers write [training] loss = 'mse'"
            )
        return torch.from_numpy(np.ascontiguousarray(array, dtype=np.int64))
    if array.dtype.kind not in "iufb":
        raise ValueError(f"{source} must hold numbers, got targets of type {array.dtype}")
    numbers = torch.from_numpy(np.ascontiguousarray(array, dtype=np.float32))
    return numbers[:, None] if numbers.dim() == 1 else numbers  # as a model of one output has it


def _listed(arrays: Mapping[str, object]) -> str:
    return ", ".join(sorted(arrays)) or "none"
