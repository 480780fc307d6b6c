"""Noise streams: recursions that apply a decoder to noise as it is drawn."""

from __future__ import annotations

from collections import deque
from collections.abc import Callable, Sequence
from typing import Any

from taut.matrix._encoders.encoder import NoiseStream

__all__ = ["BufferStream", "HistoryStream", "RowStream", "TreeStream"]


class RowStream(NoiseStream):
    """Forward substitution: w_i = (z_i - sum_k C[i, i - k] w_{i - k}) / C[i, i]."""

    def __init__(self, row: Callable[[int], Sequence[float]], bands: int) -> None:
        """Take a function that returns C[i, i], C[i, i - 1], ... of row i."""
        self._row = row
        self._made: deque[Any] = deque(maxlen=max(bands - 1, 0))
        self._next = 0

    @property
    def buffers(self) -> int:
        """The noises of the last steps."""
        return self._made.maxlen or 0

    def step(self, draw: Callable[[], Any]) -> Any:
        """Return the next noise."""
        diagonal, *weights = self._row(self._next)
        noise = draw()
        for weight, made in zip(weights, self._made, strict=False):
            noise = noise - weight * made
        noise = noise * (1 / diagonal)
        self._made.appendleft(noise)
        self._next += 1
        return noise


class HistoryStream(NoiseStream):
    """A moving average of fresh noise: w_i = sum_k d_k z_{i - k}."""

    def __init__(self, weights: Sequence[float]) -> None:
        """Take the weights by age."""
        self._weights = list(weights)
        self._drawn: deque[Any] = deque(maxlen=max(len(weights) - 1, 0))

    @property
    def buffers(self) -> int:
        """The draws of the last steps."""
        return self._drawn.maxlen or 0

    def step(self, draw: Callable[[], Any]) -> Any:
        """Return the next noise."""
        fresh = draw()
        noise = self._weights[0] * fresh
        for weight, old in zip(self._weights[1:], self._drawn, strict=False):
            noise = noise + weight * old
        self._drawn.appendleft(fresh)
        return noise


class BufferStream(NoiseStream):
    """Buffers u_j with u_j <- d_j u_j + w: the noise is w = z - sum_j s_j u_j."""

    def __init__(self, weights: Sequence[float], decays: Sequence[float]) -> None:
        """Take the output weight and the decay of every buffer."""
        self._weights, self._decays = list(weights), list(decays)
        self._buffers: list[Any] = []

    @property
    def buffers(self) -> int:
        """One for every decay."""
        return len(self._decays)

    def step(self, draw: Callable[[], Any]) -> Any:
        """Return the next noise."""
        noise = draw()
        for weight, buffer in zip(self._weights, self._buffers, strict=False):
            noise = noise - weight * buffer
        if self._buffers:
            self._buffers = [
                decay * buffer + noise
                for decay, buffer in zip(self._decays, self._buffers, strict=True)
            ]
        else:
            self._buffers = [noise for _ in self._decays]
        return noise


class TreeStream(NoiseStream):
    """Sums over complete subtrees, merged upwards; the noise of a step is what changes their total.

    Every node on the way up has a noise of its own, and an estimate: a mean of it, with weight
    ``shares[level]``, and of the sum of its children's estimates.
    """

    def __init__(self, shares: Sequence[float]) -> None:
        """Take, for every level, the weight of a node's own noise."""
        self._shares = list(shares)
        self._complete: list[tuple[int, Any]] = []
        self._step = 0
        self._before: Any = None  # total of the noise of all steps so far
        self._finished: Any = None  # that of the trees that are complete

    @property
    def buffers(self) -> int:
        """One for every level, the total, and that of trees that are complete."""
        return len(self._shares) + 2

    def step(self, draw: Callable[[], Any]) -> Any:
        """Return the next noise."""
        level, estimate = 0, draw()
        while self._complete and self._complete[-1][0] == level:
            _, left = self._complete.pop()
            level += 1
            share = self._shares[level]
            estimate = share * draw() + (1 - share) * (left + estimate)
        self._complete.append((level, estimate))
        if level == len(self._shares) - 1:
            self._complete.pop()
            self._finished = estimate if self._finished is None else self._finished + estimate
        parts = [made for _, made in self._complete]
        total = self._finished if self._finished is not None else parts.pop(0)
        for part in parts:
            total = total + part
        noise = total if self._before is None else total - self._before
        self._before = total
        return noise
