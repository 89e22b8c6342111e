"""The PyO3 extension: the node, and Arrow encoding for producers. Stubs are checked against the binary."""

from collections.abc import Sequence
from typing import Any, Self, final

from typing_extensions import Buffer

__all__ = ["Encoder", "Node", "RecordReader", "crc32c", "crc32c_seal", "fsck", "schema_message"]

# ---- server side ------------------------------------------------------------------------------------

@final
class Node:
    """One data-plane node: opens a store, serves sockets on native threads, obeys orders.

    Every method releases the GIL. Orders return at once with their number; the outcome comes through `poll`.
    """

    def __new__(
        cls,
        *,
        data: str,  # directory of the store's segment files (created if absent)
        cluster: bytes,  # 16 bytes
        history: bytes,  # 16 bytes
        store: bytes,  # 16 bytes
        node: int,  # node id
        shards: int = 1,
        budget_bytes: int = 536_870_912,
        segment_bytes: int = 268_435_456,
        message_bytes: int = 67_108_864,
        connections_max: int = 4096,
        transport: str = "native",  # "native" | "libzmq"
        direct: bool = True,  # O_DIRECT where the file system allows it
        reserve_bytes: int = 67_108_864,  # disk space kept for control records
        producers_max: int = 65_536,  # dedupe entries a partition
        producer_expiry_ms: int = 604_800_000,
        faults: str | None = None,  # a fault plan for tests; None in production
    ) -> Self: ...
    def recover(self) -> dict[str, Any]:
        """Open the store.

        Returns {files, bytes, records, seconds, cut_bytes, partitions: [as of `partitions`]}.

        Raises: StoreLockedError, NewerFormatError, StoreIdentityError, StorageError.
        """
    def listen(self, addresses: Sequence[str]) -> list[str]:
        """Bind, start the threads, return the addresses with their real ports."""
    def fileno(self) -> int:
        """An eventfd, readable while outcomes wait."""
    def poll(self, limit: int = 256) -> list[tuple[Any, ...]]:
        """Take waiting outcomes, oldest first; never blocks.

        They have these shapes:

        ("request", connection: int, header: bytes, body: bytes)   a request the control plane must answer
        ("order", number: int, error: str | None, result: dict)     an order ended
        ("quarantined", topic: int, partition: int, why: str)
        ("shard_failed", shard: int, why: str)
        ("disk_full", shard: int, full: bool)
        """
    def answer(self, connection: int, header: bytes, body: bytes) -> None:
        """Send an answer; a closed connection is not an error. `header` is a sealed answer header."""
    def set_ready(self, body: bytes) -> None:
        """Body of READY (MessagePack)."""
    # orders: each returns the order's number
    def install_topic(
        self,
        topic: int,
        schemas: Sequence[bytes],
        key_columns: Sequence[int],
        retention_bytes: int,
        retention_ms: int,
    ) -> int:
        """Schemas as Arrow IPC schema messages by schema id; key columns as indexes of top-level fields."""
    def install_table(
        self,
        topic: int,
        generation: int,
        version: int,
        table: bytes,
        partitions: Sequence[tuple[int, int, int, int, int]],
        redirect: bytes,
    ) -> int:
        """Routing of one topic: (partition, lo, hi, owner node, owner epoch) of every ACTIVE partition.

        `table` is the body of a TABLE answer, `redirect` of a REDIRECT. Older generations are ignored.
        Changes are pushed to the connections that asked for the table.
        """
    def remove_topic(self, topic: int) -> int: ...
    def open(self, topic: int, partition: int, lo: int, hi: int, epoch: int) -> int:
        """Host under a new owner epoch: an epoch record becomes durable, then appends are admitted."""
    def fence(self, topic: int, partition: int, epoch: int) -> int: ...
    def close(self, topic: int, partition: int) -> int: ...
    def drop(self, topic: int, partition: int) -> int:
        """Forget the partition and give its space back: only for one whose topic a command deleted."""
    def truncate(self, topic: int, partition: int, before_offset: int) -> int:
        """Move the log start up to `before_offset`; u64 max means up to the mark."""
    def open_producer(
        self, topic: int, partition: int, producer_id: int, producer_epoch: int, name: bytes
    ) -> int:
        """Append a producer record. Result: {sequence, send, note, offset, rows} of the one before or {}."""
    def release_quarantine(self, topic: int, partition: int) -> int: ...
    def counters(self) -> dict[str, int]: ...
    def partitions(self) -> list[dict[str, Any]]: ...
    def stop(self, timeout_s: float) -> None:
        """Refuse new requests, finish groups under way, close sockets and files, join the threads."""

def fsck(data: str) -> dict[str, Any]:
    """Check every record of a stopped store, changing nothing.

    Returns {files, bytes, records, cut_bytes, partitions: [...], damage: [{file, position, record_number,
    topic, partition, why}]}. Raises as `Node.recover` does.
    """

# ---- producer side ----------------------------------------------------------------------------------

@final
class Encoder:
    """Rows of a batch, gathered by partition, straight into publish bodies (Arrow IPC messages)."""

    def __new__(cls, schema: Buffer) -> Self:
        """The topic's schema as an Arrow IPC schema message."""
    def gather(self, batch: object, order: Any, bounds: Any, reserve: int = 0) -> list[bytearray]:
        """One body per partition: `reserve` zeros (the extension), then the message; empty without rows.

        Args:
            batch: anything with `__arrow_c_array__`; columns are matched by name, cast only where lossless.
            order: uint32, shape (rows,): row numbers grouped by partition.
            bounds: uint32, shape (partitions + 1,): positions in `order`.
            reserve: bytes in front of each message, a multiple of 64.

        Raises:
            BatchError: it names the column and both types.
        """
    def whole(self, batch: object, start: int = 0, rows: int | None = None, reserve: int = 0) -> bytearray:
        """A slice of the batch without a gather."""

def schema_message(schema: object) -> bytes:
    """Anything with `__arrow_c_schema__` as an Arrow IPC schema message."""

def crc32c(data: Buffer, value: int = 0) -> int: ...
def crc32c_seal(header: bytearray) -> None:
    """Write magic, version and CRC of a request or answer header of 128 bytes in place."""

@final
class RecordReader:
    """Walks the records of a FETCH body and checks them: lengths, header CRC, body CRC."""

    def __new__(cls, body: Buffer) -> Self: ...
    def __iter__(self) -> RecordReader: ...
    def __next__(self) -> tuple[bytes, int, int]:
        """(header of 192 bytes, start of the body in the buffer, its length). RecordError on damage."""
