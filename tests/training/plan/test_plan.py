"""Plans keep their promise, say what they cost, and survive JSON."""

import dataclasses
import json
import math
import pickle

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

import taut
from taut.errors import InfeasibleBudget, UnsoundConfiguration
from taut.noise import Blocks
from taut.training import FixedSizeSampling, FlatClip, Plan, PoissonSampling
from taut.training.extend import Clipping

CLIP = FlatClip(1.0)


def plan(**changes):
    arguments = {"examples": 10_000, "batch_size": 100, "steps": 1_000, "clipping": CLIP}
    return Plan(**arguments | changes)


# --- known numbers -----------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("noise", "steps", "delta", "epsilon"),
    [
        (1.0, 1_000, 1e-5, 1.8282366665),
        (1.0, 10_000, 1e-5, 6.1877124),
        (1.0, 1_000, 1e-12, 3.914298),
        (2.0, 1_000, 1e-5, 0.6220303088),
        (2.0, 5_000, 1e-5, 1.47738),
    ],
)
def test_all_three_questions_meet_the_reference_values(noise, steps, delta, epsilon):
    """The values are contour integrals in 30 digits, see tests/reference/values/accounting.json."""
    found = plan(steps=steps, noise_multiplier=noise, delta=delta)
    assert epsilon * (1 - 1e-5) <= found.epsilon <= epsilon * 1.0011
    found = plan(steps=steps, epsilon=epsilon, delta=delta)
    assert noise * (1 - 1e-5) <= found.noise_multiplier <= noise * 1.001
    found = plan(steps=steps, epsilon=epsilon, noise_multiplier=noise)
    assert delta * (1 - 1e-3) <= found.delta <= delta * 1.01


def test_steps_follow_from_epochs():
    assert plan(examples=60_000, batch_size=512, steps=None, epochs=15, **ONE).steps == 1_758
    assert plan(steps=None, epochs=3, **ONE).steps == 300
    assert plan(steps=None, epochs=0.1, **ONE).steps == 10
    assert plan(batch_size=None, rate=0.07, steps=None, epochs=7, **ONE).steps == 100
    assert plan(steps=None, epochs=1e-6, **ONE).steps == 1


ONE = {"noise_multiplier": 1.0, "delta": 1e-5}


def test_everything_is_set():
    found = plan(batch_size=None, rate=0.03, **ONE)
    assert (found.examples, found.rate, found.steps) == (10_000, 0.03, 1_000)
    assert (found.batch_size, found.epochs) == (pytest.approx(300), pytest.approx(30))
    assert found.sampling == PoissonSampling(0.03)
    assert found.adjacency == "add_remove"
    assert found.step_loss == taut.gaussian(1.0).poisson(0.03)
    assert found.loss == 1_000 * found.step_loss


def test_fixed_size_plan_is_for_replacement():
    found = plan(sampling=FixedSizeSampling(), **ONE)
    assert found.adjacency == "replace"
    assert found.sampling == FixedSizeSampling(100)
    base = taut.gaussian(1.0, 2.0, adjacency="replace")
    assert found.loss == 1_000 * base.fixed_size(100, 10_000, "replace")
    assert found.epsilon > plan(**ONE).epsilon


@settings(max_examples=15)
@given(
    rate=st.floats(1e-3, 1.0),
    steps=st.integers(1, 3_000),
    epsilon=st.floats(0.2, 20),
    delta=st.sampled_from([1e-8, 1e-5, 1e-3]),
)
def test_promise_is_certified_and_not_wasteful(rate, steps, epsilon, delta):
    found = plan(batch_size=None, rate=rate, steps=steps, epsilon=epsilon, delta=delta)
    assert found.loss.epsilon(delta) <= epsilon
    less = found.sampling.loss(found.noise_multiplier * 0.998, 10_000, steps)
    assert less.epsilon(delta) > epsilon


# --- along the way -----------------------------------------------------------------------------


def test_epsilon_grows_from_zero_to_the_promise():
    found = plan(epsilon=3.0, delta=1e-5)
    order = [1_000, 500, 1, 999, 0, 501, 998, 1_200]
    answers = {step: found.epsilon_at(step) for step in order}
    values = [answers[step] for step in sorted(order)]
    assert values == sorted(values)
    assert answers[0] == 0.0
    assert answers[1_000] == 3.0
    assert answers[1_200] > 3.0
    assert answers[500] == pytest.approx(found.loss_at(500).epsilon(1e-5), rel=2e-3)
    assert {step: found.epsilon_at(step) for step in order} == answers


def test_epsilon_at_is_monotone_where_neighbours_differ_by_less_than_the_tolerance():
    found = plan(steps=2_000, **ONE)
    values = [found.epsilon_at(step) for step in range(1_000, 1_012)]
    assert values == sorted(values)
    lower = [found.loss_at(step).epsilon_bounds(1e-5).lower for step in (1_000, 1_011)]
    assert lower[0] <= values[0]
    assert lower[1] <= values[-1]


def test_remembered_answers_do_not_make_plans_differ():
    first, second = plan(**ONE), plan(**ONE)
    first.epsilon_at(10)
    assert first == second
    assert hash(first) == hash(second)
    assert repr(first) == repr(second)
    assert pickle.loads(pickle.dumps(first)) == second


def test_plans_are_frozen():
    with pytest.raises(dataclasses.FrozenInstanceError):
        plan(**ONE).steps = 3


def test_plan_reads_well():
    text = str(plan(epsilon=3.0, delta=1e-3))
    assert "1000 steps of 100 examples out of 10000 (10 epochs), sampling poisson" in text
    assert "epsilon 3 at delta 0.001, adjacency add_remove" in text
    assert "note: delta=0.001 is not below 1 / examples = 0.0001" in text


def test_notes_warn_of_noise_beyond_the_batch():
    assert plan(**ONE).notes == ()
    (note,) = plan(noise_multiplier=101.0, delta=1e-5).notes
    assert "one step is mostly noise" in note


# --- noise for the clipping --------------------------------------------------------------------


def test_flat_clipping_has_one_scale():
    found = plan(noise_multiplier=2.0, delta=1e-5, clipping=FlatClip(0.3))
    (scale,) = found.noise_scales({"a": 30, "b": 4})
    assert 0.6 <= scale <= 0.6 * (1 + 1e-9)


@dataclasses.dataclass(frozen=True)
class TwoNorms(Clipping):
    """Weights and biases apart, for the tests."""

    name = "two_norms"
    norms: tuple[float, float] = (1.0, 0.1)

    def groups(self, names):
        return [int("bias" in name) for name in names]

    def sensitivity(self, names, sizes):
        ranks = [0, 0]
        for group, size in zip(self.groups(names), sizes, strict=True):
            ranks[group] += size
        return Blocks(ranks=ranks, l2=list(self.norms))


def test_clipping_without_tensors_plans_and_does_not_train():
    with pytest.raises(NotImplementedError, match="derive it from NormClipping or RowClipping"):
        TwoNorms().sum([], [], 1.0)


def test_groups_have_scales_of_their_own():
    found = plan(noise_multiplier=2.0, delta=1e-5, clipping=TwoNorms())
    scales = found.noise_scales({"a.weight": 300, "a.bias": 4, "b.weight": 50})
    assert len(scales) == 2
    assert scales[1] < scales[0]
    # Each block alone, and both together, stay within 1 / multiplier after whitening.
    length = math.hypot(1.0 / scales[0], 0.1 / scales[1])
    assert length == pytest.approx(1 / 2.0, rel=1e-9)
    assert length <= 1 / 2.0
    assert Plan.from_json(found.to_json()) == found


def test_noise_scales_refuse_what_cannot_be_hidden():
    with pytest.raises(ValueError, match="at least one parameter"):
        plan(**ONE).noise_scales({})
    with pytest.raises(ValueError, match=r"radius|norm|radii"):
        plan(**ONE, clipping=FlatClip(math.inf)).noise_scales({"a": 3})


# --- JSON --------------------------------------------------------------------------------------


@pytest.mark.parametrize("sampling", [PoissonSampling(), FixedSizeSampling()])
@pytest.mark.parametrize("given_", [ONE, {"epsilon": 2.0, "delta": 1e-5}])
def test_plans_round_trip(sampling, given_):
    found = plan(examples=9_973, batch_size=97, sampling=sampling, **given_)
    again = Plan.from_json(found.to_json())
    assert again == found
    assert again.loss == found.loss
    assert again.epsilon_at(found.steps) == found.epsilon
    assert json.loads(found.to_json())["schema"] == "taut.training-plan/1"


def test_rates_round_trip():
    found = plan(batch_size=None, rate=0.0123456789, **ONE)
    assert Plan.from_json(found.to_json()) == found


@pytest.mark.parametrize(
    ("change", "error", "message"),
    [
        ({"schema": "taut.training-plan/7"}, ValueError, "expected schema"),
        ({"epsilon": 1.5}, UnsoundConfiguration, "cost at least 1.8"),
        ({"noise_multiplier": 0.9}, UnsoundConfiguration, "changed by hand"),
        ({"steps": 1_100}, UnsoundConfiguration, "changed by hand"),
        ({"batch_size": 50.0}, ValueError, "does not fit"),
        ({"rate": 1e-4}, ValueError, "does not fit"),
        ({"adjacency": "replace"}, UnsoundConfiguration, "does not belong"),
        ({"steps": None}, ValueError, "steps must be an integer"),
        ({"clipping": {"name": "none"}}, ValueError, "name must be one of .*flat"),
        ({"sampling": {"name": "shuffled"}}, ValueError, "name must be one of .*poisson"),
        ({"noise_multiplier": -1.0}, ValueError, "noise_multiplier must be"),
    ],
)
def test_json_that_does_not_hold_together(change, error, message):
    data = plan(**ONE).to_dict() | change
    with pytest.raises(error, match=message):
        Plan.from_json(json.dumps(data))


def test_what_is_read_is_proven_apart():
    true = plan(**ONE)
    false = true.to_dict() | {"epsilon": true.epsilon / 2}
    with pytest.raises(UnsoundConfiguration, match="changed by hand"):
        Plan.from_dict(false)
    read = Plan.unproven(false)
    assert read.epsilon == true.epsilon / 2
    # What was read does not enter what is computed.
    assert read.loss == true.loss
    assert read.epsilon_at(read.steps) >= true.least_epsilon > read.epsilon
    with pytest.raises(UnsoundConfiguration, match="changed by hand"):
        read.proven()
    assert Plan.from_dict(true.to_dict()) == true
    assert true.least_epsilon <= true.epsilon


def test_json_that_is_no_plan():
    with pytest.raises(ValueError, match="not valid JSON"):
        Plan.from_json("{")
    with pytest.raises(ValueError, match="got 'list'"):
        Plan.from_json("[]")
    data = plan(**ONE).to_dict()
    del data["rate"]
    with pytest.raises(ValueError, match="malformed training plan: KeyError\\('rate'\\)"):
        Plan.from_dict(data)


# --- what cannot be planned --------------------------------------------------------------------


def test_infeasible_budget_says_what_helps_and_that_it_does():
    target = {"examples": 60_000, "batch_size": 512, "steps": 1_758, "delta": 1e-5}
    with pytest.raises(InfeasibleBudget) as error:
        plan(**target, epsilon=0.01, max_noise_multiplier=20)
    message = str(error.value)
    assert "needs a noise multiplier of 87" in message
    assert "above the limit max_noise_multiplier = 20" in message
    for way, name in (
        ("epsilon >= ", "epsilon"),
        ("steps <= ", "steps"),
        ("batch_size <= ", "batch_size"),
        ("examples >= ", "examples"),
    ):
        word = message.split(way)[1].split(";")[0]
        value = float(word) if name == "epsilon" else int(word)
        changed = target | {"epsilon": 0.01} | {name: value}
        assert plan(**changed, max_noise_multiplier=20).noise_multiplier <= 20
        # And a tenth less of the change does not.
        nearer = value * (0.9 if "epsilon" in name or "examples" in name else 1.1)
        changed[name] = nearer if name == "epsilon" else int(nearer)
        with pytest.raises(InfeasibleBudget):
            plan(**changed, max_noise_multiplier=20)


def test_noise_that_drowns_everything_is_infeasible():
    small = {"examples": 20, "batch_size": 2, "steps": 10, "delta": 1e-6}
    with pytest.raises(InfeasibleBudget, match="exceeds the largest possible signal") as error:
        plan(**small, epsilon=0.01)
    needed = float(str(error.value).split("examples >= ")[1])
    assert plan(**small | {"examples": int(needed)}, epsilon=0.01).noise_multiplier > 1
    # A multiplier that was asked for is never refused.
    assert plan(**small, noise_multiplier=1_000.0).epsilon < 0.01


def test_no_delta_no_gaussian():
    with pytest.raises(InfeasibleBudget, match="no Gaussian noise keeps delta=0"):
        plan(epsilon=1.0, delta=0.0)


@pytest.mark.parametrize(
    ("change", "message"),
    [
        ({"examples": 0}, "examples must be at least 1"),
        ({"examples": 10.5}, "examples must be an integer"),
        ({"batch_size": 10_001}, "at most examples=10000, got batch_size=10001"),
        ({"batch_size": 0}, "batch_size must be at least 1"),
        ({"batch_size": 10.5}, "batch_size must be an integer"),
        ({"batch_size": None}, "either batch_size or rate"),
        ({"rate": 0.01}, "either batch_size or rate"),
        ({"batch_size": None, "rate": 0.0}, "rate must be greater than 0"),
        ({"batch_size": None, "rate": 1.5}, "rate must be a probability"),
        ({"batch_size": None, "rate": math.nan}, "rate must be a probability"),
        ({"steps": None}, "either steps or epochs"),
        ({"epochs": 3}, "either steps or epochs"),
        ({"steps": 0}, "steps must be at least 1"),
        ({"steps": 2.5}, "steps must be an integer"),
        ({"steps": None, "epochs": -1}, "epochs must be finite and greater than 0"),
        ({"epsilon": 1.0}, "two of epsilon, delta and noise_multiplier"),
        ({"noise_multiplier": None}, "two of epsilon, delta and noise_multiplier"),
        ({"noise_multiplier": 0.0}, "noise_multiplier must be finite and greater than 0"),
        ({"noise_multiplier": math.nan}, "noise_multiplier must be"),
        ({"delta": 1.0}, "delta must be in"),
        ({"delta": None, "epsilon": 0.0}, "epsilon must be"),
        ({"clipping": 1.0}, "clipping must be a Clipping.*FlatClip"),
        ({"sampling": PoissonSampling}, "sampling must be a Sampling.*PoissonSampling"),
        (
            {"sampling": "shuffled"},
            "sampling must be one of poisson, truncated_poisson, allocation, fixed_size",
        ),
        ({"sampling": PoissonSampling(0.2)}, "contradicts a batch of 100"),
        ({"sampling": FixedSizeSampling(20)}, "contradicts a batch of 100"),
        ({"max_noise_multiplier": 0}, "max_noise_multiplier must be"),
    ],
)
def test_bad_input(change, message):
    with pytest.raises(ValueError, match=message):
        plan(**ONE | change)
