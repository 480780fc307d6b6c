"""Settings shared by all tests."""

import os

from hypothesis import settings

# The same examples on every run, and no wall-clock deadline: machines differ, results must not.
settings.register_profile("quick", deadline=None, derandomize=True, max_examples=40)
settings.register_profile("thorough", deadline=None, derandomize=True, max_examples=100)
settings.load_profile(os.environ.get("HYPOTHESIS_PROFILE", "quick"))
