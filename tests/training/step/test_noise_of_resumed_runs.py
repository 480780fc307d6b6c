"""Noise that is made again after a stop is what was released, or the run does not go on."""

import copy
import json
import pickle
import shutil

import pytest
import torch
from torch import nn
from torch.optim.optimizer import register_optimizer_step_pre_hook
from torch.utils.data import TensorDataset

from taut.errors import UnsoundConfiguration
from taut.noise import SeededForExperiments
from taut.training import (
    Callback,
    Checkpointing,
    FlatClip,
    Logs,
    Plan,
    PrivateTrainer,
    RunHistory,
)
from taut.training._noise.keyed_bits import NoiseKeys, SessionKey

DATA = TensorDataset(
    torch.randn(40, 3, generator=torch.Generator().manual_seed(1)),
    torch.zeros(40, dtype=torch.long),
)


class Model(nn.Module):
    """Two layers of equal shape, which takes inputs of any type."""

    def __init__(self):
        super().__init__()
        self.a, self.b = nn.Linear(3, 3, bias=False), nn.Linear(3, 3, bias=False)

    def forward(self, inputs):
        return self.b(self.a(inputs.to(self.a.weight.dtype)))


class Reordered(Model):
    """The same names in another order."""

    def __init__(self):
        super().__init__()
        self.a = self._modules.pop("a")


class CutAt(Callback):
    def __init__(self, step):
        self.step = step

    def on_step_end(self, trainer, event):
        if event.step == self.step:
            raise RuntimeError("cut")


def planned(noise="blt", **changes):
    given = {"epsilon": 5.0, "delta": 1e-3, "clipping": FlatClip(1.0), "noise": noise}
    return Plan(**{"examples": 40, "batch_size": 10, "steps": 12, **given, **changes})


def trainer(directory, *, model=None, plan=None, callbacks=(), every=1, generator=None):
    return PrivateTrainer(
        Model() if model is None else model,
        nn.CrossEntropyLoss(),
        planned() if plan is None else plan,
        run_dir=directory,
        checkpoints=Checkpointing(every=every),
        logs=Logs(callbacks=list(callbacks), progress=False),
        generator=generator,
    )


def cut(directory, step, **arguments):
    running = trainer(directory, callbacks=[CutAt(step)], **arguments)
    with pytest.raises(RuntimeError, match="cut"):
        running.fit(DATA)
    running._callbacks.clear()
    return running


def half_frozen(name):
    model = Model()
    model.get_submodule(name).requires_grad_(False)
    return model


@pytest.mark.parametrize(
    ("before", "after"),
    [
        (Model, lambda: Model().double()),
        (Model, Reordered),
        (lambda: half_frozen("a"), lambda: half_frozen("b")),
    ],
    ids=["type", "order", "frozen"],
)
def test_noise_is_not_made_again_for_other_parameters(tmp_path, before, after):
    cut(tmp_path, 5, model=before())
    with pytest.raises(UnsoundConfiguration, match="order, shapes or types"):
        trainer(tmp_path, model=after()).fit(DATA)
    assert trainer(tmp_path, model=before()).fit(DATA).steps == 12


def test_a_run_does_not_go_on_with_keys_from_before_it_last_went_on(tmp_path):
    run, old = tmp_path / "run", tmp_path / "old"
    cut(run, 3)
    shutil.copy(run / "private.noise", old)
    cut(run, 6)
    shutil.copy(run / "private.noise", tmp_path / "last")
    shutil.copy(old, run / "private.noise")
    with pytest.raises(UnsoundConfiguration, match="lacks keys"):
        trainer(run).fit(DATA)
    shutil.copy(tmp_path / "last", run / "private.noise")
    assert trainer(run).fit(DATA).steps == 12


@pytest.mark.parametrize("kept", [0, 0.5])
def test_a_first_line_of_a_session_that_was_cut_off_stops_no_run(tmp_path, kept):
    cut(tmp_path, 3)
    ledger = tmp_path / "ledger.jsonl"
    before = ledger.read_bytes()
    cut(tmp_path, 4)
    line = ledger.read_bytes()[len(before) :].split(b"\n")[0]
    ledger.write_bytes(before + line[: int(kept * len(line))])
    (tmp_path / "checkpoint.pt").unlink()
    assert trainer(tmp_path).fit(DATA).counted_steps == 12


def test_what_the_ledger_says_of_keys_tells_nothing_of_them(tmp_path):
    cut(tmp_path, 3)
    history = RunHistory.read(tmp_path / "ledger.jsonl")
    (key,) = (s["key"] for s in json.loads((tmp_path / "private.noise").read_text())["keys"])
    assert history.noise is not None
    assert key not in (tmp_path / "ledger.jsonl").read_text()
    one = SessionKey(0, bytes.fromhex(key), "ChaCha20")
    assert NoiseKeys((one,)).commitment == history.noise
    more = NoiseKeys((one, SessionKey(3, bytes(32), "ChaCha20")))
    assert more.follow(history.noise)
    assert not NoiseKeys(()).follow(history.noise)
    assert not NoiseKeys((one,)).follow(more.commitment)


def test_a_run_without_files_keeps_to_its_dataset():
    inputs, labels = DATA.tensors
    for other in (
        TensorDataset(inputs.flip(0), labels),
        TensorDataset(inputs[:39], labels[:39]),
    ):
        running = cut(None, 5)
        with pytest.raises(UnsoundConfiguration, match="not the one that this run began with"):
            running.fit(other)
        assert running.fit(DATA).steps == 12


def test_a_run_without_files_and_without_steps_takes_any_dataset():
    running = trainer(None)
    bad = TensorDataset(DATA.tensors[0].double() * torch.nan, DATA.tensors[1])
    with pytest.raises(ValueError, match="finite"):
        running.fit(bad)
    assert running.fit(DATA).steps == 12


@pytest.mark.parametrize("noise", [None, "blt"])
def test_noise_of_a_seed_is_no_promise_however_the_run_goes_on(tmp_path, noise):
    plan = planned(noise)
    cut(tmp_path, 5, plan=plan, every=100, generator=SeededForExperiments(seed=5))
    result = trainer(tmp_path, plan=plan, every=100).fit(DATA)
    assert not result.is_secure
    assert "this is an experiment, not a promise" in result.statement


@pytest.mark.parametrize("copied", [copy.copy, copy.deepcopy, pickle.dumps])
def test_keys_and_noise_are_neither_copied_nor_pickled(copied):
    noise = cut(None, 2)._gradient.step_noise
    keys = noise._keys
    for secret in (noise, keys.sessions[0], keys.of_batches):
        with pytest.raises(TypeError, match="cannot be copied"):
            copied(secret)


def test_hooks_that_are_added_later_are_refused():
    running = trainer(None)
    running.optimizer.register_step_pre_hook(lambda *_: None)
    with pytest.raises(UnsoundConfiguration, match="single noisy gradients"):
        running.fit(DATA)
    handle = register_optimizer_step_pre_hook(lambda *_: None)
    try:
        with pytest.raises(UnsoundConfiguration, match="single noisy gradients"):
            trainer(None)
    finally:
        handle.remove()
