"""The scattering transform: features of images that nobody had to learn.

Why it moves no two images apart: wavelets together keep at most all energy, and a modulus moves
nothing apart, so that all signals of one order have at most the energy of the padded image: three
times that for the orders zero to two. Averages with the low pass G at every s-th point of a line
keep at most B / s of the energy, with B = max over frequencies of the sum of |G|^2 over those which
the coarse grid confuses; here B < 1.004. Padding by reflection repeats a point at most twice in
each direction. For s = 4: 3 * 4 * 1.004^2 / 16 < 1.
"""

from __future__ import annotations

import torch
from torch import Tensor, nn
from torch.nn import functional

from taut._base import validate
from taut.training.features._morlet import WIDTH, gaussian, wavelets

__all__ = ["Scattering2d"]

_CHUNK_BYTES = 4_000_000  # of the largest intermediate tensor: what caches hold


class Scattering2d(nn.Module):
    """Averages of how much an image varies, by size and direction, to the second order.

    An image is filtered with wavelets of `scales` sizes and `angles` directions, and the modulus is
    taken; each result once more, with larger wavelets. Image and moduli are averaged with a
    Gaussian and kept at every 2**scales-th point (Bruna and Mallat 2013, Oyallon and Mallat 2015).
    Images are continued by reflection at their borders. There is nothing to train.

    Args:
        shape: height and width of images, multiples of 2**scales and more than twice that.
        scales: number of sizes of wavelets, J.
        angles: number of directions, L.
        channels: number of channels of images; each is transformed alone.

    Input is of shape (batch, channels, height, width), output of shape (batch, channels * `paths`,
    height / 2**scales, width / 2**scales). The first path of a channel is the average of the image,
    then come those of first order, by size and direction, then those of second order, by both
    sizes and directions, the first wavelet's before the second's.

    **Guarantee**: features of an example depend on that example and on the arguments alone: a
    fixed, public function. Whoever trains on features with some epsilon and delta has the same
    promise for the images. With two scales or more no image gets longer and no two images move
    apart: ``|S(x) - S(y)| <= |x - y|``, up to rounding.

    Raises:
        ValueError: for a shape that does not fit, and for images of another shape.

    Example:
        >>> import torch
        >>> from taut.training.features import Scattering2d
        >>> scattering = Scattering2d((28, 28))
        >>> scattering.paths, scattering(torch.rand(5, 1, 28, 28)).shape
        (81, torch.Size([5, 81, 7, 7]))
    """

    filters: Tensor
    rows: Tensor
    columns: Tensor

    def __init__(
        self, shape: tuple[int, int], *, scales: int = 2, angles: int = 8, channels: int = 1
    ) -> None:
        super().__init__()
        self.scales = validate.positive_integer(scales=scales)
        self.angles = validate.positive_integer(angles=angles)
        self.channels = validate.positive_integer(channels=channels)
        self.shape = _checked_shape(shape, 2**self.scales)
        step = 2**self.scales
        torus = (self.shape[0] + 2 * step, self.shape[1] + 2 * step)
        # The division of the inverse transform is part of the filters: once, not for every path.
        bank = wavelets(torus, self.scales, self.angles) / (torus[0] * torus[1])
        self.register_buffer("filters", bank.float(), persistent=False)
        width = WIDTH * 2 ** (self.scales - 1)
        self.register_buffer("rows", _averages(torus[0], step, width), persistent=False)
        self.register_buffer("columns", _averages(torus[1], step, width), persistent=False)

    @property
    def paths(self) -> int:
        """How many features there are for a channel at a place."""
        pairs = self.scales * (self.scales - 1) // 2
        return 1 + self.scales * self.angles + pairs * self.angles**2

    @property
    def output_shape(self) -> tuple[int, int, int]:
        """Channels, height and width of the features of one example."""
        height, width = self.shape
        return self.channels * self.paths, height >> self.scales, width >> self.scales

    def forward(self, images: Tensor) -> Tensor:
        """Return the features of a batch of images."""
        expected = (self.channels, *self.shape)
        if images.ndim != 4 or images.shape[1:] != expected:
            raise ValueError(
                f"images must be of shape (batch, {', '.join(map(str, expected))}), "
                f"got {tuple(images.shape)}"
            )
        planes = images.to(self.filters.dtype).reshape(-1, 1, *self.shape)
        if len(planes) == 0:
            return planes.new_empty((0, *self.output_shape))
        # Complex numbers of all directions at once are the most that is held at a time.
        most = 2 * self.filters.element_size() * self.filters[0].numel()
        parts = [self._planes(part) for part in planes.split(max(1, _CHUNK_BYTES // most))]
        return torch.cat(parts).reshape(len(images), *self.output_shape)

    def extra_repr(self) -> str:
        """Return the arguments."""
        return f"{self.shape}, scales={self.scales}, angles={self.angles}, channels={self.channels}"

    def _planes(self, planes: Tensor) -> Tensor:
        """Return the features of planes of shape (batch, 1, height, width), paths second."""
        images = functional.pad(planes, (2**self.scales,) * 4, mode="reflect")
        spectra = torch.fft.fft2(images)
        first, second = [self._average(images)], []
        for scale, filters in enumerate(self.filters):
            moduli = _modulus(spectra, filters)
            first.append(self._average(moduli))
            if scale == self.scales - 1:
                break
            for spectrum in torch.fft.fft2(moduli).split(1, dim=1):
                for larger in self.filters[scale + 1 :]:
                    second.append(self._average(_modulus(spectrum, larger)))
        return torch.cat(first + second, dim=1)

    def _average(self, images: Tensor) -> Tensor:
        return self.rows @ (images @ self.columns.T)


def _modulus(spectra: Tensor, filters: Tensor) -> Tensor:
    modulus: Tensor = torch.fft.ifft2(spectra * filters, norm="forward").abs()
    return modulus


def _averages(size: int, step: int, width: float) -> Tensor:
    """Return the matrix from a line with its borders to averages at every `step` inner points."""
    kernel = gaussian(size, width)
    centres = torch.arange(step, size - step, step)
    places = (torch.arange(size) - centres[:, None]) % size
    return kernel[places].float()


def _checked_shape(shape: tuple[int, int], step: int) -> tuple[int, int]:
    height, width = shape
    sizes = validate.positive_integer(height=height), validate.positive_integer(width=width)
    for size in sizes:
        # A point that is mirrored at two opposite borders would count three times.
        if size % step or size <= 2 * step:
            raise ValueError(
                f"height and width must be multiples of 2**scales = {step}, and more than twice "
                f"that, got shape={tuple(shape)!r}; pad or resize images, or use fewer scales"
            )
    return sizes
