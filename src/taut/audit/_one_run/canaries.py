"""Canaries of one run: coins tossed before training, and scores that only one-run audits accept."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
from numpy.typing import ArrayLike, NDArray

from taut._base import validate
from taut.noise import RandomSource, default_generator

__all__ = ["OneRunScores", "RunCanaries"]

_FEWEST = 20  # canaries: with fewer not even all guesses right would refute an epsilon of one


@dataclass(frozen=True, eq=False)
class OneRunScores:
    """How strongly one run speaks for each canary, beside the coins that decided about them.

    Scores of one run share its randomness: functions for many runs refuse them, and those for one
    run accept nothing else. They are made by :meth:`RunCanaries.scored`.

    Attributes:
        values: score of every canary, of shape (canaries,); larger speaks for inclusion.
        included: whether the coin put it into the data, of the same shape.
        log_odds: whether values estimate the log odds of inclusion, and not only their order.
    """

    values: NDArray[np.float64]
    included: NDArray[np.bool_]
    log_odds: bool = False

    def __array__(self, *_: object, **__: object) -> NDArray[np.float64]:
        raise validate.WrongType(
            "scores of one run are not runs: they depend on each other; give them to audit_one_run"
        )


@dataclass(frozen=True, eq=False)
class RunCanaries:
    """Canaries that are in the training data of one run or not, each by a fair coin of its own.

    Attributes:
        included: whether a canary is in the data, of shape (canaries,); nothing that trains or
            scores may look at it in another way than by training on those that are.

    **Guarantee**: coins are fair and independent of each other, and tossed before training: made
    by :meth:`tossed`, canaries are exchangeable, whatever they are.

    Example:
        >>> from taut.audit import RunCanaries, audit_one_run
        >>> from taut.noise import SeededForExperiments
        >>> canaries = RunCanaries.tossed(400, SeededForExperiments(0))
        >>> scores = canaries.included + 0.0  # a model that gives all of them away
        >>> result = audit_one_run(canaries.scored(scores), delta=1e-5)
        >>> result.correct, result.epsilon_lower > 2
        (40, True)
    """

    included: NDArray[np.bool_]

    @classmethod
    def tossed(cls, count: int, generator: RandomSource | None = None) -> RunCanaries:
        """Return canaries whose coins were tossed just now.

        Args:
            count: number of canaries.
            generator: source of coins, by default the secure generator.

        Raises:
            ValueError: for too few of them.
        """
        number = validate.positive_integer(count=count)
        if number < _FEWEST:
            raise ValueError(f"count must be at least {_FEWEST} canaries, got count={count!r}")
        source = default_generator() if generator is None else generator
        words = np.asarray(source.integers_u64(number), dtype=np.uint64)
        included = (words >> np.uint64(63)).astype(np.bool_)
        included.setflags(write=False)
        return cls(included)

    def __len__(self) -> int:
        return len(self.included)

    def scored(self, values: ArrayLike, *, log_odds: bool = False) -> OneRunScores:
        """Return scores of these canaries, for :func:`audit_one_run`.

        Args:
            values: score of every canary, of shape (canaries,), computed without its coin; larger
                speaks for inclusion.
            log_odds: whether a value estimates the logarithm of the odds that its canary is in, as
                sums of log likelihood ratios do; guesses are then weighted by it. No statement
                depends on how good the estimate is.

        Raises:
            ValueError: for another shape, or scores that are not finite.
        """
        scores = np.array(values, dtype=np.float64)
        if scores.shape != self.included.shape or not np.isfinite(scores).all():
            raise ValueError(
                f"values must be one finite number for each of {len(self)} canaries, got shape "
                f"{scores.shape}"
            )
        return OneRunScores(scores, self.included, bool(log_odds))
