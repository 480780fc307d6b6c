"""Statements that taut wrote itself: results of training, and losses with a claim."""

from __future__ import annotations

import json
import math
import re
from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING, Any

from taut import _validate
from taut._rounding import round_up
from taut.accounting import PrivacyLoss, gaussian
from taut.audit._described_runs import read_described
from taut.audit._stated import Stated, claimed_delta, claimed_number
from taut.audit._statement_words import disagreements, epsilons_in_words

if TYPE_CHECKING:
    from taut.training import Plan

__all__ = ["read_statement"]

_RESULT = "taut.training-result/"
_LOSS = "taut.privacy-loss/"
_LOSS_KEYS = (
    *("schema", "terms", "epsilon", "delta", "loss", "adjacency", "sampler", "statement"),
    *("sigma", "taut"),  # beside them in what the commands print
)
_RUN_KEYS = ("noise_multiplier", "rate", "batch_size", "examples", "steps", "epochs", "mechanism")
_RESULT_KEYS = (
    *("schema", "steps", "counted_steps", "stopped_at_budget", "epsilon", "delta", "adjacency"),
    *("sampler", "is_secure", "statement", "plan", "loss", "mixing"),
    *("versions", "finished", "title", "owner", "dataset"),  # on record, no part of the claim
    *("held_out", "directory"),  # beside them in what the commands print
)
_UNBOUNDED = 1e12  # an epsilon that every plan keeps


def read_statement(data: Mapping[str, Any]) -> Stated:
    """Return what a statement claims, of whichever kind it is.

    Raises:
        ValueError: if it is malformed, or of no known kind.
    """
    schema = str(data.get("schema", ""))
    try:
        if schema.startswith(_RESULT):
            return _of_result(data)
        if schema.startswith(_LOSS):
            return _of_loss(data, data)
        if schema:
            raise ValueError(
                f"schema {schema!r} is no statement; there are {_RESULT}1 and {_LOSS}1"
            )
        if "loss" in data:
            return _of_loss(data, data["loss"])
        return read_described(data)
    except _validate.WrongType as error:
        raise ValueError(f"malformed statement: {str(error).split('; convert')[0]}") from None
    except KeyError as error:
        raise ValueError(f"malformed statement: it has no {error.args[0]!r}") from None
    except (TypeError, AttributeError, ArithmeticError) as error:
        raise ValueError(f"malformed statement: {error}") from None


def _of_loss(data: Mapping[str, Any], described: Any) -> Stated:
    """Return the claim about a loss that is given as JSON."""
    for key in _RUN_KEYS:
        if key in data:
            raise ValueError(
                f"the statement has both a loss and {key!r}: readers may take either; leave one out"
            )
    loss = PrivacyLoss.from_dict(described)
    epsilon, delta = claimed_number(data, "epsilon"), claimed_delta(data)
    words = str(data.get("statement", ""))
    drawn = _samplers(loss)
    numbers: dict[str, float | str] = {"epsilon": epsilon, "delta": delta}
    if drawn:
        numbers["sampler"] = " and ".join(drawn)
    wrong = disagreements(words, numbers)
    if data.get("adjacency", str(loss.adjacency)) != str(loss.adjacency):
        wrong.append(f"it claims adjacency {data['adjacency']!r}, its loss is for {loss.adjacency}")
    if "sampler" in data:
        wrong += _against_samplers(data["sampler"], drawn)
    return Stated(
        epsilon=min([epsilon, *epsilons_in_words(words)]),
        delta=delta,
        loss=loss,
        contradictions=tuple(wrong),
        notes=_not_checked(data, _LOSS_KEYS),
    )


def _samplers(loss: PrivacyLoss) -> list[str]:
    """Return how batches are drawn in the releases of a loss, as far as their names tell."""
    kinds = re.findall(r'"kind": "(poisson|fixed_size)', json.dumps(loss.to_dict()))
    return sorted(set(kinds))


def _against_samplers(claimed: Any, drawn: list[str]) -> list[str]:
    """Return how a sampler, as the command or a person writes it, differs from that of a loss."""
    name = str(claimed.get("name") if isinstance(claimed, Mapping) else claimed)
    word = name.lower().replace("-", "_")
    is_other = word in ("poisson", "fixed_size", "none") or "shuffl" in word
    if not drawn or word in drawn or not is_other:
        return []
    return [f"sampler mismatch: it says {name!r}, its loss is for {' and '.join(drawn)} batches"]


def _not_checked(data: Mapping[str, Any], known: Sequence[str]) -> tuple[str, ...]:
    others = [repr(key) for key in data if key not in known]
    return (f"not checked: {', '.join(others)}",) if others else ()


def _of_result(data: Mapping[str, Any]) -> Stated:
    """Return the claim of a `TrainingResult` by its own numbers, which reading it would replace."""
    from taut.training import Plan

    if data["schema"] != f"{_RESULT}1":
        raise ValueError(f"this version knows {_RESULT}1, got {data['schema']!r}")
    # What the plan promised is compared below; a plan that broke its promise must not stop us.
    plan = Plan.from_dict({**data["plan"], "epsilon": _UNBOUNDED})
    counted = _validate.integer(counted_steps=data["counted_steps"])
    epsilon, delta = claimed_number(data, "epsilon"), claimed_delta(data)
    words = str(data["statement"])
    if plan.mixing is not None:  # what mixing is compared with has epsilons of its own
        words = words.replace("; ".join(plan.mixing_notes(counted)), "")
    wrong = _against_plan(data, plan, counted)
    lower = _validate.non_negative(lower=data["epsilon"]["lower"])
    numbers: dict[str, float | str] = {
        "epsilon": epsilon,
        "lower": lower,
        "delta": delta,
        "counted_steps": counted,
        "batch_size": plan.batch_size,
        "examples": plan.examples,
        "noise_multiplier": plan.noise_multiplier,
        "sampler": plan.sampling.name,
        "adjacency": str(plan.adjacency),
        "clipping": repr(plan.clipping),
        "steps": _validate.integer(steps=data["steps"]),
        "planned_steps": plan.steps,
    }
    wrong += disagreements(words, numbers)
    if not epsilons_in_words(words):
        wrong.append("its words name no epsilon")
    stated, planned = PrivacyLoss.from_dict(data["loss"]), plan.loss_at(counted)
    loss = stated
    notes: tuple[str, ...] = ()
    if stated != planned:
        if _is_cheaper(stated, planned, delta):
            loss = planned
            wrong.append(f"its loss is not that of its plan after {counted} steps, but cheaper")
        else:
            notes = ("its loss counts more than the steps of its plan",)
    if lower > loss.epsilon(delta) * (1 + 1e-9):
        wrong.append(f"its lower bound {lower!r} is above what the run costs")
    return Stated(
        epsilon=min([epsilon, *epsilons_in_words(words)]),
        delta=delta,
        loss=loss,
        sampler=plan.sampling.name,
        contradictions=tuple(wrong),
        doubts=tuple(_doubts(data, words)),
        notes=(*notes, *_if_shuffled(data, plan, counted), *_not_checked(data, _RESULT_KEYS)),
    )


def _against_plan(data: Mapping[str, Any], plan: Plan, counted: int) -> list[str]:
    """Return where a result disagrees with its own plan."""
    wrong = [
        f"it says {name} {said!r}, its plan {planned!r}"
        for name, said, planned in (
            ("delta", data["delta"], plan.delta),
            ("adjacency", data["adjacency"], str(plan.adjacency)),
            ("sampler", data["sampler"], plan.sampling.name),
        )
        if said != planned
    ]
    if _validate.integer(steps=data["steps"]) > counted:
        wrong.append(f"the model had {data['steps']} updates, of which {counted} were counted")
    if data["steps"] > plan.steps:
        wrong.append(f"the model had {data['steps']} updates, its plan has {plan.steps}")
    promised = _validate.non_negative(epsilon=data["plan"]["epsilon"])
    least = plan.loss.epsilon_bounds(plan.delta).lower
    if promised < least:
        wrong.append(f"its plan promises epsilon {promised!r}, which its steps exceed: {least!r}")
    return wrong


def _if_shuffled(data: Mapping[str, Any], plan: Plan, counted: int) -> list[str]:
    """Return what batches would cost that are said to be shuffled, where Poisson ones were paid."""
    if data["sampler"] not in ("shuffle", "shuffled") or plan.sampling.name != "poisson":
        return []
    epochs = -(-counted // max(math.floor(1 / plan.rate), 1))
    needed = (epochs * gaussian(plan.noise_multiplier, adjacency="zero_out")).epsilon(plan.delta)
    return [
        "sampler mismatch: the claim was computed for Poisson batches; shuffled ones need "
        f"{round_up(needed, 4)} under zero_out"
    ]


def _is_cheaper(stated: PrivacyLoss, planned: PrivacyLoss, delta: float) -> bool:
    if stated.adjacency is not planned.adjacency:
        return True
    return stated.epsilon(delta) < planned.epsilon_bounds(delta).lower


def _doubts(data: Mapping[str, Any], words: str) -> list[str]:
    if not isinstance(data["is_secure"], bool):
        raise ValueError(f"is_secure must be true or false, got {data['is_secure']!r}")
    if not data["is_secure"]:
        return ["its noise came from a seed: an experiment, not a promise"]
    if "came from a seed" in words:
        return ["its words say that the noise came from a seed"]
    return []
