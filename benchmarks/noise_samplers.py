"""Samples per second of CPU: exact integer noise against NumPy's continuous normal numbers."""

import time

import numpy as np

from taut.noise._discrete import discrete_gaussian_noise, discrete_laplace_noise
from taut.noise._secure import SecureGenerator

SIZE = 1_000_000
ROUNDS = 5
SCALES = (0.5, 1.7, 10.0, 63.9, 123.456, 1e4, 1e6, 2.0**40)


def best(call) -> float:
    """Return the CPU seconds of the best of some rounds, after one to warm up."""
    call()
    times = []
    for _ in range(ROUNDS):
        start = time.process_time()
        call()
        times.append(time.process_time() - start)
    return min(times)


def first(call) -> float:
    """Return the CPU seconds of the first call, tables included."""
    start = time.process_time()
    call()
    return time.process_time() - start


def main() -> None:
    secure, numpy = SecureGenerator(), np.random.default_rng()
    normal = best(lambda: numpy.standard_normal(SIZE))
    words = best(lambda: secure.integers_u64(SIZE))
    print(f"secure bits from {secure.source}, {SIZE:,} draws, best of {ROUNDS}, CPU time")
    print(f"{'draw':34}{'million / s':>12}{'x normal':>10}{'tables, ms':>12}")
    print(f"{'NumPy standard_normal':34}{SIZE / normal / 1e6:12.1f}{1:10.2f}")
    print(f"{'secure 64-bit words':34}{SIZE / words / 1e6:12.1f}{words / normal:10.2f}")
    for name, draw in (
        ("discrete Gaussian", discrete_gaussian_noise),
        ("discrete Laplace", discrete_laplace_noise),
    ):
        for scale in SCALES:
            tables = first(lambda draw=draw, scale=scale: draw(scale, size=1)) * 1e3
            seconds = best(lambda draw=draw, scale=scale: draw(scale, size=SIZE, generator=secure))
            label = f"{name}, scale {scale:g}"
            rate, ratio = SIZE / seconds / 1e6, seconds / normal
            print(f"{label:34}{rate:12.1f}{ratio:10.2f}{tables:12.1f}")


if __name__ == "__main__":
    main()
