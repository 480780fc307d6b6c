"""Losses of language models: each example's is a mean over its own tokens."""

import pytest
import torch
from torch import nn
from torch.nn import functional
from torch.utils.data import default_collate

from taut.errors import UnsoundConfiguration
from taut.training import (
    FlatClip,
    Loading,
    Logs,
    Plan,
    PrivateTrainer,
    causal_lm_loss,
    masked_lm_loss,
    seq2seq_loss,
)
from taut.training._data.batches import check_rows, inputs_and_targets

SHIFTED = {causal_lm_loss: 1, masked_lm_loss: 0, seq2seq_loss: 0}


def rows(count=5, tokens=6, words=9):
    torch.manual_seed(0)
    logits, labels = torch.randn(count, tokens, words), torch.randint(0, words, (count, tokens))
    for i in range(count):
        labels[i, i + 1 :] = -100  # the first example has one token, which no other follows
    return logits, labels


@pytest.mark.parametrize("loss", SHIFTED)
def test_loss_is_the_mean_over_an_examples_own_tokens(loss):
    logits, labels = rows()
    found = loss(logits, labels)
    shift = SHIFTED[loss]
    for i, label in enumerate(labels):
        places = [t for t in range(shift, 6) if label[t] != -100]
        terms = [functional.cross_entropy(logits[i, t - shift], label[t]) for t in places]
        expected = torch.stack(terms).mean() if terms else torch.zeros(())
        torch.testing.assert_close(found[i], expected)
        torch.testing.assert_close(found[i : i + 1], loss(logits[i : i + 1], labels[i : i + 1]))


@pytest.mark.parametrize("loss", SHIFTED)
def test_logits_and_labels_may_be_named(loss):
    logits, labels = rows()
    torch.testing.assert_close(loss({"logits": logits}, {"labels": labels}), loss(logits, labels))


def test_what_is_no_logits_or_labels_is_refused():
    logits, labels = rows()
    with pytest.raises(ValueError, match="have them as logits"):
        causal_lm_loss(logits[0], labels)
    with pytest.raises(ValueError, match="no labels"):
        causal_lm_loss(logits, {"input_ids": labels})
    with pytest.raises(ValueError, match="packed into one row"):
        causal_lm_loss(logits, labels.reshape(1, -1))


def test_labels_of_a_mapping_are_targets():
    inputs, targets = inputs_and_targets({"tokens": torch.ones(2), "labels": torch.zeros(2)})
    assert list(inputs) == ["tokens"]
    assert torch.equal(targets, torch.zeros(2))
    assert inputs_and_targets({"tokens": torch.ones(2)})[1] is None


def test_trainer_takes_mappings_with_labels():
    class Words(nn.Module):
        def __init__(self):
            super().__init__()
            self.words, self.places, self.last = (
                nn.Embedding(9, 4),
                nn.Embedding(6, 4),
                nn.Linear(4, 9),
            )

        def forward(self, tokens):
            return {"logits": self.last(self.words(tokens) + self.places(torch.arange(6)))}

    labels = torch.randint(0, 9, (24, 6))
    data = [{"tokens": row, "labels": row} for row in labels]
    plan = Plan(examples=24, batch_size=8, epochs=1, epsilon=4, delta=1e-2, clipping=FlatClip(1.0))
    result = PrivateTrainer(Words(), causal_lm_loss, plan, logs=Logs(progress=False)).fit(data)
    assert result.steps == 3


def test_examples_that_are_packed_into_a_row_are_refused():
    with pytest.raises(UnsoundConfiguration, match="pad them instead"):
        check_rows({"tokens": torch.ones(1, 30)}, 5)
    check_rows({"tokens": torch.ones(5, 6)}, 5)


class WithLoss(nn.Module):
    """Computes its loss itself if it is given labels, as models of Hugging Face do."""

    def __init__(self):
        super().__init__()
        self.words, self.last = nn.Embedding(9, 4), nn.Linear(4, 9)

    def forward(self, input_ids, labels=None):
        logits = self.last(self.words(input_ids))
        if labels is None:
            return {"logits": logits, "loss": None}
        loss = functional.cross_entropy(logits.flatten(0, 1), labels.flatten())
        return {"loss": loss, "logits": logits}


@pytest.mark.parametrize(
    ("collate", "message"),
    [
        (None, "labels are given to the loss function, not to the model"),
        (
            lambda rows: (lambda batch: (batch, batch["labels"]))(default_collate(rows)),
            "a number that the model has computed for all examples",
        ),
    ],
)
def test_losses_of_the_model_itself_are_refused_with_those_to_use(collate, message):
    _, labels = rows(12)
    texts = [{"input_ids": row.clamp(min=0), "labels": row} for row in labels]
    plan = Plan(
        examples=12, batch_size=6, steps=1, noise_multiplier=1.0, delta=1e-3, clipping=FlatClip(1.0)
    )
    loading = Loading(collate_fn=collate)
    trainer = PrivateTrainer(WithLoss(), lambda outputs, _: outputs["loss"], plan, loading=loading)
    with pytest.raises(ValueError, match=rf"{message}(.|\n)*causal_lm_loss"):
        trainer.fit(texts)
