"""The Trainer of Hugging Face transformers, made private in place."""

from __future__ import annotations

import os
from typing import Any

from torch import Tensor
from torch.utils.data import DataLoader

from taut.errors import UnsoundConfiguration
from taut.matrix import Encoder
from taut.noise import RandomSource
from taut.training._clipping.clipping import Clipping
from taut.training._data.batches import inputs_and_targets
from taut.training._data.language_losses import causal_lm_loss
from taut.training._run.drop_in import make_private_with_epsilon
from taut.training._run.private_optimizer import PrivateOptimizer
from taut.training._sampling.sampling import Sampling
from taut.training._tensors.examples import LossFunction, apply

__all__ = ["make_trainer_private"]


def make_trainer_private(
    trainer: Any,
    *,
    target_epsilon: float,
    target_delta: float,
    max_grad_norm: float | None = None,
    loss_fn: LossFunction = causal_lm_loss,
    clipping: Clipping | str | None = None,
    sampling: Sampling | str | None = None,
    noise: Encoder | str | None = None,
    ledger: str | os.PathLike[str] | None = None,
    noise_generator: RandomSource | None = None,
) -> PrivateOptimizer:
    """Make a `transformers.Trainer` private, before its `train()`.

    Args:
        trainer: trainer of one process and device; its model, data, collator, optimizer and
            schedule are kept. Batches of `per_device_train_batch_size` are drawn at random, with as
            many steps as `num_train_epochs` would take.
        target_epsilon: the promise.
        target_delta: the promise.
        max_grad_norm: the clipping norm of an example's gradient; or `clipping`. That of the
            trainer's arguments has no effect.
        loss_fn: takes what the model returns and the `labels` of a batch, and returns one loss per
            example, in place of the model's own `.loss`, which is a mean over all tokens.
        clipping: instead of `max_grad_norm`.
        sampling: sampling, as in `make_private_with_epsilon`.
        noise: noise that is correlated over steps, as in `make_private_with_epsilon`.
        ledger: a file that counts steps through crashes. Where noise is correlated, batches follow
            it: a trainer that goes on from a checkpoint of its own has `ignore_data_skip=True`.
        noise_generator: generator of noise and choices, by default the secure one.

    Returns:
        the private optimizer, whose `get_epsilon(delta)` says what was spent.

    **Guarantee**: that of `make_private_with_epsilon`. What the trainer logs beside it, such as
    losses of private batches, is not covered: keep it, or set `logging_strategy="no"`.

    Raises:
        UnsoundConfiguration: if the trainer accumulates gradients, counts steps instead of epochs,
            or uses several devices or half precision with scaled losses.
    """
    arguments = trainer.args
    _check_arguments(arguments)
    given = trainer.get_train_dataloader()
    data = DataLoader(
        given.dataset, batch_size=arguments.train_batch_size, collate_fn=given.collate_fn
    )
    _, private, loader = make_private_with_epsilon(
        module=trainer.model,
        optimizer=trainer.optimizer or trainer.create_optimizer(),
        data_loader=data,
        target_epsilon=target_epsilon,
        target_delta=target_delta,
        epochs=arguments.num_train_epochs,
        max_grad_norm=max_grad_norm,
        criterion=lambda outputs, batch: loss_fn(outputs, inputs_and_targets(batch)[1]),
        clipping=clipping,
        sampling=sampling,
        noise=noise,
        ledger=ledger,
        noise_generator=noise_generator,
    )

    def compute_loss(
        model: Any, inputs: Any, return_outputs: bool = False, **_: Any
    ) -> Tensor | tuple[Tensor, Any]:
        arguments_of_model, labels = inputs_and_targets(inputs)
        outputs = apply(model, arguments_of_model)
        loss = loss_fn(outputs, labels).mean()
        return (loss, outputs) if return_outputs else loss

    trainer.optimizer = private
    trainer.get_train_dataloader = lambda: loader
    trainer.compute_loss = compute_loss
    trainer.model_accepts_loss_kwargs = False
    return private


def _check_arguments(arguments: Any) -> None:
    problems = {
        "gradient_accumulation_steps must be 1; give per_device_train_batch_size the size of the "
        "batch, and compute it in parts with taut.training.make_private and "
        "max_physical_batch_size": arguments.gradient_accumulation_steps != 1,
        "max_steps must be left out; give num_train_epochs, which fixes the steps in advance": (
            arguments.max_steps > 0
        ),
        "several devices are used in one process; run one process for each device with "
        "taut.training.PrivateTrainer": arguments.n_gpu > 1 or arguments.world_size > 1,
        "fp16=True scales losses; use bf16=True": bool(arguments.fp16),
        "auto_find_batch_size=True takes a batch again; leave it out": bool(
            arguments.auto_find_batch_size
        ),
    }
    for problem, is_there in problems.items():
        if is_there:
            raise UnsoundConfiguration(f"this trainer cannot be made private: {problem}")
