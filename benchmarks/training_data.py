"""Real datasets for training, as tensors, and their public features.

Files are read from the directory that TAUT_DATA names, or from ../shared/data; features are
computed once and kept in the directory that TAUT_CACHE names, or in .cache/taut of the home
directory. Nothing here is fitted on the training examples: pixels are shifted and scaled with
constants that were published with MNIST, Fashion-MNIST and ImageNet, and features are fixed
functions of an example, with statistics of made-up images.
"""

import io
import os
from collections.abc import Callable
from dataclasses import dataclass
from functools import cache
from itertools import pairwise
from pathlib import Path

import numpy as np
import torch
from torch import Tensor, nn
from torch.utils.data import Subset, TensorDataset, random_split

from taut.training.features import (
    PublicWhitening,
    Scattering2d,
    SignedRoot,
    dead_leaves,
    featurise,
)

# Mean and deviation of pixels, as published with the first two datasets and with ImageNet.
PIXELS = {
    "mnist": ([0.1307], [0.3081]),
    "fashion_mnist": ([0.2860], [0.3530]),
    "cifar10": ([0.485, 0.456, 0.406], [0.229, 0.224, 0.225]),
}


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

    def for_tuning(self, seed: int = 0, share: float = 1 / 6) -> "Data":
        """Return training examples alone, some of them held out in the place of the test set."""
        held = round(share * len(self.train))
        order = torch.Generator().manual_seed(seed)
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


def normalised(name: str, pixels: Tensor) -> Tensor:
    """Return images of pixels in [0, 1] in the units of a dataset."""
    mean, deviation = (torch.tensor(values).view(-1, 1, 1) for values in PIXELS[name])
    return (pixels - mean) / deviation


def grey_images(name: str) -> Data:
    parts = []
    with np.load(data_file(f"{name}.npz")) as arrays:
        for part in ("train", "test"):
            pixels = torch.from_numpy(arrays[f"x_{part}"])[:, None].float().div_(255)
            parts.append(TensorDataset(normalised(name, pixels), labels(arrays[f"y_{part}"])))
    return Data(name, parts[0], parts[1], 10)


def colour_images(name: str) -> Data:
    from PIL import Image  # comes with matplotlib

    parts = []
    with np.load(data_file(f"{name}_jpeg.npz")) as arrays:
        for part in ("train", "test"):
            packed, offsets = arrays[f"jpeg_{part}"].tobytes(), arrays[f"offsets_{part}"]
            pixels = np.empty((len(offsets) - 1, 3, 32, 32), dtype=np.uint8)
            for i, (start, stop) in enumerate(pairwise(offsets)):
                image = np.asarray(Image.open(io.BytesIO(packed[start:stop])))
                pixels[i] = image.transpose(2, 0, 1)
            images = normalised(name, torch.from_numpy(pixels).float().div_(255))
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


def scattering_transform(name: str, shape: tuple[int, int, int]) -> nn.Module:
    """Return scattering, whitened by statistics of made-up images and scaled within examples."""
    channels, height, width = shape
    features = nn.Sequential(Scattering2d((height, width), channels=channels), SignedRoot())
    public = normalised(name, dead_leaves(1000, (height, width), channels=channels))
    whitening = PublicWhitening.from_public(features(public), provenance="public")
    return nn.Sequential(features, whitening, nn.GroupNorm(1, len(whitening.mean), affine=False))


def scattering(name: str) -> Data:
    """Return features of images: computed once, then read."""
    path = cache_file(f"{name}_scattering.pt")
    if not path.exists():
        print(f"computing features for {path}, once; this takes minutes")
        images = load(name)
        transform = scattering_transform(name, images.shape)
        found = {
            "classes": images.classes,
            "note": images.note,
            "train": featurise(images.train, transform, dtype=torch.float16).tensors,
            "test": featurise(images.test, transform, dtype=torch.float16).tensors,
        }
        unfinished = path.with_suffix(".unfinished")
        torch.save(found, unfinished)
        unfinished.rename(path)
    kept = torch.load(path, mmap=True)
    return Data(
        f"{name}_scattering",
        TensorDataset(*kept["train"]),
        TensorDataset(*kept["test"]),
        kept["classes"],
        kept["note"],
    )


def pooled(name: str) -> Data:
    """Return features averaged over squares of two by two points, and scaled within examples."""
    source = load(name)
    parts = [_pooled(part) for part in (source.train, source.test)]
    note = f"{source.note} Features averaged over two by two points.".strip()
    return Data(f"{name}_pooled", parts[0], parts[1], source.classes, note)


def _pooled(part: TensorDataset | Subset) -> TensorDataset:
    assert isinstance(part, TensorDataset)
    features, targets = part.tensors
    transform = nn.Sequential(nn.AvgPool2d(2), nn.GroupNorm(1, features.shape[1], affine=False))
    # A thousand at a time: in single precision all of them would not fit into memory.
    small = [transform(some.float()).half() for some in features.split(1000)]
    return TensorDataset(torch.cat(small), targets)


def leaves() -> Data:
    """Return features of made-up images, which have no classes."""
    made_up = normalised("cifar10", dead_leaves(300, (32, 32), channels=3, seed=1))
    images = TensorDataset(made_up, torch.zeros(len(made_up), dtype=torch.long))
    found = featurise(images, scattering_transform("cifar10", (3, 32, 32)), dtype=torch.float16)
    return Data("leaves_scattering", found, found, 1, "Made-up images.")


SOURCES: dict[str, Callable[[], Data]] = {
    "mnist": lambda: grey_images("mnist"),
    "fashion_mnist": lambda: grey_images("fashion_mnist"),
    "cifar10": lambda: colour_images("cifar10"),
    "mnist_scattering": lambda: scattering("mnist"),
    "fashion_mnist_scattering": lambda: scattering("fashion_mnist"),
    "cifar10_scattering": lambda: scattering("cifar10"),
    "leaves_scattering": leaves,
    "cifar10_scattering_pooled": lambda: pooled("cifar10_scattering"),
    "leaves_scattering_pooled": lambda: pooled("leaves_scattering"),
    "ag_news": lambda: embeddings("ag_news", 4),
    "dbpedia": lambda: embeddings("dbpedia", 14),
}


@cache
def load(name: str) -> Data:
    """Return a dataset by its name in SOURCES."""
    return SOURCES[name]()
