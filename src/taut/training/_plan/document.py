"""Plans as JSON: what is written, and what is believed of what was read.

A plan whose noise or rate changes has a schema of its own, and so has one for owners: a reader that
knows nothing of schedules or owners must not take it for one without.
"""

from __future__ import annotations

import math
from collections.abc import Mapping
from typing import TYPE_CHECKING, Any

from taut._base import validate
from taut.errors import UnsoundConfiguration
from taut.matrix import Encoder
from taut.training._clipping.clipping import Clipping
from taut.training._plan.correlation import encoder_from_dict, encoder_to_dict
from taut.training._plan.mixing import mixing_of
from taut.training._plan.owners import Owners
from taut.training._plan.schedule import Schedule
from taut.training._sampling.sampling import Sampling, positive_rate

if TYPE_CHECKING:
    from taut.training._plan.plan import Plan

__all__ = ["alike", "fields_of", "written"]

_CONSTANT = "taut.training-plan/1"
_SCHEDULED = "taut.training-plan/2"
_OWNED = "taut.training-plan/3"
_CORRELATED = "taut.training-plan/4"
_SCHEDULES = ("noise_schedule", "rate_schedule")
_OPTIMISED = 1e-6  # relative: by which what an optimiser finds may differ between two machines
_ROUNDING = 1e-9  # relative: what arithmetic does to a rate or a batch size


def alike(one: Any, other: Any) -> bool:
    """Return whether two descriptions are the same but for the rounding of their numbers."""
    if isinstance(one, dict) and isinstance(other, dict):
        return one.keys() == other.keys() and all(alike(one[key], other[key]) for key in one)
    if isinstance(one, list) and isinstance(other, list):
        return len(one) == len(other) and all(map(alike, one, other))
    if isinstance(one, float) and isinstance(other, float):
        return math.isclose(one, other, rel_tol=_OPTIMISED)
    return bool(one == other)


def written(plan: Plan) -> dict[str, Any]:
    """Return a JSON-ready description of a plan."""
    schedules = {
        name: schedule.to_list()
        for name in _SCHEDULES
        if (schedule := getattr(plan, name)) is not None
    }
    return {
        "schema": _schema(plan, bool(schedules)),
        "examples": plan.examples,
        **({} if plan.unit is None else {"unit": plan.unit.to_dict()}),
        "batch_size": plan.batch_size,
        "rate": plan.rate,
        "steps": plan.steps,
        "epsilon": plan.epsilon,
        "delta": plan.delta,
        "noise_multiplier": plan.noise_multiplier,
        "max_noise_multiplier": plan.max_noise_multiplier,
        "clipping": plan.clipping.to_dict(),
        "sampling": plan.sampling.to_dict(),
        "adjacency": str(plan.adjacency),
        **schedules,
        **({} if plan.encoder is None else {"noise": encoder_to_dict(plan.encoder)}),
        **({} if plan.mixing is None else {"mixing": plan.mixing.to_dict()}),
    }


def _schema(plan: Plan, is_scheduled: bool) -> str:
    if plan.encoder is not None:
        return _CORRELATED
    if plan.unit is not None:
        return _OWNED
    return _SCHEDULED if is_scheduled else _CONSTANT


def fields_of(data: Mapping[str, Any]) -> dict[str, Any]:
    """Return the fields of the plan that `data` describes, without solving for any.

    Raises:
        ValueError: if the schema or a field is unknown, missing or malformed.
        UnsoundConfiguration: if the relation is not that of the sampling.
    """
    schema = data.get("schema") if isinstance(data, Mapping) else type(data).__name__
    if schema not in (_CONSTANT, _SCHEDULED, _OWNED, _CORRELATED):
        raise ValueError(f"not a training plan: expected schema {_CONSTANT!r}, got {schema!r}")
    if (schema == _OWNED) != ("unit" in data):
        raise ValueError(f"unit belongs to plans of schema {_OWNED!r} alone, got {schema!r}")
    try:
        return _fields(data)
    except (KeyError, TypeError) as error:
        raise ValueError(f"malformed training plan: {error!r}") from None


def _fields(data: Mapping[str, Any]) -> dict[str, Any]:
    examples, steps = (
        validate.positive_integer(**{name: data[name]}) for name in ("examples", "steps")
    )
    noises, rates = (_schedule(data, name, steps) for name in _SCHEDULES)
    if noises is not None and noises.least != 1.0:
        raise ValueError(f"noise_schedule must have the least value 1, got {noises.least!r}")
    rate = positive_rate(rate=data["rate"])
    sampling = Sampling.from_dict(data["sampling"])
    if data["adjacency"] != sampling.adjacency:
        raise UnsoundConfiguration(
            f"adjacency={data['adjacency']!r} does not belong to sampling {sampling.name!r}"
        )
    size = validate.positive(batch_size=data["batch_size"])
    _check_sizes(size, rate, examples, sampling, rates)
    return {
        "examples": examples,
        "batch_size": size,
        "rate": rate,
        "steps": steps,
        "epochs": steps * rate,
        "epsilon": validate.non_negative(epsilon=data["epsilon"]),
        "delta": validate.below_one(delta=data["delta"]),
        "noise_multiplier": validate.positive(noise_multiplier=data["noise_multiplier"]),
        "clipping": Clipping.from_dict(data["clipping"]).fitted(size),
        "sampling": sampling,
        "mixing": mixing_of(data),
        "max_noise_multiplier": validate.positive(limit=data["max_noise_multiplier"]),
        "noise_schedule": noises,
        "rate_schedule": rates,
        "unit": Owners.from_dict(data["unit"], examples) if "unit" in data else None,
        "encoder": _encoder(data, steps),
    }


def _encoder(data: Mapping[str, Any], steps: int) -> Encoder | None:
    if (data["schema"] == _CORRELATED) != ("noise" in data):
        raise ValueError(f"noise belongs to plans of schema {_CORRELATED!r}, and to no others")
    return encoder_from_dict(data["noise"], steps) if "noise" in data else None


def _schedule(data: Mapping[str, Any], name: str, steps: int) -> Schedule | None:
    """Return a schedule of the plan, None where there is none."""
    if name not in data:
        return None
    if data["schema"] == _CONSTANT:
        raise ValueError(f"{name} belongs to plans of schema {_SCHEDULED!r}, not {_CONSTANT!r}")
    found = Schedule.of(data[name], name)
    found.check_steps(steps, name)
    return found


def _check_sizes(
    size: float, rate: float, examples: int, sampling: Sampling, rates: Schedule | None
) -> None:
    if rates is None:
        expected = [rate * examples, sampling.expected_batch_size(examples)]
    else:
        positive_rate(rate_schedule=rates.most)
        if sampling.is_fitted:
            raise ValueError(f"sampling={sampling!r} has one batch size, the rate_schedule others")
        expected = [rate * examples, rates.mean * examples]
    for one in expected:
        if not math.isclose(size, one, rel_tol=_ROUNDING):
            raise ValueError(
                f"batch_size={size!r} does not fit rate={rate!r} and sampling={sampling!r}"
            )
