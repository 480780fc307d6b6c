"""Configurations of small runs, written to a folder."""

import numpy as np

TABLES = {
    "data": {"path": "points.npz"},
    "model": {"name": "mlp", "widths": [3, 4, 2]},
    "plan": {"batch_size": 20, "steps": 6, "epsilon": 3.0, "delta": 1e-3},
    "training": {"learning_rate": 0.5},
    "run": {"directory": "run", "checkpoint_seconds": 0.0},
}


def write_points(folder, name="points.npz", examples=100):
    bits = np.random.default_rng(0)
    inputs = bits.normal(size=(examples + 50, 3))
    labels = (inputs[:, 0] > 0).astype(np.int64)
    np.savez(
        folder / name,
        x_train=inputs[:examples],
        y_train=labels[:examples],
        x_test=inputs[examples:],
        y_test=labels[examples:],
    )


def write_config(folder, name="config.toml", **changes):
    """Write TABLES with some keys changed, or left out if they are None; return the path."""
    from taut.runs._tables import toml_text

    sections = {key: TABLES.get(key, {}) | (changes.get(key) or {}) for key in TABLES | changes}
    kept = {key: value for key, value in sections.items() if changes.get(key, {}) is not None}
    path = folder / name
    path.write_text(toml_text(kept))
    return path
