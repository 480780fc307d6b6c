"""Settings shared by all tests."""

from hypothesis import settings

# The same examples on every run, and no wall-clock deadline: machines differ, results must not.
settings.register_profile("taut", deadline=None, derandomize=True)
settings.load_profile("taut")
