"""What correlated noise costs: CPU time of a step with a million parameters, by encoder.

    python benchmarks/matrix_noise.py

Draws alone, and whole steps of training (gradients of a batch, clipping, noise, update) in
rounds of one step for every encoder, so that all see the same load. Medians of CPU time.
"""

import argparse
import os
import time

os.environ.setdefault("OMP_NUM_THREADS", "1")  # before torch starts its threads

import numpy as np
import torch
from torch import nn

from taut.matrix import (
    Workload,
    banded_inverse,
    banded_toeplitz,
    buffered,
    inverse_square_root,
    lambda_cgd,
)
from taut.noise import default_generator
from taut.training import FlatClip
from taut.training.extend import CorrelatedNoise, Draw, IndependentNoise, PrivateGradient

STEPS, WARM = 64, 20  # as many steps as fill all buffers are left out


def encoders():
    sums = Workload(STEPS)
    return {
        "independent": None,
        "lambda-CGD": lambda_cgd(STEPS, 0.9),
        "4 bands of an inverse": banded_inverse(sums, 4),
        "16 bands of an inverse": inverse_square_root(sums, 16),
        "4 bands": banded_toeplitz(sums, 4),
        "16 bands": banded_toeplitz(sums, 16),
        "5 buffers": buffered(sums, 5),
    }


def noise_of(encoder, model):
    groups = (0,) * len(list(model.parameters()))
    plain = IndependentNoise((1.0,), groups)
    return plain if encoder is None else CorrelatedNoise(plain, encoder)


def network():
    torch.manual_seed(0)
    return nn.Sequential(
        nn.Linear(784, 1_000), nn.Tanh(), nn.Linear(1_000, 210), nn.Tanh(), nn.Linear(210, 10)
    )


def drawn(noise, shapes):
    how = Draw(default_generator(), 1.0, torch.float32, torch.device("cpu"))
    return lambda: noise.draw(shapes, how)


def trained(noise, model, batch):
    gradient = PrivateGradient(model, FlatClip(1.0), noise=noise, expected_batch_size=batch)
    optimizer = torch.optim.SGD(model.parameters(), lr=0.01)
    losses = nn.CrossEntropyLoss(reduction="none")
    inputs, targets = torch.randn(batch, 784), torch.randint(0, 10, (batch,))

    def step():
        gradient.begin()
        gradient.accumulate_batch(inputs, targets, losses)
        gradient.finish()
        optimizer.step()

    return step


def measured(steps):
    """Return the median CPU time of every function, run in rounds."""
    times = {name: [] for name in steps}
    for _ in range(STEPS):
        for name, step in steps.items():
            begun = time.process_time()
            step()
            times[name].append(time.process_time() - begun)
    return {name: float(np.median(found[WARM:])) for name, found in times.items()}


def main():
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--batch", type=int, default=256, help="examples of a step")
    batch = parser.parse_args().batch
    torch.set_num_threads(1)
    shapes = [p.shape for p in network().parameters()]
    print(f"{sum(shape.numel() for shape in shapes):,} parameters, {batch} examples in a step")
    draws = measured({n: drawn(noise_of(e, network()), shapes) for n, e in encoders().items()})
    steps = {}
    for name, encoder in encoders().items():
        model = network()
        steps[name] = trained(noise_of(encoder, model), model, batch)
    whole = measured(steps)
    for name in draws:
        parts = [
            f"{1e3 * found[name]:7.2f} ms ({found[name] / found['independent'] - 1:+6.1%})"
            for found in (draws, whole)
        ]
        print(f"{name:24} draw {parts[0]}   step {parts[1]}")


if __name__ == "__main__":
    main()
