"""The page of the room lists every estimator, and every check that fails."""

from pathlib import Path

import pytest
from estimators.contract.examples import NAMES

from taut.estimators._contract.expected_failures import EXPECTED_FAILURES

PAGE = (Path(__file__).parents[3] / "docs" / "estimators.md").read_text(encoding="utf-8")


@pytest.mark.parametrize("name", NAMES)
def test_page_has_a_line_for_every_estimator(name):
    assert f"[`{name}`][taut.estimators.{name}]" in PAGE


def test_page_lists_failing_checks_with_their_reasons():
    failing = {}
    for name, listed in sorted(EXPECTED_FAILURES.items()):
        for check, why in listed.items():
            failing.setdefault((check, why), []).append(f"`{name}`")
    lines = [line for line in PAGE.splitlines() if line.startswith("| `check_")]
    assert lines == [
        f"| `{check}` | {why} | {', '.join(names)} |"
        for (check, why), names in sorted(failing.items())
    ]
