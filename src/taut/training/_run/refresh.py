"""Refreshing a clipping while a run goes on: from public examples and released weights alone."""

from __future__ import annotations

import copy
import logging
import time
import warnings
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from typing import Any

import torch
from torch import Tensor, nn
from torch.utils import _pytree as pytree
from torch.utils.data import Subset, TensorDataset, default_collate

from taut.errors import UnsoundConfiguration
from taut.training._clipping.refreshed import RefreshedClipping
from taut.training._data.batches import check_finite, inputs_and_targets
from taut.training._gradients.public_gradients import public_gradients
from taut.training._plan.plan import Plan
from taut.training._step.private_gradient import PrivateGradient
from taut.training._tensors.examples import Collate, LossFunction, batch_size, length

__all__ = ["Refresh", "refresh_of", "refuse_private"]

_LOG = logging.getLogger(__name__)


class Refresh:
    """Gives a private gradient the clipping that suits the weights, when it is due.

    Args:
        plan: plan with a `RefreshedClipping`.
        gradient: private gradient whose clipping and noise are exchanged between two steps.
        inputs: inputs of the public examples.
        targets: targets of the public examples.

    The first process computes, and all clip as it says. Layers that draw random numbers are in
    evaluation mode. If a later refresh fails, since gradients of public examples have become too
    few or too short, the last clipping is kept, with a warning: it is no less private.

    **Guarantee**: what it does is a function of public examples, of weights that were released by
    earlier steps, and of the plan; every clipping comes with its noise at the plan's multiplier.
    """

    def __init__(self, plan: Plan, gradient: PrivateGradient, inputs: Any, targets: Any) -> None:
        assert isinstance(plan.clipping, RefreshedClipping)
        self._clipping = plan.clipping
        self._plan = plan
        self._gradient = gradient
        self._inputs, self._targets = inputs, targets
        self.step: int | None = None
        """After how many updates the last refresh was, None before the first."""
        self.count = 0
        """How many refreshes there were in this process."""
        self.seconds = 0.0
        """How long they took together."""
        self._weights: dict[str, Tensor] = {}

    def is_due(self, step: int) -> bool:
        """Whether to refresh after so many updates."""
        if self.step is None:
            return True
        return step < self._plan.steps and step % self._clipping.every == 0 and step != self.step

    def renew(self, step: int, loss_fn: LossFunction) -> None:
        """Clip for the weights of the model as they are now."""
        began = time.perf_counter()
        try:
            clipping = self._gradient.processes.agreed(lambda: self._computed(loss_fn))
            noise = clipping.noise(*self._shape(), self._plan.noise_multiplier)
        except (ValueError, UnsoundConfiguration) as problem:
            if self.step is None:
                raise
            warnings.warn(
                f"keeping the subspaces of step {self.step}: refreshing at step {step} failed "
                f"({problem})",
                stacklevel=2,
            )
            return
        self._gradient.exchange(clipping, noise)
        self.step, self.count = step, self.count + 1
        self._weights = copy.deepcopy(self._gradient.model.state_dict())
        took = time.perf_counter() - began
        self.seconds += took
        _LOG.info(
            "clipping refreshed after step %d from %d public examples in %.3g s: %r",
            step,
            batch_size(self._inputs),
            took,
            clipping,
        )

    def _computed(self, loss_fn: LossFunction) -> Any:
        model = self._gradient.model
        with _repeatable(model, self._clipping.seed):
            rows = public_gradients(model, self._inputs, self._targets, loss_fn)
        return self._clipping.refreshed(rows, *self._shape())

    def _shape(self) -> tuple[list[str], list[int]]:
        named = [(n, p) for n, p in self._gradient.model.named_parameters() if p.requires_grad]
        return [name for name, _ in named], [parameter.numel() for _, parameter in named]

    # --- checkpoints ---------------------------------------------------------------------------

    def state_dict(self) -> dict[str, Any]:
        """Return the weights of the last refresh, which take less room than subspaces."""
        return {"step": self.step, "weights": self._weights, "clipping": self._current()}

    def load_state_dict(self, state: Mapping[str, Any], loss_fn: LossFunction) -> None:
        """Make the clipping of a checkpoint again; the model is left with the weights of then."""
        self._gradient.model.load_state_dict(state["weights"])
        self.step = None
        self.renew(state["step"], loss_fn)
        if self._current() != state["clipping"]:
            warnings.warn(
                "subspaces differ from those that the run had before: other public examples, or "
                "arithmetic of another machine. The run is as private, and not the same",
                stacklevel=2,
            )

    def _current(self) -> str:
        return repr(self._gradient.clipping)


def refresh_of(
    plan: Plan,
    gradient: PrivateGradient,
    public: Any,
    *,
    collate_fn: Collate | None,
    device: torch.device | None,
) -> Refresh | None:
    """Return what refreshes the clipping of a plan, None if there is nothing to refresh.

    Raises:
        ValueError: if public examples are missing, too few, or of no use.
    """
    if not isinstance(plan.clipping, RefreshedClipping):
        if public is not None:
            raise ValueError(
                f"public examples are of no use to clipping={plan.clipping!r}; leave them out, or "
                "plan with RefreshedHybridClip(...)"
            )
        return None
    if public is None:
        raise ValueError(
            f"clipping={plan.clipping!r} needs public examples; give them as "
            "PrivateTrainer(..., public=(inputs, targets)), or as a dataset"
        )
    if gradient.is_sharded:
        raise UnsoundConfiguration(
            f"{type(plan.clipping).__name__} needs whole gradients, and parameters are sharded; "
            "use DistributedDataParallel, or a clipping by groups"
        )
    if isinstance(public, tuple | list) and len(public) == 2 and isinstance(public[1], Tensor):
        batch: Any = tuple(public)
    else:
        batch = (collate_fn or default_collate)([public[i] for i in range(length(public))])
    inputs, targets = inputs_and_targets(batch, device)
    check_finite(inputs)
    plan.clipping.check_examples(batch_size(inputs))
    return Refresh(plan, gradient, inputs, targets)


def refuse_private(public: Any, dataset: Any) -> None:
    """Refuse public examples that are plainly those of the training set.

    Raises:
        UnsoundConfiguration: if they are the same dataset, places of it, or the same memory.
    """
    (given, some), (own, others) = _places(public), _places(dataset)
    if public is not None and given is own:
        shared = some is None or others is None or bool(some & others)
    else:
        shared = any(
            start < high and low < end
            for start, end in _memory(given)
            for low, high in _memory(own)
        )
    if shared:
        raise UnsoundConfiguration(
            "public examples are those of the training set, or some of them: subspaces would "
            "reveal what noise is to hide; give examples that are public, in tensors of their own"
        )


def _places(dataset: Any) -> tuple[Any, set[int] | None]:
    """Return the dataset that examples come from, and their places in it, None for all."""
    places: list[int] | None = None
    while isinstance(dataset, Subset):
        own = [int(i) for i in dataset.indices]
        places = own if places is None else [own[i] for i in places]
        dataset = dataset.dataset
    return dataset, None if places is None else set(places)


def _memory(values: Any) -> list[tuple[int, int]]:
    """Return where tensors lie, from their first byte to behind their last."""
    held = values.tensors if isinstance(values, TensorDataset) else values
    leaves = pytree.tree_leaves(held) if isinstance(held, tuple | list | dict | Tensor) else []
    return [
        (leaf.data_ptr(), leaf.data_ptr() + leaf.numel() * leaf.element_size())
        for leaf in leaves
        if isinstance(leaf, Tensor) and leaf.is_contiguous()
    ]


@contextmanager
def _repeatable(model: nn.Module, seed: int) -> Iterator[None]:
    """Let gradients depend on weights alone, and leave no trace in generators and modes."""
    modes = [(module, module.training) for module in model.modules()]
    with torch.random.fork_rng():
        torch.manual_seed(seed)
        model.eval()
        try:
            yield
        finally:
            for module, mode in modes:
                module.training = mode
