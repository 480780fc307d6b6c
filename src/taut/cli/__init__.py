"""The ``taut`` command: thin pages over library functions.

Nothing heavy is imported before a command needs it, so that ``taut --help`` is instant.
"""

import sys

__all__ = ["main"]


def main() -> None:
    """Run the command line; without its extra installed, say how to install it."""
    try:
        from taut.cli._app import app
    except ModuleNotFoundError as error:
        if error.name not in ("typer", "rich"):
            raise
        sys.exit("The taut command needs an extra: pip install 'taut[cli]'")
    app(prog_name="taut")
