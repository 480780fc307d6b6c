"""Noise of hybrid clipping over that of an l2 ball, Section 6 of Xiao, Wan and Devadas 2023.

    .venv/bin/python benchmarks/papers/hybrid_noise.py

Both hide the same contributions: orthogonal blocks with an l2 bound each, or the ball around them.
The paper's example is a principal subspace of 1,000 directions and its complement. The second needs
no public data: the blocks are the tensors of a ResNet-20 for ten classes, of equal bounds.
Least total variance is not least harm: the principal block gets more noise than before.
"""

import math

import numpy as np

from taut.noise import Blocks, L2Ball, optimal_gaussian

PRINTED = 5.5


def resnet20():
    """Return the sizes of all convolutions, two of them shortcuts, and of the last layer."""
    widths = [16, 16, 16, 32, 32, 32, 64, 64, 64]
    sizes, before = [3 * 3 * 3 * 16], 16
    for width in widths:
        sizes += [9 * before * width, 9 * width * width]
        before = width
    return [*sizes, 16 * 32, 32 * 64, 64 * 10, 10]


def compare(ranks, bounds):
    """Return total variances of ball over blocks, and the variance per direction in both."""
    blocks = Blocks(ranks, bounds)
    hybrid = optimal_gaussian(blocks, multiplier=1.0)
    ball = optimal_gaussian(L2Ball(sum(ranks), blocks.max_l2), multiplier=1.0)
    starts = np.concatenate([[0], np.cumsum(ranks)[:-1]])
    return ball.total_variance / hybrid.total_variance, ball.scales[0] ** 2, hybrid.scales[starts]


def main():
    layers = resnet20()
    print("| blocks | directions | printed | ball over blocks | ball, per direction | blocks |")
    print("| --- | --- | --- | --- | --- | --- |")
    for name, ranks, bounds, printed in (
        ("principal subspace, rest", [1000, 290_898], [2.5, 1.0], f"{PRINTED}"),
        ("tensors of ResNet-20", layers, [1 / math.sqrt(len(layers))] * len(layers), ""),
    ):
        ratio, before, scales = compare(ranks, bounds)
        spread = f"{scales.max() ** 2:.3g} to {scales.min() ** 2:.3g}"
        print(f"| {name} | {sum(ranks):,} | {printed} | {ratio:.4f} | {before:.3g} | {spread} |")


if __name__ == "__main__":
    main()
