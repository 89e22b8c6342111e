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
# Spark's own options that reach a source too. Anything else unknown is a typing error.
SPARK_OWN = frozenset({"path", "checkpointlocation", "queryname", "__partition_columns"})
KNOWN = (
    "address",
    "topic",
    "tokenFile",
    "columns",
    "metadata",
    "filters",
    "start",
    "end",
    "rowsPerTask",
    "maxRowsPerTrigger",
    "maxBytesPerTrigger",
    "failOnDataLoss",
    "createTopic",
    "key",
    "partitions",
    "timeoutSeconds",
    "scope",
    "epoch",
)
_KNOWN_LOWER = frozenset(name.lower() for name in KNOWN)


class SourceOptions:
    """Options by name, whatever their case, checked when they are read. Picklable."""

    def __init__(self, given: Mapping[str, str]) -> None:
        """Raises InvalidArgumentError for an option that is not known: a misspelt one would be ignored."""
        self._given = {name.lower(): value for name, value in given.items()}
        unknown = sorted(set(self._given) - _KNOWN_LOWER - SPARK_OWN)
        if unknown:
            near = [get_close_matches(name, _KNOWN_LOWER, 1) for name in unknown]
            meant = [name for name in KNOWN if [name.lower()] in near]
            hint = f"; did you mean {', '.join(meant)}?" if meant else ""
            raise InvalidArgumentError(f"unknown options{hint}", options=unknown, known=list(KNOWN))

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
        name = self.text("topic") or self.text("path")
        if not name:
            raise InvalidArgumentError('which topic? .option("topic", NAME), or load(NAME), save(NAME)')
        return name

    def text(self, name: str) -> str | None:
        return self._given.get(name.lower()) or None

    def names(self, name: str) -> list[str]:
        """Column names, separated by commas."""
        return [part.strip() for part in (self.text(name) or "").split(",") if part.strip()]

    def flag(self, name: str, *, default: bool) -> bool:
        text = (self.text(name) or str(default)).lower()
        if text not in {"true", "false"}:
            raise InvalidArgumentError(f"{name} is true or false", given=text)
        return text == "true"

    def count(self, name: str, default: int | None) -> int | None:
        """A number of at least 1."""
        text = self.text(name)
        if text is None:
            return default
        try:
            value = int(text)
        except ValueError:
            value = 0
        if value < 1:
            raise InvalidArgumentError(f"{name} is a whole number of at least 1", given=text)
        return value

    @property
    def timeout_s(self) -> float:
        text = self.text("timeoutSeconds")
        try:
            value = TIMEOUT_S if text is None else float(text)
        except ValueError:
            value = 0.0
        if not value > 0:
            raise InvalidArgumentError("timeoutSeconds is a number above 0", given=text)
        return value
