"""The words of a training statement: how they are written, and whether a text is those words.

Words are what people read, so they may say nothing that the numbers beside them do not. They are a
function of these numbers: a reader writes them again and compares. Published statements are read
for ever; whoever changes the words keeps the old wording, and a reader accepts either.
"""

from __future__ import annotations

import math
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace
from decimal import ROUND_CEILING, ROUND_FLOOR, Context, Decimal
from difflib import SequenceMatcher
from functools import lru_cache
from typing import TYPE_CHECKING, Any

from taut._base.rounding import round_down, round_up
from taut.accounting import PrivacyLoss

if TYPE_CHECKING:
    from taut.training._plan.plan import Plan

__all__ = ["TrainingWords"]

_BEFORE_CLIPPING = " clipped by "
_AFTER_CLIPPING = ", Gaussian noise of multiplier "
_OTHER_WORDS = "In other words: "  # begins what says the loss once more, in no wording before 3
_FALSE_ALARMS = 0.01  # at which true alarms are stated: one in a hundred, as attacks report them
_ARITHMETIC = 1e-3  # relative: epsilons of comparisons are computed to this tolerance
_MOST_SHOWN = 3  # differences; more of them say no more
_LONGEST_SHOWN = 80  # characters of one difference
_LONGEST_COMPARED = 20_000  # characters: a true statement has about a thousand


@dataclass(frozen=True, kw_only=True)
class TrainingWords:
    """What a training statement says; `str` writes it.

    Attributes:
        counted_steps: steps in the ledger.
        batch_size: the expected number of examples in a step; the least, if it changes.
        examples: how many there are.
        sampler: the name of the sampling.
        clipping: what it is called in words; None if that takes a file that is not at hand.
        noise_multiplier: noise over the clipping norm; the least, if it changes.
        lower: certified lower bound on epsilon.
        upper: certified upper bound on epsilon.
        delta: probability delta of the claim.
        adjacency: relation that says which datasets are neighbours.
        stopped: updates made and updates planned, if the budget ended the run.
        mixing: what it is called in words, and what it is compared with; None without.
        comparison: what another sampling would have promised; empty without.
        is_secure: whether the noise came from a secure generator.
        unchecked_isolation: whether it was not tested that examples are kept apart.
        changed_data: whether the dataset may have been changed during the run.
        ledger_hash: hash of the last line of the ledger; None if there is no file.
        most_batch_size: largest expected number of examples in a step, if it changes.
        most_noise: largest noise over the clipping norm, if it changes.
        examples_each: how many examples of an owner are averaged before the clip, if the promise is
            about owners; None if it is about examples.
        encoder: name of the encoder that correlates noise over steps; None if it is independent.
        loss: loss that is stated, to say it in other words; None leaves these out.
        wording: 3; 2 for statements without other words; 1 for older ones still, that rounded the
            binary value of a float, 0.7 to 0.699999.
    """

    counted_steps: int
    batch_size: float
    examples: int
    sampler: str
    clipping: str | None
    noise_multiplier: float
    lower: float
    upper: float
    delta: float
    adjacency: str
    stopped: tuple[int, int] | None = None
    mixing: tuple[str, Sequence[str]] | None = None
    comparison: str = ""
    is_secure: bool = True
    unchecked_isolation: bool = False
    changed_data: bool = False
    ledger_hash: str | None = None
    most_batch_size: float | None = None
    most_noise: float | None = None
    examples_each: int | None = None
    encoder: str | None = None
    loss: PrivacyLoss | None = None
    wording: int = 3

    @classmethod
    def of(cls, plan: Plan, counted_steps: int, **said: Any) -> TrainingWords:
        """Return the words about so many steps of a plan; `said` is what the plan does not decide.

        Unless `said` has them, the names of sampler, clipping and adjacency are those of the plan.
        """
        mixed = None
        if plan.mixing is not None:
            mixed = repr(plan.mixing), plan.mixing_notes(counted_steps)
        planned: dict[str, Any] = {
            "sampler": plan.sampling.name,
            "clipping": repr(plan.clipping),
            "delta": plan.delta,
            "adjacency": str(plan.adjacency),
        }
        least_rate, most_rate = plan.rate_range
        changes = plan.rate_schedule is not None
        return cls(
            counted_steps=counted_steps,
            batch_size=least_rate * plan.examples if changes else plan.batch_size,
            most_batch_size=most_rate * plan.examples if changes else None,
            most_noise=plan.noise_range[1] if plan.noise_schedule is not None else None,
            encoder=None if plan.encoder is None else type(plan.encoder).__name__,
            examples=plan.examples,
            examples_each=None if plan.unit is None else plan.unit.examples_each,
            noise_multiplier=plan.noise_multiplier,
            mixing=mixed,
            comparison=plan.comparison(counted_steps),
            **(planned | said),
        )

    @staticmethod
    def has_other_words(said: str) -> bool:
        """Return whether a statement says its loss in other words, as older ones do not."""
        return not said or _OTHER_WORDS in said

    def __str__(self) -> str:
        return " ".join(text for text, _ in self.sentences())

    def sentences(self) -> Iterator[tuple[str, bool]]:
        """Yield the text in parts, each with whether numbers in it are computed by the reader."""
        below, above, noise = self._rounded()
        yield (
            f"Trained by private gradient descent: {self.counted_steps} steps with an expected "
            f"batch of {self._batches()} out of {self.examples} {self._units()} ({self.sampler} "
            f"sampling), gradients of {self._units()}{_BEFORE_CLIPPING}{self.clipping}"
            f"{_AFTER_CLIPPING}"
            f"{noise}{self._up_to()}. This is ({above}, {self.delta!r})-"
            f"differentially private under {self.adjacency} adjacency, for whoever sees every "
            f"update; certified {below} <= epsilon <= {above} at "
            f"delta={self.delta!r}.",
            False,
        )
        if self.loss is not None and self.wording > 2:
            said = _in_other_words(self.loss, self.delta, self._units().removesuffix("s"))
            if said:
                yield said, True
        if self.examples_each is not None:
            yield (
                "The promise is to owners, each with all of its examples: neighbouring datasets "
                "differ in all examples of one owner. In a step, the gradient of an owner is the "
                f"mean over {self.examples_each} of its examples, drawn at random, and is clipped "
                "once.",
                False,
            )
        if self.encoder is not None:
            yield (
                f"The noise is correlated over steps by {self.encoder}: its multiplier is that of "
                f"the independent noise on encoded gradients, {self._order()}, "
                "and the loss is that of all planned steps, spent with the first.",
                False,
            )
        if self.mixing is not None:
            name, notes = self.mixing
            yield f"Released weights were mixed by {name}.", False
            yield f"For comparison: {'; '.join(notes)}.", True
        if self.stopped is not None:
            done, planned = self.stopped
            yield f"Stopped at the budget after {done} of {planned} planned updates.", False
        if self.comparison:
            yield f"For comparison: {self.comparison}.", True
        if not self.is_secure:
            yield "The noise came from a seed: this is an experiment, not a promise.", False
        if self.unchecked_isolation:
            yield (
                "That no example gets into the gradient of another was not tested "
                "(unchecked_isolation=True): the promise holds if it is so.",
                False,
            )
        if self.changed_data:
            yield (
                "The run went on with another dataset than it began with, or with one that could "
                "not be compared: an example is protected in the steps that could see it.",
                False,
            )
        if self.ledger_hash is not None:
            yield f"The ledger of the run ends with the SHA-256 hash {self.ledger_hash}.", False

    def _order(self) -> str:
        """Return what is known about batches of a run with correlated noise."""
        if self.sampler == "fixed_order":
            return "batches came in a fixed public order"
        return "the steps of an example were drawn in secret and kept apart"

    def _units(self) -> str:
        return "examples" if self.examples_each is None else "owners"

    def _batches(self) -> str:
        if self.most_batch_size is None:
            return f"{self.batch_size:g}"
        return f"{self.batch_size:g} to {self.most_batch_size:g}"

    def _up_to(self) -> str:
        """Return how far noise goes above the least, and that it does so by a schedule."""
        most = "" if self.most_noise is None else f" to {round_down(self.most_noise, 6)}"
        if self.most_noise is None and self.most_batch_size is None:
            return most
        return f"{most}, by a schedule"

    def _rounded(self) -> tuple[str, str, str]:
        """Return lower bound, upper bound and noise, each rounded to its safe side."""
        if self.wording == 1:
            down, up = (Context(prec=6, rounding=side) for side in (ROUND_FLOOR, ROUND_CEILING))
            sides = (down, self.lower), (up, self.upper), (down, self.noise_multiplier)
            below, above, noise = (side.create_decimal(Decimal(value)) for side, value in sides)
            return f"{below:g}", f"{above:g}", f"{noise:g}"
        noise_multiplier = round_down(self.noise_multiplier, 6)
        return round_down(self.lower, 6), round_up(self.upper, 6), noise_multiplier

    def completed(self, said: str) -> TrainingWords:
        """Return the words with the name of the clipping taken from a text, if it is not known."""
        if self.clipping is not None:
            return self
        after = said.partition(_BEFORE_CLIPPING)[2]
        return replace(self, clipping=after.partition(_AFTER_CLIPPING)[0])

    def differences(self, said: str) -> list[str]:
        """Return where a text is not these words, in any wording; empty if it is.

        Args:
            said: the text of a statement. The name of a clipping that is not known is taken from
                it.

        **Guarantee**: texts that pass are equal, character by character, but for numbers that the
        reader computes, of comparisons with other runs and of other words for the loss, which
        agree to 1e-3, the tolerance they are computed to.
        """
        words = self.completed(said)
        if _OTHER_WORDS not in said:
            words = replace(words, wording=2)
        found, wordings = said.split(" "), (words, replace(words, wording=1))
        if any(_is_said(found, wording) for wording in wordings):
            return []
        if len(said) > _LONGEST_COMPARED:
            return [f"its words are {len(said)} characters, those of its numbers {len(str(words))}"]
        return _named(found, str(words).split(" "))


@lru_cache(maxsize=64)
def _in_other_words(loss: PrivacyLoss, delta: float, unit: str) -> str:
    """Return what a loss lets attackers do, each bound on its safe side; nothing if all is lost."""
    mu = loss.gdp(delta).mu.upper
    if math.isinf(mu):
        return ""
    found, wrong = loss.tpr(_FALSE_ALARMS), loss.bayes_risk()
    return (
        f"{_OTHER_WORDS}but for a probability of delta it reveals no more than one Gaussian "
        f"release with mu = {round_up(mu, 4)} would; an attacker with {100 * _FALSE_ALARMS:g} % of "
        f"false alarms about an {unit} has at most {round_up(100 * found, 4)} % of true ones; of "
        f"guesses at even odds at least {round_down(100 * wrong, 4)} % are wrong."
    )


def _is_said(found: Sequence[str], words: TrainingWords) -> bool:
    expected = [
        (word, is_computed) for text, is_computed in words.sentences() for word in text.split(" ")
    ]
    return len(found) == len(expected) and all(
        a == b or (is_computed and _agree(a, b))
        for a, (b, is_computed) in zip(found, expected, strict=True)
    )


def _named(found: Sequence[str], expected: Sequence[str]) -> list[str]:
    changes = [
        (_shown(found[a:b]), _shown(expected[c:d]))
        for tag, a, b, c, d in SequenceMatcher(None, found, expected, autojunk=False).get_opcodes()
        if tag != "equal"
    ]
    named = [
        f"its words say {theirs!r} where its numbers give {ours!r}"
        if theirs and ours
        else f"its words say {theirs!r}, which its numbers do not"
        if theirs
        else f"its words leave out {ours!r}, which its numbers give"
        if ours
        else "its words have other spaces than those of its numbers"
        for theirs, ours in changes
    ]
    more = len(named) - _MOST_SHOWN
    return named[:_MOST_SHOWN] + ([f"its words differ in {more} more places"] if more > 0 else [])


def _shown(words: Sequence[str]) -> str:
    text = " ".join(words)
    return text if len(text) <= _LONGEST_SHOWN else f"{text[:_LONGEST_SHOWN]}..."


def _agree(a: str, b: str) -> bool:
    """Whether two words are the same number, but for the arithmetic of who computed it."""
    marks = "();,.:"
    left, right = a.strip(marks), b.strip(marks)
    if a.replace(left, "", 1) != b.replace(right, "", 1):
        return False  # other marks around it
    try:
        return math.isclose(float(left), float(right), rel_tol=_ARITHMETIC, abs_tol=0.0)
    except ValueError:
        return False
