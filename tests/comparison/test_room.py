"""The room as a whole: what it shows, and that it says what it is for."""

import pytest

import taut.comparison


def test_all_is_what_is_public():
    shown = {name for name in vars(taut.comparison) if not name.startswith("_")}
    assert set(taut.comparison.__all__) <= shown
    assert taut.comparison.__all__ == sorted(taut.comparison.__all__)


@pytest.mark.parametrize("name", taut.comparison.__all__)
def test_public_name_is_documented(name):
    assert getattr(taut.comparison, name).__doc__
