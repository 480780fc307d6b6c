"""Files of strangers: never run, never without end, and refused in words."""

import json
import math
import os
import time

import pytest

from taut.audit import check_settings

RUN = {"noise_multiplier": 1.0, "max_grad_norm": 1.0}
REST = {"batch_size": 10, "examples": 100, "epochs": 1, "delta": 1e-5}


@pytest.fixture
def written(tmp_path):
    def write(content, name):
        path = tmp_path / name
        path.write_bytes(content if isinstance(content, bytes) else content.encode())
        return path

    return write


@pytest.mark.parametrize(
    ("name", "content", "words"),
    [
        ("a.json", b"\xff\xfe{}", "not a text in UTF-8"),
        ("a.json", b'{"a": "\x00"}', "NUL bytes"),
        ("a.json", "[" * 100_000, "nested too deeply"),
        ("a.json", '{"a":' * 60 + "1" + "}" * 60, "more than 40 deep"),
        ("a.json", "{", "not valid JSON"),
        ("a.json", "3", "no table of settings"),
        ("a.json", "{}", "no privacy settings that are known.* by hand.* are for taut verify"),
        ("a.json", "[" + "[],".join([""] * 60_000) + "[]]", "more than 50000 tables"),
        ("a.toml", "a = [" * 50_000, "TOML"),
        ("a.toml", "a = ", "not valid TOML"),
        ("a.py", "(" * 5_000, "not Python|too deeply"),
        ("a.py", "x = " + "-" * 50_000 + "1", "too deeply"),
        ("a.py", "def f(:", "not Python"),
        ("a.py", "GaussianDpEvent(" * 90 + ")" * 90, "more than 40 deep"),
        ("a.yaml", "noise_multiplier: 1", "YAML is not read"),
        ("a.pt", "x", "files that are read are"),
        ("a.py", " " * (1 << 20) + "a = 1", "more than 1048576 bytes"),
        ("a.py", "x = 1", "no privacy settings that are known"),
        ("a.py", "GaussianDpEvent(1.0)\n" * 30, "30 settings, the most is 20"),
    ],
)
def test_what_is_no_file_of_settings_is_refused(written, name, content, words):
    with pytest.raises(ValueError, match=words):
        check_settings(written(content, name))


def test_folders_and_pipes_are_refused(tmp_path):
    with pytest.raises((OSError, ValueError)):
        check_settings(tmp_path)
    pipe = tmp_path / "pipe.json"
    os.mkfifo(pipe)
    with pytest.raises(ValueError, match="no regular file"):
        check_settings(pipe)
    with pytest.raises(FileNotFoundError):
        check_settings(tmp_path / "nothing.json")


@pytest.mark.parametrize(
    "bad",
    [
        {"noise_multiplier": 1e308},
        {"noise_multiplier": float("nan")},
        {"noise_multiplier": float("inf")},
        {"noise_multiplier": -1.0},
        {"noise_multiplier": "1.0"},
        {"noise_multiplier": [1.0]},
        {"noise_multiplier": True},
        {"noise_multiplier": 10**400},
        {"batch_size": 1e308},
        {"batch_size": 0},
        {"batch_size": 2.5},
        {"examples": -3},
        {"epochs": 1e300},
        {"delta": 2.0},
        {"delta": -0.5},
    ],
)
def test_numbers_that_no_run_has_are_refused(written, bad):
    path = written(json.dumps(RUN | REST | bad), "a.json")
    with pytest.raises(ValueError, match="must be"):
        check_settings(path)


def test_steps_without_end_are_answered_soon(written):
    start = time.process_time()
    path = written(json.dumps(RUN | REST | {"epochs": 10**9}), "a.json")
    (setting,) = check_settings(path).settings
    lower, upper = setting.readings[0].bounds
    assert 0 <= lower <= upper
    assert time.process_time() - start < 20


def test_noise_for_steps_without_end_is_not_looked_for(written):
    table = {"target_epsilon": 3.0, "max_grad_norm": 1.0} | REST | {"epochs": 2**53 + 1}
    with pytest.raises(ValueError, match=r"steps must be at most 1e\+09 where noise is found"):
        check_settings(written(json.dumps(table), "a.json"))


def test_names_that_multiply_are_refused(written):
    lines = ["e0 = GaussianDpEvent(1.0)"]
    lines += [f"e{k + 1} = ComposedDpEvent([{', '.join([f'e{k}'] * 10)}])" for k in range(18)]
    start = time.process_time()
    with pytest.raises(ValueError, match=r"too often|events|settings"):
        check_settings(written("\n".join(lines), "a.py"))
    assert time.process_time() - start < 5


def test_arithmetic_takes_no_memory(written):
    path = written("s = 9 ** 9 ** 9\nmake_private(noise_multiplier=s, max_grad_norm=1)", "a.py")
    (setting,) = check_settings(path).settings
    assert any("9 ** 9 ** 9" in text for text in setting.missing)


@pytest.mark.parametrize(
    "event",
    [
        {"class_name": "GaussianDpEvent"},
        {"class_name": "GaussianDpEvent", "noise_multiplier": "x"},
        {"class_name": "SelfComposedDpEvent", "count": 2.5, "event": {"class_name": "NoOpDpEvent"}},
        {"class_name": "SelfComposedDpEvent", "count": 10, "event": 3},
        {"class_name": "SampledWithReplacementDpEvent", "sample_size": 1, "event": {}},
        {"class_name": "ComposedDpEvent", "events": 7},
        {"class_name": "LaplaceDpEvent", "noise_multiplier": 1e-300},
        {"class_name": "LaplaceDpEvent", "noise_multiplier": 1e-6},
        {"class_name": "PermuteAndFlipDpEvent", "epsilon": 1e6},
        {"class_name": "DiscreteLaplaceDpEvent", "noise_parameter": 1e4, "sensitivity": 9},
        {"class_name": "ZCDpEvent", "rho": "x"},
        {"class_name": "DiscreteGaussianDpEvent", "sigma": 1.0, "sensitivty": 10},
    ],
)
def test_events_that_are_malformed_are_refused(written, event):
    with pytest.raises(ValueError, match="json: "):
        check_settings(written(json.dumps(event), "a.json"), delta=1e-5)


def test_nothing_of_a_program_is_run(written, tmp_path):
    trace = tmp_path / "trace"
    code = f"open({str(trace)!r}, 'w')\nmake_private(noise_multiplier=open({str(trace)!r}, 'w'))"
    check_settings(written(code, "a.py"))
    assert not trace.exists()


def test_noise_that_is_nowhere_is_asked_for(written):
    (setting,) = check_settings(written("engine.make_private(**config)", "a.py")).settings
    assert "noise_multiplier: no noise, no promise; write it down in the file" in setting.missing
    assert any(text.endswith("--batch-size") for text in setting.missing)


def test_local_noise_of_no_sensitivity_hides_nothing(written):
    table = {"clipping_norm": 1, "sensitivity": 0, "epsilon": 0.5, "delta": 1e-5}
    (setting,) = check_settings(written(json.dumps(table), "a.json"), rounds=1).settings
    assert setting.readings[0].bounds == (math.inf, math.inf)
    assert not setting.passes


def test_words_in_the_place_of_counts_are_refused(written):
    code = "DPKerasConfig(1.0, 1e-5, 1.0, 10, 'x', train_steps=10, train_size=100)"
    with pytest.raises(ValueError, match="gradient_accumulation_steps must be a real number"):
        check_settings(written(code, "a.py"))


def test_values_that_are_added_are_checked(written):
    path = written(json.dumps(RUN | REST), "a.json")
    for bad in ({"delta": 1.0}, {"examples": 0}, {"epochs": -1}, {"steps": 1.5}):
        with pytest.raises(ValueError, match="must be"):
            check_settings(path, **bad)
