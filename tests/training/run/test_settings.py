"""Settings of a trainer by topic, and what is said about arguments that moved into them."""

import dataclasses

import pytest
from torch import nn
from training.runs import model, plan

from taut.training import Checkpointing, Loading, Logs, PrivateTrainer

MOVED = {
    "max_physical_batch_size": "loading=Loading(max_physical_batch_size=...)",
    "num_workers": "loading=Loading(num_workers=...)",
    "collate_fn": "loading=Loading(collate_fn=...)",
    "augment": "loading=Loading(augment=...)",
    "copies": "loading=Loading(copies=...)",
    "checkpoint_every": "checkpoints=Checkpointing(every=...)",
    "checkpoint_seconds": "checkpoints=Checkpointing(seconds=...)",
    "callbacks": "logs=Logs(callbacks=...)",
    "progress": "logs=Logs(progress=...)",
    "log_private_metrics": "logs=Logs(private_metrics=...)",
}


def trainer(**options):
    return PrivateTrainer(model(), nn.CrossEntropyLoss(), plan(), **options)


@pytest.mark.parametrize("name", MOVED)
def test_old_argument_is_refused_with_its_new_place(name, tmp_path):
    with pytest.raises(TypeError) as refused:
        trainer(**{name: None})
    assert str(refused.value) == f"{name} is now {MOVED[name]}"
    (tmp_path / "plan.json").write_text(plan().to_json())
    with pytest.raises(TypeError, match=f"^{name} is now "):
        PrivateTrainer.resume(tmp_path, model(), nn.CrossEntropyLoss(), **{name: None})


def test_places_exist():
    kinds = {kind.__name__: kind for kind in (Loading, Checkpointing, Logs)}
    for place in MOVED.values():
        kind, _, field = place.split("=", 1)[1].removesuffix("=...)").partition("(")
        assert field in {f.name for f in dataclasses.fields(kinds[kind])}
    assert sum(len(dataclasses.fields(kind)) for kind in kinds.values()) == len(MOVED)


def test_unknown_argument_is_refused():
    with pytest.raises(TypeError, match="PrivateTrainer has no argument 'colour'"):
        trainer(colour="red")


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ({"loading": {"copies": 2}}, r"write loading=Loading\(...\)"),
        ({"checkpoints": 10}, r"checkpoints must be a Checkpointing, got checkpoints=10; write "),
        ({"logs": []}, r"logs must be a Logs, got logs=\[\]; write logs=Logs\(...\)"),
    ],
)
def test_groups_of_another_type_are_refused(options, message):
    with pytest.raises(TypeError, match=message):
        trainer(**options)


@pytest.mark.parametrize(
    ("kind", "options", "message"),
    [
        (Loading, {"max_physical_batch_size": 0}, "max_physical_batch_size must be at least 1"),
        (Loading, {"num_workers": -1}, "num_workers must be at least 0"),
        (Loading, {"num_workers": 1.5}, "num_workers must be an integer"),
        (Loading, {"copies": 2}, "copies=2 would all be the same without augment"),
        (Loading, {"augment": abs, "copies": 0}, "copies must be at least 1"),
        (Loading, {"augment": 3}, "augment must be a function"),
        (Checkpointing, {"every": 0}, "every must be at least 1"),
        (Checkpointing, {"seconds": -1.0}, "seconds must be finite and at least 0"),
        (Checkpointing, {"seconds": float("nan")}, "seconds must be finite and at least 0"),
    ],
)
def test_bad_values_are_refused_where_they_are_written(kind, options, message):
    with pytest.raises((TypeError, ValueError), match=message):
        kind(**options)


@pytest.mark.parametrize(
    ("rows", "copies", "examples"), [(None, 3, None), (7, 3, 2), (2, 3, 1), (8, 1, 8), (9, 3, 3)]
)
def test_copies_of_an_example_count_as_rows(rows, copies, examples):
    loading = Loading(max_physical_batch_size=rows, augment=abs, copies=copies)
    assert loading.examples_at_once == examples


def test_settings_cannot_change():
    for settings in (Loading(), Checkpointing(), Logs()):
        name = dataclasses.fields(settings)[0].name
        with pytest.raises(dataclasses.FrozenInstanceError):
            setattr(settings, name, 1)
