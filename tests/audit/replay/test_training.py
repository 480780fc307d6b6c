"""The shipped training takes part in replays out of the box, and passes them."""

import subprocess
import sys
import textwrap
import time

import numpy as np
import pytest
import torch
from torch import nn
from torch.utils.data import DataLoader, TensorDataset

from taut.audit import replay
from taut.errors import UnsoundConfiguration
from taut.noise import SeededForExperiments
from taut.training import (
    FlatClip,
    GroupClip,
    L2LInfClip,
    ModelMix,
    NormalisedClip,
    Owners,
    Plan,
    PoissonSampling,
    PrivateLoader,
    PrivateTrainer,
    QuantileClip,
    TruncatedPoissonSampling,
    TwiceSampling,
    make_private,
)
from taut.training.extend import PrivateGradient

EXAMPLES = 16
_DRAW = torch.Generator().manual_seed(0)
INPUTS = torch.randn(EXAMPLES, 4, generator=_DRAW)
TARGETS = torch.randint(0, 2, (EXAMPLES,), generator=_DRAW)
INPUTS[-1] *= 50  # the record that differs is clipped


def dataset(count=EXAMPLES, last=None):
    targets = TARGETS[:count].clone()
    if last is not None:
        targets[-1] = last
    return TensorDataset(INPUTS[:count], targets)


def trained(seed=None, optimizer=None, owners=None, **arguments):
    settings = {
        "examples": EXAMPLES,
        "batch_size": 4,
        "steps": 5,
        "noise_multiplier": 1.0,
        "delta": 1e-3,
        "clipping": FlatClip(1.0),
        **arguments,
    }

    def program(data):
        torch.manual_seed(1)
        model = nn.Linear(4, 2)
        trainer = PrivateTrainer(
            model,
            nn.CrossEntropyLoss(),
            Plan(**settings),
            generator=None if seed is None else SeededForExperiments(seed=seed),
            optimizer=optimizer,
        )
        trainer.fit(data, owners=None if owners is None else owners[: len(data)])
        return model

    return program


@pytest.mark.parametrize("seed", [None, 7])
@pytest.mark.parametrize(
    "settings",
    [
        {},
        {"sampling": "allocation"},
        {"sampling": TruncatedPoissonSampling(cap=12)},
        {"sampling": TwiceSampling(spread=4), "clipping": L2LInfClip(1.0, 0.5)},
        {"mixing": ModelMix(width=2.0)},
        {"clipping": NormalisedClip(0.5)},
        {"clipping": QuantileClip(1.0)},
        {"clipping": GroupClip(bounds=[0.3, 1.0], groups={"bias": "shift", "*": "rest"})},
        {"optimizer": lambda parameters: torch.optim.Adam(parameters, lr=0.1)},
    ],
    ids=[
        "plain",
        "allocation",
        "cap",
        "twice",
        "mixing",
        "normalised",
        "quantile",
        "groups",
        "adam",
    ],
)
def test_added_and_removed_example(settings, seed):
    program = trained(seed, **settings)
    for pair in ((dataset(), dataset(EXAMPLES - 1)), (dataset(EXAMPLES - 1), dataset())):
        result = replay(program, *pair, crafted=True)
        assert result.passed, str(result)
        assert max(release.measured for release in result.releases) > 0.3


@pytest.mark.parametrize("sampling", ["poisson", "fixed_size", "allocation"])
def test_replaced_example(sampling):
    program = trained(sampling=sampling)
    result = replay(program, dataset(last=0), dataset(last=1), crafted=True)
    assert result.passed, str(result)
    assert result.exercised


@pytest.mark.parametrize(
    "settings",
    [
        {"sampling": TwiceSampling(spread=4), "clipping": L2LInfClip(1.0, 0.5)},
        {
            "owners": np.repeat(np.arange(EXAMPLES // 2), 2),
            "examples": None,
            "unit": Owners(EXAMPLES // 2, examples_each=1),
        },
    ],
    ids=["coordinates", "owners"],
)
def test_batches_that_are_empty_on_one_side_alone_change_no_later_choice(settings):
    """The batch after an empty one is drawn before its release; of the choices in between, which
    coordinates or which examples of an owner take part, both runs see the same."""
    program = trained(**{"batch_size": 1, "steps": 20} | settings)
    fewer = EXAMPLES - (2 if "owners" in settings else 1)
    for pair in ((dataset(), dataset(fewer)), (dataset(fewer), dataset())):
        result = replay(program, *pair, crafted=True)
        assert result.passed, str(result)


@pytest.mark.parametrize("noise", ["blt", "tree"])
def test_noise_that_is_correlated_over_steps(noise):
    result = replay(trained(noise=noise, steps=8), dataset(last=0), dataset(last=1), crafted=True)
    assert result.passed, str(result)
    assert sum(release.measured > 0 for release in result.releases) == 2  # once in an epoch


@pytest.mark.parametrize(
    ("noise", "sampling"), [("blt", None), ("banded", "balls_in_bins")], ids=["fixed", "secret"]
)
def test_loop_whose_noise_is_correlated_over_steps(noise, sampling):
    def program(data):
        torch.manual_seed(1)
        model = nn.Linear(4, 2)
        model, optimizer, loader = make_private(
            module=model,
            optimizer=torch.optim.SGD(model.parameters(), lr=0.1),
            data_loader=DataLoader(data, batch_size=4),
            noise_multiplier=1.0,
            max_grad_norm=1.0,
            noise=noise,
            sampling=sampling,
            epochs=2,
        )
        for _ in range(2):
            for x, y in loader:
                optimizer.zero_grad()
                nn.functional.cross_entropy(model(x), y).backward()
                optimizer.step()
        return model

    result = replay(program, dataset(last=0), dataset(last=1), crafted=True)
    assert result.passed, str(result)
    assert sum(release.measured > 0 for release in result.releases) == 2  # once in an epoch


def test_example_in_the_middle():
    places = [i for i in range(EXAMPLES) if i != 3]
    inputs = INPUTS.clone()
    inputs[3] *= 50
    pair = TensorDataset(inputs, TARGETS), TensorDataset(inputs[places], TARGETS[places])
    result = replay(trained(), *pair, differs_at=3, crafted=True)
    assert result.passed, str(result)
    wrong = replay(trained(), *pair, crafted=True)
    assert not wrong.passed  # other examples take each other's places


def test_owner_of_several_examples():
    owners = np.repeat(np.arange(EXAMPLES // 2), 2)
    program = trained(
        owners=owners, examples=None, unit=Owners(EXAMPLES // 2, examples_each=2), batch_size=4
    )
    result = replay(program, dataset(), dataset(EXAMPLES - 2), crafted=True)
    assert result.passed, str(result)
    assert result.exercised


def test_more_than_one_example_is_refused():
    def program(data):
        return sum(part.size for part in PrivateLoader(data, PoissonSampling(0.5)).microbatches())

    with pytest.raises(ValueError, match="must differ in one record, got 16 and 14"):
        replay(program, dataset(), dataset(EXAMPLES - 2))


def test_loader_that_outlives_a_replay_samples_again():
    kept = []

    def program(data):
        loader = PrivateLoader(data, PoissonSampling(0.01), steps=40)
        kept.append(loader)
        return next(iter(loader.microbatches())).size

    replay(program, dataset(), dataset())
    for loader in kept:
        sizes = [part.size for part in loader.microbatches()]
        assert sizes.count(0) > len(sizes) / 2  # the record is no longer in every batch


def test_result_that_is_no_release_is_found():
    def program(data):
        model = trained()(data)
        with torch.no_grad():
            inputs, targets = data.tensors
            return model, nn.functional.cross_entropy(model(inputs), targets)

    (finding,) = replay(program, dataset(), dataset(EXAMPLES - 1)).findings
    assert "it differs in [1]" in finding


def test_noise_is_not_drawn_twice_and_weights_agree():
    """The frozen run ends with the weights of the first; another run does not."""
    ends = []

    def program(data):
        model = trained()(data)
        ends.append(model.weight.detach().clone())
        return model

    replay(program, dataset(), dataset(EXAMPLES - 1))
    replay(program, dataset(), dataset(EXAMPLES - 1))
    assert torch.equal(ends[0], ends[1])
    assert not torch.equal(ends[0], ends[2])


class Centred(nn.Module):
    """A layer that mixes examples: outputs are compared with their mean over the batch."""

    def __init__(self):
        super().__init__()
        self.linear = nn.Linear(4, 2)

    def forward(self, inputs):
        outputs = self.linear(inputs)
        return outputs - outputs.mean(0, keepdim=True)


def test_model_that_mixes_examples_is_refused_or_found():
    """The engine refuses it first; told not to look, it is the replay that finds it."""

    def losses(outputs, targets):
        return nn.functional.cross_entropy(outputs, targets, reduction="none")

    def program(data, check):
        torch.manual_seed(1)
        model = Centred()
        step = PrivateGradient(
            model, FlatClip(1.0), scales=[1.0], expected_batch_size=8, self_check=check
        )
        for part in PrivateLoader(data, PoissonSampling(1.0)).microbatches():
            step.accumulate_batch(*part.data, losses)
            step.finish()
        return model.linear.weight.grad

    with pytest.raises(UnsoundConfiguration):
        program(dataset(), check=True)
    result = replay(lambda data: program(data, check=False), dataset(), dataset(EXAMPLES - 1))
    assert "moved by more than its declared sensitivity" in result.findings[0]
    assert "test_training.py" in result.findings[0]  # not a line of torch


def test_statements_of_both_runs_give_one_time():
    settings = {"examples": EXAMPLES, "batch_size": 4, "steps": 1, "delta": 1e-3}
    plan = Plan(**settings, noise_multiplier=1.0, clipping=FlatClip(1.0))

    def program(data):
        torch.manual_seed(1)
        time.sleep(1.0)  # so that the runs end in different seconds
        result = PrivateTrainer(nn.Linear(4, 2), nn.CrossEntropyLoss(), plan).fit(data)
        return result, result.to_json()

    assert replay(program, dataset(), dataset(EXAMPLES - 1)).findings == ()


def test_torch_that_the_program_loads_itself_begins_both_runs_alike():
    code = """
        import numpy as np
        from taut.audit import replay
        from taut.noise import Box, optimal_laplace

        noise = optimal_laplace(Box([1.0]), epsilon=1.0)

        def program(rows):
            import torch
            weight = torch.nn.Linear(2, 2).weight
            return noise.release([min(rows.sum(), 1.0)]), weight

        assert replay(program, np.ones(3), np.ones(2)).findings == ()
    """
    subprocess.run([sys.executable, "-c", textwrap.dedent(code)], check=True)
