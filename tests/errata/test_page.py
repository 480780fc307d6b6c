"""Every item of the errata has a test of its own, and the page names it."""

import re
from pathlib import Path

HERE = Path(__file__).parent
PAGE = (HERE.parents[1] / "docs" / "errata.md").read_text(encoding="utf-8")


def test_items_and_tests_match():
    items = re.findall(r"^## E(\d+): ", PAGE, re.MULTILINE)
    named = re.findall(r"`tests/errata/(\w+/test_e(\d+)_\w+\.py)`", PAGE)
    assert [int(number) for _, number in named] == [int(item) for item in items]
    tests = (str(path.relative_to(HERE)) for path in HERE.rglob("test_e[0-9]*.py"))
    assert sorted(name for name, _ in named) == sorted(tests)
