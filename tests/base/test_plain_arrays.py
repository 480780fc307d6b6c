"""Files of arrays that somebody else wrote."""

import io
import os
import zipfile

import numpy as np
import pytest

from taut._base import plain_arrays as _plain_arrays
from taut._base.plain_arrays import read_arrays
from taut.training._clipping.subspace_files import read_subspaces


def header(shape, version=(1, 0)):
    content = io.BytesIO()
    kind = {"descr": "<f8", "fortran_order": False, "shape": shape}
    np.lib.format.write_array_header_1_0(content, kind)
    data = bytearray(content.getvalue())
    data[6:8] = bytes(version)
    return bytes(data)


def archive(path, compression=zipfile.ZIP_DEFLATED, **members):
    with zipfile.ZipFile(path, "w", compression) as file:
        for name, content in members.items():
            file.writestr(f"{name}.npy", content)
    return path


@pytest.mark.parametrize("save", [np.savez, np.savez_compressed])
def test_arrays_are_read(tmp_path, save):
    save(tmp_path / "a.npz", x=np.arange(3), y=np.eye(2))
    found = read_arrays(tmp_path / "a.npz")
    assert found["x"].tolist() == [0, 1, 2]
    assert found["y"].tolist() == [[1, 0], [0, 1]]


def test_an_archive_that_unfolds_beyond_memory_is_refused(tmp_path, monkeypatch):
    monkeypatch.setattr(_plain_arrays, "_memory", lambda: 10**6)
    zeros = header((10**6,)) + bytes(8 * 10**6)
    path = archive(tmp_path / "a.npz", x=zeros)
    assert path.stat().st_size < 10**5
    with pytest.raises(ValueError, match=r"unfolds to 0\.0 GB, and this machine"):
        read_arrays(path)


def test_an_array_that_claims_more_than_memory_is_refused(tmp_path):
    path = archive(tmp_path / "a.npz", x=header((10**9, 10**9)))
    with pytest.raises(ValueError, match="unfolds to"):
        read_arrays(path)


@pytest.mark.parametrize(
    "content", [b"", b"PK\x03\x04 and no more", b"\x93NUMPY", header((3,)), b"text"]
)
def test_other_files_are_refused(tmp_path, content):
    (tmp_path / "a.npz").write_bytes(content)
    with pytest.raises(ValueError, match="not a file of plain arrays"):
        read_arrays(tmp_path / "a.npz")


@pytest.mark.parametrize("members", [{"x": header((3,), version=(3, 0))}, {"x": header((3,))}])
def test_arrays_that_are_not_plain_or_cut_off_are_refused(tmp_path, members):
    with pytest.raises(ValueError, match="not a file of plain arrays"):
        read_arrays(archive(tmp_path / "a.npz", **members))


@pytest.mark.skipif(not hasattr(os, "mkfifo"), reason="pipes are those of POSIX")
@pytest.mark.parametrize("read", [read_arrays, read_subspaces])
def test_pipes_devices_and_folders_are_refused(tmp_path, read):
    os.mkfifo(tmp_path / "pipe")
    for path in (tmp_path / "pipe", "/dev/zero", tmp_path):
        with pytest.raises(ValueError, match="is not a regular file"):
            read(path)


def test_subspaces_take_no_more_memory_than_disk(tmp_path):
    np.savez_compressed(
        tmp_path / "a.npz", basis=np.eye(3, 2), ranks=np.array([2, 1]),
        singular_values=np.ones(2), provenance=np.array("public"),
    )  # fmt: skip
    with pytest.raises(ValueError, match="is compressed"):
        read_subspaces(tmp_path / "a.npz")
