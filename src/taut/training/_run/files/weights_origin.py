"""Which runs weights have been through: noted beside them, and counted where they are loaded.

A model's `state_dict` has room for notes beside its tensors, which `torch.save` keeps and
`load_state_dict` reads. What cannot be noticed is weights that come without them: copied tensor by
tensor, kept in a format for tensors alone, or loaded before the model became private.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import asdict, dataclass
from typing import Any, Self

from torch import nn

from taut.accounting import PrivacyLoss
from taut.errors import UnsoundConfiguration
from taut.training._ledger.ledger import RunLedger
from taut.training._plan.plan import Plan

__all__ = ["Origin", "WeightsOrigin"]

_NOTE = "taut.runs"


@dataclass(frozen=True)
class Origin:
    """What was spent on weights, as far as other runs can count it; all of it is public.

    Attributes:
        runs: steps by the names of ledgers, as `RunHistory.runs`.
        has_one_price: whether all of them have the price of one step of the last plan.
        step_loss: loss of that step.
        noise_multiplier: noise multiplier of that plan,
        sampling: sampling in words, for those who read a refusal.
        units: what the price is about, examples or owners.
    """

    runs: Mapping[str, int]
    has_one_price: bool
    step_loss: Mapping[str, Any]
    noise_multiplier: float
    sampling: str
    units: str = "examples"

    @classmethod
    def of(cls, ledger: RunLedger) -> Self:
        """Return what the ledger of a run has counted so far."""
        history, plan = ledger.history, ledger.plan
        return cls(
            history.runs,
            history.has_one_price,
            plan.step_loss.to_dict(),
            plan.noise_multiplier,
            repr(plan.sampling),
            plan.units,
        )

    @classmethod
    def of_state(cls, privacy: Mapping[str, Any]) -> Self:
        """Return what the state of a private optimizer says."""
        plan = Plan.from_dict(privacy["plan"])
        return cls(
            privacy["runs"],
            privacy["has_one_price"],
            plan.step_loss.to_dict(),
            plan.noise_multiplier,
            repr(plan.sampling),
            plan.units,
        )

    def count_in(self, ledger: RunLedger) -> None:
        """Count the steps that a ledger does not count yet.

        Raises:
            UnsoundConfiguration: if they have another price than the steps of the ledger.
        """
        if not ledger.history.missing(self.runs):
            return
        plan = ledger.plan
        if self.units != plan.units:
            raise UnsoundConfiguration(
                f"the state comes from a run that protects {self.units}, and this one protects "
                f"{plan.units}: their losses do not add up; keep the ledgers of both runs and "
                "state both"
            )
        if plan.encoder is not None:
            raise UnsoundConfiguration(
                "the state comes from another run than the one that this ledger counts, and a run "
                "with correlated noise goes on with its own ledger and keys alone: give their path "
                "(ledger= of a loop, run_dir= of a trainer), also in the process that begins it. "
                "To begin a new run with these weights, load them before the model is made "
                "private, and add the losses of both"
            )
        if not (self.has_one_price and PrivacyLoss.from_dict(self.step_loss) == plan.step_loss):
            raise UnsoundConfiguration(
                "the state comes from a run with another noise, clipping or sampling, whose "
                f"steps cost something else: noise multiplier {self.noise_multiplier:g} and "
                f"{self.sampling} there, {plan.noise_multiplier:g} and {plan.sampling!r} here; go "
                "on with the settings of that run, which make_private takes with its rate=, or "
                "keep the ledgers of both runs and add their losses: load the weights before the "
                "model is made private"
            )
        ledger.include(self.runs)


class WeightsOrigin:
    """Keeps a model's weights and what was spent on them together.

    Args:
        model: model that is trained with privacy.
        ledger: function that returns the ledger of the run, None before there is one.
        at_once: whether that ledger is open while weights are loaded; otherwise `settle` counts.

    **Guarantee**: a `state_dict` of the model, once a step was counted, names the runs that its
    weights have been through. Loading one with such a note hands it to the ledger at once, or keeps
    it for `settle`; nothing of a state that is refused has been loaded.
    """

    def __init__(
        self, model: nn.Module, ledger: Callable[[], RunLedger | None], *, at_once: bool
    ) -> None:
        self._ledger = ledger
        self._at_once = at_once
        self._found: list[Origin] = []
        earlier = [h for h in model._state_dict_hooks.items() if isinstance(h[1], _Note)]
        for key, _ in earlier:  # of a run that is over
            del model._state_dict_hooks[key]
        model.register_state_dict_post_hook(_Note(ledger))
        self._hook = model.register_load_state_dict_pre_hook(_Notice(self._loaded))

    def settle(self, ledger: RunLedger) -> None:
        """Count in a ledger that was opened what was spent on weights that were loaded before."""
        found, self._found = self._found, []
        for origin in found:
            origin.count_in(ledger)

    def forget(self) -> None:
        """Forget what was loaded: all weights are replaced by those of a checkpoint."""
        self._found = []

    def remove(self) -> None:
        """Look no longer at what is loaded; what was spent stays noted."""
        self._hook.remove()

    def _loaded(self, origin: Origin) -> None:
        ledger = self._ledger()
        if ledger is not None and self._at_once:
            origin.count_in(ledger)
        else:
            self._found.append(origin)


class _Note:
    """Writes into a model's state what was spent on it."""

    def __init__(self, ledger: Callable[[], RunLedger | None], last: Any = None) -> None:
        self._ledger = ledger
        self._last: dict[str, Any] | None = last

    def __call__(
        self, module: nn.Module, state: Any, prefix: str, metadata: dict[str, Any]
    ) -> None:
        note = self._now()
        if note is not None:
            metadata[_NOTE] = note

    def _now(self) -> dict[str, Any] | None:
        ledger = self._ledger()
        return self._last if ledger is None or not ledger.steps else asdict(Origin.of(ledger))

    def __deepcopy__(self, memo: dict[int, Any]) -> _Note:
        return self  # weights of a copy, such as an average, come from the same run

    def __reduce__(self) -> tuple[Any, ...]:
        return _Note, (_no_ledger, self._now())


class _Notice:
    """Hands on what a state says that is loaded into a model."""

    def __init__(self, loaded: Callable[[Origin], None]) -> None:
        self._loaded = loaded

    def __call__(
        self, module: nn.Module, state: Any, prefix: str, metadata: Any, *others: Any
    ) -> None:
        note = metadata.get(_NOTE)
        if note is not None:
            self._loaded(Origin(**note))

    def __deepcopy__(self, memo: dict[int, Any]) -> _Notice:
        return _Notice(_ignore)  # nobody trains a copy with this ledger

    def __reduce__(self) -> tuple[Any, ...]:
        return _Notice, (_ignore,)


def _no_ledger() -> None:
    return None


def _ignore(origin: Origin) -> None:
    pass
