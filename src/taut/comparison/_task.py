"""What is trained in every run of a comparison, and on what."""

from __future__ import annotations

import hashlib
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass, field
from typing import Any

import numpy as np
import torch
from torch import Tensor, nn
from torch.optim import SGD, Optimizer
from torch.utils.data import Subset, TensorDataset, default_collate

from taut._base import validate
from taut._base.public_vectors import Rows
from taut.comparison.arms._arms import MakeOptimizer
from taut.errors import UnsoundConfiguration
from taut.training import Loading, public_gradients
from taut.training.extend import apply, inputs_and_targets, length, per_example, refuse_private

__all__ = ["Task", "seeded"]


def _plain_sgd(parameters: list[Tensor], learning_rate: float) -> Optimizer:
    return SGD(parameters, lr=learning_rate)


_SIMPLE = (bool, int, float, str)
# What the comparison itself decides, so that every arm gets the same.
_RESERVED = frozenset({"generator", "logs", "optimizer", "plan", "run_dir"})


@dataclass(frozen=True, kw_only=True, eq=False)
class Task:
    """A model, its data and how it is optimised: the same for every arm.

    Args:
        model: a function without arguments that makes a model; called anew for every run, with
            torch seeded, so that all arms start from the same weights.
        loss_fn: loss function, as for `PrivateTrainer`.
        train: examples to train on: inputs and targets.
        test: examples that arms are judged by.
        validation: examples that choose the learning rate; `test` if left out, which flatters
            every arm alike.
        public: public examples, for arms that look at gradients; a few hundred do.
        optimizer: a function from parameters and a learning rate; plain SGD if left out.
        trainer: further arguments of `PrivateTrainer`, such as ``{"ema": 0.999}``.

    **Guarantee**: none of its own. Data are compared on as if they were public; see `compare`.

    Raises:
        ValueError: if model is not a function, a dataset is empty, or `trainer` names what the
            comparison decides.
        UnsoundConfiguration: if public examples are among those that are trained on.

    Example:
        >>> import torch
        >>> from torch.utils.data import TensorDataset
        >>> from taut.comparison import Task
        >>> data, other = (
        ...     TensorDataset(torch.randn(60, 4), torch.arange(60) % 2) for _ in range(2)
        ... )
        >>> task = Task(
        ...     model=lambda: torch.nn.Linear(4, 2),
        ...     loss_fn=torch.nn.CrossEntropyLoss(),
        ...     train=data, test=data, public=other,
        ... )
        >>> task.sizes
        {'weight': 8, 'bias': 2}
        >>> task.gradients(seed=0).shape
        (60, 10)
    """

    model: Callable[[], nn.Module]
    loss_fn: Any
    train: Any
    test: Any
    validation: Any = None
    public: Any = None
    optimizer: MakeOptimizer = _plain_sgd
    trainer: Mapping[str, Any] = field(default_factory=dict)

    def __post_init__(self) -> None:
        if isinstance(self.model, nn.Module) or not callable(self.model):
            raise validate.WrongType(
                "model must be a function that makes a new model for every run, got "
                f"{type(self.model).__name__}; write model=lambda: ..."
            )
        for name, data in self._datasets():
            if not length(data):
                raise ValueError(f"{name} must hold examples, got none")
        refuse_private(self.public, self.train)
        reserved = sorted(_RESERVED & set(self.trainer))
        if reserved:
            raise ValueError(f"trainer must leave {reserved[0]!r} to the comparison")

    @property
    def sizes(self) -> dict[str, int]:
        """The number of entries of every trainable parameter, by name."""
        return _sizes(self.new_model(0))

    def new_model(self, seed: int) -> nn.Module:
        """Return the model with the first weights of a seed."""
        with seeded(seed):
            model = self.model()
        if not isinstance(model, nn.Module):
            raise validate.WrongType(
                f"model must make a torch.nn.Module, got {type(model).__name__}"
            )
        return model

    def gradients(self, seed: int) -> Rows | None:
        """Return the gradients of the public examples at the first weights of a seed, if any."""
        if self.public is None:
            return None
        model, count = self.new_model(seed), len(self.public)
        collate = self.trainer.get("loading", Loading()).collate_fn or default_collate
        inputs, targets = inputs_and_targets(collate([self.public[i] for i in range(count)]))
        with torch.no_grad(), seeded(seed):
            outputs = apply(model, inputs)
        losses = per_example(self.loss_fn, outputs, targets, count)
        with seeded(seed):
            return public_gradients(model, inputs, targets, losses)

    def fingerprint(self) -> dict[str, Any]:
        """Return what tells this task from others, JSON-ready.

        Tensors of a `TensorDataset` are hashed, also under a `Subset`; of other datasets only type
        and length are known.
        """
        model = self.new_model(0)
        state = hashlib.sha256(repr(model).encode())
        for name, tensor in model.state_dict().items():
            state.update(name.encode())
            state.update(_bytes(tensor))
        optimizer = self.optimizer([p for p in model.parameters() if p.requires_grad], 1.0)
        return {
            "model": state.hexdigest(),
            "loss_fn": _named(self.loss_fn),
            "optimizer": [type(optimizer).__name__, repr(sorted(optimizer.defaults.items()))],
            "trainer": {name: _named(value) for name, value in sorted(self.trainer.items())},
            "data": {name: _digest(data) for name, data in self._datasets()},
        }

    def check_examples(self, examples: int) -> None:
        """Refuse settings for another number of examples: their epsilon would be another one's."""
        if len(self.train) != examples:
            raise UnsoundConfiguration(
                f"the settings are for examples={examples}, and train holds {len(self.train)}; "
                "give Settings(examples=len(train), ...)"
            )

    def _datasets(self) -> Iterator[tuple[str, Any]]:
        for name in ("train", "test", "validation", "public"):
            data = getattr(self, name)
            if data is not None:
                yield name, data


@contextmanager
def seeded(seed: int) -> Iterator[None]:
    """Give torch a seed inside of the block, and its own randomness back after it."""
    with torch.random.fork_rng():
        torch.manual_seed(seed)
        yield


def _sizes(model: nn.Module) -> dict[str, int]:
    return {name: p.numel() for name, p in model.named_parameters() if p.requires_grad}


def _named(value: Any) -> str:
    """Return a description that is the same in the next process: functions by their name."""
    if isinstance(value, nn.Module):
        simple = {k: v for k, v in sorted(vars(value).items()) if isinstance(v, _SIMPLE)}
        return f"{value!r} {simple}"
    if callable(value):
        name = getattr(value, "__qualname__", type(value).__qualname__)
        return f"{getattr(value, '__module__', '')}.{name}"
    return repr(value)


def _digest(data: Any) -> str:
    if isinstance(data, Subset):
        places = hashlib.sha256(np.asarray(data.indices, dtype="<i8").tobytes()).hexdigest()
        return f"{places} of {_digest(data.dataset)}"
    if not isinstance(data, TensorDataset):
        return f"{type(data).__name__} of {len(data)}"
    state = hashlib.sha256()
    for tensor in data.tensors:
        state.update(repr((str(tensor.dtype), tuple(tensor.shape))).encode())
        state.update(_bytes(tensor))
    return state.hexdigest()


def _bytes(tensor: Tensor) -> bytes:
    return np.ascontiguousarray(tensor.detach().cpu().numpy()).tobytes()
