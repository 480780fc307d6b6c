"""The files of a run, by name."""

import pytest
from training.runs import plan

from taut.training import RunDirectory


def test_every_file_has_a_name_of_its_own():
    run = RunDirectory("runs/digits")
    kinds = [name for name, value in vars(RunDirectory).items() if isinstance(value, property)]
    files = [getattr(run, name) for name in kinds if name not in ("begun", "written")]
    assert len(set(files)) == len(files) == 12
    assert {path.parent for path in files} == {run.path}
    assert set(run.begun) < set(run.written) < set(files)
    assert run.private_losses not in run.written


def test_reads_the_plan_that_a_run_has(tmp_path):
    run = RunDirectory(str(tmp_path))
    with pytest.raises(ValueError, match="no run was begun"):
        run.read_plan()
    run.plan.write_text(plan().to_json())
    assert run.read_plan() == plan()
