"""Every exported estimator with public parameters and data that suit it."""

import inspect
import tracemalloc

import numpy as np

import taut.estimators
from taut.noise import RandomSource

NAMES = [name for name in taut.estimators.__all__ if hasattr(getattr(taut.estimators, name), "fit")]
COLUMNS = 3

# Public parameters by name; an estimator gets those that it has. A new estimator that needs
# another one adds it here.
PUBLIC = {
    "epsilon": 1.0,
    "delta": 1e-6,
    "bounds": (-3.0, 3.0),
    "row_norm": 3.0,
    "feature_norm": 3.0,
    "classes": (0, 1),
    "n_clusters": 2,
    "target_bound": 3.0,
}


def parameters(name):
    """Return the parameters that the constructor of an estimator takes."""
    return inspect.signature(getattr(taut.estimators, name)).parameters


def example(name, **changes):
    """Return an estimator with public parameters."""
    known = {one: value for one, value in PUBLIC.items() if one in parameters(name)}
    return getattr(taut.estimators, name)(**{**known, **changes})


class SameEveryTime(RandomSource):
    """Bits without a state, so that fits repeat, as those with a ``random_state`` do."""

    secure = False

    def bytes(self, n):
        return np.random.default_rng(n).bytes(n)


def data(records=60):
    """Return rows and labels, which do for targets too."""
    rng = np.random.default_rng(5)
    labels = np.arange(records) % 2
    rows = np.clip(rng.normal(size=(records, COLUMNS)) * 0.5 + labels[:, None] - 0.5, -1.5, 1.5)
    return rows, labels


def learned(estimator):
    """Return all that a fit has put into an estimator."""
    return {name: value for name, value in vars(estimator).items() if name.endswith("_")}


def peak_in_tables(estimator):
    """Return the most memory that a fit takes at once, in sizes of its table."""
    rows = np.random.default_rng(5).normal(size=(40_000, 50))
    labels = np.arange(len(rows)) % 2
    estimator.fit(rows[:100], labels[:100])  # imports, and what is kept for later fits
    tracemalloc.start()
    estimator.fit(rows, labels)
    peak = tracemalloc.get_traced_memory()[1]
    tracemalloc.stop()
    return peak / rows.nbytes
