"""Parse the options of `.format("ringfence")`: names, defaults, bounds. docs/spark.md has the same table."""

from __future__ import annotations

from difflib import get_close_matches
from typing import TYPE_CHECKING

from ringfence.consumer.settings import LABEL
from ringfence.native.errors import InvalidArgumentError

if TYPE_CHECKING:
    from collections.abc import Mapping

# About 150 MB of TPC-H lineitem: a task of some seconds.
ROWS_A_TASK = 1_000_000
# Partitions of a topic that a write creates.
PARTITIONS = 8
# Seconds for one batch and its retries: long enough for a node to restart.
TIMEOUT_S = 300.0
# One day: a task that waits longer is taken for hung.
TIMEOUT_S_MAX = 86_400.0
# The largest long of Spark, and the largest epoch.
COUNT_MAX = 2**63 - 1
# Spark's own options that reach a source, too. Every other unknown option is a typing error.
SPARK_OPTIONS = frozenset({"path", "checkpointlocation", "queryname", "__partition_columns"})
# Options that Spark adds for a table of its catalog; the table's own options then do not reach the source.
_TABLE_OPTIONS = frozenset({"owner", "provider"})
_TABLE_OPTION_PREFIX = "option."
TABLE_WAY_OUT = (
    "Spark hands a Python source no option of such a table when it is read; a temporary view works (CREATE "
    "TEMPORARY VIEW ... USING ringfence OPTIONS (...)), and save() in place of saveAsTable()"
)
BATCH_READ, STREAM_READ = "batch read", "stream read"
BATCH_WRITE, STREAM_WRITE = "batch write", "stream write"
READ, WRITE = (BATCH_READ, STREAM_READ), (BATCH_WRITE, STREAM_WRITE)
# Each option, and the uses of the source that have it.
USES = {
    "address": READ + WRITE,
    "topic": READ + WRITE,
    "tokenFile": READ + WRITE,
    "columns": READ,
    "metadata": READ,
    "filters": (BATCH_READ,),
    "start": READ,
    "end": (BATCH_READ,),
    "rowsPerTask": READ,
    "maxRowsPerTrigger": (STREAM_READ,),
    "maxBytesPerTrigger": (STREAM_READ,),
    "failOnDataLoss": (STREAM_READ,),
    "cohort": (STREAM_READ,),
    "createTopic": WRITE,
    "key": WRITE,
    "partitions": WRITE,
    "timeoutSeconds": READ + WRITE,  # reads ignore it: jobs that read and write pass both the same options
    "scope": (BATCH_WRITE,),
    "epoch": (BATCH_WRITE,),
}
_NAMES_LOWER = frozenset(name.lower() for name in USES)
FLAGS = ("metadata", "filters", "failOnDataLoss", "createTopic")
COUNTS = ("rowsPerTask", "maxRowsPerTrigger", "maxBytesPerTrigger", "partitions", "epoch")
NAMES = ("columns", "key")


class SourceOptions:
    """Options by name, without regard to case; values are checked when they are read. Picklable."""

    def __init__(self, options: Mapping[str, str]) -> None:
        """Raises InvalidArgumentError for an unknown option: a misspelt option would be ignored."""
        self._values = {name.lower(): value for name, value in options.items()}
        unknown = sorted(set(self._values) - _NAMES_LOWER - SPARK_OPTIONS)
        if any(name in _TABLE_OPTIONS or name.startswith(_TABLE_OPTION_PREFIX) for name in unknown):
            raise InvalidArgumentError(
                f"a topic is not a table of Spark's catalog: {TABLE_WAY_OUT}", options=unknown
            )
        if unknown:
            near = [get_close_matches(name, _NAMES_LOWER, 1) for name in unknown]
            similar = [name for name in USES if [name.lower()] in near]
            hint = f"; did you mean {', '.join(similar)}?" if similar else ""
            raise InvalidArgumentError(f"unknown options{hint}", options=unknown, known=list(USES))

    def may_be(self, use: str) -> bool:
        """Whether every option belongs to this use; Spark does not pass the use to `schema`."""
        return all(use in uses for name, uses in USES.items() if self.text(name))

    def check_use(self, use: str) -> None:
        """Check all options now, also options that are needed only later (failOnDataLoss, for example).

        Raises:
            InvalidArgumentError: an option of another use of the source, which would be ignored, or an
                invalid value.
        """
        other = {name: list(uses) for name, uses in USES.items() if self.text(name) and use not in uses}
        if other:
            raise InvalidArgumentError(f"options that a {use} does not have; leave them out", options=other)
        for name in FLAGS:
            self.flag(name, default=False)
        for name in COUNTS:
            self.count(name, None)
        for name in NAMES:
            self.names(name)
        if use == STREAM_READ:
            check_cohort(self.text("cohort"))
        _ = self.timeout_s, self.topic

    @property
    def address(self) -> str | None:
        return self.text("address")

    @property
    def token_file(self) -> str | None:
        """A path on driver and workers; each process reads the file when it connects.

        The token itself is not an option: Spark shows options in plans and logs.
        """
        return self.text("tokenFile")

    @property
    def topic(self) -> str:
        """The topic's name: the option `topic`, or the argument of `load` or `save`."""
        name, path = self.text("topic"), self.text("path")
        if name and path and name != path:
            raise InvalidArgumentError(
                "two topics are named: by the option topic, and by path, the argument of load, save or "
                "start; name one",
                topic=name,
                path=path,
            )
        topic = name or path
        if not topic:
            raise InvalidArgumentError(
                'no topic is named; use .option("topic", NAME), load(NAME) or save(NAME). For a table of the '
                f"catalog: {TABLE_WAY_OUT}"
            )
        return topic

    def text(self, name: str) -> str | None:
        return self._values.get(name.lower()) or None

    def names(self, name: str) -> list[str]:
        """Column names, separated by commas; empty without the option."""
        text = self.text(name)
        names = [part.strip() for part in (text or "").split(",") if part.strip()]
        if text and not names:
            raise InvalidArgumentError(f"{name} names no column; separate names by commas", given=text)
        return names

    def flag(self, name: str, *, default: bool) -> bool:
        text = (self.text(name) or str(default)).lower()
        if text not in {"true", "false"}:
            raise InvalidArgumentError(f"{name} must be true or false", given=text)
        return text == "true"

    def count(self, name: str, default: int | None) -> int | None:
        """A number from 1 to COUNT_MAX."""
        text = self.text(name)
        if text is None:
            return default
        try:
            value = int(text)
        except ValueError:
            value = 0
        if not 1 <= value <= COUNT_MAX:
            raise InvalidArgumentError(
                f"{name} must be a whole number of at least 1", given=text, max=COUNT_MAX
            )
        return value

    @property
    def timeout_s(self) -> float:
        text = self.text("timeoutSeconds")
        try:
            value = TIMEOUT_S if text is None else float(text)
        except ValueError:
            value = 0.0
        return check_timeout("timeoutSeconds", value, text)


def check_timeout(name: str, seconds: float, given: object) -> float:
    """Raises InvalidArgumentError unless `seconds` are above 0 and at most TIMEOUT_S_MAX."""
    if not 0 < seconds <= TIMEOUT_S_MAX:
        raise InvalidArgumentError(
            f"{name} must be a number above 0, at most {TIMEOUT_S_MAX:.0f}", given=given
        )
    return seconds


def check_cohort(name: str | None) -> None:
    """Raises InvalidArgumentError unless this can be the name of a cohort."""
    if name is not None and not LABEL.fullmatch(name):
        raise InvalidArgumentError(
            "the option cohort must have 1 to 64 letters, digits, '_', '.' and '-', all ASCII", given=name
        )


def check_scope(scope: str | None, epoch: int | None) -> None:
    """Raises InvalidArgumentError for a scope without an epoch or the reverse, and for an epoch below 1.

    Epoch 0 would count as committed before the first run, which would silently write no rows.
    """
    if (scope is None) != (epoch is None):
        raise InvalidArgumentError("pass scope and epoch together, or neither", scope=scope, epoch=epoch)
    if epoch is not None and not 1 <= epoch <= COUNT_MAX:
        raise InvalidArgumentError(
            "epochs are whole numbers from 1 on; for foreachBatch: batch_id + 1", epoch=epoch, scope=scope
        )
