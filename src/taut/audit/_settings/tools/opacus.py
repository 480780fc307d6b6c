"""Opacus: `PrivacyEngine.make_private` and `make_private_with_epsilon`.

Argument names and behaviour are those of version 1.6: the rate is one over the number of batches of
the loader, whatever its sampler, and the accountant takes batches for Poisson samples.
"""

from __future__ import annotations

import math
from dataclasses import replace

from taut.audit._settings.document import Document, Signature
from taut.audit._settings.reader import Reader
from taut.audit._settings.result import CheckedSetting
from taut.audit._settings.runs import NoisySteps, least_noise

__all__ = ["OPACUS", "check_opacus"]

OPACUS = (
    Signature(
        "make_private",
        keys=(frozenset({"noise_multiplier", "max_grad_norm"}),),
        marks=("noise_multiplier", "max_grad_norm"),
    ),
    Signature(
        "make_private_with_epsilon",
        keys=(frozenset({"target_epsilon", "max_grad_norm"}),),
        marks=("target_epsilon", "max_grad_norm"),
    ),
)
_NOT_POISSON = (
    "poisson_sampling=False keeps the loader as it is, and get_epsilon still accounts Poisson "
    "batches; state the bounds for shuffled batches, or leave poisson_sampling at True"
)
_GDP = (
    "accountant='gdp' is a central-limit estimate, which can be below the truth; use 'prv' or "
    "'rdp', or the bounds here"
)
_SECURE = (
    "secure noise: PrivacyEngine draws from PyTorch's generator by default, whose numbers can be "
    "foretold; set secure_mode=True for what is published"
)
_SIZE = (
    "the number of examples: rate and divisor follow from len(dataset), so that neighbours of "
    "another size have another noise; state that it is public"
)
_ADAPTIVE = (
    "clipping='adaptive' spends on counts of clipped gradients too, which accountants before "
    "version 1.6 left out; name the version, and the noise of the counts"
)


def check_opacus(reader: Reader, document: Document) -> CheckedSetting:
    """Return what a private engine of Opacus promises.

    Args:
        reader: the arguments of the call.
        document: the file around it.
    """
    calibrated = reader.call.name == "make_private_with_epsilon"
    claimed = sigma = None
    if calibrated:
        claimed = reader.needed("target_epsilon", "noise is found for it", "target_epsilon")
    else:
        sigma = reader.needed("noise_multiplier", "no noise, no promise", "noise_multiplier")
    reader.own("max_grad_norm")
    poisson = reader.flag("poisson_sampling", True)
    run = _run(reader, sigma)
    if calibrated and claimed is not None:
        sigma = least_noise(run, claimed)
        run = replace(run, sigma=sigma)
        if sigma is not None:
            reader.read["noise_multiplier"] = f"{sigma:.4g} (the least that keeps target_epsilon)"
    wrong = [_NOT_POISSON + _reported(run)] if poisson is False else []
    wrong += [_GDP] if _accountant(document) == "gdp" else []
    notes = [_SIZE] if _is_secure(document) else [_SECURE, _SIZE]
    notes += [_ADAPTIVE] if reader.own("clipping") == "adaptive" else []
    return CheckedSetting(
        tool=f"Opacus {reader.call.name}",
        where=reader.call.where,
        unit="example",
        read=reader.read,
        delta=run.delta,
        claimed=claimed,
        readings=(
            *((run.poisson(),) if poisson is not False else ()),
            *((run.shuffled(),) if poisson is not True else ()),
        ),
        false_promises=tuple(wrong),
        missing=(*reader.missing, *notes),
    )


def _reported(run: NoisySteps) -> str:
    """Return what an accountant says about batches that were not drawn so, as a rough number."""
    bounds = run.poisson().bounds
    return "" if bounds is None else f" (it reports about {bounds.upper:.2g})"


def _run(reader: Reader, sigma: float | None) -> NoisySteps:
    loader = reader.nested("data_loader")
    around = Reader(loader, Document(()), reader.given) if loader is not None else None
    batch = around.number("batch_size", "batch_size") if around is not None else None
    if around is not None and batch is not None:
        reader.read["batch_size"] = around.read["batch_size"]
    else:
        batch = reader.needed("batch_size", "the loader decides how many examples a step sees")
    examples = reader.whole(
        "examples", reader.needed("examples", "the rate is a batch over all examples")
    )
    size = reader.whole("batch_size", batch)
    epochs = reader.needed("epochs", "the engine counts steps, and the loop decides them", "epochs")
    dropped = around is not None and around.flag("drop_last", False) is True
    rate = steps = None
    if size is not None and examples is not None:
        batches = max(examples // size if dropped else -(-examples // size), 1)
        rate = 1 / batches
        steps = None if epochs is None else max(math.ceil(epochs * batches), 1)
        size = min(size, examples)
    delta = reader.delta(examples, "target_delta")
    return NoisySteps(sigma, delta, steps, rate, size, examples, epochs, drops_last=dropped)


def _accountant(document: Document) -> str | None:
    values = document.facts.get("accountant", ())
    return next((v.value for v in values if isinstance(v.value, str)), None)


def _is_secure(document: Document) -> bool:
    return any(value.value is True for value in document.facts.get("secure_mode", ()))
