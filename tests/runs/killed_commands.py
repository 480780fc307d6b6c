"""Runs ``taut train`` and ``taut resume`` in child processes that are killed; run as a script.

Arguments: a folder, how often to kill, a seed for the moments. Every update that the weights get
is noted at once, with fsync, by a hook of torch that knows nothing of ledgers.
"""

import json
import os
import random
import signal
import sys
import time
from pathlib import Path

import torch
from runs.configs import write_config, write_points
from torch.optim.optimizer import register_optimizer_step_post_hook

import taut.runs  # noqa: F401  children shall find it loaded
from taut.audit import verify_statement
from taut.cli._app import app
from taut.training import Plan, RunHistory

SECONDS = 0.3
MOST = 70
"""Updates of a child that is to be killed: then it waits, however late the signal comes."""
PLAN = {"batch_size": 10, "noise_multiplier": 8.0, "epsilon": None}


def note_updates(path, most=None):
    file = os.open(path, os.O_WRONLY | os.O_APPEND | os.O_CREAT)
    noted = []

    def note(*_):
        os.write(file, b".")
        os.fsync(file)
        noted.append(True)
        while len(noted) == most:
            time.sleep(1)

    register_optimizer_step_post_hook(note)


def updates_seen(folder):
    path = folder / "seen"
    return path.stat().st_size if path.exists() else 0


def command(folder):
    """Return what a user types next."""
    if (folder / "run" / "config.toml").exists():
        return ["resume", str(folder / "run"), "--json"]
    return ["train", str(folder / "config.toml"), "--json"]


def started(folder, most=None):
    """Start the command in a child process, which stops for good after `most` updates."""
    child = os.fork()
    if child == 0:
        out = os.open(folder / "out.txt", os.O_WRONLY | os.O_CREAT | os.O_TRUNC)
        os.dup2(out, 1)
        os.dup2(out, 2)
        note_updates(folder / "seen", most)
        code = 1
        try:
            app(command(folder), prog_name="taut")
        except SystemExit as ended:
            code = ended.code or 0
        finally:
            sys.stdout.flush()
            os._exit(code)
    return child


def ended(child):
    """Wait for a child; return its exit code, negative if a signal ended it."""
    return os.waitstatus_to_exitcode(os.waitpid(child, 0)[1])


def spent_is_counted(folder):
    """Return whether the ledger counts no fewer updates than were seen."""
    ledger, seen = folder / "run" / "ledger.jsonl", updates_seen(folder)
    if not ledger.exists():
        return seen == 0
    return RunHistory.read(ledger).steps >= seen


def killed(folder, moments):
    """Kill a child a while after its start, or after its first update; return its exit code."""
    before = updates_seen(folder)
    child = started(folder, MOST)
    if moments.random() < 0.75:
        wait_for_update(folder, before)
    time.sleep(moments.uniform(0.0, SECONDS))
    os.kill(child, signal.SIGKILL)
    return ended(child)


def wait_for_update(folder, before):
    patience = time.monotonic() + 600
    while updates_seen(folder) == before and time.monotonic() < patience:
        time.sleep(0.001)


def second_process(folder):
    """Start a second process beside one that trains; return its exit code."""
    before = updates_seen(folder)
    first = started(folder, MOST)
    wait_for_update(folder, before)
    code = ended(started(folder))
    os.kill(first, signal.SIGKILL)
    ended(first)
    return code


def main():
    folder, times, seed = Path(sys.argv[1]), int(sys.argv[2]), int(sys.argv[3])
    torch.set_num_threads(1)
    write_points(folder)
    write_config(folder, plan=PLAN | {"steps": 150 + 80 * times}, run={"checkpoint_seconds": 0.05})
    # What torch loads at a first step, children shall find loaded.
    torch.optim.SGD([torch.ones(1, requires_grad=True)], lr=0.1).step()
    moments = random.Random(seed)
    kills, counted = 0, []
    for _ in range(times):
        kills += killed(folder, moments) == -signal.SIGKILL
        counted.append(spent_is_counted(folder))
    refused = second_process(folder)
    code = ended(started(folder))
    result = json.loads((folder / "run" / "result.json").read_text())
    plan = Plan.from_dict(result["plan"])
    seen = updates_seen(folder)
    answer = {
        "kills": kills,
        "always_counted": all(counted),
        "second_process": refused,
        "exit_code": code,
        "seen": seen,
        "steps": result["steps"],
        "counted": result["counted_steps"],
        "epsilon": result["epsilon"]["upper"],
        "spent": plan.loss_at(seen).epsilon_bounds(plan.delta).lower,
        "planned": plan.epsilon,
        "verdict": str(verify_statement(result).verdict),
    }
    print(json.dumps(answer))


if __name__ == "__main__":
    main()
