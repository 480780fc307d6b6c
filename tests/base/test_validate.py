"""Fields of a dataclass are checked against the domains that their annotations name."""

from __future__ import annotations

import math
from dataclasses import dataclass

import numpy as np
import pytest

from taut._base import validate
from taut._base.validate import (
    BelowOne,
    Finite,
    NonNegative,
    Positive,
    PositiveInteger,
    Probability,
)


@dataclass(frozen=True)
class Parameters:
    finite: Finite = -1.0
    positive: Positive = 1.0
    non_negative: NonNegative = 0.0
    probability: Probability = 1.0
    below_one: BelowOne = 0.0
    count: PositiveInteger = 1
    perhaps: PositiveInteger | None = None
    anything: float = math.nan

    def __post_init__(self):
        validate.fields(self)


class More(Parameters):
    """Inherits the fields and their domains."""


@pytest.mark.parametrize("kind", [Parameters, More])
@pytest.mark.parametrize(
    ("name", "value"),
    [
        ("finite", math.inf),
        ("positive", 0.0),
        ("non_negative", -1e-300),
        ("probability", 1.0000001),
        ("probability", math.nan),
        ("below_one", 1.0),
        ("count", 0),
        ("count", None),
        ("count", 2.0),
        ("perhaps", 0),
    ],
)
def test_a_field_outside_its_domain_is_refused_by_name(kind, name, value):
    with pytest.raises(ValueError, match=f"^{name} must be .*got {name}="):
        kind(**{name: value})


def test_fields_in_their_domains_pass():
    assert Parameters().perhaps is None
    assert Parameters(perhaps=3, anything=-math.inf).perhaps == 3


@pytest.mark.parametrize("value", [3, "three", None, 2.5, [1, 2], (18, 90, 3)])
def test_numbers_and_texts_are_told(value):
    assert validate.told(value) == repr(value)


@pytest.mark.parametrize("value", [[31.0] * 5, {"age": 31}, [[31.0]], {31}])
def test_what_may_be_records_is_told_by_its_class(value):
    assert validate.told(value) == f"one of class {type(value).__name__}"


@pytest.mark.parametrize("value", [True, False, np.True_, np.False_])
def test_flags_are_booleans(value):
    assert validate.flag(monotone=value) is bool(value)


@pytest.mark.parametrize("value", ["no", "", 0, 1, None, np.array([True])])
def test_what_only_counts_as_a_flag_is_refused(value):
    with pytest.raises(validate.WrongType, match="monotone must be True or False"):
        validate.flag(monotone=value)
