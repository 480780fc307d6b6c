"""``taut verify``: a published statement, recomputed."""

from pathlib import Path
from typing import Annotated

import typer

from taut._rounding import round_down, round_up
from taut.cli._page import NEGATIVE, mistakes_explained, print_json, print_rows
from taut.cli._run_options import JsonOption


def verify(
    statement: Annotated[
        Path, typer.Argument(help="A statement in JSON, or - for stdin.", allow_dash=True)
    ],
    *,
    json: JsonOption = False,
) -> None:
    """Recompute a published privacy statement; exit code 0 if it holds, 1 if it does not.

    The statement is a result.json of taut train, {"epsilon": .., "delta": .., "loss": ..} with a
    loss that PrivacyLoss.to_dict() wrote, or written by hand: {"epsilon": 1.84, "delta": 1e-5,
    "noise_multiplier": 1.0, "rate": 0.01, "steps": 1000, "sampler": "poisson"}, where sampler is
    poisson, fixed_size, shuffle or none, and batch_size and examples may stand for rate.

    Example: taut verify result.json
    """
    with mistakes_explained():
        from taut.audit import verify_statement

        found = verify_statement(_text(statement))
        if json:
            print_json(found.to_dict())
        else:
            print_rows(
                [
                    ("verdict", str(found.verdict)),
                    ("claimed", f"epsilon {found.epsilon!r} at delta {found.delta!r}"),
                    ("recomputed", f"{round_up(found.bounds.upper, 6)} (certified upper bound)"),
                    ("", f"{round_down(found.bounds.lower, 6)} (certified lower bound)"),
                    ("adjacency", str(found.adjacency)),
                    ("sampler", found.sampler or "as in the loss"),
                    *(("" if place else "findings", f) for place, f in enumerate(found.findings)),
                ]
            )
        if not found.holds:
            raise typer.Exit(NEGATIVE)


def _text(path: Path) -> str:
    import sys

    try:
        return sys.stdin.read() if str(path) == "-" else path.read_text(encoding="utf-8")
    except UnicodeDecodeError as error:
        raise ValueError(f"{path} is not a text in UTF-8: {error}") from None
