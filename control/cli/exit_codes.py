"""Exit codes: what a script can act on. They are part of the interface and never change their meaning."""

from __future__ import annotations

import errno
import os
import signal
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from enum import IntEnum
from pathlib import Path

from ringfence.control.store.directory import WAYS_OUT, unusable
from ringfence.native import errors


class Exit(IntEnum):
    OK = 0
    DEFECT = 1
    USAGE = 2
    REFUSED = 3
    UNREACHABLE = 4
    UNKNOWN_OUTCOME = 5
    DAMAGE = 6
    STORAGE = 7
    NODE_FAILED = 8
    DEGRADED = 9
    OUTPUT = 10
    PARTLY = 11
    INTERRUPTED = 130


MEANINGS: dict[Exit, str] = {
    Exit.OK: "done",
    Exit.DEFECT: "a defect of ringfence; --debug shows the traceback",
    Exit.USAGE: "wrong arguments, an unknown or unsound setting, or an unreadable file",
    Exit.REFUSED: "the node refused; the same command will be refused again",
    Exit.UNREACHABLE: "no node answered, or it cannot serve now; the same command may succeed later",
    Exit.UNKNOWN_OUTCOME: "rows may or may not be stored: the node went away before it answered, or Ctrl-C "
    "or SIGTERM came",
    Exit.DAMAGE: "a stored record is damaged",
    Exit.STORAGE: "the data directory cannot be used: locked, not readable or writable, of a newer program, "
    "of another store, or of a node that was removed from its cluster",
    Exit.NODE_FAILED: "a running node failed; everything acknowledged is on disk",
    Exit.DEGRADED: "`status`: the node runs, but not all is well, or a member of its cluster FAILED; "
    "`--wait`: over, but not all was moved; `fsck --cluster`: not all could be proven; `topic`: counts are "
    "missing, of owners that do not answer, or no majority answers",
    Exit.OUTPUT: "the output cannot be written: no space, no right to, or an error of its disk",
    Exit.PARTLY: "a part of the rows is on disk, the rest is not: the same command would store it twice; "
    "also after Ctrl-C or SIGTERM; with `--scope` nothing is stored in part",
    Exit.INTERRUPTED: "interrupted by Ctrl-C or SIGTERM, or a question answered with no",
}


def exit_of(error: BaseException) -> Exit:
    """The code for an error; the first class of the list that fits."""
    for kind, code in _CODES:
        if isinstance(error, kind):
            return code
    return Exit.DEFECT


class PartlyStoredError(errors.UnknownOutcomeError):
    """What would be worth another try, but for the rows that are stored: look before sending again."""


class CountsMissingError(Exception):
    """What was shown is right, and not all: owners of partitions told nothing."""


class OutputFailedError(Exception):
    """Where our output goes takes no more."""


_CODES: tuple[tuple[type[BaseException], Exit], ...] = (
    (KeyboardInterrupt, Exit.INTERRUPTED),
    (PartlyStoredError, Exit.PARTLY),
    (OutputFailedError, Exit.OUTPUT),
    (CountsMissingError, Exit.DEGRADED),
    (errors.ConfigError, Exit.USAGE),
    (errors.UnknownOutcomeError, Exit.UNKNOWN_OUTCOME),
    (errors.WaitTimeoutError, Exit.UNKNOWN_OUTCOME),
    (errors.RecordError, Exit.DAMAGE),
    (errors.StorageError, Exit.STORAGE),
    (errors.RefusedError, Exit.REFUSED),
    (errors.RetriableError, Exit.UNREACHABLE),
    (errors.RerouteError, Exit.UNREACHABLE),
)


@contextmanager
def data_directory(root: Path, *, alone: bool = False) -> Iterator[None]:
    """What its files refuse is a StorageError: neither a defect of ours nor the output's fault.

    `alone`: nothing else is written meanwhile, so that an error that names no file is one of `root`, too.
    """
    try:
        yield
    except OSError as error:
        if error.filename is None:
            ours = alone and error.errno in WAYS_OUT
        else:
            ours = Path(str(error.filename)).is_relative_to(root)
        if not ours:
            raise
        raise unusable(root, error) from error


OUTPUT_WAYS_OUT = {
    errno.EACCES: "name a place that you may write to",
    errno.EPERM: "name a place that you may write to",
    errno.EROFS: "name a place that can be written",
    errno.EISDIR: "it is a folder: name a file",
    errno.ENOSPC: "free some, or name another place",
    errno.EDQUOT: "free some, or name another place",
}


@contextmanager
def output_at(where: str) -> Iterator[None]:
    """What the files of an output refuse is its fault; nothing but their calls belongs in here."""
    try:
        yield
    except BrokenPipeError:
        raise  # who reads a pipe has enough
    except OSError as error:
        code = error.errno or 0
        # pyarrow's errors have its own words around the system's.
        why = os.strerror(code) if code else str(error)
        at = "" if error.filename in {None, where} else f" ({error.filename})"
        way_out = OUTPUT_WAYS_OUT.get(code, "name another place")
        raise OutputFailedError(f"the output {where} cannot be written: {why}{at}; {way_out}") from error


@contextmanager
def ended_in_order() -> Iterator[None]:
    """SIGTERM ends what is done meanwhile as Ctrl-C does: files are whole or gone, what is stored is told."""
    is_main = threading.current_thread() is threading.main_thread()  # no other thread gets signals
    if not is_main or signal.getsignal(signal.SIGTERM) is not signal.SIG_DFL:
        yield
        return

    def interrupt(*_: object) -> None:
        raise KeyboardInterrupt

    before = signal.signal(signal.SIGTERM, interrupt)
    try:
        yield
    finally:
        signal.signal(signal.SIGTERM, before)


def table() -> str:
    """The codes as lines of help."""
    return "\n".join(f"  {code.value:>3}  {meaning}" for code, meaning in MEANINGS.items())
