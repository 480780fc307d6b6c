"""``python -m taut`` is the ``taut`` command."""

from taut.cli import main

if __name__ == "__main__":
    main()
