"""`python -m tests.consensus DIR`: a line for each script under DIR.

Exit 1 if one failed, 2 if there is none.
"""

from __future__ import annotations

import sys
from pathlib import Path

from tests.consensus.replay import replay, scripts_under


def main(arguments: list[str]) -> int:
    if len(arguments) != 1 or not Path(arguments[0]).is_dir():
        print("usage: python -m tests.consensus DIR", file=sys.stderr)
        return 2
    folder = Path(arguments[0])
    outcomes = [replay(path) for path in scripts_under(folder)]
    for outcome in outcomes:
        print(outcome.line(folder))
    failed = sum(not outcome.passed for outcome in outcomes)
    print(f"{len(outcomes)} files, {sum(o.cases for o in outcomes)} cases passed, {failed} files failed")
    return 2 if not outcomes else int(failed > 0)


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
