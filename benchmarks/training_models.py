"""The models of the training benchmark, and a batch for each."""

from collections.abc import Callable
from dataclasses import dataclass

import torch
from torch import Tensor, nn
from torch.nn import functional

from taut.training.models import ResNet20, TextTransformer, WideResNet, mlp


@dataclass(frozen=True)
class Case:
    """A model, its batch, and the most that a private step may cost, in plain steps."""

    name: str
    make: Callable[[], nn.Module]
    batch: Callable[[], tuple[Tensor, Tensor]]
    bar: float | None = None


class ReluCNN(nn.Module):
    """Two convolutions and two linear layers, 26,010 parameters: the usual MNIST example."""

    def __init__(self) -> None:
        super().__init__()
        self.first = nn.Conv2d(1, 16, 8, 2, padding=3)
        self.second = nn.Conv2d(16, 32, 4, 2)
        self.hidden = nn.Linear(512, 32)
        self.out = nn.Linear(32, 10)

    def forward(self, images):
        inner = functional.max_pool2d(functional.relu(self.first(images)), 2, 1)
        inner = functional.max_pool2d(functional.relu(self.second(inner)), 2, 1)
        return self.out(functional.relu(self.hidden(inner.flatten(1))))


class Tagger(nn.Module):
    """A long sequence through wide linear layers: embeddings, mixing by hand, a score per text."""

    def __init__(self) -> None:
        super().__init__()
        self.words = nn.Embedding(2000, 64)
        self.widen = nn.Linear(64, 256)
        self.norm = nn.LayerNorm(256)
        self.narrow = nn.Linear(256, 64)
        self.out = nn.Linear(64, 5)

    def forward(self, tokens):
        inner = self.norm(functional.gelu(self.widen(self.words(tokens))))
        return self.out(self.narrow(inner).amax(1))


def images(batch: int, channels: int, size: int, classes: int = 10):
    return lambda: (torch.randn(batch, channels, size, size), torch.randint(classes, (batch,)))


def texts(batch: int, length: int, vocabulary: int, classes: int):
    return lambda: (
        torch.randint(vocabulary, (batch, length)),
        torch.randint(classes, (batch,)),
    )


CASES = [
    Case("CNN, 26k, batch 256", ReluCNN, images(256, 1, 28), 1.5),
    Case("MLP, 536k, batch 256", mlp, images(256, 1, 28), 1.7),
    Case("Transformer, 1.0M, batch 32", TextTransformer, texts(32, 64, 5000, 2), 1.6),
    Case("ResNet-20, 272k, batch 64", ResNet20, images(64, 3, 32), 1.6),
    Case("WRN-10-2 standardised, batch 16", lambda: WideResNet(10, 2), images(16, 3, 32)),
    Case("text, 200 tokens, batch 32", Tagger, texts(32, 200, 2000, 5)),
    Case("MLP of width 1024, batch 64", lambda: mlp((784, 1024, 1024, 10)), images(64, 1, 28)),
]
