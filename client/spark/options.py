"""The options of `.format("ringfence")`: names, defaults, bounds; docs/spark.md has the same table."""

from __future__ import annotations

from difflib import get_close_matches
from typing import TYPE_CHECKING

from ringfence.native.errors import InvalidArgumentError

if TYPE_CHECKING:
    from collections.abc import Mapping

ROWS_A_TASK = 1_000_000  # of TPC-H lineitem about 150 MB: a task of some seconds
PARTITIONS = 8  # of a topic that is created
TIMEOUT_S = 300.0  # a batch with its retries; a node may restart meanwhile
TIMEOUT_S_MAX = 86_400.0  # a day: a task that waits longer is forgotten, not patient
COUNT_MAX = 2**63 - 1  # Spark's largest number, and the largest epoch
# Spark's own options that reach a source too. Anything else unknown is a typing error.
SPARK_OWN = frozenset({"path", "checkpointlocation", "queryname", "__partition_columns"})
# What Spark adds for a table of its catalog, whose options it then does not hand over.
_OF_TABLES = frozenset({"owner", "provider"})
_OF_TABLE = "option."
NO_TABLES = (
    "Spark hands a Python source no option of such a table when it is read; a temporary view works (CREATE "
    "TEMPORARY VIEW ... USING ringfence OPTIONS (...)), and save() in place of saveAsTable()"
)
BATCH_READ, STREAM_READ = "batch read", "stream read"
BATCH_WRITE, STREAM_WRITE = "batch write", "stream write"
READ, WRITE = (BATCH_READ, STREAM_READ), (BATCH_WRITE, STREAM_WRITE)
# Each option with what it is of.
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
    "createTopic": WRITE,
    "key": WRITE,
    "partitions": WRITE,
    "timeoutSeconds": READ + WRITE,  # of writes; jobs that read and write give both the same ones
    "scope": (BATCH_WRITE,),
    "epoch": (BATCH_WRITE,),
}
_KNOWN_LOWER = frozenset(name.lower() for name in USES)
FLAGS = ("metadata", "filters", "failOnDataLoss", "createTopic")
COUNTS = ("rowsPerTask", "maxRowsPerTrigger", "maxBytesPerTrigger", "partitions", "epoch")
NAMES = ("columns", "key")


class SourceOptions:
    """Options by name, whatever their case, checked when they are read. Picklable."""

    def __init__(self, given: Mapping[str, str]) -> None:
        """Raises InvalidArgumentError for an option that is not known: a misspelt one would be ignored."""
        self._given = {name.lower(): value for name, value in given.items()}
        unknown = sorted(set(self._given) - _KNOWN_LOWER - SPARK_OWN)
        if unknown and any(name in _OF_TABLES or name.startswith(_OF_TABLE) for name in unknown):
            raise InvalidArgumentError(
                f"a topic is no table of Spark's catalog: {NO_TABLES}", options=unknown
            )
        if unknown:
            near = [get_close_matches(name, _KNOWN_LOWER, 1) for name in unknown]
            meant = [name for name in USES if [name.lower()] in near]
            hint = f"; did you mean {', '.join(meant)}?" if meant else ""
            raise InvalidArgumentError(f"unknown options{hint}", options=unknown, known=list(USES))

    def may_be(self, use: str) -> bool:
        """Whether no option is given that says it is another use; Spark itself does not tell `schema`."""
        return all(use in uses for name, uses in USES.items() if self.text(name))

    def check_use(self, use: str) -> None:
        """Every option at once, also those that are looked at only when something happens (failOnDataLoss).

        Raises:
            InvalidArgumentError: an option of another use of the source, which would be ignored, or a value
            that its option cannot have.
        """
        other = {name: list(uses) for name, uses in USES.items() if self.text(name) and use not in uses}
        if other:
            raise InvalidArgumentError(f"options that a {use} does not have: leave them out", options=other)
        for name in FLAGS:
            self.flag(name, default=False)
        for name in COUNTS:
            self.count(name, None)
        for name in NAMES:
            self.names(name)
        _ = self.timeout_s, self.topic

    @property
    def address(self) -> str | None:
        return self.text("address")

    @property
    def token_file(self) -> str | None:
        """A path on driver and workers; each process reads it when it connects. Tokens are no options: Spark
        shows those in plans and logs.
        """
        return self.text("tokenFile")

    @property
    def topic(self) -> str:
        """The topic's name: option `topic`, or what was given to `load` or `save`."""
        name, path = self.text("topic"), self.text("path")
        if name and path and name != path:
            raise InvalidArgumentError(
                "two topics: the option topic, and path, the argument of load, save or start; give one",
                topic=name,
                path=path,
            )
        found = name or path
        if not found:
            raise InvalidArgumentError(
                'which topic? .option("topic", NAME), or load(NAME), save(NAME); a table of the catalog: '
                f"{NO_TABLES}"
            )
        return found

    def text(self, name: str) -> str | None:
        return self._given.get(name.lower()) or None

    def names(self, name: str) -> list[str]:
        """Column names, separated by commas; none where the option is not given."""
        text = self.text(name)
        found = [part.strip() for part in (text or "").split(",") if part.strip()]
        if text and not found:
            raise InvalidArgumentError(f"{name} names no column", given=text)
        return found

    def flag(self, name: str, *, default: bool) -> bool:
        text = (self.text(name) or str(default)).lower()
        if text not in {"true", "false"}:
            raise InvalidArgumentError(f"{name} is true or false", given=text)
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
            raise InvalidArgumentError(f"{name} is a whole number of at least 1", given=text, max=COUNT_MAX)
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
    """Raises InvalidArgumentError unless it is above 0 and at most TIMEOUT_S_MAX."""
    if not 0 < seconds <= TIMEOUT_S_MAX:
        raise InvalidArgumentError(f"{name} is a number above 0, at most {TIMEOUT_S_MAX:.0f}", given=given)
    return seconds


def check_scope(scope: str | None, epoch: int | None) -> None:
    """Raises InvalidArgumentError for one without the other, and for epochs that are not from 1 on.

    Epoch 0 would count as committed before the first run: its rows would be passed over in silence.
    """
    if (scope is None) != (epoch is None):
        raise InvalidArgumentError("scope and epoch: both, or none", scope=scope, epoch=epoch)
    if epoch is not None and not 1 <= epoch <= COUNT_MAX:
        raise InvalidArgumentError(
            "epochs are whole numbers from 1 on; for foreachBatch: batch_id + 1", epoch=epoch, scope=scope
        )
