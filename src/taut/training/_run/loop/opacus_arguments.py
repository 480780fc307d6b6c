"""Arguments of Opacus' methods that are settled or said otherwise here, each with its answer."""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import Any, Never, TypedDict

from taut._base import validate
from taut.training._clipping.clipping import Clipping, FlatClip

__all__ = ["OpacusArguments", "clipping_of", "settle"]


class OpacusArguments(TypedDict, total=False):
    """What Opacus takes beside the arguments that both have.

    Values that change nothing are accepted; for all others the message says what to write.
    """

    accountant: object
    alphas: object
    batch_first: bool
    clipbound_learning_rate: float
    epsilon_tolerance: float
    grad_sample_mode: str
    max_clipbound: float
    min_clipbound: float
    secure_mode: bool
    target_unclipped_quantile: float
    unclipped_num_std: float


_ACCOUNTING = (
    "there is no accountant to choose: get_epsilon is the tightest bound that is certain, and "
    "noise for a promise is the least for it"
)
_ANSWERS: dict[str, tuple[tuple[object, ...], str]] = {
    "accountant": ((), _ACCOUNTING),
    "alphas": ((), _ACCOUNTING),
    "batch_first": (
        (True,),
        "the first dimension of a batch is that of its examples; transpose inside of the module, "
        "whose layers may well have batch_first=False",
    ),
    "epsilon_tolerance": ((), _ACCOUNTING),
    "grad_sample_mode": (
        ("hooks", "functorch", "ew"),
        "norms are found without writing gradients out wherever that is possible, ghost clipping "
        "included; the loss of the loop stays as it is, and three values are returned",
    ),
    "secure_mode": (
        (True,),
        "noise and choices come from a secure generator; to repeat an experiment give "
        "noise_generator=SeededForExperiments(seed=0)",
    ),
}
"""By argument: the values that change nothing here, and the answer to all others."""

_ADAPTIVE = {
    "target_unclipped_quantile": "quantile",
    "clipbound_learning_rate": "learning_rate",
    "unclipped_num_std": "count_noise",
}


def settle(arguments: OpacusArguments, clipping: object, norm: object) -> None:
    """Accept arguments that change nothing, and answer the others.

    Args:
        arguments: what was given beside the arguments of the signature.
        clipping: the argument of this name.
        norm: `max_grad_norm`.

    Raises:
        TypeError: for a name that Opacus does not know either.
        ValueError: for an argument that would change something; says what to write here.
    """
    given = dict(arguments)
    for name in given:
        if name not in OpacusArguments.__annotations__:
            raise TypeError(f"make_private has no argument {name!r}")
    if clipping == "adaptive" or not set(given) <= set(_ANSWERS):
        _refuse_adaptive(given, norm)
    for name, value in given.items():
        settled, answer = _ANSWERS[name]
        if value not in settled:
            raise ValueError(f"leave {name} out, got {name}={value!r}: {answer}")


def clipping_of(clipping: Clipping | str | None, norm: float | None) -> Clipping:
    """Return the clipping that `clipping` and `max_grad_norm` stand for together.

    Raises:
        ValueError: if they contradict each other; says what to write for a clipping of Opacus.
    """
    if clipping == "per_layer" or isinstance(norm, Sequence):
        _refuse_per_layer(norm)
    if isinstance(clipping, str) and clipping != "flat":
        raise ValueError(
            f"clipping must be 'flat' or a Clipping, got clipping={clipping!r}; clip whole "
            "gradients with clipping='flat' and max_grad_norm, or give a Clipping such as "
            "FlatClip(1.0)"
        )
    chosen = None if isinstance(clipping, str) else clipping
    if (chosen is None) == (norm is None):
        raise ValueError(
            f"give either max_grad_norm or clipping, got max_grad_norm={norm!r} and "
            f"clipping={clipping!r}"
        )
    return FlatClip(validate.positive(max_grad_norm=norm)) if chosen is None else chosen


def _refuse_adaptive(given: dict[str, Any], norm: object) -> Never:
    """Write what Opacus calls adaptive clipping as it is written here."""
    arguments = [repr(norm)]
    arguments += [f"{ours}={given[name]!r}" for name, ours in _ADAPTIVE.items() if name in given]
    if "min_clipbound" in given and "max_clipbound" in given:
        arguments.append(f"bounds=({given['min_clipbound']!r}, {given['max_clipbound']!r})")
    raise ValueError(
        "clipping='adaptive' and its arguments are a Clipping here; leave them and max_grad_norm "
        f"out, and give clipping=QuantileClip({', '.join(arguments)})"
    )


def _refuse_per_layer(norm: object) -> Never:
    """Write bounds of layers, or of single parameters, as they are written here."""
    if isinstance(norm, Sequence):
        names = "{name: name for name, p in module.named_parameters() if p.requires_grad}"
        length = math.hypot(*norm)
        raise ValueError(
            f"max_grad_norm must be one number, got max_grad_norm={norm!r}, a bound for every "
            f"parameter; leave it out, and give clipping=GroupClip(bounds={list(norm)!r}, "
            f"groups={names}), or clipping=GroupClip({length!r}) for one bound per layer"
        )
    raise ValueError(
        "clipping='per_layer' is a Clipping here; leave max_grad_norm out, and give "
        f"clipping=GroupClip({norm!r}), which bounds every layer by an equal share of it"
    )
