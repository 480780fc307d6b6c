"""The sampler that stands beside a loss, held against the one that the loss is for."""

from __future__ import annotations

import math
from collections.abc import Iterator, Mapping, Sequence
from typing import Any

from taut._base import validate
from taut.accounting import PrivacyLoss, Sampler, samplers_of

__all__ = ["against_sampler", "is_silent", "values_of"]

_SIZES = ("rate", "batch_size", "examples")
_ROUNDING = 1e-9  # relative, of a rate that is computed from sizes


def against_sampler(claimed: Any, loss: PrivacyLoss, described: Any) -> list[str]:
    """Return how a sampler, as the command or a person writes it, differs from that of a loss.

    Args:
        claimed: a name, or an object with a name and sizes; None if nothing is said.
        loss: the loss beside it.
        described: what `PrivacyLoss.to_dict` wrote of it.

    Raises:
        ValueError: if a size is no number of its range.
    """
    name, drawn = _name(claimed), samplers_of(loss)
    wrong = _against_sizes(claimed, described) if isinstance(claimed, Mapping) else []
    if name is None or not drawn or _is_one_of(name, drawn, loss):
        return wrong
    said = f"sampler mismatch: it says {name!r}, its loss is for {' and '.join(drawn)} batches"
    return [said, *wrong]


def is_silent(claimed: Any, loss: PrivacyLoss) -> bool:
    """Say whether a sampler is named that the loss tells nothing about."""
    name = _name(claimed)
    return name is None or (not samplers_of(loss) and not _is_one_of(name, (Sampler.NONE,), loss))


def values_of(data: Any, key: str) -> Iterator[float]:
    """Yield the numbers that stand under a key, at any depth."""
    if isinstance(data, Mapping):
        value = data.get(key)
        if isinstance(value, int | float) and not isinstance(value, bool):
            yield value
        data = list(data.values())
    if isinstance(data, list | tuple):
        for part in data:
            yield from values_of(part, key)


def _name(claimed: Any) -> str | None:
    name = claimed.get("name") if isinstance(claimed, Mapping) else claimed
    return None if name is None else str(name)


def _is_one_of(name: str, drawn: Sequence[Sampler], loss: PrivacyLoss) -> bool:
    releases = [str(release) for release, _ in loss.terms]
    kinds = [release.kind for release, _ in loss.terms]
    if name in (" and ".join(drawn), ", ".join(releases), *kinds):
        return True
    try:
        return (Sampler(name),) == tuple(drawn)
    except ValueError:
        return False


def _against_sizes(claimed: Mapping[str, Any], described: Any) -> list[str]:
    """Return which sizes of batches are not those of the loss; other keys are no sampler's."""
    batches, records = (
        list(values_of(described, "batch_size")),
        list(values_of(described, "population")),
    )
    rates = [
        *values_of(described, "rate"),
        *(b / n for b, n in zip(batches, records, strict=False)),
    ]
    wrong = [
        f"its sampler has {key!r}, which says nothing about its loss"
        for key in claimed
        if key not in ("name", "cap", *_SIZES)
    ]
    if claimed.get("cap") is not None:
        cap = validate.positive_integer(cap=claimed["cap"])
        wrong += _unless_known("cap", cap, list(values_of(described, "cap")))
    if claimed.get("rate") is not None:
        wrong += _unless_known("rate", validate.probability(rate=claimed["rate"]), rates)
    sizes = claimed.get("batch_size"), claimed.get("examples")
    if sizes[0] is None and claimed.get("cap") is not None and sizes[1] is not None:
        examples = validate.positive_integer(examples=sizes[1])
        wrong += _unless_known("examples", examples, records)
    elif any(size is not None for size in sizes):
        batch = validate.positive(batch_size=sizes[0])
        examples = validate.positive_integer(examples=sizes[1])
        wrong += _unless_known("batch_size / examples", batch / examples, rates)
        wrong += _unless_known("examples", examples, records) if records else []
    return wrong


def _unless_known(name: str, said: float, known: Sequence[float]) -> list[str]:
    if any(math.isclose(said, each, rel_tol=_ROUNDING) for each in known):
        return []
    return [f"its sampler has {name} {said!r}, which its loss does not have"]
