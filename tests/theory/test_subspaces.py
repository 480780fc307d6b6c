"""How far one record turns a subspace, by maximisation over records and spectra."""

import numpy as np
import pytest
from scipy.optimize import minimize

from taut.estimators._components.eigengap import projector_reach


def projector(matrix, kept):
    top = np.linalg.eigh(matrix)[1][:, -kept:]
    return top @ top.T


def spectrum(rng, size, kept, gap):
    """Return eigenvalues with a gap of the given length behind the leading ones."""
    small = np.sort(rng.exponential(rng.choice([0.1, 1.0, 10.0]), size - kept))
    large = small[-1] + gap + np.append(0.0, rng.exponential(1.0, kept - 1))
    return np.concatenate([small, large])


def moved(values, kept, *records):
    """Return the distance of projectors after adding the first record and removing the second."""
    before = np.diag(values)
    after = before.copy()
    for sign, record in zip((1, -1), records, strict=False):
        unit = record / max(np.linalg.norm(record), 1e-300)
        after = after + sign * np.outer(unit, unit)
    return np.linalg.norm(projector(before, kept) - projector(after, kept))


def most(values, kept, records, rng, starts=2):
    size = len(values)

    def negative(flat):
        return -moved(values, kept, *flat.reshape(records, size))

    found = (
        minimize(negative, rng.normal(size=records * size), method="Nelder-Mead").fun
        for _ in range(starts)
    )
    return -min(found)


@pytest.mark.parametrize("records", [1, 2])
@pytest.mark.parametrize(("size", "kept"), [(2, 1), (3, 2), (4, 2)])
def test_no_record_found_moves_it_further(size, kept, records):
    rng = np.random.default_rng(size)
    for gap in (records * 1.01, 3.0):
        found = most(spectrum(rng, size, kept, gap), kept, records, rng)
        assert found <= np.sqrt(2) * np.sin(np.arcsin(records / gap) / 2) * (1 + 1e-9)


def test_removal_moves_it_no_further():
    rng = np.random.default_rng(0)
    for _ in range(300):
        rows = rng.normal(size=(12, 4)) * [2, 1, 0.5, 0.2]
        rows /= np.maximum(np.linalg.norm(rows, axis=1, keepdims=True), 1)
        matrix, record = rows.T @ rows, rows[0]
        values = np.linalg.eigvalsh(matrix)
        for kept in (1, 2, 3):
            gap = values[-kept] - values[-kept - 1]
            far = np.linalg.norm(
                projector(matrix, kept) - projector(matrix - np.outer(record, record), kept)
            )
            assert far <= projector_reach(gap)


@pytest.mark.parametrize("gap", [1.5, 3.0, 10.0])
def test_bound_is_attained_in_the_plane(gap):
    angles = np.linspace(0, np.pi, 20_001)
    reached = max(
        moved(np.array([0.0, gap]), 1, np.array([np.sin(angle), np.cos(angle)]))
        for angle in angles[::10]
    )
    assert reached == pytest.approx(projector_reach(gap), rel=1e-4)


def test_known_values_and_limits():
    assert projector_reach(10.0) == pytest.approx(0.0708, abs=5e-5)
    assert projector_reach(1.0) == np.inf
    assert projector_reach(np.nan) == np.inf
