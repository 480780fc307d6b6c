"""What a run has spent, read from the lines of its ledger: never less than it made visible.

A ledger is a file of JSON lines, only ever appended to. A line `run` begins a segment of steps
under one plan, or of new epochs under the same one; `reserve` says that so many further steps may
be taken, from the step of a number on; `return` says that so many of the reserved ones were not,
and after how many updates the run was interrupted, if it was. A process that is killed returns
nothing, so the total can be too high, but never too low. A line that was cut off in writing says
nothing readable: it counts as a block of reserved steps, for good once the next process adds a line
`torn`.

Every line holds a hash of its content and of the line before it; lines of files that were begun
before there were hashes need not, up to the first one that does. See `hash_chain`.

Every ledger has a random name. Steps of another ledger whose weights this run went on from are
reserved under the name of that one, so that nobody's steps are left out or counted twice.
"""

from __future__ import annotations

import os
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any

from taut._base import validate
from taut.accounting import Adjacency, PrivacyLoss, zero
from taut.errors import AdjacencyMismatch
from taut.training._ledger.hash_chain import HASH, hash_after, hashes, parsed
from taut.training._plan.plan import Plan

__all__ = ["SCHEMA", "RunHistory", "Segment"]

SCHEMA = "taut.run-ledger/1"
_START = b'{"schema": "taut.run-ledger'


@dataclass(frozen=True)
class Segment:
    """Steps taken under one plan, and how many a block of reserved ones has."""

    plan: Plan
    steps: int
    block: int


@dataclass(frozen=True)
class RunHistory:
    """Everything that a run has spent.

    Attributes:
        segments: the plans in their order, with the steps counted for each.
        torn: lines at the end of the file that cannot be read; their steps are counted.
        id: the random name of the ledger; None if its file has none.
        carried: how many of the steps were taken by runs with other ledgers, by their names.
        interrupts: after how many updates the run was stopped on purpose, each time with a
            checkpoint that holds them; such a stop costs no step.
        crashes: how many steps every other stop has cost: they count, and were taken again from
            the last checkpoint, or never.
        unchecked_isolation: whether steps were taken without a test that examples are kept apart.
        head: the hash of the last line, and with it of all lines; None for a count in memory.
        unhashed: how many lines, the first ones, hold no hash; not zero for a file that was begun
            before there were hashes.
        data: fingerprint of the dataset of the last steps, under a key that is kept elsewhere; None
            if nobody took one.
        changed_data: whether the run went on with another dataset, or with one that nobody could
            compare.
        noise: commitment to the keys of correlated noise of all steps so far, which are kept
            elsewhere; None if nobody noted one.
        seeded: whether noise of some steps came from a seed, which others may guess.

    **Guarantee**: if every update became visible only after `RunLedger.record` had returned,
    `steps` is at least the number of updates that ever did, whatever was killed in between, on a
    file system that keeps what it was told to keep. `loss` adds the segments, for plans
    that were fixed before outputs were seen. Lines that do not follow from those before them by
    their hashes are refused by `read`; whoever can write the file can also compute hashes, so the
    last one must be kept elsewhere to prove something: it is in checkpoints and statements.
    """

    segments: tuple[Segment, ...] = ()
    torn: int = 0
    id: str | None = None
    carried: Mapping[str, int] = field(default_factory=dict)
    interrupts: tuple[int, ...] = ()
    crashes: tuple[int, ...] = ()
    unchecked_isolation: bool = False
    head: str | None = None
    unhashed: int = 0
    data: str | None = None
    changed_data: bool = False
    noise: str | None = None
    seeded: bool = False
    _ahead: int | None = field(default=None, compare=False, repr=False)
    """The number of the step that comes next if nothing is lost; None before the first."""
    _lent: int = field(default=0, compare=False, repr=False)
    """How many steps the last block has that may still be returned."""
    _lines: int = field(default=0, compare=False, repr=False)
    """How many lines were read."""

    @property
    def steps(self) -> int:
        """How many steps count as taken."""
        return sum(segment.steps for segment in self.segments)

    @property
    def runs(self) -> dict[str, int]:
        """How many of the steps each ledger has counted, by name."""
        own = {} if self.id is None else {self.id: self.steps - sum(self.carried.values())}
        return {**self.carried, **own}

    @property
    def has_one_price(self) -> bool:
        """Whether the loss is that of as many steps of the last plan."""
        taken = [segment for segment in self.segments if segment.steps]
        if any(s.plan.follows_ledger for s in taken):
            return False
        if any(s.plan.step_loss != self.segments[-1].plan.step_loss for s in taken):
            return False
        # Epochs that were broken off do not add up to whole ones.
        return sum(s.steps % s.plan.sampling.epoch_steps > 0 for s in taken) < 2

    @property
    def loss(self) -> PrivacyLoss:
        """The loss of all these steps."""
        return sum((s.plan.loss_at(s.steps) for s in self.segments), start=zero())

    @property
    def adjacency(self) -> Adjacency | None:
        """The relation of the losses; None for a run that has not begun."""
        return self.segments[0].plan.adjacency if self.segments else None

    def epsilon(self, delta: float) -> float:
        """Return a certified upper bound on epsilon at `delta` for what was spent."""
        if len(self.segments) == 1 and delta == self.segments[0].plan.delta:
            return self.segments[0].plan.epsilon_at(self.segments[0].steps)
        return self.loss.epsilon(delta)

    def begun(self, plan: Plan, block: int) -> RunHistory:
        """Return the history with a further segment.

        Raises:
            AdjacencyMismatch: if the plan is for another relation than the earlier ones, or for
                owners where they are for examples.
        """
        if self.adjacency not in (None, plan.adjacency):
            raise AdjacencyMismatch(
                f"this run was recorded for adjacency={str(self.adjacency)!r}, the plan is for "
                f"{str(plan.adjacency)!r}; losses of the two cannot be added: plan with a sampling "
                "for the recorded relation, or begin another ledger and state both"
            )
        if self.segments and self.segments[0].plan.units != plan.units:
            raise AdjacencyMismatch(
                f"this run was recorded for {self.segments[0].plan.units}, the plan is for "
                f"{plan.units}; losses of the two cannot be added: plan for the recorded unit, or "
                "begin another ledger and state both"
            )
        return replace(self, segments=(*self.segments, Segment(plan, 0, block)))

    def counted(self, steps: int) -> RunHistory:
        """Return the history with so many steps more (or fewer) in the last segment."""
        if not self.segments:
            raise ValueError("steps before the first plan")
        *earlier, last = self.segments
        total = last.steps + steps
        if total < 0:
            raise ValueError(f"{-steps} steps returned where {last.steps} were reserved")
        return replace(self, segments=(*earlier, replace(last, steps=total)))

    def going_on(self, step: int, size: int) -> RunHistory:
        """Return the history of a run whose next `size` steps begin with the number `step`."""
        crashes = self.crashes
        if self._ahead is not None and step < self._ahead:
            crashes = (*crashes, self._ahead - step)
        return replace(self, crashes=crashes, _ahead=step + size)

    def looking_at(self, said: Mapping[str, Any]) -> RunHistory:
        """Return the history with what a line says about dataset and noise, if it does."""
        if not said.keys() & {"data", "noise", "seeded"}:
            return self
        return replace(
            self,
            data=str(said["data"]) if "data" in said else self.data,
            changed_data=self.changed_data or bool(said.get("changed")),
            noise=str(said["noise"]) if "noise" in said else self.noise,
            seeded=self.seeded or bool(said.get("seeded")),
        )

    def interrupted(self, updates: int) -> RunHistory:
        """Return the history of a run that was stopped on purpose after so many updates."""
        return replace(self, interrupts=(*self.interrupts, updates))

    def missing(self, runs: Mapping[str, int]) -> dict[str, int]:
        """Return the steps in `runs` that do not count here yet."""
        known = self.runs
        ahead = {name: steps - known.get(name, 0) for name, steps in runs.items()}
        return {name: steps for name, steps in ahead.items() if steps > 0}

    def including(self, steps: Mapping[str, int]) -> RunHistory:
        """Return the history with further steps of some ledgers, at the price of the last plan.

        Where epochs are drawn at once, those of another ledger are other epochs. If some of its
        steps count already, the further ones may belong to an epoch that had begun, which is then
        counted from its first step on.
        """
        if not self.segments or (epoch := self.segments[-1].plan.sampling.epoch_steps) == 1:
            more = self.counted(sum(steps.values()))
        else:
            *earlier, last = self.segments
            begun = {name: epoch - 1 if self.runs.get(name) else 0 for name in steps}
            others = (replace(last, steps=n + begun[name]) for name, n in steps.items())
            more = replace(self, segments=(*earlier, *others, last))
        carried = dict(self.carried)
        for name, count in steps.items():
            if name != self.id:
                carried[name] = carried.get(name, 0) + count
        return replace(more, carried=carried)

    @classmethod
    def read(cls, path: str | os.PathLike[str]) -> RunHistory:
        """Return what the ledger at `path` has recorded, also while a run writes to it.

        Raises:
            ValueError: if the file is no ledger, or was damaged other than by a crash.
        """
        content = Path(path).read_bytes()
        try:
            if not content.startswith(_START[: len(content)]):
                raise ValueError(f"it does not begin with {_START.decode()!r}")
            return cls.of_lines(content.split(b"\n"))
        except ValueError as error:
            raise ValueError(f"cannot read the ledger {os.fspath(path)!r}: {error}") from error

    @staticmethod
    def passed(path: str | os.PathLike[str], head: str) -> bool:
        """Return whether the ledger at `path` once ended with a line of this hash.

        Args:
            path: file of the ledger.
            head: hash, an earlier value of `head`. If no line has it, lines up to it were changed
                or lost, or the file is another one.
        """
        return head in hashes(Path(path).read_bytes().split(b"\n"))

    @classmethod
    def of_lines(cls, lines: Iterable[bytes]) -> RunHistory:
        """Return what the lines of a ledger say."""
        history, torn = cls(), 0
        for number, line in enumerate(lines, start=1):
            if not line:
                continue
            entry = parsed(line)
            if entry is None:
                torn += 1
                continue
            if torn and "torn" not in entry:
                raise ValueError(f"line {number - 1} is damaged; restore the file from a copy")
            torn = 0
            try:
                after = history._after(entry)
            except (KeyError, TypeError, ValueError) as error:
                raise ValueError(f"line {number} is malformed: {error}") from error
            if (followed := after._followed_by(entry)) is None:
                raise ValueError(
                    f"line {number} does not follow from the lines before it by its hash: a line "
                    "was edited, removed, inserted or moved; restore the file from a copy"
                )
            history = followed
        if torn and history.segments:
            lost = torn * history.segments[-1].block
            history = history.counted(lost)._moved(lost)
        return replace(history, torn=torn)

    def hashed(self, head: str) -> RunHistory:
        """Return the history with the hash of a line that was added."""
        return replace(self, head=head)

    def _followed_by(self, entry: Mapping[str, Any]) -> RunHistory | None:
        """Return the history with the hash of a line, None if the line holds another one."""
        head = hash_after(self.head, entry)
        if HASH not in entry and self.unhashed == self._lines:
            return replace(self, head=head, unhashed=self.unhashed + 1, _lines=self._lines + 1)
        if entry.get(HASH) != head:
            return None
        return replace(self, head=head, _lines=self._lines + 1)

    def _after(self, entry: Mapping[str, Any]) -> RunHistory:
        """Return the history with what one line adds."""
        if "run" in entry:
            if entry.get("schema") != SCHEMA:
                raise ValueError(f"expected schema {SCHEMA!r}, got {entry.get('schema')!r}")
            plan = Plan.from_dict(entry["run"])
            name = self.id if self.segments else entry.get("id")
            same = bool(self.segments) and self.segments[-1].plan == plan
            ahead = self._ahead if same else None
            return replace(self, id=name, _ahead=ahead, _lent=0).begun(
                plan, validate.positive_integer(block=entry["block"])
            )
        if "torn" in entry:
            if not self.segments:  # the very first line was cut off, before any step
                return self
            torn = validate.positive_integer(torn=entry["torn"])
            return replace(self.counted(torn)._moved(torn), _lent=0)
        if "unchecked_isolation" in entry:
            return replace(self, unchecked_isolation=True)
        if "return" in entry:
            return self._ended(entry)
        if "include" in entry:
            steps = {
                str(name): validate.positive_integer(steps=count)
                for name, count in entry["include"].items()
            }
            return self.including(steps)
        return self._reserved(entry)

    def _reserved(self, entry: Mapping[str, Any]) -> RunHistory:
        """Return the history with a block of steps, and what it tells about steps before it."""
        size = validate.positive_integer(steps=entry["reserve"])
        more = replace(self.counted(size), _lent=size)
        if "step" not in entry:
            return replace(more, _ahead=None)
        more = more.looking_at(entry)
        return more.going_on(validate.integer(step=entry["step"]), size)

    def _ended(self, entry: Mapping[str, Any]) -> RunHistory:
        """Return the history without the steps that a process did not take."""
        unused = validate.integer(steps=entry["return"])
        if unused > self._lent:
            raise ValueError(f"{unused} steps returned where {self._lent} were lent")
        less = replace(self.counted(-unused)._moved(-unused), _lent=0)
        if "interrupted" not in entry:
            return less
        return less.interrupted(validate.integer(interrupted=entry["interrupted"]))

    def _moved(self, steps: int) -> RunHistory:
        return self if self._ahead is None else replace(self, _ahead=self._ahead + steps)
