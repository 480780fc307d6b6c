"""Questions that several accountants answer: their values, gaps and CPU times."""

import math
from dataclasses import dataclass

import peers
import tables
from measuring import Answer, Contender, Measurement, race

import taut

DELTA = 1e-5
RATE = 0.01
TOLERANCES = (1e-3, 1e-5)
GRIDS = (1e-3, 1e-4)

MIXED = {"gaussian": (10.0, 50), "laplace": (10.0, 20), "randomized_response": (0.52, 30)}

COLUMNS = {
    "case": ("case", str),
    "tool": ("tool", str),
    "lower": ("lower", tables.epsilon),
    "upper": ("upper", tables.epsilon),
    "gap": ("relative gap", tables.gap),
    "excess": ("upper/truth - 1", tables.relative),
    "verdict": ("right", str),
    "cpu_s": ("CPU s", tables.seconds),
    "ratio_1e-03": ("x taut 1e-3", tables.ratio),
    "ratio_1e-05": ("x taut 1e-5", tables.ratio),
}


@dataclass(frozen=True)
class Case:
    """A question with its true answer, written with the digits that are known."""

    name: str
    truth: str
    contenders: list[Contender]


def doubt(truth: str) -> float:
    """Return half a unit of the last digit."""
    return 0.5 * 10.0 ** -len(truth.partition(".")[2])


# --- the questions -------------------------------------------------------------------------------


def dp_sgd(*, slow: bool) -> list[Case]:
    """Return runs of more and more steps."""
    truths = {10**3: "1.8282366665", 10**4: "6.1877124", 10**5: "25.573107"}
    return [
        Case(f"T = {steps:,}", truth, sampled_gaussian(steps, DELTA, slow=slow))
        for steps, truth in truths.items()
    ]


def small_delta() -> list[Case]:
    """Return one run at probabilities where rounding decides."""
    truths = {1e-12: "3.914298", 1e-14: "4.543702", 1e-16: "5.161801"}
    return [
        Case(f"delta = {delta:.0e}", truth, sampled_gaussian(1000, delta))
        for delta, truth in truths.items()
    ]


def other_releases() -> list[Case]:
    """Return sums and mechanisms that only some accountants know."""
    return [
        Case("sum of three mechanisms", "4.0538387157", mixed()),
        Case("sampled Laplace, T = 1,000", "2.682924", sampled_laplace(10**3)),
        Case("sampled Laplace, T = 10,000", "9.989293", sampled_laplace(10**4)),
        Case("discrete Gaussian, sigma = 2, T = 1", "2.0113398", discrete_gaussian(2.0, 1)),
        Case("discrete Gaussian, sigma = 2, T = 10", "7.4952537", discrete_gaussian(2.0, 10)),
        Case("discrete Gaussian, sigma = 2, T = 100", "33.1080107", discrete_gaussian(2.0, 100)),
        Case("discrete Gaussian, sigma = 0.5, T = 10", "46.1281259", discrete_gaussian(0.5, 10)),
    ]


def sampled_gaussian(steps: int, delta: float, *, slow: bool = False) -> list[Contender]:
    """Return who can account for DP-SGD at rate 0.01 and sigma 1."""
    run = (RATE, steps, delta)
    event = peers.sampled_gaussian_event
    found = ask_taut(lambda sigma: steps * taut.gaussian(sigma).poisson(rate=RATE), delta)
    found += ask_pld(lambda sigma, grid: peers.dp_pld(event(sigma, RATE, steps), delta, grid))
    found += [
        Contender("dp-accounting RDP", lambda s: peers.dp_rdp(event(s, RATE, steps), delta)),
        Contender("Opacus PRV", lambda s: peers.opacus_prv(s, *run), slow=steps > 10**4),
        Contender("Opacus RDP", lambda s: peers.opacus_rdp(s, *run)),
        Contender("prv-accountant, 0.1", lambda s: peers.prv(s, *run, 0.1), slow=steps > 10**4),
    ]
    if steps <= 10**4 or slow:  # 40 s at 10^5 steps
        fine = steps > 10**3
        found += [Contender("prv-accountant, 0.01", lambda s: peers.prv(s, *run, 0.01), slow=fine)]
    return found


def mixed() -> list[Contender]:
    """Return who can account for a sum of three mechanisms."""

    def releases(nudge):
        return {name: (value * nudge, count) for name, (value, count) in MIXED.items()}

    def loss(nudge):
        given = releases(nudge)
        factories = (taut.gaussian, taut.laplace, taut.randomized_response)
        return sum(n * make(x) for make, (x, n) in zip(factories, given.values(), strict=True))

    found = ask_taut(loss)
    found += ask_pld(lambda k, grid: peers.dp_pld_mixed(**releases(k), delta=DELTA, grid=grid))
    for error in (0.1, 0.01):
        ask = lambda k, e=error: peers.prv_mixed(**releases(k), delta=DELTA, error=e)  # noqa: E731
        found.append(Contender(f"prv-accountant, {error}", ask))
    return found


def sampled_laplace(steps: int) -> list[Contender]:
    """Return who can account for sampled Laplace noise of scale 0.5."""
    event = peers.sampled_laplace_event
    return [
        *ask_taut(lambda k: steps * taut.laplace(0.5 * k).poisson(rate=RATE)),
        *ask_pld(lambda k, grid: peers.dp_pld(event(0.5 * k, RATE, steps), DELTA, grid)),
    ]


def discrete_gaussian(sigma: float, count: int) -> list[Contender]:
    """Return who can account for discrete Gaussian noise."""
    peer = peers.dp_pld_discrete_gaussian
    return [
        *ask_taut(lambda k: count * taut.discrete_gaussian(sigma * k)),
        *ask_pld(lambda k, grid: peer(sigma * k, count, DELTA, grid)),
    ]


def ask_taut(make_loss, delta: float = DELTA) -> list[Contender]:
    """Return taut at each tolerance; ``make_loss`` takes the factor of the round."""

    def ask(nudge, tolerance):
        lower, upper = make_loss(nudge).epsilon_bounds(delta, tolerance=tolerance)
        return Answer(upper, lower)

    return [Contender(f"taut, {t:.0e}", lambda k, t=t: ask(k, t)) for t in TOLERANCES]


def ask_pld(ask) -> list[Contender]:
    """Return the PLD accountant of dp-accounting on each grid."""
    return [Contender(f"dp-accounting PLD, {g:.0e}", lambda k, g=g: ask(k, g)) for g in GRIDS]


# --- the answers ---------------------------------------------------------------------------------


def compare(key: str, title: str, note: str, cases: list[Case], *, quick: bool) -> tables.Table:
    """Run every case and return the table."""
    rows = [row for case in cases for row in _rows(case, race(case.contenders, quick=quick))]
    return tables.Table(key, title, COLUMNS, rows, note)


def _rows(case: Case, measured: list[Measurement]) -> list[tables.Row]:
    own = {f"ratio_{t:.0e}": m.seconds for t, m in zip(TOLERANCES, measured, strict=False)}
    rows = []
    for entry in measured:
        row: tables.Row = {"case": case.name, "tool": entry.name, "cpu_s": entry.seconds}
        if entry.answer is None:
            row["verdict"] = entry.problem
        else:
            row |= {"upper": entry.answer.upper, "lower": entry.answer.lower}
            row |= _judged(case, entry.answer)
            row |= {name: entry.seconds / seconds for name, seconds in own.items()}
        rows.append(row)
    return rows


def _judged(case: Case, answer: Answer) -> tables.Row:
    """Return gap, distance from the truth, and whether the claim holds."""
    truth, lower, upper = float(case.truth), answer.lower, answer.upper
    if not math.isfinite(upper):
        return {"verdict": "says nothing"}
    verdict = "yes"
    if upper < truth - doubt(case.truth):
        verdict = "**no**, too low"
    elif lower is not None and lower > truth + doubt(case.truth):
        verdict = "**no**, too high"
    gap = None if lower is None else (upper - lower) / upper
    return {"verdict": verdict, "gap": gap, "excess": upper / truth - 1}
