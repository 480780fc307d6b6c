"""Statements of training results, whose numbers, words, plan and loss must all agree."""

from __future__ import annotations

import math
import re
from collections.abc import Mapping
from dataclasses import asdict
from pathlib import Path
from typing import Any

import numpy as np

from taut._base import validate
from taut._base.rounding import round_up
from taut.accounting import PrivacyLoss, gaussian
from taut.audit._statements.keys import misspelt, not_checked, odd_versions, unknown
from taut.audit._statements.stated_claim import (
    Stated,
    beside_bounds,
    claimed_delta,
    claimed_number,
    read_loss,
)
from taut.noise.geometry import Provenance, Subspaces
from taut.training import Plan, TrainingWords

__all__ = ["read_result"]

_SCHEMA = "taut.training-result/1"
# Words of whoever answers for the run, and what the commands print beside them.
_FREE = ("title", "owner", "dataset", "held_out", "directory")
_HASH = re.compile(r"[0-9a-f]{64}", re.ASCII)
_MOMENT = re.compile(r"\d{4}-\d\d-\d\d(T\d\d:\d\d:\d\dZ)?", re.ASCII)
_KEYS = (
    *("schema", "steps", "counted_steps", "stopped_at_budget", "epsilon", "delta", "adjacency"),
    *("sampler", "is_secure", "unchecked_isolation", "statement", "plan", "loss", "mixing"),
    *("versions", "finished", "changed_data", "ledger_hash"),
    *_FREE,
)
_PLAN_KEYS = (
    *("schema", "examples", "batch_size", "rate", "steps", "epsilon", "delta", "noise_multiplier"),
    *("max_noise_multiplier", "clipping", "sampling", "adjacency", "mixing"),
    *("noise_schedule", "rate_schedule", "unit", "noise"),
)
_SUBSPACE_KEYS = ("ranks", "columns", "basis", "singular_values", "provenance")
_MOST_BLOCKS = 64  # of a clipping in subspaces: nobody splits a gradient further
_ARITHMETIC = 1e-3  # relative: comparisons with other noise are computed to this tolerance


def read_result(data: Mapping[str, Any], subspaces: Path | None) -> Stated:
    """Return the claim of a `TrainingResult` by its own numbers, which reading it would replace.

    Files that the statement names are not opened: they may be anything, on any machine. If the
    clipping is in one, what depends on it stays unchecked unless the reader has the file.
    """
    if data["schema"] != _SCHEMA:
        raise ValueError(f"this version knows {_SCHEMA}, got {data['schema']!r}")
    # What the plan promised is compared below; a plan that broke its promise must not stop us.
    plan, file = _plan_of(data["plan"], subspaces)
    for flag in ("is_secure", "stopped_at_budget"):
        if not isinstance(data[flag], bool):
            raise ValueError(f"{flag} must be true or false, got {data[flag]!r}")
    for flag in ("unchecked_isolation", "changed_data"):
        if not isinstance(data.get(flag, False), bool):
            raise ValueError(f"{flag} must be true or false, got {data[flag]!r}")
    if not _HASH.fullmatch(str(data.get("ledger_hash", "0" * 64))):
        found = str(data["ledger_hash"])[:80]
        raise ValueError(f"ledger_hash must be 64 hexadecimal digits, got {found!r}")
    counted = validate.integer(counted_steps=data["counted_steps"])
    epsilon, delta = claimed_number(data, "epsilon"), claimed_delta(data)
    stated, doubts = read_loss(data["loss"])
    loss, wrong, notes = _loss_of(stated, plan, counted, delta)
    wrong = [*_against_plan(data, plan, counted), *_against_words(data, plan, file), *wrong]
    return Stated(
        epsilon=epsilon,
        delta=delta,
        lower=validate.non_negative(lower=data["epsilon"]["lower"]),
        loss=loss,
        sampler=plan.sampling.name,
        records=plan.examples,
        contradictions=tuple(wrong),
        doubts=(*_doubts(data, file), *_of_plan(data, plan), *doubts),
        notes=(*notes, *_if_shuffled(data, plan, counted), *_others(data)),
    )


# --- the plan, without the files it names ---------------------------------------------------------


def _plan_of(data: Any, subspaces: Path | None) -> tuple[Plan, str | None]:
    """Return the plan, and the file that its clipping names if nobody has looked into it."""
    if not isinstance(data, Mapping):
        raise ValueError(f"malformed statement: its plan is {type(data).__name__}, not an object")
    clipping = data.get("clipping")
    if not isinstance(clipping, Mapping) or not isinstance(clipping.get("subspaces"), str):
        if subspaces is not None:
            raise ValueError("the statement names no file of subspaces; leave yours out")
        return Plan.unproven(data), None
    if subspaces is not None:
        known = {**clipping, "subspaces": str(subspaces)}
        return Plan.unproven({**data, "clipping": known}), None
    others = {key: value for key, value in clipping.items() if key != "sha256"}
    standing_in = {**others, "subspaces": _any_subspaces(clipping)}
    return Plan.unproven({**data, "clipping": standing_in}), clipping["subspaces"]


def _any_subspaces(clipping: Mapping[str, Any]) -> dict[str, Any]:
    """Return subspaces for as many bounds as the clipping has; the loss depends on these alone."""
    blocks = len(clipping["bounds"]) if "bounds" in clipping else 2
    if not 1 <= blocks <= _MOST_BLOCKS:
        raise ValueError(f"clipping must have from 1 to {_MOST_BLOCKS} bounds, got {blocks}")
    axes = np.eye(blocks)
    return Subspaces(axes, (1,) * blocks, np.ones(blocks), Provenance.PUBLIC).to_dict()


# --- what must agree ------------------------------------------------------------------------------


def _loss_of(
    stated: PrivacyLoss, plan: Plan, counted: int, delta: float
) -> tuple[PrivacyLoss, list[str], list[str]]:
    """Return the loss to be covered, and what is wrong and what is odd about the stated one."""
    if plan.is_loss_of(stated, counted):
        return stated, [], []
    planned = plan.loss_at(counted)
    if _is_cheaper(stated, planned, delta):
        said = f"its loss is not that of its plan after {counted} steps, but cheaper"
        return planned, [said], []
    if plan.encoder is not None and _is_dearer(stated, planned, delta):
        # Such a run is one release, spent with its first step: no crash makes it cost more.
        return stated, ["its loss is not that of its plan, whose noise was changed"], []
    return stated, [], ["its loss counts more than the steps of its plan"]


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
    if validate.integer(steps=data["steps"]) > counted:
        wrong.append(f"the model had {data['steps']} updates, of which {counted} were counted")
    if data["steps"] > plan.steps:
        wrong.append(f"the model had {data['steps']} updates, its plan has {plan.steps}")
    if plan.epsilon < (least := plan.loss.epsilon_bounds(plan.delta).lower):
        wrong.append(
            f"its plan promises epsilon {plan.epsilon!r}, which its steps exceed: {least!r}"
        )
    return wrong + _against_mixing(data, plan, counted)


def _against_mixing(data: Mapping[str, Any], plan: Plan, counted: int) -> list[str]:
    """Return where the comparison with plain noise is not what the plan gives."""
    said = data.get("mixing")
    if plan.mixing is None:
        return [] if said is None else ["it compares mixing, its plan mixes nothing"]
    true = asdict(plan.mixing.comparison(plan.noise_multiplier, plan.sampling, counted, plan.delta))
    if not isinstance(said, Mapping) or set(said) != set(true):
        return [f"its comparison of mixing must hold {', '.join(true)}"]
    return [
        f"it says {name} {said[name]!r} of mixing, its plan gives {value!r}"
        for name, value in true.items()
        if not _close(said[name], value)
    ]


def _close(said: Any, true: Any) -> bool:
    if isinstance(said, int | float) and isinstance(true, int | float):
        return math.isclose(said, true, rel_tol=_ARITHMETIC)
    return bool(said == true)


def _against_words(data: Mapping[str, Any], plan: Plan, file: str | None) -> list[str]:
    """Return where the words are not those that the numbers beside them give."""
    said = data["statement"]
    if not isinstance(said, str):
        return ["its statement is no text"]
    unread = {} if file is None else {"clipping": None}
    words = TrainingWords.of(
        plan,
        data["counted_steps"],
        sampler=str(data["sampler"]),
        lower=validate.non_negative(lower=data["epsilon"]["lower"]),
        upper=claimed_number(data, "epsilon"),
        loss=PrivacyLoss.from_dict(data["loss"]),
        delta=claimed_delta(data),
        adjacency=str(data["adjacency"]),
        stopped=(data["steps"], plan.steps) if data["stopped_at_budget"] else None,
        is_secure=data["is_secure"],
        unchecked_isolation=data.get("unchecked_isolation", False),
        changed_data=data.get("changed_data", False),
        ledger_hash=data.get("ledger_hash"),
        **unread,
    )
    return words.differences(said)


def _is_cheaper(stated: PrivacyLoss, planned: PrivacyLoss, delta: float) -> bool:
    if stated.adjacency is not planned.adjacency:
        return True
    return stated.epsilon(delta) < planned.epsilon_bounds(delta).lower


def _is_dearer(stated: PrivacyLoss, planned: PrivacyLoss, delta: float) -> bool:
    upper = planned.epsilon_bounds(delta).upper
    return stated.epsilon_bounds(delta).lower > upper * (1 + _ARITHMETIC)


# --- what stays open ------------------------------------------------------------------------------


def _doubts(data: Mapping[str, Any], file: str | None) -> list[str]:
    found = []
    if not data["is_secure"]:
        found.append("its noise came from a seed: an experiment, not a promise")
    if data.get("unchecked_isolation", False):
        found.append("that no example gets into the gradient of another was not tested")
    if file is not None:
        found.append(
            f"not checked: the subspaces of its clipping, and its words about them, are in a file "
            f"that it calls {file[:200]!r}; no file that a statement names is opened. If you have "
            "it, name it yourself: --subspaces FILE, or verify_statement(..., subspaces=...)"
        )
    odd = beside_bounds(data) + unknown(data["plan"], _PLAN_KEYS, "its plan")
    spaces = data["plan"]["clipping"].get("subspaces")
    odd += unknown(spaces, _SUBSPACE_KEYS, "its basis")
    return found + odd + misspelt(data, _KEYS)


def _of_plan(data: Mapping[str, Any], plan: Plan) -> list[str]:
    """Return a doubt about a promise of the plan that no bound shows to be false, nor to be kept.

    Sums that have no lower bound would let any promise pass.
    """
    promised, bounds = data["plan"]["epsilon"], plan.loss.epsilon_bounds(plan.delta)
    if not bounds.lower <= promised < bounds.upper * (1 - _ARITHMETIC):
        return []
    return [f"its plan promises epsilon {promised!r}; {round_up(bounds.upper, 6)} can be certified"]


def _others(data: Mapping[str, Any]) -> tuple[str, ...]:
    """Return notes on what is on record beside the claim: free text, which may say anything."""
    free = [repr(key) for key in _FREE if data.get(key) is not None]
    if "versions" in data and odd_versions(data["versions"]):
        free.append("'versions'")
    if "finished" in data and not _MOMENT.fullmatch(str(data["finished"])):
        free.append("'finished'")
    said = (f"on record, not checked, and no part of the claim: {', '.join(free)}",) if free else ()
    return (*said, *not_checked(data, _KEYS))


def _if_shuffled(data: Mapping[str, Any], plan: Plan, counted: int) -> list[str]:
    """Return what batches would cost that are said to be shuffled, where Poisson ones were paid."""
    if data["sampler"] not in ("shuffle", "shuffled") or plan.sampling.name != "poisson":
        return []
    if plan.is_scheduled:
        return ["sampler mismatch: the claim was computed for Poisson batches, not shuffled ones"]
    epochs = -(-counted // max(math.floor(1 / plan.rate), 1))
    needed = (epochs * gaussian(plan.noise_multiplier, adjacency="zero_out")).epsilon(plan.delta)
    return [
        "sampler mismatch: the claim was computed for Poisson batches; shuffled ones need "
        f"{round_up(needed, 4)} under zero_out"
    ]
