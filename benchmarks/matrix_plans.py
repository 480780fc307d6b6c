"""Plans for correlated noise: least errors at a promise, beside those of jax_privacy.

    python benchmarks/matrix_plans.py --peer /path/to/python   # of an environment with jax_privacy

Both sides plan 2048 steps in 8 epochs at delta = 1e-6 and are judged by one function: the root mean
square error of prefix sums at the noise that each asks for. Both times are CPU times of one run.
jax_privacy has pins of its own, and is called in its own environment; without --peer our side
alone is printed.
"""

import argparse
import json
import subprocess
import time

import numpy as np

from taut.matrix import ToeplitzEncoder, Workload, errors, optimize, sensitivity

STEPS, EPOCHS, DELTA = 2048, 8, 1e-6
EPSILONS = (0.5, 1.0, 2.0, 4.0, 8.0)
BATCH = 64  # of jax_privacy, which counts examples; only its share of all of them matters
PEER = f"""
import json, logging, time
logging.disable(logging.WARNING)
from importlib.metadata import version
from jax_privacy.matrix_factorization import toeplitz
for epsilon in {list(EPSILONS)!r}:
    begun = time.process_time()
    coefficients, deviation = toeplitz.optimize_coefs_for_amplifications(
        {STEPS}, dataset_size={BATCH * STEPS // EPOCHS}, expected_batch_size={BATCH},
        epsilon=epsilon, delta={DELTA!r})
    print(json.dumps(dict(
        epsilon=epsilon, coefficients=[float(c) for c in coefficients], sigma=float(deviation),
        seconds=time.process_time() - begun, version=version("jax_privacy"))), flush=True)
"""


def error_of(encoder, sigma, workload):
    return sigma * errors(encoder, workload).root_mean_square / sensitivity(encoder).value


def theirs(python, workload):
    answer = subprocess.run(
        [python, "-W", "ignore", "-c", PEER], capture_output=True, text=True, check=True
    )
    found = {}
    for line in answer.stdout.splitlines():
        row = json.loads(line)
        encoder = ToeplitzEncoder(STEPS, np.asarray(row["coefficients"], dtype=float).tolist())
        row["error"] = error_of(encoder, row["sigma"], workload)
        found[row["epsilon"]] = row
    return found


def ours(workload, epsilon):
    begun = time.process_time()
    ranking = optimize(workload, epochs=EPOCHS, epsilon=epsilon, delta=DELTA)
    return ranking, time.process_time() - begun


def main():
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--peer", help="Python of an environment with jax_privacy")
    arguments = parser.parse_args()
    workload = Workload(STEPS)
    peer = theirs(arguments.peer, workload) if arguments.peer else {}
    below = 0
    for epsilon in EPSILONS:
        ranking, seconds = ours(workload, epsilon)
        best, cyclic = ranking.best, ranking["cyclic_poisson"]
        line = (
            f"epsilon {epsilon:g}: {best.root_mean_square:.4f} ({best.noise}, {best.bands} bands, "
            f"{best.sampling}; {seconds:.1f} s), cyclic Poisson {cyclic.root_mean_square:.4f} "
            f"({cyclic.bands} bands)"
        )
        if row := peer.get(epsilon):
            share = best.root_mean_square / row["error"]
            below += share < 1
            line += (
                f"; jax_privacy {row['version']} {row['error']:.4f} "
                f"({len(row['coefficients'])} bands; {row['seconds']:.1f} s): ours is {share:.4f} "
                f"of it, cyclic Poisson {cyclic.root_mean_square / row['error']:.4f}"
            )
        print(line, flush=True)
        print(ranking, "\n", flush=True)
    if peer:
        print(f"below jax_privacy at {below} of {len(EPSILONS)}")


if __name__ == "__main__":
    main()
