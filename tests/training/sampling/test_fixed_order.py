"""A fixed order with independent noise: an example takes part once in an epoch, come what may."""

from collections import Counter

import pytest
import torch
from torch import nn
from training.runs import Kill, Killed, data, model, plan, sgd

from taut.accounting import gaussian
from taut.errors import UnsoundConfiguration
from taut.training import (
    Checkpointing,
    Logs,
    PrivateLoader,
    PrivateTrainer,
    RunHistory,
)

ORDERED = plan(sampling="fixed_order", steps=10, noise_multiplier=4.0)


@pytest.fixture
def seen(monkeypatch):
    """How often an example was in a batch that was handed out."""
    found, batch = Counter(), PrivateLoader._batch

    def noted(self, step):
        drawn = batch(self, step)
        found.update(drawn.indices.tolist())
        return drawn

    monkeypatch.setattr(PrivateLoader, "_batch", noted)
    return found


def run(directory, after=None, dataset=None, **options):
    net = model()
    trainer = PrivateTrainer(
        net,
        nn.CrossEntropyLoss(),
        ORDERED,
        optimizer=sgd(net),
        run_dir=directory,
        checkpoints=Checkpointing(every=100),
        logs=Logs(callbacks=[] if after is None else [Kill(after)]),
    )
    return trainer.fit(data() if dataset is None else dataset, **options)


def test_steps_that_were_lost_are_not_taken_again(tmp_path, seen):
    """Nothing is restored, so that a run that took its steps again would begin with the first."""
    for after in (2, 2, 1):
        with pytest.raises(Killed):
            run(tmp_path, after)
    history = RunHistory.read(tmp_path / "ledger.jsonl")
    assert history.steps == 5
    assert set(seen.values()) == {1}
    assert len(seen) == len(data())
    assert history.loss == gaussian(4.0, adjacency="zero_out")
    result = run(tmp_path)
    assert set(seen.values()) == {2}
    assert result.loss == ORDERED.loss == 2 * gaussian(4.0, adjacency="zero_out")


@pytest.mark.parametrize("directory", [True, False])
def test_examples_keep_to_their_steps(tmp_path, directory):
    where = tmp_path if directory else None
    with pytest.raises(UnsoundConfiguration, match="keep to their steps"):
        run(where, resume="changed_data")
    net = model()
    trainer = PrivateTrainer(
        net, nn.CrossEntropyLoss(), ORDERED, optimizer=sgd(net), run_dir=where,
        logs=Logs(callbacks=[Kill(3)]),
    )  # fmt: skip
    with pytest.raises(Killed):
        trainer.fit(data())
    inputs, labels = data().tensors
    with pytest.raises(UnsoundConfiguration, match="not the one that this run began with"):
        trainer.fit(torch.utils.data.TensorDataset(inputs.flip(0), labels.flip(0)))
