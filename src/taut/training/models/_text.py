"""A small transformer for sequences of tokens."""

from __future__ import annotations

import torch
from torch import Tensor, nn
from torch.nn import functional

__all__ = ["TextTransformer"]


class _SelfAttention(nn.Module):
    def __init__(self, width: int, heads: int) -> None:
        super().__init__()
        self.heads = heads
        self.queries_keys_values = nn.Linear(width, 3 * width)
        self.out = nn.Linear(width, width)

    def forward(self, tokens: Tensor) -> Tensor:
        batch, length, width = tokens.shape
        joint = self.queries_keys_values(tokens).view(batch, length, 3, self.heads, -1)
        query, key, value = joint.permute(2, 0, 3, 1, 4)
        mixed = functional.scaled_dot_product_attention(query, key, value)
        joined: Tensor = self.out(mixed.transpose(1, 2).reshape(batch, length, width))
        return joined


class _Layer(nn.Module):
    def __init__(self, width: int, heads: int) -> None:
        super().__init__()
        self.attention = _SelfAttention(width, heads)
        self.attention_norm = nn.LayerNorm(width)
        self.widen = nn.Linear(width, 4 * width)
        self.narrow = nn.Linear(4 * width, width)
        self.narrow_norm = nn.LayerNorm(width)

    def forward(self, tokens: Tensor) -> Tensor:
        tokens = tokens + self.attention(self.attention_norm(tokens))
        inner = functional.gelu(self.widen(self.narrow_norm(tokens)))
        total: Tensor = tokens + self.narrow(inner)
        return total


class TextTransformer(nn.Module):
    """An encoder that classifies sequences: the mean over positions goes to a linear layer.

    Args:
        vocabulary: number of tokens.
        classes: the number of classes.
        width: width of the representation.
        layers: how many.
        heads: number of heads of the attention.
        length: the longest sequence; inputs are integers of shape (batch, at most length).

    Example:
        >>> import torch
        >>> from taut.training.models import TextTransformer
        >>> TextTransformer(vocabulary=50, classes=3)(torch.zeros(2, 7, dtype=torch.long)).shape
        torch.Size([2, 3])
    """

    def __init__(
        self,
        vocabulary: int = 5000,
        classes: int = 2,
        width: int = 128,
        layers: int = 2,
        heads: int = 4,
        length: int = 64,
    ) -> None:
        super().__init__()
        if width % heads:
            raise ValueError(f"width must be a multiple of heads, got {width!r} and {heads!r}")
        self.words = nn.Embedding(vocabulary, width)
        self.places = nn.Embedding(length, width)
        self.layers = nn.Sequential(*[_Layer(width, heads) for _ in range(layers)])
        self.norm = nn.LayerNorm(width)
        self.head = nn.Linear(width, classes)

    def forward(self, tokens: Tensor) -> Tensor:
        """Return one score per class."""
        # One row of places per example: a layer's first axis is that of examples.
        places = torch.arange(tokens.shape[1], device=tokens.device).expand_as(tokens)
        embedded = self.words(tokens) + self.places(places)
        scores: Tensor = self.head(self.norm(self.layers(embedded)).mean(1))
        return scores
