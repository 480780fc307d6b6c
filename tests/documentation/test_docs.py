"""The python blocks of the documentation run, and print what the pages say."""

import re
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


def test_files_that_pages_name_exist():
    named = {
        (page.relative_to(DOCS), path)
        for page in DOCS.rglob("*.md")
        for path in re.findall(
            r"`((?:src/taut|tests|benchmarks|examples)/[\w/]+\.py)`", page.read_text()
        )
    }
    assert {path for _, path in named}
    assert not {(page, path) for page, path in named if not (DOCS.parent / path).exists()}
