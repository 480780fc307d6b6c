"""The drop-in: loops stay as they are, and what would break the promise is refused or counted."""

import copy
import gc
import io
import weakref

import pytest
import torch
from torch import nn
from torch.nn import functional
from torch.utils.data import DataLoader, TensorDataset
from training.runs import (
    CLASSES,
    EXAMPLES,
    FEATURES,
    data,
    leave_out_noise,
    model,
    one_by_one,
    plan,
    private_loop,
    sgd,
    weights,
)

from taut.errors import BudgetExceeded, UnsoundConfiguration
from taut.noise import SeededForExperiments
from taut.training import (
    FixedSizeSampling,
    FlatClip,
    PoissonSampling,
    PrivateTrainer,
    RunHistory,
    RunLedger,
    make_private,
    make_private_with_epsilon,
)
from taut.training._step.recorded_passes import RecordedPasses


@pytest.fixture
def without_noise(monkeypatch):
    leave_out_noise(monkeypatch)


def seeded(seed=3):
    return SeededForExperiments(seed=seed)


def private(net=None, *, batch_size=12, dataset=None, **options):
    net = model() if net is None else net
    settings = {
        "noise_multiplier": 1.0,
        "max_grad_norm": 0.5,
        "optimizer": sgd(net),
        "noise_generator": seeded(11),
    }
    loader = DataLoader(dataset or data(), batch_size=batch_size, shuffle=True)
    return make_private(module=net, data_loader=loader, **(settings | options))


def one_step(net, optimizer, x, y):
    optimizer.zero_grad()
    functional.cross_entropy(net(x), y).backward()
    optimizer.step()


# --- equal to the trainer and to the slow way ----------------------------------------------------


@pytest.mark.usefixtures("without_noise")
@pytest.mark.parametrize("most", [None, 4])
@pytest.mark.parametrize(
    "make",
    [sgd, lambda net: sgd(net, momentum=0.9), lambda net: torch.optim.Adam(net.parameters())],
    ids=["sgd", "momentum", "adam"],
)
def test_without_noise_as_one_example_at_a_time(make, most):
    fast, slow = model(), model()
    private_loop(fast, make(fast), data(), noise_generator=seeded(), max_physical_batch_size=most)
    one_by_one(slow, make(slow), data(), plan(steps=5), seed=3)
    assert torch.allclose(weights(fast), weights(slow), atol=1e-5)
    assert not torch.allclose(weights(fast), weights(model()), atol=1e-3)


def test_as_the_trainer_noise_included():
    by_loop, by_trainer = model(), model()
    private_loop(by_loop, sgd(by_loop), data(), noise_generator=seeded())
    PrivateTrainer(
        by_trainer, nn.CrossEntropyLoss(), plan(steps=5), optimizer=sgd(by_trainer),
        generator=seeded(),
    ).fit(data())  # fmt: skip
    assert torch.allclose(weights(by_loop), weights(by_trainer), atol=1e-5)


@pytest.mark.usefixtures("without_noise")
def test_without_noise_and_clipping_as_plain_sgd():
    fast, slow = model(), model()
    net, optimizer, loader = private(
        fast, batch_size=EXAMPLES, max_grad_norm=1e6, poisson_sampling=False
    )
    plain = sgd(slow)
    inputs, labels = data().tensors
    for _ in range(4):
        for x, y in loader:
            one_step(net, optimizer, x, y)
        one_step(slow, plain, inputs, labels)
    assert torch.allclose(weights(fast), weights(slow), atol=1e-5)


def test_sums_of_losses_give_sums_of_gradients():
    means, sums = model(), model()
    private_loop(means, sgd(means), data(), noise_generator=seeded())
    private_loop(
        sums, sgd(sums, lr=0.5 / 12), data(), noise_generator=seeded(), loss_reduction="sum"
    )
    assert torch.allclose(weights(means), weights(sums), atol=1e-5)


def test_second_backward_pass_of_one_call_is_refused():
    net, _, loader = private(noise_generator=seeded())
    x, y = next(iter(loader))
    loss = functional.cross_entropy(net(x), y)
    loss.backward(retain_graph=True)
    with pytest.raises(UnsoundConfiguration, match="add the losses up"):
        loss.backward()


def test_noise_is_drawn_once_for_each_logical_batch(monkeypatch):
    draws = []
    monkeypatch.setattr(
        "taut.training._tensors.normal.fill_normal",
        lambda *arguments: draws.append(arguments),
    )
    net = model()
    optimizer = private_loop(net, sgd(net), data(), max_physical_batch_size=2)
    assert len(draws) == optimizer.ledger.steps == 5


def test_nothing_is_kept_of_parts_but_their_sum():
    net, optimizer, loader = private(max_physical_batch_size=2)
    seen = []
    for x, y in loader:
        seen.append(weakref.ref(x))
        one_step(net, optimizer, x, y)
        assert optimizer._gradient.tape.is_empty
        assert [ref() for ref in seen[:-1]] == [None] * (len(seen) - 1)
    assert len(seen) > 5


def test_schedulers_drive_the_learning_rate():
    net, optimizer, loader = private()
    scheduler = torch.optim.lr_scheduler.StepLR(optimizer, 1, gamma=0.5)
    for x, y in loader:
        one_step(net, optimizer, x, y)
        scheduler.step()
    assert optimizer.inner.param_groups[0]["lr"] == pytest.approx(0.5 * 0.5**5)
    assert scheduler.get_last_lr() == [optimizer.param_groups[0]["lr"]]


def test_modules_stay_themselves():
    original = model()
    keys, forward = list(original.state_dict()), type(original).forward
    net, optimizer, loader = private(original)
    assert net is original
    for x, y in loader:
        one_step(net, optimizer, x, y)
    assert list(net.state_dict()) == keys
    assert type(net).forward is forward
    optimizer.remove()
    assert not net._forward_hooks
    assert not net._forward_pre_hooks
    with pytest.raises(UnsoundConfiguration, match="removed"):
        optimizer.step()
    private(net)  # it can be made private again


def test_evaluation_within_the_loop_is_left_alone():
    net, optimizer, loader = private()
    for x, y in loader:
        one_step(net, optimizer, x, y)
        net.eval()
        with torch.no_grad():
            net(x)
        net.train()
        with torch.no_grad():
            net(x)
        net(x)  # in training mode, without a backward pass
    assert optimizer.ledger.steps == 5


def test_empty_batches_never_get_to_the_loop():
    net, optimizer, loader = private(batch_size=1)
    seen = []
    for x, y in loader:
        seen.append(len(x))
        one_step(net, optimizer, x, y)
    assert min(seen) > 0
    assert len(seen) < optimizer.ledger.steps == len(loader) == EXAMPLES


def test_step_of_noise_moves_the_weights(monkeypatch):
    monkeypatch.setattr(PoissonSampling, "draw", lambda *_: torch.empty(0, dtype=int).numpy())
    net, optimizer, loader = private()
    before = weights(net)
    assert list(loader) == []
    assert optimizer.ledger.steps == 5
    assert not torch.equal(weights(net), before)


# --- what it costs -------------------------------------------------------------------------------


def test_epsilon_is_that_of_the_steps():
    net = model()
    optimizer = private_loop(net, sgd(net), data(), passes=3)
    expected = plan(steps=15).loss
    assert optimizer.loss == expected
    assert optimizer.get_epsilon(1e-3) == pytest.approx(expected.epsilon(1e-3))
    bounds = optimizer.epsilon_bounds(1e-3)
    assert bounds.lower <= optimizer.get_epsilon(1e-3) <= bounds.upper * (1 + 1e-9)


def test_batches_of_fixed_size_have_their_own_bound():
    net, optimizer, loader = private(poisson_sampling=False)
    for x, y in loader:
        assert len(x) == 12
        one_step(net, optimizer, x, y)
    assert str(optimizer.loss.adjacency) == "replace"
    assert optimizer.loss == plan(steps=5, sampling=FixedSizeSampling()).loss
    assert optimizer.loss != plan(steps=5).loss


@pytest.mark.parametrize(("drop_last", "steps"), [(True, 4), (False, 5)])
def test_passes_of_fixed_size_are_as_long_as_those_of_the_loader(drop_last, steps):
    net = model()
    _, optimizer, loader = make_private_with_epsilon(
        module=net,
        optimizer=sgd(net),
        data_loader=DataLoader(data(), batch_size=13, drop_last=drop_last),
        target_epsilon=3.0,
        target_delta=1e-3,
        epochs=2,
        max_grad_norm=1.0,
        poisson_sampling=False,
    )
    assert len(loader) == steps
    assert optimizer.plan.steps == 2 * steps


def test_promise_is_kept_and_further_passes_refused():
    net = model()
    net, optimizer, loader = make_private_with_epsilon(
        module=net,
        optimizer=sgd(net),
        data_loader=DataLoader(data(), batch_size=12),
        target_epsilon=3.0,
        target_delta=1e-3,
        epochs=2,
        max_grad_norm=1.0,
    )
    for _ in range(2):
        for x, y in loader:
            one_step(net, optimizer, x, y)
    assert 2.9 < optimizer.get_epsilon(1e-3) <= 3.0
    with pytest.raises(BudgetExceeded, match="all 10 steps"):
        next(iter(loader))


def test_ledger_in_a_file_counts_runs_together(tmp_path):
    for _ in range(2):
        net = model()
        optimizer = private_loop(net, sgd(net), data(), ledger=tmp_path / "steps.jsonl")
        optimizer.ledger.close()
    assert optimizer.ledger.steps == 10


def test_ledger_of_steps_at_another_price_is_refused():
    with pytest.raises(UnsoundConfiguration, match="another cost"):
        private(ledger=RunLedger(None, plan(noise_multiplier=2.0)))
    ledger = RunLedger(None, plan())
    assert private(ledger=ledger)[1].ledger is ledger


def test_old_states_count_again():
    net = model()
    optimizer = private_loop(net, sgd(net, momentum=0.9), data())
    state = copy.deepcopy(optimizer.state_dict())
    optimizer.load_state_dict(state)
    assert optimizer.ledger.steps == 5  # what was taken stays taken, and is not taken twice
    _, fresh, loader = private(again := model(), optimizer=sgd(again, momentum=0.9))
    fresh.load_state_dict(state)
    assert fresh.ledger.steps == 5
    for x, y in loader:
        one_step(again, fresh, x, y)
    fresh.load_state_dict(state)  # back to the old state for the second time
    assert fresh.ledger.steps == 10
    _, other, _ = private(noise_multiplier=2.0)
    with pytest.raises(UnsoundConfiguration, match="cost something else"):
        other.load_state_dict(state)


def test_states_of_other_runs_are_counted_in_files_too(tmp_path):
    net = model()
    first = private_loop(net, sgd(net), data(), passes=2)
    state = copy.deepcopy(first.state_dict())
    path = tmp_path / "steps.jsonl"
    _, second, loader = private(again := model(), ledger=path)
    second.load_state_dict(state)
    assert second.ledger.steps == 10
    for x, y in loader:
        one_step(again, second, x, y)
    later = copy.deepcopy(second.state_dict())
    second.load_state_dict(state)
    assert second.ledger.steps == 15
    second.ledger.close()
    assert RunHistory.read(path).steps == 15
    _, third, _ = private(ledger=path)  # the same ledger: all of this is known
    third.load_state_dict(later)
    assert third.ledger.steps == 15
    third.ledger.close()
    net = model()
    fourth = private_loop(net, sgd(net), data())  # steps of its own, and the weights of others
    fourth.load_state_dict(later)
    assert fourth.ledger.steps == 20
    assert fourth.get_epsilon(1e-3) == plan(steps=20).loss.epsilon(1e-3)


# --- refusals ------------------------------------------------------------------------------------


def test_batches_of_another_loader_are_refused():
    net, optimizer, loader = private()
    own = DataLoader(data(), batch_size=12, shuffle=True)
    x, y = next(iter(own))
    with pytest.raises(UnsoundConfiguration, match="private loader"):
        one_step(net, optimizer, x, y)
    net, optimizer, loader = private()
    x, y = next(iter(loader))
    one_step(net, optimizer, x, y)
    before = weights(net)
    with pytest.raises(UnsoundConfiguration, match="private loader"):
        one_step(net, optimizer, x, y)
    assert torch.equal(weights(net), before)


def test_step_without_backward_is_refused():
    net, optimizer, loader = private()
    for x, _ in loader:
        net(x)
        with pytest.raises(UnsoundConfiguration, match="no gradients of examples"):
            optimizer.step()
        break


def test_pass_in_evaluation_mode_is_refused():
    net, optimizer, loader = private()
    net.eval()
    x, y = next(iter(loader))
    with pytest.raises(UnsoundConfiguration, match="training mode"):
        one_step(net, optimizer, x, y)


def test_batch_that_goes_through_twice_is_refused():
    net, optimizer, loader = private()
    x, y = next(iter(loader))
    functional.cross_entropy(net(x), y).backward()
    functional.cross_entropy(net(x), y).backward()
    with pytest.raises(UnsoundConfiguration, match="count twice"):
        optimizer.step()


def test_part_of_a_batch_is_refused():
    net, optimizer, loader = private(noise_generator=seeded())
    x, y = next(iter(loader))
    with pytest.raises(UnsoundConfiguration, match="examples"):
        one_step(net, optimizer, x[1:], y[1:])


def test_skipped_batch_is_refused():
    net, _, loader = private()
    batches = iter(loader)
    x, y = next(batches)
    functional.cross_entropy(net(x), y).backward()
    with pytest.raises(UnsoundConfiguration, match="skipped"):
        next(batches)


def test_batch_that_was_left_off_is_a_step_of_noise(monkeypatch):
    leave_out_noise(monkeypatch)
    net, optimizer, loader = private(max_physical_batch_size=3, noise_generator=seeded())
    x, y = next(iter(loader))
    one_step(net, optimizer, x, y)  # only the first part
    before = weights(net)
    monkeypatch.setattr(PoissonSampling, "draw", lambda *_: torch.empty(0, dtype=int).numpy())
    assert list(loader) == []
    assert torch.equal(weights(net), before)
    assert optimizer.ledger.steps == 1 + 5


def test_batches_cannot_be_drawn_until_one_is_liked():
    net, optimizer, loader = private(noise_generator=seeded())
    for x, y in loader:
        one_step(net, optimizer, x, y)
        break  # after a step, as good as any other end
    x, y = next(iter(loader))
    with pytest.raises(UnsoundConfiguration, match="stop after a step"):
        next(iter(loader))
    one_step(net, optimizer, x, y)
    next(iter(loader))
    assert optimizer.ledger.steps == 2


def test_step_that_failed_is_still_due(monkeypatch):
    net, optimizer, loader = private(noise_generator=seeded())
    batches = iter(loader)
    x, y = next(batches)
    with monkeypatch.context() as broken:
        broken.setattr(optimizer.ledger, "record", None)
        with pytest.raises(TypeError):
            one_step(net, optimizer, x, y)
    with pytest.raises(UnsoundConfiguration, match="skipped"):
        next(batches)  # its gradients must not be added to those of the last batch
    optimizer.step()
    next(iter(loader))
    assert optimizer.ledger.steps == 1


def test_summing_over_batches_is_refused_with_the_way_out():
    net, _, loader = private(noise_generator=seeded())
    batches = iter(loader)
    x, y = next(batches)
    functional.cross_entropy(net(x), y).backward()
    with pytest.raises(UnsoundConfiguration, match="max_physical_batch_size"):
        next(batches)


def test_examples_without_finite_gradients_are_counted(caplog):
    inputs, labels = data().tensors
    inputs = inputs.clone()
    inputs[7] = torch.nan
    net, optimizer, loader = private(
        dataset=TensorDataset(inputs, labels), batch_size=60, poisson_sampling=False
    )
    for _ in range(3):
        for x, y in loader:
            one_step(net, optimizer, x, y)
    assert optimizer.dropped_examples == 3
    assert weights(net).isfinite().all()
    assert [record.levelname for record in caplog.records] == ["WARNING"]
    assert "do not publish it" in caplog.text


def test_swapped_sampler_is_refused():
    net, optimizer, loader = private()
    loader.sampling = PoissonSampling(rate=0.9)
    x, y = next(iter(loader))
    with pytest.raises(UnsoundConfiguration, match="accounts for"):
        one_step(net, optimizer, x, y)
    assert optimizer.ledger.steps == 0


def test_added_parameters_are_refused():
    net, optimizer, loader = private()
    extra = nn.Parameter(torch.ones(2))
    with pytest.raises(UnsoundConfiguration, match="cannot be added"):
        optimizer.add_param_group({"params": [extra]})
    optimizer.inner.add_param_group({"params": [extra]})
    x, y = next(iter(loader))
    with pytest.raises(UnsoundConfiguration, match="not the model's"):
        one_step(net, optimizer, x, y)


@pytest.mark.parametrize("at_first", [True, False])
def test_toggled_parameters_are_refused(at_first):
    net = model()
    net[0].requires_grad_(at_first)
    net, optimizer, loader = private(net)
    net[0].requires_grad_(not at_first)
    x, y = next(iter(loader))
    with pytest.raises(UnsoundConfiguration, match=r"0\.weight|trainable after"):
        one_step(net, optimizer, x, y)
    assert optimizer.ledger.steps == 0


def test_penalty_on_weights_is_refused():
    net, optimizer, loader = private()
    x, y = next(iter(loader))
    (functional.cross_entropy(net(x), y) + net[0].weight.square().sum()).backward()
    with pytest.raises(UnsoundConfiguration, match="weight_decay"):
        optimizer.step()


class Mixing(nn.Module):
    def __init__(self):
        super().__init__()
        self.layer = nn.Linear(FEATURES, CLASSES)

    def forward(self, x):
        return self.layer(x - x.mean(0))


def test_models_that_mix_examples_are_refused():
    net, optimizer, loader = private(Mixing())
    x, y = next(iter(loader))
    with pytest.raises(UnsoundConfiguration, match="other examples"):
        one_step(net, optimizer, x, y)


def test_batchnorm_is_refused():
    with pytest.raises(UnsoundConfiguration, match="replace_batchnorm"):
        private(nn.Sequential(nn.Linear(FEATURES, 4), nn.BatchNorm1d(4), nn.Linear(4, CLASSES)))


def test_forward_that_fails_leaves_the_model_usable():
    net, optimizer, loader = private()
    for x, y in loader:
        with pytest.raises(RuntimeError):
            net(torch.ones(3, FEATURES + 1))
        assert all(p.requires_grad for p in net.parameters())
        one_step(net, optimizer, x, y)
    assert optimizer.ledger.steps == 5


def test_closures_run_once():
    first, second = (private(noise_generator=seeded()) for _ in range(2))
    calls = []

    def closure(net, x, y):
        calls.append(len(x))
        loss = nn.functional.cross_entropy(net(x), y)
        loss.backward()
        return loss

    net, optimizer, loader = first
    for x, y in loader:
        assert optimizer.step(lambda x=x, y=y: closure(net, x, y)).requires_grad
    other, optimizer, loader = second
    for x, y in loader:
        closure(other, x, y)
        optimizer.step()
    assert len(calls) == 2 * 5
    for one, same in zip(net.parameters(), other.parameters(), strict=True):
        assert torch.equal(one, same)


def test_copies_are_refused():
    _, optimizer, _ = private()
    with pytest.raises(TypeError, match="copied"):
        copy.deepcopy(optimizer)


@pytest.mark.parametrize("how", ["file", "deepcopy"])
def test_copies_of_the_module_are_ordinary_and_hold_nothing_private(how):
    net, optimizer, loader = private(max_physical_batch_size=3, noise_generator=seeded())
    x, y = next(iter(loader))
    one_step(net, optimizer, x, y)  # a sum without noise is kept now
    if how == "file":
        torch.save(net, file := io.BytesIO())
        assert b"PrivateGradient" not in file.getvalue()
        file.seek(0)
        copied = torch.load(file, weights_only=False)
    else:
        copied = copy.deepcopy(net)
    for hook in [*copied._forward_pre_hooks.values(), *copied._forward_hooks.values()]:
        assert hook(copied, (), None) is None
        assert not any(isinstance(x, RecordedPasses) for x in gc.get_referents(hook, hook._call))
    plain = model()
    plain.load_state_dict(net.state_dict())
    for trained in (copied, plain):
        for _ in range(2):
            trained.zero_grad()
            functional.cross_entropy(trained(x), y).backward()
    assert torch.equal(copied[0].weight.grad, plain[0].weight.grad)
    assert len(net._forward_hooks) == 1
    optimizer.remove()
    assert not net._forward_hooks


def test_clipping_by_its_name_elsewhere():
    assert private(clipping="flat")[1].plan.clipping == FlatClip(0.5)


def test_generators_of_torch_are_refused():
    with pytest.raises(TypeError, match="SeededForExperiments"):
        private(noise_generator=torch.Generator())


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ({"max_grad_norm": None}, "either max_grad_norm or clipping"),
        ({"clipping": FlatClip(1.0)}, "either max_grad_norm or clipping"),
        ({"clipping": 1.0}, "either max_grad_norm or clipping"),
        ({"clipping": 1.0, "max_grad_norm": None}, "must be a Clipping"),
        ({"clipping": "per layer"}, "clipping='flat' and max_grad_norm"),
        ({"clipping": "flat", "max_grad_norm": None}, "max_grad_norm"),
        ({"loss_reduction": "none"}, "loss_reduction must be"),
        ({"noise_multiplier": 0.0}, "noise_multiplier must be"),
        ({"batch_size": 61, "poisson_sampling": False}, "at most"),
    ],
)
def test_arguments_that_make_no_sense(options, message):
    with pytest.raises(ValueError, match=message):
        private(**options)


def test_private_twice_is_refused():
    net, _, _ = private()
    with pytest.raises(UnsoundConfiguration, match="already private"):
        private(net)
    with pytest.raises(UnsoundConfiguration, match="already private"):
        PrivateTrainer(net, nn.CrossEntropyLoss(), plan())


def test_weighted_samplers_are_refused():
    net = model()
    sampler = torch.utils.data.WeightedRandomSampler(torch.ones(EXAMPLES), 60)
    with pytest.raises(UnsoundConfiguration, match="its own way"):
        make_private(
            module=net,
            optimizer=sgd(net),
            data_loader=DataLoader(data(), batch_size=12, sampler=sampler),
            noise_multiplier=1.0,
            max_grad_norm=1.0,
        )


def test_models_with_several_inputs_and_outputs():
    class Pair(nn.Module):
        def __init__(self):
            super().__init__()
            self.left, self.right = nn.Linear(FEATURES, CLASSES), nn.Linear(2, CLASSES)

        def forward(self, x, *, z):
            return {"sum": self.left(x) + self.right(z), "left": self.left(x)}

    inputs, labels = data().tensors
    dataset = TensorDataset(inputs, inputs[:, :2], labels)

    def criterion(outputs, labels):
        own = functional.cross_entropy(outputs["sum"], labels, reduction="none")
        return own + outputs["left"].square().mean(1)

    net, optimizer, loader = private(Pair(), dataset=dataset, criterion=criterion)
    for x, z, y in loader:
        criterion(net(x, z=z), y).mean().backward()
        optimizer.step()
    assert optimizer.ledger.steps == 5


def test_models_with_dropout():
    net, optimizer, loader = private(nn.Sequential(nn.Dropout(0.3), model()))
    for x, y in loader:
        one_step(net, optimizer, x, y)
    assert optimizer.ledger.steps == len(loader)


@pytest.mark.parametrize("unscales", [False, True])
def test_scaled_losses_are_refused_with_words(unscales):
    net, optimizer, loader = private(unchecked_isolation=True)
    scaler = torch.amp.GradScaler("cpu")
    x, y = next(iter(loader))
    scaler.scale(functional.cross_entropy(net(x), y)).backward()
    if unscales:
        scaler.unscale_(optimizer)
    with pytest.raises(UnsoundConfiguration, match="use bfloat16"):
        scaler.step(optimizer)
