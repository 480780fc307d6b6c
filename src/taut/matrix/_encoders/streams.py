"""Noise streams: recursions that apply a decoder to noise as it is drawn."""

from __future__ import annotations

from collections import deque
from collections.abc import Callable, Sequence
from typing import Any

from taut.matrix._encoders.encoder import NoiseStream

__all__ = ["BufferStream", "HistoryStream", "RowStream", "TreeStream"]


def _added(noise: Any, weight: float, other: Any) -> Any:
    """Return noise + weight * other; a tensor that nobody else holds is changed in one pass."""
    if hasattr(noise, "add_"):
        return noise.add_(other, alpha=weight)
    return noise + weight * other


def _mean(buffer: Any, share: float, noise: Any) -> Any:
    """Return (1 - share) * buffer + share * noise, in the place of a buffer that is a tensor."""
    if hasattr(buffer, "lerp_"):
        return buffer.lerp_(noise, share)
    return (1 - share) * buffer + share * noise


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
            noise = _added(noise, -weight, made)
        if diagonal != 1:
            noise = noise * (1 / diagonal)
        self._made.appendleft(noise)
        self._next += 1
        return noise


class HistoryStream(NoiseStream):
    """A moving average of fresh noise: w_i = sum_k d_k z_{i - k}."""

    keeps_noise = False

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
        first, *weights = self._weights
        older = list(zip(weights, self._drawn, strict=False))
        if first == 1 and older and hasattr(fresh, "add"):
            weight, old = older.pop(0)
            noise = fresh.add(old, alpha=weight)
        else:
            noise = first * fresh  # a new array: the draw itself is remembered
        for weight, old in older:
            noise = _added(noise, weight, old)
        self._drawn.appendleft(fresh)
        return noise


class BufferStream(NoiseStream):
    """Buffers u_j with u_j <- d_j u_j + (1 - d_j) w, and w = z - sum_j s_j u_j / (1 - d_j).

    Means u_j take one pass over a tensor where sums would take two.
    """

    keeps_noise = False

    def __init__(self, weights: Sequence[float], decays: Sequence[float]) -> None:
        """Take the output weight and the decay of every buffer."""
        self._shares = [1 - decay for decay in decays]
        self._weights = [w / share for w, share in zip(weights, self._shares, strict=True)]
        self._buffers: list[Any] = []

    @property
    def buffers(self) -> int:
        """One for every decay."""
        return len(self._shares)

    def step(self, draw: Callable[[], Any]) -> Any:
        """Return the next noise."""
        noise = draw()
        for weight, buffer in zip(self._weights, self._buffers, strict=False):
            noise = _added(noise, -weight, buffer)
        if self._buffers:
            self._buffers = [
                _mean(buffer, share, noise)
                for share, buffer in zip(self._shares, self._buffers, strict=True)
            ]
        else:
            self._buffers = [share * noise for share in self._shares]
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
