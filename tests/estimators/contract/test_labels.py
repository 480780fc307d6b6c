"""Labels: public classes, and nothing about others."""

import numpy as np
import pytest

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


@pytest.mark.parametrize("classes", ["ab", 3])
def test_what_is_no_list_is_refused(classes):
    with pytest.raises(TypeError, match="list of labels"):
        public_classes(classes)


def test_wrong_number_of_classes_is_refused():
    with pytest.raises(ValueError, match="2 labels"):
        public_classes([1, 2, 3], exactly=2)
