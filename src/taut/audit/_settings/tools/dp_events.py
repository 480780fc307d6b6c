"""dp-accounting: trees of events, in JSON, as text, or as a program makes them."""

from __future__ import annotations

from typing import Any

from taut.accounting import Adjacency, PrivacyLoss, from_dp_event, samplers_of
from taut.audit._settings.document import HIDDEN, Call, Document, Signature, Unread
from taut.audit._settings.reader import Reader
from taut.audit._settings.result import CheckedSetting, SettingsReading
from taut.audit._settings.runs import of_loss
from taut.audit._statements.stated_claim import LARGEST_LOSS, MOST_RELEASES

__all__ = ["DP_EVENTS", "check_dp_event"]

DP_EVENTS = tuple(
    Signature(name, fields)
    for name, fields in {
        "NoOpDpEvent": (),
        "NonPrivateDpEvent": (),
        "RandomizedResponseDpEvent": ("noise_parameter", "num_buckets"),
        "EpsilonDeltaDpEvent": ("epsilon", "delta"),
        "GaussianDpEvent": ("noise_multiplier",),
        "LaplaceDpEvent": ("noise_multiplier",),
        "DiscreteLaplaceDpEvent": ("noise_parameter", "sensitivity"),
        "DiscreteGaussianDpEvent": ("sigma", "sensitivity", "dimension"),
        "SelfComposedDpEvent": ("event", "count"),
        "ComposedDpEvent": ("events",),
        "PoissonSampledDpEvent": ("sampling_probability", "event"),
        "SampledWithReplacementDpEvent": ("source_dataset_size", "sample_size", "event"),
        "SampledWithoutReplacementDpEvent": ("source_dataset_size", "sample_size", "event"),
        "SingleEpochTreeAggregationDpEvent": ("noise_multiplier", "step_counts"),
        "RepeatAndSelectDpEvent": ("event", "mean", "shape"),
        "MixtureOfGaussiansDpEvent": ("standard_deviation", "sensitivities", "sampling_probs"),
        "ZCDpEvent": ("rho", "xi"),
        "ExponentialMechanismDpEvent": ("epsilon",),
        "PermuteAndFlipDpEvent": ("epsilon",),
        "TruncatedSubsampledGaussianDpEvent": (
            *("dataset_size", "sampling_probability", "truncated_batch_size", "noise_multiplier"),
        ),
    }.items()
)
_LEAST_NOISE = 1e-12  # below, a quotient would leave the floats; it is refused all the same
_BESIDE = (HIDDEN, "module_name")  # of arguments
_MOST_EVENTS = 2_000  # of a tree, those that names repeat counted again; more take minutes
_SWAPPED = ("SampledWithoutReplacementDpEvent", "RandomizedResponseDpEvent")
_UNIT = "the unit: an event does not say what a record is; name it"


def check_dp_event(reader: Reader, document: Document) -> CheckedSetting:  # noqa: ARG001
    """Return what a tree of events promises.

    Args:
        reader: the outermost event.
        document: the file around it.
    """
    tree = _Tree()
    described = tree.described(reader.call)
    relation = Adjacency.REPLACE if tree.swaps else Adjacency.ADD_REMOVE
    delta = reader.delta()
    reader.read["events"] = f"{tree.count}, in {reader.call.name}"
    reading = SettingsReading("as composed", relation, "every event took place as described")
    if tree.unread:
        reader.missing += [f"{text} is not a literal; write the number" for text in tree.unread]
    else:
        loss = _loss(described, relation)
        drawn = " and ".join(samplers_of(loss)) or "no sampling"
        words = f"every event took place as described; batches: {drawn}"
        reading = of_loss("as composed", words, relation, lambda: loss, delta)
    reader.missing.append(f"the adjacency: an event has none, and this is for {relation}; state it")
    return CheckedSetting(
        tool=f"dp-accounting {reader.call.name}",
        where=reader.call.where,
        unit="record",
        read=reader.read,
        delta=delta,
        claimed=None,
        readings=(reading,),
        missing=(*reader.missing, _UNIT),
    )


def _loss(described: dict[str, Any], relation: Adjacency) -> PrivacyLoss:
    loss = from_dp_event(described, adjacency=relation)
    if len(loss.terms) > MOST_RELEASES:
        raise ValueError(
            f"its events have {len(loss.terms)} distinct releases; the most that are read are "
            f"{MOST_RELEASES}"
        )
    return loss


class _Tree:
    """A tree of calls, as mappings that `from_dp_event` reads."""

    def __init__(self) -> None:
        self.count, self.swaps = 0, False
        self.unread: list[str] = []

    def described(self, call: Call) -> dict[str, Any]:
        self.count += 1
        if self.count > _MOST_EVENTS:
            raise ValueError(f"it has more than {_MOST_EVENTS} events")
        self.swaps |= call.name in _SWAPPED
        fields = {name: self._field(value.value) for name, value in call.arguments.items()}
        _refuse_unknown(call.name, fields)
        _refuse_open(call.name, fields)
        return {**fields, "class_name": call.name}

    def _field(self, value: Any) -> Any:
        if isinstance(value, Call):
            return self.described(value)
        if isinstance(value, list):
            return [self._field(part) for part in value]
        if isinstance(value, Unread):
            self.unread.append(value.text)
        return value


def _refuse_unknown(name: str, fields: dict[str, Any]) -> None:
    """Refuse what no such event has: the argument that was meant would be its default."""
    known = next((event.positional for event in DP_EVENTS if event.name == name), None)
    for field in fields:
        if known is not None and field not in (*known, *_BESIDE):
            raise ValueError(f"{name} has no {field!r}; it has {', '.join(known) or 'nothing'}")


def _refuse_open(name: str, fields: dict[str, Any]) -> None:
    """Refuse a release whose loss takes gigabytes to compute with, and hides nothing."""
    numbers = {key: value for key, value in fields.items() if isinstance(value, int | float)}
    size = {
        "LaplaceDpEvent": 1 / max(numbers.get("noise_multiplier", 1.0), _LEAST_NOISE),
        "DiscreteLaplaceDpEvent": numbers.get("noise_parameter", 0.0)
        * numbers.get("sensitivity", 1.0),
        "ExponentialMechanismDpEvent": numbers.get("epsilon", 0.0),
        "PermuteAndFlipDpEvent": numbers.get("epsilon", 0.0),
    }.get(name, 0.0)
    if not 2 * size <= LARGEST_LOSS:  # an exchanged record counts twice
        raise ValueError(
            f"{name} of epsilon {size:.3g} hides nothing; events are read up to "
            f"{LARGEST_LOSS / 2:g}"
        )
