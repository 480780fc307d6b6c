"""How a command answers: a page for people, or JSON; and a message for a mistake."""

from __future__ import annotations

import json
import math
import signal
import sys
from collections.abc import Iterable, Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass

import typer

import taut
from taut._base.json_numbers import json_numbers
from taut._base.rounding import round_down, round_up
from taut.errors import RunInUse, TautError

NEGATIVE = 1
"""Exit code of a command that worked, and whose answer is no."""
MISTAKE = 2
"""Exit code of a command that could not be carried out as it was given."""
IN_USE = 3
"""Exit code if another process trains the same run."""
INTERRUPTED = 130
"""Exit code of a run that was interrupted from the keyboard."""
TERMINATED = 143
"""Exit code of a run that another process asked to end."""


@contextmanager
def mistakes_explained() -> Iterator[None]:
    """Turn what the library refuses into a message on stderr and an exit code."""
    try:
        yield
    except ModuleNotFoundError as error:
        if error.name != "torch":
            raise
        print("Error: this needs PyTorch: pip install 'taut[torch]'", file=sys.stderr)
        raise typer.Exit(MISTAKE) from None
    except OSError as error:
        # "[Errno 2] No such file or directory: 'x'" is not for people.
        is_system = error.strerror is not None and error.filename is not None
        text = f"{error.filename}: {error.strerror}" if is_system else str(error)
        print(f"Error: {text}", file=sys.stderr)
        raise typer.Exit(MISTAKE) from None
    except RecursionError:
        print("Error: the file is nested too deeply", file=sys.stderr)
        raise typer.Exit(MISTAKE) from None
    except (TautError, ValueError, ImportError) as error:
        print(f"Error: {error}", file=sys.stderr)
        raise typer.Exit(IN_USE if isinstance(error, RunInUse) else MISTAKE) from None


@contextmanager
def given_up_after(seconds: float) -> Iterator[None]:
    """End what takes longer, where the system has alarms; elsewhere there is no limit."""
    if not 0 < seconds < float("inf"):
        raise ValueError(f"--timeout must be a number of seconds above 0, got {seconds!r}")
    if not hasattr(signal, "SIGALRM"):
        yield
        return

    def give_up(*_: object) -> None:
        raise ValueError(f"not recomputed within {seconds:g} seconds; allow more with --timeout")

    before = signal.signal(signal.SIGALRM, give_up)
    signal.setitimer(signal.ITIMER_REAL, seconds)
    try:
        yield
    finally:
        signal.setitimer(signal.ITIMER_REAL, 0)
        signal.signal(signal.SIGALRM, before)


@dataclass(frozen=True, kw_only=True)
class Answer:
    """Certified bounds on one quantity, and all that they rest on."""

    quantity: str
    bounds: taut.Bounds
    tolerance: float
    given: Mapping[str, float]
    loss: taut.PrivacyLoss
    sampler: Mapping[str, str | float] | None
    sigma: float | None = None
    """The noise that was sought, if any."""

    def print(self, *, as_json: bool) -> None:
        """Write the answer to stdout, for a program or for a person."""
        if as_json:
            print_json(self._fields())
        else:
            self._print_rows()

    def _fields(self) -> dict[str, object]:
        sought = {} if self.sigma is None else {"sigma": self.sigma}
        return {
            **sought,
            self.quantity: {"lower": self.bounds.lower, "upper": self.bounds.upper},
            **self.given,
            "adjacency": str(self.loss.adjacency),
            "sampler": None if self.sampler is None else dict(self.sampler),
            "loss": self.loss.to_dict(),
            "taut": taut.__version__,
        }

    def _print_rows(self) -> None:
        from rich.console import Console
        from rich.table import Table

        digits = max(3, 2 + math.ceil(-math.log10(self.tolerance)))
        rows = Table.grid(padding=(0, 2))
        if self.sigma is not None:
            rows.add_row(
                "sigma", f"{round_up(self.sigma, digits)} (smallest that keeps the budget)"
            )
        rows.add_row(
            self.quantity, f"{round_up(self.bounds.upper, digits)} (certified upper bound)"
        )
        rows.add_row("", f"{round_down(self.bounds.lower, digits)} (certified lower bound)")
        for key, value in self.given.items():
            rows.add_row(key, str(value))
        rows.add_row("adjacency", str(self.loss.adjacency))
        if self.sampler is not None:
            rows.add_row("sampler", _sampler_in_words(self.sampler))
        for place, (release, count) in enumerate(self.loss.terms):
            rows.add_row("" if place else "releases", f"{count} * {release}")
        Console(highlight=False, markup=False, emoji=False).print(rows)


def _sampler_in_words(sampler: Mapping[str, str | float]) -> str:
    details = dict(sampler)
    name = str(details.pop("name"))
    return ", ".join(
        [name, *(f"{key.replace('_', ' ')} {value}" for key, value in details.items())]
    )


def print_json(data: object) -> None:
    """Write JSON to stdout."""
    print(json.dumps(json_numbers(data), indent=2))


def print_rows(rows: Iterable[tuple[str, str]]) -> None:
    """Write words and what they stand for to stdout, in two columns."""
    from rich.console import Console
    from rich.table import Table

    table = Table.grid(padding=(0, 2))
    for word, meaning in rows:
        table.add_row(word, shown(meaning))
    Console(highlight=False, markup=False, emoji=False).print(table)


_LETTERS = {"ε": "epsilon", "δ": "delta", "≤": "<=", "≥": ">=", "–": "-", "…": "..."}


def shown(text: str) -> str:
    """Return a text that standard output can write, whatever letters it has."""
    encoding = getattr(sys.stdout, "encoding", None) or "utf-8"
    try:
        text.encode(encoding)
    except UnicodeEncodeError:
        for letter, word in _LETTERS.items():
            text = text.replace(letter, word)
        return text.encode(encoding, "backslashreplace").decode(encoding)
    return text
