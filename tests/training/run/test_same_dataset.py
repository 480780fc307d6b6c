"""A run that goes on with another dataset: noticed, by a fingerprint that says nothing."""

import dataclasses
import json
import random
import stat

import numpy as np
import pytest
import torch
from torch import nn
from torch.utils.data import Dataset, Subset, TensorDataset
from training.runs import EXAMPLES, Kill, Killed, data, model, plan

from taut.errors import UnsoundConfiguration
from taut.training import Checkpointing, Logs, PrivateTrainer, RunHistory, TrainingResult
from taut.training._data.fingerprint import KEY_BYTES, fingerprint, new_key

KEY = bytes(range(KEY_BYTES))


def trainer(directory, **options):
    return PrivateTrainer(
        model(), nn.CrossEntropyLoss(), plan(), run_dir=directory,
        checkpoints=Checkpointing(every=1), **options,
    )  # fmt: skip


@pytest.fixture
def killed(tmp_path):
    """The directory of a run that was killed after two steps."""
    with pytest.raises(Killed):
        trainer(tmp_path, logs=Logs(callbacks=[Kill(2)])).fit(data())
    return tmp_path


def changed(rows):
    inputs, labels = data().tensors
    inputs = inputs.clone()
    inputs[rows] += 1e-6
    return TensorDataset(inputs, labels)


OTHERS = {
    "other examples": data(seed=5),
    "one number": changed([17]),
    "an example less": Subset(data(), range(EXAMPLES - 1)),
    "other order": Subset(data(), [1, 0, *range(2, EXAMPLES)]),
}


@pytest.mark.parametrize("other", OTHERS.values(), ids=OTHERS)
def test_another_dataset_is_refused(killed, other):
    with pytest.raises(UnsoundConfiguration, match=r"not the one.*resume='changed_data'"):
        trainer(killed).fit(other)
    result = trainer(killed).fit(data())
    assert result.steps == plan().steps
    assert not result.changed_data


def test_another_dataset_on_purpose_is_stated(killed):
    result = trainer(killed).fit(data(seed=5), resume="changed_data")
    assert result.changed_data
    assert "went on with another dataset" in result.statement
    assert RunHistory.read(killed / "ledger.jsonl").changed_data
    assert TrainingResult.from_json(result.to_json()).changed_data
    assert trainer(killed).fit(data(seed=5)).changed_data  # that one is the run's now


def test_a_lost_key_is_refused(killed):
    (killed / "private.key").unlink()
    with pytest.raises(UnsoundConfiguration, match=r"private\.key of this run was lost"):
        trainer(killed).fit(data())
    assert trainer(killed).fit(data(), resume="changed_data").changed_data


@pytest.mark.parametrize("text", ["", "[]", '{"schema": "taut.run-key/1", "key": "00"}'])
def test_a_damaged_key_is_refused(killed, text):
    (killed / "private.key").write_text(text)
    with pytest.raises(ValueError, match=r"cannot read the key.*restore it"):
        trainer(killed).fit(data())


def test_the_key_is_for_its_owner(killed):
    path = killed / "private.key"
    assert "Do not publish" in path.read_text()
    assert stat.S_IMODE(path.stat().st_mode) == 0o600
    key = json.loads(path.read_text())["key"]
    for name in ("ledger.jsonl", "plan.json", "checkpoint.pt"):
        assert key[:32].encode() not in (killed / name).read_bytes()


def test_runs_of_the_same_data_cannot_be_told_to_be_that(tmp_path):
    found = set()
    for name in "ab":
        trainer(tmp_path / name).fit(data())
        found.add(RunHistory.read(tmp_path / name / "ledger.jsonl").data)
    assert len(found) == 2


def test_runs_without_a_fingerprint_take_one(killed):
    path = killed / "ledger.jsonl"
    entries = [json.loads(line) for line in path.read_text().splitlines()]
    kept = [{k: v for k, v in e.items() if k not in ("data", "sha256")} for e in entries]
    path.write_text("".join(json.dumps(entry) + "\n" for entry in kept))
    saved = torch.load(killed / "checkpoint.pt")
    torch.save({**saved, "ledger_hash": None}, killed / "checkpoint.pt")
    assert not trainer(killed).fit(data()).changed_data


def test_ledgers_that_the_checkpoint_does_not_know_are_refused(killed):
    path = killed / "ledger.jsonl"
    entries = [json.loads(line) for line in path.read_text().splitlines()]
    kept = [{k: v for k, v in e.items() if k != "sha256"} for e in entries]
    kept[0]["block"] = 1  # the hashes are gone: the ledger alone does not show it
    path.write_text("".join(json.dumps(entry) + "\n" for entry in kept))
    with pytest.raises(UnsoundConfiguration, match=r"no line of ledger\.jsonl has the hash"):
        trainer(killed).fit(data())


# --- the fingerprint -----------------------------------------------------------------------------


def test_the_pad_makes_every_value_equally_likely():
    """For any two datasets and any value there is one pad each: nothing can be told from it."""
    value = bytes.fromhex(fingerprint(data(), KEY))
    for other in (data(seed=5), Subset(data(), range(3))):
        mac = bytes.fromhex(fingerprint(other, KEY[:32] + bytes(32)))
        pad = bytes(a ^ b for a, b in zip(mac, value, strict=True))
        assert bytes.fromhex(fingerprint(other, KEY[:32] + pad)) == value


def test_the_same_dataset_in_other_clothes_is_the_same():
    inputs, labels = data().tensors
    rows = [(inputs[i], labels[i]) for i in range(EXAMPLES)]
    assert fingerprint(rows, KEY) == fingerprint(data(), KEY)
    assert fingerprint(rows, new_key()) != fingerprint(data(), KEY)


class Counted(Dataset):
    def __init__(self, size):
        self.size, self.reads = size, 0

    def __len__(self):
        return self.size

    def __getitem__(self, place):
        self.reads += 1
        return torch.tensor(float(place))


def test_the_cost_does_not_grow_with_the_dataset():
    large = Counted(10**12)
    fingerprint(large, KEY)
    assert large.reads <= 256
    assert fingerprint(Counted(10**12), KEY) != fingerprint(Counted(10**12 + 1), KEY)


class Transformed(Dataset):
    """Random variants of the same examples, from generators that the process has or its own."""

    def __init__(self, offset=0.0, own=None):
        self.offset, self.own = offset, own

    def __len__(self):
        return 30

    def __getitem__(self, place):
        noise = torch.randn(3) + random.random() + np.random.rand()  # noqa: NPY002
        if self.own is not None:
            noise = noise + torch.randn(3, generator=self.own)
        return {"x": place + self.offset + noise, "y": place, "name": f"n{self.offset}"}


def test_random_transforms_are_told_from_other_data():
    torch.manual_seed(1)
    truth = fingerprint(Transformed(), KEY)
    state = torch.get_rng_state(), random.getstate()
    torch.manual_seed(2)
    assert fingerprint(Transformed(), KEY) == truth
    assert fingerprint(Transformed(1e-3), KEY) != truth
    torch.manual_seed(1)
    fingerprint(Transformed(), KEY)
    assert torch.equal(torch.get_rng_state(), state[0])
    assert random.getstate() == state[1]
    bits = torch.Generator()
    own = fingerprint(Transformed(own=bits), KEY)
    assert fingerprint(Transformed(own=bits), KEY) == own  # by what does not change
    assert fingerprint(Transformed(1e-3, own=bits), KEY) != own


@dataclasses.dataclass
class Note:
    text: str
    mark: float


class Image:
    size, mode = (2, 2), "L"

    def __init__(self, content):
        self.content = content

    def tobytes(self):
        return self.content


class Unknown:
    pass


VALUES = [
    None, True, 1, 1.0, "1", b"1", "\ud800", 1j, [], [1], (), {}, {"a": 1}, {1: 1}, {"1": 1},
    [[1], 2], [1, [2]], Note("a", 1.0), Note("b", 1.0), Image(b"1234"), Image(b"1235"), Unknown(),
    np.array([1.0]), np.array([1], dtype=object), np.float32(1), np.array("x"), np.zeros(0),
    torch.tensor([1.0]), torch.tensor(1.0), torch.tensor([1.0]).bfloat16(), torch.zeros(0),
    torch.tensor([True]), torch.tensor([1j]), torch.eye(2).to_sparse(), torch.zeros(2, 3),
    torch.zeros(3, 2), torch.zeros(1 << 21), torch.ones(1 << 21),
]  # fmt: skip


def test_values_of_all_kinds_are_told_apart():
    found = [fingerprint([value], KEY) for value in VALUES]
    again = [fingerprint([value], KEY) for value in VALUES]
    assert found == again
    same = {(i, j) for i, a in enumerate(found) for j, b in enumerate(found) if i < j and a == b}
    assert {repr(VALUES[i]) + repr(VALUES[j]) for i, j in same} == {"[]()", "[]{}", "(){}"}
