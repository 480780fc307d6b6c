"""Whitening by public statistics, and made-up images to take them from."""

import pytest
import torch

from taut.errors import UnsoundConfiguration
from taut.training.features import PublicWhitening, SignedRoot, dead_leaves


def correlated(count=4000):
    bits = torch.Generator().manual_seed(0)
    mixing = torch.tensor([[2.0, 1.0, 0.0], [0.0, 1.0, 0.5], [0.0, 0.0, 3.0]])
    return 5 + torch.randn(count, 3, generator=bits) @ mixing


def test_half_power_makes_channels_uncorrelated():
    public = correlated()
    whiten = PublicWhitening.from_public(public, power=0.5, floor=1e-9, provenance="public")
    found = whiten(public)
    torch.testing.assert_close(found.T.cov(), torch.eye(3), atol=1e-4, rtol=0)
    torch.testing.assert_close(found.mean(0), torch.zeros(3), atol=1e-4, rtol=0)


def test_power_zero_centres_and_scales_alone():
    public = correlated()
    found = PublicWhitening.from_public(public, power=0, provenance="public")(public)
    torch.testing.assert_close(found, (public - public.mean(0)) / public.std(0), atol=1e-5, rtol=0)


def test_quarter_power_halves_correlations_on_a_logarithmic_scale():
    public = correlated()
    scaled = (public - public.mean(0)) / public.std(0)
    whiten = PublicWhitening.from_public(public, power=0.25, floor=1e-9, provenance="public")
    before = torch.linalg.eigvalsh(scaled.T.cov())
    torch.testing.assert_close(
        torch.linalg.eigvalsh(whiten(public).T.cov()), before.sqrt(), atol=1e-4, rtol=0
    )


def test_places_are_transformed_alike():
    maps = correlated().view(40, 10, 10, 3).movedim(-1, 1)
    whiten = PublicWhitening.from_public(maps, provenance="released")
    found = whiten(maps.half())
    assert found.dtype is torch.float32
    assert found.shape == maps.shape
    flat = PublicWhitening.from_public(correlated(), provenance="released")(correlated())
    torch.testing.assert_close(whiten(maps).movedim(1, -1).flatten(0, -2), flat)


def test_statistics_are_not_those_of_what_is_transformed():
    whiten = PublicWhitening.from_public(correlated(), provenance="public")
    one, other = torch.randn(1, 3), torch.randn(1, 3)
    torch.testing.assert_close(whiten(torch.cat([one, other]))[:1], whiten(one))
    assert not list(whiten.parameters())
    assert set(whiten.state_dict()) == {"mean", "matrix"}


def test_constant_channel_stays_finite():
    public = correlated()
    public[:, 1] = 7.0
    assert PublicWhitening.from_public(public, provenance="public")(public).isfinite().all()


def test_private_features_are_refused():
    with pytest.raises(UnsoundConfiguration, match="provenance must be"):
        PublicWhitening.from_public(correlated(), provenance="private")
    with pytest.raises(UnsoundConfiguration, match="provenance must be"):
        PublicWhitening(torch.zeros(3), torch.eye(3), provenance="training")


@pytest.mark.parametrize("bad", [torch.ones(3), torch.ones(1, 3), torch.full((5, 3), torch.nan)])
def test_features_without_statistics_are_refused(bad):
    with pytest.raises(ValueError, match="features must be finite"):
        PublicWhitening.from_public(bad, provenance="public")


@pytest.mark.parametrize("bad", [{"power": -1}, {"floor": 0}])
def test_bad_arguments_are_refused(bad):
    with pytest.raises(ValueError, match=next(iter(bad))):
        PublicWhitening.from_public(correlated(), provenance="public", **bad)


def test_shapes_that_do_not_fit_are_refused():
    with pytest.raises(ValueError, match="mean and matrix"):
        PublicWhitening(torch.zeros(3), torch.eye(4), provenance="public")


def test_roots_keep_signs():
    found = SignedRoot()(torch.tensor([[0.25, -0.25, 0.0, -100.0]]))
    assert found.tolist() == [[0.5, -0.5, 0.0, -10.0]]


def test_leaves_are_the_same_for_the_same_seed():
    images = dead_leaves(3, (16, 24), seed=5)
    assert images.shape == (3, 3, 16, 24)
    assert 0 <= float(images.min()) <= float(images.max()) <= 1
    torch.testing.assert_close(dead_leaves(3, (16, 24), seed=5), images)
    assert not torch.equal(dead_leaves(3, (16, 24), seed=6), images)


@pytest.mark.slow
def test_leaves_have_the_spectrum_of_natural_images():
    images = dead_leaves(200, (32, 32), channels=1)
    spectrum = torch.fft.fft2(images[:, 0]).abs().square().mean(0)
    power = torch.stack([(spectrum[k, 0] + spectrum[0, k]) / 2 for k in range(1, 9)])
    slope = float((power[7] / power[0]).log() / torch.tensor(8.0).log())
    # The power of natural images falls as 1 / f^2, or a little faster (Field 1987).
    assert -3 < slope < -1.5


@pytest.mark.parametrize("bad", [{"count": 0}, {"channels": 0}, {"seed": 0.5}, {"shape": (0, 4)}])
def test_leaves_refuse_bad_arguments(bad):
    with pytest.raises(ValueError, match="height" if "shape" in bad else next(iter(bad))):
        dead_leaves(**({"count": 1} | bad))
