"""The python blocks of the documentation run, and print what the pages say."""

from pathlib import Path

import pytest
from documentation.markdown_blocks import check_python_blocks

DOCS = Path(__file__).parents[2] / "docs"


@pytest.mark.parametrize(
    "page", sorted(DOCS.rglob("*.md")), ids=lambda page: str(page.relative_to(DOCS))
)
def test_python_blocks_of_page(page, tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    check_python_blocks(page)
