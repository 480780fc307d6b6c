"""One step taken apart: every part against a simulation of the release."""

import json
import math

import numpy as np
import pytest

from taut.errors import AdjacencyMismatch, UnsoundConfiguration
from taut.noise import Blocks, L2Ball, SeededForExperiments, optimal_gaussian
from taut.noise.geometry import one_step, public_subspaces

RANDOM = np.random.default_rng(0)
VECTORS = 0.2 + RANDOM.standard_normal((120, 25)) * np.repeat([1.0, 0.1], [5, 20])
SPACES = public_subspaces(VECTORS, [4], provenance="public")
SETS = {
    "ball": L2Ball(25, 2.0),
    "layers": Blocks([5, 20], l2=[1.8, 0.9]),
    "subspaces": SPACES.blocks([1.8, 0.9]),
    "capped": SPACES.blocks([1.8, 0.9], cap=1.9),
}


def steps(sets=SETS, **changes):
    arguments = {"rate": 0.3, "multiplier": 0.8, "provenance": "public"} | changes
    return one_step(VECTORS, sets, **arguments)


@pytest.mark.parametrize("row", steps(), ids=lambda row: row.name)
def test_against_simulated_releases(row):
    noise = optimal_gaussian(SETS[row.name], multiplier=0.8)
    clipped = SETS[row.name].clip(VECTORS)
    source, random = SeededForExperiments(1), np.random.default_rng(1)
    true, mean = VECTORS.mean(axis=0), clipped.mean(axis=0)
    errors, sampling, cosines = [], [], []
    for _ in range(3000):
        kept = random.random(len(VECTORS)) < 0.3
        sampled = clipped[kept].sum(axis=0)
        released = noise.release(sampled, source) / (0.3 * len(VECTORS))
        errors.append(np.sum((released - true) ** 2))
        sampling.append(np.sum((sampled / (0.3 * len(VECTORS)) - mean) ** 2))
        cosines.append(released @ true / np.linalg.norm(released) / np.linalg.norm(true))
    assert row.mean_squared_error == pytest.approx(np.mean(errors), rel=0.03)
    assert row.sampling_variance == pytest.approx(np.mean(sampling), rel=0.03)
    assert row.cosine_released == pytest.approx(np.mean(cosines), abs=0.02)
    assert row.clip_bias == pytest.approx(np.linalg.norm(mean - true))
    cosine = mean @ true / np.linalg.norm(mean) / np.linalg.norm(true)
    assert row.cosine_clipped == pytest.approx(cosine)


def test_noise_per_block_by_the_covariance():
    row = steps({"subspaces": SETS["subspaces"]})[0]
    noise = optimal_gaussian(SETS["subspaces"], multiplier=0.8)
    mean = SETS["subspaces"].clip(VECTORS).mean(axis=0)
    inside = SPACES.basis @ SPACES.basis.T
    for projection, snr in zip((inside, np.eye(25) - inside), row.block_snr, strict=True):
        variance = np.trace(projection @ noise.covariance()) / (0.3 * 120) ** 2
        assert snr == pytest.approx(np.linalg.norm(projection @ mean) / math.sqrt(variance))


def test_weights_move_noise_out_of_the_block():
    weighted = optimal_gaussian(SETS["layers"], multiplier=0.8, weights=[10.0, 1.0])
    plain, other = steps({"plain": SETS["layers"], "weighted": weighted})
    assert other.block_snr[0] > plain.block_snr[0]
    assert other.noise_variance > plain.noise_variance
    assert other.clip_bias == plain.clip_bias


def test_all_records_have_no_sampling_variance():
    assert all(row.sampling_variance == 0 for row in steps(rate=1.0))


def test_blocks_beat_the_ball_around_them():
    ball = L2Ball(25, SETS["layers"].max_l2)
    around, blocks = steps({"ball": ball, "layers": SETS["layers"]})
    assert blocks.noise_variance < 0.7 * around.noise_variance


def test_dropped_blocks_have_no_signal():
    sets = {"dropped": Blocks([5, 20], l2=[1.0, 0.0], allow_zero=True)}
    assert steps(sets)[0].block_snr[1] == 0


def test_zero_vectors():
    (row,) = one_step(
        np.zeros((3, 2)), {"ball": L2Ball(2, 1.0)}, rate=1.0, multiplier=1.0, provenance="public"
    )
    assert (row.cosine_clipped, row.clip_bias) == (0.0, 0.0)


def test_json():
    shown = json.loads(json.dumps([row.to_dict() for row in steps()], allow_nan=False))
    assert [row["name"] for row in shown] == list(SETS)
    assert shown[0]["mean_squared_error"] == steps()[0].mean_squared_error


class TestRefusals:
    def test_private_vectors(self):
        with pytest.raises(UnsoundConfiguration, match="provenance"):
            steps(provenance="private")

    def test_replace_one_under_sampling(self):
        with pytest.raises(UnsoundConfiguration, match="replace-one"):
            steps({"pairs": L2Ball(25, 1.0).differences()})

    def test_unequal_relations(self):
        sets = {"one": L2Ball(25, 1.0), "other": L2Ball(25, 1.0, adjacency="zero_out")}
        with pytest.raises(AdjacencyMismatch, match="add_remove and zero_out"):
            steps(sets)

    def test_unequal_privacy(self):
        noise = optimal_gaussian(SETS["ball"], multiplier=0.7)
        with pytest.raises(ValueError, match="equally private"):
            steps({"noise": noise})

    @pytest.mark.parametrize("rate", [0.0, 1.1, math.nan])
    def test_rate(self, rate):
        with pytest.raises(ValueError, match="rate"):
            steps(rate=rate)
