"""Examples from a file of arrays, by one rule for every command, or from a package."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from typing import TypeAlias

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor
from torch.utils.data import TensorDataset

from taut._base.plain_arrays import read_arrays
from taut._base.spelling import nearest
from taut.runs._sections import DataSection

__all__ = ["Arrays", "dataset", "named_arrays", "read_data"]

Arrays: TypeAlias = Mapping[str, NDArray[np.generic]]

_PARTS = ("train", "test", "validation", "public")
_NAMES = tuple(f"{letter}_{part}" for part in _PARTS for letter in "xy")
_SHORT = {"x": "x_train", "y": "y_train"}


def named_arrays(path: Path) -> Arrays:
    """Return the arrays of a file under one name each: x_train, y_train, x_test, y_test, ...

    Args:
        path: a file of NumPy arrays; x and y stand for x_train and y_train where those are missing.

    Raises:
        ValueError: if it is no such file, or holds what is spelt much like a name, and is none.
        OSError: if it cannot be read.
    """
    found = read_arrays(path)
    arrays = {
        _SHORT[name] if name in _SHORT and _SHORT[name] not in found else name: array
        for name, array in found.items()
    }
    for name in arrays:
        meant = nearest(name, _NAMES, like=_MISSPELT)
        if name not in (*_NAMES, *_SHORT) and meant is not None and meant not in arrays:
            raise ValueError(f"{path} holds {name!r}; did you mean {meant!r}?")
    return arrays


_MISSPELT = 0.8  # of letters in common; other arrays, such as ids, may lie beside the examples


def dataset(arrays: Arrays, part: str, source: str, *, classes: bool) -> TensorDataset:
    """Return inputs and targets of one part.

    Args:
        arrays: arrays from `named_arrays`.
        part: "train", "test", "validation" or "public".
        source: how messages call the file.
        classes: whether targets are labels; otherwise they are numbers.

    Fractions and bytes, the pixels of images, become floats; other whole numbers stay whole, as
    tokens must.

    Raises:
        ValueError: if arrays are missing, empty, of other things than numbers, or do not fit.
    """
    for name in (f"x_{part}", f"y_{part}"):
        if name not in arrays:
            raise ValueError(f"{source} has no array {name!r}; there are {_listed(arrays)}")
    inputs, targets = arrays[f"x_{part}"], arrays[f"y_{part}"]
    if inputs.ndim < 1 or len(inputs) == 0:
        raise ValueError(f"{source} holds no examples")
    if targets.ndim < 1 or len(targets) != len(inputs):
        raise ValueError(
            f"{source} holds {len(inputs)} inputs, and targets of shape {targets.shape}"
        )
    return TensorDataset(_inputs(inputs, source), _targets(targets, source, classes=classes))


def read_data(
    section: DataSection, path: Path | None, validation: Path | None = None, *, classes: bool
) -> tuple[TensorDataset, TensorDataset | None]:
    """Return the examples to train on, and those to evaluate on if there are any.

    Args:
        section: what the configuration says.
        path: path of the file, if there is one.
        validation: path of the file to evaluate on, if it is another one.
        classes: whether targets are labels; otherwise they are numbers.

    Raises:
        ValueError: if arrays are missing or do not fit together.
        OSError: if the file cannot be read.
        ImportError: if the package of a builtin dataset is not installed.
    """
    arrays = _digits() if path is None else _read(path)
    source = "[data] builtin" if path is None else f"[data] {path}"
    train = _shaped(dataset(arrays, "train", source, classes=classes), section)
    part = "test"
    if validation is not None:
        part, source, arrays = "validation", f"[data] {validation}", _read(validation)
    elif "x_test" not in arrays and "y_test" not in arrays:
        return train, None
    held_out = _shaped(dataset(arrays, part, source, classes=classes), section)
    _check_alike(train, held_out, source, part)
    return train, held_out


def _check_alike(train: TensorDataset, held_out: TensorDataset, source: str, part: str) -> None:
    """Refuse examples that the model could not be evaluated on, before anything is spent."""
    for name, ours, theirs in zip("xy", train.tensors, held_out.tensors, strict=True):
        if ours.shape[1:] != theirs.shape[1:]:
            raise ValueError(
                f"{source} has one {name}_{part} of shape {list(theirs.shape[1:])}, but one "
                f"{name}_train of shape {list(ours.shape[1:])}"
            )


def _read(path: Path) -> Arrays:
    if not path.exists():
        raise FileNotFoundError(f"[data] there is no file {path}")
    try:
        return named_arrays(path)
    except ValueError as error:
        raise ValueError(f"[data] {error}") from None


def _digits() -> Arrays:
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
    return {
        "x_train": images[~held_out] / 16,
        "y_train": labels[~held_out],
        "x_test": images[held_out] / 16,
        "y_test": labels[held_out],
    }


def _shaped(data: TensorDataset, section: DataSection) -> TensorDataset:
    """Return examples with inputs of the shape and scale that a configuration asks for."""
    inputs, targets = data.tensors
    if section.shape is not None:
        if int(np.prod(section.shape)) != inputs[0].numel():
            raise ValueError(
                f"[data] shape {list(section.shape)} does not fit inputs of {inputs[0].numel()} "
                "numbers"
            )
        inputs = inputs.reshape(len(inputs), *section.shape)
    if section.scale is not None:
        inputs = inputs.float() * section.scale
    return TensorDataset(inputs, targets)


def _inputs(array: NDArray[np.generic], source: str) -> Tensor:
    if array.dtype.kind in "fb" or array.dtype == np.uint8:
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
