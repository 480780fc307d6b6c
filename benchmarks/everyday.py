"""Very little noise, calibration, and the time to start."""

import json
import sys

import peers
import tables
from measuring import best_start, cpu_time, fresh_interpreter, peak_memory_code, script

import taut

DELTA = 1e-5
TARGET = 3.0
RATE = 0.01

TINY = {
    "taut": (
        "import taut",
        {
            "Gaussian": "taut.gaussian(sigma=0.03)",
            "sampled Gaussian": "taut.gaussian(sigma=0.03).poisson(rate=0.01)",
        },
        "tuple({loss}.epsilon_bounds(1e-5))",
    ),
    "dp-accounting PLD, 1e-04": (
        "import dp_accounting as dp\nfrom dp_accounting.pld import PLDAccountant",
        {
            "Gaussian": "dp.GaussianDpEvent(0.03)",
            "sampled Gaussian": "dp.PoissonSampledDpEvent(0.01, dp.GaussianDpEvent(0.03))",
        },
        "(None, PLDAccountant().compose({loss}).get_epsilon(1e-5))",
    ),
}


def small_noise(*, slow: bool) -> tables.Table:
    """Measure one release with sigma = 0.03, each in its own interpreter."""
    rows = []
    for tool, (imports, releases, question) in TINY.items():
        if tool != "taut" and not slow:
            continue
        for release, loss in releases.items():
            row = _measured_alone(imports, loss, question.format(loss="loss"))
            rows.append({"release": release, "tool": tool} | row)
    columns = {
        "release": ("release", str),
        "tool": ("tool", str),
        "lower": ("lower", tables.epsilon),
        "upper": ("upper", tables.epsilon),
        "cpu_s": ("CPU s", tables.seconds),
        "peak_mb": ("peak MB", tables.megabytes),
        "imports_mb": ("of it imports", tables.megabytes),
    }
    note = (
        "sigma = 0.03, delta = 1e-5, one release, first question of a fresh process. "
        "dp-accounting needs 33 s and 2.8 GB, sampled 87 s and 1.5 GB; "
        "`--slow` includes it."
    )
    return tables.Table("small_noise", "Very little noise", columns, rows, note)


def _measured_alone(imports: str, loss: str, question: str) -> tables.Row:
    code = f"""
import json, time
{peak_memory_code()}
{imports}
loss = {loss}
imports, start = peak(), time.process_time()
lower, upper = {question}
seconds = time.process_time() - start
print(json.dumps(dict(lower=lower, upper=upper, cpu_s=seconds, peak_mb=peak(), imports_mb=imports)))
"""
    return json.loads(fresh_interpreter(code))


def calibration(*, quick: bool, slow: bool) -> tables.Table:
    """Find sigma for a budget, to four digits."""
    tolerances = [] if quick else [1e-4, 1e-6] if slow else [1e-4]
    rows = []
    for steps in (10**3, 10**4):
        runs = [_calibrate(steps, turn) for turn in range(5)]
        found, seconds = min(runs, key=lambda run: run[1])
        row = {"steps": steps, "tool": "taut", "sigma": found.value, "cpu_s": seconds}
        rows.append(row | {"epsilon": _epsilon(found.value, steps)})
        rows += [_peer_calibration(steps, tolerance, seconds) for tolerance in tolerances]
    columns = {
        "steps": ("T", "{:,}".format),
        "tool": ("tool", str),
        "sigma": ("sigma", tables.epsilon),
        "epsilon": ("epsilon at that sigma", tables.epsilon),
        "cpu_s": ("CPU s", tables.seconds),
        "ratio": ("x taut", tables.ratio),
    }
    note = "The least sigma for epsilon = 3, delta = 1e-5, rate = 0.01, to four digits."
    return tables.Table("calibration", "Calibration", columns, rows, note)


def _peer_calibration(steps: int, tolerance: float, own_seconds: float) -> tables.Row:
    sigma, seconds = cpu_time(
        lambda: peers.dp_calibrate(RATE, steps, TARGET, DELTA, grid=1e-4, tolerance=tolerance)
    )
    return {
        "steps": steps,
        "tool": f"dp-accounting, grid 1e-4, tol {tolerance:.0e}",
        "sigma": sigma,
        "epsilon": _epsilon(sigma, steps),
        "cpu_s": seconds,
        "ratio": seconds / own_seconds,
    }


def _epsilon(sigma: float, steps: int) -> float:
    return (steps * taut.gaussian(sigma).poisson(rate=RATE)).epsilon(DELTA, tolerance=1e-6)


def _calibrate(steps: int, turn: int):
    """Return the calibration and its CPU seconds; rounds differ in the thirteenth digit."""
    return cpu_time(
        lambda: taut.calibrate(
            lambda sigma: steps * taut.gaussian(sigma).poisson(rate=RATE),
            epsilon=TARGET * (1 + turn * 1e-13),
            delta=DELTA,
            tolerance=1e-4,
        )
    )


def start() -> tables.Table:
    """Measure how long a user waits before anything happens."""
    python = [sys.executable, "-c"]
    programs = {
        "python, nothing": [*python, "pass"],
        "import taut": [*python, "import taut"],
        "import taut, first gaussian()": [*python, "import taut; taut.gaussian(sigma=1.0)"],
        "... and first epsilon()": [*python, "import taut; taut.gaussian(sigma=1.0).epsilon(1e-5)"],
        "taut --help": [script("taut"), "--help"],
    }
    rows = [{"program": name} | best_start(command) for name, command in programs.items()]
    columns = {
        "program": ("program", str),
        "cpu_s": ("CPU s", tables.seconds),
        "wall_s": ("wall s", tables.seconds),
    }
    note = "Whole programs, the start of Python included; best of five."
    return tables.Table("start", "Starting", columns, rows, note)
