"""Gains of noise that follows a sensitivity profile, Section V of Muthukrishnan and Kalyani (2025).

    .venv/bin/python benchmarks/papers/inid_gains.py

Independent noise with a scale of its own in every coordinate, over the same noise everywhere, both
at the same promise. Profiles are 1..K, its squares, and exp(1)..exp(K). All printed numbers come
out but one: Fig. 3 saturates at 14.432 dB, as the difference of 5.4 dB beside it says, not 14.243.
What the paper does not have follows: the exact loss of Laplace noise for delta > 0, and the
l_inf mechanism on groups of coordinates.
"""

import math

import numpy as np
from scipy.optimize import minimize_scalar

from taut.noise import Box, L2Ball, grouped_linf, optimal_gaussian, optimal_laplace

EPSILON, DELTA, K = 0.5, 1e-6, 20
PRINTED_GAUSSIAN = {"linear": 1.145, "quadratic": 2.442, "exponential": 9.658}
PRINTED_LAPLACE = {"linear": 0.546, "quadratic": 1.39, "exponential": 7.609}
TABLE_2 = {
    0.5: (3.9962, 4.0, 3.4283),
    1.0: (1.9862, 2.0, 1.7141),
    1.5: (1.3050, 1.3333, 1.1428),
    2.0: (0.9546, 1.0, 0.8571),
    2.5: (0.7366, 0.8, 0.6857),
    3.0: (0.5856, 0.6667, 0.5714),
}


def profiles(size):
    places = np.arange(1.0, size + 1)
    # The exponential one counted from its largest, so that no width overflows.
    return {"linear": places, "quadratic": places**2, "exponential": np.exp(places - size)}


def gaussian_variance(widths):
    return optimal_gaussian(Box(widths), epsilon=EPSILON, delta=DELTA).total_variance


def laplace_variance(widths):
    return optimal_laplace(Box(widths), epsilon=EPSILON).total_variance


def same_gaussian(widths):
    """Return the total variance of the same Gaussian noise everywhere."""
    ball = L2Ball(len(widths), float(np.linalg.norm(widths)))
    return optimal_gaussian(ball, epsilon=EPSILON, delta=DELTA).total_variance


def same_laplace(widths):
    return 2 * len(widths) * (float(widths.sum()) / EPSILON) ** 2


def decibel(ratio):
    return 10 * math.log10(ratio)


def gains():
    print(f"Fig. 1a and 3: gain over the same noise everywhere, K = {K}\n")
    print("| noise | profile | printed dB | computed dB | factor |")
    print("| --- | --- | --- | --- | --- |")
    for noise, printed, same, best in (
        ("Gaussian", PRINTED_GAUSSIAN, same_gaussian, gaussian_variance),
        ("Laplace", PRINTED_LAPLACE, same_laplace, laplace_variance),
    ):
        for name, widths in profiles(K).items():
            ratio = same(widths) / best(widths)
            cells = f"{noise} | {name} | {printed[name]:g} | {decibel(ratio):.3f} | {ratio:.4f}"
            print(f"| {cells} |")


def limits():
    print("\nFig. 1b and 3: error of unit profiles in dB, as K grows\n")
    print("| K | linear | quadratic | exponential, Gaussian | exponential, Laplace |")
    print("| --- | --- | --- | --- | --- |")
    for size in (2, 5, 20, 25, 100):
        found = profiles(size)
        unit = [found[name] / np.linalg.norm(found[name]) for name in PRINTED_GAUSSIAN]
        cells = [decibel(gaussian_variance(widths)) for widths in unit]
        steep = found["exponential"]
        cells.append(decibel(laplace_variance(steep / steep.sum())))
        print(f"| {size} | " + " | ".join(f"{cell:.3f}" for cell in cells) + " |")
    print("\nprinted limits: 21.477 and (misprinted) 14.243")


def crossing():
    print("\nFig. 4: least K at which Gaussian noise has less variance than Laplace noise\n")
    for name in ("uniform", "exponential"):
        sizes = range(1, 100)
        widths = {k: np.ones(k) if name == "uniform" else np.exp(-np.arange(k)) for k in sizes}
        better = [k for k in sizes if gaussian_variance(widths[k]) < laplace_variance(widths[k])]
        print(f"- {name}: {better[0] if better else 'none'}")
    print("- printed: 9 and none")


def staircase(epsilon):
    """Return the least l1 error of a staircase in the plane, for sensitivity 1 in l1."""
    k = np.arange(200.0)
    fall, step = np.exp(-k * epsilon), math.exp(-epsilon)

    def error(g):
        area = 2 * ((k + g) ** 2 - k**2) + step * 2 * ((k + 1) ** 2 - (k + g) ** 2)
        moment = (k + g) ** 3 - k**3 + step * ((k + 1) ** 3 - (k + g) ** 3)
        return float(4 / 3 * (fall @ moment) / (fall @ area))

    return float(minimize_scalar(error, bounds=(0, 1), method="bounded").fun)


def table_2():
    print("\nTable II: l1 error for sensitivities 0.85 and 0.15, printed / computed\n")
    print("| epsilon | staircase | same Laplace | optimal Laplace |")
    print("| --- | --- | --- | --- |")
    for epsilon, printed in TABLE_2.items():
        best = optimal_laplace(Box([0.85, 0.15]), epsilon=epsilon, power=1.0).error
        pairs = zip(printed, (staircase(epsilon), 2 / epsilon, best), strict=True)
        print(f"| {epsilon:g} | " + " | ".join(f"{p:.4f} / {c:.4f}" for p, c in pairs) + " |")


def beyond():
    print("\nNot in the paper\n")
    widths = profiles(K)["quadratic"]
    grouped = grouped_linf(Box(widths), epsilon=EPSILON).total_variance
    ratio = laplace_variance(widths) / grouped
    print(f"- optimal Laplace over grouped l_inf, quadratic, K = {K}: {ratio:.2f}x")
    ones = np.ones(300)
    exact = optimal_laplace(Box(ones), epsilon=EPSILON, delta=DELTA).total_variance
    over = exact / gaussian_variance(ones), laplace_variance(ones) / gaussian_variance(ones)
    print(f"- exact Laplace over Gaussian, uniform, K = 300: {over[0]:.2f}x; pure: {over[1]:.1f}x")


def main():
    gains()
    limits()
    crossing()
    table_2()
    beyond()


if __name__ == "__main__":
    main()
