"""Descriptions of arguments stand alone, as they do in a tooltip."""

import ast
import re
from collections.abc import Iterator
from pathlib import Path

import pytest

PACKAGE = Path(__file__).parents[1] / "src" / "taut"
ROOMS = sorted(path for path in PACKAGE.iterdir() if path.is_dir() and path.name != "__pycache__")
LEANING = re.compile(
    r"(of|as|whose|that|or|and|also|likewise|if|with|for|in|to|which|by|from)\b", re.IGNORECASE
)
"""First words that need a word before them."""


def descriptions(docstring: str) -> Iterator[tuple[str, str]]:
    """Yield the arguments and attributes that a docstring describes, and how their text begins."""
    listed = False
    for line in docstring.splitlines():
        if line in ("Args:", "Attributes:"):
            listed = True
        elif line and not line.startswith(" "):
            listed = False
        elif listed and (found := re.match(r"    (\*{0,2}\w+): (.*)", line)):
            yield found[1], found[2]


@pytest.mark.parametrize("room", ROOMS, ids=lambda room: room.name)
def test_descriptions_of_arguments_begin_with_a_noun(room):
    leaning = [
        f"{path.relative_to(PACKAGE)}: {node.name}: {name}: {text}"
        for path in sorted(room.rglob("*.py"))
        for node in ast.walk(ast.parse(path.read_text(encoding="utf-8")))
        if isinstance(node, ast.ClassDef | ast.FunctionDef)
        for name, text in descriptions(ast.get_docstring(node) or "")
        if LEANING.match(text)
    ]
    assert not leaning


def test_leaning_descriptions_are_seen():
    docstring = (
        "Do.\n\nArgs:\n    seed: of its start.\n    rate: the rate.\n\nRaises:\n    Error: if."
    )
    found = dict(descriptions(docstring))
    assert found == {"seed": "of its start.", "rate": "the rate."}
    assert LEANING.match(found["seed"])
    assert not LEANING.match(found["rate"])
