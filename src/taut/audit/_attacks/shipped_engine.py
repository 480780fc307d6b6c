"""The shipped engine, audited end to end."""

from __future__ import annotations

from collections.abc import Mapping
from typing import TYPE_CHECKING, Any, Literal

import numpy as np

from taut.audit._attacks.crafted import Rows
from taut.audit._attacks.loop_game import Loop
from taut.audit._attacks.loops import audit_loop
from taut.audit._attacks.result import AuditResult
from taut.noise import RandomSource, SeededForExperiments, default_generator

if TYPE_CHECKING:
    from torch import Tensor

    from taut.training import Plan

__all__ = ["audit_plan", "engine_loop"]


def audit_plan(
    plan: Plan,
    *,
    trials: int = 500,
    confidence: float = 0.99,
    seed: int | None = None,
    engine: Literal["trainer", "gradient"] = "gradient",
    max_physical_batch_size: int | None = None,
    dimension: int = 4,
    sizes: Mapping[str, int] | None = None,
) -> AuditResult:
    """Carry out a plan many times on crafted neighbours, and audit what comes out.

    Args:
        plan: a small one shows most, and quickly; see :func:`audit_loop`.
        trials: runs on each side, in each of two crafted pairs.
        confidence: the probability that an engine which keeps its claim passes.
        seed: seed of all runs; by default batches and noise come from the secure generator.
        engine: "gradient" is a loop over `PrivateLoader` with `PrivateGradient`, at some
            milliseconds per run; "trainer" is `PrivateTrainer`, at ten times as much, which also
            carries out plans that mix, whatever is asked for.
        max_physical_batch_size: larger batches are computed in parts.
        dimension: the number of weights.
        sizes: number of weights of every parameter by its name, for a clipping by groups of
            parameters; their sum takes the place of `dimension`.

    **Guarantee**: that of :class:`AuditResult`; the model is linear, its loss the output. What is
    observed is the gradient that the optimizer gets in every step, or every state of a plan that
    mixes.

    Example:
        >>> from taut.audit import audit_plan
        >>> from taut.training import FlatClip, Plan
        >>> plan = Plan(
        ...     examples=3, rate=0.5, steps=2, noise_multiplier=1.0, delta=1e-3,
        ...     clipping=FlatClip(1.0),
        ... )
        >>> print(str(audit_plan(plan, trials=50, seed=0)).split(": ")[1].splitlines()[0])
        no fault found (which proves nothing)
    """
    loop = engine_loop(plan, engine, sizes or dimension, max_physical_batch_size, seed is not None)
    return audit_loop(
        loop,
        plan,
        trials=trials,
        confidence=confidence,
        seed=seed,
        dimension=dimension,
        sizes=sizes,
    )


def engine_loop(
    plan: Plan,
    engine: str,
    weights: int | Mapping[str, int],
    physical: int | None,
    is_seeded: bool,
) -> Loop:
    """Return the shipped engine as a loop over given gradients.

    Args:
        plan: what is carried out.
        engine: "gradient" or "trainer", as for :func:`audit_plan`.
        weights: the number of weights, or those of every parameter by its name.
        physical: number of examples beyond which batches are computed in parts.
        is_seeded: whether batches and noise follow from the seed of a run.
    """
    if engine not in ("trainer", "gradient"):
        raise ValueError(f"engine must be 'trainer' or 'gradient', got engine={engine!r}")
    if plan.mixing is not None:
        return _states_loop(plan, weights, physical, is_seeded=is_seeded)
    make = _trainer_loop if engine == "trainer" else _gradient_loop
    return make(plan, weights, physical, is_seeded=is_seeded)


def _losses(outputs: Tensor, _targets: Tensor) -> Tensor:
    """Return the output as the loss, so that an example's gradient is its input."""
    return outputs[:, 0]


def _source(run_seed: int, is_seeded: bool) -> RandomSource:
    return SeededForExperiments(seed=run_seed) if is_seeded else default_generator()


def _dataset(rows: Rows) -> Any:
    import torch
    from torch.utils.data import TensorDataset

    return TensorDataset(torch.from_numpy(rows).float(), torch.zeros(len(rows)))


def _model(weights: int | Mapping[str, int]) -> Any:
    """Return a linear model without bias, in one piece or with a part for every parameter."""
    from torch import nn

    if isinstance(weights, int):
        return nn.Linear(weights, 1, bias=False)
    sizes = dict(weights)

    class Parts(nn.Module):
        def __init__(self) -> None:
            super().__init__()
            for name, size in sizes.items():
                *path, last = name.split(".")
                if last != "weight" or not path:
                    raise ValueError(
                        f"sizes must name weights of layers, such as 'body.weight', got {name!r}"
                    )
                place: nn.Module = self
                for step in path[:-1]:
                    if step not in dict(place.named_children()):
                        place.add_module(step, nn.Module())
                    place = place.get_submodule(step)
                place.add_module(path[-1], nn.Linear(size, 1, bias=False))

        def forward(self, inputs: Tensor) -> Tensor:
            parts = inputs.split(list(sizes.values()), dim=1)
            layers = [self.get_submodule(name.removesuffix(".weight")) for name in sizes]
            outputs = [layer(part) for layer, part in zip(layers, parts, strict=True)]
            total: Tensor = sum(outputs[1:], start=outputs[0])
            return total

    return Parts()


def _gradient_of(model: Any, weights: int | Mapping[str, int]) -> Rows:
    """Return the gradients of all weights, in the order of their names."""
    names = ["weight"] if isinstance(weights, int) else list(weights)
    found = [model.get_parameter(name).grad.flatten().double().numpy() for name in names]
    return np.concatenate(found)


def _trainer_loop(
    plan: Plan, weights: int | Mapping[str, int], physical: int | None, *, is_seeded: bool
) -> Loop:
    from taut.training import Callback, Loading, Logs, PrivateTrainer, StepEnd

    class Watch(Callback):
        def __init__(self) -> None:
            self.seen: list[Rows] = []

        def on_step_end(self, trainer: PrivateTrainer, event: StepEnd) -> None:
            self.seen.append(_gradient_of(trainer.model, weights))

    def loop(rows: Rows, run_seed: int) -> Rows:
        watch = Watch()
        trainer = PrivateTrainer(
            _model(weights),
            _losses,
            plan,
            loading=Loading(max_physical_batch_size=physical),
            logs=Logs(callbacks=[watch], progress=False),
            generator=_source(run_seed, is_seeded),
        )
        trainer.fit(_dataset(rows))
        return np.stack(watch.seen)

    return loop


def _states_loop(
    plan: Plan, weights: int | Mapping[str, int], physical: int | None, *, is_seeded: bool
) -> Loop:
    """Return the trainer as a loop that shows all states, at a learning rate of one."""
    import torch

    from taut.training import Callback, Loading, Logs, PrivateTrainer, StepEnd

    names = ["weight"] if isinstance(weights, int) else list(weights)

    def state(model: Any) -> Rows:
        found = [model.get_parameter(name).detach().flatten().double() for name in names]
        return torch.cat(found).numpy().copy()

    class Watch(Callback):
        def __init__(self) -> None:
            self.seen: list[Rows] = []

        def on_step_end(self, trainer: PrivateTrainer, event: StepEnd) -> None:
            self.seen.append(state(trainer.model))

    def loop(rows: Rows, run_seed: int) -> Rows:
        watch, model = Watch(), _model(weights)
        watch.seen.append(state(model))
        trainer = PrivateTrainer(
            model,
            _losses,
            plan,
            optimizer=lambda parameters: torch.optim.SGD(parameters, lr=1.0),
            loading=Loading(max_physical_batch_size=physical),
            logs=Logs(callbacks=[watch], progress=False),
            generator=_source(run_seed, is_seeded),
        )
        trainer.fit(_dataset(rows))
        return np.stack(watch.seen)

    return loop


def _gradient_loop(
    plan: Plan, weights: int | Mapping[str, int], physical: int | None, *, is_seeded: bool
) -> Loop:
    from taut.training import PrivateLoader
    from taut.training.extend import PrivateGradient

    model = _model(weights)
    sizes = {"weight": weights} if isinstance(weights, int) else dict(weights)

    def loop(rows: Rows, run_seed: int) -> Rows:
        noise = plan.noise(sizes)  # correlated noise remembers its run
        bits = _source(run_seed, is_seeded)
        gradient = PrivateGradient(
            model,
            plan.clipping,
            noise=noise,
            expected_batch_size=plan.batch_size_at(0),
            generator=bits,
            self_check=False,
        )
        loader = PrivateLoader(
            _dataset(rows),
            plan,
            steps=plan.steps,
            max_physical_batch_size=physical,
            generator=bits,
        )
        seen = []
        for part in loader.microbatches():
            if not part.is_empty:
                inputs, targets = part.data
                gradient.accumulate_batch(inputs, targets, _losses)
            if part.is_last:
                gradient.finish()
                if plan.is_scheduled:
                    following = part.step + 1
                    gradient.change(plan.noise(sizes, following), plan.batch_size_at(following))
                seen.append(_gradient_of(model, weights))
                model.zero_grad()
        return np.stack(seen)

    return loop
