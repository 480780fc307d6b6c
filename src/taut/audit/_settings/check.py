"""Settings of other tools, checked: which promise they make, and what it lacks."""

from __future__ import annotations

import os
from collections.abc import Callable, Mapping
from dataclasses import replace
from pathlib import Path

from taut._base import validate
from taut.audit._settings.document import HIDDEN, Call, Document, Signature
from taut.audit._settings.file import read_document
from taut.audit._settings.reader import Reader
from taut.audit._settings.result import CheckedSetting, SettingsCheck
from taut.audit._settings.tools.dp_events import DP_EVENTS, check_dp_event
from taut.audit._settings.tools.flower import FLOWER, check_flower
from taut.audit._settings.tools.jax_privacy import JAX_PRIVACY, check_jax_privacy
from taut.audit._settings.tools.nvflare import NVFLARE, check_nvflare
from taut.audit._settings.tools.opacus import OPACUS, check_opacus
from taut.audit._settings.tools.tf_privacy import TF_PRIVACY, check_tf_privacy
from taut.errors import TautError

__all__ = ["check_settings"]

_MOST_SETTINGS = 20  # of one file: each takes up to seconds
_HIDDEN_ARGUMENTS = (
    "all arguments: some are behind a star, and any of them may change the promise; write them down"
)
_Check = Callable[[Reader, Document], CheckedSetting]
_TOOLS: tuple[tuple[tuple[Signature, ...], _Check], ...] = (
    (OPACUS, check_opacus),
    (FLOWER, check_flower),
    (NVFLARE, check_nvflare),
    (JAX_PRIVACY, check_jax_privacy),
    (TF_PRIVACY, check_tf_privacy),
    (DP_EVENTS, check_dp_event),
)
_KNOWN = {signature.name: signature for signatures, _ in _TOOLS for signature in signatures}
_CHECKS = {signature.name: check for signatures, check in _TOOLS for signature in signatures}


def check_settings(
    path: str | os.PathLike[str],
    *,
    delta: float | None = None,
    examples: int | None = None,
    batch_size: int | None = None,
    epochs: float | None = None,
    steps: int | None = None,
    clients: int | None = None,
    rounds: int | None = None,
    parameters: int | None = None,
) -> SettingsCheck:
    """Return what the privacy settings in a file promise, and what is missing from the statement.

    Read are arguments of Opacus (`make_private`, `make_private_with_epsilon`), Flower (strategies
    with differential privacy, `LocalDpMod`), NVFLARE (filters), JAX Privacy (`DPKerasConfig`, its
    events), TensorFlow Privacy (accounting functions, optimizers) and dp-accounting (events): in
    Python, which is parsed and never run, in notebooks, JSON and TOML. Values that a file does not
    hold can be added; they go before those of the file. Noise that a tool finds for a budget is
    what it finds for its own arguments, where the file shows them.

    Args:
        path: the file.
        delta: probability delta of the bounds.
        examples: number of training examples.
        batch_size: number of examples of a batch.
        epochs: passes over the data.
        steps: number of steps, in the place of passes where a tool counts those.
        clients: number of clients of a federation.
        rounds: number of rounds of a federation.
        parameters: number of values of a model, where each one that is sent costs something.

    **Guarantee**: bounds of a `SettingsReading` are certified for the mechanism, sampler and
    adjacency that it names. Nothing in the file is executed, and no other file is opened.

    Raises:
        OSError: if the file cannot be opened.
        ValueError: if it is no text of a known kind, holds no setting that is known, or a setting
            has a value that no run can have.

    Example:
        >>> import pathlib, tempfile
        >>> from taut.audit import check_settings
        >>> path = pathlib.Path(tempfile.mkdtemp()) / "settings.json"
        >>> _ = path.write_text('{"noise_multiplier": 1.0, "max_grad_norm": 1.0, "epochs": 10}')
        >>> found = check_settings(path, delta=1e-5, examples=10_000, batch_size=100)
        >>> round(found.settings[0].readings[0].bounds.upper, 2)
        1.83
    """
    given = {
        name: value
        for name, value in {
            "delta": None if delta is None else validate.below_one(delta=delta),
            "examples": _count(examples=examples),
            "batch_size": _count(batch_size=batch_size),
            "epochs": None if epochs is None else validate.positive(epochs=epochs),
            "steps": _count(steps=steps),
            "clients": _count(clients=clients),
            "rounds": _count(rounds=rounds),
            "parameters": _count(parameters=parameters),
        }.items()
        if value is not None
    }
    return SettingsCheck(_checked(Path(path), given))


def _checked(path: Path, given: Mapping[str, float]) -> tuple[CheckedSetting, ...]:
    document = read_document(path, _KNOWN)
    calls = document.calls
    if not calls:
        raise ValueError(
            f"{path} holds no privacy settings that are known: arguments of Opacus, Flower, "
            "NVFLARE, JAX Privacy or TensorFlow Privacy, or events of dp-accounting. A run that is "
            "described by hand, and a published statement, are for taut verify"
        )
    if len(calls) > _MOST_SETTINGS:
        raise ValueError(f"{path} has {len(calls)} settings, the most is {_MOST_SETTINGS}")
    try:
        return tuple(_setting(call, document, given) for call in calls)
    except validate.WrongType as error:
        raise ValueError(f"{path}: {str(error).split('; convert')[0]}") from None
    except (ValueError, TautError) as error:
        raise ValueError(f"{path}: {error}") from None


def _setting(call: Call, document: Document, given: Mapping[str, float]) -> CheckedSetting:
    """Return what a call promises: nothing, if it may have arguments that are not shown."""
    found = _CHECKS[call.name](Reader(call, document, given), document)
    if HIDDEN not in call.arguments:
        return found
    return replace(
        found,
        readings=tuple(replace(reading, bounds=None) for reading in found.readings),
        missing=(_HIDDEN_ARGUMENTS, *found.missing),
    )


def _count(**argument: int | None) -> int | None:
    ((name, value),) = argument.items()
    return None if value is None else validate.positive_integer(**{name: value})
