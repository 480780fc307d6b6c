"""Neighbouring relations and their halves."""

import pytest

import taut
from taut.accounting._adjacency import Adjacency, Half, halves


@pytest.mark.parametrize("relation", list(taut.Adjacency))
def test_names_and_members_are_interchangeable(relation):
    assert Adjacency(str(relation)) is relation
    assert Adjacency(relation) is relation
    assert taut.gaussian(1.0, adjacency=str(relation)) == taut.gaussian(1.0, adjacency=relation)


@pytest.mark.parametrize(
    ("relation", "expected"),
    [
        ("add_remove", {Half.ADD, Half.REMOVE}),
        ("zero_out", {Half.ADD, Half.REMOVE}),
        ("add", {Half.ADD}),
        ("remove", {Half.REMOVE}),
        ("replace", {Half.REPLACE}),
    ],
)
def test_halves(relation, expected):
    assert set(halves(Adjacency(relation))) == expected


@pytest.mark.parametrize("wrong", ["swap", "ADD_REMOVE", "", 3, None, ["add"]])
def test_unknown_relation_is_named_with_the_known_ones(wrong):
    with pytest.raises(ValueError, match="adjacency") as caught:
        taut.gaussian(1.0, adjacency=wrong)
    assert repr(wrong) in str(caught.value)
    assert "'add_remove', 'add', 'remove', 'replace', 'zero_out'" in str(caught.value)
