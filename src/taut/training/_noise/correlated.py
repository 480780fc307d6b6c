"""Noise that takes back noise of earlier steps, and that can be drawn again after a stop."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from typing import TYPE_CHECKING, Never

from taut.errors import UnsoundConfiguration
from taut.matrix import Encoder, InverseToeplitzEncoder
from taut.noise import default_generator
from taut.training._noise.keyed_bits import NoiseKeys, new_session_key
from taut.training._noise.step_noise import Draw, StepNoise

if TYPE_CHECKING:
    import torch
    from torch import Tensor

__all__ = ["CorrelatedNoise"]


class CorrelatedNoise(StepNoise):
    """The decoded noise D z of an encoder, one step after the other.

    Args:
        independent: noise z of one row, at the deviation of the rows.
        encoder: encoder of the run.

    **Guarantee**: the noise of a step is handed out once. Independent noise of a step follows from
    a secret key and the number of the step, so that what a stopped process remembered is made
    again to the last bit; steps after the stop have a key of their own. Nothing of it is part of a
    checkpoint.
    """

    needs_whole = True

    def __init__(self, independent: StepNoise, encoder: Encoder) -> None:
        self.independent, self.encoder = independent, encoder
        self._keys: NoiseKeys | None = None
        self._factor: float | None = None
        self._due = self._next = 0
        self._restart(0)

    def __repr__(self) -> str:
        return f"CorrelatedNoise({self.independent!r}, {self.encoder!r})"

    def __reduce__(self) -> Never:
        raise TypeError("noise of a run cannot be copied: two sums under it would show more")

    def go_on(self, keys: NoiseKeys, step: int) -> None:
        """Draw from keys, from a step on; earlier noise is made again when it is needed."""
        self._keys = keys
        self._restart(step)

    def come_to(self, step: int) -> None:
        """Go to a step; noise of steps in between is drawn, and given to nobody.

        Raises:
            UnsoundConfiguration: for a step whose noise was handed out before.
        """
        if step < self._due:
            raise UnsoundConfiguration(
                f"the noise of step {step} was handed out before: with two sums under the same "
                "noise, their difference would be seen without any. Take every step once"
            )
        self._due = step

    def check(self, groups: Sequence[int], sizes: Sequence[int]) -> None:
        self.independent.check(groups, sizes)

    def draw(self, shapes: Sequence[torch.Size], how: Draw) -> list[Tensor]:
        if self._due >= self.encoder.steps:
            raise UnsoundConfiguration(
                f"the encoder has {self.encoder.steps} steps, and all were taken; plan for more "
                "from the start"
            )
        if self._factor not in (None, how.factor):
            raise UnsoundConfiguration(
                "clipping norm or batch size changed under noise that is correlated over steps; "
                "both must stay as they are"
            )
        self._factor = how.factor
        while self._next < self._due:
            self._advance(shapes, how)
        flat = self._advance(shapes, how)
        if self._stream.keeps_noise:  # callers add to it
            flat = flat.clone()
        self._due = self._next
        pieces = flat.split([shape.numel() for shape in shapes])
        return [piece.view(shape) for piece, shape in zip(pieces, shapes, strict=True)]

    def _restart(self, step: int) -> None:
        self._stream = self.encoder.stream()
        self._due, self._next = step, 0
        if isinstance(self.encoder, InverseToeplitzEncoder):  # remembers the last draws alone
            self._next = max(step - self._stream.buffers, 0)

    def _advance(self, shapes: Sequence[torch.Size], how: Draw) -> Tensor:
        """Return the noise of the next step, in one piece."""
        from taut.training._tensors.normal import in_one_piece

        if self._keys is None:  # a run without files: nobody can go on with it elsewhere
            source = default_generator() if how.source.secure else how.source
            self._keys = NoiseKeys((new_session_key(source, 0),))
        bits = self._keys.bits(self._next)

        def fresh() -> Tensor:
            drawn = self.independent.draw(shapes, replace(how, source=bits))
            return in_one_piece(drawn)

        noise: Tensor = self._stream.step(fresh)
        self._next += 1
        return noise
