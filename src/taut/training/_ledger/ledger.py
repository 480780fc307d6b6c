"""The ledger of a run: every step is written down before its update can be seen."""

from __future__ import annotations

import json
import logging
import os
import secrets
import threading
import weakref
from collections.abc import Mapping
from dataclasses import replace
from pathlib import Path
from types import TracebackType
from typing import Any, Self

from taut._base import validate
from taut._base.files import lock, sync_directory
from taut.accounting import PrivacyLoss
from taut.errors import BudgetExceeded, RunInUse, UnsoundConfiguration
from taut.training._ledger.hash_chain import HASH, hash_after
from taut.training._ledger.history import SCHEMA, RunHistory
from taut.training._plan.plan import Plan

__all__ = ["RunLedger"]

_LOG = logging.getLogger(__name__)


class RunLedger:
    """Counts the steps of a run, in a file that survives crashes, or in memory.

    Args:
        path: the file, made if it does not exist; None keeps the count in memory.
        plan: what the steps from now on cost. If it is not the plan that the file ends with, a
            new segment begins, and the losses of all segments add.
        block: how many steps are reserved at a time. A crash counts at most so many too many;
            writing to the disk takes time once in so many steps.
        enforce: refuse a step that would exceed the plan's epsilon at its delta, all segments
            included.

    Call :meth:`record` before the update of a step can be seen (by a checkpoint, a log, another
    process), and :meth:`close` in the end; `with` does the latter. A run that goes on from an old
    checkpoint goes on with the same ledger: steps taken twice count twice. Where the plan draws a
    whole epoch at once, a run that goes on begins a new epoch, since nobody keeps how the old one
    was drawn: what was taken of that one counts as a part of an epoch, in a segment of its own.

    **Guarantee**: the steps in the file are at least the updates that ever became visible, if each
    one was recorded before; see `RunHistory`. Two processes cannot write to one ledger.

    Raises:
        RunInUse: if another process has the file open.
        AdjacencyMismatch: if the file holds steps for another relation.
        ValueError: if the file is damaged.

    Example:
        >>> from taut.training import FlatClip, Plan, RunLedger
        >>> plan = Plan(
        ...     examples=60_000, batch_size=512, steps=1_000, noise_multiplier=1.0, delta=1e-5,
        ...     clipping=FlatClip(1.0),
        ... )
        >>> with RunLedger(None, plan) as ledger:
        ...     for step in range(3):
        ...         ledger.record(step)
        >>> ledger.steps, ledger.loss == 3 * plan.step_loss
        (3, True)
    """

    def __init__(
        self,
        path: str | os.PathLike[str] | None,
        plan: Plan,
        *,
        block: int = 16,
        enforce: bool = False,
    ) -> None:
        if not isinstance(plan, Plan):
            raise validate.WrongType(f"plan must be a Plan, got plan={plan!r}")
        self.plan = plan
        self.path = None if path is None else Path(path)
        # A step that was reserved and not taken would leave its noise out of the sum.
        size = validate.positive_integer(block=block)
        self._block = size if plan.encoder is None else 1
        self._spare = 0  # reserved steps that were not yet recorded
        self._data: dict[str, Any] = {}  # what the next reservation says beside its number
        self._file: int | None = None
        self._closed = False
        self._lock = threading.Lock()
        self._history = RunHistory(id=secrets.token_hex(8))
        if self.path is None:
            self._history = self._history.begun(plan, self._block)
        else:
            self._open(self.path)
        self._most = self._most_steps() if enforce else None

    # --- what was spent ------------------------------------------------------------------------

    @property
    def history(self) -> RunHistory:
        """All segments, with the steps counted so far."""
        return self._history

    @property
    def steps(self) -> int:
        """How many steps count as taken, under all plans.

        After a crash these include steps that were reserved and may not have been taken.
        """
        return self._history.steps

    @property
    def loss(self) -> PrivacyLoss:
        """The loss of all these steps."""
        return self._history.loss

    @property
    def position(self) -> int:
        """How many steps of the last plan count: the number of the next one in its schedules."""
        return self._history.segments[-1].steps

    @property
    def most_steps(self) -> int | None:
        """How many steps of the last plan its promise allows; None if that is not enforced."""
        return self._most

    def epsilon(self, delta: float) -> float:
        """Return a certified upper bound on epsilon at `delta` for all steps taken."""
        return self._history.epsilon(delta)

    def would_exceed(self, epsilon: float, delta: float, steps: int = 1) -> bool:
        """Return whether `steps` further steps could cost more than the promise."""
        at = validate.non_negative(epsilon=epsilon)
        ahead = self._history.counted(validate.integer(steps=steps))
        return not ahead.epsilon(validate.below_one(delta=delta)) <= at

    # --- writing -------------------------------------------------------------------------------

    def record(self, step: int, place: int | None = None) -> None:
        """Count one step; once this returns, no crash can undo it.

        Args:
            step: its number in the run, for readers of the file. Every call counts one step,
                whatever the number.
            place: its number in its epoch, as `MicroBatch.place`, if the plan draws whole epochs;
                None for the one that follows. Zero begins a new epoch, wherever the last one was.
                Where noise or batch sizes change, its number in the plan.

        Raises:
            BudgetExceeded: if the budget is enforced and the step does not fit; it must not be
                taken.
            UnsoundConfiguration: if the ledger is closed, or belongs to a parent process, or has
                not counted the earlier steps of the epoch, or is at another step of a schedule.
        """
        number = validate.integer(step=step)
        with self._lock:
            self._check_open()
            self._come_to(place)
            taken = self._history.segments[-1].steps
            if self._most is not None and taken >= self._most:
                raise BudgetExceeded(
                    f"step {number} would exceed epsilon={self.plan.epsilon:g} at "
                    f"delta={self.plan.delta:g} after {self.steps} steps; stop here, or plan "
                    "for more steps from the start"
                )
            if self._spare == 0:
                self._reserve(number, taken)
            self._spare -= 1
            self._history = self._history.counted(1)

    def include(self, runs: Mapping[str, int]) -> int:
        """Count steps whose updates are in weights that the run goes on from.

        Args:
            runs: steps by the names of ledgers, as in `RunHistory.runs`. Those that count here
                already are left out; the others must have the price of this plan.

        Returns:
            how many steps were added. They count even where they exceed the budget; `record` then
            refuses further ones.

        Raises:
            UnsoundConfiguration: if steps are missing, and those of the plan differ in price.
        """
        steps = {str(name): validate.integer(steps=count) for name, count in runs.items()}
        with self._lock:
            self._check_open()
            missing = self._history.missing(steps)
            if missing and self.plan.follows_ledger:
                raise UnsoundConfiguration(
                    "steps of another run cannot be counted at the price of a schedule, whose "
                    "steps differ; go on with the ledger of that run, or keep both and add their "
                    "losses"
                )
            if missing:
                if self._file is not None:
                    self._append({"include": missing})
                self._history = self._history.including(missing)
                if self._most is not None:  # epochs of another run are segments of their own
                    self._most = self._most_steps()
        return sum(missing.values())

    def note_unchecked_isolation(self) -> None:
        """Write down that steps are taken without a test that examples are kept apart."""
        with self._lock:
            self._check_open()
            if self._history.unchecked_isolation:
                return
            if self._file is not None:
                self._append({"unchecked_isolation": True})
            self._history = replace(self._history, unchecked_isolation=True)

    def note_data(self, fingerprint: str, *, changed: bool = False) -> None:
        """Write down with the next step which dataset it looks at.

        Args:
            fingerprint: fingerprint that tells nothing to whoever does not have its key.
            changed: whether it may be another dataset than that of the steps before.
        """
        with self._lock:
            self._check_open()
            self._data |= {"data": fingerprint, **({"changed": True} if changed else {})}

    def note_noise(self, commitment: str) -> None:
        """Write down with the next step which keys its noise is drawn with.

        Args:
            commitment: hash of all keys so far, which tells nothing of them.
        """
        with self._lock:
            self._check_open()
            self._data["noise"] = commitment

    def note_seed(self) -> None:
        """Write down with the next step that noise comes from a seed, and promises nothing."""
        with self._lock:
            self._check_open()
            self._data["seeded"] = True

    def close(self, *, interrupted_after: int | None = None) -> None:
        """Return the reserved steps that were not recorded, and let go of the file.

        Args:
            interrupted_after: the number of updates of a run that was stopped on purpose, if a
                checkpoint holds all of them; readers can then tell the stop from a crash.
        """
        noted = {} if interrupted_after is None else {"interrupted": interrupted_after}
        with self._lock:
            if self._closed:
                return
            self._closed = True
            if self._file is None:
                return
            try:
                if self._spare or noted:
                    self._append({"return": self._spare, **noted})
                if interrupted_after is not None:
                    self._history = self._history.interrupted(interrupted_after)
            finally:
                self._let_go()

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        self.close()

    def __repr__(self) -> str:
        where = "memory" if self.path is None else repr(os.fspath(self.path))
        return f"<RunLedger in {where}: {self.steps} steps>"

    def _open(self, path: Path) -> None:
        flags = os.O_RDWR | os.O_CREAT | os.O_APPEND | getattr(os, "O_BINARY", 0)
        self._file = os.open(path, flags, 0o644)
        try:
            if not lock(self._file):
                raise RunInUse(
                    f"the ledger {os.fspath(path)!r} is open elsewhere, in another process or in "
                    "this one: a run is counted in one place only. Wait for that process or end "
                    "it, or give this run a ledger of its own"
                )
            sync_directory(path)
            found = RunHistory.read(path)
            self._history = found if found.id else replace(found, id=self._history.id)
            if found.unhashed:
                _LOG.warning(
                    "the ledger %r was begun without hashes: its first %d lines show no edits that "
                    "were made before now; later lines are tied to them",
                    os.fspath(path),
                    found.unhashed,
                )
            self._recover(path.read_bytes()[-1:])
            self._begin()
        except BaseException:
            self._let_go()
            raise
        _OPEN.add(self)

    def _recover(self, end: bytes) -> None:
        """End a line that was cut off, and count it for good."""
        torn = self._history.torn
        if torn == 1 and not self._history.segments and self._file is not None:
            os.ftruncate(self._file, 0)  # the first line was cut off, before any step
            self._history = replace(self._history, torn=0, head=None)
        elif torn:
            block = self._history.segments[-1].block if self._history.segments else self._block
            self._append({"torn": torn * block}, before=b"\n")
            self._history = replace(self._history, torn=0)
        elif end not in (b"", b"\n"):
            self._write(b"\n")  # the line was whole but for its end

    def _begin(self) -> None:
        """Begin a segment, unless the last one is of the same plan and ends with an epoch."""
        if self._history.segments:
            last = self._history.segments[-1]
            if last.plan == self.plan and last.steps % self.plan.sampling.epoch_steps == 0:
                return
        self._history = self._history.begun(self.plan, self._block)
        if self._file is None:
            return
        entry = {"schema": SCHEMA, "run": self.plan.to_dict(), "block": self._block}
        self._append({**entry, "id": self._history.id})

    def _come_to(self, place: int | None) -> None:
        """Begin a new epoch where a step says so, and refuse a step out of its schedule."""
        if self.plan.follows_ledger:
            self._check_scheduled(place)
            return
        due = self._history.segments[-1].steps % self.plan.sampling.epoch_steps
        if place is None or validate.integer(place=place) == due:
            return
        if place > 0:
            raise UnsoundConfiguration(
                f"a step with the place {place} in its epoch follows {due} steps of an epoch that "
                "this ledger has counted: an epoch is counted by one ledger, from its first step "
                "on. Give every loader a ledger of its own, and record all of its steps"
            )
        if self._spare and self._file is not None:
            self._append({"return": self._spare})
        self._spare = 0
        self._begin()
        if self._most is not None:
            self._most = self._most_steps()

    def _check_scheduled(self, place: int | None) -> None:
        """Refuse a step whose noise is not the one that counts next."""
        if place is not None and place != self.position:
            raise UnsoundConfiguration(
                f"a step with the noise and the rate of step {place} of the plan follows "
                f"{self.position} steps that this ledger has counted of it: noise follows the "
                "ledger, which counts every step of a schedule once. Draw batches from step "
                f"{self.position} on, as PrivateTrainer does"
            )

    def _reserve(self, step: int, taken: int) -> None:
        size = self._block if self._most is None else min(self._block, self._most - taken)
        if self._file is not None:
            self._append({"reserve": size, "step": step, **self._data})
        self._history, self._data = self._history.looking_at(self._data), {}
        self._spare = size
        self._history = self._history.going_on(step, size)

    def _most_steps(self) -> int:
        """Return how many steps of the last segment fit into the plan's promise."""
        earlier = RunHistory(self._history.segments[:-1])
        if earlier.steps == 0:
            return self.plan.steps
        fits, beyond = 0, self.plan.steps + 1
        while beyond - fits > 1:
            middle = (fits + beyond) // 2
            total = earlier.loss + self.plan.loss_at(middle)
            if total.epsilon(self.plan.delta) <= self.plan.epsilon:
                fits = middle
            else:
                beyond = middle
        return fits

    def _append(self, entry: dict[str, Any], before: bytes = b"") -> None:
        head = hash_after(self._history.head, entry)
        self._write(before + json.dumps({**entry, HASH: head}).encode() + b"\n")
        self._history = self._history.hashed(head)

    def _write(self, line: bytes) -> None:
        """Add a line to the file; return once the disk has it."""
        assert self._file is not None
        try:
            while line:
                line = line[os.write(self._file, line) :]
            os.fsync(self._file)
        except OSError:
            self._let_go()  # nobody knows what the disk has; opening anew finds out
            raise

    def _check_open(self) -> None:
        if self._closed:
            raise UnsoundConfiguration("this ledger is closed; open it again to take more steps")

    def _let_go(self) -> None:
        if self._file is not None:
            os.close(self._file)
        self._file, self._closed = None, True

    def _leave_to_parent(self) -> None:
        """Close a forked copy, which must neither count nor hold the lock of the parent."""
        self._lock = threading.Lock()
        self._spare = 0
        self._let_go()


_OPEN: weakref.WeakSet[RunLedger] = weakref.WeakSet()


def _leave_all_to_parent() -> None:
    for ledger in list(_OPEN):
        ledger._leave_to_parent()


if hasattr(os, "register_at_fork"):
    os.register_at_fork(after_in_child=_leave_all_to_parent)
