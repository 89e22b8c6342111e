"""`python -m tests.checker DIR`: one line `FILE ok` or `FILE violation` for each history under DIR.

FILE is the path below DIR. Exit code 0: every history was judged, whatever the verdicts. 2: at least one
could not be (its line is `FILE undecided`), or there is no history under DIR. Reasons go to standard error.
"""

from __future__ import annotations

import argparse
import sys
from pathlib import Path

from tests.checker.files import histories, judge
from tests.checker.search import Verdict


def main() -> int:
    parser = argparse.ArgumentParser(prog="python -m tests.checker", description=__doc__)
    parser.add_argument("folder", metavar="DIR", type=Path, help="a folder of histories, or one history")
    parser.add_argument("--why", action="store_true", help="say to standard error why a history is none")
    options = parser.parse_args()
    folder: Path = options.folder
    if not folder.exists():
        print(f"{folder}: there is no such folder", file=sys.stderr)
        return 2
    judged = undecided = 0
    for path in histories(folder):
        outcome = judge(path)
        judged += 1
        undecided += outcome.verdict is Verdict.UNDECIDED
        name = path.name if folder.is_file() else path.relative_to(folder)
        print(f"{name} {outcome.verdict.value}", flush=True)
        if outcome.verdict is Verdict.UNDECIDED or (options.why and outcome.why):
            print(f"{name}: {outcome.why}", file=sys.stderr)
    if judged == 0:
        print(f"{folder}: no file in it holds a history", file=sys.stderr)
    return 0 if judged and not undecided else 2


if __name__ == "__main__":
    sys.exit(main())
