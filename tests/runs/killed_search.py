"""Runs ``taut tune`` and kills itself after some updates; run as a script, again and again.

Arguments: the file of the search, after how many updates of the weights to die.
"""

import os
import signal
import sys

import torch
from torch.optim.optimizer import register_optimizer_step_post_hook

from taut.cli._app import app


def main():
    path, left = sys.argv[1], int(sys.argv[2])
    torch.set_num_threads(1)

    def die_later(*_):
        nonlocal left
        left -= 1
        if left == 0:
            os.kill(os.getpid(), signal.SIGKILL)

    register_optimizer_step_post_hook(die_later)
    app(["tune", path, "--json"], prog_name="taut")


if __name__ == "__main__":
    main()
