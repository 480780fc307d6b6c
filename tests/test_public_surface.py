"""What a module says is public is exactly what it shows, and tools find it there."""

import pickle
import pkgutil
from importlib import import_module
from types import FunctionType, ModuleType

import pytest

import taut

ROOMS = [
    "accounting",
    "adaptive",
    "audit",
    "cli",
    "comparison",
    "estimators",
    "matrix",
    "noise",
    "report",
    "runs",
    "statistics",
    "training",
]


def submodules(name: str) -> list[str]:
    """Return the public modules right below one."""
    path = getattr(import_module(name), "__path__", ())
    return [found.name for found in pkgutil.iter_modules(path) if not found.name.startswith("_")]


def public_modules(name: str) -> list[str]:
    """Return the module and all public ones below it."""
    below = (module for child in submodules(name) for module in public_modules(f"{name}.{child}"))
    return [name, *below]


MACHINERY = {"TYPE_CHECKING", "annotations", "import_module"}
MODULES = public_modules("taut")
NAMES = [(module, name) for module in MODULES for name in import_module(module).__all__]


def shown(name: str) -> set[str]:
    """Return what a reader of the module sees: no private names, no modules of others."""
    module = import_module(name)
    found = {one for one in {*vars(module), *dir(module)} if not one.startswith("_")}
    imported = {one for one in found if isinstance(getattr(module, one), ModuleType)}
    return (found - imported - MACHINERY) | set(submodules(name))


@pytest.mark.parametrize("name", MODULES)
def test_all_is_what_is_public(name):
    listed = import_module(name).__all__
    assert listed == sorted(listed)
    if name == "taut":  # rooms are attributes that `import *` leaves alone
        assert {*listed, *ROOMS} == shown(name) | {"__version__", "renyi"}
    else:
        assert set(listed) == shown(name)


@pytest.mark.parametrize(("module", "name"), NAMES)
def test_public_name_is_documented(module, name):
    assert getattr(import_module(module), name).__doc__


def test_rooms_are_attributes_of_the_package():
    assert set(ROOMS) < set(dir(taut))
    assert taut.noise is import_module("taut.noise")


@pytest.mark.parametrize("name", sorted({*taut.__all__} - {"errors", "__version__"}))
def test_top_level_name_is_the_one_of_accounting(name):
    assert getattr(taut, name) is getattr(taut.accounting, name)


def test_unknown_name_is_an_attribute_error():
    with pytest.raises(AttributeError, match=r"has no attribute 'gausian'$"):
        _ = taut.gausian


def test_private_name_is_an_attribute_error():
    with pytest.raises(AttributeError, match="no attribute '_gaussian'"):
        _ = taut._gaussian


@pytest.mark.parametrize("name", sorted({*taut.accounting.__all__} - {*taut.__all__}))
def test_name_of_accounting_alone_says_where_it_is(name):
    with pytest.raises(AttributeError, match=f"it is taut.accounting.{name}$"):
        getattr(taut, name)


@pytest.mark.parametrize(
    ("room", "name", "home"),
    [
        ("taut", "fisher_information", "taut.accounting.diagnostics"),
        ("taut.accounting", "fisher_information", "taut.accounting.diagnostics"),
        ("taut.noise", "one_step", "taut.noise.geometry"),
        ("taut.training", "Clipping", "taut.training.extend"),
        ("taut.comparison", "Plain", "taut.comparison.arms"),
    ],
)
def test_name_of_a_submodule_says_where_it_is(room, name, home):
    with pytest.raises(AttributeError, match=f"{room}' has no .* it is {home}.{name}$"):
        getattr(import_module(room), name)


@pytest.mark.parametrize("room", ["taut.accounting", "taut.noise"])
def test_unknown_name_of_a_room_is_an_attribute_error(room):
    with pytest.raises(AttributeError, match=r"has no attribute 'gausian'$"):
        _ = import_module(room).gausian


CLAIMED = [
    pytest.param(getattr(import_module(module), name), module, id=f"{module}.{name}")
    for module, name in NAMES
    if module not in {"taut", "taut.cli"}
    and isinstance(getattr(import_module(module), name), type | FunctionType)
]


@pytest.mark.parametrize(("value", "module"), CLAIMED)
def test_public_name_shows_its_room(value, module):
    assert value.__module__ == module
    assert pickle.loads(pickle.dumps(value)) is value
