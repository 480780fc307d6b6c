"""Tables as estimators take them: checked for their shape alone, whatever they hold.

scikit-learn's own checks name what they find, and stop for NaN: a message about the data that no
noise hides. Here entries that are no finite numbers, or no numbers at all, pass; estimators clip
rows, and rows with such entries count as zero.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import numpy as np
import sklearn
from numpy.typing import NDArray
from scipy.sparse import issparse
from sklearn.base import BaseEstimator
from sklearn.utils import check_array

from taut._base import validate
from taut._base.arrays import Matrix, Vector, real_numbers
from taut.estimators._contract.entries import as_labels, as_numbers, as_targets, in_a_row

try:
    from sklearn.utils.validation import validate_data
except ImportError:  # before scikit-learn 1.6 it was a method
    validate_data = None

__all__ = [
    "column_bounds",
    "cut_size",
    "features",
    "features_and_targets",
    "penalty_weight",
    "refuse_extras",
    "refuse_other_labels",
    "refuse_weights",
]

_LARGEST = 1e150  # of bounds, and one over it the least width: squares stay floats
_LARGEST_WEIGHT = 1e100  # of a penalty: products with squares of bounds stay floats
_LARGEST_CUT = 1e30  # and one over it the least
_KINDS = {**dict.fromkeys("biuf", "number"), **dict.fromkeys("UT", "text")}  # of arrays
_RENAMED = tuple(int(part) for part in sklearn.__version__.split(".")[:2]) >= (1, 6)


def features(estimator: BaseEstimator, X: Any, *, reset: bool) -> Matrix:
    """Return a table as doubles, after checks of its shape and of the names of its columns.

    Args:
        estimator: estimator that notes the columns in a fit.
        X: table, one row per record. Entries that are no numbers are NaN.
        reset: whether this is a fit; otherwise columns must be those of the fit.
    """
    if issparse(X):
        raise TypeError(
            "Sparse data was passed for X, but dense data is required; convert it with .toarray()"
        )
    entries = as_numbers(X, "X")
    if entries.ndim != 2:
        raise ValueError(
            f"Expected 2D array, got {entries.ndim}D array instead. Reshape your data to one row "
            "per record: with array.reshape(-1, 1) for one column, with array.reshape(1, -1) for "
            "one record"
        )
    if not entries.shape[1]:  # scikit-learn would add how many rows there are
        raise ValueError(
            "Found array with 0 feature(s) (shape=(, 0)) while a minimum of 1 is required by "
            f"{type(estimator).__name__}"
        )
    _note_columns(estimator, X, entries, reset=reset)
    finite = {"ensure_all_finite" if _RENAMED else "force_all_finite": False}
    table: Matrix = check_array(entries, dtype=np.float64, estimator=estimator, **finite)
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
    targets = in_a_row(as_targets(y, "y") if numeric else as_labels(y, "y"), "y")
    if len(table) != len(targets):  # how many there are may be secret
        raise ValueError("y must have one entry for every row of X, got another number of them")
    return table, targets


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


def refuse_other_labels(labels: NDArray[Any], classes: NDArray[Any]) -> None:
    """Refuse labels of a type that none of the classes has, by the types alone, whatever they hold.

    Measurements are no classes; and where one is numbers and the other text, or one is text and the
    other bytes, no record would count.
    """
    kinds = [_KINDS.get(array.dtype.kind, array.dtype.kind) for array in (labels, classes)]
    found = f"y has the type {labels.dtype} and classes have {classes.dtype}"
    if labels.dtype.kind == "f" and classes.dtype.kind != "f":
        raise ValueError(
            f"Unknown label type: continuous. {found}; convert y, for example with y.astype(int), "
            "or list classes as floats"
        )
    if "O" not in kinds and kinds[0] != kinds[1]:
        raise ValueError(
            f"classes must be labels as they occur in y, but {found}, so that no record would have "
            "one; ensembles that number the labels of their parts ask for classes=[0, 1, ...]"
        )


def penalty_weight(alpha: float) -> float:
    """Return the weight of a penalty, refused before anybody pays if nothing could come of it."""
    weight = validate.non_negative(alpha=alpha)
    if weight > _LARGEST_WEIGHT:
        raise ValueError(f"alpha must be at most {_LARGEST_WEIGHT:g}, got alpha={alpha!r}")
    return weight


def cut_size(clip: float) -> float:
    """Return the size at which influence is cut, of which noise is a multiple."""
    size = validate.positive(clip=clip)
    if not 1 / _LARGEST_CUT <= size <= _LARGEST_CUT:
        raise ValueError(
            f"clip must be between {1 / _LARGEST_CUT:g} and {_LARGEST_CUT:g}, got clip={clip!r}"
        )
    return size


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
    narrow, far = float((upper / 2 - lower / 2).min()), float(np.abs([lower, upper]).max())
    if narrow < 1 / _LARGEST or far > _LARGEST:
        raise ValueError(
            f"bounds must be within {_LARGEST:g} and more than one over that apart, got "
            f"bounds={bounds!r}; count in other units"
        )
    return lower, upper


def _note_columns(estimator: BaseEstimator, X: Any, entries: Matrix, *, reset: bool) -> None:
    """Note names and number of columns in a fit; check them otherwise."""
    if validate_data is None:
        estimator._check_feature_names(X, reset=reset)
        estimator._check_n_features(entries, reset=reset)
    else:
        validate_data(estimator, X, reset=reset, skip_check_array=True)
