"""Tables as estimators take them: checked for their shape alone, whatever they hold.

scikit-learn's own checks name what they find, and stop for NaN: a message about the data that no
noise hides. Here entries that are no finite numbers pass; estimators clip rows, and rows
with such entries count as zero.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import numpy as np
import sklearn
from numpy.typing import NDArray
from sklearn.base import BaseEstimator
from sklearn.utils import check_consistent_length, column_or_1d

from taut._base.arrays import Matrix, Vector, real_numbers

try:
    from sklearn.utils.validation import validate_data
except ImportError:  # before scikit-learn 1.6 it was a method
    validate_data = None

__all__ = [
    "column_bounds",
    "features",
    "features_and_targets",
    "refuse_extras",
    "refuse_measurements",
    "refuse_weights",
]

_RENAMED = tuple(int(part) for part in sklearn.__version__.split(".")[:2]) >= (1, 6)


def features(estimator: BaseEstimator, X: Any, *, reset: bool) -> Matrix:
    """Return a table as doubles, after checks of its shape and of the names of its columns.

    Args:
        estimator: estimator that notes the columns in a fit.
        X: table, one row per record.
        reset: whether this is a fit; otherwise columns must be those of the fit.
    """
    table: Matrix = np.asarray(_validated(estimator, X, reset=reset, dtype=np.float64))
    return table


def features_and_targets(
    estimator: BaseEstimator, X: Any, y: Any, *, numeric: bool
) -> tuple[Matrix, Any]:
    """Return a table and its targets, after checks of their shapes.

    Args:
        estimator: estimator that notes the columns.
        X: table, one row per record.
        y: targets, one per record.
        numeric: whether targets are numbers; labels stay what they are.
    """
    table = features(estimator, X, reset=True)
    if y is None:
        raise ValueError(
            f"{type(estimator).__name__} requires y to be passed, but the target y is None"
        )
    targets = column_or_1d(y, warn=True)
    check_consistent_length(table, targets)
    return table, real_numbers(targets, "y") if numeric else targets


def refuse_weights(sample_weight: object) -> None:
    """Refuse weights of records: a record with weight 2 would need twice the noise."""
    if sample_weight is not None:
        raise ValueError(
            "sample_weight must be left out: noise hides one record of weight one, and a heavier "
            "one would show through; repeat nothing, and clip instead"
        )


def refuse_extras(estimator: BaseEstimator, extras: Mapping[str, object]) -> None:
    """Refuse further arguments of a fit: weights with their reason, others as Python does.

    scikit-learn takes a parameter called sample_weight for the promise to use it, so fits take
    ``**extras`` instead.
    """
    if "sample_weight" in extras:
        refuse_weights(extras["sample_weight"])
    unknown = sorted(extras.keys() - {"sample_weight"})
    if unknown:
        raise TypeError(f"{type(estimator).__name__}.fit() takes no argument {unknown[0]!r}")


def refuse_measurements(labels: NDArray[Any], classes: NDArray[Any]) -> None:
    """Refuse labels whose type is that of measurements, by their type alone, whatever they hold."""
    if labels.dtype.kind == "f" and classes.dtype.kind != "f":
        raise ValueError(
            f"Unknown label type: continuous. y has the type {labels.dtype} and classes have "
            f"{classes.dtype}; convert y, for example with y.astype(int), or list classes as floats"
        )


def column_bounds(bounds: Any, columns: int) -> tuple[Vector, Vector]:
    """Return a public lower and upper bound for every column.

    Args:
        bounds: a pair (lower, upper), of numbers for all columns or of one per column.
        columns: number of columns.
    """
    remedy = "give public bounds as a pair (lower, upper), of numbers or of one per column"
    if bounds is None:
        raise ValueError(f"bounds must be given: they cannot be taken from the data; {remedy}")
    if not hasattr(bounds, "__len__") or isinstance(bounds, str | bytes) or len(bounds) != 2:
        raise ValueError(f"bounds must be a pair, got bounds={bounds!r}; {remedy}")
    ends = []
    for end in bounds:
        numbers = real_numbers(end, "bounds")
        if numbers.shape not in ((), (columns,)):
            raise ValueError(
                f"bounds must be numbers or {columns} numbers per end, got shape {numbers.shape}"
            )
        ends.append(np.array(np.broadcast_to(numbers, columns)))
    lower, upper = ends
    if not (np.isfinite(lower) & np.isfinite(upper) & (lower < upper)).all():
        raise ValueError(f"bounds must be finite and lower < upper, got bounds={bounds!r}")
    return lower, upper


def _validated(estimator: BaseEstimator, *data: Any, **settings: Any) -> Any:
    settings["ensure_all_finite" if _RENAMED else "force_all_finite"] = False
    if validate_data is None:
        return estimator._validate_data(*data, **settings)
    return validate_data(estimator, *data, **settings)
