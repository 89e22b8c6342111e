"""The command `ringfence`.

START HERE: `program.main`. Each command is a module of its own and is imported when it is called, so that
`ringfence --help` loads neither Arrow nor the node. Exit codes stand in `exits`, output rules in `output`.
"""

from __future__ import annotations

import sys


def main() -> None:
    """Entry point of the console script; ends the process with a code of `exits`."""
    from ringfence.control.cli.program import run  # noqa: PLC0415 - after the package, so that it loads quickly

    sys.exit(run(sys.argv[1:]))
