"""Epsilons of Gaussian plus uniform noise, Xiao, Wan and Devadas 2022, printed and recomputed.

    .venv/bin/python benchmarks/papers/modelmix_epsilons.py

Lengths in units of the clipping norm: noise multiplier z, width r of the uniform noise, coordinates
at most 1/sqrt(p). Integer orders and the classic conversion, as in the paper; for p = 1 the printed
values need real orders, which the theorem does not cover. Beside them what taut certifies, and the
Gaussian noise that does the same with less variance.
"""

import math

import numpy as np

import taut
from taut.accounting._adjacency import Half
from taut.accounting._comparisons.equal_variance import compare_mixing

DELTA = 1e-5
ORDERS = np.arange(2.0, 129.0)
FIGURE_3 = {"q": 0.02, "steps": 5000, "z": 0.3669445419913252}
RUNS = [
    ("CIFAR-10, eps = 8", 0.03, 3400, 0.335, 11.25, 100, 8.0),
    *(
        (f"Figure 3, r = {r:g}", 0.02, 5000, FIGURE_3["z"], r, p, printed)
        for r, values in (
            (3.75, (57.2, 17.9, 15.3)),
            (7.5, (40.4, 9.0, 7.9)),
            (15.0, (31.7, 5.4, 4.8)),
        )
        for p, printed in zip((1, 25, 100), values, strict=True)
    ),
]


def classic(loss):
    """Return the epsilon of integer orders by eps(a) + log(1/delta)/(a - 1)."""
    ((release, count),) = loss.terms
    rdp = count * release.renyi(Half.REMOVE, ORDERS)
    return float((rdp + math.log(1 / DELTA) / (ORDERS - 1)).min())


def main():
    print("| run | p | printed | integer orders | certified | variance over Gaussian |")
    print("| --- | --- | --- | --- | --- | --- |")
    for name, rate, steps, z, r, p, printed in RUNS:
        step = taut.accounting.mixed_gaussian(z, r, sensitivity_inf=1 / math.sqrt(p), rate=rate)
        total = steps * step
        ratio = compare_mixing(total, DELTA).variance_ratio
        cells = f"{name} | {p} | {printed:.1f} | {classic(total):.5f} | {total.epsilon(DELTA):.3f}"
        print(f"| {cells} | {ratio:.2f}x |")


if __name__ == "__main__":
    main()
