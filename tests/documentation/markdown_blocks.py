"""The fenced blocks of a Markdown page, run as a reader would run them."""

import contextlib
import io
import re
from itertools import pairwise
from pathlib import Path

FENCE = re.compile(r"^```(\w+)\n(.*?)^```$", re.MULTILINE | re.DOTALL)


def fenced_blocks(page: Path) -> list[tuple[str, str]]:
    """Return (language, text) of every fenced block, in order."""
    return FENCE.findall(page.read_text(encoding="utf-8"))


def check_python_blocks(page: Path) -> None:
    """Run the python blocks of a page in one namespace.

    A ``text`` block right after a python block is what that block must print.
    """
    namespace: dict[str, object] = {"__name__": "__main__"}
    blocks = [*fenced_blocks(page), ("", "")]
    for (language, text), (next_language, next_text) in pairwise(blocks):
        if language != "python":
            continue
        printed = io.StringIO()
        with contextlib.redirect_stdout(printed):
            exec(compile(text, str(page), "exec"), namespace)
        if next_language == "text":
            assert lines(printed.getvalue()) == lines(next_text)


def console_commands(page: Path) -> list[tuple[str, str]]:
    """Return (command, expected output) for each ``$ ...`` line of the console blocks."""
    commands = []
    for language, text in fenced_blocks(page):
        if language == "console":
            for part in re.split(r"^\$ ", text, flags=re.MULTILINE)[1:]:
                command, _, output = part.partition("\n")
                commands.append((command, output))
    return commands


def lines(text: str) -> list[str]:
    """Return the lines of a text without trailing blanks."""
    return [line.rstrip() for line in text.strip().splitlines()]
