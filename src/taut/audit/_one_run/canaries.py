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
        signs: sign that each canary of :meth:`RunCanaries.tossed` has or would have, None if they
            have none; `values` are those for this sign.
        by_sign: log odds of inclusion with the signs +1 and -1, of shape (canaries, 2), or None.
    """

    values: NDArray[np.float64]
    included: NDArray[np.bool_]
    log_odds: bool = False
    signs: NDArray[np.int64] | None = None
    by_sign: NDArray[np.float64] | None = None

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
        signs: +1 or -1 for every canary, by a coin of its own, None if they have no sign; one that
            is included is a gradient in this direction, and nothing may look at it otherwise.

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
    signs: NDArray[np.int64] | None = None

    @classmethod
    def tossed(
        cls, count: int, generator: RandomSource | None = None, *, signed: bool = False
    ) -> RunCanaries:
        """Return canaries whose coins were tossed just now.

        Args:
            count: number of canaries.
            generator: source of coins, by default the secure generator.
            signed: whether a second coin gives each canary a sign. An attacker then has to tell
                three cases apart, of which two differ by twice a record, and proves more.

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
        validate.instance(bool, signed=signed)
        if not signed:
            return cls(included)
        signs = 1 - 2 * ((words >> np.uint64(62)) & np.uint64(1)).astype(np.int64)
        signs.setflags(write=False)
        return cls(included, signs)

    def __len__(self) -> int:
        return len(self.included)

    def scored(
        self, values: ArrayLike, *, log_odds: bool = False, opposite: ArrayLike | None = None
    ) -> OneRunScores:
        """Return scores of these canaries, for :func:`audit_one_run`.

        Args:
            values: score of every canary, of shape (canaries,), computed without its coin; larger
                speaks for inclusion.
            log_odds: whether a value estimates the logarithm of the odds that its canary is in, as
                sums of log likelihood ratios do; guesses are then weighted by it. No statement
                depends on how good the estimate is.
            opposite: log odds of inclusion with the sign -1, for canaries with signs; `values` are
                then those of inclusion with +1. Neither may know the sign.

        Raises:
            ValueError: for another shape, or scores that are not finite; for `opposite` without
                signs or log odds, or signs without `opposite`.
        """
        scores = self._checked("values", values)
        if (self.signs is None) != (opposite is None) or (opposite is not None and not log_odds):
            raise ValueError(
                "opposite must be given, with log_odds=True, if canaries have signs, and only then"
            )
        if self.signs is None or opposite is None:
            return OneRunScores(scores, self.included, bool(log_odds))
        both = np.stack([scores, self._checked("opposite", opposite)], axis=1)
        own = np.where(self.signs > 0, both[:, 0], both[:, 1])
        return OneRunScores(own, self.included, True, self.signs, both)

    def _checked(self, name: str, values: ArrayLike) -> NDArray[np.float64]:
        scores = np.array(values, dtype=np.float64)
        if scores.shape != self.included.shape or not np.isfinite(scores).all():
            raise ValueError(
                f"{name} must be one finite number for each of {len(self)} canaries, got shape "
                f"{scores.shape}"
            )
        return scores
