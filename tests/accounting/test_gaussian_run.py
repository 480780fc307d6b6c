"""A run of noisy sums: one vocabulary, and one loss, for every room."""

import ast
import re
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

import taut
from taut.accounting import Adjacency, GaussianRun, Sampler, samplers_of

SOURCE = Path(taut.__file__).parent
SIZES = {"batch_size": 100, "examples": 1_000}


@pytest.mark.parametrize("sampler", Sampler)
def test_names_are_found_in_any_spelling(sampler):
    for name in (sampler, sampler.upper(), sampler.replace("_", "-"), sampler.replace("_", " ")):
        assert Sampler(name) is sampler


@pytest.mark.parametrize("name", ["bootstrap", "", None, 3])
def test_unknown_names_are_refused(name):
    with pytest.raises(ValueError, match=r"sampler must be one of poisson, .*got sampler="):
        Sampler(name)


def test_losses_under_every_relation():
    plain, zero = taut.gaussian(1.5), taut.gaussian(1.5, adjacency="zero_out")
    exchange = taut.gaussian(1.5, sensitivity=2.0, adjacency="replace")
    expected = {
        ("poisson", "add_remove"): 20 * plain.poisson(0.1),
        ("poisson", "zero_out"): 20 * zero.poisson(0.1),
        ("poisson", "replace"): 20 * exchange.poisson(0.1, removal=plain),
        ("fixed_size", "add_remove"): 20 * exchange.fixed_size(100, 1_000),
        ("fixed_size", "zero_out"): 20 * exchange.fixed_size(100, 1_000, "zero_out"),
        ("fixed_size", "replace"): 20 * exchange.fixed_size(100, 1_000, "replace"),
        ("shuffle", "zero_out"): 2 * zero,
        ("shuffle", "replace"): 2 * exchange,
        ("none", "add_remove"): 20 * plain,
        ("none", "replace"): 20 * exchange,
    }
    for (sampler, relation), loss in expected.items():
        sizes = {} if sampler == "none" else SIZES
        run = GaussianRun.of(sampler, steps=20, **sizes)
        assert run.loss(1.5, Adjacency(relation)) == loss
        if relation == run.sampler.usual_adjacency:
            assert run.loss(1.5) == loss


def test_a_mistaken_sensitivity_can_be_asked_for():
    run = GaussianRun.of("fixed_size", steps=20, **SIZES)
    mistaken = taut.gaussian(1.5, sensitivity=1.0, adjacency="replace")
    assert run.loss(1.5, exchange=1.0) == 20 * mistaken.fixed_size(100, 1_000, "replace")


@given(batch=st.integers(1, 50), more=st.integers(0, 10_000), steps=st.integers(0, 10**6))
def test_shuffled_epochs_are_rounded_up(batch, more, steps):
    examples = batch + more
    run = GaussianRun.of("shuffle", batch_size=batch, examples=examples, steps=steps)
    whole = examples // batch
    assert run.epoch_steps == whole
    assert (run.epochs - 1) * whole < steps <= run.epochs * whole
    # a rate says the same, where the batches divide the data
    if examples % batch == 0:
        assert GaussianRun.of("shuffle", rate=batch / examples, steps=steps).epochs == run.epochs


def test_epochs_instead_of_steps():
    run = GaussianRun.of("shuffle", batch_size=4, examples=10, epochs=1.5)
    assert (run.steps, run.epochs, run.rate, run.sizes) == (4, 2, 0.4, (4, 10))
    assert GaussianRun.of("poisson", rate=0.1, epochs=3).steps == 30
    assert GaussianRun.of("none", epochs=3).steps == 3


def test_a_rate_of_zero_sees_nothing():
    run = GaussianRun.of("poisson", rate=0.0, steps=5)
    assert run.loss(1.0).epsilon(1e-5) == 0.0
    assert run.epochs == 5


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        ({"steps": 1, "epochs": 1, "rate": 0.1}, "give either 'steps' or 'epochs', not both"),
        ({"rate": 0.1}, "give either 'steps' or 'epochs'"),
        ({"steps": 1}, "needs either 'rate', or 'batch_size' and 'examples'"),
        ({"steps": 1, "rate": 0.1, **SIZES}, "needs either 'rate', or"),
        ({"steps": 1, "batch_size": 11, "examples": 10}, "batch_size must be at most examples=10"),
        ({"epochs": 1, "rate": 0.0}, "greater than 0 for epochs"),
        ({"steps": 1, "rate": 1e-19}, "at least 1e-18"),
        ({"sampler": "fixed_size", "steps": 1, "rate": 0.1}, "needs .* not a rate"),
        ({"sampler": "none", "steps": 1, "rate": 0.1}, "does not use 'rate'; leave that out"),
    ],
)
def test_bad_descriptions(arguments, message):
    with pytest.raises(ValueError, match=message):
        GaussianRun.of(**{"sampler": "poisson", **arguments})


def test_fixed_batches_without_sizes_have_no_loss():
    with pytest.raises(ValueError, match="needs a batch size"):
        GaussianRun(Sampler.FIXED_SIZE, 0.1, 1, 1).loss(1.0)


@pytest.mark.parametrize("sampler", ["poisson", "allocation", "fixed_size"])
def test_samplers_are_found_in_losses(sampler):
    loss = GaussianRun.of(sampler, steps=3, **SIZES).loss(1.0)
    assert samplers_of(loss) == (Sampler(sampler),)
    both = loss + GaussianRun.of("poisson", steps=1, rate=0.5).loss(2.0, loss.adjacency)
    assert samplers_of(both) == tuple(dict.fromkeys((Sampler.POISSON, Sampler(sampler))))
    assert samplers_of(taut.gaussian(1.0)) == ()


def test_the_factor_of_an_exchanged_record_stands_in_one_place():
    """Nobody else doubles a sensitivity, or counts the batches of an epoch, for a sampler."""
    found = []
    for path in SOURCE.rglob("*.py"):
        text = path.read_text()
        if re.search(r"sensitivity\s*=\s*2", text) is None:
            continue
        for node in ast.walk(ast.parse(text)):
            if isinstance(node, ast.keyword) and node.arg == "sensitivity":
                value = node.value
                if isinstance(value, ast.Constant) and value.value == 2:
                    found.append(path.relative_to(SOURCE))
    assert found == []
