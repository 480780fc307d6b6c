"""A budget in a file: what several programs, or one on several days, spend together."""

from __future__ import annotations

import json
import os
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

from taut._base import validate
from taut._base.files import lock, write_atomically
from taut.accounting._adjacency import Adjacency
from taut.accounting._budgets.filters import PrivacyFilter, Remaining
from taut.accounting._loss import PrivacyLoss
from taut.errors import BudgetExceeded, RunInUse

__all__ = ["BudgetFile"]

_PATIENCE = 30.0  # seconds: a spender holds the file for some milliseconds
_PAUSE = 0.02  # seconds between two looks at a file that another process holds


class BudgetFile:
    """A `PrivacyFilter` that lives in a file.

    Args:
        path: file that `create` has made, in JSON. Beside it a file with the ending ``.lock`` stays
            empty: who holds it spends.

    **Guarantee**: that of `PrivacyFilter` for everything that is released after `spend` by any
    process, also at the same time: a loss is in the file, durably, before `spend` returns, and
    the file is whole at every moment. A release whose process is killed after that has been paid.
    A copy of the file that is put back refunds what was spent since, which is a breach of privacy,
    as is a second file for the same records.

    Example:
        >>> import tempfile, taut
        >>> from pathlib import Path
        >>> from taut.accounting import BudgetFile
        >>> with tempfile.TemporaryDirectory() as folder:
        ...     budget = BudgetFile.create(Path(folder) / "budget.json", epsilon=2.0, delta=1e-6)
        ...     budget.spend(taut.laplace(scale=4))
        ...     round(BudgetFile(Path(folder) / "budget.json").remaining.fraction, 2)
        0.88
    """

    def __init__(self, path: str | os.PathLike[str]) -> None:
        """Look for the file.

        Raises:
            FileNotFoundError: if there is none.
            ValueError: if it holds no budget.
        """
        if not isinstance(path, str | os.PathLike):
            raise validate.WrongType(f"path must be a path of a file, got path={path!r}")
        # Two names of one file are one budget, with one lock.
        self._path = Path(path).resolve()
        self._read()

    @classmethod
    def create(
        cls,
        path: str | os.PathLike[str],
        *,
        epsilon: float,
        delta: float,
        adjacency: Adjacency | str = "add_remove",
    ) -> BudgetFile:
        """Write the file of a new budget, which must not exist yet.

        Args:
            path: name of the file.
            epsilon: epsilon of the promise for all that will be released.
            delta: probability delta of that promise, greater than 0.
            adjacency: the relation that every loss must be for.

        The filter is one of ``kind="renyi"`` with its usual orders.

        Raises:
            FileExistsError: if there is such a file; what it has spent must not be forgotten.
            ValueError: for a promise out of range.
        """
        file = Path(path).resolve()
        validate.positive(epsilon=epsilon)
        fresh = PrivacyFilter(epsilon, delta, kind="renyi", adjacency=adjacency)
        with _held(file):
            if file.exists():
                raise FileExistsError(
                    f"{file} exists, and is not overwritten, as what it has spent would be "
                    "forgotten; open it, or name a new file for other records"
                )
            _write(file, fresh)
        return cls(file)

    @property
    def path(self) -> Path:
        """Name of the file."""
        return self._path

    @property
    def remaining(self) -> Remaining:
        """What is left, as the file says now; a public number."""
        return self._read().remaining

    @property
    def epsilon(self) -> float:
        """The promised epsilon."""
        return self._read().epsilon

    @property
    def delta(self) -> float:
        """The promised delta."""
        return self._read().delta

    def spend(self, loss: PrivacyLoss) -> None:
        """Take ``loss`` from the budget, durably; call it before anything is released.

        Raises:
            BudgetExceeded: if it does not fit; the file is unchanged then.
            AdjacencyMismatch: if the loss is for another relation.
            RunInUse: if another process holds the file for longer than any release does.
            OSError: if the file cannot be written; nothing may be released then.
        """
        with _held(self._path):
            budget = self._read()
            try:
                budget.spend(loss)
            except BudgetExceeded as error:
                raise BudgetExceeded(f"{self._path}: {error}") from None
            _write(self._path, budget)

    def __sklearn_clone__(self) -> BudgetFile:
        """Return the same budget: clones of an estimator share it."""
        return self

    def __repr__(self) -> str:
        """Return the promise and what is left."""
        return f"<BudgetFile {os.fspath(self._path)!r}: {self._read()!r}>"

    def _read(self) -> PrivacyFilter:
        try:
            if self._path.exists() and not self._path.is_file():
                raise ValueError("it is no file")  # a pipe would be waited for
            with self._path.open(encoding="utf-8") as file:
                names, text = os.fstat(file.fileno()).st_nlink, file.read()
            if names > 1:  # of which one alone would have what is spent next
                raise ValueError(
                    "the file has several names (hard links), and each would be a budget of its "
                    "own; remove all but one of them"
                )
            return PrivacyFilter.from_dict(json.loads(text))
        except FileNotFoundError:
            raise FileNotFoundError(
                f"there is no budget {os.fspath(self._path)!r}; make one with BudgetFile.create"
            ) from None
        except (ValueError, RecursionError) as error:
            raise ValueError(f"{self._path} holds no budget: {error}") from None


@contextmanager
def _held(path: Path) -> Iterator[None]:
    """Have a budget to oneself; the lock ends with the process, however that ends."""
    # Never removed: a file of that name made anew would be another lock.
    file = os.open(path.with_name(path.name + ".lock"), os.O_RDWR | os.O_CREAT, 0o666)
    try:
        until = time.monotonic() + _PATIENCE
        while not lock(file):
            if time.monotonic() > until:
                raise RunInUse(
                    f"{path} has been in use elsewhere for {_PATIENCE:g} seconds; end that process"
                )
            time.sleep(_PAUSE)
        yield
    finally:
        os.close(file)


def _write(path: Path, budget: PrivacyFilter) -> None:
    write_atomically(path, json.dumps(budget.to_dict(), indent=2) + "\n")
