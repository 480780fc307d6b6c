"""The room as a whole: what it shows, and that it asks for torch only where it trains."""

import subprocess
import sys

import pytest

import taut.audit


def test_all_is_what_is_public():
    shown = {name for name in vars(taut.audit) if not name.startswith("_")}
    assert set(taut.audit.__all__) <= shown
    assert taut.audit.__all__ == sorted(taut.audit.__all__)


@pytest.mark.parametrize("name", taut.audit.__all__)
def test_public_name_is_documented(name):
    assert getattr(taut.audit, name).__doc__


def test_import_needs_no_torch():
    code = "import sys, taut.audit; sys.exit('torch' in sys.modules)"
    assert subprocess.run([sys.executable, "-c", code], check=False).returncode == 0
