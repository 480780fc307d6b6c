"""An optimizer of the shape of Opacus' DPOptimizer, a package that the tests do not have."""

import torch


class DPOptimizer:
    """Clips per-sample gradients, adds noise, divides, and steps: the methods that Opacus has."""

    def __init__(
        self, optimizer, *, noise_multiplier, max_grad_norm, expected_batch_size, clips=True
    ):
        self.original_optimizer = optimizer
        self.noise_multiplier = noise_multiplier
        self.max_grad_norm = max_grad_norm
        self.expected_batch_size = expected_batch_size
        self.clips = clips

    @property
    def params(self):
        return [p for group in self.original_optimizer.param_groups for p in group["params"]]

    def clip_and_accumulate(self):
        flat = [p.grad_sample.flatten(1).norm(dim=1) for p in self.params]
        norms = torch.stack(flat, dim=1).norm(dim=1)
        factors = (self.max_grad_norm / (norms + 1e-6)).clamp(max=1.0)
        if not self.clips:
            factors = torch.ones_like(factors)
        for p in self.params:
            p.summed_grad = torch.einsum("i,i...", factors, p.grad_sample)

    def add_noise(self):
        for p in self.params:
            deviation = self.noise_multiplier * self.max_grad_norm
            noise = torch.normal(0.0, deviation, p.summed_grad.shape)
            p.grad = (p.summed_grad + noise).view_as(p)

    def scale_grad(self):
        for p in self.params:
            p.grad /= self.expected_batch_size

    def step(self):
        self.clip_and_accumulate()
        self.add_noise()
        self.scale_grad()
        self.original_optimizer.step()
