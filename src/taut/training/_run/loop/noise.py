"""Correlated noise in a loop that exists: how many steps it is for, and how it is begun.

What a run with a directory keeps there, a loop keeps beside its ledger, under the ledger's name:
the keys of its noise, and the key of its dataset's fingerprint.
"""

from __future__ import annotations

import logging
import os
from pathlib import Path

from taut._base import validate
from taut.errors import UnsoundConfiguration
from taut.matrix import Encoder
from taut.noise import RandomSource
from taut.training._data.loader import PrivateLoader
from taut.training._data.loader_batches import LoaderBatches
from taut.training._ledger.history import RunHistory
from taut.training._ledger.ledger import RunLedger
from taut.training._noise.correlated import CorrelatedNoise
from taut.training._plan.best_sampling import BEST
from taut.training._plan.correlation import is_independent
from taut.training._plan.plan import Plan
from taut.training._run.files.noise_keys import NoiseOf, keys_of_run
from taut.training._run.files.same_dataset import KEEPS_TO_STEPS, same_dataset
from taut.training._step.private_gradient import PrivateGradient
from taut.training._tensors.processes import Processes

__all__ = ["begin_noise", "plan_to_go_on", "steps_without_promise"]

_LOG = logging.getLogger(__name__)


def steps_without_promise(
    batches: LoaderBatches, noise: Encoder | str | None, epochs: float | None
) -> int:
    """Return the number of steps that a loop is planned for, of which nobody knows the promise.

    Args:
        batches: batches of the loop.
        noise: noise, as in `make_private`.
        epochs: number of passes; None if it is not known.

    Returns:
        for independent noise, the steps of one pass: the ledger counts beyond it.
    """
    if is_independent(noise):
        if epochs is not None:
            raise ValueError(
                f"leave epochs out, got epochs={epochs!r}: with independent noise the ledger "
                "counts however many passes there are; use make_private_with_epsilon for a "
                "promise over some epochs"
            )
        return batches.in_pass
    if noise == BEST:
        raise ValueError(
            "noise='best' is chosen for a promise; use make_private_with_epsilon(..., "
            "noise='best'), or name a noise"
        )
    if epochs is not None:
        return batches.steps(validate.positive(epochs=epochs))
    if isinstance(noise, Encoder):
        return noise.steps
    raise ValueError(
        f"noise={noise!r} is made for all steps of a run, whose loss is spent with the first; give "
        "epochs, the number of passes that there will be"
    )


def plan_to_go_on(path: str | os.PathLike[str] | RunLedger | None, plan: Plan) -> Plan:
    """Return the plan of a loop: where noise is correlated, the one that its ledger began with.

    Args:
        path: file of the ledger; None if it is kept in memory.
        plan: plan that is asked for, which may differ by rounding from what another machine made.

    Raises:
        UnsoundConfiguration: if the file counts steps of another plan.
    """
    if plan.encoder is None or path is None or isinstance(path, RunLedger):
        return plan
    file = Path(path)
    found: Plan = Processes.current().agreed(lambda: _begun_with(file, plan))
    return found


def _begun_with(path: Path, plan: Plan) -> Plan:
    if not path.exists() or not path.stat().st_size:
        return plan
    counted = [segment.plan for segment in RunHistory.read(path).segments if segment.steps]
    if not all(found.is_like(plan) for found in counted):
        raise UnsoundConfiguration(
            f"the ledger {path.name} counts steps of another plan: noise, batch size, clipping, "
            "sampling or the number of epochs or examples differ. A run with correlated noise goes "
            "on as it began, and another one has a ledger of its own, whose loss adds"
        )
    return counted[-1] if counted else plan


def begin_noise(
    gradient: PrivateGradient,
    ledger: RunLedger,
    loader: PrivateLoader,
    source: RandomSource,
    *,
    divides: bool,
) -> None:
    """Let noise and batches of a loop go on where its ledger ends.

    Args:
        gradient: private gradient of the model; nothing is done unless its noise is correlated.
        ledger: ledger of the loop, with the steps so far.
        loader: loader of the loop.
        source: source of the new key.
        divides: whether sums are divided by the expected batch size, or left as sums.

    **Guarantee**: steps that were counted are not taken again, earlier noise is made again as it
    was released, and later noise has a key that no other process has.

    Raises:
        UnsoundConfiguration: if the dataset, the parameters or the keys are not those that the run
            began with.
    """
    noise, plan = gradient.step_noise, ledger.plan
    if plan.follows_ledger:
        loader.load_state_dict({"steps": ledger.position, "generator": None})
    if not isinstance(noise, CorrelatedNoise):
        return
    run = None
    if ledger.path is None:
        _LOG.info(
            "the keys of correlated noise are kept in memory: this run cannot go on in another "
            "process. Give a file as ledger= if it is to"
        )
    else:
        run = ledger.history.id
        _note_data(ledger, loader, gradient.processes)
    named = dict(zip(gradient.names, gradient.parameters, strict=True))
    belongs = NoiseOf(run, NoiseOf.layout_of(named, divides=divides), ledger.history.noise)
    keys = keys_of_run(_beside(ledger, "noise"), source, ledger, belongs, gradient.processes)
    noise.go_on(keys, ledger.position)
    loader.follow(keys.of_batches)


def _beside(ledger: RunLedger, kind: str) -> Path | None:
    """Return a private file of a loop, None if it has none."""
    path = ledger.path
    return None if path is None else path.with_name(f"{path.name}.private.{kind}")


def _note_data(ledger: RunLedger, loader: PrivateLoader, processes: Processes) -> None:
    key = _beside(ledger, "key")
    assert key is not None
    found = processes.agreed(
        lambda: same_dataset(
            key, ledger, loader.dataset, may_change=False, otherwise=KEEPS_TO_STEPS
        )
    )
    if found is not None:
        fingerprint, _ = found
        ledger.note_data(fingerprint)
