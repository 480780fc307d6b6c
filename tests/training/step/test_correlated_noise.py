"""Noise that is correlated over steps: what is added, and what a stopped run makes again."""

import json
import multiprocessing
import os
import shutil
import signal

import numpy as np
import pytest
import torch
from torch import nn
from torch.utils.data import TensorDataset

from taut.audit import verify_statement
from taut.errors import UnsoundConfiguration
from taut.matrix import (
    FixedOrder,
    TreeEncoder,
    Workload,
    banded_toeplitz,
    sensitivity,
    square_root,
    unamplified_loss,
)
from taut.noise import SeededForExperiments, default_generator
from taut.training import (
    Callback,
    Checkpointing,
    FixedOrderSampling,
    FlatClip,
    Logs,
    ModelMix,
    Owners,
    Plan,
    PrivateLoader,
    PrivateTrainer,
    QuantileClip,
    TrainingResult,
)
from taut.training._noise.correlated import CorrelatedNoise
from taut.training._noise.keyed_bits import NoiseKeys, SessionKey, new_session_key
from taut.training._noise.step_noise import Draw, IndependentNoise
from taut.training._run.files.noise_keys import NoiseOf, keys_from, session_keys

NAMES = ("banded", "blt", "inverse", "tree")
DATA = TensorDataset(
    torch.randn(40, 3, generator=torch.Generator().manual_seed(1)),
    torch.zeros(40, dtype=torch.long),
)


def planned(noise="blt", **changes):
    given = {"epsilon": 5.0, "delta": 1e-3, "clipping": FlatClip(1.0), "noise": noise}
    return Plan(**{"examples": 40, "batch_size": 10, "steps": 12, **given, **changes})


def how(factor=1.0):
    source = SeededForExperiments(seed=3)
    return Draw(source, factor, torch.float32, torch.device("cpu"))


def noise_of(plan, keys, first=0, count=None):
    noise = plan.noise({"weight": 6})
    noise.go_on(keys, first)
    shape = [torch.Size([2, 3])]
    return [noise.draw(shape, how())[0] for _ in range(first, count or plan.steps)]


@pytest.mark.parametrize("name", NAMES)
def test_the_loss_is_that_of_the_whole_run_from_the_first_step_on(name):
    plan = planned(name)
    whole = unamplified_loss(plan.encoder, FixedOrder(4), plan.noise_multiplier)
    assert plan.loss_at(1) == plan.loss_at(12) == plan.loss == whole
    assert plan.loss_at(0).epsilon(1e-3) == 0.0
    assert plan.loss.epsilon(1e-3) <= plan.epsilon
    assert plan.adjacency == "zero_out"
    with pytest.raises(UnsoundConfiguration, match="plan for more"):
        plan.loss_at(13)


@pytest.mark.parametrize("name", NAMES)
def test_a_plan_is_read_as_it_was_written(name):
    plan = planned(name)
    assert Plan.from_json(plan.to_json()) == plan
    data = plan.to_dict() | {"schema": "taut.training-plan/1"}
    with pytest.raises(ValueError, match="noise belongs"):
        Plan.from_dict(data)
    with pytest.raises(ValueError, match="steps"):
        Plan.from_dict(plan.to_dict() | {"steps": 11})


@pytest.mark.parametrize("name", NAMES)
def test_noise_is_the_decoded_noise_of_the_encoder(name):
    plan = planned(name)
    keys = NoiseKeys((SessionKey(0, bytes(32), "ChaCha20"),))
    made = torch.stack([n.flatten() for n in noise_of(plan, keys)]).double().numpy()
    inner = plan.noise({"weight": 6}).independent
    stream, drawn = plan.encoder.stream(), []
    for step in range(plan.steps):
        bits = keys.bits(step)
        at = Draw(bits, 1.0, torch.float32, torch.device("cpu"))
        drawn.append(stream.step(lambda at=at: inner.draw([torch.Size([6])], at)[0].double()))
    np.testing.assert_allclose(made, torch.stack(drawn).numpy(), rtol=1e-4, atol=1e-5)


@pytest.mark.parametrize("name", NAMES)
@pytest.mark.parametrize("stop", [1, 5, 11])
def test_a_stopped_stream_goes_on_to_the_last_bit(name, stop):
    plan = planned(name)
    one = SessionKey(0, bytes(range(32)), "ChaCha20")
    whole = noise_of(plan, NoiseKeys((one,)))
    again = noise_of(plan, NoiseKeys((one, SessionKey(stop, one.key, one.cipher))), stop)
    for a, b in zip(whole[stop:], again, strict=True):
        assert torch.equal(a, b)
    other = noise_of(plan, NoiseKeys((one, SessionKey(stop, bytes(32), one.cipher))), stop)
    assert not torch.equal(other[0], whole[stop])


@pytest.mark.parametrize("name", NAMES)
def test_a_plan_says_how_much_noise_steps_and_their_mean_get(name):
    """Noise is drawn as one unit vector after the other: what comes out are rows of the decoder."""
    plan, drawn = planned(name), iter(np.eye(64))
    stream = plan.encoder.stream()
    rows = np.stack([stream.step(lambda: next(drawn).copy()).copy() for _ in range(plan.steps)])
    rows *= plan.noise_multiplier / plan.batch_size
    per_step, of_run = np.sqrt((rows**2).sum() / 12), np.linalg.norm(rows.sum(0)) / 12
    assert plan.mean_gradient_noise == pytest.approx(per_step, rel=1e-6)
    assert plan.mean_run_noise == pytest.approx(of_run, rel=1e-6)


def test_noise_of_a_step_is_handed_out_once():
    noise = planned().noise({"weight": 6})
    shapes = [torch.Size([6])]
    first = noise.draw(shapes, how())[0]
    kept = first.clone()
    first.add_(1e6)  # as the engine does; what is remembered must not move
    assert noise.draw(shapes, how())[0].abs().max() < 1e5
    assert kept.abs().max() < 1e5
    with pytest.raises(UnsoundConfiguration, match="handed out before"):
        noise.come_to(1)
    with pytest.raises(UnsoundConfiguration, match="changed"):
        noise.draw(shapes, how(factor=2.0))
    noise.come_to(12)
    with pytest.raises(UnsoundConfiguration, match="all were taken"):
        noise.draw(shapes, how())


def test_keys_stay_private(tmp_path):
    path = tmp_path / "private.noise"
    source = SeededForExperiments(seed=1)
    keys = session_keys(path, source, 0)
    assert path.stat().st_mode & 0o777 == 0o600
    more = session_keys(path, source, 4)
    assert keys_from(path).sessions[0].key == keys.sessions[0].key
    assert [s.begins for s in more.sessions] == [0, 4]
    assert keys.sessions[0].key.hex() not in repr(more)
    with pytest.raises(UnsoundConfiguration, match="is that of another run"):
        session_keys(path, source, 5, NoiseOf("another"))
    whole, key = path.read_text(), keys.sessions[0].key.hex()
    path.write_text(whole.replace(key, f"{int(key[0], 16) ^ 1:x}" + key[1:]))
    with pytest.raises(ValueError, match="it was changed, by its hash") as refused:
        session_keys(path, source, 5)
    assert refused.value.__cause__ is None
    path.unlink()
    with pytest.raises(UnsoundConfiguration, match="lost"):
        session_keys(path, source, 5)
    path.write_text("{}")
    with pytest.raises(ValueError, match="cannot read"):
        session_keys(path, source, 5)
    with pytest.raises(UnsoundConfiguration, match="no key"):
        NoiseKeys(()).bits(0)
    with pytest.raises(TypeError, match="repeat"):
        more.bits(0).__reduce__()


def test_secure_sessions_have_keys_of_their_own():
    a, b = (new_session_key(default_generator(), 0) for _ in range(2))
    assert a.key != b.key


@pytest.mark.parametrize(
    ("changes", "error", "message"),
    [
        ({"noise": "shuffle"}, ValueError, "one of"),
        (
            {"noise": "best", "examples": None, "unit": Owners(40, examples_each=2)},
            UnsoundConfiguration,
            "about owners",
        ),
        ({"noise": 3}, TypeError, "Encoder or a name"),
        ({"noise": square_root(Workload(11))}, ValueError, "11 steps"),
        ({"noise": TreeEncoder(12).full_honaker()}, ValueError, "written-out"),
        ({"sampling": "poisson"}, UnsoundConfiguration, "fixed order"),
        ({"sampling": "best"}, ValueError, "best"),
        ({"clipping": QuantileClip(1.0)}, UnsoundConfiguration, "moves its bound"),
        ({"mixing": ModelMix(width=1.0)}, UnsoundConfiguration, "mixing|Poisson|poisson"),
        ({"noise_schedule": [(6, 1.0), (6, 2.0)]}, UnsoundConfiguration, "schedule|change"),
    ],
)
def test_what_has_no_theorem_is_refused(changes, error, message):
    with pytest.raises(error, match=message):
        planned(**changes)


def trainer(directory, generator=None, callbacks=(), every=1, optimizer=None, plan=None):
    torch.manual_seed(0)
    return PrivateTrainer(
        nn.Linear(3, 2),
        nn.CrossEntropyLoss(),
        plan or planned(),
        run_dir=directory,
        optimizer=optimizer,
        checkpoints=Checkpointing(every=every),
        logs=Logs(callbacks=list(callbacks)),
        generator=generator or SeededForExperiments(seed=5),
    )


def test_optimizers_that_look_at_one_gradient_alone_are_refused():
    with pytest.raises(UnsoundConfiguration, match="single noisy gradients"):
        trainer(None, optimizer=torch.optim.Rprop)


class KillAt(Callback):
    def __init__(self, step):
        self.step = step

    def on_step_end(self, trainer, event):
        if event.step == self.step:
            os.kill(os.getpid(), signal.SIGKILL)


# The noise for bins takes seconds to find; loops are killed with them in the usual tests.
SECRET = (
    pytest.param("cyclic_poisson", marks=pytest.mark.slow),
    "cyclic_allocation",
    pytest.param("balls_in_bins", marks=pytest.mark.slow),
)


def secret_plan(sampling):
    return None if sampling is None else planned("banded", sampling=sampling)


def run_and_die(directory, sampling):
    torch.set_num_threads(1)
    trainer(directory, callbacks=[KillAt(5)], plan=secret_plan(sampling)).fit(DATA)


@pytest.mark.parametrize("sampling", [None, *SECRET])
def test_a_killed_run_goes_on_with_the_noise_of_one_that_was_not(tmp_path, sampling):
    plan = secret_plan(sampling)
    whole = trainer(tmp_path / "whole", plan=plan)
    result = whole.fit(DATA)
    process = multiprocessing.get_context("spawn").Process(
        target=run_and_die, args=(tmp_path / "cut", sampling)
    )
    process.start()
    process.join()
    assert process.exitcode == -signal.SIGKILL
    again = trainer(tmp_path / "cut", plan=plan)
    other = again.fit(DATA)
    assert (other.steps, other.counted_steps) == (12, 12)
    for a, b in zip(whole.model.parameters(), again.model.parameters(), strict=True):
        assert torch.equal(a, b)
    assert other.loss == result.loss
    assert TrainingResult.from_json(other.to_json()) == other
    encoder = type(again.plan.encoder).__name__
    assert f"correlated over steps by {encoder}" in other.statement
    assert ("fixed public order" in other.statement) == (sampling is None)
    assert verify_statement(json.loads(other.to_json())).verdict != "refuted"
    secrets = [s["key"] for s in json.loads((tmp_path / "cut/private.noise").read_text())["keys"]]
    for path in (tmp_path / "cut").iterdir():
        if path.name != "private.noise":
            content = path.read_bytes()
            assert not any(k.encode() in content or bytes.fromhex(k) in content for k in secrets)


class Cut(Callback):
    def on_step_end(self, trainer, event):
        if event.step == 6:
            raise RuntimeError("cut")


def test_steps_that_were_seen_and_lost_are_left_out_not_repeated(tmp_path):
    with pytest.raises(RuntimeError, match="cut"):
        trainer(tmp_path, callbacks=[Cut()], every=4).fit(DATA)
    again = trainer(tmp_path, every=4)
    result = again.fit(DATA)
    assert (result.steps, result.counted_steps) == (10, 12)
    assert again.plan.loss == result.loss
    with pytest.raises(UnsoundConfiguration, match="another dataset"):
        again.fit(DATA, resume="changed_data")


def test_a_fixed_order_visits_every_example_once_per_epoch():
    order = FixedOrderSampling(steps=4)
    batches = order.batches(10)
    epochs = [[next(batches).tolist() for _ in range(4)] for _ in range(2)]
    assert epochs[0] == epochs[1]
    assert sorted(place for batch in epochs[0] for place in batch) == list(range(10))
    late = order.shares_from(6, 10, 0, 1)
    assert next(late).tolist() == epochs[0][2]
    assert order.loss(1.0, 10, 5).epsilon(1e-3) == order.loss(1.0, 10, 8).epsilon(1e-3)
    with pytest.raises(ValueError, match="whole number"):
        order.fitted(10, 0.3)
    with pytest.raises(ValueError, match="must be set"):
        FixedOrderSampling().draw(10)


def test_a_given_encoder_is_accounted_at_its_sensitivity():
    encoder = banded_toeplitz(Workload(12), bands=3)
    plan = planned(encoder, epsilon=None, noise_multiplier=4.0)
    size = sensitivity(encoder, FixedOrder(4)).value
    independent = planned(
        None, epsilon=None, noise_multiplier=4.0 / size, sampling="fixed_order", steps=4
    )
    assert plan.epsilon == pytest.approx(independent.epsilon, rel=1e-6)
    assert isinstance(plan.noise({"w": 2}), CorrelatedNoise)
    assert isinstance(independent.noise({"w": 2}), IndependentNoise)


def test_the_statement_of_a_run_is_certified_by_whoever_reads_it(tmp_path):
    trainer(tmp_path, default_generator()).fit(DATA)
    stated = json.loads((tmp_path / "result.json").read_text())
    assert verify_statement(stated).verdict == "certified"


@pytest.mark.parametrize("sampling", [None, "cyclic_allocation"])
def test_a_statement_with_another_encoder_is_refuted(tmp_path, sampling):
    plan = planned("banded", sampling=sampling)
    trainer(tmp_path, default_generator(), plan=plan).fit(DATA)
    stated = json.loads((tmp_path / "result.json").read_text())
    noise = stated["plan"]["noise"]
    for bands in ([1.0], [0.5 * band for band in noise["bands"]], [2 * b for b in noise["bands"]]):
        changed = stated | {"plan": stated["plan"] | {"noise": noise | {"bands": bands}}}
        assert verify_statement(changed).verdict == "wrong"


def test_a_run_does_not_go_on_with_the_noise_of_another(tmp_path):
    class Stop(Callback):
        def on_step_end(self, trainer, event):
            if event.step == 5:
                raise KeyboardInterrupt

    for name in ("one", "other"):
        with pytest.raises(KeyboardInterrupt):
            trainer(tmp_path / name, callbacks=[Stop()]).fit(DATA)
    shutil.copy(tmp_path / "other/private.noise", tmp_path / "one/private.noise")
    with pytest.raises(UnsoundConfiguration, match=r"private\.noise is that of another run"):
        trainer(tmp_path / "one").fit(DATA)


@pytest.mark.parametrize("directory", [True, False])
@pytest.mark.parametrize("sampling", SECRET[1:])
def test_secret_draws_outlive_a_stop_without_a_seed(tmp_path, monkeypatch, sampling, directory):
    """The theorem is about one draw: an example must not move to another step of its epoch."""
    steps, batch = {}, PrivateLoader._batch

    def noted(self, step):
        found = batch(self, step)
        steps[step] = found.indices.tolist()
        return found

    monkeypatch.setattr(PrivateLoader, "_batch", noted)
    where, plan = tmp_path if directory else None, secret_plan(sampling)
    running = trainer(where, default_generator(), [Cut()], plan=plan)
    with pytest.raises(RuntimeError, match="cut"):
        running.fit(DATA)
    before = dict(steps)
    if directory:
        running = trainer(where, default_generator(), plan=plan)
    else:
        running._callbacks.clear()
    running.fit(DATA)
    assert all(steps[step] == before[step] for step in range(6))
    for first in (0, 4, 8):
        assert sorted(p for s in range(first, first + 4) for p in steps[s]) == list(range(40))
    if sampling == "balls_in_bins":
        assert all(steps[s] == steps[s + 4] for s in range(8))


def test_whoever_reads_the_statement_of_secret_batches_certifies_it(tmp_path):
    plan = secret_plan("cyclic_allocation")
    trainer(tmp_path, default_generator(), plan=plan).fit(DATA)
    stated = json.loads((tmp_path / "result.json").read_text())
    assert verify_statement(stated).verdict == "certified"
