"""Real datasets for training, as tensors, and their public features.

Files are read from the directory that TAUT_DATA names, or from ../shared/data; features are
computed once and kept in the directory that TAUT_CACHE names, or in .cache/taut of the home
directory. Nothing here is fitted on the training examples: pixels are shifted and scaled with
constants that were published with MNIST, Fashion-MNIST and ImageNet, and features are fixed
functions of an example.
"""

import io
import os
from collections.abc import Callable
from dataclasses import dataclass
from itertools import pairwise
from pathlib import Path

import numpy as np
import torch
from torch import Tensor, nn
from torch.utils.data import Subset, TensorDataset, random_split

from taut.training.features import Scattering2d, featurise


@dataclass(frozen=True)
class Data:
    """Training and test examples, and what there is to know about them."""

    name: str
    train: TensorDataset | Subset
    test: TensorDataset | Subset
    classes: int
    note: str = ""

    @property
    def shape(self) -> tuple[int, ...]:
        """Of one input."""
        return tuple(self.train[0][0].shape)

    def for_tuning(self, share: float = 1 / 6) -> "Data":
        """Return training examples alone, some of them held out in the place of the test set."""
        held = round(share * len(self.train))
        order = torch.Generator().manual_seed(0)
        parts = random_split(self.train, [len(self.train) - held, held], generator=order)
        return Data(self.name, parts[0], parts[1], self.classes, f"{self.note} Held out.".strip())


def data_file(name: str) -> Path:
    """Return where a file is, or say what is missing."""
    path = Path(os.environ.get("TAUT_DATA", "../shared/data")) / name
    if not path.exists():
        raise SystemExit(f"{path} was not found. Set TAUT_DATA to the directory with {name}.")
    return path


def cache_file(name: str) -> Path:
    """Return where something that was computed is kept."""
    directory = Path(os.environ.get("TAUT_CACHE", Path.home() / ".cache" / "taut"))
    directory.mkdir(parents=True, exist_ok=True)
    return directory / name


def grey_images(name: str, mean: float, deviation: float) -> Data:
    parts = []
    with np.load(data_file(f"{name}.npz")) as arrays:
        for part in ("train", "test"):
            pixels = torch.from_numpy(arrays[f"x_{part}"]).float().div_(255)
            images = ((pixels - mean) / deviation)[:, None]
            parts.append(TensorDataset(images, labels(arrays[f"y_{part}"])))
    return Data(name, parts[0], parts[1], 10)


def colour_images(name: str) -> Data:
    from PIL import Image  # comes with matplotlib

    mean = torch.tensor([0.485, 0.456, 0.406]).view(3, 1, 1)
    deviation = torch.tensor([0.229, 0.224, 0.225]).view(3, 1, 1)
    parts = []
    with np.load(data_file(f"{name}_jpeg.npz")) as arrays:
        for part in ("train", "test"):
            packed, offsets = arrays[f"jpeg_{part}"].tobytes(), arrays[f"offsets_{part}"]
            pixels = np.empty((len(offsets) - 1, 3, 32, 32), dtype=np.uint8)
            for i, (start, stop) in enumerate(pairwise(offsets)):
                image = np.asarray(Image.open(io.BytesIO(packed[start:stop])))
                pixels[i] = image.transpose(2, 0, 1)
            images = torch.from_numpy(pixels).float().div_(255).sub_(mean).div_(deviation)
            parts.append(TensorDataset(images, labels(arrays[f"y_{part}"])))
    return Data(name, parts[0], parts[1], 10, "Images were re-encoded as JPEG.")


def embeddings(name: str, classes: int) -> Data:
    """Return texts that a public model embedded, the last fifth of them, at random, as test set."""
    with np.load(data_file(f"{name}_minilm.npz")) as arrays:
        whole = TensorDataset(torch.from_numpy(arrays["x"]).float(), labels(arrays["y"]))
    test = len(whole) // 5
    order = torch.Generator().manual_seed(0)
    parts = random_split(whole, [len(whole) - test, test], generator=order)
    return Data(name, parts[0], parts[1], classes, "Texts embedded with all-MiniLM-L6-v2.")


def labels(values: np.ndarray) -> Tensor:
    return torch.from_numpy(values.astype(np.int64))


def scattering(images: Data, groups: int) -> Data:
    """Return features of images, normalised within each example: computed once, then read."""
    path = cache_file(f"{images.name}_scattering_{groups}.pt")
    if not path.exists():
        print(f"computing features for {path}, once; this takes minutes")
        channels, *shape = images.shape
        transform = nn.Sequential(
            Scattering2d(tuple(shape), channels=channels),
            nn.GroupNorm(groups, 81 * channels, affine=False),
        )
        found = [
            featurise(part, transform, dtype=torch.float16).tensors
            for part in (images.train, images.test)
        ]
        unfinished = path.with_suffix(".unfinished")
        torch.save(found, unfinished)
        unfinished.rename(path)
    train, test = torch.load(path, mmap=True)
    return Data(
        f"{images.name}_scattering",
        TensorDataset(*train),
        TensorDataset(*test),
        images.classes,
        images.note,
    )


SOURCES: dict[str, Callable[[], Data]] = {
    "mnist": lambda: grey_images("mnist", 0.1307, 0.3081),
    "fashion_mnist": lambda: grey_images("fashion_mnist", 0.2860, 0.3530),
    "cifar10": lambda: colour_images("cifar10"),
    "mnist_scattering": lambda: scattering(load("mnist"), 27),
    "fashion_mnist_scattering": lambda: scattering(load("fashion_mnist"), 27),
    "cifar10_scattering": lambda: scattering(load("cifar10"), 27),
    "ag_news": lambda: embeddings("ag_news", 4),
    "dbpedia": lambda: embeddings("dbpedia", 14),
}


def load(name: str) -> Data:
    """Return a dataset by its name in SOURCES."""
    return SOURCES[name]()
