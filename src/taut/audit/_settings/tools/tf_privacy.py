"""TensorFlow Privacy: its accounting functions, and its optimizers.

Argument names and behaviour are those of version 0.9. Accounts are for Poisson samples, and loops
shuffle; with fewer microbatches than examples the sensitivity doubles.
"""

from __future__ import annotations

import math
from dataclasses import replace

from taut.audit._settings.document import Document, Signature
from taut.audit._settings.reader import Reader
from taut.audit._settings.result import CheckedSetting
from taut.audit._settings.runs import NoisySteps, least_noise

__all__ = ["TF_PRIVACY", "check_tf_privacy"]

_OPTIMIZER = ("l2_norm_clip", "noise_multiplier", "num_microbatches", "gradient_accumulation_steps")
_OPTIMIZERS = (
    *("DPKerasSGDOptimizer", "DPKerasAdamOptimizer", "DPKerasAdagradOptimizer"),
    *("VectorizedDPKerasSGDOptimizer", "VectorizedDPKerasAdamOptimizer"),
    *("DPGradientDescentGaussianOptimizer", "DPAdamGaussianOptimizer", "DPSequential", "DPModel"),
)
TF_PRIVACY = (
    Signature(
        "compute_dp_sgd_privacy",
        ("n", "batch_size", "noise_multiplier", "epochs", "delta"),
        (frozenset({"n", "batch_size", "noise_multiplier", "epochs"}),),
    ),
    Signature(
        "compute_dp_sgd_privacy_statement",
        ("number_of_examples", "batch_size", "num_epochs", "noise_multiplier", "delta"),
        (frozenset({"number_of_examples", "batch_size", "num_epochs", "noise_multiplier"}),),
    ),
    Signature(
        "compute_noise",
        ("n", "batch_size", "target_epsilon", "epochs", "delta", "noise_lbd"),
        (frozenset({"n", "batch_size", "target_epsilon", "epochs"}),),
    ),
    Signature(_OPTIMIZERS[0], _OPTIMIZER, (frozenset({"l2_norm_clip", "noise_multiplier"}),)),
    *(Signature(name, _OPTIMIZER) for name in _OPTIMIZERS[1:]),
)
_DEPRECATED = (
    "compute_dp_sgd_privacy accounts Poisson batches without microbatches, whatever a loop does, "
    "and is deprecated for that. Use compute_dp_sgd_privacy_statement, or the bounds here"
)
_HALVED = (
    "examples of a microbatch are clipped together, so that one example moves a sum by twice the "
    "clipping norm: the noise counts half. Leave num_microbatches out, or set it to the batch size"
)
_ACCUMULATED = (
    "gradient_accumulation_steps: every small batch has noise of its own, and counts as a step "
    "here; compute with batches of that size"
)


def check_tf_privacy(reader: Reader, document: Document) -> CheckedSetting:  # noqa: ARG001
    """Return what hyper-parameters of TensorFlow Privacy promise.

    Args:
        reader: the arguments of the call.
        document: the file around it.
    """
    claimed = reader.beside("target_epsilon")
    run, micro = _run(reader)
    if claimed is not None and _finds_noise(reader):
        sigma = least_noise(_run(reader.as_called())[0], claimed)
        run = replace(run, sigma=sigma)
        if sigma is not None:
            reader.read["noise_multiplier"] = f"{sigma:.4g} (the least that keeps target_epsilon)"
    reader.own("l2_norm_clip")
    accumulated = reader.own("gradient_accumulation_steps", 1)
    wrong = [_DEPRECATED] if reader.call.name == "compute_dp_sgd_privacy" else []
    stated = reader.call.name == "compute_dp_sgd_privacy_statement"
    wrong += [_HALVED] if micro and not stated else []
    notes = [_HALVED] if micro and stated else []
    notes += [_ACCUMULATED] if accumulated not in (1, None) else []
    reader.missing.append(
        "how batches are drawn: the account is for Poisson samples, and tf.data shuffles; say which"
    )
    return CheckedSetting(
        tool=f"TensorFlow Privacy {reader.call.name}",
        where=reader.call.where,
        unit="example",
        read=reader.read,
        delta=run.delta,
        claimed=claimed,
        readings=(run.poisson(), run.shuffled()),
        false_promises=tuple(wrong),
        missing=(*reader.missing, *notes),
    )


def _finds_noise(reader: Reader) -> bool:
    return reader.call.name == "compute_noise"


def _run(reader: Reader) -> tuple[NoisySteps, bool]:
    sigma = None
    if not _finds_noise(reader):
        sigma = reader.needed("noise_multiplier", "no noise, no promise", "noise_multiplier")
    records = reader.whole(
        "examples",
        reader.needed("examples", "the rate is a batch over them", "n", "number_of_examples"),
    )
    batch = reader.whole(
        "batch_size", reader.needed("batch_size", "the rate is a batch over all", "batch_size")
    )
    steps, epochs = reader.steps_for("epochs", "num_epochs"), None
    if steps is None:
        epochs = reader.needed("epochs", "every step is a release", "epochs", "num_epochs")
    delta = reader.delta(records, "delta")
    micro = _microbatches(reader, batch)
    if micro is None:
        sigma = None
    elif micro and sigma is not None:
        sigma /= 2
    rate = None
    if batch is not None and records is not None:
        batch = min(batch, records)
        rate = batch / records
        steps = steps if epochs is None else max(math.ceil(epochs / rate * (1 - 1e-12)), 1)
    return NoisySteps(sigma, delta, steps, rate, batch, records, epochs, bool(micro)), bool(micro)


def _microbatches(reader: Reader, batch: int | None) -> bool | None:
    """Say whether several examples are clipped together; None if the file leaves it open."""
    if reader.call.name == "compute_dp_sgd_privacy_statement":
        return reader.flag("used_microbatching", True) is not False
    if reader.call.name not in _OPTIMIZERS:
        return False
    count = reader.whole("num_microbatches", reader.own("num_microbatches"))
    if reader.is_open("num_microbatches"):
        return None
    return count is not None and count != batch
