"""What a method of private regression is: a value that knows its loss and can fit a problem.

A method is made from public facts and a budget, so that its loss is known, and paid for, before
it sees any data. To add one, write a module in ``methods`` with a frozen dataclass that has `loss`
and `fit`, and a function ``(setting, epsilon, delta) -> Method``, and name it in ``choice``.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Protocol, TypeAlias

from taut._base.arrays import Vector
from taut.accounting import PrivacyLoss
from taut.estimators._regression.moments import Measurement, NoisyMoments
from taut.estimators._regression.problem import Problem, Setting
from taut.noise import RandomSource

__all__ = ["Fit", "Maker", "Method"]


@dataclass(frozen=True, eq=False)
class Fit:
    """What a method releases.

    Args:
        coefficients: one per column of the design: features, then the column of ones if there is
            one, in the units of the problem.
        why: a sentence on what was chosen, by public facts and released numbers.
        moments: released moments, from which intervals follow; None if there are none.
        measurements: all that was released of targets and residuals beside them.
        refused: whether a test of the method refused to release more: coefficients are zero then.
        method: name of the method that was chosen by released numbers; None if none was.
    """

    coefficients: Vector
    why: str
    moments: NoisyMoments | None = field(default=None, repr=False)
    measurements: tuple[Measurement, ...] = field(default=(), repr=False)
    refused: bool = False
    method: str | None = None


class Method(Protocol):
    """A private fit of a regression."""

    @property
    def loss(self) -> PrivacyLoss:
        """The privacy loss of one fit, known before any data are."""
        ...

    def fit(self, problem: Problem, generator: RandomSource | None = None) -> Fit:
        """Return released coefficients.

        Args:
            problem: private rows, for the setting that the method was made for.
            generator: source of all noise, by default the secure generator.

        **Guarantee**: all that is returned has the privacy loss `loss`.
        """
        ...


Maker: TypeAlias = Callable[[Setting, float, float], Method]
"""What makes a method that is (epsilon, delta)-DP in a setting."""
