"""Training as a plan says: equal to the slow way, refused where it cannot be private."""

import csv
import json
import math
import re
from contextlib import nullcontext
from functools import partial

import pytest
import torch
from torch import nn
from torch.nn import functional
from torch.utils.data import DataLoader, IterableDataset, TensorDataset
from training.runs import (
    CLASSES,
    FEATURES,
    data,
    leave_out_noise,
    model,
    one_by_one,
    plan,
    sgd,
    weights,
)

from taut.errors import BudgetExceeded, UnsoundConfiguration
from taut.noise import SeededForExperiments
from taut.training import (
    Callback,
    CSVLog,
    FixedSizeSampling,
    FlatClip,
    Loading,
    Logs,
    Plan,
    PrivateLoader,
    PrivateTrainer,
    TensorBoardLog,
    TrainingResult,
)
from taut.training._data.batches import check_finite

LOSS = nn.CrossEntropyLoss(reduction="none")


@pytest.fixture
def without_noise(monkeypatch):
    leave_out_noise(monkeypatch)


def trained(net, a_plan, *, loss=LOSS, seed=3, **options):
    options.setdefault("optimizer", sgd(net))
    trainer = PrivateTrainer(
        net, loss, a_plan, generator=SeededForExperiments(seed=seed), **options
    )
    return trainer, trainer.fit(data())


# --- equal to the slow way -----------------------------------------------------------------------


@pytest.mark.usefixtures("without_noise")
@pytest.mark.parametrize("backend", ["bookkeeping", "materialised"])
@pytest.mark.parametrize(
    "make",
    [sgd, lambda net: sgd(net, momentum=0.9), lambda net: torch.optim.Adam(net.parameters())],
    ids=["sgd", "momentum", "adam"],
)
def test_without_noise_as_one_example_at_a_time(make, backend):
    fast, slow, a_plan = model(), model(), plan()
    trained(fast, a_plan, optimizer=make(fast), backend=backend)
    one_by_one(slow, make(slow), data(), a_plan, seed=3)
    assert torch.allclose(weights(fast), weights(slow), atol=1e-5)
    assert not torch.allclose(weights(fast), weights(model()), atol=1e-3)


@pytest.mark.usefixtures("without_noise")
def test_without_noise_and_clipping_as_plain_sgd():
    a_plan = plan(sampling=FixedSizeSampling(), batch_size=60, clipping=FlatClip(1e6))
    fast, slow = model(), model()
    trained(fast, a_plan)
    optimizer = sgd(slow)
    inputs, labels = data().tensors
    for _ in range(a_plan.steps):
        optimizer.zero_grad()
        functional.cross_entropy(slow(inputs), labels).backward()
        optimizer.step()
    assert torch.allclose(weights(fast), weights(slow), atol=1e-5)


@pytest.mark.parametrize("most", [1, 5, 7])
def test_physical_batches_change_nothing_noise_included(most):
    whole, parts = model(), model()
    trained(whole, plan())
    trained(parts, plan(), loading=Loading(max_physical_batch_size=most))
    assert torch.allclose(weights(whole), weights(parts), atol=1e-5)


@pytest.mark.parametrize(
    "loss",
    [
        nn.CrossEntropyLoss(),
        nn.CrossEntropyLoss(reduction="sum"),
        functional.cross_entropy,
        lambda outputs, labels: functional.cross_entropy(outputs, labels),
        lambda outputs, labels: functional.cross_entropy(outputs, labels, reduction="sum"),
        lambda outputs, labels: functional.cross_entropy(outputs, labels, reduction="none"),
        lambda outputs, labels: sum(  # a loop that cannot be vectorised
            -outputs[i].log_softmax(0)[int(label)] for i, label in enumerate(labels)
        ),
    ],
    ids=["mean", "sum", "function", "lambda mean", "lambda sum", "lambda none", "python loop"],
)
def test_reduced_losses_are_understood(loss):
    expected, found = model(), model()
    trained(expected, plan())
    trained(found, plan(), loss=loss, backend="bookkeeping")
    assert torch.allclose(weights(found), weights(expected), atol=1e-5)


@pytest.mark.parametrize(
    ("reduced", "single"),
    [
        (nn.MSELoss(), lambda o, t: (o - t).square().mean(1)),
        (nn.MSELoss(reduction="sum"), lambda o, t: (o - t).square().sum(1)),
        (
            nn.KLDivLoss(reduction="batchmean"),
            lambda o, t: nn.KLDivLoss(reduction="none")(o, t).sum(1),
        ),
    ],
    ids=["mean of squares", "sum of squares", "divergence"],
)
def test_losses_over_several_outputs(reduced, single):
    inputs, targets = torch.randn(60, FEATURES), torch.randn(60, CLASSES).softmax(1)
    nets = model(), model()
    for net, loss in zip(nets, (reduced, single), strict=True):
        bits = SeededForExperiments(seed=1)
        PrivateTrainer(net, loss, plan(), generator=bits).fit(TensorDataset(inputs, targets))
    assert torch.allclose(weights(nets[0]), weights(nets[1]), atol=1e-6)


def test_scheduler_is_advanced_every_step():
    net = model()
    trainer, _ = trained(
        net, plan(), scheduler=lambda opt: torch.optim.lr_scheduler.StepLR(opt, 2, gamma=0.1)
    )
    assert trainer.optimizer.param_groups[0]["lr"] == pytest.approx(0.5e-3)


def test_average_of_weights():
    net, seen = model(), []

    class Keep(Callback):
        def on_step_end(self, trainer, event):
            seen.append(weights(trainer.model))

    trainer, _ = trained(net, plan(), ema=0.9, logs=Logs(callbacks=[Keep()]))
    average = weights(model())
    for t, value in enumerate(seen):
        decay = min(0.9, (1 + t) / (10 + t))
        average = decay * average + (1 - decay) * value
    last = weights(net)
    with trainer.averaged() as averaged:
        assert torch.allclose(weights(averaged), average, atol=1e-6)
    assert torch.equal(weights(net), last)


# --- what a run says and promises ----------------------------------------------------------------


def test_result_is_what_the_plan_costs():
    a_plan = plan()
    _, result = trained(model(), a_plan)
    assert (result.steps, result.counted_steps, result.stopped_at_budget) == (6, 6, False)
    assert result.loss == a_plan.loss
    assert result.epsilon.upper == pytest.approx(a_plan.epsilon)
    assert (result.delta, str(result.adjacency), result.sampler) == (1e-3, "add_remove", "poisson")
    again = TrainingResult.from_json(result.to_json())
    assert again == result
    assert "experiment" in result.statement  # it was seeded
    stated = re.search(r"certified (\S+) <= epsilon <= (\S+) at", result.statement)
    below, above = map(float, stated.groups())
    assert below <= result.epsilon.lower <= result.epsilon.upper <= above  # rounded to be true
    assert above == pytest.approx(result.epsilon.upper, rel=1e-5)


def test_secure_run_does_not_speak_of_experiments():
    result = PrivateTrainer(model(), LOSS, plan()).fit(data())
    assert result.is_secure
    assert "experiment" not in str(result)


@pytest.mark.parametrize("text", ["{}", "[1]", "no", '{"schema": "taut.training-result/1"}'])
def test_malformed_result_is_refused(text):
    with pytest.raises(ValueError, match=r"result|JSON"):
        TrainingResult.from_json(text)


def test_result_with_the_loss_of_another_run_is_refused():
    _, result = trained(model(), plan())
    described = result.to_dict() | {"loss": plan(noise_multiplier=5.0).loss.to_dict()}
    with pytest.raises(UnsoundConfiguration, match="changed by hand"):
        TrainingResult.from_dict(described)


def test_empty_batches_are_steps_of_noise():
    net, losses = model(), []

    class Keep(Callback):
        def on_step_end(self, trainer, event):
            losses.append((event.private_loss, weights(trainer.model)))

    trained(net, plan(batch_size=1, steps=20), logs=Logs(callbacks=[Keep()]))
    empty = [i for i, (loss, _) in enumerate(losses) if loss is None]
    assert empty
    for i in empty[1:]:
        assert not torch.equal(losses[i][1], losses[i - 1][1])


def test_noise_is_drawn_once_for_each_logical_batch(monkeypatch):
    draws = []
    monkeypatch.setattr(
        "taut.training._tensors.normal.fill_normal", lambda _, scale, __: draws.append(scale)
    )
    trained(model(), plan(), loading=Loading(max_physical_batch_size=2))
    assert len(draws) == 6
    # One standard deviation of the sum over the expected batch size, whatever the batch holds.
    assert draws == [pytest.approx(0.5 * 1.0 / 12, rel=1e-3)] * 6


def test_update_divides_by_the_expected_batch_size(monkeypatch):
    leave_out_noise(monkeypatch)
    gradients = []

    class Keep(Callback):
        def on_step_end(self, trainer, event):
            gradients.append(torch.cat([p.grad.flatten() for p in trainer.model.parameters()]))

    # The same example 60 times: a batch of k gives k times its clipped gradient, over 12.
    dataset = TensorDataset(torch.ones(60, FEATURES), torch.zeros(60, dtype=torch.int64))
    net = model()
    trainer = PrivateTrainer(
        net, LOSS, plan(), optimizer=sgd(net, lr=1e-9), logs=Logs(callbacks=[Keep()]),
        generator=SeededForExperiments(seed=3),
    )  # fmt: skip
    trainer.fit(dataset)
    counts = torch.stack(gradients).norm(dim=1) * 12 / 0.5
    assert torch.allclose(counts, counts.round(), atol=1e-2)
    assert len(counts.round().unique()) > 1


def test_callbacks_hear_of_steps_epochs_and_the_end(tmp_path):
    heard = []

    class Listen(Callback):
        def on_step_end(self, trainer, event):
            heard.append(("step", event.step))

        def on_epoch_end(self, trainer, event):
            heard.append(("epoch", event.epoch))

        def on_fit_end(self, trainer, result):
            heard.append(("end", result.steps))

    log = CSVLog(tmp_path / "steps.csv", every=2)
    trained(model(), plan(), logs=Logs(callbacks=[Listen(), log]))
    assert heard[4:7] == [("step", 5), ("epoch", 1.0), ("step", 6)]
    assert heard[-1] == ("end", 6)
    rows = list(csv.DictReader((tmp_path / "steps.csv").read_text().splitlines()))
    assert [row["step"] for row in rows] == ["2", "4", "6"]
    assert float(rows[-1]["epsilon"]) == pytest.approx(plan().epsilon)
    assert rows[0].keys() == {"step", "counted", "epoch", "epsilon"}


def test_epsilon_is_logged_for_tensorboard(tmp_path):
    from tensorboard.backend.event_processing.event_accumulator import EventAccumulator

    trained(model(), plan(), logs=Logs(callbacks=[TensorBoardLog(tmp_path, every=2)]))
    board = EventAccumulator(str(tmp_path)).Reload()
    assert board.Tags()["scalars"] == ["privacy/epsilon"]
    points = board.Scalars("privacy/epsilon")
    assert [point.step for point in points] == [2, 4, 6]
    assert points[-1].value == pytest.approx(plan().epsilon, rel=1e-6)


def test_run_files_hold_no_private_loss_unless_asked(tmp_path):
    trained(model(), plan(), run_dir=tmp_path / "quiet")
    names = {path.name for path in (tmp_path / "quiet").iterdir()}
    assert names == {"plan.json", "ledger.jsonl", "private.key", "checkpoint.pt", "result.json"}
    result = json.loads((tmp_path / "quiet" / "result.json").read_text())
    assert result["epsilon"]["upper"] == pytest.approx(plan().epsilon)
    trained(model(), plan(), run_dir=tmp_path / "open", logs=Logs(private_metrics=True))
    assert "private_loss" in (tmp_path / "open" / "private.csv").read_text()
    with pytest.raises(ValueError, match="needs a run_dir"):
        trained(model(), plan(), logs=Logs(private_metrics=True))


def test_evaluation_counts_right_answers():
    net = model()
    trainer, _ = trained(net, plan(), ema=0.9)
    inputs, labels = data().tensors
    for averaged in (True, False):
        found = trainer.evaluate(data(), averaged=averaged, batch_size=7)
        with trainer.averaged() if averaged else nullcontext(), torch.no_grad():
            outputs = net(inputs)
        assert found.accuracy == pytest.approx(float((outputs.argmax(1) == labels).float().mean()))
        assert found.loss == pytest.approx(float(functional.cross_entropy(outputs, labels)))
        assert found.examples == 60
    assert net.training
    with pytest.raises(ValueError, match="ema="):
        trained(model(), plan())[0].averaged().__enter__()


def test_training_learns():
    net = model()
    dataset = data(examples=2000)
    a_plan = Plan(
        examples=2000, batch_size=200, epochs=10, epsilon=4, delta=1e-4, clipping=FlatClip(1.0)
    )
    trainer = PrivateTrainer(
        net, LOSS, a_plan, optimizer=sgd(net, lr=1.0), generator=SeededForExperiments(seed=3)
    )
    trainer.fit(dataset)
    held_out = TensorDataset(*(t[1000:] for t in data(examples=2000).tensors))
    assert trainer.evaluate(held_out).accuracy > 0.8


# --- refusals ------------------------------------------------------------------------------------


def test_second_fit_is_refused():
    trainer, _ = trained(model(), plan())
    with pytest.raises(BudgetExceeded, match="all 6 steps"):
        trainer.fit(data())


def test_a_check_changes_nothing(tmp_path):
    checked, plain = model(), model()
    before = weights(checked).clone()
    runs = [
        PrivateTrainer(
            net, LOSS, plan(), run_dir=tmp_path / name, generator=SeededForExperiments(seed=3)
        )
        for net, name in ((checked, "checked"), (plain, "plain"))
    ]
    runs[0].check(data())
    assert torch.equal(weights(checked), before)
    assert all(parameter.grad is None for parameter in checked.parameters())
    assert runs[0].ledger is None
    assert not (tmp_path / "checked").exists()
    for run in runs:
        assert run.fit(data()).counted_steps == 6
    assert torch.equal(weights(checked), weights(plain))


def test_a_check_finds_what_the_first_step_would():
    class Mixing(nn.Linear):
        def forward(self, x):
            return super().forward(x) + super().forward(x.flip(0))

    with pytest.raises(UnsoundConfiguration, match="gradient of an example"):
        PrivateTrainer(Mixing(5, 3), LOSS, plan()).check(data())
    inputs, labels = data().tensors
    with pytest.raises(ValueError, match="NaN or infinite"):
        PrivateTrainer(model(), LOSS, plan(batch_size=60)).check(
            TensorDataset(inputs.index_fill(0, torch.tensor([7]), torch.nan), labels)
        )


def test_lbfgs_is_refused():
    net = model()
    with pytest.raises(UnsoundConfiguration, match="several times"):
        PrivateTrainer(net, LOSS, plan(), optimizer=torch.optim.LBFGS(net.parameters()))


def test_optimizers_of_other_parameters_are_refused():
    net = model()
    other = torch.optim.SGD([*net.parameters(), nn.Parameter(torch.ones(2))], lr=0.1)
    with pytest.raises(UnsoundConfiguration, match="not the model's"):
        PrivateTrainer(net, LOSS, plan(), optimizer=other)
    with pytest.raises(UnsoundConfiguration, match=r"lacks the trainable parameter '0\.weight'"):
        PrivateTrainer(net, LOSS, plan(), optimizer=torch.optim.SGD(net[2].parameters(), lr=0.1))
    with pytest.raises(TypeError, match="parameter groups"):
        PrivateTrainer(net, LOSS, plan(), optimizer=[sgd(net), sgd(net)])


def test_frozen_layers_stay():
    net = model()
    net[0].requires_grad_(False)
    before = net[0].weight.clone()
    PrivateTrainer(net, LOSS, plan()).fit(data())
    assert torch.equal(net[0].weight, before)


def test_unfreezing_during_training_is_refused():
    net = model()
    net[0].requires_grad_(False)

    class Unfreeze(Callback):
        def on_step_end(self, trainer, event):
            net[0].requires_grad_(True)

    with pytest.raises(UnsoundConfiguration, match="trainable after"):
        PrivateTrainer(net, LOSS, plan(), logs=Logs(callbacks=[Unfreeze()])).fit(data())


def test_schedulers_that_look_at_losses_are_refused():
    net = model()
    optimizer = sgd(net)
    plateau = torch.optim.lr_scheduler.ReduceLROnPlateau
    with pytest.raises(UnsoundConfiguration, match="fixed in advance"):
        PrivateTrainer(net, LOSS, plan(), optimizer=optimizer, scheduler=plateau)
    scheduler = torch.optim.lr_scheduler.StepLR(sgd(net), 2)
    with pytest.raises(ValueError, match="belong to the optimizer"):
        PrivateTrainer(net, LOSS, plan(), optimizer=optimizer, scheduler=scheduler)
    with pytest.raises(TypeError, match="scheduler must be"):
        PrivateTrainer(net, LOSS, plan(), scheduler=lambda _: 3)


def test_batchnorm_is_refused():
    net = nn.Sequential(nn.Linear(FEATURES, 8), nn.BatchNorm1d(8), nn.Linear(8, CLASSES))
    with pytest.raises(UnsoundConfiguration, match="replace_batchnorm"):
        PrivateTrainer(net, LOSS, plan())


class Remembering(nn.Module):
    def __init__(self):
        super().__init__()
        self.layer = nn.Linear(FEATURES, CLASSES)

    def forward(self, x):
        with torch.no_grad():
            self.layer.bias += x.mean()
        return self.layer(x)


def test_forward_that_changes_parameters_is_refused():
    with pytest.raises(UnsoundConfiguration, match=r"changed 'layer\.bias'"):
        PrivateTrainer(Remembering(), LOSS, plan()).fit(data())


@pytest.mark.parametrize(
    ("loss", "message"),
    [
        (lambda outputs, _: outputs.square().sum(0).max(), "neither the mean nor the sum"),
        (lambda outputs, _: outputs, "over all axes but the first"),
        (lambda outputs, _: (outputs - outputs.mean(0)).square().sum(1), "among others"),
        (lambda *_: 3.0, "tensor of floats"),
        (3, "must be a function"),
        (nn.CrossEntropyLoss(weight=torch.tensor([1.0, 5.0, 9.0])), "class weights"),
    ],
    ids=["largest", "unreduced", "mixing", "number", "no function", "class weights"],
)
def test_losses_that_are_not_of_examples_are_refused(loss, message):
    with pytest.raises(ValueError, match=message):
        PrivateTrainer(model(), loss, plan()).fit(data())


CLASS_WEIGHTS = torch.tensor([1.0, 5.0, 9.0])


@pytest.mark.parametrize("ones", [30, 58])
@pytest.mark.parametrize(
    "loss",
    [
        nn.CrossEntropyLoss(weight=CLASS_WEIGHTS),
        partial(functional.cross_entropy, weight=CLASS_WEIGHTS),
        lambda outputs, targets: functional.cross_entropy(outputs, targets, CLASS_WEIGHTS),
    ],
    ids=["module", "partial", "closure"],
)
def test_class_weights_are_refused_for_examples_in_the_order_of_classes(loss, ones):
    inputs, _ = data().tensors
    labels = torch.cat([torch.zeros(60 - ones), torch.ones(ones)]).long()
    labels[-1] = labels[0]
    with pytest.raises(ValueError, match="class weights"):
        PrivateTrainer(model(), loss, plan()).fit(TensorDataset(inputs, labels))


def test_class_weights_of_single_losses_are_kept():
    loss = nn.CrossEntropyLoss(weight=CLASS_WEIGHTS, reduction="none")
    weighted, plain = model(), model()
    trained(weighted, plan(clipping=FlatClip(1e3), noise_multiplier=1.0), loss=loss)
    trained(plain, plan(clipping=FlatClip(1e3), noise_multiplier=1.0))
    assert not torch.allclose(weights(weighted), weights(plain))


class Logarithm(nn.Module):
    def __init__(self):
        super().__init__()
        self.layer = nn.Linear(FEATURES, CLASSES)

    def forward(self, x):
        return torch.log(self.layer(x) - 100.0)


def test_outputs_that_are_no_numbers_are_named():
    with pytest.raises(ValueError, match=r"model's outputs .* are NaN"):
        PrivateTrainer(Logarithm(), LOSS, plan()).fit(data())
    with pytest.raises(ValueError, match="loss_fn returns NaN"):
        PrivateTrainer(model(), lambda o, _: (o.sum() - 1e6).log(), plan()).fit(data())


class SteepAtZero(nn.Module):
    """Has finite outputs and, for an input of zeros, an infinite gradient."""

    def __init__(self):
        super().__init__()
        self.layer = nn.Linear(FEATURES, CLASSES, bias=False)

    def forward(self, x):
        return self.layer(x).abs().sqrt()


@pytest.mark.parametrize("backend", ["bookkeeping", "materialised"])
def test_examples_without_finite_gradients_are_counted(backend, caplog, tmp_path):
    inputs, labels = data().tensors
    inputs = inputs.clone()
    inputs[50] = 0.0
    seen = []

    class See(Callback):
        def on_step_end(self, trainer, event):
            seen.append(event.dropped)

    net, full = SteepAtZero(), plan(sampling=FixedSizeSampling(), batch_size=60, steps=3)
    trainer = PrivateTrainer(
        net, LOSS, full, backend=backend, logs=Logs(callbacks=[See()]), run_dir=tmp_path
    )
    result = trainer.fit(TensorDataset(inputs, labels))
    assert seen == [1, 1, 1]
    assert result.dropped_examples == 3
    assert weights(net).isfinite().all()
    assert [record.levelname for record in caplog.records] == ["WARNING"]
    # How many they are depends on the examples: no file says it.
    assert "dropped" not in result.to_json() + result.statement + repr(result)
    assert "dropped" not in (tmp_path / "result.json").read_text()


@pytest.mark.parametrize("sampling", [None, FixedSizeSampling()])
@pytest.mark.parametrize("examples", [57, 600])
def test_dataset_of_another_size_than_planned_is_refused(sampling, examples):
    a_plan = plan() if sampling is None else plan(sampling=sampling)
    with pytest.raises(UnsoundConfiguration, match=f"examples=60, the dataset has {examples}"):
        PrivateTrainer(model(), LOSS, a_plan).fit(data(examples))
    with pytest.raises(UnsoundConfiguration, match=f"plan with examples={examples}"):
        PrivateLoader.from_data_loader(DataLoader(data(examples)), a_plan)


def test_loaders_are_no_datasets():
    with pytest.raises(UnsoundConfiguration, match=r"loader\.dataset"):
        PrivateTrainer(model(), LOSS, plan()).fit(DataLoader(data()))


def test_generators_of_torch_are_refused():
    with pytest.raises(TypeError, match="SeededForExperiments"):
        PrivateTrainer(model(), LOSS, plan(), generator=torch.Generator())
    with pytest.raises(TypeError, match="SeededForExperiments"):
        PrivateLoader(data(), plan(), generator=torch.Generator())


def test_labels_out_of_range_are_refused():
    inputs, labels = data().tensors
    labels = labels.clone()
    labels[50] = CLASSES
    full = plan(sampling=FixedSizeSampling(), batch_size=60)
    with pytest.raises(ValueError, match="labels must be from 0 to 2"):
        PrivateTrainer(model(), LOSS, full).fit(TensorDataset(inputs, labels))
    labels[50] = -100  # the index that cross entropy ignores
    PrivateTrainer(model(), LOSS, full).fit(TensorDataset(inputs, labels))


def test_inputs_that_are_not_finite_are_refused():
    inputs, labels = data().tensors
    inputs = inputs.clone()
    inputs[50, 2] = torch.nan
    full = plan(sampling=FixedSizeSampling(), batch_size=60)
    with pytest.raises(ValueError, match="NaN or infinite"):
        PrivateTrainer(model(), LOSS, full).fit(TensorDataset(inputs, labels))


class Stream(IterableDataset):
    def __iter__(self):
        return iter([])


@pytest.mark.parametrize(
    ("dataset", "error"),
    [([], ValueError), (Stream(), UnsoundConfiguration), (iter([1]), UnsoundConfiguration)],
    ids=["empty", "stream", "iterator"],
)
def test_datasets_without_examples_to_sample_are_refused(dataset, error):
    with pytest.raises(error, match=r"dataset|order"):
        PrivateTrainer(model(), LOSS, plan()).fit(dataset)


def test_batches_that_are_no_pairs_are_refused():
    with pytest.raises(ValueError, match=r"\(inputs, targets\)"):
        PrivateTrainer(model(), LOSS, plan(), loading=Loading(collate_fn=len)).fit(data())


def test_unknown_ways_to_resume_are_refused():
    with pytest.raises(ValueError, match="resume='maybe'"):
        PrivateTrainer(model(), LOSS, plan()).fit(data(), resume="maybe")
    with pytest.raises(TypeError, match="plan must be"):
        PrivateTrainer(model(), LOSS, 3)


@pytest.mark.parametrize("kind", [torch.float64, torch.float32, torch.float16, torch.float8_e5m2])
@pytest.mark.parametrize("bad", [math.nan, math.inf, -math.inf])
def test_one_number_that_is_not_finite_is_found_in_every_precision(kind, bad):
    inputs = torch.ones(3, 50)
    check_finite((inputs.to(kind), torch.zeros(0, 4)))
    inputs[2, 31] = bad
    with pytest.raises(ValueError, match="NaN or infinite"):
        check_finite((inputs.to(kind),))


def test_spectral_norms_are_not_taken_for_memory_of_examples():
    bits = torch.Generator().manual_seed(0)
    data = TensorDataset(
        torch.randn(64, 8, generator=bits), torch.randint(0, 3, (64,), generator=bits)
    )
    plan = Plan(
        examples=64, batch_size=16, steps=3, noise_multiplier=1, delta=1e-3, clipping=FlatClip(1.0)
    )
    normed = nn.utils.parametrizations.spectral_norm(nn.Linear(8, 8))
    model = nn.Sequential(normed, nn.ReLU(), nn.Linear(8, 3))
    assert PrivateTrainer(model, nn.CrossEntropyLoss(), plan).fit(data).steps == 3
