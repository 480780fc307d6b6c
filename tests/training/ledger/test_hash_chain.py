"""Hashes of ledger lines: what was changed shows, what was cut off by a crash is recovered."""

import json
import logging

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from taut.errors import TautError
from taut.training import FlatClip, Plan, RunHistory, RunLedger
from taut.training._ledger.hash_chain import HASH, hash_after, hashes

PLAN = Plan(
    examples=1_000, batch_size=100, steps=50, noise_multiplier=1.0, delta=1e-5,
    clipping=FlatClip(1.0),
)  # fmt: skip
CHANGED = "does not follow from the lines before it"


def written(path, steps=20, block=4):
    with RunLedger(path, PLAN, block=block) as ledger:
        for step in range(steps):
            ledger.record(step)
        ledger.close(interrupted_after=steps)
    return [json.loads(line) for line in path.read_text().splitlines()]


def rewritten(path, entries):
    path.write_text("".join(json.dumps(entry) + "\n" for entry in entries))
    return path


@pytest.fixture
def path(tmp_path):
    return tmp_path / "ledger.jsonl"


def test_every_line_is_tied_to_those_before_it(path):
    entries, before = written(path), None
    for entry in entries:
        before = hash_after(before, entry)
        assert entry[HASH] == before
    found = RunHistory.read(path)
    assert (found.head, found.unhashed) == (before, 0)
    assert list(hashes(path.read_bytes().split(b"\n"))) == [entry[HASH] for entry in entries]


def test_the_first_hash_depends_on_the_plan():
    entry = {"run": PLAN.to_dict(), "block": 16, "id": "0"}
    plan = {**PLAN.to_dict(), "noise_multiplier": 1.0000000000000002}
    assert hash_after(None, entry) != hash_after(None, {**entry, "run": plan})


def edited_multiplier(entries):
    """A plan that is as good as true: more noise than there was, and the epsilon of that."""
    cheaper = Plan(
        examples=1_000, batch_size=100, steps=50, noise_multiplier=2.0, delta=1e-5,
        clipping=FlatClip(1.0),
    )  # fmt: skip
    return [{**entries[0], "run": cheaper.to_dict()}, *entries[1:]]


EDITS = {
    "another multiplier": edited_multiplier,
    "a smaller block": lambda e: [*e[:2], {**e[2], "reserve": 1}, *e[3:]],
    "a line less": lambda e: [*e[:2], *e[3:]],
    "a line twice": lambda e: [*e[:3], e[2], *e[3:]],
    "other order": lambda e: [*e[:2], e[3], e[2], *e[4:]],
    "a line more": lambda e: [*e[:3], {"reserve": 4, "step": 8}, *e[3:]],
    "a return more": lambda e: [*e[:3], {"return": 4}, *e[3:]],
    "a larger return": lambda e: [*e[:-1], {**e[-1], "return": 4}],
    "a hash less": lambda e: [*e[:-1], {k: v for k, v in e[-1].items() if k != HASH}],
    "a hash of others": lambda e: [*e[:-1], {**e[-1], HASH: e[1][HASH]}],
    "no hash at first": lambda e: [{k: v for k, v in e[0].items() if k != HASH}, *e[1:-1],
                                   {**e[-1], HASH: "0" * 64}],
}  # fmt: skip


@pytest.mark.parametrize("edit", EDITS.values(), ids=EDITS)
def test_edits_are_refused(path, edit):
    rewritten(path, edit(written(path)))
    with pytest.raises(ValueError, match=CHANGED):
        RunHistory.read(path)
    with pytest.raises(ValueError, match=CHANGED):
        RunLedger(path, PLAN)


@pytest.mark.parametrize(
    ("entries", "lent"),
    [
        ([{"reserve": 4, "step": 0}, {"return": 5}], 4),
        ([{"reserve": 4, "step": 0}, {"return": 4}, {"return": 1}], 0),
        ([{"reserve": 4, "step": 0}, {"reserve": 4, "step": 4}, {"return": 8}], 4),
        ([{"reserve": 4, "step": 0}, {"torn": 4}, {"return": 1}], 0),
    ],
)
def test_only_what_was_lent_can_be_returned(path, entries, lent):
    first = {"schema": "taut.run-ledger/1", "run": PLAN.to_dict(), "block": 4, "id": "0"}
    rewritten(path, [first, *entries])
    with pytest.raises(ValueError, match=f"malformed.*returned where {lent} were lent"):
        RunHistory.read(path)


def unhashed(entries):
    return [{name: value for name, value in e.items() if name != HASH} for e in entries]


def test_ledgers_from_before_hashes_load_and_go_on_with_hashes(path, caplog):
    entries = written(path)
    rewritten(path, unhashed(entries))
    assert RunHistory.read(path).steps == 20
    assert RunHistory.read(path).unhashed == len(entries)
    with caplog.at_level(logging.WARNING), RunLedger(path, PLAN) as ledger:
        ledger.record(20)
    assert "begun without hashes" in caplog.text
    found = RunHistory.read(path)
    assert (found.steps, found.unhashed) == (21, len(entries))
    later = [json.loads(line) for line in path.read_text().splitlines()]
    later[1]["reserve"] = 2  # a line without a hash, before one with a hash
    rewritten(path, later)
    with pytest.raises(ValueError, match=f"line {len(entries) + 1} .*{CHANGED}"):
        RunHistory.read(path)


@settings(max_examples=40, deadline=None, suppress_health_check=list(HealthCheck))
@given(st.data())
def test_any_cut_is_recovered_and_the_chain_goes_on(tmp_path_factory, data):
    path = tmp_path_factory.mktemp("cut") / "ledger.jsonl"
    written(path, steps=7)
    content = path.read_bytes()
    for _ in range(data.draw(st.integers(1, 3))):
        end = data.draw(st.integers(0, len(content)))
        path.write_bytes(content[:end])
        with RunLedger(path, PLAN, block=4) as ledger:
            ledger.record(0)
        assert RunHistory.read(path) == ledger.history
        content = path.read_bytes()


def test_one_flipped_byte_never_lowers_the_count_unseen(path):
    """Whatever byte of a whole line is changed: refused, or the same entries in other spaces."""
    written(path, steps=6)
    content, truth = path.read_bytes(), RunHistory.read(path)
    end = content.rindex(b"\n", 0, -1)  # what is after it may be a line that was cut off
    for place in range(1, end, 7):
        changed = bytearray(content)
        changed[place] ^= 1
        path.write_bytes(bytes(changed))
        try:
            found = RunHistory.read(path)
        except (ValueError, TautError):
            continue
        assert found == truth, place


def test_a_hash_that_was_noted_is_found_in_what_was_added_to(path):
    written(path, steps=3)
    head = RunHistory.read(path).head
    with RunLedger(path, PLAN) as ledger:
        ledger.record(3)
    assert ledger.history.head != head
    assert RunHistory.passed(path, head)
    path.unlink()
    written(path, steps=3)  # the same steps in another run
    assert not RunHistory.passed(path, head)
