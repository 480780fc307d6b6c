"""Noise that is correlated over the steps of a plan: which encoders, and what they go with."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import fields
from typing import TYPE_CHECKING, Any

from taut._base import validate
from taut.errors import UnsoundConfiguration
from taut.matrix import (
    BufferedEncoder,
    Encoder,
    InverseToeplitzEncoder,
    ToeplitzEncoder,
    TreeEncoder,
    Workload,
    banded_inverse,
    banded_toeplitz,
    buffered,
    errors,
    sensitivity,
)
from taut.training._clipping.refreshed import RefreshedClipping
from taut.training._sampling.fixed_order import FixedOrderSampling
from taut.training._sampling.keyed import KeyedSampling
from taut.training._sampling.sampling import Sampling

if TYPE_CHECKING:
    from taut.training._plan.owners import Owners
    from taut.training._plan.planned_steps import PlannedSteps

__all__ = [
    "check_correlated",
    "encoder_from_dict",
    "encoder_of",
    "encoder_to_dict",
    "is_independent",
    "last_error",
    "refuse_owners",
    "step_error",
]

_KINDS: dict[str, type[Encoder]] = {
    "toeplitz": ToeplitzEncoder,
    "inverse_toeplitz": InverseToeplitzEncoder,
    "buffered": BufferedEncoder,
    "tree": TreeEncoder,
}
_BANDS, _INVERSE_BANDS, _BUFFERS = 16, 4, 4  # kept arrays: what a name alone asks for
_FORGETS = 1e-12  # share of earlier steps in a sum of one: below what arithmetic does to that
_NAMES = ("banded", "blt", "inverse", "tree", "best")


def is_independent(noise: object) -> bool:
    """Return whether an argument asks for noise that is not correlated over steps."""
    return noise is None or (isinstance(noise, str) and noise == "independent")


def encoder_of(noise: object, steps: int, sampling: Sampling) -> Encoder | None:
    """Return the encoder that an argument asks for, None for independent noise.

    Args:
        noise: an encoder of as many steps; or a name; or None.
        steps: number of steps of the plan.
        sampling: sampling of the plan, which decides how often an example takes part.
    """
    if is_independent(noise):
        return None
    if isinstance(noise, Encoder):
        if type(noise) not in _KINDS.values():
            raise ValueError(
                f"noise={type(noise).__name__} takes a written-out matrix, which a plan does not "
                "hold; use banded_toeplitz, buffered, banded_inverse or TreeEncoder"
            )
        if noise.steps != steps:
            raise ValueError(f"noise is for {noise.steps} steps, the plan has {steps}")
        return noise
    if not isinstance(noise, str):
        raise validate.WrongType(f"noise must be an Encoder or a name, got noise={noise!r}")
    if noise not in _NAMES:
        raise ValueError(
            f"noise must be an Encoder, 'independent' or one of {', '.join(_NAMES)}, got {noise!r}"
        )
    if noise == "tree":
        return TreeEncoder(steps)
    if isinstance(sampling, KeyedSampling):
        if noise != "banded":
            raise UnsoundConfiguration(
                f"noise={noise!r} reaches over more steps than sampling={sampling.name!r} keeps "
                "apart; use noise='banded' or an encoder with few bands, or sampling='fixed_order'"
            )
        return banded_toeplitz(Workload(steps), bands=min(sampling.most_bands, steps))
    if not isinstance(sampling, FixedOrderSampling):
        sampling.correlated_loss(TreeEncoder(steps), 1.0)  # says what is missing
        raise ValueError(f"noise={noise!r} is made for sampling='fixed_order'; give an encoder")
    sums, order = Workload(steps), sampling.order
    if noise == "banded":
        bands = min(_BANDS, order.separation, steps)
        return banded_toeplitz(sums, bands=bands, participation=order)
    if noise == "blt":
        return buffered(sums, buffers=_BUFFERS, participation=order)
    return banded_inverse(sums, bands=min(_INVERSE_BANDS, steps), participation=order)


def last_error(encoder: Encoder) -> float:
    """Return the deviation of the noise on the sum of all steps, for rows of unit variance."""
    found = errors(encoder, Workload(encoder.steps)).per_step[-1]
    return float(found) / sensitivity(encoder).value


def step_error(encoder: Encoder) -> float:
    """Return the deviation of the noise of a step, for rows of unit variance: its mean square."""
    single = Workload(encoder.steps, weight_decay=1 - _FORGETS)
    return errors(encoder, single).root_mean_square / sensitivity(encoder).value


def check_correlated(steps: PlannedSteps) -> None:
    """Refuse what correlated noise has no theorem for.

    Raises:
        UnsoundConfiguration: with the way out.
    """
    if steps.encoder is None:
        return
    refuse_owners(steps.unit)
    clipping, plain = steps.clipping, "use FlatClip or GroupClip, or leave noise= out"
    if steps.mixing is not None:
        raise UnsoundConfiguration(
            "mixing hides single steps, and correlated noise hides the run as a whole; leave one "
            "of them out"
        )
    if steps.noise_schedule is not None or steps.rate_schedule is not None:
        raise UnsoundConfiguration(
            "correlated noise has one deviation and one batch size for all steps; leave schedules "
            "or noise= out"
        )
    if isinstance(clipping, RefreshedClipping) or clipping.follows_weights:
        raise UnsoundConfiguration(
            f"clipping={clipping!r} changes its coordinates during the run, and noise of earlier "
            f"steps would be taken back in others; {plain}"
        )
    if clipping.releases_more:
        raise UnsoundConfiguration(
            f"clipping={clipping!r} moves its bound, and with it the noise; {plain}"
        )
    steps.sampling.correlated_loss(steps.encoder, 1.0)


def refuse_owners(unit: Owners | None) -> None:
    """Refuse a plan about owners.

    Raises:
        UnsoundConfiguration: with the way out.
    """
    if unit is not None:
        raise UnsoundConfiguration(
            "correlated noise is for plans about examples, and this one is about owners; leave "
            "unit= or noise= out"
        )


def encoder_to_dict(encoder: Encoder) -> dict[str, Any]:
    """Return a JSON-ready description."""
    (kind,) = (name for name, known in _KINDS.items() if type(encoder) is known)
    values = {f.name: getattr(encoder, f.name) for f in fields(encoder)}  # type: ignore[arg-type]
    return {"kind": kind, **{n: list(v) if isinstance(v, tuple) else v for n, v in values.items()}}


def encoder_from_dict(data: Mapping[str, Any], steps: int) -> Encoder:
    """Return the encoder that `data` describes, of so many steps.

    Raises:
        ValueError: if it is malformed, or for another number of steps.
    """
    values = dict(data)
    kind = _KINDS.get(str(values.pop("kind", None)))
    if kind is None:
        raise ValueError(f"an encoder in JSON has a kind out of {', '.join(_KINDS)}")
    found = kind(**values)
    if found.steps != steps:
        raise ValueError(f"the encoder is for {found.steps} steps, the plan has {steps}")
    return found
