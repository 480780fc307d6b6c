"""Numbers that JSON has no word for."""

import json
import math

from taut._base.json_numbers import INFINITY, json_numbers


def test_what_json_lacks_is_written_out_at_any_depth():
    data = {"a": [math.inf, (-math.inf, 1.5)], "b": {"c": math.nan}, "d": "inf", "e": 3, "f": None}
    plain = json_numbers(data)
    assert plain == {
        "a": [INFINITY, ["-Infinity", 1.5]], "b": {"c": None}, "d": "inf", "e": 3, "f": None
    }  # fmt: skip
    assert json.loads(json.dumps(plain, allow_nan=False)) == plain
