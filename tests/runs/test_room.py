"""The room as a whole: what it shows, and that it says what it is for."""

import pytest

import taut.runs


def test_all_is_what_is_public():
    shown = {name for name in vars(taut.runs) if not name.startswith("_")}
    assert set(taut.runs.__all__) <= shown
    assert taut.runs.__all__ == sorted(taut.runs.__all__)


@pytest.mark.parametrize("name", taut.runs.__all__)
def test_public_name_is_documented(name):
    assert getattr(taut.runs, name).__doc__
