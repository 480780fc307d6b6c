"""Every item of the errata has a test of its own, and the page names it."""

import re
from pathlib import Path

HERE = Path(__file__).parent
PAGE = (HERE.parents[1] / "docs" / "errata.md").read_text(encoding="utf-8")


def test_items_and_tests_match():
    items = re.findall(r"^## E(\d+): ", PAGE, re.MULTILINE)
    named = re.findall(r"`tests/errata/(test_e(\d+)_\w+\.py)`", PAGE)
    assert [int(number) for _, number in named] == [int(item) for item in items]
    assert sorted(name for name, _ in named) == sorted(p.name for p in HERE.glob("test_e[0-9]*.py"))
