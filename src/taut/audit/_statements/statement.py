"""Statements of every kind: results of training, losses with a claim, runs described by hand."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

from taut._base import validate
from taut._base.rounding import round_up
from taut.accounting import Adjacency, PrivacyLoss, Sampler, samplers_of
from taut.audit._statements.described_run import read_described
from taut.audit._statements.keys import free_words, misspelt, not_checked
from taut.audit._statements.stated import Stated, claimed_delta, claimed_number, read_loss
from taut.errors import UnsoundConfiguration

__all__ = ["read_statement"]

_RESULT = "taut.training-result/"
_LOSS = "taut.privacy-loss/"
_LOSS_KEYS = (
    *("schema", "terms", "epsilon", "delta", "loss", "adjacency", "sampler", "statement"),
    *("sigma", "taut"),  # beside them in what the commands print
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
    wrong += _against_samplers(data.get("sampler"), loss)
    doubts += misspelt(data, _LOSS_KEYS) + free_words(data)
    if loss.adjacency in _ONE_SIDED and asked is not loss.adjacency:
        doubts.append(_one_sided(loss, delta))
    return Stated(
        epsilon=epsilon,
        delta=delta,
        loss=loss,
        records=_records(loss),
        contradictions=tuple(wrong),
        doubts=tuple(doubts),
        notes=not_checked(data, _LOSS_KEYS),
    )


def _against_samplers(claimed: Any, loss: PrivacyLoss) -> list[str]:
    """Return how a sampler, as the command or a person writes it, differs from that of a loss."""
    drawn = samplers_of(loss)
    name = claimed.get("name") if isinstance(claimed, Mapping) else claimed
    if name is None or not drawn or _is_one_of(str(name), drawn, loss):
        return []
    return [f"sampler mismatch: it says {name!r}, its loss is for {' and '.join(drawn)} batches"]


def _is_one_of(name: str, drawn: Sequence[Sampler], loss: PrivacyLoss) -> bool:
    releases = [str(release) for release, _ in loss.terms]
    kinds = [release.kind for release, _ in loss.terms]
    if name in (" and ".join(drawn), ", ".join(releases), *kinds):
        return True
    try:
        return (Sampler(name),) == tuple(drawn)
    except ValueError:
        return False


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


def _records(loss: PrivacyLoss) -> int | None:
    """Return the least population that batches of fixed size are drawn from, if there are any."""
    sizes = [getattr(release, "population", None) for release, _ in loss.terms]
    return min((size for size in sizes if size is not None), default=None)
