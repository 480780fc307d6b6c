"""Ways to take one private step, ours and others'; each gives the same update without noise."""

import copy
from collections.abc import Callable

import torch
from torch import nn

CLIP = 1.0

Losses = Callable[[torch.Tensor, torch.Tensor], torch.Tensor]
"""Takes outputs and targets, and returns one loss per example."""


class Engine:
    """One way to take a step on a fixed batch, with a model of its own."""

    name: str

    def __init__(self, model: nn.Module, inputs, targets, losses: Losses, noise: float) -> None:
        self.model = copy.deepcopy(model).train()
        self.inputs, self.targets, self.losses, self.noise = inputs, targets, losses, noise
        self.prepare()

    def prepare(self) -> None:
        rate = 1e-3 if self.noise else 1.0  # updates that are compared must not drown in weights
        trained = [p for p in self.model.parameters() if p.requires_grad]
        self.optimizer = torch.optim.SGD(trained, lr=rate)

    def step(self) -> None:
        raise NotImplementedError

    def update(self) -> dict[str, torch.Tensor]:
        """Return what one step does to every parameter."""
        before = {n: p.detach().clone() for n, p in self.parameters()}
        self.step()
        return {n: p.detach() - before[n] for n, p in self.parameters()}

    def parameters(self):
        """Return what is trained, by the names of the model that was given."""
        state = self.model.state_dict(keep_vars=True)
        return [(n.removeprefix("_module."), p) for n, p in state.items() if p.requires_grad]

    def mean_loss(self):
        return self.losses(self.model(self.inputs), self.targets).mean()


class Plain(Engine):
    name = "plain SGD"

    def step(self) -> None:
        self.optimizer.zero_grad()
        self.mean_loss().backward()
        self.optimizer.step()


class Taut(Engine):
    name = "taut"

    def prepare(self) -> None:
        from taut.training import FlatClip
        from taut.training.extend import PrivateGradient

        super().prepare()
        self.gradient = PrivateGradient(
            self.model,
            FlatClip(CLIP),
            scales=[self.noise * CLIP],
            expected_batch_size=len(self.targets),
        )

    def step(self) -> None:
        self.gradient.accumulate_batch(self.inputs, self.targets, self.losses)
        self.gradient.finish()
        self.optimizer.step()


def with_opacus_layers(model: nn.Module) -> nn.Module:
    """Return the model with the recurrent layers of Opacus, which knows no others."""
    from opacus.layers import DPLSTM

    for name, layer in list(model.named_modules()):
        if isinstance(layer, nn.LSTM):
            own = DPLSTM(layer.input_size, layer.hidden_size, batch_first=layer.batch_first)
            own.load_state_dict(layer.state_dict())
            setattr(model.get_submodule(name.rpartition(".")[0]), name.rpartition(".")[2], own)
    return model


class Opacus(Engine):
    mode = "hooks"

    def prepare(self) -> None:
        from opacus.grad_sample import wrap_model
        from opacus.optimizers import DPOptimizer
        from opacus.privacy_engine import PrivacyEngine  # noqa: F401 (registers all samplers)

        self.model = with_opacus_layers(self.model)
        self.model = wrap_model(self.model, grad_sample_mode=self.mode, batch_first=True)
        super().prepare()
        self.optimizer = DPOptimizer(
            self.optimizer,
            noise_multiplier=self.noise,
            max_grad_norm=CLIP,
            expected_batch_size=len(self.targets),
        )

    def step(self) -> None:
        self.optimizer.zero_grad()
        self.mean_loss().backward()
        self.optimizer.step()


class OpacusHooks(Opacus):
    name = "Opacus hooks"


class OpacusFunctorch(Opacus):
    name, mode = "Opacus functorch", "functorch"


class OpacusExpanded(Opacus):
    name, mode = "Opacus ew", "ew"


class OpacusLoss:
    """A loss as Opacus wants it for ghost clipping, which sets how it is reduced."""

    reduction = "mean"

    def __init__(self, losses: Losses) -> None:
        self.losses = losses

    def __call__(self, outputs, targets):
        return self.losses(outputs, targets)


class OpacusGhost(Engine):
    name = "Opacus ghost"

    def prepare(self) -> None:
        from opacus.grad_sample.grad_sample_module_fast_gradient_clipping import (
            GradSampleModuleFastGradientClipping,
        )
        from opacus.optimizers.optimizer_fast_gradient_clipping import (
            DPOptimizerFastGradientClipping,
        )
        from opacus.utils.fast_gradient_clipping_utils import DPLossFastGradientClipping

        self.model = GradSampleModuleFastGradientClipping(
            with_opacus_layers(self.model), max_grad_norm=CLIP, use_ghost_clipping=True
        )
        super().prepare()
        self.optimizer = DPOptimizerFastGradientClipping(
            self.optimizer,
            noise_multiplier=self.noise,
            max_grad_norm=CLIP,
            expected_batch_size=len(self.targets),
        )
        self.loss = DPLossFastGradientClipping(self.model, self.optimizer, OpacusLoss(self.losses))

    def step(self) -> None:
        self.optimizer.zero_grad()
        self.loss(self.model(self.inputs), self.targets).backward()
        self.optimizer.step()


class FastDP(Engine):
    """Not on the package index; taken if it can be imported."""

    name = "fastDP"

    def prepare(self) -> None:
        from fastDP import PrivacyEngine

        super().prepare()
        size = len(self.targets)
        PrivacyEngine(
            self.model,
            batch_size=size,
            sample_size=100 * size,
            epochs=1,
            noise_multiplier=self.noise,
            max_grad_norm=CLIP,
            clipping_mode="MixOpt",
            clipping_fn="Abadi",
            clipping_style="all-layer",
            numerical_stability_constant=0.0,
        ).attach(self.optimizer)

    def step(self) -> None:
        self.mean_loss().backward()
        self.optimizer.step()
        self.optimizer.zero_grad()


class Vmapped(Engine):
    name = "vmap(grad)"
    compiled = False

    def prepare(self) -> None:
        super().prepare()
        self.values = {n: p for n, p in self.model.named_parameters() if p.requires_grad}
        per_example = torch.func.vmap(
            torch.func.grad(self.loss_of_one), in_dims=(None, 0, 0), randomness="different"
        )
        self.gradients: Callable = torch.compile(per_example) if self.compiled else per_example

    def loss_of_one(self, values, single, target):
        outputs = torch.func.functional_call(self.model, values, (single[None],))
        return self.losses(outputs, target[None])[0]

    def step(self) -> None:
        values = {name: value.detach() for name, value in self.values.items()}
        found = self.gradients(values, self.inputs, self.targets)
        squares = sum(rows.flatten(1).square().sum(1) for rows in found.values())
        weights = (CLIP / (squares.sqrt() + 1e-12)).clamp(max=1.0)
        for name, parameter in self.values.items():
            rows = found[name]
            total = torch.tensordot(weights, rows, dims=1)
            if self.noise:
                total = total + self.noise * CLIP * torch.randn_like(total)
            parameter.grad = total / len(self.targets)
        self.optimizer.step()


class CompiledVmap(Vmapped):
    name = "compiled vmap(grad)"
    compiled = True


ENGINES = [
    Plain, Taut, OpacusHooks, OpacusFunctorch, OpacusExpanded, OpacusGhost, FastDP, Vmapped,
    CompiledVmap,
]  # fmt: skip
