"""What a private step costs beside a plain one, in time and memory, ours and others'.

    make bench BENCH=training_speed
    make bench BENCH=training_speed ARGS='--only MLP --quick'

CPU time of one thread in one process per model, rounds interleaved, the least of them. First every
engine takes a step without noise, which must be the same for all.
"""

import argparse
import json
import os
import sys
import time
import warnings
from pathlib import Path

from measuring import SINGLE_THREAD, fresh_interpreter, peak_memory_code

os.environ.update(SINGLE_THREAD)  # before torch starts its threads

import tables
import torch
from training_engines import ENGINES, OpacusGhost, Plain, Taut
from training_models import CASES

WARM_UP = 3  # steps: the first ones compile, or are checked
ROUNDS = 15  # for every model
SLOW = 2.0  # seconds of a step after which an engine runs once only
SAME = 1e-3


def main() -> None:
    """Print the tables and, if asked, write them."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--only", default="", help="cases whose name contains this")
    parser.add_argument("--quick", action="store_true", help="plain and taut alone")
    parser.add_argument("--json", type=Path, help="also write the rows to this file")
    parser.add_argument("--markdown", type=Path, help="also write the tables to this page")
    options = parser.parse_args()
    torch.set_num_threads(1)
    warnings.simplefilter("ignore")
    cases = [case for case in CASES if options.only.lower() in case.name.lower()]
    rows = [row for case in cases for row in race(case, quick=options.quick)]
    columns = {
        "case": ("model", str),
        "engine": ("engine", str),
        "ms": ("CPU ms a step", lambda value: f"{value:.1f}"),
        "ratio": ("x plain", lambda value: f"{value:.2f}"),
        "difference": ("update differs by", lambda value: f"{value:.0e}"),
        "problem": ("", str),
    }
    found = [tables.Table("speed", "A private step beside a plain one", columns, rows)]
    found.append(memory(cases))
    found.append(judged(rows, cases, found[1].rows))
    for table in found:
        print(table, end="\n\n")
    if options.json:
        options.json.write_text(json.dumps({t.key: t.rows for t in found}, indent=1))
    if options.markdown:
        tables.write_part(options.markdown, "training_speed", "\n\n".join(map(str, found)))


def race(case, *, quick: bool) -> list[tables.Row]:
    """Return the least CPU time of a step for every engine."""
    torch.manual_seed(0)
    model, (inputs, targets) = case.make(), case.batch()
    kinds = (Plain, Taut) if quick else ENGINES
    rows, running, reference = [], [], None
    for kind in kinds:
        row: tables.Row = {"case": case.name, "engine": kind.name}
        rows.append(row)
        try:
            if kind is not Plain:
                update = kind(model, inputs, targets, case.losses, 0.0).update()
                reference = update if reference is None else reference
                row["difference"] = distance(update, reference)
                if row["difference"] > SAME:
                    row["problem"] = "another update"
                    continue
            engine = kind(model, inputs, targets, case.losses, 1.0)
            for _ in range(WARM_UP):
                row["ms"] = 1e3 * timed(engine)
            running.append((engine, row))
        except Exception as error:  # an engine that refuses a model is a result
            row["problem"] = f"raises {type(error).__name__}"
        finally:
            print(f"{case.name}: {kind.name}", file=sys.stderr)
    for _ in range(ROUNDS):
        for engine, row in running:
            if row["ms"] < 1e3 * SLOW:
                row["ms"] = min(row["ms"], 1e3 * timed(engine))
    for row in rows:
        if "ms" in row:
            row["ratio"] = row["ms"] / rows[0]["ms"]
    return rows


def timed(engine) -> float:
    start = time.process_time()
    engine.step()
    return time.process_time() - start


def distance(one, other) -> float:
    square = sum(float((one[name] - other[name]).square().sum()) for name in other)
    return (square / sum(float(value.square().sum()) for value in other.values())) ** 0.5


def memory(cases) -> tables.Table:
    """Return the peak of three steps above the model, each in a process of its own."""
    rows = []
    for case in cases:
        row: tables.Row = {"case": case.name}
        for kind in (Plain, Taut, OpacusGhost):
            try:
                row[kind.name] = float(fresh_interpreter(memory_code(case, kind)))
            except Exception:  # an engine that refuses a model has no memory to measure
                row[kind.name] = None
        rows.append(row)
    columns = {"case": ("model", str)} | {
        kind.name: (f"{kind.name}, MB", tables.megabytes) for kind in (Plain, Taut, OpacusGhost)
    }
    return tables.Table("memory", "Peak memory of three steps, above the model", columns, rows)


def memory_code(case, kind) -> str:
    here = str(Path(__file__).parent)
    return (
        f"import sys; sys.path.insert(0, {here!r})\n{peak_memory_code()}"
        "import torch; torch.set_num_threads(1)\n"
        "from training_models import CASES\nimport training_engines as engines\n"
        f"case = next(c for c in CASES if c.name == {case.name!r})\n"
        "torch.manual_seed(0)\nmodel, (x, y) = case.make(), case.batch()\n"
        f"engine = engines.{kind.__name__}(model, x, y, case.losses, 1.0)\n"
        "before = peak()\n"
        "for _ in range(3): engine.step()\n"
        "print(peak() - before)"
    )


def judged(rows, cases, sizes) -> tables.Table:
    """Return the targets and whether they hold."""
    judged_rows = []
    for case in cases:
        own = {row["engine"]: row.get("ratio") for row in rows if row["case"] == case.name}
        others = [
            ratio
            for name, ratio in own.items()
            if name not in (Plain.name, Taut.name) and ratio is not None
        ]
        mine = own[Taut.name]
        if mine is None:
            judged_rows.append(_row(f"runs on {case.name}", "no", holds=False))
            continue
        if case.bar is not None:
            text = f"at most {case.bar:g} plain steps, {case.name}"
            judged_rows.append(_row(text, f"{mine:.2f}", holds=mine <= case.bar))
        if others:
            text = f"not slower than the best other engine, {case.name}"
            measured = f"{mine:.2f} and {min(others):.2f}"
            judged_rows.append(_row(text, measured, holds=mine <= min(others)))
    for row in sizes:
        if row[Taut.name] is not None and row[OpacusGhost.name]:
            ratio = row[Taut.name] / row[OpacusGhost.name]
            text = f"at most 1.3 times the memory of Opacus ghost, {row['case']}"
            judged_rows.append(_row(text, f"{ratio:.2f}", holds=ratio <= 1.3))
    columns = {
        "target": ("target", str),
        "measured": ("measured", str),
        "holds": ("holds", tables.yes_no),
    }
    return tables.Table("targets", "Targets", columns, judged_rows)


def _row(target: str, measured: str, *, holds: bool) -> tables.Row:
    return {"target": target, "measured": measured, "holds": holds}


if __name__ == "__main__":
    main()
