"""Programs of other packages take part: functions, generators of NumPy, torch and Opacus."""

import numpy as np
import pandas as pd
import pytest
import torch
from audit.opacus_stub import DPOptimizer
from torch import nn

import taut
from taut.audit import (
    recorded,
    recorded_generator,
    recorded_optimizer,
    recorded_torch,
    replay,
)
from taut.noise import L1Ball

ROWS = np.random.default_rng(0).uniform(size=(12, 2))


@pytest.fixture
def draw():
    return np.random.default_rng(3)


# --- functions -----------------------------------------------------------------------------------


def test_function_is_the_same_outside_of_a_replay():
    noisy = recorded(lambda value, shift: value + shift, sensitivity=1.0)
    assert noisy(2.0, 3.0) == 5.0


def test_function_is_recorded(draw):
    @recorded(sensitivity=L1Ball(2, 2.0), scale=4.0, kind="laplace")
    def noisy(value):
        return value + draw.laplace(0.0, 4.0, 2)

    result = replay(lambda rows: noisy(rows.sum(0)), ROWS, ROWS[:-1], crafted=True)
    assert result.passed, str(result)
    assert result.releases[0].measured == pytest.approx(ROWS[-1].sum() / 2)
    assert not replay(lambda rows: noisy(3 * rows.sum(0)), ROWS, ROWS[:-1]).passed


def test_settings_may_be_arguments(draw):
    def noisy(value, reach, epsilon):
        return value + draw.laplace(0.0, reach / epsilon)

    noisy = recorded(
        noisy,
        sensitivity=lambda _, reach, __: reach,
        scale=lambda _, reach, epsilon: reach / epsilon,
        kind="laplace",
    )

    def program(rows):
        return noisy(rows.sum(), rows.max(), 1.0)

    far = np.vstack([ROWS, [[5.0, 0.0]]])
    (finding,) = replay(program, far, far[:-1]).findings
    assert "another scale and sensitivity" in finding
    fixed = replay(lambda rows: noisy(rows.sum(), 5.0, 1.0), far, far[:-1], claim=taut.pure(1.0))
    assert fixed.passed, str(fixed)
    assert not replay(
        lambda rows: [noisy(rows.sum(), 5.0, 1.0)] * 1 + [noisy(rows.sum(), 5.0, 1.0)],
        far,
        far[:-1],
        claim=taut.pure(1.0),
    ).passed


def test_release_of_a_release_is_one(draw):
    inner = recorded(lambda value: value + draw.normal(), sensitivity=1.0)
    outer = recorded(lambda value: inner(value) * 2, sensitivity=1.0)
    assert len(replay(lambda rows: outer(rows[:, 0].sum()), ROWS, ROWS[:-1]).releases) == 1


# --- generators ----------------------------------------------------------------------------------


@pytest.mark.parametrize(
    "add",
    [
        lambda rows, draw: rows.sum(0) + draw.normal(0.0, 2.0, 2),
        lambda rows, draw: rows.sum(0) - 2.0 * draw.standard_normal(2),
        lambda rows, draw: draw.standard_normal(2) * 2.0 + rows.sum(0),
        lambda rows, draw: draw.normal(rows.sum(0), 2.0),
        lambda rows, draw: np.add(rows.sum(0), draw.laplace(scale=2.0, size=2)),
        lambda rows, draw: float(rows.sum()) + draw.laplace(0.0, 2.0),
        lambda rows, draw: [
            rows[:, i].sum() + noise for i, noise in enumerate(draw.normal(size=2))
        ],
    ],
)
def test_noise_of_a_generator_makes_a_release(add, draw):
    noise = recorded_generator(draw, sensitivity=2.0)
    result = replay(lambda rows: add(rows, noise), ROWS, ROWS[:-1], crafted=True)
    assert result.passed, str(result)
    assert result.exercised
    tight = recorded_generator(draw, sensitivity=0.1)
    assert not replay(lambda rows: add(rows, tight), ROWS, ROWS[:-1]).passed


def test_generator_is_itself_outside_of_a_replay(draw):
    wrapped = recorded_generator(np.random.default_rng(3), sensitivity=1.0)
    found = wrapped.normal(0.0, 1.0, 3), wrapped.random(2), wrapped.laplace()
    expected = draw.normal(0.0, 1.0, 3), draw.random(2), draw.laplace()
    assert all(type(a) is type(b) for a, b in zip(found, expected, strict=True))
    assert all(np.array_equal(a, b) for a, b in zip(found, expected, strict=True))


def test_in_place_sum_is_a_release(draw):
    noise = recorded_generator(draw, sensitivity=2.0)

    def program(rows):
        total = rows.sum(0)
        total += noise.normal(0.0, 1.0, 2)
        return total

    assert replay(program, ROWS, ROWS[:-1]).passed


def test_noise_that_is_used_otherwise_is_no_release(draw):
    noise = recorded_generator(draw, sensitivity=2.0)
    result = replay(lambda rows: rows.sum() * noise.normal(), ROWS, ROWS[:-1])
    assert "the result depends on the data" in result.findings[0]
    assert not result.releases


def test_sampling_of_a_generator_made_outside_is_repeated(draw):
    """Both runs see the same batches, though the first one draws noise in between."""
    wrapped = recorded_generator(draw, sensitivity=2.0)

    def program(rows):
        released = []
        for _ in range(3):
            batch = rows[:11][wrapped.random(11) < 0.5]  # the last record comes on top
            total = batch.sum(0) + rows[11:].sum(0)
            released.append(total + wrapped.normal(0.0, 1.0, 2))
        return released

    assert replay(program, ROWS, ROWS[:-1]).passed


def test_noise_that_is_kept_is_found(draw):
    wrapped = recorded_generator(draw, sensitivity=2.0)

    def program(rows):
        kept = wrapped.normal(0.0, 1.0, 2)
        return [part.sum(0) + kept for part in (rows[:6], rows[6:])]

    (finding,) = replay(program, ROWS, ROWS[:-1]).findings
    assert "has the noise of release 1 again" in finding


@pytest.mark.parametrize(
    "released",
    [
        lambda total, kept: total + 3.0 * kept,
        lambda total, kept: total - kept,
        lambda total, kept: total[:3] + kept[:3],
        lambda total, kept: 1e9 + total + kept,
    ],
)
def test_noise_that_is_kept_is_found_in_multiples_and_parts(draw, released):
    wrapped = recorded_generator(draw, sensitivity=4.0)

    def program(rows):
        kept = wrapped.normal(0.0, 1.0, 4)
        return [rows.sum() * np.ones(4) + kept, released(rows.sum() * np.ones(4), kept)]

    findings = replay(program, ROWS, ROWS[:-1]).findings
    assert any("has the noise of release 1 again" in finding for finding in findings)


@pytest.mark.parametrize("shapes", [(4, 2), ((), ())])
def test_noise_of_one_seed_is_found_at_every_scale_and_length(shapes):
    def noisy(value, scale):
        own = np.random.default_rng(7).normal(0.0, scale, np.shape(value))
        return recorded(np.add, sensitivity=4.0, scale=scale, kind="gaussian")(value, own)

    def program(rows):
        return [noisy(np.full(s, rows.sum()), k) for s, k in zip(shapes, (1.0, 3.0), strict=True)]

    findings = replay(program, ROWS, ROWS[:-1]).findings
    assert any("has the noise of release 1 again" in finding for finding in findings)


def test_fresh_noise_is_told_from_noise_that_was_kept(draw):
    wrapped = recorded_generator(draw, sensitivity=100.0)

    def program(rows):
        shapes = [(), 1, 2, 7, 100] * 20
        return [rows.sum() + wrapped.normal(0.0, 1.0 + k % 3, s) for k, s in enumerate(shapes)]

    assert replay(program, ROWS, ROWS[:-1], adjacency="replace").findings == ()


@pytest.mark.parametrize("made", [np.array, torch.tensor, lambda one: one[0]])
def test_both_parts_of_complex_values_count(draw, made):
    @recorded(sensitivity=1.0, kind="gaussian", scale=1.0)
    def noisy(value):
        return value + complex(draw.normal(), draw.normal())

    program = lambda rows: noisy(made([3j * len(rows)]))  # noqa: E731
    (finding,) = replay(program, ROWS, ROWS[:-1], crafted=True).findings
    assert "moved by more than its declared sensitivity, 1 in l2 (3 times as far)" in finding


@pytest.mark.parametrize("centre", [len, lambda rows: rows.mean(0), lambda rows: str(rows[-1])])
def test_other_arguments_must_not_depend_on_the_data(draw, centre):
    @recorded(sensitivity=10.0, scale=1.0, kind="laplace")
    def noisy(value, centre, *, low=0.0):
        return value + draw.laplace(low, 1.0), centre

    program = lambda rows: noisy(rows.sum(), centre(rows))[0]  # noqa: E731
    (finding,) = replay(program, ROWS, ROWS[:-1]).findings
    assert "has another argument 2 on the neighbour" in finding
    (finding,) = replay(
        lambda rows: noisy(rows.sum(), 0, low=len(rows))[0], ROWS, ROWS[:-1]
    ).findings
    assert "has another argument low on the neighbour" in finding
    assert replay(lambda rows: noisy(rows.sum(), centre(ROWS)), ROWS, ROWS[:-1]).findings == ()


@pytest.mark.parametrize(
    ("value", "name"),
    [
        (lambda rows: pd.Series([1.0, 1.0], index=["a", f"{rows[-1, 0]}"]), "labels"),
        (lambda rows: pd.DataFrame({"a": [1.0], f"{rows[-1, 0]}": [2.0]}), "labels"),
        (lambda rows: np.ma.array([0.0, 0.0], mask=[False, rows[-1, 0] > 1]), "mask"),
    ],
)
def test_labels_and_masks_of_a_value_are_no_part_of_what_noise_hides(draw, value, name):
    noisy = recorded(lambda v: v + draw.laplace(), sensitivity=1.0, scale=1.0, kind="laplace")
    other = ROWS.copy()
    other[-1] = 2.0
    (finding,) = replay(lambda rows: noisy(value(rows)), ROWS, other).findings
    assert f"has another {name} on the neighbour" in finding
    assert replay(lambda _: noisy(value(ROWS)), ROWS, other).findings == ()


# --- torch ---------------------------------------------------------------------------------------

TENSOR = torch.from_numpy(ROWS).float()


@pytest.mark.parametrize("factor", [1.0, 3.0])
def test_noise_in_single_precision_that_is_kept_is_found(factor):
    def program(rows):
        with recorded_torch(sensitivity=4.0):
            kept = torch.randn(4)
            return [rows.sum() + kept, 2 * rows.sum() + factor * kept]

    findings = replay(program, TENSOR, TENSOR[:-1]).findings
    assert any("has the noise of release 1 again" in finding for finding in findings)


def test_noise_in_single_precision_that_is_fresh_is_not():
    def program(rows):
        with recorded_torch(sensitivity=4.0):
            return [rows.sum() + torch.randn(size) for size in (1, 1, 2, 2, 9, 9) * 5]

    assert replay(program, TENSOR, TENSOR[:-1]).findings == ()


@pytest.mark.parametrize(
    "add",
    [
        lambda rows: rows.sum(0) + torch.normal(0.0, 2.0, (2,)),
        lambda rows: rows.sum(0) + 2.0 * torch.randn(2),
        lambda rows: torch.add(rows.sum(0), torch.randn_like(rows[0])),
        lambda rows: rows.sum(0).add_(torch.randn(2) * 2.0),
        lambda rows: torch.normal(rows.sum(0), 2.0),
    ],
)
def test_noise_of_torch_makes_a_release(add):
    def program(sensitivity, rows):
        with recorded_torch(sensitivity=sensitivity):
            return add(rows)

    original = torch.normal, torch.randn
    result = replay(lambda rows: program(2.0, rows), TENSOR, TENSOR[:-1], crafted=True)
    assert result.passed, str(result)
    assert result.exercised
    assert not replay(lambda rows: program(0.1, rows), TENSOR, TENSOR[:-1]).passed
    assert (torch.normal, torch.randn) == original
    with recorded_torch(sensitivity=1.0):
        assert type(add(TENSOR)) is torch.Tensor


def opacus_run(rows, *, divisor=4, clip=True):
    """Two steps of a linear model whose gradients are the rows."""
    torch.manual_seed(0)
    model = nn.Linear(2, 1)
    optimizer = DPOptimizer(
        torch.optim.SGD(model.parameters(), lr=0.1),
        noise_multiplier=1.0,
        max_grad_norm=0.5,
        expected_batch_size=divisor(rows) if callable(divisor) else divisor,
        clips=clip,
    )
    recorded_optimizer(optimizer)
    for _ in range(2):
        model.weight.grad_sample = rows[:, None, :]
        model.bias.grad_sample = torch.ones(len(rows), 1)
        optimizer.step()
    return model


def test_optimizer_of_opacus_takes_part():
    result = replay(opacus_run, TENSOR, TENSOR[:-1], crafted=True)
    assert result.passed, str(result)
    assert [release.dimension for release in result.releases] == [3, 3]
    assert result.releases[0].measured == pytest.approx(1.0, rel=1e-3)


def test_divisor_and_missing_clip_of_an_optimizer_are_found():
    (finding,) = replay(lambda rows: opacus_run(rows, divisor=len), TENSOR, TENSOR[:-1]).findings
    assert "beside its releases" in finding
    result = replay(lambda rows: opacus_run(rows, clip=False), TENSOR, TENSOR[:-1])
    assert "moved by more than its declared sensitivity" in result.findings[0]


@pytest.mark.parametrize(
    ("wrap", "match"),
    [
        (lambda: recorded(3, sensitivity=1.0), "function must be callable"),
        (lambda: recorded_generator(np.random, sensitivity=1.0), "generator must be one of"),
        (lambda: recorded_optimizer(object()), "optimizer must be a DPOptimizer"),
    ],
)
def test_wrong_use_is_refused(wrap, match):
    with pytest.raises(TypeError, match=match):
        wrap()


def test_negative_sensitivity_is_refused(draw):
    noisy = recorded(lambda value: value + draw.normal(), sensitivity=-1.0)
    with pytest.raises(ValueError, match="sensitivity"):
        replay(lambda rows: noisy(rows.sum()), ROWS, ROWS[:-1])
