"""The room asks for torch only where it trains."""

import subprocess
import sys


def test_import_needs_no_torch():
    code = "import sys, taut.audit; sys.exit('torch' in sys.modules)"
    assert subprocess.run([sys.executable, "-c", code], check=False).returncode == 0
