"""The table in the documentation is that of the zoo."""

import re
from pathlib import Path

from audit.zoo.table import rows

PAGE = Path(__file__).parents[3] / "docs" / "replay.md"


def plain(cell):
    return re.sub(r"\[([^]]+)\]\([^)]+\)", r"\1", cell).strip()


def test_documentation_lists_every_bug():
    lines = PAGE.read_text(encoding="utf-8").partition("| bug | source |")[2].splitlines()[2:]
    shown = []
    for line in lines:
        if not line.startswith("|"):
            break
        shown.append(tuple(plain(cell) for cell in line.strip("|").split("|")))
    assert shown == [tuple(cell or "—" for cell in row) for row in rows()]


def test_zoo_is_as_large_as_it_claims():
    assert len(rows()) >= 30
    assert sum(row[2].startswith("replay") for row in rows()) >= 18
