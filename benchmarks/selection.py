"""What the best of ten runs costs: taut's certified bounds beside dp-accounting's RepeatAndSelect.

Run in the environment of the peers: python benchmarks/selection.py
"""

import math
import time

from dp_accounting import GaussianDpEvent, PoissonSampledDpEvent, SelfComposedDpEvent
from dp_accounting.dp_event import RepeatAndSelectDpEvent
from dp_accounting.rdp import RdpAccountant

import taut
from taut.accounting import Trials, best_of

DELTA = 1e-6
MEAN = 10
# Training plans as on MNIST: noise multiplier, sampling rate, steps.
PLANS = [
    (1.0, 0.01, 1_000),
    (1.0, 0.01, 3_000),
    (1.0, 0.015, 2_000),
    (1.1, 256 / 60_000, 14_062),
    (2.0, 0.02, 1_000),
    (4.0, 0.02, 1_500),
]
# Shape of the negative binomial law, as dp-accounting calls it; infinity is Poisson.
SHAPES = {"geometric": 1.0, "logarithmic": 0.0, "poisson": math.inf}


def timed(question, *parameters):
    start = time.process_time()
    value = question(*parameters)
    return value, time.process_time() - start


def ours(sigma, rate, steps, shape):
    run = steps * taut.gaussian(sigma).poisson(rate)
    trials = Trials.poisson(MEAN)
    if shape < math.inf:
        trials = Trials.negative_binomial(MEAN, shape)
    return best_of(run, trials).epsilon_bounds(DELTA)


def theirs(sigma, rate, steps, shape):
    step = PoissonSampledDpEvent(rate, GaussianDpEvent(sigma))
    event = RepeatAndSelectDpEvent(SelfComposedDpEvent(step, steps), MEAN, shape)
    return RdpAccountant().compose(event).get_epsilon(DELTA)


def main():
    print(f"epsilon at delta = {DELTA:g} of the best of {MEAN} expected runs")
    print(
        "sigma  rate     steps  law          one run  taut (at least)   dp-acc.  ratio  x one run"
    )
    for plan in PLANS:
        sigma, rate, steps = plan
        one = (steps * taut.gaussian(sigma).poisson(rate)).epsilon(DELTA)
        best, best_peer = math.inf, math.inf
        for law, shape in {**SHAPES, "shape -1/2": -0.5}.items():
            (lower, upper), seconds = timed(ours, *plan, shape)
            row = f"{sigma:5g}  {rate:<7.3g} {steps:6}  {law:12} {one:7.3f}  "
            row += f"{upper:6.3f} ({lower:6.3f})  "
            best = min(best, upper)
            if shape >= 0:
                peer, other = timed(theirs, *plan, shape)
                best_peer = min(best_peer, peer)
                row += f"{peer:8.3f}  {upper / peer:5.3f}  {upper / one:5.2f}"
                row += f"   {seconds:.2f} s against {other:.2f} s"
            else:  # dp-accounting has no shapes below zero
                row += f"{'':8}  {'':5}  {upper / one:5.2f}   {seconds:.2f} s"
            print(row)
        print(f"{'':23}best of all  {one:7.3f}  {best:6.3f}            {best_peer:8.3f}", end="  ")
        print(f"{best / best_peer:5.3f}  {best / one:5.2f}")


if __name__ == "__main__":
    main()
