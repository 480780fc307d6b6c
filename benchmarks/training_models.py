"""The models of the training benchmark, and a batch for each."""

from collections.abc import Callable
from dataclasses import dataclass

import torch
from torch import Tensor, nn
from torch.nn import functional

from taut.training.models import ResNet20, TextTransformer, WideResNet, mlp


def of_classes(outputs: Tensor, targets: Tensor) -> Tensor:
    """Return the loss of every example, which has one class."""
    return functional.cross_entropy(outputs, targets, reduction="none")


def of_tokens(outputs: Tensor, targets: Tensor) -> Tensor:
    """Return the loss of every example, the mean over its tokens."""
    each = functional.cross_entropy(outputs.flatten(0, 1), targets.flatten(), reduction="none")
    return each.view(targets.shape).mean(1)


@dataclass(frozen=True)
class Case:
    """A model, its batch, and the most that a private step may cost, in plain steps."""

    name: str
    make: Callable[[], nn.Module]
    batch: Callable[[], tuple[Tensor, Tensor]]
    bar: float | None = None
    losses: Callable[[Tensor, Tensor], Tensor] = of_classes


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


class Recurrent(nn.Module):
    """A language model of one recurrent layer."""

    def __init__(self, words: int, width: int) -> None:
        super().__init__()
        self.words = nn.Embedding(words, width)
        self.layer = nn.LSTM(width, width, batch_first=True)
        self.out = nn.Linear(width, words)

    def forward(self, tokens):
        return self.out(self.layer(self.words(tokens))[0])


class Block(nn.Module):
    """A block of a transformer, with attention as most models write it themselves."""

    def __init__(self, width: int, heads: int, *, causal: bool) -> None:
        super().__init__()
        self.heads, self.causal = heads, causal
        self.first, self.second = nn.LayerNorm(width), nn.LayerNorm(width)
        self.parts, self.joined = nn.Linear(width, 3 * width), nn.Linear(width, width)
        self.widen, self.narrow = nn.Linear(width, 4 * width), nn.Linear(4 * width, width)

    def forward(self, x):
        shape = *x.shape[:2], self.heads, -1
        parts = self.parts(self.first(x)).chunk(3, -1)
        heads = (part.reshape(shape).transpose(1, 2) for part in parts)
        mixed = functional.scaled_dot_product_attention(*heads, is_causal=self.causal)
        x = x + self.joined(mixed.transpose(1, 2).reshape(x.shape))
        return x + self.narrow(functional.gelu(self.widen(self.second(x))))


class GPT(nn.Module):
    """A language model whose head has the weights of its embedding."""

    def __init__(self, words: int, width: int, layers: int, heads: int, length: int) -> None:
        super().__init__()
        self.words, self.places = nn.Embedding(words, width), nn.Embedding(length, width)
        self.blocks = nn.Sequential(*(Block(width, heads, causal=True) for _ in range(layers)))
        self.norm, self.head = nn.LayerNorm(width), nn.Linear(width, words, bias=False)
        nn.init.normal_(self.words.weight, std=0.02)
        self.head.weight = self.words.weight

    def forward(self, tokens):
        places = torch.arange(tokens.shape[1]).expand(tokens.shape)
        return self.head(self.norm(self.blocks(self.words(tokens) + self.places(places))))


class ViT(nn.Module):
    """Patches, a class token and positions as parameters, as vision transformers have them."""

    def __init__(self, width: int, layers: int, heads: int) -> None:
        super().__init__()
        self.patches = nn.Conv2d(3, width, 4, 4)
        self.token = nn.Parameter(torch.randn(1, 1, width) * 0.02)
        self.places = nn.Parameter(torch.randn(1, 65, width) * 0.02)
        self.blocks = nn.Sequential(*(Block(width, heads, causal=False) for _ in range(layers)))
        self.norm, self.out = nn.LayerNorm(width), nn.Linear(width, 10)

    def forward(self, images):
        patches = self.patches(images).flatten(2).transpose(1, 2)
        tokens = torch.cat([self.token.expand(len(images), -1, -1), patches], 1)
        return self.out(self.norm(self.blocks(tokens + self.places))[:, 0])


class Adapted(nn.Module):
    """A frozen linear layer with a trained product of two thin ones beside it."""

    def __init__(self, frozen: nn.Linear, rank: int) -> None:
        super().__init__()
        self.frozen = frozen.requires_grad_(False)
        self.lora_A = nn.Linear(frozen.in_features, rank, bias=False)
        self.lora_B = nn.Linear(rank, frozen.out_features, bias=False)
        nn.init.normal_(self.lora_B.weight, std=0.02)

    def forward(self, x):
        return self.frozen(x) + self.lora_B(self.lora_A(x))


def adapted(model: nn.Module, rank: int) -> nn.Module:
    """Return a model of which adapters in all blocks are trained, and nothing else."""
    model.requires_grad_(False)
    for block in model.blocks:
        for name in ("parts", "joined", "widen", "narrow"):
            setattr(block, name, Adapted(getattr(block, name), rank))
    return model


def small_gpt() -> nn.Module:
    return GPT(words=2000, width=256, layers=4, heads=8, length=128)


def sentences(batch: int, length: int, words: int):
    return lambda: tuple(torch.randint(words, (batch, length)) for _ in range(2))


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
    Case(
        "LSTM, 322k, batch 32",
        lambda: Recurrent(1000, 128),
        sentences(32, 64, 1000),
        1.5,
        of_tokens,
    ),
    Case("ViT, 1.8M, batch 32", lambda: ViT(192, 4, 3), images(32, 3, 32), 1.4),
    Case("GPT tied, 3.7M, batch 16", small_gpt, sentences(16, 128, 2000), 1.3, of_tokens),
    Case(
        "GPT with LoRA, batch 16",
        lambda: adapted(small_gpt(), 8),
        sentences(16, 128, 2000),
        1.1,
        of_tokens,
    ),
]
