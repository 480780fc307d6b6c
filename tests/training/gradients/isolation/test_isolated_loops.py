"""Loops, losses and loaders by which one example gets into the gradients of others."""

import pytest
import torch
from torch import nn
from torch.nn import functional
from torch.utils.data import DataLoader, TensorDataset, default_collate

from taut.audit import verify_statement
from taut.errors import UnsoundConfiguration
from taut.noise import SeededForExperiments
from taut.training import FlatClip, Loading, Logs, Plan, PrivateTrainer, make_private
from taut.training._data.collation import check_collation

EXAMPLES, FEATURES, CLASSES = 48, 6, 3
BITS = torch.Generator().manual_seed(1)
X = torch.randn(EXAMPLES, FEATURES, generator=BITS)
Y = torch.randint(0, CLASSES, (EXAMPLES,), generator=BITS)


def net():
    return nn.Sequential(nn.Linear(FEATURES, 8), nn.Tanh(), nn.Linear(8, CLASSES))


def private(model=None, *, data=None, collate=None, lr=0.1, **options):
    model = net() if model is None else model
    optimizer = torch.optim.SGD(model.parameters(), lr=lr)
    loader = DataLoader(data or TensorDataset(X, Y), batch_size=12, collate_fn=collate)
    return make_private(
        module=model, optimizer=optimizer, data_loader=loader, noise_multiplier=1.0,
        max_grad_norm=1.0, noise_generator=SeededForExperiments(seed=11), **options,
    )  # fmt: skip


def loop(loss, model=None, steps=3, **options):
    model, optimizer, loader = private(model, **options)
    for x, y in loader:
        optimizer.zero_grad()
        loss(model, x, y).backward()
        optimizer.step()
        if optimizer.ledger.steps >= steps:
            break
    return optimizer


WEIGHT = torch.tensor([1.0, 1.0, 50.0])
UNSOUND = {
    "class weights": lambda m, x, y: functional.cross_entropy(m(x), y, weight=WEIGHT),
    "pairs": lambda m, x, _: -functional.log_softmax(m(x) @ m(x).T, 1).diagonal().mean(),
    "contrast": lambda m, x, _: (lambda o: -functional.log_softmax(o @ o.T, 1).diagonal())(
        m(x)
    ).mean(),
    "auxiliary loss": lambda m, x, y: (
        lambda o: functional.cross_entropy(o, y) + 10 * o.mean(0).square().sum()
    )(m(x)),
    "hardest examples": lambda m, x, y: (
        functional.cross_entropy(m(x), y, reduction="none").topk(3).values.mean()
    ),
    "largest loss": lambda m, x, y: functional.cross_entropy(m(x), y, reduction="none").max(),
    "weights that sum to one": lambda m, x, y: (
        lambda losses: (losses * losses.detach().softmax(0)).sum()
    )(functional.cross_entropy(m(x), y, reduction="none")),
    "ignored labels": lambda m, x, y: functional.cross_entropy(m(x), y, ignore_index=0),
    "root of a mean": lambda m, x, y: functional.cross_entropy(m(x), y).sqrt(),
    "sum in place of a mean": lambda m, x, y: functional.cross_entropy(m(x), y, reduction="sum"),
    "labels of others": lambda m, x, y: functional.cross_entropy(m(x), y.roll(1)),
    "mixup in the loop": lambda m, x, y: functional.cross_entropy(
        m(0.6 * x + 0.4 * x.roll(1, 0)), y
    ),
    "one example for all": lambda m, x, y: functional.cross_entropy(
        m(x[:1].expand_as(x)), y[:1].expand_as(y)
    ),
    "other order": lambda m, x, y: functional.cross_entropy(m(x.flip(0)), y.flip(0)),
}  # fmt: skip


@pytest.mark.parametrize("name", UNSOUND)
def test_losses_that_mix_examples_are_refused(name):
    with pytest.raises(UnsoundConfiguration):
        loop(UNSOUND[name])


def test_refusal_says_what_mends_it():
    with pytest.raises(UnsoundConfiguration, match="criterion = lambda outputs, targets"):
        loop(UNSOUND["class weights"])


SOUND = {
    "cross entropy": lambda m, x, y: functional.cross_entropy(m(x), y),
    "likelihood": lambda m, x, y: functional.nll_loss(functional.log_softmax(m(x), 1), y),
    "mean of losses": lambda m, x, y: functional.cross_entropy(m(x), y, reduction="none").mean(),
}


@pytest.mark.parametrize("name", SOUND)
def test_usual_losses_are_recognised(name):
    assert loop(SOUND[name]).ledger.steps == 3


@pytest.mark.parametrize(
    "loss", [functional.mse_loss, functional.l1_loss, functional.smooth_l1_loss,
             functional.binary_cross_entropy_with_logits],
)  # fmt: skip
def test_losses_of_numbers_are_recognised(loss):
    model = nn.Sequential(nn.Linear(FEATURES, 8), nn.Tanh(), nn.Linear(8, 1))
    data = TensorDataset(X, (Y > 0).float())
    found = loop(lambda m, x, y: loss(m(x).squeeze(1), y), model, data=data)
    assert found.ledger.steps == 3


class Tokens(nn.Module):
    """A language model that returns its loss, averaged over all labels that count."""

    def __init__(self):
        super().__init__()
        self.embedding, self.head = nn.Embedding(9, 8), nn.Linear(8, 9)

    def forward(self, ids, labels):
        logits = self.head(torch.tanh(self.embedding(ids)))
        loss = functional.cross_entropy(logits[:, :-1].flatten(0, 1), labels[:, 1:].flatten())
        return {"loss": loss, "logits": logits}


def tokens(padded):
    ids = torch.randint(1, 9, (EXAMPLES, 7), generator=torch.Generator().manual_seed(2))
    labels = ids.clone()
    if padded:
        labels[::3, 4:] = -100
    return TensorDataset(ids, labels)


def own_tokens(outputs, labels):
    logits, wanted = outputs["logits"][:, :-1], labels[:, 1:]
    losses = functional.cross_entropy(logits.transpose(1, 2), wanted, reduction="none")
    return losses.sum(1) / (wanted != -100).sum(1).clamp(min=1)


def test_loss_that_a_model_returns_is_compared_with_the_mean_over_examples():
    loss = lambda m, ids, labels: m(ids, labels)["loss"]  # noqa: E731
    assert loop(loss, Tokens(), data=tokens(padded=False)).ledger.steps == 3
    with pytest.raises(UnsoundConfiguration, match="tokens of all examples"):
        loop(loss, Tokens(), data=tokens(padded=True))
    mended = loop(loss, Tokens(), data=tokens(padded=True), criterion=own_tokens)
    assert mended.ledger.steps == 3


def test_loss_that_is_added_to_that_of_the_model_is_refused():
    def both(model, ids, labels):
        outputs = model(ids, labels)
        return outputs["loss"] + outputs["logits"].mean()

    with pytest.raises(UnsoundConfiguration, match="adds to a loss"):
        loop(both, Tokens(), data=tokens(padded=False))


def test_criterion_is_one_loss_per_example():
    weighted = nn.CrossEntropyLoss(weight=WEIGHT, reduction="none")
    found = loop(lambda m, x, y: weighted(m(x), y).mean(), criterion=weighted)
    assert found.ledger.steps == 3
    smooth = nn.CrossEntropyLoss(label_smoothing=0.1)
    assert loop(lambda m, x, y: smooth(m(x), y), criterion=smooth).ledger.steps == 3
    with pytest.raises(UnsoundConfiguration, match="not the mean of criterion"):
        loop(UNSOUND["class weights"], criterion=smooth)


def test_criterion_with_pairs_of_examples_is_refused():
    pairs = lambda o, _: -functional.log_softmax(o @ o.T, 1).diagonal()  # noqa: E731
    with pytest.raises((UnsoundConfiguration, ValueError)):
        loop(lambda m, x, y: pairs(m(x), y).mean(), criterion=pairs)


def test_gradients_by_another_way_are_refused():
    model, kept = net(), []
    model[0].register_forward_hook(lambda *call: kept.append(call[-1]))

    def with_hidden(m, x, y):
        loss = functional.cross_entropy(m(x), y)
        return loss + kept[-1].mean(0).square().sum()

    with pytest.raises(UnsoundConfiguration, match="another way"):
        loop(with_hidden, model)


def test_unchecked_loops_say_so():
    found = loop(UNSOUND["class weights"], unchecked_isolation=True)
    assert found.ledger.history.unchecked_isolation


# --- between steps -------------------------------------------------------------------------------


@pytest.mark.parametrize("through_data", [False, True])
def test_weights_that_move_between_steps_are_refused(through_data):
    model, optimizer, loader = private()

    def train():
        for x, y in loader:
            functional.cross_entropy(model(x), y).backward()
            optimizer.step()
            with torch.no_grad():
                weight = model[0].weight
                (weight.data if through_data else weight).add_(0.01 * x.mean())

    with pytest.raises(UnsoundConfiguration, match="public_change"):
        train()


def test_public_changes_of_weights_are_declared():
    model, optimizer, loader = private()
    for x, y in loader:
        functional.cross_entropy(model(x), y).backward()
        optimizer.step()
        with optimizer.public_change(), torch.no_grad():
            model[0].weight.clamp_(-1, 1)
    assert optimizer.ledger.steps == len(loader)


def test_optimizer_inside_cannot_step_by_itself():
    model, optimizer, loader = private()
    x, y = next(iter(loader))
    model.eval()
    functional.cross_entropy(model(x), y).backward()
    with pytest.raises(UnsoundConfiguration, match="neither clipped nor noised"):
        optimizer.inner.step()
    optimizer.remove()
    optimizer.inner.step()


@pytest.mark.parametrize("inside", [False, True])
def test_schedulers_that_follow_losses_are_refused(inside):
    model, optimizer, loader = private()
    given = optimizer.inner if inside else optimizer
    scheduler = torch.optim.lr_scheduler.ReduceLROnPlateau(given, patience=0)

    def train():
        for x, y in loader:
            loss = functional.cross_entropy(model(x), y)
            loss.backward()
            optimizer.step()
            scheduler.step(loss.item())

    with pytest.raises(UnsoundConfiguration, match="ReduceLROnPlateau"):
        train()


# --- collation -----------------------------------------------------------------------------------


def mixup(batch):
    x, y = default_collate(batch)
    return 0.6 * x + 0.4 * x.roll(1, 0), y


def standardised(batch):
    x, y = default_collate(batch)
    return (x - x.mean(0)) / (x.std(0) + 1e-6), y


def sometimes(batch):
    return mixup(batch) if torch.rand(()) < 0.3 else default_collate(batch)


def scale_of_the_batch(batch):
    x, y = default_collate(batch)
    return x, x.std(), y


def padded(batch):
    longest = max(int(y) + 1 for _, y in batch)
    rows = [torch.cat([x[: int(y) + 1], torch.zeros(longest - int(y) - 1)]) for x, y in batch]
    return torch.stack(rows), torch.stack([y for _, y in batch])


def sorted_by_label(batch):
    return default_collate(sorted(batch, key=lambda pair: int(pair[1])))


def in_a_dictionary(batch):
    x, y = default_collate(batch)
    return {"x": x, "y": y, "names": [str(i) for i in y.tolist()], "longest": int(y.max())}


def jittered(batch):
    x, y = default_collate(batch)
    return x + torch.randn_like(x), y


@pytest.mark.parametrize("collate", [mixup, standardised, sometimes, scale_of_the_batch])
def test_collation_that_mixes_examples_is_refused(collate):
    with pytest.raises(UnsoundConfiguration, match="collate_fn makes something else"):
        check_collation(TensorDataset(X, Y), collate, EXAMPLES)


@pytest.mark.parametrize(
    "collate", [default_collate, padded, sorted_by_label, in_a_dictionary, jittered]
)
def test_collation_that_keeps_examples_apart_is_not_refused(collate):
    check_collation(TensorDataset(X, Y), collate, EXAMPLES)


def test_collation_that_cannot_be_tested_is_refused():
    bits = torch.Generator().manual_seed(0)

    def drawn(batch):
        x, y = default_collate(batch)
        return x + torch.randn(x.shape, generator=bits), y

    with pytest.raises(UnsoundConfiguration, match="source of its own"):
        check_collation(TensorDataset(X, Y), drawn, EXAMPLES)


def trainer(**options):
    plan = Plan(
        examples=EXAMPLES, batch_size=12, steps=2, noise_multiplier=1.0, delta=1e-3,
        clipping=FlatClip(1.0),
    )  # fmt: skip
    loss = nn.CrossEntropyLoss(reduction="none")
    bits = SeededForExperiments(seed=11)
    return PrivateTrainer(net(), loss, plan, logs=Logs(progress=False), generator=bits, **options)


def test_both_ways_to_train_test_their_collation():
    with pytest.raises(UnsoundConfiguration, match="collate_fn"):
        loop(SOUND["cross entropy"], collate=mixup)
    with pytest.raises(UnsoundConfiguration, match="collate_fn"):
        trainer(loading=Loading(collate_fn=mixup)).fit(TensorDataset(X, Y))


def test_unchecked_run_is_repeated_by_ledger_and_statement(tmp_path):
    result = trainer(unchecked_isolation=True, run_dir=tmp_path).fit(TensorDataset(X, Y))
    assert result.unchecked_isolation
    assert "unchecked_isolation=True" in result.statement
    assert type(result).from_json(result.to_json()) == result
    assert "unchecked_isolation" in (tmp_path / "ledger.jsonl").read_text()
    checked = verify_statement(result.to_dict())
    assert any("was not tested" in note for note in map(str, [checked, *vars(checked).values()]))
    assert "unchecked" not in trainer().fit(TensorDataset(X, Y)).statement


@pytest.mark.parametrize("criterion", [None, nn.CrossEntropyLoss()])
@pytest.mark.parametrize("factor", [65_536.0, 0.25])
def test_scaled_losses_are_refused_by_name(criterion, factor):
    with pytest.raises(UnsoundConfiguration, match=rf"is {factor:g} times .*GradScaler"):
        loop(lambda m, x, y: factor * functional.cross_entropy(m(x), y), criterion=criterion)


def test_scaler_of_gradients_is_refused_by_name():
    model, optimizer, loader = private()
    scaler = torch.amp.GradScaler("cpu")
    x, y = next(iter(loader))
    scaled = scaler.scale(functional.cross_entropy(model(x), y))
    with pytest.raises(UnsoundConfiguration, match="GradScaler does that"):
        scaled.backward()
    with pytest.raises(UnsoundConfiguration, match="GradScaler multiplies the loss"):
        scaler.step(optimizer)


def test_models_that_are_compiled_in_place_train_and_stay_so():
    model = net()
    model.compile(backend="eager")
    optimizer = loop(lambda m, x, y: functional.cross_entropy(m(x), y), model)
    assert optimizer.ledger.steps == 3
    assert model._compiled_call_impl is None
    optimizer.remove()
    assert model._compiled_call_impl is not None
