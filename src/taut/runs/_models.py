"""The model of a run or of a comparison: one of ours by its name, or what a factory makes."""

from __future__ import annotations

import inspect
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import Any

import torch
from torch import nn
from torch.utils.data import TensorDataset

from taut._base.spelling import did_you_mean
from taut.runs._code import allowed_factory, names_code
from taut.runs._sections import ModelSection
from taut.runs._tables import check_key
from taut.training import models

__all__ = ["make_model", "our_model", "suited", "usual_arguments"]

_LAYERS = ("StandardisedConv2d",)  # parts of models, not models
_OURS = {name.lower(): name for name in models.__all__ if name not in _LAYERS}
_OTHER_NAMES = {"linear": "mlp"}  # without a hidden layer
_HIDDEN = 64  # of the usual mlp: enough for a comparison of noise, and quick
_IMAGES = {"TanhCNN": (28, 28), "ResNet20": (32, 32)}


def our_model(name: str, where: str = "[model] name") -> Callable[..., Any]:
    """Return the model of `taut.training.models` that a name stands for.

    Args:
        name: name, as Python spells it, or in lower case, with hyphens or underscores.
        where: how messages call the place of the name.

    Raises:
        ValueError: naming all models, and the one that was meant.
    """
    word = name.lower().replace("-", "").replace("_", "")
    ours = _OURS.get(_OTHER_NAMES.get(word, word))
    if ours is None:
        names = (*_OTHER_NAMES, *_OURS.values())
        raise ValueError(
            f"{where} must be one of {', '.join(names)}, or 'package.module:factory', "
            f"got {name!r}{did_you_mean(name, names)}"
        )
    found: Callable[..., Any] = getattr(models, ours)
    return found


def usual_arguments(name: str, shape: Sequence[int], outputs: int) -> dict[str, Any]:
    """Return arguments of one of our models for inputs of a shape and so many outputs.

    Comparisons choose them so, from data that count as public; the sizes of a private run are
    written in its configuration.

    Raises:
        ValueError: if the model is for images of another size.
    """
    model = our_model(name)
    if model is models.mlp:
        numbers = int(torch.Size(shape).numel())
        hidden = () if name == "linear" else (_HIDDEN,)
        return {"widths": (numbers, *hidden, outputs)}
    size = _IMAGES.get(model.__name__)
    if size is not None and tuple(shape[1:]) != size:
        raise ValueError(
            f"the model {model.__name__} takes inputs of shape (channels, {size[0]}, {size[1]}), "
            f"the file has {tuple(shape)}"
        )
    known = {"classes": outputs, "features": tuple(shape), "channels": shape[0], "length": shape[0]}
    taken = inspect.signature(model).parameters
    return {key: value for key, value in known.items() if key in taken}


def make_model(section: ModelSection, code: Path, *, allow_code: str | None) -> nn.Module:
    """Return a new model.

    Args:
        section: what the configuration says.
        code: where the module of a factory is looked for.
        allow_code: the module of a factory that may be run.

    Raises:
        ValueError: if there is no such model, or if it does not take these arguments.
    """
    if names_code(section.name):
        factory = allowed_factory(section.name, allow_code, code)
    else:
        factory = our_model(section.name)
        _check_linear(section)
    _check_arguments(factory, section.arguments, section.name)
    arguments = {key: _as_tuple(value) for key, value in section.arguments.items()}
    try:
        model = factory(**arguments)
    except Exception as error:
        raise ValueError(f"[model] {section.name} could not be made: {_short(error)}") from error
    if not isinstance(model, nn.Module):
        raise ValueError(
            f"[model] {section.name} must return a torch.nn.Module, got {type(model).__name__}"
        )
    return model


def suited(model: nn.Module, data: TensorDataset, name: str) -> TensorDataset:
    """Return the data as the model takes them: whole numbers as they are, or else as floats.

    Raises:
        ValueError: if the model takes them neither way; only the shape and type of an input, which
            all have in common, are named.
    """
    inputs, targets = data.tensors
    error = _refusal(model, data)
    if error is not None and not inputs.is_floating_point():
        floats = TensorDataset(inputs.float(), targets)
        if _refusal(model, floats) is None:
            return floats
    if error is not None:
        raise ValueError(
            f"[model] {name} cannot take an input of shape {list(inputs.shape[1:])} and "
            f"type {inputs.dtype}: {_short(error)}; set its sizes in [model], such as widths = "
            f"[{inputs[0].numel()}, ...] of an mlp"
        ) from error
    return data


def _refusal(model: nn.Module, data: TensorDataset) -> Exception | None:
    inputs, _ = data[:1]
    try:
        with torch.no_grad(), torch.random.fork_rng():
            model.eval()(inputs)
    except Exception as error:
        return error
    return None


def _check_linear(section: ModelSection) -> None:
    """Refuse hidden layers, those of the usual widths included, in what is called linear."""
    widths = section.arguments.get("widths", ())
    if section.name.lower() == "linear" and not (isinstance(widths, list) and len(widths) == 2):
        raise ValueError(
            "[model] linear needs widths = [inputs, outputs]; with layers between them it is "
            f"name = 'mlp', got widths={widths!r}"
        )


def _check_arguments(factory: Callable[..., Any], given: Mapping[str, Any], name: str) -> None:
    try:
        parameters = inspect.signature(factory).parameters
    except (TypeError, ValueError):  # what is written in C need not have a signature
        return
    if any(p.kind is inspect.Parameter.VAR_KEYWORD for p in parameters.values()):
        return
    for key in given:
        check_key(key, parameters, f"[model] {name}")


def _as_tuple(value: Any) -> Any:
    return tuple(_as_tuple(item) for item in value) if isinstance(value, list) else value


def _short(error: Exception) -> str:
    text = str(error).strip().split("\n")[0]
    return f"{type(error).__name__}: {text}" if text else type(error).__name__
