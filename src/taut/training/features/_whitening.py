"""Features on an even footing, by statistics of public features."""

from __future__ import annotations

from typing import Self

import torch
from torch import Tensor, nn

from taut._base import validate
from taut._base.public_vectors import as_provenance
from taut.noise.geometry import Provenance

__all__ = ["PublicWhitening", "SignedRoot"]


class SignedRoot(nn.Module):
    """Take the square root of every feature and keep its sign, so that large ones weigh less.

    **Guarantee**: of each example alone; it costs no privacy.

    Example:
        >>> import torch
        >>> from taut.training.features import SignedRoot
        >>> print(SignedRoot()(torch.tensor([[4.0, -9.0]])))
        tensor([[ 2., -3.]])
    """

    def forward(self, features: Tensor) -> Tensor:
        """Return the roots."""
        return features.sign() * features.abs().sqrt()


class PublicWhitening(nn.Module):
    """Centre channels, scale them, and make them less alike, as public features say.

    A linear model learns slowly where features have a mean in common, or where most of their
    length is in a few directions: clipping then leaves little for the others. Channels x become
    ``(R + floor)^-power ((x - mean) / deviation)``, with the correlations R of public features.

    Args:
        mean: mean of every channel.
        matrix: what centred channels are multiplied with.
        provenance: why neither is a secret, see `taut.noise.geometry.Provenance`.

    **Guarantee**: a fixed linear map of each example's features. It costs no privacy if mean and
    matrix do not depend on private examples; made from *private* ones they are releases without
    noise.

    Example:
        >>> import torch
        >>> from taut.training.features import PublicWhitening
        >>> public = 5 + torch.randn(200, 3) @ torch.tensor([[2.0, 1, 0], [0, 1, 0], [0, 0, 3]])
        >>> whiten = PublicWhitening.from_public(public, power=0.5, provenance="public")
        >>> print(whiten(public).T.cov().diagonal().round(decimals=1))
        tensor([1., 1., 1.])
    """

    mean: Tensor
    matrix: Tensor

    def __init__(self, mean: Tensor, matrix: Tensor, *, provenance: Provenance | str) -> None:
        super().__init__()
        self.provenance = as_provenance(provenance)
        if mean.ndim != 1 or matrix.shape != (len(mean), len(mean)):
            raise ValueError(
                "mean and matrix must be of shapes (channels,) and (channels, channels), got "
                f"{tuple(mean.shape)} and {tuple(matrix.shape)}"
            )
        self.register_buffer("mean", mean)
        self.register_buffer("matrix", matrix)

    @classmethod
    def from_public(
        cls,
        features: Tensor,
        *,
        provenance: Provenance | str,
        power: float = 0.25,
        floor: float = 0.02,
    ) -> Self:
        """Return the map for features of public examples.

        Args:
            features: features of shape (examples, channels, ...); all places count alike.
            provenance: ``"public"`` or ``"released"``.
            power: how much correlations are undone: 0 only centres and scales channels, 0.5 makes
                them uncorrelated.
            floor: keeps directions short that public features hardly have.

        Raises:
            UnsoundConfiguration: if features are not declared public or released.
            ValueError: for fewer than two rows of features, and those that are not finite.
        """
        as_provenance(provenance)
        validate.non_negative(power=power)
        validate.positive(floor=floor)
        rows = (
            features.detach().double().movedim(1, -1).flatten(0, -2) if features.ndim > 1 else None
        )
        if rows is None or len(rows) < 2 or not rows.isfinite().all():
            raise ValueError(
                "features must be finite, of shape (examples, channels, ...) with several rows, "
                f"got {tuple(features.shape)}"
            )
        mean, deviation = rows.mean(0), rows.std(0)
        # A channel that never varies in public stays as it is.
        deviation[deviation == 0] = 1.0
        scaled = (rows - mean) / deviation
        values, directions = torch.linalg.eigh(scaled.T @ scaled / (len(rows) - 1))
        stretch = (values.clamp(min=0) + floor) ** -power
        matrix = (directions * stretch) @ directions.T / deviation
        return cls(mean.float(), matrix.float(), provenance=provenance)

    def forward(self, features: Tensor) -> Tensor:
        """Return features with their channels, the second dimension, transformed."""
        channels_last = features.to(self.mean.dtype).movedim(1, -1) - self.mean
        return (channels_last @ self.matrix.T).movedim(-1, 1)

    def extra_repr(self) -> str:
        """Return the size and where it comes from."""
        return f"{len(self.mean)}, provenance={str(self.provenance)!r}"
