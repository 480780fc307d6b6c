"""The model of a run: one of ours by its name, or what a factory makes."""

from __future__ import annotations

import inspect
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any

import torch
from torch import nn
from torch.utils.data import TensorDataset

from taut.runs._code import allowed_factory, names_code
from taut.runs._sections import ModelSection
from taut.runs._tables import check_key, nearest
from taut.training import models

__all__ = ["make_model"]

_OURS = ("ResNet20", "TanhCNN", "TextTransformer", "WideResNet", "mlp")


def make_model(
    section: ModelSection, code: Path, data: TensorDataset, *, allow_code: str | None
) -> nn.Module:
    """Return a new model that can take the inputs of the data.

    Args:
        section: what the configuration says.
        code: where the module of a factory is looked for.
        allow_code: the module of a factory that may be run.
        data: what it will be trained on; the first input is tried.

    Raises:
        ValueError: if there is no such model, if it does not take these arguments, or not such
            inputs.
    """
    if names_code(section.name):
        factory = allowed_factory(section.name, allow_code, code)
    else:
        factory = _ours(section.name)
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
    inputs, _ = data[:1]
    try:
        with torch.no_grad(), torch.random.fork_rng():
            model.eval()(inputs)
    except Exception as error:
        raise ValueError(
            f"[model] {section.name} cannot take an input of shape {list(inputs.shape[1:])} and "
            f"type {inputs.dtype}: {_short(error)}"
        ) from error
    return model


def _ours(name: str) -> Callable[..., Any]:
    if name not in _OURS:
        raise ValueError(
            f"[model] name must be one of {', '.join(_OURS)}, or 'package.module:factory', "
            f"got {name!r}{nearest(name, _OURS)}"
        )
    found: Callable[..., Any] = getattr(models, name)
    return found


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
