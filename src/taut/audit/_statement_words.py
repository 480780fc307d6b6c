"""The numbers in the words of a statement: they are what people read, so they must be true."""

from __future__ import annotations

import math
import re
from collections.abc import Mapping

__all__ = ["disagreements", "epsilons_in_words"]

_NUMBER = r"(\d+(?:\.\d+)?(?:e[+-]?\d+)?)"
_HYPHEN = r"[\s\u2010-\u2014-]"
_PRIVATE = rf"{_HYPHEN}*(?:differential|DP\b)"
_PROMISE = re.compile(rf"\(\s*{_NUMBER}\s*,\s*{_NUMBER}\s*\){_PRIVATE}", re.IGNORECASE)
_PURE = re.compile(rf"(?<![\w.,]){_NUMBER}{_PRIVATE}", re.IGNORECASE)
_LINK = (
    r"(?:is|was|of|about|around|roughly|approximately|only|just|at most|below|under|less than|"
    r"equals?|equal to)"
)
_EPSILON = re.compile(
    rf"(?:\beps(?:ilon)?\b|[ε\u03f5])(?:\s+{_LINK})*\s*[<=≤≈~:]*\s*{_NUMBER}", re.IGNORECASE
)
_SHUFFLED = re.compile(r"(?<!not )(?<!never )(?<!un)\bshuffl", re.IGNORECASE)
_PATTERNS: Mapping[str, str] = {
    "delta": rf"(?:\bdelta|δ)\s*=\s*{_NUMBER}",
    "lower": rf"{_NUMBER}\s*(?:<=|≤)\s*(?:epsilon|ε)",
    "counted_steps": rf"{_NUMBER} steps with",
    "batch_size": rf"expected batch of {_NUMBER}",
    "examples": rf"out of {_NUMBER} examples",
    "noise_multiplier": rf"noise of multiplier {_NUMBER}",
    "sampler": r"\((\S+) sampling\)",
    "adjacency": r"under (\S+) adjacency",
    "clipping": r"clipped by (.+?), Gaussian noise",
    "steps": r"after (\d+) of \d+ planned",
    "planned_steps": r"of (\d+) planned updates",
}
_ROUNDING = 2e-5  # numbers in words have six digits


def epsilons_in_words(text: str) -> list[float]:
    """Return every epsilon that a text claims."""
    return [float(word) for word in _epsilons(text)]


def _epsilons(text: str) -> list[str]:
    return [match[1] for pattern in (_PROMISE, _PURE, _EPSILON) for match in pattern.finditer(text)]


def disagreements(text: str, numbers: Mapping[str, float | str]) -> list[str]:
    """Return where a text says something else than the numbers beside it.

    Args:
        text: a statement in words.
        numbers: what it should say, under "epsilon" and the names of `_PATTERNS`.
    """
    said: list[tuple[str, str]] = []
    said += [("epsilon", word) for word in _epsilons(text)]
    said += [("delta", match[2]) for match in _PROMISE.finditer(text)]
    for name, pattern in _PATTERNS.items():
        said += [(name, match[1]) for match in re.finditer(pattern, text)]
    wrong = [
        f"its words say {name.replace('_', ' ')} {word}, its numbers {numbers[name]}"
        for name, word in said
        if name in numbers and not _agree(word, numbers[name])
    ]
    if _SHUFFLED.search(text) and numbers.get("sampler") not in (None, "shuffle"):
        wrong.append(
            f"sampler mismatch: its words speak of shuffled batches, its numbers are for "
            f"{numbers['sampler']} ones"
        )
    return list(dict.fromkeys(wrong))


def _agree(word: str, number: float | str) -> bool:
    if isinstance(number, str):
        return word == number
    return math.isclose(float(word), number, rel_tol=_ROUNDING, abs_tol=0.0)
