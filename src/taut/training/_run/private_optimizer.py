"""An optimizer of torch whose gradients are private, for loops that stay as they are."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from typing import Any

import torch
from torch.optim import Optimizer

from taut.accounting import Bounds, PrivacyLoss
from taut.errors import UnsoundConfiguration
from taut.training._data.loader import MicroBatch, PrivateLoader, check_sampler
from taut.training._ledger.ledger import RunLedger
from taut.training._plan.plan import Plan
from taut.training._run.files.weights_origin import Origin, WeightsOrigin
from taut.training._step.dropped_examples import warn_of_dropped
from taut.training._step.loop_loss import Criterion
from taut.training._step.optimizer_checks import check_linear, check_optimizer, refuse_plateau
from taut.training._step.planned_step import PlannedStep
from taut.training._step.private_gradient import PrivateGradient
from taut.training._step.recorded_passes import RecordedPasses
from taut.training._step.watched_weights import WatchedWeights

__all__ = ["PrivateOptimizer"]


class PrivateOptimizer(Optimizer):
    """Steps with clipped, noised gradients, once for every batch of its loader.

    `make_private` makes one. Settings and state are those of the optimizer inside: schedulers,
    `state_dict` and `param_groups` work as before. `zero_grad` does not touch what was summed, and
    `step` does nothing before the last part of a logical batch.

    Args:
        optimizer: what turns gradients into updates.
        gradient: private gradient of the model.
        ledger: counts every step before it is taken.
        planned: gives the gradient the noise of a step, where that changes or is correlated; None
            if it does not.
        is_mean: whether the loss is a mean over the batch.
        criterion: makes the loss of single examples; None if it is to be recognised.

    **Guarantee**: the update of a step depends on examples through the sum of clipped gradients
    plus noise, drawn once for each logical batch, and not through the realised batch size.
    """

    def __init__(
        self,
        optimizer: Optimizer,
        gradient: PrivateGradient,
        ledger: RunLedger,
        *,
        is_mean: bool,
        criterion: Criterion | None = None,
        planned: PlannedStep | None = None,
    ) -> None:
        # The state is that of the optimizer inside, so the constructor of the base is not for us.
        check_optimizer(gradient.model, optimizer)
        gradient.check_processes(optimizer)
        if ledger.plan.is_scheduled and planned is None:
            raise UnsoundConfiguration(
                "the ledger was opened with a plan whose noise or batch sizes change; use "
                "PrivateTrainer, or make_private_with_epsilon(..., noise_schedule=...)"
            )
        self._planned = planned
        if ledger.plan.unit is not None:
            raise UnsoundConfiguration(
                "the ledger was opened with a plan for owners, whose examples this loop would clip "
                "one by one; use PrivateTrainer and fit(dataset, owners=...)"
            )
        if ledger.plan.encoder is not None:
            if planned is None:
                raise UnsoundConfiguration(
                    "the ledger was opened with a plan of correlated noise, whose keys nobody has "
                    "begun; use make_private(..., noise=...), or PrivateTrainer"
                )
            check_linear(optimizer)
        if ledger.plan.mixing is not None:
            raise UnsoundConfiguration(
                "the ledger was opened with a plan that mixes weights, which takes an optimizer of "
                "its own; use PrivateTrainer, or a plan without mixing"
            )
        self.inner = optimizer
        self.ledger = ledger
        self._gradient = gradient
        self._passes = RecordedPasses(gradient, is_mean=is_mean, criterion=criterion)
        self._loader: PrivateLoader | None = None
        self._given: MicroBatch | None = None
        self._is_begun = False
        self.dropped_examples = 0
        """How often an example counted for nothing since its gradient was not finite, in this
        process; not for publication."""
        self._is_removed = False
        self._weights = WatchedWeights(gradient.parameters)
        self._origin = WeightsOrigin(gradient.model, lambda: ledger, at_once=True)
        optimizer.register_state_dict_post_hook(self._noted)
        self._is_stepping = False
        self._rates: list[Any] | None = None
        self._guard = optimizer.register_step_pre_hook(self._refuse_raw)
        self._optimizer_step_pre_hooks = optimizer._optimizer_step_pre_hooks
        self._optimizer_step_post_hooks = optimizer._optimizer_step_post_hooks
        self._optimizer_state_dict_pre_hooks = optimizer._optimizer_state_dict_pre_hooks
        self._optimizer_state_dict_post_hooks = optimizer._optimizer_state_dict_post_hooks
        self._optimizer_load_state_dict_pre_hooks = optimizer._optimizer_load_state_dict_pre_hooks
        self._optimizer_load_state_dict_post_hooks = optimizer._optimizer_load_state_dict_post_hooks

    # --- what was spent ------------------------------------------------------------------------

    @property
    def plan(self) -> Plan:
        """What a step costs."""
        return self.ledger.plan

    @property
    def loss(self) -> PrivacyLoss:
        """The privacy loss of all steps so far.

        It counts what the ledger counts, earlier processes of the same run included.
        """
        return self.ledger.loss

    def get_epsilon(self, delta: float) -> float:
        """Return a certified upper bound on epsilon at `delta` for all steps so far."""
        return self.ledger.epsilon(delta)

    def epsilon_bounds(self, delta: float) -> Bounds:
        """Return certified bounds on epsilon at `delta` for all steps so far."""
        return self.loss.epsilon_bounds(delta)

    # --- the loop ------------------------------------------------------------------------------

    def zero_grad(self, set_to_none: bool = True) -> None:
        """Clear the gradients of parameters; what the logical batch has summed up stays."""
        self.inner.zero_grad(set_to_none)

    def step(self, closure: Callable[[], Any] | None = None) -> Any:
        """Take the part of a batch that went through the model; after the last part, update.

        Args:
            closure: runs the forward and the backward pass; called once, if given.

        Returns:
            what the closure returned.

        Raises:
            UnsoundConfiguration: if the private loader handed out no batch since the last step, or
                no gradients of it were recorded, or parameters, optimizer or sampler were changed.
            BudgetExceeded: if the plan's promise leaves no room for the step.
        """
        if self._is_removed:
            raise UnsoundConfiguration("this optimizer was removed from its module")
        if self._given is None:
            raise UnsoundConfiguration(
                "step() without a batch from the private loader since the last step: iterate over "
                "the loader that make_private returned, and step once for each of its batches"
            )
        found = None
        if closure is not None:
            with torch.enable_grad():
                found = closure()
        self._weights.check()
        self._passes.take()
        if self._given.is_last:
            self._update()
        self._given = None  # not before: a step that failed is still due
        return found

    def _update(self) -> None:
        self._check_rates()
        self._gradient.check_optimizer(self.inner)
        if self.plan.encoder is not None:
            check_linear(self.inner, known=self._guard.id)  # hooks may have been added since
        loader = check_sampler(self._loader, self.plan.sampling)
        self.ledger.record(self.ledger.steps, loader.current.place if loader.current else None)
        self.dropped_examples = warn_of_dropped(self.dropped_examples, self._gradient.dropped)
        self._gradient.finish()
        self._is_begun = False
        self._is_stepping = True
        try:
            self.inner.step()
        finally:
            self._is_stepping = False
        self._weights.settle()

    def _refuse_raw(self, *_: Any) -> None:
        if not self._is_stepping:
            raise UnsoundConfiguration(
                "the optimizer inside of a private one was told to step, with gradients that are "
                "neither clipped nor noised; call step() of the optimizer that make_private "
                "returned, or remove() it first"
            )

    def _check_rates(self) -> None:
        """Look for a scheduler that follows losses: at first, and when a rate has changed once."""
        rates = [group.get("lr") for group in self.param_groups]
        if self._rates is None or (self._rates and rates != self._rates):
            refuse_plateau(self, self.inner)
            self._rates = rates if self._rates is None else []

    @contextmanager
    def public_change(self) -> Iterator[None]:
        """Let weights be changed inside by something that does not depend on private examples.

        **Guarantee**: none about the change: what is written to weights inside is taken to be
        public, or a function of what was released.
        """
        self._weights.check()
        yield
        self._weights.settle()

    # --- what the loader calls -----------------------------------------------------------------

    def follow(self, loader: PrivateLoader) -> None:
        """Expect batches from a loader, which says so before it hands them out."""
        if loader.processes != self._gradient.processes:
            raise UnsoundConfiguration(
                "the loader shares batches out to other processes than those that add up gradients"
            )
        self._loader = loader

    def begin_pass(self) -> None:
        """Begin with a whole batch.

        A batch of which some parts were left off has been drawn and counts as a step, of noise
        alone: what was summed of it is dropped.

        Raises:
            UnsoundConfiguration: if the last batch was not followed by a step.
        """
        self._refuse_skipped()
        self._passes.forget()
        if self._is_begun:
            self._update()

    def expect(self, part: MicroBatch) -> None:
        """Expect the pass of a batch; without examples, take its step of noise at once."""
        self._refuse_skipped()
        if self._planned is not None:
            self._planned.come_to(part.place)
        self._is_begun = True
        self._gradient.begin()
        if part.is_empty:
            self._update()
            return
        self._given = part
        self._passes.expect(part.size, part.data)

    def _refuse_skipped(self) -> None:
        if self._given is not None:
            raise UnsoundConfiguration(
                "the last batch was skipped: no optimizer.step() followed it. Leaving out batches "
                "because of what is in them is not covered by the noise: call optimizer.step() for "
                "every batch; to end a pass early, stop after a step; to look at examples, use "
                "loader.dataset; to sum gradients over several batches, use a DataLoader with a "
                "larger batch_size and max_physical_batch_size"
            )

    def remove(self) -> None:
        """Detach from the module, which is then as it was before."""
        self._passes.remove()
        self._guard.remove()
        self._origin.remove()
        self._is_removed = True

    # --- as an optimizer of torch --------------------------------------------------------------

    @property
    def param_groups(self) -> list[dict[str, Any]]:  # type: ignore[override]
        """The groups of the optimizer inside."""
        return self.inner.param_groups

    @property
    def state(self) -> Any:  # type: ignore[override]
        """The state of the optimizer inside."""
        return self.inner.state

    @property
    def defaults(self) -> dict[str, Any]:  # type: ignore[override]
        """The defaults of the optimizer inside."""
        return self.inner.defaults

    def state_dict(self) -> dict[str, Any]:
        """Return the state of the optimizer inside, and what the ledgers have counted.

        A clipping norm that changes from step to step is in it too. The state of the optimizer
        inside says the same, if it is asked itself.
        """
        state = self.inner.state_dict()
        if "privacy" not in state:  # of an optimizer that calls no hooks
            self._noted(self.inner, state)
        return state

    def _noted(self, inner: Optimizer, state: dict[str, Any]) -> None:
        """Put into the state of the optimizer inside what was spent on the weights."""
        history = self.ledger.history
        state["privacy"] = {
            "runs": history.runs,
            "has_one_price": history.has_one_price,
            "plan": self.plan.to_dict(),
            "gradient": self._gradient.state_dict(),
        }

    def load_state_dict(self, state_dict: Mapping[str, Any]) -> None:
        """Go on from a state; steps that were counted stay counted.

        The steps of the state that the ledger does not count yet are added: those of another run
        were spent on these weights too. Only a ledger in a file knows of steps that were taken
        after the state was saved.

        Raises:
            UnsoundConfiguration: if such steps had another price.
        """
        state = dict(state_dict)
        privacy = state.pop("privacy", None)
        if privacy is not None and self.ledger.history.missing(privacy["runs"]):
            Origin.of_state(privacy).count_in(self.ledger)
        if privacy is not None:
            self._gradient.load_state_dict(privacy["gradient"])
        self.inner.load_state_dict(state)
        self._weights = WatchedWeights(self._gradient.parameters)  # they may be loaded, too

    @property
    def _step_supports_amp_scaling(self) -> bool:
        """Refuse scaled losses: `GradScaler.step` asks this first."""
        raise UnsoundConfiguration(
            "GradScaler multiplies the loss, and with it what is clipped, and leaves out steps "
            "whose gradients are not finite, which depends on examples; use bfloat16, which needs "
            "no scaling (torch.autocast(..., dtype=torch.bfloat16)), and call optimizer.step()"
        )

    def add_param_group(self, param_group: dict[str, Any]) -> None:
        """Refuse: gradients of added parameters would not be private."""
        raise UnsoundConfiguration(
            "parameters cannot be added to a private optimizer: add them to the optimizer before "
            "make_private"
        )

    def __repr__(self) -> str:
        plan = self.plan
        return (
            f"PrivateOptimizer({self.inner!r}, noise_multiplier={plan.noise_multiplier!r}, "
            f"clipping={plan.clipping!r}, sampling={plan.sampling!r}, "
            f"expected_batch_size={plan.batch_size:.6g})"
        )

    def __getstate__(self) -> dict[str, Any]:
        raise TypeError("a private optimizer cannot be copied; save its state_dict()")
