"""``taut doctor``: is this installation fit for use?"""

import typer

from taut.cli._page import NEGATIVE, print_json
from taut.cli._run_options import JsonOption


def doctor(*, json: JsonOption = False) -> None:
    """Check the installation, the generator, the hardware and a certified computation.

    Exit code 0 if everything that is installed works, 1 if something is broken.

    Example: taut doctor
    """
    from taut.cli._checks import run_checks, versions

    checks = list(run_checks())
    broken = [check for check in checks if check.status == "broken"]
    if json:
        print_json(
            {"ok": not broken, "versions": versions(), "checks": [vars(check) for check in checks]}
        )
    else:
        from rich.console import Console
        from rich.table import Table

        table = Table.grid(padding=(0, 2))
        for check in checks:
            table.add_row(check.status, check.name, check.detail)
        console = Console(highlight=False, markup=False, emoji=False)
        console.print(table)
        names = ", ".join(check.name for check in broken)
        version = versions()["taut"]
        console.print(f"taut {version}: " + (f"broken: {names}" if broken else "all is well"))
    if broken:
        raise typer.Exit(NEGATIVE)
