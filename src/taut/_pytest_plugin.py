"""A fixture for pytest: a program is replayed on neighbouring data, and fails if it leaks.

Loaded by pytest wherever the package is installed; nothing else of the package is, until a test
asks for the fixture.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import TYPE_CHECKING, Any

import pytest

if TYPE_CHECKING:
    from taut.audit import ReplayResult

__all__ = ["taut_replay"]


@pytest.fixture
def taut_replay() -> Callable[..., ReplayResult]:
    """Replay a function on two datasets, ``taut_replay(function, data, neighbour)``.

    Takes what `taut.audit.replay` takes. The test fails if there is a finding, or if the record in
    which the datasets differ reaches no release. Data of tests are taken as crafted: messages
    show numbers about them.
    """
    from taut.audit import replay

    def check(function: Callable[[Any], Any], data: Any, neighbour: Any, **options: Any) -> Any:
        __tracebackhide__ = True
        result = replay(function, data, neighbour, **{"crafted": True, **options})
        if not (result.passed and result.exercised):
            pytest.fail(str(result), pytrace=False)
        return result

    return check
