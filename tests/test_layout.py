"""The house as a whole: no room opens another one's cupboards, and no folder is crowded."""

import ast
from collections.abc import Iterator
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[1]
PACKAGE = ROOT / "src" / "taut"
ROOMS = {path.name for path in PACKAGE.iterdir() if (path / "__init__.py").exists()} - {"_base"}
MOST_ENTRIES = 14  # in a folder: what one looks through without scrolling


def imported(path: Path) -> Iterator[str]:
    """Yield the full name of whatever a file imports, for type checkers alone too."""
    for node in ast.walk(ast.parse(path.read_text(encoding="utf-8"))):
        if isinstance(node, ast.ImportFrom) and node.module:
            yield from (f"{node.module}.{alias.name}" for alias in node.names)
        elif isinstance(node, ast.Import):
            yield from (alias.name for alias in node.names)


def is_private(name: str, room: str) -> bool:
    """Return whether a name lies behind the door of another room than the given one."""
    package, other, *path = [*name.split("."), "", ""]
    if package != "taut" or other not in ROOMS or other == room:
        return False
    return any(part.startswith("_") and not part.startswith("__") for part in path)


@pytest.mark.parametrize("room", sorted(ROOMS))
def test_room_imports_no_private_module_of_another(room):
    found = [
        f"{path.relative_to(PACKAGE)}: {name}"
        for path in sorted((PACKAGE / room).rglob("*.py"))
        for name in imported(path)
        if is_private(name, room)
    ]
    assert not found


@pytest.mark.parametrize(
    ("name", "private"),
    [
        ("taut.noise.Box", False),
        ("taut.noise._sets.boxes.Box", True),
        ("taut.accounting.renyi._sums.log_mean", True),
        ("taut._base.arrays.Vector", False),
        ("taut.training._plan.plan.Plan", False),
        ("taut.training.extend", False),
        ("numpy._core", False),
    ],
)
def test_private_names_are_recognised(name, private):
    assert is_private(name, "training") is private


def folders(root: Path) -> list[Path]:
    """Return all folders with python files in or below them."""
    return sorted(
        {folder for path in root.rglob("*.py") for folder in path.parents} - set(root.parents)
    )


@pytest.mark.parametrize(
    "folder",
    [*folders(PACKAGE), *folders(ROOT / "tests")],
    ids=lambda folder: str(folder.relative_to(ROOT)),
)
def test_folder_can_be_overlooked(folder):
    entries = {path.name for path in folder.iterdir()} - {"__pycache__"}
    if folder in (PACKAGE, ROOT / "tests"):
        entries -= ROOMS  # they have a picture of their own, in docs/architecture.md
    assert len(entries) <= MOST_ENTRIES
