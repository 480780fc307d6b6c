"""CPU time and memory: several contenders in one process, or one program in a fresh interpreter."""

import os
import resource
import subprocess
import sys
import time
import warnings
from collections.abc import Callable
from dataclasses import dataclass, field
from pathlib import Path

ROUNDS = 5
BUDGET = 1.5  # seconds for the rounds of one contender; whoever needs more for one runs once

SINGLE_THREAD = dict.fromkeys(
    ("OMP_NUM_THREADS", "MKL_NUM_THREADS", "OPENBLAS_NUM_THREADS", "NUMEXPR_NUM_THREADS"), "1"
)


@dataclass(frozen=True)
class Answer:
    """An upper bound, with a lower bound where the tool has one."""

    upper: float
    lower: float | None = None


@dataclass(frozen=True)
class Contender:
    """A tool and its question.

    ``ask`` takes a factor for the noise, by which rounds differ in the thirteenth digit: no tool
    gains from remembering an answer. ``slow`` contenders need more than two seconds.
    """

    name: str
    ask: Callable[[float], Answer]
    slow: bool = False


@dataclass
class Measurement:
    """What a contender said and the CPU seconds of its best run, or why there is none."""

    name: str
    answer: Answer | None = None
    seconds: float | None = None
    problem: str = ""
    times: list[float] = field(default_factory=list)


def race(contenders: list[Contender], *, quick: bool = False) -> list[Measurement]:
    """Run everybody once to warm up, then in interleaved rounds; keep each one's best time."""
    entries = [(contender, Measurement(contender.name)) for contender in contenders]
    for contender, entry in entries:
        if contender.slow and quick:
            entry.problem = "skipped"
            continue
        try:
            entry.answer, first = cpu_time(lambda ask=contender.ask: ask(1.0))
        except Exception as error:  # a tool that refuses is a result
            entry.problem = f"raises {type(error).__name__}"
        else:
            entry.seconds = first
    for turn in range(1, ROUNDS + 1):
        for contender, entry in entries:
            if entry.seconds is not None and entry.seconds * turn < BUDGET:
                _, seconds = cpu_time(lambda ask=contender.ask, k=turn: ask(1 + k * 1e-13))
                entry.times.append(seconds)
    for _, entry in entries:
        entry.seconds = min(entry.times, default=entry.seconds)
    return [entry for _, entry in entries]


def cpu_time(call: Callable[[], Answer]) -> tuple[Answer, float]:
    """Return what ``call`` returns and the CPU seconds of this process."""
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        start = time.process_time()
        answer = call()
        return answer, time.process_time() - start


def fresh_interpreter(code: str) -> str:
    """Return what ``code`` prints in an interpreter of its own."""
    return _run([sys.executable, "-W", "ignore", "-c", code]).stdout


def best_start(command: list[str], repeats: int = 5) -> dict[str, float]:
    """Return the least CPU and wall seconds of a whole program, start of Python included."""
    runs = []
    for _ in range(repeats):
        before, start = _children_cpu(), time.perf_counter()
        _run(command)
        runs.append((_children_cpu() - before, time.perf_counter() - start))
    cpu, wall = (min(column) for column in zip(*runs, strict=True))
    return {"cpu_s": cpu, "wall_s": wall}


def peak_memory_code() -> str:
    """Return code that defines ``peak()``, the megabytes a process has held at most.

    VmHWM and not ru_maxrss, because a child inherits the latter from its parent.
    """
    return (
        "def peak():\n"
        "    lines = open('/proc/self/status').read().splitlines()\n"
        "    return next(int(l.split()[1]) for l in lines if l.startswith('VmHWM')) / 1024\n"
    )


def script(name: str) -> str:
    """Return the path of a command installed beside this interpreter."""
    return str(Path(sys.executable).with_name(name))


def _run(command: list[str]) -> subprocess.CompletedProcess[str]:
    environment = os.environ | SINGLE_THREAD
    return subprocess.run(command, check=True, capture_output=True, text=True, env=environment)


def _children_cpu() -> float:
    usage = resource.getrusage(resource.RUSAGE_CHILDREN)
    return usage.ru_utime + usage.ru_stime
