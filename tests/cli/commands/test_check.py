"""``taut check``."""

from pathlib import Path

import pytest

from taut.audit import check_settings

FILES = Path(__file__).parents[2] / "audit" / "settings" / "files"


@pytest.mark.parametrize(
    ("line", "code", "word"),
    [
        ("opacus_mnist.py.txt --examples 60000", 0, "certified"),
        ("opacus_mnist.py.txt", 1, "give it with --examples"),
        ("nvflare_client.json", 1, "no differential privacy"),
        ("flower_pyproject.toml --delta 1e-3", 1, "one client"),
        ("event.txt --delta 1e-5", 0, "1.829"),
    ],
)
def test_answer_and_exit_code(run, line, code, word):
    result = run(f"check {FILES}/{line}")
    assert result.exit_code == code, result.stderr
    assert word in " ".join(result.stdout.split())


def test_is_the_library_answer(run_json):
    path = FILES / "opacus_mnist.py.txt"
    assert run_json(f"check {path} --examples 60000") == (
        check_settings(path, examples=60_000).to_dict()
    )


def test_mistakes_are_explained(run, tmp_path):
    for name, text in {"a.json": "{", "b.json": "{}", "c.yaml": "a: 1"}.items():
        path = tmp_path / name
        path.write_text(text)
        result = run(f"check {path}")
        assert result.exit_code == 2
        assert result.stderr.startswith("Error: ")
    assert run(f"check {tmp_path}").exit_code == 2
    assert run(f"check {tmp_path}/nothing.json").exit_code == 2
    assert run(f"check {tmp_path}/a.json --timeout 0").exit_code == 2
