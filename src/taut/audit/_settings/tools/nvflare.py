"""NVFLARE: filters of what clients send. Most of them add no noise, and promise nothing.

Argument names and behaviour are those of version 2.8.
"""

from __future__ import annotations

import math

from taut._base import validate
from taut.accounting import Adjacency, Bounds
from taut.audit._settings.document import Document, Signature
from taut.audit._settings.reader import Reader
from taut.audit._settings.result import CheckedSetting, SettingsReading

__all__ = ["NVFLARE", "check_nvflare"]

_SVT = (
    *("fraction", "epsilon", "noise_var", "gamma", "tau", "data_kinds", "replace"),
    *("epsilon_threshold", "epsilon_query", "epsilon_release"),
)
_WITHOUT_NOISE = {
    "PercentilePrivacy": "it sets small changes to zero and cuts off large ones, without noise",
    "ExcludeVars": "it leaves out layers, and sends the others as they are",
    "StatisticsPrivacyFilter": "it leaves out or rounds small counts, without calibrated noise",
    "AddNoiseToMinMax": "its noise is a share of the extremes that it should hide",
    "MinCountCleanser": "it leaves out small counts, without noise",
    "HistogramBinsCleanser": "it limits the number of bins, without noise",
    "HEModelEncryptor": "encryption hides updates from the server, and not what a model reveals",
}
NVFLARE = (
    Signature("SVTPrivacy", _SVT),
    Signature("PercentilePrivacy", ("percentile", "gamma", "data_kinds")),
    *(Signature(name) for name in _WITHOUT_NOISE if name != "PercentilePrivacy"),
)
_NO_PROOF = (
    "the filter goes on until enough values are above the threshold and takes more than that in a "
    "pass: no published proof of the sparse vector technique covers it, and the sum of its three "
    "budgets is no certified bound"
)
_PARTIAL = (
    "epsilon is the budget of the selection alone: values that are sent cost noise_var each, "
    "which is most of it; set epsilon_release, or train with DP-SGD"
)
_REPLACED = "another client in the place of one; its update is anything within gamma"


def check_nvflare(reader: Reader, document: Document) -> CheckedSetting:  # noqa: ARG001
    """Return what a filter of NVFLARE promises.

    Args:
        reader: the arguments of the filter.
        document: the file around it.
    """
    return _svt(reader) if reader.call.name == "SVTPrivacy" else _without_noise(reader)


def _without_noise(reader: Reader) -> CheckedSetting:
    for name in ("percentile", "gamma", "exclude_vars"):
        reader.own(name)
    why = _WITHOUT_NOISE[reader.call.name]
    return CheckedSetting(
        tool=f"NVFLARE {reader.call.name}",
        where=reader.call.where,
        unit="client",
        read=reader.read,
        delta=None,
        claimed=None,
        readings=(
            SettingsReading(
                "no differential privacy", Adjacency.REPLACE, why, Bounds(math.inf, math.inf)
            ),
        ),
        false_promises=(f"{reader.call.name} has no differential privacy: {why}",),
        missing=("a mechanism with noise: train with DP-SGD, or add noise to clipped updates",),
    )


def _svt(reader: Reader) -> CheckedSetting:
    """Return what the sparse vector filter spends at least.

    If all values of two updates are at the bound, once with one sign and once with the other, the
    selection tells nothing. Each value that is sent has Laplace noise of scale 2 gamma / noise_var,
    so that all at the bound are exp(noise_var) times as likely, each, for one as for the other.
    """
    fraction = validate.probability(fraction=_or(reader.number("fraction", "fraction"), 0.1))
    epsilon = validate.positive(epsilon=_or(reader.number("epsilon", "epsilon"), 0.1))
    each = validate.positive(noise_var=_or(reader.number("noise_var", "noise_var"), 0.1))
    release = reader.number("epsilon_release", "epsilon_release")
    reader.own("gamma")
    rounds = reader.whole("rounds", reader.needed("rounds", "every round is a release"))
    once = release
    if release is None:
        count = reader.whole(
            "parameters",
            reader.needed("parameters", f"each of a share {fraction:g} costs {each:g}"),
        )
        once = None if count is None else math.ceil(count * fraction) * each
    bounds = None
    if once is not None and rounds is not None:
        bounds = Bounds(rounds * once, math.inf)
    reading = SettingsReading("sparse vector filter", Adjacency.REPLACE, _REPLACED, bounds)
    wrong = [_NO_PROOF]
    if release is None:
        wrong.append(_PARTIAL)
    if bounds is not None and bounds.lower > epsilon:
        wrong.append(f"epsilon {epsilon:g} is stated, and {reading.shown[0]} is spent at least")
    return CheckedSetting(
        tool="NVFLARE SVTPrivacy",
        where=reader.call.where,
        unit="client",
        read=reader.read,
        delta=0.0,
        claimed=epsilon,
        readings=(reading,),
        false_promises=tuple(wrong),
        missing=tuple(reader.missing),
    )


def _or(value: float | None, default: float) -> float:
    return default if value is None else value
