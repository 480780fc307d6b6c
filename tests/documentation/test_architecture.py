"""The map shows every folder of the rooms that it draws, and files that pages name exist."""

import re
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[2]
PAGE = (ROOT / "docs" / "architecture.md").read_text(encoding="utf-8")
PACKAGE = ROOT / "src" / "taut"


def entries(room: Path) -> set[str]:
    return {path.stem for path in room.iterdir()} - {"__init__", "__pycache__"}


@pytest.mark.parametrize("room", ["accounting", "matrix", "noise", "training"])
def test_every_folder_has_a_line(room):
    (section,) = re.findall(rf"^### {room}\n(.*?)(?=^##)", PAGE, re.MULTILINE | re.DOTALL)
    lines = re.findall(r"^\| (`.*?) \|", section, re.MULTILINE)
    named = [name for line in lines for name in re.findall(r"`(\w+)`", line)]
    assert sorted(named) == sorted(entries(PACKAGE / room))


def test_paths_exist():
    paths = re.findall(r"`((?:\w+/)+\w+(?:\.py)?)`", PAGE)
    homes = [ROOT, PACKAGE, *(PACKAGE / room for room in ("accounting", "training"))]
    missing = [
        path
        for path in paths
        if not any((home / path).exists() or (home / f"{path}.py").exists() for home in homes)
    ]
    assert paths
    assert not missing


def test_rooms_are_in_the_picture():
    (picture,) = re.findall(r"```mermaid\n(.*?)```", PAGE, re.DOTALL)
    rooms = {path.name for path in PACKAGE.iterdir() if (path / "__init__.py").exists()}
    assert rooms - {"_base"} <= set(re.findall(r"^    (\w+)\[", picture, re.MULTILINE))


@pytest.mark.parametrize("page", sorted((ROOT / "docs").rglob("*.md")), ids=lambda page: page.name)
def test_files_that_pages_name_exist(page):
    named = re.findall(r"`((?:\w+/)+\w+\.py)`", page.read_text(encoding="utf-8"))
    assert [
        path for path in named if not any((home / path).exists() for home in (ROOT, PACKAGE))
    ] == []
