"""Which files of a folder hold a history, in which format, and what the search says of each."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import Final

from tests.checker import jepsen, kv
from tests.checker.history import HistoryError, Operation
from tests.checker.models import Model, RegisterModel, StringsModel
from tests.checker.search import Outcome, Verdict, check

LOOK_LINES: Final = 10_000
"""Lines in which a log must show its first event; what comes before is chatter of its making."""
FILE_BYTES_MAX: Final = 1 << 30
"""A history is held in memory, at about ten times its size on disk."""


def histories(folder: Path) -> Iterator[Path]:
    """Files under `folder` that hold events, in the order of their names; `folder` may be one file."""
    paths = [folder] if folder.is_file() else sorted(path for path in folder.rglob("*") if path.is_file())
    for path in paths:
        if format_of(path) is not None:
            yield path


def format_of(path: Path) -> str | None:
    """`jepsen` or `kv`, told by the first event; None for a file without any."""
    with path.open(encoding="utf-8", errors="replace") as lines:
        for _, line in zip(range(LOOK_LINES), lines, strict=False):
            if jepsen.EVENT.match(line):
                return "jepsen"
            if kv.START.match(line):
                return "kv"
    return None


def read(path: Path) -> tuple[Model, list[Operation]]:
    """The history in a file, with the model it is of. HistoryError when it contradicts itself."""
    if path.stat().st_size > FILE_BYTES_MAX:
        raise HistoryError(f"{path.stat().st_size} bytes, above {FILE_BYTES_MAX}; split it by key")
    with path.open(encoding="utf-8", errors="replace") as lines:
        if format_of(path) == "kv":
            return StringsModel(), kv.parse(lines)
        return RegisterModel(), jepsen.parse(lines)


def judge(path: Path) -> Outcome:
    """UNDECIDED also for a history that contradicts itself."""
    try:
        model, operations = read(path)
        return check(model, operations)
    except HistoryError as error:
        return Outcome(Verdict.UNDECIDED, str(error))
