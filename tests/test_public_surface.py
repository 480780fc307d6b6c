"""What a module says is public is exactly what it shows."""

from types import ModuleType

import pytest

import taut
import taut.accounting
import taut.errors


def public_names(module: ModuleType) -> list[str]:
    """Return what a reader of the module sees: no private names, no imported modules."""
    return sorted(
        name
        for name, value in vars(module).items()
        if not name.startswith("_") and not isinstance(value, ModuleType) and name != "annotations"
    )


@pytest.mark.parametrize("module", [taut.accounting.renyi, taut.errors])
def test_all_is_what_is_public(module):
    assert module.__all__ == public_names(module)


def test_accounting_shows_its_names_and_one_module():
    assert taut.accounting.__all__ == sorted([*public_names(taut.accounting), "renyi"])


def test_top_level_shows_accounting_errors_and_version():
    assert taut.__all__ == sorted([*taut.accounting.__all__, "errors", "__version__"])


@pytest.mark.parametrize("name", taut.accounting.__all__)
def test_top_level_name_is_the_one_of_accounting(name):
    assert getattr(taut, name) is getattr(taut.accounting, name)


def test_unknown_name_is_an_attribute_error():
    with pytest.raises(AttributeError, match="no attribute 'gausian'"):
        _ = taut.gausian


def test_dir_lists_names_before_their_first_use():
    assert set(taut.__all__) <= set(dir(taut))


@pytest.mark.parametrize("name", taut.accounting.__all__)
def test_public_name_is_documented(name):
    assert getattr(taut, name).__doc__
