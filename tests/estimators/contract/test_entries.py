"""Entries that are no numbers: neutralised, and never quoted."""

import traceback
import warnings
from collections import UserList, deque
from decimal import Decimal
from fractions import Fraction

import numpy as np
import pytest
from estimators.contract.examples import NAMES, data, example
from sklearn.base import is_regressor

from taut.estimators._contract.entries import as_labels, as_numbers, as_targets, in_a_row

SECRET = "s3cr3t"


class Hostile:
    """An entry that raises whatever is done with it."""

    def __float__(self):
        raise RuntimeError(SECRET)

    __hash__ = __eq__ = __repr__ = __float__


class HostileNumber(Fraction):
    """A real number that will not be converted."""

    __float__ = Hostile.__float__


class Classless:
    """An entry that raises when asked for its class, as references to what is gone do."""

    @property
    def __class__(self):
        raise ReferenceError(SECRET)


class HostileText(str):
    """A text that will not be looked up."""

    __slots__ = ()
    __hash__ = Hostile.__float__


# Entries of which a conversion as a whole would tell, by an error or a warning.
ENTRIES = [SECRET, SECRET.encode(), None, 10**400, Fraction(10**400), Decimal("sNaN"), 1j, {}]
ENTRIES += [np.complex64(1j), np.datetime64("2020-01-01"), [1.0, 2.0], Hostile(), HostileNumber(1)]
ENTRIES += [HostileText("x")]


@pytest.fixture(params=NAMES)
def name(request):
    return request.param


def refused(error, name, rows, labels):
    """Return what a fit says when it refuses, with all that a traceback shows."""
    with pytest.raises(error) as caught:
        example(name).fit(rows, labels)
    return "".join(traceback.format_exception_only(caught.value)) + repr(caught.value.__context__)


def with_entry(array, entry):
    changed = array.astype(object)
    changed[(1,) * array.ndim] = entry
    return changed


@pytest.mark.parametrize("entry", ENTRIES, ids=lambda entry: type(entry).__name__)
def test_entries_that_are_no_numbers_count_as_bad_rows(entry):
    rows, labels = data(records=20)
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        found = as_numbers(with_entry(rows, entry), "X")
        assert not np.isfinite(found[1, 1])
        assert np.isfinite(found).sum() == rows.size - 1
        as_labels(with_entry(labels, entry), "y")


def test_entries_that_have_no_class_count_as_bad_rows():
    rows, labels = data(records=20)  # pytest shows parameters, and asks for their class
    assert np.isnan(as_numbers(with_entry(rows, Classless()), "X")).sum() == 1
    example("PrivateGaussianNB").fit(rows, with_entry(labels, Classless()))


def test_fits_take_entries_that_are_no_numbers(name):
    rows, labels = data(records=20)
    rows, labels = rows.astype(object), labels.astype(object)
    for place, entry in enumerate(ENTRIES):
        rows[place, 1] = labels[place + 1] = entry
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        example(name).fit(rows, labels)


def test_lists_take_one_text_for_one_bad_entry():
    assert np.isnan(as_numbers([[1, SECRET], [2, "3.5"]], "X")).tolist() == [[0, 1], [0, 0]]
    assert as_labels([0, 0.5, "a"], "y").tolist() == [0, 0.5, "a"]


def test_a_label_with_two_entries_changes_no_other():
    # As a table with one column the others were labels, and beside a row of two they were none.
    others = [["a"], ("b",), "a"]
    found = as_labels(others, "y").tolist()
    assert found == ["a", "b", "a"]
    assert as_labels([*others, ["a", "b"]], "y").tolist()[:3] == found


def test_a_target_with_two_entries_changes_no_other():
    assert as_targets([1.5, [2], (3,), [1, 2]], "y").tolist()[:3] == [1.5, 2, 3]
    assert np.isnan(as_targets([1.5, [2], (3,), [1, 2]], "y")[3])
    assert as_targets([1.5, [2], (3,)], "y").tolist() == [1.5, 2, 3]
    with pytest.raises(ValueError, match="lists of several"):
        as_targets([[1, 2], [3, 4]], "y")


def test_an_entry_with_a_length_changes_no_other():
    for entry in ([1, 2], (), np.zeros(3), {1: 2}, "two"):
        found = as_numbers([[1, 2.5], [entry, 3], [4, True]], "X")
        assert np.isnan(found).tolist() == [[0, 0], [1, 0], [0, 0]]
        assert found[~np.isnan(found)].tolist() == [1, 2.5, 3, 4, 1]


def test_fits_take_lists_with_an_entry_that_has_a_length(name):
    rows, labels = (array.tolist() for array in data(records=20))
    rows[3][1] = labels[5] = [1, 2]
    example(name).fit(rows, labels)


def test_wide_numbers_become_infinite_without_a_warning():
    wide = np.full((2, 2), np.finfo(np.longdouble).max)
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        assert np.isinf(as_numbers(wide, "X")).all() or wide.dtype == np.float64


def test_a_masked_entry_of_a_list_raises_no_warning():
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        found = as_numbers([[1.5, np.ma.masked], [2.5, 3.5]], "X")
    assert np.isnan(found).tolist() == [[0, 1], [0, 0]]


def test_masked_entries_are_nan():
    masked = np.ma.masked_array([[1, 2], [3, 4]], [[False, True], [False, False]])
    assert np.isnan(as_numbers(masked, "X")).tolist() == [[0, 1], [0, 0]]


@pytest.mark.parametrize("change", ["flat", "deep", "complex", "text", "ragged"])
def test_shapes_and_types_are_refused_without_the_data(name, change):
    rows, labels = data()
    rows[7, 1] = 0.123456789
    tables = {
        "flat": rows[:, 1],
        "deep": rows[None],
        "complex": rows + 0j,
        "text": rows.astype(str),
        "ragged": [*rows.tolist(), [0.123456789]],
    }
    assert "0.1234" not in refused(ValueError, name, tables[change], labels)


def test_ragged_lists_are_refused_without_the_number_of_rows(name):
    rows, labels = data(records=4321)
    assert "432" not in refused(ValueError, name, [*rows.tolist(), [1.0]], [*labels, 1])


def test_complex_targets_are_refused_without_the_data(name):
    if hasattr(example(name), "predict") and name != "PrivateKMeans":
        rows, labels = data()
        assert "0.1234" not in refused(ValueError, name, rows, labels + 0.123456789j)


def test_columns_of_text_are_refused_by_their_type(name):
    pandas = pytest.importorskip("pandas")
    rows, labels = data()
    frame = pandas.DataFrame(rows, columns=["a", "b", "c"])
    for kind in ("category", "string", "datetime64[ns]"):
        entries = pandas.Series(["2020-01-02"] * len(rows)).astype(kind)
        said = refused(TypeError, name, frame.assign(b=entries), labels)
        assert "'b'" in said
        assert "2020" not in said


@pytest.mark.parametrize("kind", ["Int64", "boolean"])
def test_missing_labels_change_no_other(kind):
    pandas = pytest.importorskip("pandas")
    rows, labels = data()
    column = pandas.Series(labels).astype(kind)
    found = as_labels(column, "y").tolist()
    column[3] = pandas.NA
    kept = as_labels(column, "y").tolist()
    assert kept[:3] + kept[4:] == found[:3] + found[4:]
    example("PrivateGaussianNB").fit(rows, column)


def test_missing_entries_of_frames_count_as_bad_rows():
    pandas = pytest.importorskip("pandas")
    frame = pandas.DataFrame({"a": pandas.array([1.0, None], dtype="Float64"), "b": [1, 2]})
    assert np.isnan(as_numbers(frame, "X")).tolist() == [[0, 0], [1, 0]]


def test_a_table_with_one_column_is_a_vector_with_a_warning():
    with pytest.warns(UserWarning, match="column-vector"):
        assert in_a_row(np.ones((3, 1)), "y").shape == (3,)
    with pytest.raises(ValueError, match="got 2 axes"):
        in_a_row(np.ones((3, 2)), "y")


def test_that_warning_names_the_line_of_the_fit():
    rows, labels = data()
    for name in ("PrivateLasso", "PrivateLogisticRegression"):
        with pytest.warns(UserWarning, match="column-vector") as caught:
            example(name).fit(rows, labels[:, None])
        assert caught[0].filename == __file__


def test_predictions_do_not_quote_rows_either():
    rows, labels = data()
    fitted = example("PrivateElasticNet", passes=1).fit(rows, labels)
    assert is_regressor(fitted)
    assert np.isnan(fitted.predict(with_entry(rows, SECRET))[1])


@pytest.mark.parametrize("kind", [deque, UserList])
@pytest.mark.parametrize("entry", [SECRET, None, 2.5, [1.0, 2.0]])
def test_one_entry_of_a_sequence_changes_no_other(kind, entry):
    labels = [0, 1] * 5
    changed = [*labels[:-1], entry]
    assert as_labels(kind(changed), "y")[:-1].tolist() == labels[:-1]
    assert as_labels(kind(changed), "y").dtype == as_labels(kind(labels), "y").dtype
    assert as_targets(kind(changed), "y")[:-1].tolist() == labels[:-1]
    if entry != [1.0, 2.0]:
        rows = as_numbers(kind([[one] for one in changed]), "X")
        assert rows[:-1, 0].tolist() == labels[:-1]


def test_missing_labels_of_arrow_change_no_other():
    arrow = pytest.importorskip("pyarrow")
    whole, missing = (as_labels(arrow.array([0, 1, last]), "y") for last in (1, None))
    assert whole[:2].tolist() == missing[:2].tolist()
    assert whole.dtype == missing.dtype
    rows, labels = data()
    example("PrivateGaussianNB").fit(rows, arrow.array([None, *labels.tolist()[1:]]))


@pytest.mark.parametrize("kind", ["category", "string", "str"])
def test_targets_of_a_type_that_holds_no_numbers_are_refused(kind):
    pandas = pytest.importorskip("pandas")
    column = pandas.Series(["2020", "2021"] * 30).astype(kind)
    if isinstance(column.dtype, np.dtype):
        pytest.skip("a column of objects in this version of pandas")
    said = refused(TypeError, "PrivateLasso", data()[0], column)
    assert "a column of the type" in said
    assert "2020" not in said


@pytest.mark.parametrize(
    "kind", ["large_string", "large_binary", "string", "month_day_nano_interval"]
)
def test_columns_of_arrow_that_hold_no_numbers_are_refused(kind):
    arrow, pandas = pytest.importorskip("pyarrow"), pytest.importorskip("pandas")
    column = arrow.array([None, None], type=getattr(arrow, kind)())
    frame = pandas.DataFrame({"a": pandas.Series([None] * 2, dtype=pandas.ArrowDtype(column.type))})
    for table in (frame, arrow.table({"a": column})):
        with pytest.raises(TypeError, match="a column 'a' of the type"):
            as_numbers(table, "X")
    with pytest.raises(TypeError, match="a column of the type"):
        as_targets(column, "y")


def test_numbers_of_arrow_are_taken():
    arrow = pytest.importorskip("pyarrow")
    table = arrow.table({"a": [1, 2], "b": [0.5, None]})
    assert np.isnan(as_numbers(table, "X")).tolist() == [[0, 0], [0, 1]]
    assert as_targets(table["a"], "y").tolist() == [1, 2]


def test_buffers_are_arrays():
    rows = np.arange(6.0).reshape(3, 2)
    assert as_numbers(memoryview(rows), "X").tolist() == rows.tolist()
    assert as_labels(memoryview(rows[:, 0].copy()), "y").tolist() == [0, 2, 4]


def test_a_column_called_dtype_is_a_column():
    pandas = pytest.importorskip("pandas")
    frame = pandas.DataFrame({"dtype": [1.5, 2.5]}, index=["string", "list"])
    assert as_numbers(frame, "X").tolist() == [[1.5], [2.5]]


def test_inverse_transform_takes_what_transform_takes():
    rows, labels = data()
    fitted = example("PrivatePCA").fit(rows, labels)
    scores = fitted.transform(rows)
    found = fitted.inverse_transform(with_entry(scores, SECRET))
    assert np.isnan(found[1]).all()
    assert found[2:].tolist() == fitted.inverse_transform(scores)[2:].tolist()
