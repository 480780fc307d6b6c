"""A bound that follows a quantile of the norms: what it finds, and that it is paid for."""

import itertools
import json
import math

import numpy as np
import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st
from torch import nn
from training.runs import data, model, plan, private_loop, sgd, weights

import taut
from taut.accounting import Adjacency
from taut.audit import audit_training
from taut.errors import UnsoundConfiguration
from taut.noise import SeededForExperiments
from taut.training import (
    Callback,
    Checkpointing,
    CSVLog,
    FixedSizeSampling,
    FlatClip,
    Logs,
    Plan,
    PrivateTrainer,
    QuantileClip,
)
from taut.training.extend import Clipping, CountedNoise, Draw, IndependentNoise, PrivateGradient

LOSS = nn.CrossEntropyLoss(reduction="none")
SILENT = CountedNoise(IndependentNoise((0.0,), (0,)), 0.0)


def outputs(values, _):
    """Return the output as the loss, so that an example's gradient is its input."""
    return values[:, 0]


def engine(clipping, noise=SILENT, expected=None, width=3, **options):
    net = nn.Linear(width, 1, bias=False)
    expected = clipping.batch_size if expected is None else expected
    return PrivateGradient(
        net,
        clipping,
        noise=noise,
        expected_batch_size=expected,
        backend="bookkeeping",
        self_check=False,
        **options,
    )


def of_length(*norms):
    rows = torch.zeros(len(norms), 3)
    rows[:, 0] = torch.tensor(norms)
    return rows


# --- one Gaussian for both -------------------------------------------------------------------


def noise_at(multiplier, batch_size=64, **options):
    return QuantileClip(1.0, batch_size=batch_size, **options).noise(["w"], [3], multiplier)


def delta_by_quadrature(shift, scales, epsilon):
    """Return delta of two normal densities in the plane, by the sum over a fine grid."""
    axes = []
    for move, scale in zip(shift, scales, strict=True):
        low, high = sorted((0.0, move))
        axes.append(np.linspace(low - 9 * scale, high + 9 * scale, 2_001))
    x, y = np.meshgrid(*axes, indexing="ij")
    cell = np.prod([axis[1] - axis[0] for axis in axes]) / (2 * math.pi * np.prod(scales))

    def density(a, b):
        return np.exp(-0.5 * (((x - a) / scales[0]) ** 2 + ((y - b) / scales[1]) ** 2))

    return float(np.maximum(density(*shift) - math.exp(epsilon) * density(0, 0), 0).sum() * cell)


@pytest.mark.parametrize("multiplier", [0.6, 1.0, 2.5])
@pytest.mark.parametrize("epsilon", [0.0, 0.5, 2.0])
def test_release_of_both_is_scalar_noise_of_the_multiplier(multiplier, epsilon):
    noise = noise_at(multiplier, count_noise=0.8 * multiplier)  # dear, so that it shows
    scales = (noise.gradients.scales[0], noise.count)
    found = delta_by_quadrature((1.0, -0.5), scales, epsilon)
    assert found == pytest.approx(taut.gaussian(multiplier).delta(epsilon), rel=1e-3, abs=1e-7)
    exchanged = taut.gaussian(multiplier, sensitivity=2.0, adjacency=Adjacency.REPLACE)
    found = delta_by_quadrature((2.0, -1.0), scales, epsilon)
    assert found == pytest.approx(exchanged.delta(epsilon), rel=1e-3, abs=1e-7)


@given(
    multiplier=st.floats(0.05, 50.0),
    batch_size=st.floats(1.0, 1e6),
    share=st.none() | st.floats(0.51, 20.0),
)
def test_no_example_is_longer_than_one_over_the_multiplier(multiplier, batch_size, share):
    count = None if share is None else share * multiplier
    noise = noise_at(multiplier, batch_size, count_noise=count)
    scale = noise.gradients.scales[0]
    directions = np.array([[0, 0], [1, 0], [-1, 0], [0.6, 0.8], [0.3, -0.4]])
    ways = [(*u / scale, v / noise.count) for u in directions for v in (-0.5, 0.5)]
    longest = max(np.linalg.norm(way) for way in ways)
    assert longest == pytest.approx(1 / multiplier, rel=1e-9)
    # An exchange, and an example that is not finite and so counts for nothing, move no further.
    apart = [np.subtract(a, b) for a, b in itertools.combinations([*ways, (0, 0, 0)], 2)]
    assert max(np.linalg.norm(way) for way in apart) == pytest.approx(2 / multiplier, rel=1e-9)


@given(multiplier=st.floats(0.05, 50.0), batch_size=st.floats(1.0, 1e6))
def test_default_costs_at_most_a_percent_of_noise(multiplier, batch_size):
    noise = noise_at(multiplier, batch_size)
    assert 1 < noise.gradients.scales[0] / multiplier <= 1.01 * (1 + 1e-12)
    assert noise.count >= batch_size / 20 * (1 - 1e-12)
    assert noise.count <= max(batch_size / 20, 3.6 * multiplier) * (1 + 1e-12)


def test_plan_costs_what_it_does_with_a_constant_norm():
    for sampling in (None, FixedSizeSampling()):
        flat, moving = (
            plan(clipping=c, sampling=sampling) for c in (FlatClip(0.5), QuantileClip(0.5))
        )
        assert moving.epsilon == flat.epsilon
        assert moving.clipping.batch_size == moving.batch_size == 12


# --- what is counted -------------------------------------------------------------------------


def test_votes_move_the_bound_and_the_noise_with_it():
    clipping = QuantileClip(2.0, quantile=0.75, learning_rate=0.4, batch_size=8.0)
    step = engine(clipping, expected=2.0)
    step.accumulate_batch(of_length(0.0, 1.0, 1.999), None, outputs)
    step.accumulate_batch(of_length(2.1, 50.0), None, outputs)
    assert step.clipping_norm == 2.0
    step.finish()
    # Three of five are short: the votes are one half, of eight that were expected.
    expected = 2.0 * math.exp(-0.4 * (0.5 / 8 + 0.5 - 0.75))
    assert step.clipping_norm == pytest.approx(expected, rel=1e-12)
    assert float(step.model.weight.grad[0, 0]) == pytest.approx((1.0 + 1.999 + 2 + 2) / 2)
    step.accumulate_batch(of_length(50.0), None, outputs)
    step.finish()
    assert float(step.model.weight.grad[0, 0]) == pytest.approx(expected / 2)


def test_noise_follows_the_bound():
    noise = CountedNoise(IndependentNoise((3.0,), (0,)), 0.0)
    clipping = QuantileClip(2.0, quantile=0.999, learning_rate=1.0, batch_size=4.0)
    step = engine(clipping, noise, width=20_000, generator=SeededForExperiments(seed=0))
    for _ in range(3):
        norm = step.clipping_norm
        step.finish()
        found = float(step.model.weight.grad.std())
        assert found == pytest.approx(3.0 * norm / 4, rel=0.025)  # five standard errors
    assert norm == pytest.approx(2.0 * math.exp(2 * 0.499))


def test_examples_without_finite_gradient_have_no_vote():
    step = engine(QuantileClip(1.0, batch_size=2.0))
    step.accumulate_batch(of_length(math.inf, 5.0, math.nan, math.inf), None, outputs)
    assert step.dropped == 3
    assert float(step._sum.votes) == -0.5
    step.discard()
    assert float(step._sum.votes) == 0.0
    assert step.clipping_norm == 1.0


def test_batch_size_shows_in_the_votes_alone():
    """Examples without a gradient leave the gradient as it is, to the last bit."""
    steps = [engine(QuantileClip(1.0, batch_size=4.0)) for _ in range(2)]
    steps[1].accumulate_batch(of_length(0.0, 0.0, 0.0), None, outputs)
    for step in steps:
        step.accumulate_batch(of_length(0.3, 7.0), None, outputs)
        step.finish()
    grads = [step.model.weight.grad for step in steps]
    assert torch.equal(*grads)
    assert steps[0].clipping_norm == 1.0
    assert steps[1].clipping_norm == pytest.approx(math.exp(-0.2 * 1.5 / 4))


def test_votes_under_poisson_sampling_are_centred():
    """The mean share is the true one, though batches differ in size."""
    clipping = QuantileClip(1.0, quantile=0.3, learning_rate=1.0, batch_size=10.0)
    draw = np.random.default_rng(0)
    shares = []
    for _ in range(4_000):
        drawn = draw.random(100) < 0.1
        short = int(drawn[:80].sum())  # 80 of 100 are short
        votes = short - 0.5 * int(drawn.sum())
        shares.append(0.3 - math.log(clipping.moved(1.0, votes)))
    error = np.std(shares) / math.sqrt(len(shares))
    assert np.mean(shares) == pytest.approx(0.8, abs=4 * error)


@pytest.mark.parametrize("quantile", [0.2, 0.5, 0.9])
@pytest.mark.parametrize("start", [0.02, 50.0])
def test_bound_finds_the_quantile(quantile, start):
    bits = torch.Generator().manual_seed(1)
    norms = torch.randn(5_000, generator=bits).exp()
    rows = torch.zeros(5_000, 3)
    rows[:, 1] = norms
    a_plan = Plan(
        examples=5_000, batch_size=400, steps=120, noise_multiplier=1.0, delta=1e-5,
        clipping=QuantileClip(start, quantile=quantile, learning_rate=0.5),
    )  # fmt: skip
    source = SeededForExperiments(seed=3)
    step = engine(a_plan.clipping, a_plan.noise({"weight": 3}), generator=source)
    found = []
    for _ in range(a_plan.steps):
        drawn = torch.from_numpy(a_plan.sampling.draw(5_000, source))
        step.accumulate_batch(rows[drawn], None, outputs)
        step.finish()
        found.append(float((norms <= step.clipping_norm).double().mean()))
    assert abs(found[0] - quantile) > 0.09
    # A count is off by 5 percent of the batch or so, of which a move takes half.
    assert np.mean(found[-40:]) == pytest.approx(quantile, abs=0.03)
    assert np.std(found[-40:]) < 0.06


def test_bound_stays_within_its_range():
    clipping = QuantileClip(1.0, bounds=(0.5, 3.0), batch_size=1.0)
    assert clipping.moved(1.0, 1e9) == 0.5
    assert clipping.moved(1.0, -1e9) == 3.0
    assert QuantileClip(1.0, batch_size=1.0).moved(1.0, -1e300) == 1000.0


# --- runs ------------------------------------------------------------------------------------


class Norms(Callback):
    def __init__(self, stop=None):
        self.seen, self._stop = [], stop

    def on_step_end(self, trainer, event):
        self.seen.append(event.clipping_norm)
        if event.step == self._stop:
            raise KeyboardInterrupt


def trainer(net, directory=None, callbacks=(), steps=9, **options):
    return PrivateTrainer(
        net,
        LOSS,
        plan(clipping=QuantileClip(0.5), steps=steps),
        optimizer=sgd(net),
        run_dir=directory,
        checkpoints=Checkpointing(every=4),
        logs=Logs(callbacks=callbacks, progress=False),
        generator=SeededForExperiments(seed=5),
        **options,
    )


def test_resumed_run_goes_on_with_the_bound(tmp_path):
    whole, cut, norms = model(), model(), Norms()
    log = CSVLog(tmp_path / "log.csv")
    trainer(whole, tmp_path / "whole", [norms, log]).fit(data())
    assert len(set(norms.seen)) == 9
    assert "clipping_norm" in (tmp_path / "log.csv").read_text()
    with pytest.raises(KeyboardInterrupt):
        trainer(cut, tmp_path / "cut", [Norms(stop=8)]).fit(data())
    again, rest = model(seed=99), Norms()
    trainer(again, tmp_path / "cut", [rest]).fit(data())
    assert rest.seen == norms.seen[8:]
    assert torch.equal(weights(again), weights(whole))


def test_trainer_and_loops_with_mean_or_sum_agree():
    """The bound counts examples, whatever the gradient is divided by."""
    options = {
        "noise_multiplier": 0.05,
        "clipping": QuantileClip(0.5),
        "max_grad_norm": None,
        "max_physical_batch_size": 5,
        "poisson_sampling": False,
    }
    norms, rates = {}, {"mean": 0.5, "sum": 0.5 / 12}
    for reduction, rate in rates.items():
        net = model()
        private = private_loop(
            net, sgd(net, lr=rate), data(), steps=5, loss_reduction=reduction,
            noise_generator=SeededForExperiments(seed=5), **options,
        )  # fmt: skip
        norms[reduction] = private._gradient.clipping_norm
    net, seen = model(), Norms()
    a_plan = plan(
        clipping=QuantileClip(0.5), steps=5, noise_multiplier=0.05, sampling=FixedSizeSampling()
    )
    PrivateTrainer(
        net, LOSS, a_plan, optimizer=sgd(net), logs=Logs(callbacks=[seen], progress=False),
        generator=SeededForExperiments(seed=5),
    ).fit(data())  # fmt: skip
    assert norms["mean"] == norms["sum"] == seen.seen[-1] != 0.5


def test_state_of_a_loop_holds_the_bound():
    options = {"clipping": QuantileClip(0.5), "max_grad_norm": None}
    net = model()
    first = private_loop(net, sgd(net), data(), steps=4, **options)
    state = first.state_dict()
    norm = state["privacy"]["gradient"]["clipping_norm"]
    assert norm == first._gradient.clipping_norm != 0.5
    found = []

    def load(private):
        private.load_state_dict(state)
        found.append(private._gradient.clipping_norm)

    first.remove()
    private_loop(net, sgd(net), data(), steps=5, before=load, **options)
    assert found == [norm]


# --- audit -----------------------------------------------------------------------------------

RATE, STEPS, MULTIPLIER = 0.7, 3, 0.8


def audited(cheat=1.0, trials=300):
    """Audit what steps release: gradients in units of their bound, and votes read off the bound."""
    clipping = QuantileClip(1.0, batch_size=2.0, learning_rate=0.05, count_noise=0.6)
    noise = clipping.noise(["weight"], [3], MULTIPLIER)
    told = CountedNoise(noise.gradients, noise.count * cheat)
    scale = noise.gradients.scales[0]
    # The direction in which an example that is longer than every bound moves both.
    along = np.array([1 / scale, -0.5 / noise.count]) * MULTIPLIER

    def run(with_canary, seed):
        source = SeededForExperiments(seed=seed)
        draw = np.random.default_rng(seed + 1)
        step = engine(clipping, told, generator=source)
        seen = []
        for _ in range(STEPS):
            before = step.clipping_norm
            if with_canary and draw.random() < RATE:
                step.accumulate_batch(of_length(1e6), None, outputs)
            step.finish()
            grad = step.model.weight.grad[0].double().numpy() * 2.0 / before / scale
            share = 0.5 - math.log(step.clipping_norm / before) / 0.05
            votes = (share - 0.5) * 2.0 / noise.count
            across = grad[0] * along[1] - votes * along[0]
            seen.append([grad[0] * along[0] + votes * along[1], across, *grad[1:]])
        return np.array(seen)

    def ratio(runs):
        x = runs[:, :, 0] / MULTIPLIER - 0.5 / MULTIPLIER**2
        return np.log(1 - RATE + RATE * np.exp(x)).sum(1)

    return audit_training(
        run, claimed=STEPS * taut.gaussian(MULTIPLIER).poisson(RATE), delta=1e-2,
        trials=trials, seed=1, statistics={"likelihood ratio": ratio}, noise_scale=1.0,
    )  # fmt: skip


def test_audit_passes():
    result = audited()
    assert result.passed, str(result)
    assert result.epsilon_lower > 0.5


def test_audit_finds_votes_with_too_little_noise():
    result = audited(cheat=0.05, trials=120)
    assert result.violations, str(result)


# --- values and refusals ---------------------------------------------------------------------


@pytest.mark.parametrize(
    "clipping", [QuantileClip(0.5), QuantileClip(2.0, 0.9, 0.1, (0.1, 5.0), 40.0)], ids=repr
)
def test_round_trip(clipping):
    a_plan = plan(clipping=clipping)
    again = Plan.from_json(a_plan.to_json())
    assert again == a_plan
    assert hash(again.clipping) == hash(a_plan.clipping)
    assert Clipping.from_dict(json.loads(json.dumps(clipping.to_dict()))) == clipping


def test_json_with_the_batch_of_another_plan_is_refused():
    described = plan(clipping=QuantileClip(0.5)).to_dict()
    described["clipping"]["batch_size"] /= 2
    with pytest.raises(ValueError, match="is for another batch"):
        Plan.from_dict(described)


@pytest.mark.parametrize(
    ("make", "message"),
    [
        (lambda: QuantileClip(0.0), "norm"),
        (lambda: QuantileClip(math.inf), "norm"),
        (lambda: QuantileClip(1.0, quantile=1.0), "quantile must be inside"),
        (lambda: QuantileClip(1.0, quantile=0.0), "quantile must be inside"),
        (lambda: QuantileClip(1.0, learning_rate=0.0), "learning_rate"),
        (lambda: QuantileClip(1.0, bounds=(2.0, 3.0)), "bounds must enclose"),
        (lambda: QuantileClip(1.0, count_noise=-1.0), "count_noise"),
        (lambda: QuantileClip(1.0).noise(["w"], [3], 1.0), "batch_size must be set"),
        (lambda: plan(clipping=QuantileClip(1.0, batch_size=13.0)), "for another batch"),
    ],
)
def test_refuses_bad_arguments(make, message):
    with pytest.raises(ValueError, match=message):
        make()


def test_clipping_can_be_exchanged_for_a_bound_that_moves():
    step = PrivateGradient(nn.Linear(3, 1, bias=False), FlatClip(1.0), scales=[0.0],
                           expected_batch_size=4.0, self_check=False)  # fmt: skip
    with pytest.raises(UnsoundConfiguration, match="is not the noise of"):
        step.exchange(QuantileClip(1.0, batch_size=4.0), IndependentNoise((0.0,), (0,)))
    step.exchange(QuantileClip(1.0, batch_size=4.0), SILENT)
    step.accumulate_batch(of_length(5.0), None, outputs)
    step.finish()
    assert step.clipping_norm > 1.0


def test_refuses_noise_that_does_not_follow():
    clipping = QuantileClip(1.0, batch_size=8.0)
    with pytest.raises(UnsoundConfiguration, match="noise of a plan"):
        PrivateGradient(nn.Linear(2, 1), clipping, scales=[1.0], expected_batch_size=8)
    noise = clipping.noise(["weight", "bias"], [2, 1], 1.0)
    with pytest.raises(UnsoundConfiguration, match="is not the noise of"):
        PrivateGradient(nn.Linear(2, 1), FlatClip(1.0), noise=noise, expected_batch_size=8)
    with pytest.raises(UnsoundConfiguration, match="leaves nothing for gradients"):
        noise_at(1.0, count_noise=0.5)
    with pytest.raises(UnsoundConfiguration, match="ask the plan for its noise"):
        plan(clipping=clipping, batch_size=8).noise_scales({"w": 3})


def test_noise_of_gradients_alone_hides_no_count():
    how = Draw(SeededForExperiments(seed=0), 1.0, torch.float32, torch.device("cpu"))
    with pytest.raises(UnsoundConfiguration, match="no count beside them"):
        IndependentNoise((1.0,), (0,)).draw_count(how)


def test_a_constant_bound_does_not_move():
    constant = FlatClip(1.0).sum([torch.zeros(2)], [0], 1.0)
    constant.go_on_with(3.0)
    assert constant.norm is None
    with pytest.raises(NotImplementedError, match="constant bound"):
        constant.move(0.0)
