"""JAX Privacy: `DPKerasConfig`, and the events of its accounting module.

Argument names and behaviour are those of version 2.3: the Keras wrapper accounts Poisson samples of
the effective batch size, and draws them only with `poisson_sampling_in_fit`.
"""

from __future__ import annotations

from dataclasses import replace

from taut._base import validate
from taut.accounting import Adjacency, GaussianRun, Sampler
from taut.audit._settings.document import Document, Signature
from taut.audit._settings.reader import Reader
from taut.audit._settings.result import CheckedSetting, SettingsReading
from taut.audit._settings.runs import NoisySteps, least_noise, of_loss

__all__ = ["JAX_PRIVACY", "check_jax_privacy"]

_KERAS = (
    *("epsilon", "delta", "clipping_norm", "batch_size", "gradient_accumulation_steps"),
    *("train_steps", "train_size", "poisson_sampling_in_fit", "noise_multiplier"),
)
JAX_PRIVACY = (
    Signature(
        "DPKerasConfig", _KERAS, (frozenset({"clipping_norm", "train_steps", "train_size"}),)
    ),
    Signature(
        "dpsgd_event",
        ("noise_multiplier", "iterations"),
        (frozenset({"noise_multiplier", "iterations", "sampling_prob"}),),
    ),
    Signature(
        "fixed_dpsgd_event",
        ("noise_multiplier", "iterations"),
        (frozenset({"noise_multiplier", "iterations", "dataset_size", "batch_size"}),),
    ),
    Signature("truncated_dpsgd_event", ("noise_multiplier", "iterations")),
    Signature("BandMFConfig"),
)
_OFTEN = "gradient_accumulation_steps"
_LOOSE_TARGET = (
    "a noise_multiplier of one's own is accepted up to 0.1 beyond epsilon: state the bounds here, "
    "not epsilon"
)
_NOT_SAMPLED = (
    "poisson_sampling_in_fit=False, the default, leaves batches to Keras, which shuffles, and "
    "accounts Poisson samples; set it to True, or hand over a dataset that is sampled so"
)
_SEED = "the seed: noise of a seed that is known is no noise; leave it out for what is published"
_SAMPLED_ELSEWHERE = "who draws batches: an event is no sampler; name the one that was used"
_BANDS = (
    "correlated noise is not read from settings; compute its loss with taut.matrix, from the "
    "strategy and the participation"
)


def check_jax_privacy(reader: Reader, document: Document) -> CheckedSetting:  # noqa: ARG001
    """Return what settings of JAX Privacy promise.

    Args:
        reader: the arguments of the call.
        document: the file around it.
    """
    if reader.call.name == "DPKerasConfig":
        return _keras(reader)
    reading, delta = _event(reader)
    return CheckedSetting(
        tool=f"JAX Privacy {reader.call.name}",
        where=reader.call.where,
        unit="example",
        read=reader.read,
        delta=delta,
        claimed=None,
        readings=(reading,),
        missing=(*reader.missing, _SAMPLED_ELSEWHERE),
    )


def _keras(reader: Reader) -> CheckedSetting:
    claimed = reader.needed("epsilon", "the tool asks for it", "epsilon")
    run = _run(reader)
    wrong = []
    if run.sigma is None and claimed and not reader.is_open("noise_multiplier"):
        sigma = least_noise(_run(reader.as_called()), claimed)
        run = replace(run, sigma=sigma)
        if sigma is not None:
            reader.read["noise_multiplier"] = f"{sigma:.4g} (the least that keeps epsilon)"
    elif run.sigma is not None:
        wrong.append(_LOOSE_TARGET)
    poisson = reader.flag("poisson_sampling_in_fit", False)
    readings = [run.poisson()]
    if poisson is not True:
        wrong += [_NOT_SAMPLED] if poisson is False else []
        readings.append(run.shuffled())
    seeded = (_SEED,) if reader.own("seed") is not None else ()
    return CheckedSetting(
        tool="JAX Privacy DPKerasConfig",
        where=reader.call.where,
        unit="example",
        read=reader.read,
        delta=run.delta,
        claimed=claimed,
        readings=tuple(readings),
        false_promises=_that_matter(wrong, run, claimed),
        missing=(*reader.missing, *seeded),
    )


def _run(reader: Reader) -> NoisySteps:
    # An argument that is left out asks the tool for noise, whatever else in the file has some.
    own = "noise_multiplier" in reader.call.arguments
    sigma = reader.number("noise_multiplier", "noise_multiplier") if own else None
    records = reader.whole(
        "examples", reader.needed("examples", "the rate is a batch over them", "train_size")
    )
    micro = reader.whole(
        "batch_size", reader.needed("batch_size", "the rate is a batch over all", "batch_size")
    )
    often = reader.whole(_OFTEN, reader.own(_OFTEN, None if reader.is_open(_OFTEN) else 1))
    steps = reader.whole("steps", reader.needed("steps", "every step is a release", "train_steps"))
    reader.own("clipping_norm")
    delta = reader.delta(records, "delta")
    batch = None if micro is None or often is None else micro * often
    rate = None
    if batch is not None and records is not None:
        batch = min(batch, records)
        rate = batch / records
    return NoisySteps(sigma, delta, steps, rate, batch, records)


def _that_matter(wrong: list[str], run: NoisySteps, claimed: float | None) -> tuple[str, ...]:
    """Return the false promises; a target that is kept after all is none."""
    bounds = run.poisson().bounds
    kept = bounds is not None and claimed is not None and bounds.upper <= claimed
    return tuple(text for text in wrong if not (kept and text is _LOOSE_TARGET))


def _event(reader: Reader) -> tuple[SettingsReading, float | None]:
    if reader.call.name == "BandMFConfig":
        reader.missing.append(_BANDS)
        reading = SettingsReading("correlated noise", Adjacency.ADD_REMOVE, "not read")
        return reading, reader.number("delta")
    sigma = reader.needed("noise_multiplier", "no noise, no promise", "noise_multiplier")
    steps = reader.whole("steps", reader.needed("steps", "every step is a release", "iterations"))
    if reader.call.name == "fixed_dpsgd_event":
        records = reader.whole("examples", reader.needed("examples", "the rate", "dataset_size"))
        batch = reader.whole("batch_size", reader.needed("batch_size", "the rate", "batch_size"))
        delta = reader.delta(records)
        if reader.flag("replace", False) is not False:
            reader.missing.append(
                "a theorem: batches drawn with replacement have none here; draw without"
            )
            reading = SettingsReading("batches with replacement", Adjacency.REPLACE, "no theorem")
            return reading, delta
        return NoisySteps(sigma, delta, steps, None, batch, records).fixed_size(), delta
    rate = reader.needed("rate", "the share of examples in a step", "sampling_prob")
    if reader.call.name == "dpsgd_event":
        delta = reader.delta()
        return NoisySteps(sigma, delta, steps, rate).poisson(), delta
    records = reader.whole(
        "examples", reader.needed("examples", "how batches fill", "num_examples")
    )
    cap = reader.whole("cap", reader.needed("cap", "where batches are cut", "truncated_batch_size"))
    delta = reader.delta(records)
    loss = None
    if sigma and steps and rate is not None and records and cap:
        run = GaussianRun.of(
            Sampler.TRUNCATED_POISSON, rate=rate, steps=steps, examples=records, cap=cap
        )
        noise = validate.positive(noise_multiplier=sigma)
        loss = lambda: run.loss(noise)  # noqa: E731
    name, words = "Poisson batches with a cap", "of more examples than the cap, a subset is kept"
    return of_loss(name, words, Adjacency.ADD_REMOVE, loss, delta), delta
