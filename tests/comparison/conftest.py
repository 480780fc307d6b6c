"""Settings of the tests that train."""

import torch

# The tests run side by side; models this small are slower on several threads each.
torch.set_num_threads(1)
