"""Every citation can be followed: to an entry of the bibliography, and from there to the work."""

import re
import unicodedata
from dataclasses import dataclass
from functools import cache
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[2]
DOCS = ROOT / "docs"
PAGE = DOCS / "bibliography.md"

# No address could be confirmed for these; everything else needs one.
WITHOUT_LINK = {"hardy-littlewood-polya-1934", "matheron-1968"}

# Capitalised words before a number that happens to look like a year.
NO_AUTHORS = {"Return", "Barbara", "Security", "Python", "January", "November"}

NAME = r"[A-ZÀ-Þ][a-zß-ÿ][\w-]*"
AUTHORS = rf"{NAME}(?:, {NAME})*(?:,? and {NAME}| et al\.)?"
YEAR = r"(?:1[89]|20)\d\d"
# "Balle and Wang 2018", "Zhu (2023, Theorem 2.3.4)", "Huber's (1964)", "Nasr et al. (2021, 2023)".
CITATION = re.compile(rf"({AUTHORS})(?:'s)? \(?({YEAR}(?:, {YEAR})*)\b(?![-/.:]\d)")
PAIR = re.compile(rf"({NAME}) and ({NAME})")
OTHERS = ("et al.",)


@dataclass(frozen=True)
class Entry:
    anchor: str
    heading: tuple[str, ...]
    authors: tuple[str, ...]
    year: str
    text: str

    @property
    def names(self) -> tuple[tuple[str, ...], ...]:
        return self.heading, self.authors, self.authors[:1] + OTHERS


def names_in(text: str) -> tuple[str, ...]:
    """Return the surnames of "Balle, Barthe and Gaboardi", with "et al." as a last one."""
    return tuple(re.findall(rf"{NAME}|et al\.", text))


def entries() -> list[Entry]:
    pattern = rf"^## (.+) ({YEAR}) \{{ #(\S+) \}}\n\n(.+)$"
    return [
        Entry(anchor, names_in(heading), names_in(text.partition(". *")[0]), year, text)
        for heading, year, anchor, text in re.findall(
            pattern, PAGE.read_text(encoding="utf-8"), re.MULTILINE
        )
    ]


ENTRIES = entries()


def meant(names: tuple[str, ...], year: str) -> set[str]:
    """Return the anchors of the entries that a citation can mean."""
    return {entry.anchor for entry in ENTRIES if year == entry.year and names in entry.names}


@cache
def prose(path: Path) -> str:
    """Return a file's text on one line: links are their text, comment marks are gone."""
    text = re.sub(r"\[([^\]]+)\]\([^)\s]*\)", r"\1", path.read_text(encoding="utf-8"))
    return re.sub(r"\s+(?:#:? )?", " ", text)


def citations(text: str) -> list[tuple[tuple[str, ...], str]]:
    """Return the authors and the year of every citation in a text."""
    return [
        (names_in(authors), year)
        for authors, years in CITATION.findall(text)
        for year in years.split(", ")
        if names_in(authors)[-1] not in NO_AUTHORS
    ]


@cache
def cited(path: Path) -> set[str]:
    """Return the anchors of the entries that a file cites with a year."""
    return {anchor for citation in citations(prose(path)) for anchor in meant(*citation)}


PAGES = sorted({*DOCS.rglob("*.md"), ROOT / "README.md", ROOT / "CONTRIBUTING.md"} - {PAGE})
SOURCES = sorted(
    path
    for folder in ("src", "tests", "benchmarks", "examples")
    for path in (ROOT / folder).rglob("*.py")
    if path != Path(__file__)
)


def relative(path: Path) -> str:
    return str(path.relative_to(ROOT))


def test_citations_are_recognised():
    text = "Zhu (2023, eq. 1), (Balle and Wang 2018), Nasr et al. (2021, 2023), Huber's (1964)"
    assert citations(text) == [
        (("Zhu",), "2023"),
        (("Balle", "Wang"), "2018"),
        (("Nasr", "et al."), "2021"),
        (("Nasr", "et al."), "2023"),
        (("Huber",), "1964"),
    ]
    assert citations("2000 steps on 2023-01-05; Return 2000 epsilons; rate 0.2019") == []


def test_page_lists_works_once_and_in_order():
    assert len(ENTRIES) == PAGE.read_text(encoding="utf-8").count("\n## ") > 0
    assert len({entry.anchor for entry in ENTRIES}) == len(ENTRIES)
    keys = [(*map(without_accents, entry.heading), entry.year) for entry in ENTRIES]
    assert keys == sorted(keys, key=lambda key: (key[:-1], key[-1]))


def without_accents(name: str) -> str:
    return unicodedata.normalize("NFD", name).encode("ascii", "ignore").decode()


@pytest.mark.parametrize("entry", ENTRIES, ids=lambda entry: entry.anchor)
def test_entry_names_its_authors_and_leads_to_the_work(entry):
    assert set(entry.heading) - set(OTHERS) <= set(entry.authors)
    assert entry.anchor.endswith(f"-{entry.year}")
    assert entry.year in entry.text
    linked = re.search(r"\]\(https://\S+\)$", entry.text) is not None
    assert linked == (entry.anchor not in WITHOUT_LINK)


def test_citations_have_an_entry():
    missing = {
        relative(path): unknown
        for path in [*PAGES, *SOURCES]
        if (unknown := [c for c in citations(prose(path)) if not meant(*c)])
    }
    assert missing == {}


def test_authors_are_named_with_a_year():
    undated = {
        relative(path): pairs
        for path in [*PAGES, *SOURCES]
        if (pairs := [pair for pair in PAIR.findall(prose(path)) if not dated(pair, path)])
    }
    assert undated == {}


def test_package_names_the_works_it_follows():
    package = [path for path in SOURCES if path.is_relative_to(ROOT / "src")]
    assert [relative(p) for p in package if re.search(r"\b[Tt]he (thesis|paper)\b", prose(p))] == []


def dated(pair: tuple[str, str], path: Path) -> bool:
    """Say whether a file says which work two authors stand for, if they stand for one."""
    works = {entry.anchor for entry in ENTRIES if {*pair} <= {*entry.authors}}
    return not works or bool(works & cited(path))


@pytest.mark.parametrize("path", PAGES, ids=relative)
def test_pages_link_what_they_cite(path):
    text = path.read_text(encoding="utf-8")
    linked = set(re.findall(r"bibliography\.md#([\w-]+)\)", text))
    assert linked <= {entry.anchor for entry in ENTRIES}
    assert cited(path) <= linked


def test_nothing_is_listed_that_nobody_cites():
    everywhere = set().union(*(cited(path) for path in [*PAGES, *SOURCES]))
    assert {entry.anchor for entry in ENTRIES} == everywhere
