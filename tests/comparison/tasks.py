"""A small task, and runs that nobody trained."""

import torch
from torch import nn
from torch.utils.data import TensorDataset

from taut.comparison import Run, Settings, Task

SETTINGS = Settings(examples=300, batch_size=60, gradients=300, epsilon=3, delta=1e-3)
TASK_SIZES = {"0.weight": 20, "0.bias": 4, "2.weight": 8, "2.bias": 2}


def data(count, seed):
    draw = torch.Generator().manual_seed(seed)
    x = torch.randn(count, 5, generator=draw)
    return TensorDataset(x, (x[:, 0] + 0.3 * x[:, 1] > 0).long())


def model():
    return nn.Sequential(nn.Linear(5, 4), nn.Tanh(), nn.Linear(4, 2))


def task(**changes):
    given = {
        "model": model,
        "loss_fn": nn.CrossEntropyLoss(),
        "train": data(300, 0),
        "test": data(200, 1),
        "public": data(40, 2),
    }
    return Task(**{**given, **changes})


def run(arm, accuracy, seed=0, learning_rate=0.5, loss=1.0, choice=None):
    return Run(
        arm=arm,
        learning_rate=learning_rate,
        seed=seed,
        accuracy=accuracy,
        loss=loss,
        choice_accuracy=accuracy if choice is None else choice,
        choice_loss=loss,
        epsilon=3.0,
        steps=5,
        noise_multiplier=1.0,
        seconds=0.1,
        cpu_seconds=0.2,
    )
