"""The targets that the measurements are held against."""

import tables

COLUMNS = {
    "target": ("target", str),
    "measured": ("measured", str),
    "holds": ("holds", tables.yes_no),
}


def judge(found: dict[str, tables.Table]) -> tables.Table:
    """Return each target whose measurements were taken, and whether it holds."""
    rows: list[tables.Row] = []
    for key, check in CHECKS.items():
        if key in found:
            rows += check(found[key].rows)
    return tables.Table("targets", "Targets", COLUMNS, rows)


def _dp_sgd(rows: list[tables.Row]) -> list[tables.Row]:
    found = {(row["case"], row["tool"]): row for row in rows}
    judged = []
    for tolerance, factor in (("1e-03", 5), ("1e-05", 10)):
        grid = {"1e-03": "1e-03", "1e-05": "1e-04"}[tolerance]
        own = {case: row for (case, tool), row in found.items() if tool == f"taut, {tolerance}"}
        for case, row in own.items():
            peer = found[case, f"dp-accounting PLD, {grid}"]["cpu_s"] / row["cpu_s"]
            tight = row["gap"] <= float(tolerance) and row["verdict"] == "yes"
            text = f"gap <= {tolerance} and {factor}x faster than dp-accounting {grid}, {case}"
            measured = f"gap {row['gap']:.1e}, {tables.ratio(peer)}"
            judged.append(_row(text, measured, tight and peer >= factor))
    for tolerance in ("1e-03", "1e-05"):
        times = [row["cpu_s"] for (_, tool), row in found.items() if tool == f"taut, {tolerance}"]
        spread = max(times) / min(times)
        text = f"time nearly independent of T (at most 2x), gap {tolerance}"
        judged.append(_row(text, tables.ratio(spread), spread <= 2))
    opacus = found["T = 100,000", "Opacus PRV"].get("ratio_1e-03")
    if opacus is not None:
        text = "100x faster than Opacus PRV, T = 100,000"
        judged.append(_row(text, tables.ratio(opacus), opacus >= 100))
    return judged


def _sound(rows: list[tables.Row]) -> list[tables.Row]:
    own = [row for row in rows if row["tool"].startswith("taut")]
    inside = sum(row["verdict"] == "yes" for row in own)
    tight = sum(row["gap"] <= float(row["tool"].split()[-1]) for row in own)
    measured = f"{inside} brackets right, {tight} tight, of {len(own)}"
    kind = "small delta" if own[0]["case"].startswith("delta") else "other releases"
    return [_row(f"{kind}: truth bracketed, gap met", measured, inside == tight == len(own))]


def _small_noise(rows: list[tables.Row]) -> list[tables.Row]:
    own = [row for row in rows if row["tool"] == "taut"]
    memory, seconds = (max(row[name] for row in own) for name in ("peak_mb", "cpu_s"))
    measured = f"{memory:.0f} MB, {tables.seconds(seconds)} s"
    return [_row("sigma = 0.03 in 200 MB and 1 s", measured, memory < 200 and seconds < 1)]


def _calibration(rows: list[tables.Row]) -> list[tables.Row]:
    return [
        _row(
            f"calibration 20x faster than dp-accounting, T = {row['steps']:,}",
            tables.ratio(row["ratio"]),
            row["ratio"] >= 20,
        )
        for row in rows
        if row["tool"].endswith("tol 1e-04")
    ]


def _grid(rows: list[tables.Row]) -> list[tables.Row]:
    slowest = max(row["cpu_s"] for row in rows)
    gap = max(row["gap"] for row in rows)
    right = all(row[name] for row in rows for name in ("right", "monotone"))
    return [
        _row("grid: none slower than 0.3 s", f"{tables.seconds(slowest)} s", slowest <= 0.3),
        _row(
            "grid: finite, certified, monotone, gap <= 1e-3",
            f"{'all' if right else 'not all'}, largest gap {gap:.1e}",
            right and gap <= 1e-3,
        ),
    ]


def _start(rows: list[tables.Row]) -> list[tables.Row]:
    limits = {"import taut": 0.3, "taut --help": 0.5}
    found = {row["program"]: row for row in rows}
    judged = []
    for program, limit in limits.items():
        cpu, wall = (found[program][name] for name in ("cpu_s", "wall_s"))
        measured = f"{cpu:.3f} s CPU, {wall:.3f} s wall"
        judged.append(_row(f"{program} below {limit} s of CPU", measured, cpu < limit))
    return judged


def _row(target: str, measured: str, holds: bool) -> tables.Row:
    return {"target": target, "measured": measured, "holds": bool(holds)}


CHECKS = {
    "dp_sgd": _dp_sgd,
    "small_delta": _sound,
    "other_releases": _sound,
    "small_noise": _small_noise,
    "calibration": _calibration,
    "grid": _grid,
    "start": _start,
}
