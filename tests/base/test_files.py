"""Files that are reserved before anything is computed, or replaced as a whole."""

import os

import pytest

from taut._base.files import new_file, write_atomically


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


@pytest.mark.skipif(os.name != "posix", reason="permissions are those of POSIX")
@pytest.mark.parametrize("mode", [0o600, 0o664])
def test_a_file_that_is_replaced_keeps_its_permissions(tmp_path, mode):
    # What was for its owner's eyes alone could be read by everybody after it was written again.
    path = tmp_path / "state.json"
    path.write_text("old")
    path.chmod(mode)
    (tmp_path / "state.json.part").write_text("of a process that was killed")
    (tmp_path / "state.json.part").chmod(0o444)
    write_atomically(path, "new")
    assert path.read_text() == "new"
    assert path.stat().st_mode & 0o777 == mode
    assert [one.name for one in tmp_path.iterdir()] == ["state.json"]


def test_a_link_in_the_place_of_the_new_file_is_not_followed(tmp_path):
    (tmp_path / "mine").write_text("mine")
    (tmp_path / "state.json.part").symlink_to(tmp_path / "mine")
    write_atomically(tmp_path / "state.json", "new")
    assert (tmp_path / "mine").read_text() == "mine"
