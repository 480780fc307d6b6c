"""Small runs: data, models, plans, and the slow way to train."""

import json

import torch
from oracles.gradients import clipped_sum, cross_entropy, loop
from torch import nn
from torch.utils.data import DataLoader, TensorDataset

from taut.noise import SeededForExperiments
from taut.training import Callback, FlatClip, Plan, RunHistory, make_private
from taut.training._ledger.hash_chain import HASH, hash_after
from taut.training._noise.generators import split
from taut.training.extend import IndependentNoise

EXAMPLES, FEATURES, CLASSES = 60, 5, 3


def data(examples=EXAMPLES, seed=0):
    bits = torch.Generator().manual_seed(seed)
    inputs = torch.randn(examples, FEATURES, generator=bits)
    labels = (inputs @ torch.randn(FEATURES, CLASSES, generator=bits)).argmax(1)
    return TensorDataset(inputs, labels)


def model(seed=1):
    with torch.random.fork_rng():
        torch.manual_seed(seed)
        return nn.Sequential(nn.Linear(FEATURES, 8), nn.Tanh(), nn.Linear(8, CLASSES))


def plan(**changes):
    settings = {
        "examples": EXAMPLES,
        "batch_size": 12,
        "steps": 6,
        "noise_multiplier": 1.0,
        "delta": 1e-3,
        "clipping": FlatClip(0.5),
    }
    return Plan(**(settings | changes))


class Killed(Exception):
    """What ends a run of which nobody expects that it ends."""


class Kill(Callback):
    """Ends a run as a crash would: by an exception that nobody expects, after some step."""

    def __init__(self, after):
        self._after = after

    def on_step_end(self, trainer, event):
        if event.step == self._after:
            raise Killed


def weights(net):
    return torch.cat([p.detach().flatten() for p in net.parameters()])


def sgd(net, lr=0.5, **options):
    return torch.optim.SGD(net.parameters(), lr=lr, **options)


def private_loop(net, optimizer, dataset, *, passes=1, steps=None, before=None, **options):
    """Run the loop of a user; return the private optimizer.

    With a seed unless another generator is given: batches that hold nobody, whom loops never see,
    or one example alone, which has no company to be tested with, are rare and do occur.
    """
    settings = {
        "noise_multiplier": 1.0,
        "max_grad_norm": 0.5,
        "noise_generator": SeededForExperiments(seed=11),
    }
    loader = DataLoader(dataset, batch_size=12, shuffle=True)
    net, private, loader = make_private(
        module=net, optimizer=optimizer, data_loader=loader, **(settings | options)
    )
    if before is not None:
        before(private)
    criterion = nn.CrossEntropyLoss(reduction=options.get("loss_reduction", "mean"))
    for _ in range(passes):
        for x, y in loader:
            private.zero_grad()
            criterion(net(x), y).backward()
            private.step()
            if steps is not None and private.ledger.steps == steps:
                return private
    return private


def one_by_one(net, optimizer, dataset, a_plan, seed):
    """Train with clipped gradients of single examples, and no noise."""
    choices, _ = split(SeededForExperiments(seed=seed))
    inputs, labels = dataset.tensors
    for _ in range(a_plan.steps):
        drawn = a_plan.sampling.draw(len(dataset), choices)
        if len(drawn):
            places = torch.from_numpy(drawn)
            rows = loop(net, inputs[places], labels[places], cross_entropy)
            total = clipped_sum(rows, a_plan.clipping.norm)
        for name, p in net.named_parameters():
            p.grad = total[name] / a_plan.batch_size if len(drawn) else torch.zeros_like(p)
        optimizer.step()


def leave_out_noise(monkeypatch):
    """Let plans of one group ask for no noise."""
    monkeypatch.setattr(Plan, "noise", lambda _, sizes: IndependentNoise((0.0,), (0,) * len(sizes)))


def append_entry(path, entry):
    """Add a line to a ledger as a process would that knows all lines before it."""
    line = entry | {HASH: hash_after(RunHistory.read(path).head, entry)}
    with path.open("a") as file:
        file.write(json.dumps(line) + "\n")
