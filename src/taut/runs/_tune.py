"""Searches from a file: trials in secret, one winner, one promise."""

from __future__ import annotations

import json
import math
import shutil
import warnings
from collections import Counter
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from taut._base.files import write_atomically
from taut.accounting import Ledger, PrivacyLoss, Trials
from taut.adaptive import Setting, Trial, Tuned, tune
from taut.errors import UnsoundConfiguration
from taut.noise import SeededForExperiments, discrete_gaussian_noise
from taut.runs._config import RunConfig
from taut.runs._data import read_data
from taut.runs._run import RunOutcome, prepare, resume, train
from taut.runs._tune_config import PlannedSearch, TuneConfig
from taut.training import RunDirectory

__all__ = ["TuningOutcome", "prepare_tuning", "tune_run", "tuning_options"]

_SHARE_ERROR = 1e-6  # rounding of a share of right answers, times up to 1e9 of them
_MEANS = (1.0, 2.0, 5.0, 10.0, 20.0)


@dataclass(frozen=True)
class TuningOutcome:
    """What came of a search.

    Attributes:
        tuned: the winner, with the loss of the search.
        directory: directory of the search: statement.json (the promise, for ``taut verify``),
            model.pt and winner.toml of the winner, tuning.json; ``private`` is for its owner alone.
        is_secure: whether all randomness came from a secure generator.
        scores: what trials were scored on, and what that cost, in a sentence.
    """

    tuned: Tuned
    directory: Path
    is_secure: bool
    scores: str = ""


def prepare_tuning(config: TuneConfig, *, allow_code: str | None = None) -> PlannedSearch:
    """Check every setting as `prepare` checks a run, and return what trials may cost.

    **Guarantee**: nothing is trained, released, counted or written.
    """
    search = config.planned(_examples(config))
    for setting in config.representatives:
        prepare(config.trial(setting, search.trial_epsilon), allow_code=allow_code)
    return search


def tuning_options(config: TuneConfig) -> list[tuple[Trials, float | None, float]]:
    """Return, for several expected numbers of trials, what each leaves to one trial.

    Rows hold the law, the epsilon of one trial under the promise for all, and the probability that
    a given setting is tried (not a number for spaces without an end).
    """
    size, rows = config.tune.axes.size, []
    for mean in sorted({*_MEANS, config.tune.trials}):
        shape = 0.0 if config.tune.law == "logarithmic" else 1.0
        law = Trials.poisson(mean)
        if config.tune.law != "poisson":
            law = Trials.negative_binomial(mean, shape)
        law = law if config.tune.cap is None else law.capped(config.tune.cap)
        search = config.planned(_examples(config), law)
        tried = math.nan if size is None else law.failure(1 / size)
        rows.append((law, search.trial_epsilon, tried))
    return rows


def tune_run(
    config: TuneConfig, *, allow_code: str | None = None, ledger: Ledger | None = None
) -> TuningOutcome:
    """Search as a file says, or go on with that search, and keep the winner.

    Args:
        config: configuration from `TuneConfig.from_toml`.
        allow_code: modules that may be imported, as of `train`.
        ledger: who keeps the budget, such as a `taut.accounting.BudgetFile`, as of
            `taut.adaptive.tune`.

    **Guarantee**: that of `taut.adaptive.tune`, with the promise of ``[plan]``: statement.json has
    it, is written before the first trial, and covers setting, score and model of the winner. A
    search that was killed goes on with the same number of trials and settings; runs that were
    interrupted go on from their checkpoints. A trial of which more steps count than were planned,
    after a crash, has the worst score, and nothing of it is published.

    Raises:
        ValueError: if parts of the configuration do not fit together, or the directory holds
            another search.
        BudgetExceeded: if the ledger refuses; nothing is tried then.
        UnsoundConfiguration: if no theorem covers what is asked for, if the number of examples has
            changed since the search began, or the examples of a trial that was interrupted, or if
            its memory was lost. Trials that begin later take other examples as they are.
        InfeasibleBudget: if no noise of use keeps the promise.
        RunInUse: if another process searches there.
    """
    directory, plan = config.directory, config.base.plan
    assert plan.delta is not None
    search = prepare_tuning(config, allow_code=allow_code)
    _begin(config, directory)
    seed = config.base.training.seed
    promise = _Promise.of(search.loss, plan.delta, directory, is_secure=seed is None)

    def trial(setting: Setting) -> Trial:
        promise.write()  # not before: the directory may hold another search
        return _trial(config, search, setting, allow_code)

    tuned = tune(
        trial,
        config.tune.axes,
        loss=_loss(config, search),
        trials=config.tune.number,
        delta=plan.delta,
        score_is_public=True,  # where it is not, the noise of scores is in the losses
        directory=directory / "private",
        ledger=ledger,
        generator=None if seed is None else SeededForExperiments(seed),
    )
    promise.write()
    _publish(tuned, directory, config.scores, is_secure=seed is None)
    return TuningOutcome(tuned, directory, seed is None, config.scores)


@dataclass(frozen=True)
class _Promise:
    """The promise of a search and its file, for ``taut verify``."""

    text: str
    path: Path

    @classmethod
    def of(cls, loss: PrivacyLoss, delta: float, directory: Path, *, is_secure: bool) -> _Promise:
        """Return what is spent once a trial begins, whatever happens."""
        epsilon = loss.epsilon_bounds(delta)
        promise = {
            "epsilon": {"lower": epsilon.lower, "upper": epsilon.upper},
            "delta": delta,
            "adjacency": str(loss.adjacency),
            "loss": loss.to_dict(),
            "is_secure": is_secure,
        }
        return cls(json.dumps(promise, indent=2), directory / "statement.json")

    def write(self) -> None:
        """Write the file.

        Raises:
            UnsoundConfiguration: if it cannot be written.
        """
        try:
            write_atomically(self.path, self.text)
        except OSError as error:
            # Of another class, a trial would take it for one of its own failures, and go on.
            raise UnsoundConfiguration(
                f"{self.path} cannot be written, and no trial is made without it: {error}"
            ) from error


def _loss(config: TuneConfig, search: PlannedSearch) -> Any:
    """Return the loss of a trial, or a function of its setting."""
    losses = set(search.losses.values())
    if len(losses) == 1:
        return losses.pop()
    return lambda setting: search.losses[config.plan_key(setting)]


def _examples(config: TuneConfig) -> int:
    base = config.base
    examples, held_out = read_data(
        base.data,
        base.data_path,
        base.validation_path,
        classes=base.training.loss == "cross_entropy",
    )
    if held_out is None:
        raise ValueError(
            "[data] needs x_test and y_test, or validation, a file of their own: they score the "
            "trials"
        )
    return len(examples)


def _begin(config: TuneConfig, directory: Path) -> None:
    """Write the file beside the search, or refuse another one."""
    directory.mkdir(parents=True, exist_ok=True)
    copy = directory / "tuning.toml"
    if not copy.exists():
        others = [path.name for path in RunDirectory(directory).begun if path.exists()]
        if others:
            raise ValueError(f"{directory} already holds a run ({others[0]}); choose another")
        write_atomically(copy, config.text)
    elif copy.read_text(encoding="utf-8") != config.text:
        raise ValueError(
            f"{directory} holds a search from another file (tuning.toml), whose trials are spent; "
            "undo the change, or choose another [run] directory"
        )
    memory = directory / "private" / "search.json"
    if (directory / "statement.json").exists() and not memory.exists():
        raise UnsoundConfiguration(
            f"{directory} holds the statement of a search, and {memory} is gone: trials would be "
            "made once more, which that statement does not cover. Restore it, or choose another "
            "[run] directory, whose loss adds up with this one"
        )


def _trial(
    config: TuneConfig, search: PlannedSearch, setting: Setting, allow_code: str | None
) -> Trial:
    """Train with a setting, or go on with that; what is shown would tell how many there are."""
    assert setting.directory is not None
    run = config.trial(setting, search.trial_epsilon, setting.directory / "run")
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        if RunDirectory(run.directory).config.exists():
            outcome = resume(run.directory, allow_code=allow_code, progress=False)
        else:
            outcome = train(run, allow_code=allow_code, progress=False)
    planned = search.losses[config.plan_key(setting)]
    extra = config.score_loss(planned)
    spent = outcome.result.loss if extra is None else outcome.result.loss + extra
    if not _within(spent, planned):
        # Nothing but the number of steps decides this, so that it tells nothing about the data.
        raise ValueError("a crash made more steps count than were planned")
    return Trial(_score(outcome, config.tune.score_noise), spent)


def _within(spent: PrivacyLoss, planned: PrivacyLoss) -> bool:
    most = Counter(dict(planned.terms))
    return all(count <= most[release] for release, count in spent.terms)


def _score(outcome: RunOutcome, noise: float | None) -> float:
    """Return the number of right answers, with noise for private examples; or minus the loss."""
    evaluation = outcome.evaluation
    assert evaluation is not None
    if evaluation.accuracy is None:
        if noise is not None:
            raise UnsoundConfiguration(
                "noise for scores is for classes, whose right answers can be counted; other losses "
                "have no bound: use public validation examples"
            )
        return -evaluation.loss
    if noise is None:
        return evaluation.accuracy
    # Of an example with several labels a share is right: rounding half up or down could make two
    # of a change by one, which rounding down does not.
    right = math.floor(evaluation.accuracy * evaluation.examples + _SHARE_ERROR)
    return (right + int(discrete_gaussian_noise(noise)[0])) / evaluation.examples


def _publish(tuned: Tuned, directory: Path, scores: str, *, is_secure: bool) -> None:
    """Put what may be published in the directory: no result of a single run."""
    won = directory / "private" / "winner" / "run"
    if tuned.setting is not None and won.exists():
        temporary = directory / "model.pt.part"
        shutil.copyfile(won / "model.pt", temporary)
        temporary.replace(directory / "model.pt")
        # Under its own name a configuration would let a run go on here that was never begun.
        config = RunConfig.from_toml(won / "config.toml").moved(directory)
        write_atomically(directory / "winner.toml", config.to_toml())
    summary = {**_summary(tuned, scores), "is_secure": is_secure}
    write_atomically(directory / "tuning.json", json.dumps(summary, indent=2))


def _summary(tuned: Tuned, scores: str) -> Mapping[str, Any]:
    return {
        "schema": "taut.tuning/1",
        "winner": None if tuned.setting is None else dict(tuned.setting),
        "score": None if tuned.setting is None else tuned.score,
        "epsilon": {"lower": tuned.epsilon.lower, "upper": tuned.epsilon.upper},
        "delta": tuned.delta,
        "adjacency": str(tuned.loss.adjacency),
        "hidden_by_the_winner_alone": tuned.own_epsilon.upper,
        "trials": str(tuned.trials),
        "scores": scores,
    }
