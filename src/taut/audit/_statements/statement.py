"""Statements of every kind: results of training, losses with a claim, runs described by hand."""

from __future__ import annotations

import math
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from taut._base import validate
from taut._base.rounding import round_up
from taut.accounting import Adjacency, PrivacyLoss
from taut.audit._statements.described_run import read_described
from taut.audit._statements.keys import free_words, misspelt, not_checked, odd_versions
from taut.audit._statements.sampler_of_loss import against_sampler, is_silent, values_of
from taut.audit._statements.stated_claim import (
    Stated,
    beside_bounds,
    claimed_delta,
    claimed_lower,
    claimed_number,
    read_loss,
)
from taut.errors import UnsoundConfiguration

__all__ = ["read_statement"]

_RESULT = "taut.training-result/"
_LOSS = "taut.privacy-loss/"
_LOSS_KEYS = (
    *("schema", "terms", "epsilon", "delta", "loss", "adjacency", "sampler", "statement"),
    *("sigma", "taut", "is_secure"),  # beside them in what the commands print
)
_RUN_KEYS = ("noise_multiplier", "rate", "batch_size", "examples", "steps", "epochs", "mechanism")
_ONE_SIDED = (Adjacency.ADD, Adjacency.REMOVE)


def read_statement(
    data: Mapping[str, Any], *, asked: Adjacency | None = None, subspaces: Path | None = None
) -> Stated:
    """Return what a statement claims, of whichever kind it is.

    Args:
        data: the statement.
        asked: the adjacency that the reader wants, which may be a half of add/remove.
        subspaces: a file of the reader's own; those that a statement names are not opened.

    Raises:
        ValueError: if it is malformed, or of no known kind.
    """
    schema = str(data.get("schema", ""))
    try:
        if schema.startswith(_RESULT):
            from taut.audit._statements.training_result import read_result

            return read_result(data, subspaces)
        if schema.startswith(_LOSS):
            return _of_loss(data, data, asked)
        if schema:
            raise ValueError(
                f"schema {schema!r} is no statement; there are {_RESULT}1 and {_LOSS}1"
            )
        if "loss" in data:
            return _of_loss(data, data["loss"], asked)
        return read_described(data)
    except validate.WrongType as error:
        raise ValueError(f"malformed statement: {str(error).split('; convert')[0]}") from None
    except KeyError as error:
        raise ValueError(f"malformed statement: it has no {error.args[0]!r}") from None
    except (TypeError, AttributeError, ArithmeticError) as error:
        raise ValueError(f"malformed statement: {error}") from None


def _of_loss(data: Mapping[str, Any], described: Any, asked: Adjacency | None) -> Stated:
    """Return the claim about a loss that is given as JSON."""
    for key in _RUN_KEYS:
        if key in data:
            raise ValueError(
                f"the statement has both a loss and {key!r}: readers may take either; leave one out"
            )
    loss, doubts = read_loss(described, beside=tuple(data) if described is data else ())
    epsilon, delta = claimed_number(data, "epsilon"), claimed_delta(data)
    wrong = []
    if data.get("adjacency", str(loss.adjacency)) != str(loss.adjacency):
        wrong.append(f"it claims adjacency {data['adjacency']!r}, its loss is for {loss.adjacency}")
    wrong += against_sampler(data.get("sampler"), loss, described)
    wrong += _against_sigma(data.get("sigma"), described)
    doubts += beside_bounds(data) + misspelt(data, _LOSS_KEYS) + free_words(data)
    if data.get("is_secure", True) is not True:
        doubts.append("its noise came from a seed: an experiment, not a promise")
    if loss.adjacency in _ONE_SIDED and asked is not loss.adjacency:
        doubts.append(_one_sided(loss, delta))
    return Stated(
        epsilon=epsilon,
        delta=delta,
        lower=claimed_lower(data),
        loss=loss,
        records=_records(loss, data.get("sampler")),
        contradictions=tuple(wrong),
        doubts=tuple(doubts),
        notes=_not_checked(data, loss),
    )


def _against_sigma(claimed: Any, described: Any) -> list[str]:
    """Return how noise, as `taut calibrate` writes it, differs from that of a loss."""
    if claimed is None:
        return []
    sigma, known = validate.positive(sigma=claimed), list(values_of(described, "sigma"))
    if any(math.isclose(sigma, each, rel_tol=1e-9) for each in known):
        return []
    return [f"it says sigma {claimed!r}, which its loss does not have"]


def _not_checked(data: Mapping[str, Any], loss: PrivacyLoss) -> tuple[str, ...]:
    known = [key for key in _LOSS_KEYS if key != "taut" or not odd_versions(data.get(key, "0"))]
    said = not_checked(data, known)
    if data.get("sampler") is None or not is_silent(data["sampler"], loss):
        return said
    return (*said, "not checked: 'sampler', as its loss does not say how records were drawn")


def _one_sided(loss: PrivacyLoss, delta: float) -> str:
    """Return why a half of add/remove is no promise, and what the whole one costs."""
    try:
        whole = PrivacyLoss(loss.terms, Adjacency.ADD_REMOVE).epsilon(delta)
        cost = f", which costs {round_up(whole, 4)}"
    except UnsoundConfiguration:
        cost = ""
    return (
        f"adjacency {str(loss.adjacency)!r} is one direction of add_remove{cost}: an attacker may "
        "look in the other; state the claim for add_remove, or ask for adjacency="
        f"{str(loss.adjacency)!r} if you know why one direction is enough"
    )


def _records(loss: PrivacyLoss, sampler: Any) -> int | None:
    """Return the least population that is named by batches of fixed size, or by the sampler."""
    sizes = [getattr(release, "population", None) for release, _ in loss.terms]
    if isinstance(sampler, Mapping):
        sizes.append(sampler.get("examples"))
    return min((size for size in sizes if size is not None), default=None)
