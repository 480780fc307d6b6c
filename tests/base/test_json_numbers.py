"""Numbers that JSON has no word for."""

import json
import math

import pytest

from taut._base.json_numbers import INFINITY, json_numbers, parsed_json


def test_what_json_lacks_is_written_out_at_any_depth():
    data = {"a": [math.inf, (-math.inf, 1.5)], "b": {"c": math.nan}, "d": "inf", "e": 3, "f": None}
    plain = json_numbers(data)
    assert plain == {
        "a": [INFINITY, ["-Infinity", 1.5]], "b": {"c": None}, "d": "inf", "e": 3, "f": None
    }  # fmt: skip
    assert json.loads(json.dumps(plain, allow_nan=False)) == plain


@pytest.mark.parametrize(
    "text",
    ["[" * 100_000, '{"a":' * 5_000, "9" * 5_000, "", "{", b"\xff\xfe\xfa", '{"a": 1e}', "\ud800"],
    ids=lambda text: repr(text[:8]),
)
def test_text_of_strangers_is_refused_in_our_words(text):
    with pytest.raises(ValueError, match="not valid JSON"):
        parsed_json(text)


def test_hook_makes_objects():
    assert parsed_json('{"a": [1, {"b": 2}]}', hook=len) == 1
