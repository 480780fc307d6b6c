"""The best of several private trials, published with the loss of all of them."""

from __future__ import annotations

import math
import os
from collections import Counter
from collections.abc import Callable, Mapping
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any, SupportsFloat
from weakref import WeakKeyDictionary

from taut._base import validate
from taut._base.rounding import round_down, round_up
from taut.accounting import Bounds, Ledger, PrivacyFilter, PrivacyLoss, Trials, best_of, charge
from taut.adaptive._selection.private_state import PrivateState
from taut.adaptive._selection.space import Setting, Space
from taut.errors import UnsoundConfiguration
from taut.noise import RandomSource, SeededForExperiments, default_generator

__all__ = ["Trial", "Tuned", "tune"]

# Directories of the searches that filters have paid for. They live in memory: one that was made
# later, or in another process, knows nothing of what the files say is charged.
_PAID: WeakKeyDictionary[PrivacyFilter, set[Path]] = WeakKeyDictionary()


@dataclass(frozen=True)
class Trial:
    """What one trial ends with.

    Attributes:
        score: how good it is; the largest wins. Not a number counts as the worst.
        loss: privacy loss of the trial, its score included if that looked at private data.
        output: what is published if the trial wins, such as a model. A search that keeps files
            needs something that JSON can hold, such as the name of a file in the directory of the
            trial, which is the folder ``winner`` of the search's directory in the end.
    """

    score: float
    loss: PrivacyLoss
    output: Any = None


@dataclass(frozen=True)
class Tuned:
    """The winner of a search, with what the whole search costs.

    Attributes:
        setting: values of the winner; None if no trial had a score.
        score: score of the winner, which may be published.
        output: output of the winner.
        loss: privacy loss of the search: publish this one.
        epsilon: certified bounds at `delta` for the search.
        own_epsilon: what the winner alone would cost: it hides that others were tried.
        delta: probability delta of the promise.
        trials: law of the number of trials; the number itself is secret.
        is_secure: whether the search drew from the secure generator; of trials it says nothing.

    **Guarantee**: `loss` covers setting, score and output of the winner, under `loss.adjacency`,
    if every trial kept its own loss (see `tune`). How many trials there were, their scores and
    how long they took is not covered.
    """

    setting: Mapping[str, Any] | None
    score: float
    output: Any
    loss: PrivacyLoss
    epsilon: Bounds
    own_epsilon: Bounds
    delta: float
    trials: Trials
    is_secure: bool = True

    @property
    def is_free(self) -> bool:
        """Whether trials cost nothing, because they looked at public data alone."""
        return not self.loss.terms

    @property
    def statement(self) -> dict[str, Any]:
        """The promise, for `taut.audit.verify_statement` and ``taut verify``."""
        return {
            "epsilon": {"lower": self.epsilon.lower, "upper": self.epsilon.upper},
            "delta": self.delta,
            "adjacency": str(self.loss.adjacency),
            "loss": self.loss.to_dict(),
            "is_secure": self.is_secure,
        }

    def __str__(self) -> str:
        """Return a few lines for people."""
        if self.is_free:
            return (
                f"winner {dict(self.setting or {})}: the trials looked at public data alone, and "
                "cost nothing"
            )
        who = (
            "no trial had a score: call run by hand to see why"
            if self.setting is None
            else f"winner {dict(self.setting)}"
        )
        return (
            f"{who}\n"
            f"epsilon <= {round_up(self.epsilon.upper, 4)} at delta = {self.delta:g} for the "
            f"search (certified; at least {round_down(self.epsilon.lower, 4)})\n"
            f"the winner alone: {round_up(self.own_epsilon.upper, 4)}, which would hide the "
            f"search ({self.trials})"
        )


def tune(
    run: Callable[[Setting], Trial],
    space: Space | Mapping[str, Any],
    *,
    loss: PrivacyLoss | Callable[[Mapping[str, Any]], PrivacyLoss],
    trials: Trials,
    delta: float,
    score_is_public: bool,
    score_loss: PrivacyLoss | None = None,
    directory: str | os.PathLike[str] | None = None,
    ledger: Ledger | None = None,
    generator: RandomSource | None = None,
) -> Tuned:
    """Try settings at random, a secret number of times, and return the best with its total loss.

    Args:
        run: trains with a setting, and returns a `Trial`. Whatever it does, fails or returns must
            be covered by its loss. An exception, or a score that is no number, is the worst score;
            the budget is spent.
        space: public space of settings, each trial draws one uniformly.
        loss: privacy loss of one trial, or a function of the setting that gives it. It must not
            depend on the data.
        trials: law of the number of trials, such as ``Trials.logarithmic(10)``.
        delta: probability delta of the promise.
        score_is_public: whether scores are computed from a trial's output and public data alone.
            Scores on private data are not free: each of them needs noise, and a ``score_loss``.
        score_loss: loss of one score, added to that of every trial.
        directory: private directory that lets a search go on after a kill; the number of trials is
            not drawn again, and a trial that was interrupted begins again among its own files.
            Those of the winner are in its folder ``winner`` in the end, those of others are gone.
        ledger: who keeps the budget, such as a `taut.accounting.BudgetFile`; it is charged with the
            loss of the search before the first trial, and not again when the search goes on;
            or when it goes on, if it was begun without one. A `PrivacyFilter` lives in memory: one
            that was made since is charged, too.
        generator: source of bits; the secure one by default.

    **Guarantee**: that of `taut.accounting.best_of` for setting, score and output of the winner.
    A kill must come from outside: a program that dies of what it sees in the data, and is begun
    again until it does not, tells about them. Whoever sees files or the clock sees how many trials
    there were: keep both to yourself until the search has ended. What is free: choosing the space,
    and trials on public data alone. What is not: every run on private data, whatever its score is
    computed on.

    Raises:
        BudgetExceeded: if the ledger refuses; nothing is drawn or tried then.
        UnsoundConfiguration: if a trial costs more than was planned, if scores look at private
            data without a loss, or if the directory holds another search.
        RunInUse: if another process searches in the directory.

    Example:
        >>> import taut
        >>> from taut.accounting import Trials
        >>> from taut.adaptive import Trial, tune
        >>> cost = taut.gaussian(sigma=2.0)
        >>> found = tune(
        ...     lambda setting: Trial(score=-abs(setting["rate"] - 0.3), loss=cost),
        ...     {"rate": [0.1, 0.3, 1.0]},
        ...     loss=cost, trials=Trials.geometric(5), delta=1e-6, score_is_public=True,
        ... )
        >>> found.epsilon.upper > found.own_epsilon.upper
        True
    """
    place = Path(directory) if directory is not None else None
    room = (space if isinstance(space, Space) else Space(space)).checked(plain=place is not None)
    level = validate.below_one(delta=delta)
    extra = _score_loss(score_is_public, score_loss)
    costs = _Costs(room, loss, extra)
    total = best_of(costs.all, trials)
    bits = default_generator() if generator is None else generator
    payer = ledger if total.terms else None  # public data cost nothing
    state = PrivateState(place, _identity(room, total, level))
    with state.opened():
        best = state.winner
        if best is None and not state.has_begun:
            charge(payer, total)
            secure = not isinstance(bits, SeededForExperiments)
            drawn = _drawn(room, trials, bits)
            state.begin(drawn, is_secure=secure, is_charged=payer is not None)
        elif payer is not None and not (state.is_charged and _remembers(payer, place)):
            charge(payer, total)
            state.charged()
        if isinstance(payer, PrivacyFilter) and place is not None:
            _PAID.setdefault(payer, set()).add(place.resolve())
        if best is None:
            for number, values in state.left:
                state.ended(number, _tried(run, values, state.place(), costs))
            best = state.finish()
        return replace(_found(best, costs, total, level, trials), is_secure=state.is_secure)


class _Costs:
    """What trials may cost, setting by setting."""

    def __init__(
        self,
        space: Space,
        loss: PrivacyLoss | Callable[[Mapping[str, Any]], PrivacyLoss],
        extra: PrivacyLoss | None,
    ) -> None:
        self._loss, self._extra = loss, extra
        if isinstance(loss, PrivacyLoss):
            self.all = [self._with_score(loss)]
        elif space.size is None:
            raise UnsoundConfiguration(
                "a space with a Range has no end of settings, whose losses cannot all be known; "
                "give one loss that every trial keeps, or lists of values"
            )
        else:
            self.all = [self.of(setting) for setting in space.settings]

    def of(self, setting: Mapping[str, Any]) -> PrivacyLoss:
        """Return what a trial may cost."""
        loss = self._loss if isinstance(self._loss, PrivacyLoss) else self._loss(setting)
        if not isinstance(loss, PrivacyLoss):
            raise TypeError(f"loss must give a PrivacyLoss for every setting, got {loss!r}")
        return self._with_score(loss)

    def _with_score(self, loss: PrivacyLoss) -> PrivacyLoss:
        return loss if self._extra is None else loss + self._extra

    def check(self, setting: Mapping[str, Any], spent: PrivacyLoss) -> None:
        """Refuse a trial that cost more: other releases, or more of them."""
        planned = self.of(setting)
        if not isinstance(spent, PrivacyLoss):
            raise TypeError("a trial must return its loss, a PrivacyLoss")
        whole = self._with_score(spent)
        most = Counter(dict(planned.terms))
        fits = all(count <= most[release] for release, count in whole.terms)
        if not fits or (whole.terms and whole.adjacency is not planned.adjacency):
            raise UnsoundConfiguration(
                f"a trial cost {spent!r}, more than, or something else than, the planned "
                f"{planned!r}: the promise of the search is void; plan with the loss that trials "
                "have"
            )


def _remembers(ledger: Ledger, place: Path | None) -> bool:
    """Return whether a ledger still knows of a search that the files say is charged."""
    if not isinstance(ledger, PrivacyFilter) or place is None:
        return True
    return place.resolve() in _PAID.get(ledger, ())


def _score_loss(is_public: bool, loss: PrivacyLoss | None) -> PrivacyLoss | None:
    if not isinstance(is_public, bool):
        raise TypeError(f"score_is_public must be True or False, got {is_public!r}")
    if is_public and loss is not None:
        raise ValueError("score_loss is for scores that look at private data; leave it out")
    if not is_public and (loss is None or not loss.terms):
        raise UnsoundConfiguration(
            "scores that look at private data tell about them: add noise to every score inside of "
            "the trial and give its loss as score_loss=..., or score on public data and say so "
            "with score_is_public=True"
        )
    return loss


def _identity(space: Space, total: PrivacyLoss, delta: float) -> dict[str, Any]:
    """Return what makes a search another one."""
    return {"space": repr(dict(space.axes)), "loss": total.to_dict(), "delta": delta}


def _drawn(space: Space, trials: Trials, bits: RandomSource) -> list[dict[str, Any]]:
    """Return the settings of all trials: their number is the secret."""
    count = trials.draw(lambda n: int.from_bytes(bits.bytes(n // 8), "big"))
    return [space.draw(bits) for _ in range(count)]


def _tried(
    run: Callable[[Setting], Trial], drawn: dict[str, Any], place: Path | None, costs: _Costs
) -> dict[str, Any]:
    """Return what is kept of one trial, whose setting is the one that was drawn."""
    setting = Setting(drawn, place)
    try:
        trial = run(setting)
    except UnsoundConfiguration:
        raise
    except Exception:  # whatever goes wrong may depend on the data, and is not shown
        return {"score": -math.inf, "setting": drawn, "output": None}
    if not isinstance(trial, Trial):
        raise TypeError(f"run must return a Trial, got {type(trial).__name__}")
    costs.check(drawn, trial.loss)
    score = _number(trial.score)
    if not score > -math.inf:
        return {"score": -math.inf, "setting": drawn, "output": None}
    if place is not None and not _is_plain(trial.output):
        raise TypeError(
            "a search that keeps files needs outputs that JSON can hold; write the model to "
            "setting.directory, and return its name"
        )
    return {"score": score, "setting": drawn, "output": trial.output}


def _number(score: object) -> float:
    """Return a score, or none where it is no number; arrays and tensors of one number are one."""
    if not isinstance(score, SupportsFloat):
        return math.nan
    try:
        return float(score)
    except Exception:  # of several numbers, or too large: which may depend on the data
        return math.nan


def _is_plain(value: Any) -> bool:
    if isinstance(value, Mapping):
        return all(isinstance(key, str) and _is_plain(item) for key, item in value.items())
    if isinstance(value, list):
        return all(_is_plain(item) for item in value)
    return value is None or isinstance(value, bool | int | float | str)


def _found(
    best: dict[str, Any] | None, costs: _Costs, total: PrivacyLoss, delta: float, trials: Trials
) -> Tuned:
    """Return the winner; without one the total is spent all the same."""
    won = bool(best) and best is not None and best["score"] > -math.inf
    alone = costs.of(best["setting"]) if won and best is not None else costs.all[0]
    return Tuned(
        setting=best["setting"] if won and best is not None else None,
        score=best["score"] if won and best is not None else -math.inf,
        output=best["output"] if won and best is not None else None,
        loss=total,
        epsilon=total.epsilon_bounds(delta),
        own_epsilon=alone.epsilon_bounds(delta),
        delta=delta,
        trials=trials,
    )
