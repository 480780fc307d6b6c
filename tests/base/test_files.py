"""Files that are reserved before anything is computed."""

import pytest

from taut._base.files import new_file


def test_new_file_is_written(tmp_path):
    with new_file(tmp_path / "a.json") as write:
        write("text")
    assert (tmp_path / "a.json").read_text() == "text"


def test_file_that_exists_is_left_alone(tmp_path):
    path = tmp_path / "a.json"
    path.write_text("mine")
    with pytest.raises(FileExistsError, match=r"a\.json exists, and is not overwritten"):
        new_file(path).__enter__()
    assert path.read_text() == "mine"


def test_nothing_is_left_of_what_failed(tmp_path):
    def fail():
        with new_file(tmp_path / "a.json") as write:
            write("half")
            raise RuntimeError("stop")

    with pytest.raises(RuntimeError, match="stop"):
        fail()
    assert not list(tmp_path.iterdir())
