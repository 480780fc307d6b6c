"""A search as a file: a run's sections, and one more that says what is tried."""

from __future__ import annotations

import copy
import math
import os
import tomllib
from collections.abc import Mapping
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any

from taut._base import validate
from taut._base.files import text_of_file
from taut.accounting import PrivacyLoss, Trials, best_of, discrete_gaussian
from taut.adaptive import Range, Space
from taut.errors import InfeasibleBudget, UnsoundConfiguration
from taut.runs._config import RunConfig
from taut.runs._tables import mistakes_in, read_table

__all__ = ["PlannedSearch", "TuneConfig", "TuneSection"]

_LAWS = {"geometric": 1.0, "logarithmic": 0.0}
_MOST_SETTINGS = 400  # each is a configuration that is checked before anything is spent
_FIRST_SHARE = 0.7  # of the promise for one trial, where the search for that share begins
_CLOSE = 0.995  # of the promise: more of it would hardly lower the noise
_MOST_ROUNDS = 12  # of that search, of which three are usual
_SECTIONS = ("model", "plan", "training")
# Keys that no setting may have, and why.
_NOT_TRIED = {
    "plan.epsilon": "it is the promise for all trials",
    "plan.delta": "it is that of the promise for all trials",
    "training.seed": "a seed that is published with the winner tells all of its noise",
}
_HEADROOM = 0.9999  # below the promise, so that the last round does not miss it by rounding


@dataclass(frozen=True, kw_only=True)
class TuneSection:
    """What is tried, and how often.

    Attributes:
        space: values by key, such as ``"training.learning_rate" = [0.1, 0.5]``; or bounds,
            ``{low = 0.01, high = 1.0, log = true}``.
        validation: "public" if the examples that score trials are public; "private" if they are to
            be protected too, but for their number. They are those of ``[data] validation``, a file
            of their own, or x_test and y_test.
        score_noise: deviation of the noise on the number of right answers, for private ones.
        trials: expected number of trials.
        law: how the number is drawn: "logarithmic" costs less, "geometric" has fewer single trials,
            "poisson" is nearest to a fixed number, and costs most.
        cap: most trials that are made.
    """

    space: dict[str, Any]
    validation: str = field(metadata={"choices": ("public", "private")})
    score_noise: float | None = None
    trials: float = 10.0
    law: str = field(
        default="logarithmic", metadata={"choices": ("geometric", "logarithmic", "poisson")}
    )
    cap: int | None = None

    def __post_init__(self) -> None:
        validate.positive(trials=self.trials)
        _ = self.number, self.axes
        if self.validation == "private" and self.score_noise is None:
            raise ValueError(
                "validation = 'private' needs score_noise, the noise on the number of right "
                "answers: scores on private examples are not free"
            )
        if self.validation == "public" and self.score_noise is not None:
            raise ValueError("score_noise is for validation = 'private'; leave it out")
        if self.score_noise is not None:
            validate.positive(score_noise=self.score_noise)

    @property
    def number(self) -> Trials:
        """The law of the number of trials."""
        if self.law == "poisson":
            law = Trials.poisson(self.trials)
        else:
            law = Trials.negative_binomial(self.trials, _LAWS[self.law])
        return law if self.cap is None else law.capped(self.cap)

    @property
    def axes(self) -> Space:
        """The space, with bounds as ranges."""
        if not self.space:
            raise ValueError(
                'space is empty: list what is tried, such as "training.learning_rate" = [0.1, 1.0]'
            )
        axes = {}
        for key, values in self.space.items():
            section, _, rest = key.partition(".")
            if section not in _SECTIONS or not rest:
                raise ValueError(
                    f"space has the key {key!r}; keys are those of {', '.join(_SECTIONS)}, in "
                    'quotes if there is a dot: "training.learning_rate" = [0.1, 1.0]'
                )
            if key in _NOT_TRIED:
                raise ValueError(f"space may not have the key {key!r}: {_NOT_TRIED[key]}")
            axes[key] = values
            if not isinstance(values, Mapping | list):
                raise ValueError(
                    f"space {key!r} must be a list of values or, for [training], "
                    f"{{low = ..., high = ...}}, got {values!r}"
                )
            if isinstance(values, Mapping):
                axes[key] = read_table(Range, values, f"space {key!r}")
                if section != "training":
                    raise ValueError(
                        f"space {key!r}: bounds are for [training], which costs nothing; list the "
                        f"values of [{section}]"
                    )
        space = Space(axes)
        if space.size is not None and space.size > _MOST_SETTINGS:
            raise ValueError(f"space may have {_MOST_SETTINGS} settings, got {space.size}")
        return space


@dataclass(frozen=True)
class PlannedSearch:
    """What trials may cost, under one promise for all of them.

    Attributes:
        trial_epsilon: promise of one trial by itself; None if settings fix their noise.
        losses: loss of a trial by what its plan says.
        loss: loss of the search.
    """

    trial_epsilon: float | None
    losses: Mapping[str, PrivacyLoss]
    loss: PrivacyLoss


@dataclass(frozen=True)
class TuneConfig:
    """Everything that `tune_run` needs: a run whose ``[plan]`` has the promise of all trials.

    Attributes:
        tables: the sections of a run, as TOML has them.
        tune: what is tried.
        home: the directory that relative paths start from.
        text: the file.
    """

    tables: Mapping[str, Any]
    tune: TuneSection
    home: Path
    text: str

    @classmethod
    def from_toml(cls, path: str | os.PathLike[str]) -> TuneConfig:
        """Return the search in a file; every setting of its space is checked.

        Raises:
            ValueError: for a file that is no TOML, unknown or missing keys, values of the wrong
                type or out of their range, in any setting.
            OSError: if the file cannot be read.
        """
        file = Path(path)
        with mistakes_in(file):
            text = text_of_file(file, "what to try")
            tables = tomllib.loads(text)
            if "tune" not in tables:
                raise ValueError(
                    "the section [tune] is missing; add it with validation and a [tune.space], "
                    "or begin a single run with taut train"
                )
            tune = read_table(TuneSection, tables.pop("tune"), "[tune]")
            config = cls(tables, tune, file.parent, text)
            config.check()
        return config

    def check(self) -> None:
        """Refuse a file of which a setting could not be trained."""
        base = self.base
        if base.plan.epsilon is None or base.plan.delta is None:
            raise ValueError("[plan] needs epsilon and delta: the promise for the whole search")
        losses = set()
        for setting in self.representatives:
            trial = self.trial(setting, base.plan.epsilon)
            losses.add(trial.training.loss)
            if self.tune.score_noise is not None and trial.training.loss != "cross_entropy":
                raise ValueError(
                    "[tune] score_noise is for classes, whose right answers can be counted, got "
                    f"[training] loss = {trial.training.loss!r}: one example may change such a "
                    "score by any amount; use public validation examples"
                )
        if len(losses) > 1:
            raise ValueError(
                f"[tune] space has [training] loss = {', '.join(map(repr, sorted(losses)))}, whose "
                "scores are not comparable: the share of right answers for cross_entropy, minus "
                "the loss for others; choose one of them before the search"
            )

    @property
    def base(self) -> RunConfig:
        """The run without any change."""
        return RunConfig._of(self.tables, self.home)

    @property
    def directory(self) -> Path:
        """Where the search keeps its files."""
        return self.base.directory

    @property
    def scores(self) -> str:
        """What trials are scored on, and what that costs."""
        validation = self.base.data.validation
        where = "x_test, y_test" if validation is None else validation
        if self.tune.score_noise is None:
            return f"on public examples ({where}), which is free"
        return (
            f"on private examples ({where}), with noise of deviation {self.tune.score_noise:g} on "
            "right answers, paid for in every trial"
        )

    @property
    def representatives(self) -> list[dict[str, Any]]:
        """All settings, with one value in place of bounds."""
        axes = {
            key: [values.low] if isinstance(values, Range) else values
            for key, values in self.tune.axes.axes.items()
        }
        return Space(axes).settings

    def trial(
        self, setting: Mapping[str, Any], epsilon: float | None, directory: Path | None = None
    ) -> RunConfig:
        """Return the run of one setting.

        Args:
            setting: values by key.
            epsilon: promise of the trial by itself, unless the setting fixes the noise.
            directory: where the trial keeps its files.
        """
        tables = copy.deepcopy(dict(self.tables))
        if any(key.startswith("plan.clipping.") for key in setting):
            tables["plan"].setdefault("clipping", dict(self.base.plan.clipping))
        for key, value in setting.items():
            *path, last = key.split(".")
            table = tables
            for name in path:
                table = table.setdefault(name, {})
                if not isinstance(table, dict):
                    raise ValueError(f"[tune] space {key!r}: {name!r} is no table")
            table[last] = value
        fixed = "noise_multiplier" in tables["plan"]
        tables["plan"] = {**tables["plan"], "epsilon": epsilon}
        if fixed:
            del tables["plan"]["epsilon"]
        config = RunConfig._of(tables, self.home)
        if directory is not None:
            config = replace(
                config, run=replace(config.run, directory=directory.resolve().as_posix())
            )
        return config

    def planned(self, examples: int, trials: Trials | None = None) -> PlannedSearch:
        """Return what trials may cost, so that the search keeps its promise.

        Args:
            examples: how many there are.
            trials: another law of the number of trials.

        Raises:
            InfeasibleBudget: if no noise of use keeps the promise.
        """
        plan, law = self.base.plan, trials or self.tune.number
        assert plan.epsilon is not None
        assert plan.delta is not None
        share, best, total = _FIRST_SHARE * plan.epsilon, None, math.inf
        before: dict[str, PrivacyLoss] = {}
        for _ in range(_MOST_ROUNDS):
            losses = self._losses(share, examples)
            if losses == before:  # settings fix their noise, and no share changes anything
                break
            before = losses
            loss = best_of([losses[self.plan_key(s)] for s in self.representatives], law)
            total = loss.epsilon(plan.delta)
            if total <= plan.epsilon:
                trials_of = (self.trial(s, share) for s in self.representatives)
                fixed = all(trial.plan.epsilon is None for trial in trials_of)
                best = PlannedSearch(None if fixed else share, losses, loss)
                if fixed or total >= _CLOSE * plan.epsilon:
                    break
            # Bounds on one trial may be less sharp than those on all of them: a share above the
            # promise would be shown as what one of them costs.
            share *= plan.epsilon / total * _HEADROOM if total > 0 else 1.0
            share = min(share, plan.epsilon)
        if best is None:
            raise InfeasibleBudget(
                f"[plan] epsilon = {plan.epsilon:g} is less than {law.expected:g} expected trials "
                f"cost ({total:.4g}); give more noise, or fewer trials"
            )
        return best

    def plan_key(self, setting: Mapping[str, Any]) -> str:
        """Return what of a setting decides about its loss."""
        chosen = {key: value for key, value in setting.items() if key.startswith("plan.")}
        return repr(sorted(chosen.items()))

    def _losses(self, epsilon: float, examples: int) -> dict[str, PrivacyLoss]:
        losses: dict[str, PrivacyLoss] = {}
        for setting in self.representatives:
            key = self.plan_key(setting)
            if key not in losses:
                loss = self.trial(setting, epsilon).plan.plan(examples).loss
                extra = self.score_loss(loss)
                losses[key] = loss if extra is None else loss + extra
        adjacencies = {loss.adjacency for loss in losses.values()}
        if len(adjacencies) > 1:
            raise UnsoundConfiguration(
                f"samplers of the space are for different neighbours ({', '.join(adjacencies)}), "
                "which one promise cannot cover; search among those of one"
            )
        if self.tune.axes.size is None and len(set(losses.values())) > 1:
            raise UnsoundConfiguration(
                "[tune] space has bounds, and values of [plan] whose losses differ; list values "
                "instead of bounds, or search with one loss"
            )
        return losses

    def score_loss(self, loss: PrivacyLoss) -> PrivacyLoss | None:
        """Return what a score on private examples costs: one of them changes the count by one."""
        noise = self.tune.score_noise
        return None if noise is None else discrete_gaussian(noise, 1, adjacency=loss.adjacency)
