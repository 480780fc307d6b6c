"""Hostile arguments for public entry points: every call answers soundly, or refuses in our words.

An answer is unsound if epsilon, delta or a divergence is NaN or negative, if bounds cross, or if a
clipped row is outside of its set. A refusal is ours if it is a ValueError, a TypeError, an error
or a warning of the package, or names what to install, raised by a line of it. Everything else is
printed: what was called, with what. Entry points of the rooms are found by `fuzz_rooms`.

    python benchmarks/fuzz.py --calls 1000000 --seed 0
"""

import argparse
import copy
import json
import math
import resource
import signal
import sys
import tempfile
import time
import traceback
import warnings
from collections import Counter
from fractions import Fraction
from pathlib import Path

import numpy as np
from fuzz_rooms import Rooms

import taut
from taut import accounting, audit, matrix, noise
from taut.errors import TautError
from taut.training import FlatClip, Plan

PACKAGE = str(Path(taut.__file__).parent)
MEMORY = 6 << 30  # bytes of addresses: a call that asks for more fails, and is found
SLOW = 20.0  # seconds of the processor after which a call is stopped, and found
TOLD = 10_000  # calls between two lines about how far it is

HOSTILE = [
    0, 1, -1, 2, 0.0, -0.0, 0.5, -0.5, 1e-9, 5e-324, 2.2e-308, 1e-100, 1e308, -1e308, 1.8e308,
    math.inf, -math.inf, math.nan, 2**31, 2**53, 2**53 + 1, 2**63, 2**64, 10**30, -(10**30),
    10**400, True, False, None, "", "1", "nan", "poisson", "add_remove", b"1", (), [], {}, [1.0],
    [math.nan], [[1.0]], [1.0, "x"], {"a": 1}, 1j, object(), len, Fraction(1, 3), np.float64("nan"),
    np.int64(5), np.float32(0.1), np.array(1.0), np.array([1.0, 2.0]), np.array([]),
    np.array(["a"]), np.array([1, None], dtype=object), np.bool_(True), range(3), float,
    1 - 2**-53, 1 + 2**-52, np.longdouble(1.0), "\ud800",
]  # fmt: skip


THEIRS = ("check_distance", "check_losses")  # for tests: functions raise there as they do
OURS = (ValueError, TypeError, TautError, ImportError, UserWarning)


class Unsound(AssertionError):
    """An answer that cannot be right."""


class Values:
    """Draws arguments: mostly of the kind that is asked for, sometimes hostile."""

    def __init__(self, seed):
        self.draw = np.random.default_rng(seed)

    def one_of(self, choices):
        return choices[int(self.draw.integers(len(choices)))]

    def positive(self):
        return float(np.exp(self.draw.normal(0.0, 2.0)))

    def rate(self):
        return float(self.draw.uniform()) ** 2

    def count(self):
        return int(np.exp(self.draw.uniform(0, 5)))

    def delta(self):
        return float(10 ** self.draw.uniform(-10, -0.1))

    def vector(self):
        return np.exp(self.draw.normal(0, 2, int(self.draw.integers(1, 5)))).tolist()

    def rows(self):
        shape = (int(self.draw.integers(0, 6)), 3)
        rows = self.draw.normal(size=shape) * np.exp(self.draw.normal(0, 100, shape))
        rows[self.draw.random(shape) < 0.1] = self.one_of([math.nan, math.inf, -math.inf, 5e-324])
        return rows

    def adjacency(self):
        return self.one_of(["add_remove", "replace", "zero_out", "add", "remove"])

    def arguments(self, kinds, wildness):
        """Return a value for every kind, each hostile with some probability."""
        return {
            name: self.one_of(HOSTILE)
            if self.draw.random() < wildness
            else (kind(self) if callable(kind) else kind)
            for name, kind in kinds.items()
        }


POSITIVE, RATE, COUNT, DELTA = Values.positive, Values.rate, Values.count, Values.delta
VECTOR, ROWS, ADJACENCY = Values.vector, Values.rows, Values.adjacency

# --- losses ---------------------------------------------------------------------------------------

MECHANISMS = {
    taut.gaussian: {"sigma": POSITIVE, "sensitivity": POSITIVE, "adjacency": ADJACENCY},
    taut.laplace: {"scale": POSITIVE, "sensitivity": POSITIVE, "adjacency": ADJACENCY},
    taut.discrete_gaussian: {"sigma": POSITIVE, "sensitivity": COUNT},
    taut.discrete_laplace: {"scale": POSITIVE, "sensitivity": COUNT},
    taut.pure: {"epsilon": POSITIVE, "adjacency": ADJACENCY},
    taut.approximate: {"epsilon": POSITIVE, "delta": DELTA},
    taut.exponential: {"epsilon": POSITIVE},
    taut.randomized_response: {"p": RATE},
    taut.finite: {
        "p": lambda v: v.draw.dirichlet([1.0, 1.0, 1.0]).tolist(),
        "q": [0.25, 0.25, 0.5],
    },
    accounting.permute_and_flip: {"epsilon": POSITIVE},
    accounting.gaussian_mu: {"epsilon": POSITIVE, "delta": DELTA},
}


def check_number(number, name):
    if not isinstance(number, int | float | np.floating) or math.isnan(number) or number < 0:
        raise Unsound(f"{name} is {number!r}")


def check_loss(loss, values, wildness):
    """Ask a loss questions, and check what it answers."""
    if values.draw.random() < 0.3:
        loss = values.one_of(
            [
                lambda: values.arguments({"n": COUNT}, wildness)["n"] * loss,
                lambda: loss.poisson(**values.arguments({"rate": RATE}, wildness)),
                lambda: loss + taut.gaussian(values.positive()),
                lambda: loss.allocated(**values.arguments({"steps": COUNT}, wildness)),
                lambda: taut.PrivacyLoss.from_json(loss.to_json()),
            ]
        )()
    delta = values.arguments({"delta": DELTA}, wildness)["delta"]
    kind = values.draw.integers(4)
    if kind == 0:
        found = loss.epsilon_bounds(delta, tolerance=0.1)
        check_number(found.lower, "lower epsilon")
        check_number(found.upper, "upper epsilon")
        if found.lower > found.upper:
            raise Unsound(f"bounds cross: {found}")
    elif kind == 1:
        epsilon = values.arguments({"epsilon": POSITIVE}, wildness)["epsilon"]
        found = loss.delta_bounds(epsilon)
        check_number(found.lower, "lower delta")
        if found.lower > found.upper or found.upper > 1:
            raise Unsound(f"bounds cross: {found}")
    elif kind == 2:
        order = values.arguments({"order": lambda v: 1 + v.positive()}, wildness)["order"]
        check_number(loss.rdp(order), "divergence")
    else:
        str(loss), repr(loss), hash(loss)


def ask_mechanism(values, wildness):
    function = values.one_of(list(MECHANISMS))
    arguments = values.arguments(MECHANISMS[function], wildness)
    yield function.__name__, arguments
    found = function(**arguments)
    if isinstance(found, taut.PrivacyLoss):
        check_loss(found, values, wildness)
    else:
        check_number(found, function.__name__)


# --- sets and noise -------------------------------------------------------------------------------

SETS = {
    noise.L1Ball: {"dimension": 3, "radius": POSITIVE},
    noise.L2Ball: {"dimension": 3, "radius": POSITIVE},
    noise.LInfBall: {"dimension": 3, "radius": POSITIVE},
    noise.LpIntersection: {"dimension": 3, "radii": lambda v: {1: v.positive(), 2: v.positive()}},
    noise.Box: {"half_widths": lambda v: [v.positive() for _ in range(3)]},
    noise.Blocks: {"ranks": [1, 2], "radii": lambda v: [v.positive(), v.positive()]},
    noise.Histogram: {"cells": 3},
    noise.Polytope: {"vertices": lambda v: v.draw.normal(size=(4, 3))},
    noise.FiniteSet: {"points": lambda v: v.draw.normal(size=(4, 3))},
}
NOISES = {
    noise.optimal_gaussian: {"epsilon": POSITIVE, "delta": DELTA},
    noise.optimal_laplace: {"epsilon": POSITIVE},
    noise.grouped_linf: {"epsilon": POSITIVE},
    noise.staircase: {"epsilon": POSITIVE},
    noise.integer_laplace: {"epsilon": POSITIVE},
}


def ask_set(values, wildness):
    kind = values.one_of(list(SETS))
    arguments = values.arguments(SETS[kind], wildness)
    yield kind.__name__, arguments
    chosen = kind(*arguments.values())
    rows = values.arguments({"rows": ROWS}, wildness)["rows"]
    yield f"{kind.__name__}.clip", {**arguments, "rows": rows}
    clipped = chosen.clip(rows)
    if not all(chosen.contains(row) for row in np.atleast_2d(clipped)):
        raise Unsound("a clipped row is outside of its set")


def ask_noise(values, wildness):
    kind, function = values.one_of(list(SETS)), values.one_of(list(NOISES))
    arguments = values.arguments(SETS[kind], wildness / 3)
    promise = values.arguments(NOISES[function], wildness)
    yield f"{function.__name__}({kind.__name__})", {**arguments, **promise}
    mechanism = function(kind(*arguments.values()), **promise)
    check_number(mechanism.error, "error")
    if values.draw.random() < 0.5:
        rows = values.arguments({"rows": ROWS}, wildness)["rows"]
        yield f"{function.__name__}({kind.__name__}).release_sum", {**arguments, "rows": rows}
        found = mechanism.release_sum(rows)
    else:
        value = values.arguments({"value": lambda v: v.draw.normal(size=3)}, wildness)["value"]
        yield f"{function.__name__}({kind.__name__}).release", {**arguments, "value": value}
        found = mechanism.release(value)
    parts = list(found.values()) if isinstance(found, dict) else found  # by name, of named records
    if np.isnan(parts).any():
        raise Unsound("NaN was released")


def ask_grid(values, wildness):
    arguments = values.arguments(
        {"sigma": POSITIVE, "sensitivity": POSITIVE, "dimension": 1, "grid": None}, wildness
    )
    yield "grid_gaussian", arguments
    mechanism = noise.grid_gaussian(**arguments)
    value = values.arguments({"value": POSITIVE}, wildness)["value"]
    yield "grid_gaussian.release", {**arguments, "value": value}
    if np.isnan(mechanism.release(value)).any():
        raise Unsound("NaN was released")


# --- plans, encoders, budgets ---------------------------------------------------------------------

PLAN = {
    "examples": lambda v: 10 * v.count(),
    "batch_size": COUNT,
    "steps": COUNT,
    "noise_multiplier": POSITIVE,
    "delta": DELTA,
    "clipping": lambda v: FlatClip(v.positive()),
}


def ask_plan(values, wildness):
    arguments = values.arguments(PLAN, wildness)
    yield "Plan", arguments
    check_number(Plan(**arguments).epsilon, "epsilon")


def ask_filter(values, wildness):
    arguments = values.arguments({"epsilon": POSITIVE, "delta": DELTA}, wildness)
    yield "PrivacyFilter", arguments
    budget = taut.PrivacyFilter(**arguments)
    sigma = values.arguments({"sigma": POSITIVE}, wildness)["sigma"]
    yield "PrivacyFilter.spend", {**arguments, "sigma": sigma}
    budget.spend(taut.gaussian(sigma))
    if not 0 <= budget.spent <= 1:
        raise Unsound(f"spent is {budget.spent!r}")


def ask_encoder(values, wildness):
    arguments = values.arguments({"coefficients": VECTOR, "steps": COUNT}, wildness)
    yield "ToeplitzEncoder", arguments
    matrix.ToeplitzEncoder(*arguments.values())


# --- documents of strangers -----------------------------------------------------------------------

LOSS = (20 * taut.gaussian(1.1).poisson(0.1) + taut.laplace(3.0)).to_dict()
DOCUMENTS = {
    "PrivacyLoss.from_dict": (taut.PrivacyLoss.from_dict, LOSS),
    "PrivacyFilter.from_dict": (
        taut.PrivacyFilter.from_dict,
        taut.PrivacyFilter(1.0, 1e-6).to_dict(),
    ),
    "Plan.from_dict": (
        Plan.from_dict,
        Plan(examples=100, batch_size=10, steps=20, noise_multiplier=1.0, delta=1e-5,
             clipping=FlatClip(1.0)).to_dict(),
    ),
    "verify_statement(loss)": (
        audit.verify_statement,
        {"epsilon": 30.0, "delta": 1e-5, "loss": LOSS},
    ),
    "verify_statement(run)": (
        audit.verify_statement,
        {"epsilon": 3.0, "delta": 1e-5, "noise_multiplier": 1.0, "rate": 0.1, "steps": 20,
         "sampler": "poisson"},
    ),
}  # fmt: skip
PLAIN = [value for value in HOSTILE if isinstance(value, int | float | str | list | dict | None)]


def mutated(document, values):
    """Return a document of which one place was changed, or left out."""
    result = copy.deepcopy(document)
    place = result
    while True:
        keys = list(place) if isinstance(place, dict) else list(range(len(place)))
        if not keys:
            return result
        key = values.one_of(keys)
        inner = place[key]
        if isinstance(inner, dict | list) and inner and values.draw.random() < 0.7:
            place = inner
            continue
        what = values.draw.integers(4)
        if what == 0:
            del place[key]
        elif what == 1 and isinstance(place, dict):
            place["unknown"] = place.pop(key)
        else:
            place[key] = values.one_of(PLAIN)
        return result


def ask_document(values, _):
    name = values.one_of(list(DOCUMENTS))
    read, document = DOCUMENTS[name]
    changed = document
    for _ in range(int(values.draw.integers(1, 4))):
        changed = mutated(changed, values)
    yield name, changed
    found = read(changed)
    if isinstance(found, audit.Verification) and found.verdict == "certified":
        claimed, delta = changed["epsilon"], changed["delta"]
        lower = getattr(found.epsilon, "lower", found.epsilon)  # one number if it is exact
        if lower is not None and lower > claimed * (1 + 1e-9):
            raise Unsound(f"certified {claimed!r} at {delta!r}, which is {found.epsilon}")


def ask_text(values, _):
    text = json.dumps(LOSS)
    choice = values.draw.integers(4)
    if choice == 0:
        cut = int(values.draw.integers(len(text)))
        text = text[:cut] + values.one_of(list('{}[]",:0eE-\x00é')) + text[cut + 1 :]
    elif choice == 1:
        text = "[" * 20_000
    elif choice == 2:
        text = text.replace("1.1", "9" * 5_000)
    else:
        text = '{"a":' * 3_000
    read = values.one_of([taut.PrivacyLoss.from_json, Plan.from_json, audit.verify_statement])
    yield f"{read.__qualname__}(text)", {"text": text[:80]}
    read(text)


SETTINGS = [
    {"make_private": {"noise_multiplier": 1.0, "max_grad_norm": 1.0, "poisson_sampling": True}},
    {"target_epsilon": 3.0, "max_grad_norm": 1.0, "target_delta": 1e-5},
    {"path": "flwr.DifferentialPrivacyServerSideFixedClipping", "rounds": 3, "clients": 9,
     "args": {"noise_multiplier": 1.0, "clipping_norm": 0.5, "num_sampled_clients": 4}},
    {"LocalDpMod": {"clipping_norm": 1.0, "sensitivity": 2.0, "epsilon": 0.5, "delta": 1e-5}},
    {"path": "nvflare.SVTPrivacy", "args": {"fraction": 0.1, "epsilon": 0.1, "noise_var": 0.1}},
    {"DPKerasConfig": {"epsilon": 2.0, "clipping_norm": 1.0, "train_steps": 4, "train_size": 90}},
    {"fixed_dpsgd_event": {"noise_multiplier": 1.0, "iterations": 3, "dataset_size": 90}},
    {"n": 90, "noise_multiplier": 1.0, "compute_dp_sgd_privacy": {"num_microbatches": 3}},
    {"class_name": "SelfComposedDpEvent", "count": 3,
     "event": {"class_name": "GaussianDpEvent", "noise_multiplier": 2.0}},
]  # fmt: skip
SIZES = {"examples": 90, "batch_size": 30, "epochs": 2, "delta": 1e-5, "rounds": 2}
FILE = Path(tempfile.mkdtemp()) / "settings.json"


def ask_settings(values, _):
    """Ask what settings of other tools promise, of which some were changed."""
    changed = {**values.one_of(SETTINGS), **SIZES}
    for _ in range(int(values.draw.integers(0, 4))):
        changed = mutated(changed, values)
    FILE.write_text(json.dumps(changed))
    yield "check_settings", changed
    for setting in audit.check_settings(FILE).settings:
        for reading in setting.readings:
            if reading.bounds is not None:
                check_number(reading.bounds.lower, "lower epsilon")
                check_number(reading.bounds.upper, "upper epsilon")
                if reading.bounds.lower > reading.bounds.upper:
                    raise Unsound(f"bounds cross: {reading.bounds}")


def ask_replay(values, wildness):
    """Replay a program that releases, and returns anything."""
    mechanism = noise.optimal_laplace(noise.L1Ball(3, values.positive()), epsilon=1.0)
    answers = [values.one_of(HOSTILE) for _ in range(2)]

    def program(rows):
        released = mechanism.release_sum(rows)
        return {"released": released, "more": answers[int(values.draw.random() < 0.5)]}

    made = values.arguments(
        {"function": None, "data": ROWS, "neighbour": ROWS, "adjacency": ADJACENCY,
         "differs_at": -1, "crafted": True, "claim": lambda _: mechanism.loss},
        wildness,
    )  # fmt: skip
    arguments = {**made, "function": program if made["function"] is None else made["function"]}
    yield "replay", {**arguments, "RETURNS": answers}
    str(audit.replay(**arguments))


ask_rooms = Rooms(HOSTILE, check_number, check_loss)
ASKED = {
    ask_rooms: 100,
    ask_mechanism: 12, ask_set: 25, ask_noise: 6, ask_grid: 1, ask_filter: 8, ask_document: 15,
    ask_plan: 2, ask_encoder: 3, ask_text: 1, ask_settings: 1, ask_replay: 1,
}  # fmt: skip


def is_ours(error):
    """Return whether the package refused the call by itself."""
    frames = traceback.extract_tb(error.__traceback__)
    last = frames[-1].filename
    if last.endswith("fuzz_rooms.py") and any(f.name in THEIRS for f in frames):
        return True
    # Estimators have their arguments checked by scikit-learn, whose users know its messages.
    raised = last.startswith(PACKAGE) or "<string>" in last or "sklearn" in last
    return raised and isinstance(error, OURS)


def run(calls, seed, seconds=math.inf):
    """Make calls; return how many were answered and refused, and the faults with an example."""
    values = Values(seed)
    askers, weights = list(ASKED), np.array(list(ASKED.values()), dtype=float)
    weights /= weights.sum()
    faults, outcomes = {}, Counter()
    end = time.process_time() + seconds
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        for number in range(calls):
            if time.process_time() > end:
                break
            asker = askers[int(values.draw.choice(len(askers), p=weights))]
            wildness = float(values.one_of([0.0, 0.1, 0.3, 0.5, 1.0]))
            said = ("", {})
            signal.setitimer(signal.ITIMER_VIRTUAL, SLOW)
            try:
                for called in asker(values, wildness):
                    said = called
                outcomes["answered"] += 1
            except KeyboardInterrupt:  # what was found so far is shown
                break
            except Exception as error:
                if is_ours(error):
                    outcomes["refused"] += 1
                else:
                    last = traceback.extract_tb(error.__traceback__)[-1]
                    place = f"{Path(last.filename).name}:{last.lineno}"
                    key = (said[0], type(error).__name__, place)
                    if key not in faults:
                        faults[key] = number, str(said[1])[:300], str(error)[:200]
                        print(described(key, faults[key]), flush=True)
                    outcomes["faults"] += 1
            finally:
                signal.setitimer(signal.ITIMER_VIRTUAL, 0)
            if (number + 1) % TOLD == 0:
                print(f"{number + 1} calls, {time.process_time():.0f} s", flush=True)
    return outcomes, faults


def described(key, example):
    """Return a fault as it is printed."""
    (name, kind, place), (number, arguments, message) = key, example
    return f"{name}: {kind} at {place}, call {number}: {message}\n    {arguments}"


def summary(seed, outcomes, faults):
    """Return what a run came to, for a log that sums many of them."""
    names = sorted({name for name, _, _ in faults})
    return {
        "seed": seed,
        "calls": outcomes.total(),
        "faults": outcomes["faults"],
        "names": names,
        "seconds": round(time.process_time()),
    }


def stop(*_):
    raise TimeoutError(f"no answer within {SLOW:g} s")


def main():
    parser = argparse.ArgumentParser(description=__doc__.partition("\n")[0])
    parser.add_argument("--calls", type=int, default=100_000)
    parser.add_argument("--seed", type=int, default=0)
    parser.add_argument("--seconds", type=float, default=math.inf)
    parser.add_argument("--log", type=Path, help="a file that gets a line of JSON about the run")
    options = parser.parse_args()
    resource.setrlimit(resource.RLIMIT_AS, (MEMORY, MEMORY))
    signal.signal(signal.SIGVTALRM, stop)
    outcomes, faults = run(options.calls, options.seed, options.seconds)
    print(dict(outcomes), f"{len(faults)} kinds of faults")
    if options.log is not None:
        with options.log.open("a", encoding="utf-8") as log:
            log.write(json.dumps(summary(options.seed, outcomes, faults)) + "\n")
    return 1 if faults else 0


if __name__ == "__main__":
    sys.exit(main())
