"""A folder with data, in which runs are configured."""

import pytest
import torch
from runs.configs import write_config, write_points

torch.set_num_threads(1)


@pytest.fixture
def folder(tmp_path):
    write_points(tmp_path)
    return tmp_path


@pytest.fixture
def configured(folder):
    """Write a configuration with changes to it, and return its path."""
    return lambda **changes: write_config(folder, **changes)
