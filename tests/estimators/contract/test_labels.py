"""Labels: public classes, and nothing about others."""

import numpy as np
import pytest
from estimators.contract.examples import NAMES, data, example, parameters
from sklearn.ensemble import VotingClassifier

from taut.estimators._contract.inputs import refuse_other_labels
from taut.estimators._contract.labels import class_numbers, public_classes


@pytest.mark.parametrize(
    ("labels", "classes", "numbers"),
    [
        ([1, 2, 7], [2, 1], [0, 1, -1]),
        (["a", "b", "?"], ["a", "b"], [0, 1, -1]),
        ([1.0, np.nan, np.inf], [0, 1], [1, -1, -1]),
        (np.array(["a", None, 3, [], np.nan], dtype=object), ["a", "b"], [0, -1, -1, -1, -1]),
        (["a", "b"], [0, 1], [-1, -1]),
        ([0, 1], ["a", "b"], [-1, -1]),
        ([True, False], [False, True], [1, 0]),
    ],
)
def test_labels_are_looked_up(labels, classes, numbers):
    found = class_numbers(np.asarray(labels), public_classes(classes))
    assert found.tolist() == numbers


@pytest.mark.parametrize("classes", [[1], [1, 1], [[1, 2]], []])
def test_fewer_than_two_classes_are_refused(classes):
    with pytest.raises(ValueError, match="two different labels"):
        public_classes(classes)


def test_missing_classes_are_refused():
    with pytest.raises(ValueError, match="must be given"):
        public_classes(None)


@pytest.mark.parametrize("classes", ["ab", 3, {0, 1}, {0: "no", 1: "yes"}])
def test_what_is_no_list_is_refused(classes):
    with pytest.raises(TypeError, match="list of labels"):
        public_classes(classes)


def test_wrong_number_of_classes_is_refused():
    with pytest.raises(ValueError, match="2 labels"):
        public_classes([1, 2, 3], exactly=2)


@pytest.mark.parametrize("classes", [[1, "a"], [True, "a"], ["a", b"b"], [1j, 2], [{}, {}], [None]])
def test_classes_of_several_types_are_refused(classes):
    # NumPy turned 1 into "1", and no record had that label.
    with pytest.raises(TypeError, match="one type"):
        public_classes(classes)


@pytest.mark.parametrize("classes", [[np.nan, 1.0], np.array([1.0, np.nan, 2.0])])
def test_classes_that_equal_no_label_are_refused(classes):
    with pytest.raises(ValueError, match="NaN"):
        public_classes(classes)


@pytest.mark.parametrize(
    "classes", [["b", "a"], [1.5, True], [np.int8(3), 2], [2, 2**70], [b"", b"a"]]
)
def test_classes_of_one_type_are_taken(classes):
    assert public_classes(classes).tolist() == sorted(classes)
    assert public_classes(np.array(classes, dtype=object)).tolist() == sorted(classes)


def test_labels_without_a_hash_are_no_class():
    labels = np.array(["a", np.zeros(1, dtype=[("x", "i4")])[0], "b"], dtype=object)
    assert class_numbers(labels, public_classes(["a", "b"])).tolist() == [0, -1, 1]


@pytest.mark.parametrize(
    ("labels", "classes"),
    [
        ([0, 1], ["a", "b"]),
        (["a", "b"], [0, 1]),
        ([True], ["a", "b"]),
        ([b"a"], [0, 1]),
        ([b"a"], ["a", "b"]),
        (["a"], [b"a", b"b"]),
    ],
)
def test_labels_that_no_class_can_equal_are_refused_by_their_type(labels, classes):
    with pytest.raises(ValueError, match=r"the type .* and classes have"):
        refuse_other_labels(np.array(labels), public_classes(classes))


@pytest.mark.parametrize("labels", [np.array([0, "a", None], dtype=object), np.array(["b"])])
def test_labels_that_may_be_classes_are_taken(labels):
    refuse_other_labels(labels, public_classes(["a", "b"]))


@pytest.mark.parametrize("name", [name for name in NAMES if "classes" in parameters(name)])
def test_ensembles_that_number_labels_are_told_so(name):
    """All records had labels that are no class: a model of nothing, at the full price."""
    rows, labels = data()
    text = np.where(labels == 1, "yes", "no")
    with pytest.raises(ValueError, match=r"classes=\[0, 1"):
        VotingClassifier([("a", example(name, classes=["no", "yes"]))]).fit(rows, text)
    voted = VotingClassifier([("a", example(name))]).fit(rows, text).predict(rows)
    assert set(voted) <= {"no", "yes"}
