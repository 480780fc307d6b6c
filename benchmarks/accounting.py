"""Compare taut's accountant with its peers: values, gaps, CPU time, memory.

    make bench                                   # everything that takes seconds
    make bench ARGS='--quick'                    # without the peers that need over two seconds
    make bench ARGS='--only dp_sgd,calibration'  # some tables
    make bench ARGS='--markdown docs/results.md --json build/results.json'

CPU time of one thread in one process, best of interleaved rounds after a warm-up.
"""

import argparse
import json
import os
from collections.abc import Callable
from importlib.metadata import version
from pathlib import Path

from measuring import SINGLE_THREAD

os.environ.update(SINGLE_THREAD)  # before NumPy and torch start their threads

import everyday
import peers
import races
import settings_grid
import targets
from tables import Table, write_part

INTRODUCTION = """\
# Results

Written by `make bench`, on two x86-64 cores: CPU time of one thread, best of several interleaved
rounds in one process. The truth is known to the digits used from independent computations. A tool
named with a number runs at that tolerance (taut), grid (dp-accounting) or error (prv-accountant);
"x taut" is its time over taut's, which moves by a tenth or two between runs. taut and
prv-accountant answer with two bounds, the others with an upper one.
"""

DP_SGD = (
    "Poisson-sampled Gaussian, rate = 0.01, sigma = 1, delta = 1e-5. "
    "prv-accountant at error 0.01 needs 40 s for T = 100,000; `--slow` includes it."
)
OTHER = (
    "delta = 1e-5. The sum: 50 Gaussian with sigma = 10, 20 Laplace with scale = 10, 30 randomized "
    "responses with p = 0.52; the sampled Laplace noise has "
    "rate = 0.01 and scale = 0.5. Opacus knows none of these; the RDP accountants some."
)
SMALL = "Poisson-sampled Gaussian, rate = 0.01, sigma = 1, T = 1,000, at very small delta."


def main() -> None:
    options = parse()
    sections = choose(options)
    unknown = set(options.only or ()) - set(sections)
    if unknown:
        raise SystemExit(f"--only takes {', '.join(sections)}; got {', '.join(sorted(unknown))}")
    print(INTRODUCTION)
    found: dict[str, Table] = {}
    for key in options.only or sections:
        found[key] = sections[key]()
        print(found[key], end="\n\n", flush=True)
    found["targets"] = targets.judge(found)
    print(found["targets"], end="\n\n")
    print(versions())
    if options.markdown:
        text = [INTRODUCTION, *(f"{table}\n" for table in found.values()), f"{versions()}\n"]
        write_part(options.markdown, "accounting", "\n".join(text))
    if options.json:
        rows = {key: table.rows for key, table in found.items()}
        options.json.write_text(json.dumps({"versions": versions(), "tables": rows}, indent=1))


def choose(options: argparse.Namespace) -> dict[str, Callable[[], Table]]:
    """Return the sections by name, each ready to run."""
    quick, slow = options.quick, options.slow

    def race(key: str, title: str, note: str, cases: list[races.Case]) -> Table:
        return races.compare(key, title, note, cases, quick=quick)

    return {
        "dp_sgd": lambda: race("dp_sgd", "DP-SGD", DP_SGD, races.dp_sgd(slow=slow)),
        "other_releases": lambda: race(
            "other_releases", "Other releases", OTHER, races.other_releases()
        ),
        "small_delta": lambda: race("small_delta", "Small delta", SMALL, races.small_delta()),
        "small_noise": lambda: everyday.small_noise(slow=slow),
        "calibration": lambda: everyday.calibration(quick=quick, slow=slow),
        "grid": settings_grid.run,
        "start": everyday.start,
    }


def versions() -> str:
    """Return the versions compared, as one line."""
    return "Versions: " + ", ".join(f"{name} {version(name)}" for name in peers.PACKAGES) + "."


def parse() -> argparse.Namespace:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--quick", action="store_true", help="skip peers slower than two seconds")
    parser.add_argument("--slow", action="store_true", help="include what takes over half a minute")
    parser.add_argument("--only", type=lambda text: text.split(","), help="names of tables")
    parser.add_argument("--json", type=Path, metavar="FILE", help="write every number")
    parser.add_argument("--markdown", type=Path, metavar="FILE", help="write the tables as a page")
    return parser.parse_args()


if __name__ == "__main__":
    main()
