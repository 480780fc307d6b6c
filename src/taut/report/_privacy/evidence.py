"""What a privacy report rests on: a loss, and the files of the run that spent it."""

from __future__ import annotations

import hashlib
import json
import os
from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

from taut._base import validate
from taut.accounting import PrivacyLoss, gaussian
from taut.errors import UnsoundConfiguration
from taut.training import Plan, RunDirectory, RunHistory, TrainingResult

__all__ = ["Evidence", "FileHash", "evidence_of"]

_BLOCK = 1 << 20
_LONGEST = 80  # characters of a version or a date; more would be something else


@dataclass(frozen=True)
class FileHash:
    """A file by its name and its SHA-256, so that a reader knows which one was meant."""

    name: str
    sha256: str

    @classmethod
    def of(cls, path: Path) -> FileHash:
        """Return the hash of a file of any size."""
        digest = hashlib.sha256()
        with path.open("rb") as file:
            while block := file.read(_BLOCK):
                digest.update(block)
        return cls(path.name, digest.hexdigest())


@dataclass(frozen=True)
class Evidence:
    """What was spent, and how it is known; nothing in here depends on the examples.

    Attributes:
        loss: privacy loss of all that was released.
        delta: at which the promise is made.
        kind: where this comes from: "loss", "result" or "run".
        description: what was released, in the words of whoever asked for the report.
        plan: what was planned, for training runs.
        counted_steps: steps in the ledger.
        updates: how many of them the final weights have had, if that is recorded.
        is_secure: whether noise and batches came from a secure generator, if that is recorded.
        result: the statement of the run, if it has ended.
        history: the ledger, if it was read.
        files: hashes of what was read and of what was named.
        checks: what was compared while reading.
        statement: the file of the result, word for word, if it still says what was spent.
        versions: versions of the packages that the run was computed with, if it has recorded them.
        finished: when the run ended, if it has recorded that.
    """

    loss: PrivacyLoss
    delta: float
    kind: str
    description: str | None = None
    plan: Plan | None = None
    counted_steps: int | None = None
    updates: int | None = None
    is_secure: bool | None = None
    result: TrainingResult | None = None
    history: RunHistory | None = None
    files: tuple[FileHash, ...] = ()
    checks: tuple[str, ...] = ()
    statement: str | None = None
    versions: Mapping[str, str] | None = None
    finished: str | None = None

    @property
    def is_unfinished(self) -> bool:
        """Whether fewer updates were made than planned."""
        if self.plan is None:
            return False
        done = self.counted_steps if self.updates is None else self.updates
        return done is not None and done < self.plan.steps

    @property
    def steps_to_attack(self) -> int | None:
        """How many of the counted steps the plan has, which an attack on it simulates."""
        if self.plan is None or self.counted_steps is None:
            return None
        return min(self.counted_steps, self.plan.steps)

    @property
    def has_one_price(self) -> bool:
        """Whether all steps are those of the plan."""
        return self.plan is not None and self.loss == self.plan.loss_at(self.counted_steps or 0)

    @property
    def has_owners(self) -> bool:
        """Whether the promise is to owners of several examples, not to single ones."""
        return self.plan is not None and self.plan.unit is not None

    @property
    def is_mixed(self) -> bool:
        """Whether released weights were mixed, so that their gradients are not released."""
        return self.plan is not None and self.plan.mixing is not None

    @property
    def is_sampled_gaussian(self) -> bool:
        """Whether all steps are noisy sums over Poisson samples, at the noise of the plan."""
        plan = self.plan
        if plan is None or plan.follows_ledger or not self.has_one_price:
            return False
        return plan.step_loss == gaussian(plan.noise_multiplier).poisson(plan.rate)

    @property
    def loss_after(self) -> Callable[[int], PrivacyLoss] | None:
        """The loss of the first steps, as far as their order is known."""
        if self.history is not None:
            parts = [(s.plan, s.steps) for s in self.history.segments if s.steps]
            return lambda steps: _first(parts, steps)
        if self.plan is not None and self.has_one_price:
            return self.plan.loss_at
        if len(self.loss.terms) == 1:
            release = self.loss.terms[0][0]
            return lambda steps: PrivacyLoss([(release, steps)], self.loss.adjacency)
        return None

    @property
    def releases(self) -> int:
        """How many releases the loss counts."""
        return sum(count for _, count in self.loss.terms)


def evidence_of(
    source: object,
    *,
    delta: float | None,
    description: str | None,
    files: Iterable[str | os.PathLike[str]],
) -> Evidence:
    """Return the evidence for a report about a loss, a training result or a run directory."""
    if isinstance(source, PrivacyLoss):
        found = _of_loss(source, delta, description)
    else:
        if delta is not None:
            raise ValueError(
                f"delta is that of the run's plan and cannot be chosen again, got delta={delta!r}; "
                "leave it out, or report run.loss at another delta"
            )
        found = replace(_of_run(source), description=description)
    if not found.loss.terms:
        raise ValueError("nothing was released: no step is counted, so there is nothing to report")
    named = tuple(FileHash.of(Path(path)) for path in files)
    return replace(found, files=(*found.files, *named))


def _of_loss(loss: PrivacyLoss, delta: float | None, description: str | None) -> Evidence:
    if delta is None:
        raise ValueError("delta must be given for a loss, for example delta=1e-6")
    if description is None or not description.strip():
        raise ValueError(
            "description must say what was released, for example description='three noisy counts'; "
            f"got description={description!r}"
        )
    return Evidence(loss, validate.below_one(delta=delta), "loss", description)


def _of_run(source: object) -> Evidence:
    if isinstance(source, TrainingResult):
        return _of_result(source)
    if isinstance(source, str | os.PathLike):
        return _of_directory(RunDirectory(source))
    raise validate.WrongType(
        "a report is about a TrainingResult, the directory of a run, or a PrivacyLoss; got "
        f"{type(source).__name__}"
    )


def _of_result(result: TrainingResult) -> Evidence:
    return Evidence(
        result.loss,
        result.delta,
        "result",
        plan=result.plan,
        counted_steps=result.counted_steps,
        updates=result.steps,
        is_secure=result.is_secure,
        result=result,
        versions=_versions(getattr(result, "versions", None)),
        finished=_day(getattr(result, "finished", None)),
    )


def _of_directory(run: RunDirectory) -> Evidence:
    plan, ledger, ended = run.read_plan(), run.ledger, run.result
    history = RunHistory.read(ledger) if ledger.exists() else None
    result, recorded = _read_result(ended, plan) if ended.exists() else (None, "{}")
    if history is None and result is None:
        raise UnsoundConfiguration(
            f"the run in {str(run.path)!r} has neither a ledger nor a result, so that nobody knows "
            f"what it has spent; restore {ledger.name} from a copy"
        )
    checks = [] if result is None else ["`result.json` states what its own steps cost"]
    if history is not None:
        checks += [*_check_ledger(history, plan, result), *_check_hashes(run, history, result)]
        if result is not None:
            result = _counted_by(history, result)
    found_files = (run.plan, ledger, ended, run.checkpoint)
    files = tuple(FileHash.of(path) for path in found_files if path.exists())
    if result is not None:
        found = _of_result(result)
        if history is None or history.steps == json.loads(recorded)["counted_steps"]:
            found = replace(found, statement=recorded)
        said = json.loads(recorded)
        versions, finished = _versions(said.get("versions")), _day(said.get("finished"))
        found = replace(found, versions=versions, finished=finished)
    else:
        assert history is not None
        found = Evidence(
            history.loss,
            plan.delta,
            "run",
            plan=plan,
            counted_steps=history.steps,
        )
    return replace(found, kind="run", history=history, files=files, checks=tuple(checks))


def _versions(recorded: object) -> dict[str, str] | None:
    """Return recorded versions by package, None for anything else."""
    if not isinstance(recorded, Mapping) or not recorded:
        return None
    return {str(name)[:_LONGEST]: str(version)[:_LONGEST] for name, version in recorded.items()}


def _day(recorded: object) -> str | None:
    return recorded[:_LONGEST] if isinstance(recorded, str) and recorded else None


def _read_result(path: Path, plan: Plan) -> tuple[TrainingResult, str]:
    """Return the result of a run and its file, unless its numbers or its plan are not its own."""
    text = path.read_text(encoding="utf-8")
    result = TrainingResult.from_json(text)
    stated = _stated_epsilon(json.loads(text))
    if not result.epsilon.lower <= stated:
        raise UnsoundConfiguration(
            f"{os.fspath(path)!r} states epsilon={stated!r}, but its steps cost at least "
            f"{result.epsilon.lower!r}; it was changed by hand: restore it from a copy"
        )
    if result.plan != plan:
        raise UnsoundConfiguration(
            f"{os.fspath(path)!r} belongs to another plan than the plan.json beside it; restore "
            "both from a copy"
        )
    return result, text


def _stated_epsilon(data: dict[str, Any]) -> float:
    try:
        return float(data["epsilon"]["upper"])
    except (KeyError, TypeError, ValueError) as error:
        raise ValueError(f"malformed training result: {error!r}") from None


def _check_ledger(history: RunHistory, plan: Plan, result: TrainingResult | None) -> list[str]:
    """Return what holds between the ledger and the other files, or refuse."""
    if not history.segments or history.segments[-1].plan != plan:
        raise UnsoundConfiguration(
            "the ledger does not end with the plan of plan.json: they belong to different runs, "
            "or were changed by hand; restore both from a copy"
        )
    if result is None:
        return ["the ledger ends with the plan of `plan.json`"]
    if history.steps < result.counted_steps:
        raise UnsoundConfiguration(
            f"the ledger counts {history.steps} steps and result.json {result.counted_steps}: the "
            "ledger was cut off; restore it from a copy"
        )
    if history.steps > result.counted_steps:
        return ["the ledger counts more steps than `result.json`; the ledger is reported"]
    if history.loss != result.loss:
        raise UnsoundConfiguration(
            "result.json states another loss than the ledger beside it, for as many steps; restore "
            "both from a copy"
        )
    return ["ledger, plan and result agree on every step"]


def _check_hashes(
    run: RunDirectory, history: RunHistory, result: TrainingResult | None
) -> list[str]:
    """Return what the hashes of the ledger show, or refuse one that the result does not know."""
    if result is not None and result.ledger_hash is not None:
        if not RunHistory.passed(run.ledger, result.ledger_hash):
            raise UnsoundConfiguration(
                "no line of the ledger has the hash that result.json says it ends with: lines were "
                "changed since, or it is the ledger of another run; restore both from a copy"
            )
        return ["the lines of the ledger have the hashes that `result.json` knows"]
    if history.unhashed:
        return [f"the first {history.unhashed} lines of the ledger have no hashes"]
    return ["every line of the ledger follows from those before it by its hash"]


def _counted_by(history: RunHistory, result: TrainingResult) -> TrainingResult:
    """Return the result with the steps of the ledger, which may have gone on since."""
    if history.steps == result.counted_steps:
        return result
    counted = type(result).of(result.plan, history, steps=result.steps, is_secure=result.is_secure)
    return replace(counted, record=result.record)


def _first(parts: list[tuple[Plan, int]], steps: int) -> PrivacyLoss:
    """Return the loss of the first steps of several plans."""
    total, left = PrivacyLoss(), steps
    for plan, count in parts:
        taken = min(count, left)
        if taken:
            total, left = total + plan.loss_at(taken), left - taken
    return total
