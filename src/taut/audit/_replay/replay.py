"""Record and replay: two runs of a program, on neighbouring data, with releases frozen."""

from __future__ import annotations

import contextlib
import copy
import inspect
import traceback
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any, TypeVar

import numpy as np

from taut._base import validate
from taut.accounting import Adjacency, PrivacyLoss
from taut.audit._replay.checks import Comparison
from taut.audit._replay.circumstances import set_states, states
from taut.audit._replay.equality import kept
from taut.audit._replay.recorders import Diverged, FirstRun, SecondRun
from taut.audit._replay.result import ReplayResult
from taut.noise import default_generator
from taut.noise.recording import recording

__all__ = ["replay"]

T = TypeVar("T")
_KEY_BYTES = 32  # of the bits between releases, which nobody should guess either


def replay(
    function: Callable[[T], Any],
    data: T,
    neighbour: T,
    *,
    adjacency: Adjacency | str | None = None,
    differs_at: int = -1,
    claim: PrivacyLoss | None = None,
    crafted: bool = False,
) -> ReplayResult:
    """Run a program on neighbouring data with the same releases, and compare all that it does.

    Args:
        function: program under test; it takes a dataset and returns all that is published.
        data: dataset of the first run.
        neighbour: dataset of the second run, which differs in one record.
        adjacency: relation of the two, by default replace-one if both have the same length, and so
            have the arrays in tuples and dictionaries, and add/remove otherwise. For replace-one,
            declared sets of contributions are doubled.
        differs_at: place of the record in which they differ, by default the last. Batches that
            `taut.training` draws are the same in both runs, and hold this record.
        claim: what the whole program is said to cost. Releases that look at the record must not
            add up to more.
        crafted: whether the data are made up, so that findings may show numbers about them.

    **Guarantee**: that of :class:`ReplayResult`. Mechanisms of `taut.noise`, `taut.training` and
    whatever `recorded` or `recorded_generator` wrap take part. The first run draws its noise as
    always. In the second no noise is drawn: every release gives out what it did in the first. What
    the function returns is compared, and forgotten: a replay publishes nothing. Global generators
    of Python, NumPy and torch begin both runs alike, and go on alike after every release. Threads
    that the function starts are not watched.

    Raises:
        UnsoundConfiguration: if a replay is already going on in this thread.
        ValueError: if a loader sees that the datasets differ in more than one record.
        TypeError: if the function returns what is not computed yet, or cannot be compared.

    Example:
        >>> import numpy as np
        >>> from taut.audit import replay
        >>> from taut.noise import Box, optimal_laplace
        >>> noise = optimal_laplace(Box([1.0]), epsilon=0.5)
        >>> ages = np.array([[0.2], [0.9], [0.4]])
        >>> replay(lambda rows: noise.release(rows.sum(0)), ages, ages[:-1]).passed
        True
        >>> result = replay(lambda rows: noise.release(rows.sum(0)) / len(rows), ages, ages[:-1])
        >>> print(result.findings[0].split(" (")[0])
        the result depends on the data beside its releases
    """
    if not callable(function):
        raise validate.WrongType(f"function must be callable, got function={function!r}")
    if isinstance(differs_at, bool) or not isinstance(differs_at, int):
        raise validate.WrongType(f"differs_at must be an integer, got differs_at={differs_at!r}")
    if claim is not None and not isinstance(claim, PrivacyLoss):
        raise validate.WrongType(
            f"claim must be a PrivacyLoss, such as taut.approximate(1.0, 1e-6), got claim={claim!r}"
        )
    relation = _relation(data, neighbour) if adjacency is None else Adjacency(adjacency)
    key = default_generator().bytes(_KEY_BYTES)
    neighbour = _apart(data, neighbour)
    before = states()
    first = FirstRun(key, differs_at)
    with recording(first):
        one = kept(_finished(function(data)))  # the second run may write into the same object
    set_states(before)
    second = SecondRun(first, key, differs_at)
    compared = Comparison(first.entries, second.releases, relation, crafted)
    raised, other, is_over = None, None, False
    with recording(second):
        try:
            other, is_over = _finished(function(neighbour)), True
        except Diverged:
            if second.wrong_pair is not None:
                raise second.wrong_pair from None
        except (Exception, SystemExit) as error:
            raised = error
    compared.compare(has_failed=raised is not None)
    if is_over and compared.is_aligned:
        compared.results(one, other)
    elif raised is not None:
        compared.add(
            f"{type(raised).__name__} was raised on the neighbour alone, at {_place(raised)}: that "
            "a program fails tells about the data. Treat what is wrong with one record as if it "
            "had been left out, or refuse it before any data are looked at"
        )
    compared.noise()
    if claim is not None:
        compared.claim(claim)
    return compared.result()


def _relation(data: object, neighbour: object) -> Adjacency:
    if _holds_fewer(data, neighbour):
        return Adjacency.ADD_REMOVE
    try:
        alike = len(data) == len(neighbour)  # type: ignore[arg-type]
    except TypeError:
        return Adjacency.ADD_REMOVE
    return Adjacency.REPLACE if alike else Adjacency.ADD_REMOVE


def _holds_fewer(data: object, neighbour: object) -> bool:
    """Say whether two tuples or dictionaries of columns differ in how many records those hold."""
    if isinstance(data, Mapping) and isinstance(neighbour, Mapping):
        pairs = [(data[key], neighbour[key]) for key in data if key in neighbour]
    elif isinstance(data, tuple) and isinstance(neighbour, tuple):
        pairs = list(zip(data, neighbour, strict=False))
    else:
        return False
    arrays = [(a.shape, b.shape) for a, b in pairs if hasattr(a, "shape") and hasattr(b, "shape")]
    lists = [(len(a), len(b)) for a, b in pairs if isinstance(a, list) and isinstance(b, list)]
    # One list of several may be a record of its own, exchanged for a longer one.
    others = len(lists) > 0 and all(one != other for one, other in lists)
    return others or any(one[:1] != other[:1] for one, other in arrays)


def _apart(data: Any, neighbour: Any) -> Any:
    """Return the neighbour, copied if it is a part of the data, which the first run may change."""
    if isinstance(data, np.ndarray) and isinstance(neighbour, np.ndarray):
        return neighbour.copy() if np.may_share_memory(data, neighbour) else neighbour
    if hasattr(neighbour, "untyped_storage") and hasattr(data, "untyped_storage"):
        shares = data.untyped_storage().data_ptr() == neighbour.untyped_storage().data_ptr()
        return neighbour.detach().clone() if shares else neighbour
    if isinstance(neighbour, list | tuple | dict):
        with contextlib.suppress(Exception):  # what cannot be copied is left as it is
            return copy.deepcopy(neighbour)
    return neighbour


def _finished(result: Any) -> Any:
    """Refuse a result that is computed after the run has ended."""
    if inspect.isgenerator(result) or inspect.iscoroutine(result):
        close = getattr(result, "close", None)
        if close is not None:
            close()
        raise validate.WrongType(
            "function must return what it has computed, got a generator or a coroutine; return "
            "a list of it"
        )
    return result


def _place(error: BaseException) -> str:
    """Return where an error was raised; its message may hold data."""
    frames = traceback.extract_tb(error.__traceback__)
    last = frames[-1]
    return f"{Path(last.filename).name}:{last.lineno}"
