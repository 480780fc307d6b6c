"""What can be wrong with an installation, one check at a time."""

from __future__ import annotations

import importlib
import importlib.metadata
import math
import os
import platform
import sys
import tempfile
import time
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path

import taut
from taut.errors import RunInUse

__all__ = ["Check", "run_checks", "versions"]

_NEEDED = ("numpy", "scipy")
_EXTRAS: Mapping[str, tuple[str, ...]] = {
    "cli": ("typer", "rich"),
    "demo": ("sklearn",),
    "report": ("matplotlib",),
    "secure": ("cryptography",),
    "torch": ("torch",),
}
_DISTRIBUTIONS = {"sklearn": "scikit-learn"}
_EPSILON = 1.8282366665  # of the run below: shifted contour in 30 digits, and a rigorous bracket
_DRAWS = 200_000
_DEVIATIONS = 6.0  # a sound generator fails a test of moments once in 10^8 times


@dataclass(frozen=True)
class Check:
    """What a check found.

    Attributes:
        name: name of what was looked at.
        status: "ok", "absent" for an extra that is not installed, "warning" or "broken".
        detail: explanation, in words.
    """

    name: str
    status: str
    detail: str


def versions() -> dict[str, str | None]:
    """Return the versions of everything that matters; None for what is not installed."""
    packages = [*_NEEDED, *(package for extra in _EXTRAS.values() for package in extra)]
    return {
        "taut": taut.__version__,
        "python": platform.python_version(),
        "platform": platform.platform(),
        **{package: _version(package) for package in packages},
    }


def run_checks() -> Iterator[Check]:
    """Yield what every check finds; a check that fails in an unforeseen way is broken."""
    yield Check("python", "ok", f"{platform.python_version()}, {platform.platform()}")
    for package in _NEEDED:
        yield _imported(package, package, needed=True)
    for extra, packages in _EXTRAS.items():
        for package in packages:
            yield _imported(f"extra {extra}", package, needed=False)
    has_torch = _version("torch") is not None
    checks: dict[str, Callable[[], tuple[str, str]]] = {
        "certified computation": _certified,
        "generator": _generator,
        "normal numbers": _normal_numbers,
        "processors": _processors,
    }
    if has_torch:
        checks |= {"torch": _torch, "float32": _float32, "ledger": _ledger, "training": _training}
    for name, check in checks.items():
        try:
            yield Check(name, *check())
        except Exception as error:
            yield Check(name, "broken", f"{type(error).__name__}: {error}")


def _version(package: str) -> str | None:
    try:
        return importlib.metadata.version(_DISTRIBUTIONS.get(package, package))
    except importlib.metadata.PackageNotFoundError:
        return None


def _imported(name: str, package: str, *, needed: bool) -> Check:
    version = _version(package)
    if version is None and not needed:
        extra = name.removeprefix("extra ")
        return Check(name, "absent", f"no {package}; if you need it: pip install 'taut[{extra}]'")
    try:
        importlib.import_module(package)
    except Exception as error:
        return Check(name, "broken", f"{package} {version} does not import: {error}")
    return Check(name, "ok", f"{package} {version}")


def _certified() -> tuple[str, str]:
    lower, upper = (1_000 * taut.gaussian(1.0).poisson(0.01)).epsilon_bounds(1e-5, 1e-5)
    text = f"{lower:.7f} <= epsilon <= {upper:.7f}, known to be {_EPSILON}"
    return ("ok" if lower <= _EPSILON <= upper else "broken"), text


def _generator() -> tuple[str, str]:
    from taut.noise import default_generator

    source = default_generator()
    if not source.secure or source.bytes(32) == source.bytes(32):
        return "broken", "the default generator is not secure"
    size = 1 << 23
    began = time.perf_counter()
    block = source.bytes(size)
    speed = size / max(time.perf_counter() - began, 1e-9) / 1e6
    ones = int.from_bytes(block, "little").bit_count()
    deviation = abs(ones - 4 * size) / math.sqrt(2 * size)
    text = f"{source.source}, {speed:.0f} MB/s, ones are {deviation:.1f} deviations from half"
    return ("ok" if deviation < _DEVIATIONS else "broken"), text


def _normal_numbers() -> tuple[str, str]:
    import numpy as np

    from taut.noise import default_generator

    began = time.perf_counter()
    numbers = default_generator().standard_normal(_DRAWS)
    speed = _DRAWS / max(time.perf_counter() - began, 1e-9) / 1e6
    # Mean and variance of the k-th power of a normal number.
    moments = {1: (0.0, 1.0), 2: (1.0, 2.0), 3: (0.0, 15.0), 4: (3.0, 96.0)}
    worst = max(
        abs(float(np.mean(numbers**power)) - mean) / math.sqrt(variance / _DRAWS)
        for power, (mean, variance) in moments.items()
    )
    text = f"{speed:.1f} million/s, four moments within {worst:.1f} deviations"
    return ("ok" if worst < _DEVIATIONS else "broken"), text


def _processors() -> tuple[str, str]:
    usable = len(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else os.cpu_count()
    return (
        "ok",
        f"{usable} of {os.cpu_count()} usable, {platform.machine()}, {sys.byteorder} endian",
    )


def _torch() -> tuple[str, str]:
    import torch

    devices = ["cpu"]
    if torch.cuda.is_available():
        count = torch.cuda.device_count()
        devices += [f"cuda:{i} {torch.cuda.get_device_name(i)}" for i in range(count)]
    if torch.backends.mps.is_available():
        devices.append("mps")
    return "ok", f"{torch.get_num_threads()} threads, devices {', '.join(devices)}"


def _float32() -> tuple[str, str]:
    """Norms of gradients are computed in float32; shortened products would make them wrong."""
    import torch

    bits = torch.Generator().manual_seed(0)
    devices = ["cpu"] + (["cuda"] if torch.cuda.is_available() else [])
    worst = 0.0
    for device in devices:
        left = torch.randn(128, 512, generator=bits).to(device)
        exact = left.double() @ left.double().T
        error = ((left @ left.T).double() - exact).abs().max() / exact.abs().max()
        worst = max(worst, float(error))
    if worst > 1e-5:
        return (
            "warning",
            f"products are off by {worst:.1e}: TF32 is on; norms of gradients are then no better "
            "than that. torch.set_float32_matmul_precision('highest') turns it off",
        )
    precision = torch.get_float32_matmul_precision()
    status = "ok" if precision == "highest" else "warning"
    return status, f"products are off by {worst:.1e}, precision {precision!r}"


def _ledger() -> tuple[str, str]:
    from taut.training import FlatClip, Plan, RunHistory, RunLedger

    plan = Plan(
        examples=100, batch_size=10, steps=4, noise_multiplier=4.0, delta=1e-3, clipping=FlatClip(1)
    )
    with tempfile.TemporaryDirectory() as folder:
        path = Path(folder) / "ledger.jsonl"
        with RunLedger(path, plan) as ledger:
            began = time.perf_counter()
            ledger.record(0)
            elapsed = 1e3 * (time.perf_counter() - began)
            try:
                RunLedger(path, plan)
            except RunInUse:
                pass
            else:
                return "broken", "two writers at once: this file system has no locks"
        if RunHistory.read(path).steps != 1:
            return "broken", "what was written is not what is read"
    return "ok", f"locks and keeps; {elapsed:.1f} ms for a durable record"


def _training() -> tuple[str, str]:
    import torch
    from torch import nn
    from torch.utils.data import TensorDataset

    from taut.training import FlatClip, Logs, Plan, PrivateTrainer

    data = TensorDataset(torch.ones(40, 3), torch.arange(40) % 2)
    plan = Plan(
        examples=40, batch_size=20, steps=2, noise_multiplier=4.0, delta=1e-3, clipping=FlatClip(1)
    )
    model = nn.Linear(3, 2)
    before = model.weight.detach().clone()
    trainer = PrivateTrainer(model, nn.CrossEntropyLoss(), plan, logs=Logs(progress=False))
    result = trainer.fit(data)
    if torch.equal(before, model.weight) or result.counted_steps != 2:
        return "broken", "two steps did not move the weights, or were not counted"
    return "ok", "two private steps taken and counted"
