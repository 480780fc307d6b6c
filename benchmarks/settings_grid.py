"""A grid of settings: every answer must be finite, right, tight, quick and in order."""

import itertools
import math

import tables
from measuring import cpu_time
from races import doubt

import taut

DELTA = 1e-5
RATES = (0.001, 0.01, 0.1)
SIGMAS = (2.0, 1.0, 0.8, 0.5, 0.3)
STEPS = (100, 1_000, 10_000)

# Made without taut: dp-accounting on two fine grids, extrapolated (its error is quadratic in the
# grid), and for epsilon above 700 or many steps a contour integral.
TRUTHS = {
    (0.001, 2.0): ("0.0146294", "0.0499873", "0.173308"),
    (0.001, 1.0): ("0.0551651", "0.148902", "0.475761"),
    (0.001, 0.8): ("0.140966", "0.303554", "0.782388"),
    (0.001, 0.5): ("2.10865", "3.23888", "5.22681"),
    (0.001, 0.3): ("11.0406", "18.1446", "41.4996"),
    (0.01, 2.0): ("0.189794", "0.622030", "2.16270"),
    (0.01, 1.0): ("0.718036", "1.82824", "6.18771"),
    (0.01, 0.8): ("1.51084", "3.14101", "10.0536"),
    (0.01, 0.5): ("6.47621", "13.3608", "43.3665"),
    (0.01, 0.3): ("26.8347", "69.8157", "296.827"),
    (0.1, 2.0): ("2.33740", "8.27929", "36.0037"),
    (0.1, 1.0): ("7.04660", "25.2046", "127.879"),
    (0.1, 0.8): ("10.9764", "39.8801", "214.881"),
    (0.1, 0.5): ("31.3710", "126.167", "782.328"),
    (0.1, 0.3): ("106.176", "506.191", "3594.30"),
}

COLUMNS = {
    "rate": ("rate", str),
    "sigma": ("sigma", str),
    **{f"upper_{n}": (f"T = {n:,}", tables.epsilon) for n in STEPS},
    "gap": ("largest gap", tables.gap),
    "cpu_s": ("largest CPU s", tables.seconds),
    "right": ("truth inside", tables.yes_no),
    "monotone": ("monotone", tables.yes_no),
}
NOTE = (
    "Upper bounds on epsilon at delta = 1e-5 and the default tolerance 1e-3. Monotone compares "
    "with the neighbours of a higher rate, less noise and more steps."
)


def run() -> tables.Table:
    """Ask for epsilon everywhere; the rows keep every answer."""
    cells = itertools.product(RATES, SIGMAS, STEPS)
    answers = {cell: _answer(*cell) for cell in cells}
    uppers = {cell: answer["upper"] for cell, answer in answers.items()}
    rows = []
    for rate, sigma in TRUTHS:
        own = [answers[rate, sigma, steps] for steps in STEPS]
        rows.append(
            {"rate": rate, "sigma": sigma, "answers": own}
            | {f"upper_{answer['steps']}": answer["upper"] for answer in own}
            | {name: max(answer[name] for answer in own) for name in ("gap", "cpu_s")}
            | {"right": all(answer["right"] for answer in own)}
            | {"monotone": all(_monotone(uppers, (rate, sigma, steps)) for steps in STEPS)}
        )
    return tables.Table("grid", "A grid of settings", COLUMNS, rows, NOTE)


def _answer(rate: float, sigma: float, steps: int) -> tables.Row:
    """Return the bracket and its best CPU time; rounds differ in the thirteenth digit."""
    runs = []
    for turn in range(4):
        loss = steps * taut.gaussian(sigma * (1 + turn * 1e-13)).poisson(rate=rate)
        runs.append(cpu_time(lambda loss=loss: loss.epsilon_bounds(DELTA)))
    (lower, upper), seconds = min(runs, key=lambda pair: pair[1])
    truth = TRUTHS[rate, sigma][STEPS.index(steps)]
    right = lower - doubt(truth) <= float(truth) <= upper + doubt(truth)
    return {
        "steps": steps,
        "lower": lower,
        "upper": upper,
        "gap": (upper - lower) / upper,
        "cpu_s": seconds,
        "right": right and math.isfinite(upper),
    }


def _monotone(uppers: dict[tuple[float, float, int], float], cell: tuple[float, ...]) -> bool:
    """Whether every next cell, which has less privacy, says so."""
    axes = (RATES, SIGMAS, STEPS)
    for at, axis in enumerate(axes):
        position = axis.index(cell[at]) + 1
        if position < len(axis):
            worse = (*cell[:at], axis[position], *cell[at + 1 :])
            if uppers[cell] > uppers[worse]:
                return False
    return True
