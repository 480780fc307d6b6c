"""The scattering transform, against convolution by hand and against its promises."""

import math

import numpy as np
import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from scipy.ndimage import convolve

import taut.training.features._scattering as scattering_module
from taut.training.features import Scattering2d
from taut.training.features._morlet import littlewood_paley, wavelets


def wavelet_by_hand(scale, angle, angles, reach):
    """A Morlet wavelet on a window, by its formula in rotated coordinates."""
    y, x = np.mgrid[-reach : reach + 1, -reach : reach + 1].astype(float)
    turned = (y + 1j * x) * np.exp(-1j * angle)
    slant, deviation = 4 / angles, 0.8 * scale
    bell = np.exp(-(turned.real**2 + (slant * turned.imag) ** 2) / (2 * deviation**2))
    wave = bell * np.exp(1j * 0.75 * np.pi / scale * turned.real)
    wave -= bell * wave.sum() / bell.sum()
    return wave * slant / (2 * np.pi * deviation**2)


def common_factor(kernels, size, low_width):
    """The largest factor of wavelets with which no wave gains energy, one wave after another."""
    reach = kernels[0].shape[0] // 2
    offsets = np.arange(-reach, reach + 1)
    best = math.inf
    for row in range(size):
        for column in range(size):
            if row == column == 0:
                continue
            gains = 0.0
            for sign in (1, -1):
                up = np.exp(-2j * np.pi * sign * row * offsets / size)
                left = np.exp(-2j * np.pi * sign * column * offsets / size)
                gains += sum(abs(up @ kernel @ left) ** 2 for kernel in kernels) / 2
            line = np.exp(-((offsets / low_width) ** 2) / 2)
            line /= line.sum()
            low = abs(line @ np.exp(2j * np.pi * row * offsets / size)) ** 2
            low *= abs(line @ np.exp(2j * np.pi * column * offsets / size)) ** 2
            best = min(best, (1 - low) / gains)
    return math.sqrt(best)


def scattering_by_hand(image, scales, angles):
    """The transform by direct convolution: no Fourier transform, no matrices, double precision."""
    step, reach = 2**scales, 24
    padded = np.pad(image, step, mode="reflect")
    by_scale = [
        [wavelet_by_hand(2.0**j, np.pi * k / angles, angles, reach) for k in range(angles)]
        for j in range(scales)
    ]
    width = 0.8 * 2 ** (scales - 1)
    flat = [kernel for kernels in by_scale for kernel in kernels]
    factor = common_factor(flat, len(padded), width)
    offsets = np.arange(-reach, reach + 1)
    low = np.exp(-(offsets[:, None] ** 2 + offsets**2) / (2 * width**2))
    low /= low.sum()

    def modulus(picture, kernel):
        real = convolve(picture, factor * kernel.real, mode="grid-wrap")
        imaginary = convolve(picture, factor * kernel.imag, mode="grid-wrap")
        return np.hypot(real, imaginary)

    def kept(picture):
        return convolve(picture, low, mode="grid-wrap")[step:-step:step, step:-step:step]

    first, second = [kept(padded)], []
    for j, kernels in enumerate(by_scale):
        for kernel in kernels:
            inner = modulus(padded, kernel)
            first.append(kept(inner))
            for larger in by_scale[j + 1 :]:
                second += [kept(modulus(inner, other)) for other in larger]
    return np.stack(first + second)


@pytest.mark.parametrize(("scales", "angles"), [(1, 8), (2, 4), (2, 3)])
def test_equals_direct_convolution(scales, angles):
    draw = np.random.default_rng(3)
    image = draw.random((12, 12))
    expected = scattering_by_hand(image, scales, angles)
    found = Scattering2d((12, 12), scales=scales, angles=angles)(torch.tensor(image)[None, None])
    assert found.shape[1:] == expected.shape
    np.testing.assert_allclose(found[0].numpy(), expected, rtol=0, atol=2e-6)


@pytest.mark.parametrize("shape", [(36, 36), (40, 40), (20, 36)])
@pytest.mark.parametrize(("scales", "angles"), [(1, 6), (2, 8), (3, 8)])
def test_wavelets_and_low_pass_keep_at_most_all_energy(shape, scales, angles):
    low, high = littlewood_paley(wavelets(shape, scales, angles), scales)
    assert float((low + high).max()) <= 1 + 1e-12
    assert float((low + high).flatten()[1:].max()) >= 1 - 1e-9


def test_wavelets_are_blind_to_constants():
    assert float(wavelets((36, 36), 2, 8)[..., 0, 0].abs().max()) < 1e-12
    features = Scattering2d((28, 28))(torch.full((1, 1, 28, 28), 0.7))
    torch.testing.assert_close(features[0, 0], torch.full((7, 7), 0.7))
    assert float(features[0, 1:].abs().max()) < 1e-6


@pytest.mark.parametrize(("size", "places"), [(28, 7), (32, 8)])
def test_usual_sizes(size, places):
    transform = Scattering2d((size, size), channels=3)
    assert transform.paths == 81
    assert transform.output_shape == (243, places, places)
    assert transform(torch.rand(2, 3, size, size)).shape == (2, 243, places, places)
    assert not list(transform.parameters())
    assert not transform.state_dict()


_SMALL = Scattering2d((12, 16), angles=4)


@settings(max_examples=50, deadline=None)
@given(
    seed=st.integers(0, 2**32),
    kind=st.sampled_from(["noise", "corner", "edge", "checkerboard", "smooth"]),
    other=st.sampled_from(["zero", "near", "far"]),
    scale=st.floats(0.1, 10),
)
def test_moves_no_images_apart(seed, kind, other, scale):
    bits = torch.Generator().manual_seed(seed)
    image = torch.randn(1, 1, 12, 16, generator=bits)
    if kind in ("corner", "edge"):
        mask = torch.zeros_like(image)
        mask[..., :3, : 3 if kind == "corner" else 16] = 1
        image *= mask
    elif kind == "checkerboard":
        image = ((torch.arange(12)[:, None] + torch.arange(16)) % 2)[None, None] * 2.0 - 1
    elif kind == "smooth":
        image = torch.ones(1, 1, 12, 16) + 0.01 * image
    second = torch.zeros_like(image)
    if other != "zero":
        change = torch.randn(1, 1, 12, 16, generator=bits)
        second = image + (0.01 if other == "near" else 1) * change
    moved = (_SMALL(scale * image) - _SMALL(scale * second)).norm()
    assert float(moved) <= float((scale * (image - second)).norm()) * (1 + 1e-5) + 1e-5


def test_hardly_changes_when_an_image_is_moved():
    places = torch.arange(28.0)
    lines = torch.exp(-(((places - 13) / 2) ** 2)) * torch.cos(2 * places)
    image = (lines[:, None] * torch.exp(-(((places - 14) / 4) ** 2)))[None, None]
    transform = Scattering2d((28, 28))
    before, after = transform(image), transform(image.roll(1, dims=2))
    pixels = (image - image.roll(1, dims=2)).norm() / image.norm()
    features = (before - after).norm() / before.norm()
    assert float(pixels) > 1.5
    assert float(features) < 0.25 * float(pixels)


def test_transposed_images_swap_directions():
    transform = Scattering2d((16, 16), scales=2, angles=4)
    image = torch.rand(1, 1, 16, 16)
    plain = transform(image)[0]
    turned = transform(image.transpose(2, 3))[0].transpose(1, 2)
    # A direction at angle a is at a quarter turn minus a in the transposed image.
    swap = [(2 - k) % 4 for k in range(4)]
    torch.testing.assert_close(turned[0], plain[0])
    torch.testing.assert_close(turned[1:9].view(2, 4, 4, 4), plain[1:9].view(2, 4, 4, 4)[:, swap])
    pairs = plain[9:].view(4, 4, 4, 4)[swap][:, swap]
    torch.testing.assert_close(turned[9:].view(4, 4, 4, 4), pairs)


def test_channels_and_examples_are_transformed_alone(monkeypatch):
    images = torch.rand(5, 3, 28, 28)
    whole = Scattering2d((28, 28), channels=3)(images)
    single = Scattering2d((28, 28))
    alone = torch.stack([single(image[:, None]).flatten(0, 1) for image in images])
    torch.testing.assert_close(whole, alone)
    monkeypatch.setattr(scattering_module, "_CHUNK_BYTES", 1)
    torch.testing.assert_close(Scattering2d((28, 28), channels=3)(images), whole)


def test_no_examples_have_no_features():
    assert Scattering2d((28, 28))(torch.zeros(0, 1, 28, 28)).shape == (0, 81, 7, 7)


@pytest.mark.parametrize("shape", [(30, 28), (28, 30), (8, 28)])
def test_shapes_that_do_not_fit_are_refused(shape):
    with pytest.raises(ValueError, match="multiples of 2\\*\\*scales = 4"):
        Scattering2d(shape)


@pytest.mark.parametrize("bad", [{"scales": 0}, {"angles": 0}, {"channels": 0}, {"angles": 2.5}])
def test_bad_arguments_are_refused(bad):
    with pytest.raises(ValueError, match=next(iter(bad))):
        Scattering2d((28, 28), **bad)


@pytest.mark.parametrize("shape", [(2, 28, 28), (2, 3, 28, 28), (2, 1, 32, 32)])
def test_images_of_another_shape_are_refused(shape):
    with pytest.raises(ValueError, match="images must be of shape"):
        Scattering2d((28, 28))(torch.zeros(shape))
