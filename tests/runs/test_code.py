"""Code that a file names is run only if its reader says so, and only if it is their own."""

import sys

import pytest

from taut.runs import RunConfig, prepare, resume, train

MARK = "import pathlib; pathlib.Path({path!r}).touch()\n"
MAKE = "from torch import nn\ndef make(): return nn.Linear(3, 2)\n"


@pytest.fixture
def work(folder, monkeypatch):
    """Return a working directory, with configurations and data beside it and in it."""
    (folder / "work").mkdir()
    monkeypatch.chdir(folder / "work")
    known = set(sys.modules)
    yield folder / "work"
    for name in set(sys.modules) - known:
        if name.split(".")[0] in ("mine", "pack", "linked", "elsewhere", "again", "shadow"):
            del sys.modules[name]


def config_of(configured, name, code="work", **arguments):
    model = {"name": name, "widths": None, **arguments}
    return RunConfig.from_toml(configured(model=model, run={"code": code}))


def refused(config, allow_code, message):
    with pytest.raises(ValueError, match=message):
        prepare(config, allow_code=allow_code)


def test_a_command_is_never_run(configured, work):
    for allow_code in (None, "os", "os:system"):
        config = config_of(configured, "os:system", command=f"touch {work / 'ran'}")
        with pytest.raises(ValueError, match=r"would run code|cannot import 'os'"):
            prepare(config, allow_code=allow_code)
        with pytest.raises(ValueError, match=r"would run code|cannot import 'os'"):
            train(config, allow_code=allow_code)
    assert not (work / "ran").exists()


def test_a_run_directory_cannot_run_commands(configured, folder, work):
    train(RunConfig.from_toml(configured()))
    path = folder / "run" / "config.toml"
    text = path.read_text().replace('name = "mlp"', 'name = "os:system"')
    path.write_text(text.replace("widths = [3, 4, 2]", f'command = "touch {work / "ran"}"'))
    with pytest.raises(ValueError, match="--allow-code os"):
        resume(folder / "run")
    assert not (work / "ran").exists()


@pytest.mark.usefixtures("work")
def test_nothing_is_opened_before_code_is_allowed(configured, folder):
    (folder / "points.npz").write_bytes(b"not arrays")
    refused(config_of(configured, "mine:make"), None, "would run code of the module 'mine'")
    refused(config_of(configured, "mine:make"), "yours", "you have allowed 'yours'")


def test_allowed_code_is_run(configured, work):
    (work / "mine.py").write_text(MAKE)
    assert prepare(config_of(configured, "mine:make"), allow_code="mine").model.out_features == 2


def test_modules_in_packages(configured, work):
    (work / "pack" / "inner").mkdir(parents=True)
    (work / "pack" / "__init__.py").write_text("")
    (work / "pack" / "sizes.py").write_text("OUTPUTS = 2\n")
    (work / "pack" / "inner" / "__init__.py").write_text("")
    (work / "pack" / "inner" / "nets.py").write_text(
        "from torch import nn\nfrom pack.sizes import OUTPUTS\nfrom ..sizes import OUTPUTS\n"
        "class Net(nn.Linear):\n    def __init__(self): super().__init__(3, OUTPUTS)\n"
    )
    config = config_of(configured, "pack.inner.nets:Net")
    assert type(prepare(config, allow_code="pack.inner.nets").model).__name__ == "Net"


@pytest.mark.usefixtures("work")
def test_modules_elsewhere_are_not_executed(configured, folder):
    (folder / "elsewhere.py").write_text(MARK.format(path=str(folder / "ran")) + MAKE)
    config = config_of(configured, "elsewhere:make", code=".")
    refused(config, "elsewhere", "not below the working directory")
    assert not (folder / "ran").exists()


def test_links_out_of_the_working_directory_are_not_executed(configured, folder, work):
    (folder / "elsewhere.py").write_text(MARK.format(path=str(folder / "ran")) + MAKE)
    (work / "linked.py").symlink_to(folder / "elsewhere.py")
    refused(config_of(configured, "linked:make"), "linked", "not below the working directory")
    assert not (folder / "ran").exists()


def test_packages_around_a_module_are_not_executed_if_they_lie_elsewhere(configured, folder, work):
    (folder / "outside").mkdir()
    (folder / "outside" / "__init__.py").write_text(MARK.format(path=str(folder / "ran")))
    (work / "pack").mkdir()
    (work / "pack" / "__init__.py").symlink_to(folder / "outside" / "__init__.py")
    (work / "pack" / "nets.py").write_text(MAKE)
    refused(config_of(configured, "pack.nets:make"), "pack.nets", "'pack' is .*not below")
    assert not (folder / "ran").exists()


@pytest.mark.parametrize("place", [".venv/lib/python3.12/site-packages", "lib/dist-packages"])
def test_installed_packages_below_the_working_directory_are_not_executed(configured, work, place):
    (work / place).mkdir(parents=True)
    (work / place / "elsewhere.py").write_text(MARK.format(path=str(work / "ran")) + MAKE)
    config = config_of(configured, "elsewhere:make", code=f"work/{place}")
    refused(config, "elsewhere", "belongs to an installed package")
    assert not (work / "ran").exists()


@pytest.mark.usefixtures("work")
@pytest.mark.parametrize("name", ["torch.nn:Linear", "subprocess:run", "builtins:exec"])
def test_what_is_installed_is_not_found(configured, name):
    refused(config_of(configured, name), name.partition(":")[0], "there is no such module")


@pytest.mark.parametrize(
    "imported",
    [
        "from os import system as make",
        "from subprocess import run as make",
        "from builtins import exec as make",
        "from torch.nn import Linear as make",
        "from collections import namedtuple\nmake = namedtuple('P', 'x').__new__",
        "import os, functools\nmake = functools.partial(os.system, 'true')",
        "import os\nmake = type('make', (), {'__call__': lambda self: os.getcwd()})()",
    ],
)
def test_what_a_module_has_imported_is_not_its_own(configured, work, imported):
    (work / "again.py").write_text(imported + "\n")
    refused(config_of(configured, "again:make"), "again", "that is defined below")
    sys.modules.pop("again", None)


def test_wrapped_functions_are_their_own(configured, work):
    (work / "mine.py").write_text("import torch\n" + MAKE.replace("def", "@torch.no_grad()\ndef"))
    assert prepare(config_of(configured, "mine:make"), allow_code="mine").model.out_features == 2


def test_a_module_that_is_loaded_already_is_the_same(configured, work, monkeypatch):
    (work / "mine.py").write_text(MAKE)
    (work / "by").symlink_to(work)
    monkeypatch.syspath_prepend(work / "by")
    import mine

    assert prepare(config_of(configured, "mine:make"), allow_code="mine").model.out_features == 2
    assert sys.modules["mine"] is mine


def test_a_name_that_is_taken_is_refused(configured, work):
    (work / "json.py").write_text(MARK.format(path=str(work / "ran")) + MAKE)
    refused(config_of(configured, "json:make"), "json", "loaded already.*rename yours")
    assert not (work / "ran").exists()


def test_neighbours_do_not_take_the_place_of_other_modules(configured, work):
    (work / "mine.py").write_text("import shadow_of_colorsys, colorsys\n" + MAKE)
    (work / "shadow_of_colorsys.py").write_text("")
    (work / "colorsys.py").write_text("raise RuntimeError('not this one')\n")
    sys.modules.pop("colorsys", None)
    assert prepare(config_of(configured, "mine:make"), allow_code="mine").model.out_features == 2


@pytest.mark.usefixtures("work")
@pytest.mark.parametrize("name", ["..secret:make", "mine.:make", "mine/../x:make", ":make"])
def test_names_are_those_of_modules(configured, name):
    refused(config_of(configured, name), name.partition(":")[0], "cannot import")


def test_folders_without_an_init_and_compiled_modules_are_named(configured, work):
    (work / "pack").mkdir()
    (work / "pack" / "nets.py").write_text(MAKE)
    refused(config_of(configured, "pack.nets:make"), "pack.nets", r"needs an __init__\.py")


def test_an_error_in_a_module_is_told(configured, work):
    (work / "mine.py").write_text("1 / 0\n")
    refused(config_of(configured, "mine:make"), "mine", "ZeroDivisionError")
    assert "mine" not in sys.modules
