"""Opacus: `PrivacyEngine.make_private` and `make_private_with_epsilon`, and schedules of noise.

Argument names and behaviour are those of version 1.6: the rate is one over the number of batches of
the loader, whatever its sampler, and the accountant takes batches for Poisson samples.
"""

from __future__ import annotations

import math
from dataclasses import replace

from taut.accounting import Adjacency
from taut.audit._settings.document import DATA_LOADER, HIDDEN, SET, Call, Document, Signature
from taut.audit._settings.reader import Reader
from taut.audit._settings.result import CheckedSetting, SettingsReading
from taut.audit._settings.runs import NoisySteps, least_noise

__all__ = ["OPACUS", "check_opacus"]

_SCHEDULES = ("ExponentialNoise", "StepNoise", "LambdaNoise")
_FIRST = ("module", "optimizer", "data_loader")  # by place in versions before 1.5
OPACUS = (
    Signature(
        "make_private",
        _FIRST,
        keys=(frozenset({"noise_multiplier", "max_grad_norm"}),),
        marks=("noise_multiplier", "max_grad_norm"),
    ),
    Signature(
        "make_private_with_epsilon",
        _FIRST,
        keys=(frozenset({"target_epsilon", "max_grad_norm"}),),
        marks=("target_epsilon", "max_grad_norm"),
    ),
    *(Signature(name, marks=("gamma", "noise_lambda")) for name in _SCHEDULES),
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
_CHANGING = (
    "the noise of every step: a schedule changes it while training goes on; sum the losses of all "
    "steps, as taut.gaussian(sigma).poisson(rate)"
)
_OPEN_BATCH = (
    "batch_size: the loader gets one that the file does not show; give it with --batch-size"
)
_WHY_BATCH = "the loader decides how many examples a step sees"
_OTHER_BATCHES = ("sampler", "batch_sampler")
_OWN_SAMPLER = (
    "the number of batches: the loader has a sampler of its own, which decides about it, and the "
    "rate is one over it; give --batch-size, and --examples as it draws them"
)


def check_opacus(reader: Reader, document: Document) -> CheckedSetting:
    """Return what a private engine of Opacus promises.

    Args:
        reader: the arguments of the call.
        document: the file around it.
    """
    if reader.call.name in _SCHEDULES:
        return _schedule(reader)
    calibrated = reader.call.name == "make_private_with_epsilon"
    claimed = sigma = None
    if calibrated:
        claimed = reader.needed("target_epsilon", "noise is found for it", "target_epsilon")
    else:
        claimed = reader.beside("target_epsilon")
        sigma = reader.needed("noise_multiplier", "no noise, no promise", "noise_multiplier")
    reader.own("max_grad_norm")
    poisson = reader.flag("poisson_sampling", True)
    runs = _runs(reader, sigma)
    if calibrated and claimed is not None:
        asked = [least_noise(run, claimed) for run in _runs(reader.as_called(), None)]
        runs = tuple(replace(run, sigma=least) for run, least in zip(runs, asked, strict=True))
        if asked[0] is not None:
            reader.read["noise_multiplier"] = (
                f"{asked[0]:.4g} (the least that keeps target_epsilon)"
            )
    run = runs[0]
    wrong = [_NOT_POISSON + _reported(run)] if poisson is False else []
    wrong += [_GDP] if _accountant(document) == "gdp" else []
    notes = [_SIZE] if _is_secure(document) else [_SECURE, _SIZE]
    notes += [_ADAPTIVE] if reader.own("clipping") == "adaptive" else []
    readings = [
        *(run.poisson() for run in runs if poisson is not False),
        *(run.shuffled() for run in runs if poisson is not True),
    ]
    if any(call.name in _SCHEDULES for call in document.calls) or _is_changed(document, sigma):
        readings = [replace(reading, bounds=None) for reading in readings]
        notes = [_CHANGING, *notes]
    return CheckedSetting(
        tool=f"Opacus {reader.call.name}",
        where=reader.call.where,
        unit="example",
        read=reader.read,
        delta=run.delta,
        claimed=claimed,
        readings=tuple(readings),
        false_promises=tuple(wrong),
        missing=(*reader.missing, *notes),
    )


def _schedule(reader: Reader) -> CheckedSetting:
    for name in ("gamma", "step_size"):
        reader.own(name)
    assumes = "the noise of every step is known"
    return CheckedSetting(
        tool=f"Opacus {reader.call.name}",
        where=reader.call.where,
        unit="example",
        read=reader.read,
        delta=None,
        claimed=None,
        readings=(SettingsReading("noise on a schedule", Adjacency.ADD_REMOVE, assumes),),
        missing=(_CHANGING,),
    )


def _reported(run: NoisySteps) -> str:
    """Return what an accountant says about batches that were not drawn so, as a rough number."""
    bounds = run.poisson().bounds
    return "" if bounds is None else f" (it reports about {bounds.upper:.2g})"


def _runs(reader: Reader, sigma: float | None) -> tuple[NoisySteps, ...]:
    """Return the run; two of them, if the file leaves open whether the loader cuts its end off."""
    loader = reader.nested("data_loader")
    size = reader.whole("batch_size", _batch_of(reader, loader))
    examples = reader.whole(
        "examples", reader.needed("examples", "the rate is a batch over all examples")
    )
    steps, epochs = reader.steps_for("epochs"), None
    if steps is None:
        why = "the engine counts steps, and the loop decides them"
        epochs = reader.needed("epochs", why, "epochs")
    delta = reader.delta(examples, "target_delta")
    if size is None or examples is None:
        return (NoisySteps(sigma, delta, steps, None, size, examples, epochs),)
    dropped = _drops_last(reader.document, loader)
    found = []
    for drops in (False, True) if dropped is None and examples % size else (bool(dropped),):
        batches = max(examples // size if drops else -(-examples // size), 1)
        count = steps if epochs is None else max(math.ceil(epochs * batches), 1)
        batch = min(size, examples)
        run = NoisySteps(sigma, delta, count, 1 / batches, batch, examples, epochs)
        found.append(replace(run, drops_last=drops))
    return tuple(found)


def _batch_of(reader: Reader, loader: Call | None) -> float | None:
    """Return how many examples a loader puts into a batch; None, and a note, if that is open."""
    if loader is None:
        return reader.needed("batch_size", _WHY_BATCH)
    around = Reader(loader, Document(()), reader.given, own_first=reader.own_first)
    others = [around.own(name) is not None or around.is_open(name) for name in _OTHER_BATCHES]
    if any(others) and reader.given.get("batch_size") is None:
        reader.missing.append(_OWN_SAMPLER)
        return None
    batch = around.number("batch_size", "batch_size")
    if batch is not None:
        reader.read["batch_size"] = around.read["batch_size"]
    elif around.is_open("batch_size") or around.is_open(HIDDEN):
        reader.missing.append(_OPEN_BATCH)
    elif loader.name == DATA_LOADER.name:
        reader.read["batch_size"] = f"1 (default of the loader, {loader.where})"
        return 1.0
    else:
        return reader.needed("batch_size", _WHY_BATCH)
    return batch


def _drops_last(document: Document, loader: Call | None) -> bool | None:
    """Say whether a loader leaves out records that fill no batch; None if the file does not."""
    if loader is not None and loader.name == DATA_LOADER.name:
        around = Reader(loader, Document(()), {})
        return None if around.is_open(HIDDEN) else around.flag("drop_last", False)
    said = [value.value for value in document.facts.get("drop_last", ())] or [False]
    return said[0] if said[0] in (True, False) and said.count(said[0]) == len(said) else None


def _is_changed(document: Document, sigma: float | None) -> bool:
    """Say whether a program sets the noise of an optimizer to another value later."""
    values = document.facts.get(SET + "noise_multiplier", ())
    return any(sigma is None or value.value != sigma for value in values)


def _accountant(document: Document) -> str | None:
    values = document.facts.get("accountant", ())
    return next((v.value for v in values if isinstance(v.value, str)), None)


def _is_secure(document: Document) -> bool:
    return any(value.value is True for value in document.facts.get("secure_mode", ()))
