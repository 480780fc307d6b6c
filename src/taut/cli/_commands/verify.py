"""``taut verify``: a published statement, recomputed."""

from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from taut.cli._page import NEGATIVE, given_up_after, mistakes_explained, print_json, print_rows
from taut.cli._run_options import JsonOption, TimeoutOption, existing_file

if TYPE_CHECKING:
    from taut.audit import Verification

_MOST_BYTES = 1 << 25  # twice what is read as a statement, so that its own message can say so


_StatementArgument = Annotated[
    Path, typer.Argument(help="A statement in JSON, or - for stdin.", allow_dash=True)
]
_MaxEpsilonOption = Annotated[
    float | None, typer.Option(help="Largest epsilon that may be claimed.")
]
_MaxDeltaOption = Annotated[float | None, typer.Option(help="Largest delta that may be claimed.")]
_AdjacencyOption = Annotated[
    str | None,
    typer.Option(help="The adjacency that must be claimed: add_remove, replace or zero_out."),
]
_SubspacesOption = Annotated[
    Path | None, existing_file("Your copy of the file that a clipping in subspaces names.")
]


def verify(
    statement: _StatementArgument,
    *,
    max_epsilon: _MaxEpsilonOption = None,
    max_delta: _MaxDeltaOption = None,
    adjacency: _AdjacencyOption = None,
    subspaces: _SubspacesOption = None,
    timeout: TimeoutOption = 120.0,
    json: JsonOption = False,
) -> None:
    """Recompute a published privacy statement, and hold it against limits of your own.

    Exit code 0: it holds, and is within --max-epsilon, --max-delta and --adjacency; 1: it does not
    hold, could not be certified, or is beyond a limit; 2: it could not be read.

    The statement is a result.json of taut train, {"epsilon": .., "delta": .., "loss": ..} with a
    loss that PrivacyLoss.to_dict() wrote, or written by hand: {"epsilon": 1.84, "delta": 1e-5,
    "noise_multiplier": 1.0, "rate": 0.01, "steps": 1000, "sampler": "poisson"}, where sampler is
    poisson, truncated_poisson (with cap), allocation, fixed_size, shuffle or none, and batch_size
    and examples may stand for rate. Files that a statement names are not opened.

    Example: taut verify result.json --max-epsilon 3 --max-delta 1e-5 --adjacency add_remove
    """
    with mistakes_explained():
        from taut.audit import verify_statement

        with given_up_after(timeout):
            found = verify_statement(
                _text(statement),
                max_epsilon=max_epsilon,
                max_delta=max_delta,
                adjacency=adjacency,
                subspaces=subspaces,
            )
        if json:
            print_json(found.to_dict())
        else:
            print_rows(_rows(found))
        if not found.passes:
            raise typer.Exit(NEGATIVE)


def _rows(found: "Verification") -> list[tuple[str, str]]:
    lower, upper = found.recomputed
    return [
        ("verdict", f"{found.verdict}{', but refused' if found.refusals else ''}"),
        ("claimed", f"epsilon {found.epsilon!r} at delta {found.delta!r}"),
        ("recomputed", f"{upper} (certified upper bound)"),
        ("", f"{lower} (certified lower bound)"),
        ("adjacency", str(found.adjacency)),
        ("sampler", found.sampler or "as in the loss"),
        *_listed("refused", found.refusals),
        *_listed("findings", found.findings),
        ("not shown", found.not_shown),
    ]


def _listed(word: str, texts: Sequence[str]) -> list[tuple[str, str]]:
    return [("" if place else word, text) for place, text in enumerate(texts)]


def _text(path: Path) -> str:
    import sys

    try:
        if str(path) == "-":
            return sys.stdin.read(_MOST_BYTES)
        with path.open(encoding="utf-8") as file:
            return file.read(_MOST_BYTES)
    except UnicodeDecodeError as error:
        raise ValueError(f"{path} is not a text in UTF-8: {error}") from None
