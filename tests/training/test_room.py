"""The room as a whole: what it shows, and that it says what it is for."""

import pytest

import taut.training


def test_all_is_what_is_public():
    shown = {name for name in vars(taut.training) if not name.startswith("_")}
    assert set(taut.training.__all__) <= shown
    assert taut.training.__all__ == sorted(taut.training.__all__)


@pytest.mark.parametrize("name", taut.training.__all__)
def test_public_name_is_documented(name):
    assert getattr(taut.training, name).__doc__
