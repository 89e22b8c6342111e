"""Define the exit codes and map errors to them.

The codes are part of the interface: scripts depend on them, and their meanings never change.
"""

from __future__ import annotations

import errno
import os
from collections.abc import Iterator
from contextlib import contextmanager
from enum import IntEnum
from pathlib import Path

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
    Exit.USAGE: "wrong arguments, an unknown or invalid setting, or an unreadable file",
    Exit.REFUSED: "the node refused; the same command will be refused again",
    Exit.UNREACHABLE: "no node answered, or the node cannot serve now; the same command may succeed later",
    Exit.UNKNOWN_OUTCOME: "rows may or may not be stored: the node failed before it answered, or Ctrl-C, "
    "SIGTERM or SIGHUP ended the command",
    Exit.DAMAGE: "a stored record is damaged",
    Exit.STORAGE: "the data directory cannot be used: locked, not readable or writable, from a newer "
    "program or another store, or of a node that was removed from its cluster",
    Exit.NODE_FAILED: "a running node failed; everything acknowledged is on disk",
    Exit.DEGRADED: "`status`: the node runs but is degraded, or a member of its cluster FAILED; "
    "`--wait`: the run ended and not all was moved; `fsck --cluster`: not all could be checked; `topic`: "
    "counts are missing because owners, or a majority of the nodes, do not answer",
    Exit.OUTPUT: "the output cannot be written: no space, no permission, or a disk error",
    Exit.PARTLY: "some of the rows are on disk, the rest are not: the same command would store them twice; "
    "also after Ctrl-C, SIGTERM or SIGHUP; with `--scope` either all rows are stored or none",
    Exit.INTERRUPTED: "interrupted by Ctrl-C, SIGTERM or SIGHUP, or the confirmation was declined",
}


def exit_code_of(error: BaseException) -> Exit:
    """Return the code of the first entry of `_CODES` whose class fits the error."""
    for kind, code in _CODES:
        if isinstance(error, kind):
            return code
    return Exit.DEFECT


class PartlyStoredError(errors.UnknownOutcomeError):
    """Some rows of a command are stored: the same command would store them twice."""


class CountsMissingError(Exception):
    """The counts on stdout are correct but incomplete: owners of partitions did not answer."""


class OutputFailedError(Exception):
    """The output of a command cannot be written."""


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
def storage_errors(root: Path, *, alone: bool = False) -> Iterator[None]:
    """Turn an OSError of a file below `root` into a StorageError; other errors pass.

    `alone`: the block writes only below `root`, so an error without a file name belongs to `root`, too.
    """
    try:
        yield
    except OSError as error:
        from ringfence.control.store.directory import WAYS_OUT, unusable_error  # noqa: PLC0415 - loads the store

        if error.filename is None:
            is_below_root = alone and error.errno in WAYS_OUT
        else:
            is_below_root = Path(str(error.filename)).is_relative_to(root)
        if not is_below_root:
            raise
        raise unusable_error(root, error) from error


OUTPUT_WAYS_OUT = {
    errno.EACCES: "choose a path that you may write to",
    errno.EPERM: "choose a path that you may write to",
    errno.EROFS: "choose a path on a writable file system",
    errno.EISDIR: "the path is a directory: name a file",
    errno.ENOSPC: "free some space, or choose another path",
    errno.EDQUOT: "free some space, or choose another path",
}


@contextmanager
def output_errors(where: str) -> Iterator[None]:
    """Turn an OSError into OutputFailedError. The block must contain only calls on files of the output."""
    try:
        yield
    except BrokenPipeError:
        raise  # the reader of the pipe has closed it
    except OSError as error:
        code = error.errno or 0
        # The texts of pyarrow's errors are longer than the system's message.
        reason = os.strerror(code) if code else str(error)
        file = "" if error.filename in {None, where} else f" ({error.filename})"
        way_out = OUTPUT_WAYS_OUT.get(code, "choose another path")
        raise OutputFailedError(f"the output {where} cannot be written: {reason}{file}; {way_out}") from error


def exit_code_table() -> str:
    """Return the codes and their meanings as lines of help text."""
    return "\n".join(f"  {code.value:>3}  {meaning}" for code, meaning in MEANINGS.items())
