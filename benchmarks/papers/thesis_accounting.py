"""Numbers of Zhu (2023), chapters 2 and 3, that can be recomputed: printed beside ours.

Run with ``python benchmarks/papers/thesis_accounting.py``.
"""

import numpy as np

import taut
from taut import renyi


def main() -> None:
    """Print every item."""
    figure_3_1()
    experiment_1()
    experiment_2()
    experiment_3()
    figure_2_4()


def figure_3_1() -> None:
    print("Figure 3.1: epsilon at delta = 0.3")
    noise = taut.gaussian(1.0).epsilon(0.3)
    coin = taut.randomized_response(np.e / (1 + np.e)).epsilon(0.3)
    print(f"  Gaussian, sigma = 1            {noise:.6f}   printed 0.277")
    print(f"  randomized response, e/(1+e)   {coin:.6f}   printed 0.471")


def experiment_1() -> None:
    print("\nExperiment 1 (Figure 3.3a): k Gaussian releases, delta = 1e-4; a figure, no numbers")
    for sigma in (50.0, 100.0):
        values = [(k * taut.gaussian(sigma)).epsilon(1e-4) for k in (100, 500, 1000, 2000)]
        print(f"  sigma = {sigma:g}: " + "  ".join(f"{value:.5f}" for value in values))


def experiment_2() -> None:
    print(
        "\nExperiment 2 (Figure 3.3b): k/2 Gaussian sigma = 5 and k/2 responses p = .52, delta(2)"
    )
    for k in (10, 20, 50, 100, 200):
        loss = k // 2 * (taut.gaussian(5.0) + taut.randomized_response(0.52))
        print(f"  k = {k:3d}: {loss.delta(2.0, tolerance=1e-6):.6g}")


def experiment_3() -> None:
    print("\nExperiment 3 (Figure 3.3c): Poisson Gaussian, rate = .01, sigma = 2, delta = 1e-5")
    print("       T  remove    add       by Renyi divergences")
    base = renyi.poisson(renyi.gaussian(2.0), 0.01)
    for steps in (100, 500, 1000, 5000, 10_000):
        halves = [
            (steps * taut.gaussian(2.0, adjacency=half).poisson(0.01)).epsilon(1e-5, 1e-5)
            for half in ("remove", "add")
        ]
        bound = renyi.epsilon_from_rdp(lambda a, n=steps: n * base(a), 1e-5).value
        print(f"  {steps:6d}  {halves[0]:.5f}   {halves[1]:.5f}   {bound:.5f}")


def figure_2_4() -> None:
    print("\nFigure 2.4: rate = .001, delta = 1e-8; classic (tight, general), improved, pair")
    mechanisms = {
        "Gaussian 5": (renyi.gaussian(5.0), taut.gaussian(5.0)),
        "Gaussian 1": (renyi.gaussian(1.0), taut.gaussian(1.0)),
        "Laplace 2": (renyi.laplace(2.0), taut.laplace(2.0)),
        "Laplace .5": (renyi.laplace(0.5), taut.laplace(0.5)),
        "response .6": (renyi.randomized_response(0.6), taut.randomized_response(0.6)),
        "response .9": (renyi.randomized_response(0.9), taut.randomized_response(0.9)),
    }
    for steps in (1_000, 100_000):
        for name, (curve, loss) in mechanisms.items():
            tight, general = (
                renyi.poisson(curve, 1e-3, method=method) for method in ("exact", "general")
            )
            found = [
                renyi.epsilon_from_rdp(
                    lambda a, f=f, n=steps: n * f(a), 1e-8, conversion=conversion
                ).value
                for f, conversion in [
                    (tight, "classic"),
                    (general, "classic"),
                    (tight, "improved"),
                ]
            ]
            found.append((steps * loss.poisson(1e-3)).epsilon(1e-8))
            print(f"  k = {steps:6d}  {name:12s}" + "  ".join(f"{value:.4f}" for value in found))


if __name__ == "__main__":
    main()
