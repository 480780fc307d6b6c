"""Exposure: how well a model remembers secrets that were planted in its training data."""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass

from taut._base import validate
from taut.accounting import Adjacency, PrivacyLoss
from taut.errors import UnsoundConfiguration

__all__ = ["Exposure"]

_ONE_WAY = (Adjacency.ADD, Adjacency.REMOVE)


@dataclass(frozen=True)
class Exposure:
    """How high planted secrets rank among all that they could have been, by a model's likelihood.

    A secret of rank r among n candidates has an exposure of log2(n / r) bits: what the model tells
    whoever tries candidates from the most likely down. A model that has seen nothing leaves
    1.44 bits on average, one that knows a secret by heart log2(n).

    Args:
        ranks: rank of every secret: one more than the number of candidates that are more likely.
        candidates: how many values a secret could have had, each as likely as any other.

    **Guarantee**: exposure is a measurement of one attack on one model and proves no privacy;
    `most_found` is what is certified.

    Raises:
        ValueError: for no ranks, or one outside of 1, ..., `candidates`.

    Example:
        >>> from taut.audit import Exposure
        >>> known, unknown = Exposure([1, 1, 2], 10_000), Exposure([4_210, 17, 8_800], 10_000)
        >>> known.extracted, round(known.mean, 1)
        (2, 13.0)
        >>> unknown.extracted, round(unknown.mean, 1), round(unknown.blind, 1)
        (0, 3.5, 1.4)

    References:
        Carlini et al. 2019, Definition 3; without the sampling that longer secrets need.
    """

    ranks: tuple[int, ...]
    candidates: int

    def __init__(self, ranks: Sequence[int], candidates: int) -> None:
        count = validate.positive_integer(candidates=candidates)
        found = tuple(validate.positive_integer(rank=rank) for rank in ranks)
        if not found:
            raise ValueError("ranks must hold the rank of at least one secret, got none")
        if max(found) > count:
            raise ValueError(
                f"ranks must be at most candidates={count}, got {max(found)}; count how many "
                "candidates are more likely than the secret, and add one"
            )
        object.__setattr__(self, "ranks", found)
        object.__setattr__(self, "candidates", count)

    @property
    def bits(self) -> tuple[float, ...]:
        """The exposure of every secret."""
        return tuple(math.log2(self.candidates / rank) for rank in self.ranks)

    @property
    def mean(self) -> float:
        """The mean exposure, in bits."""
        return math.fsum(self.bits) / len(self.bits)

    @property
    def blind(self) -> float:
        """What the mean would be on average, were every rank as likely as any other."""
        n = self.candidates
        return math.log2(n) - math.lgamma(n + 1) / (n * math.log(2))

    @property
    def extracted(self) -> int:
        """How many secrets are the most likely of all candidates: the first guess is right."""
        return self.ranks.count(1)

    def most_found(self, loss: PrivacyLoss, guesses: int = 1) -> float:
        """Return a certified bound on the expected share of secrets that anybody finds.

        Args:
            loss: what the training cost, one example being one secret.
            guesses: number of candidates that may be tried for each secret.

        **Guarantee**: a secret is drawn at random from the candidates and is in one example.
        Without that example the guesses are right with probability `guesses` / `candidates`; with
        it, no more often than a test of that false-positive rate finds members: on average over
        what the secret could have been (docs/theory/profiles.md), whatever is computed from all
        that the loss covers, and by whoever knows the rest of the data.

        Raises:
            UnsoundConfiguration: for a loss in one direction, to add or to remove an example: the
                bound needs both.

        Example:
            >>> import taut
            >>> from taut.audit import Exposure
            >>> loss = taut.gaussian(sigma=1.0)
            >>> round(Exposure([300], 10_000).most_found(loss), 4)
            0.0033
        """
        validate.instance(PrivacyLoss, loss=loss)
        if loss.adjacency in _ONE_WAY:
            raise UnsoundConfiguration(
                f"loss is for the relation {loss.adjacency.value!r}, one direction alone; give one "
                "for add_remove, zero_out or replace"
            )
        tried = validate.positive_integer(guesses=guesses)
        return loss.tpr(min(1.0, tried / self.candidates))
