"""The PyO3 extension: the node, its twin for simulators, and Arrow encoding for producers.

Stubs are checked against the binary.
"""

from collections.abc import Sequence
from typing import Any, Self, final

from typing_extensions import Buffer

__all__ = [
    "Encoder",
    "Node",
    "RecordReader",
    "SimDisk",
    "SimNode",
    "check_schema",
    "crc32c",
    "crc32c_seal",
    "fsck",
    "schema_message",
]

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
        scrub_bytes_per_s: int = 4_194_304,  # stored records read back in the background; 0 = none
        level: int = 1,  # the cluster's: what is written has the form that programs of this level read
        faults: str | None = None,  # a fault plan for tests; None in production
    ) -> Self: ...
    def recover(self) -> dict[str, Any]:
        """Open the store.

        Returns {files, bytes, records, seconds, cut_bytes, witness: [number], partitions: [as of
        `partitions`]}.

        Raises: StoreLockedError, NewerFormatError, StoreIdentityError, StorageError.
        """
    def listen(self, addresses: Sequence[str]) -> list[str]:
        """Bind, start the threads, return the addresses with their real ports."""
    def fileno(self) -> int:
        """An eventfd, readable while outcomes wait."""
    def poll(self, limit: int = 256) -> list[tuple[Any, ...]]:
        """Take waiting outcomes, oldest first; never blocks.

        They have these shapes:

        ("request", connection: int, header: bytes, body: bytes, prefix: str, who: str)   a request the
        control plane must answer, for topics whose full names begin with `prefix` only; `who` is the name of
        the token that the connection presented
        ("order", number: int, error: str | None, result: dict)     an order ended
        ("quarantined", topic: int, partition: int, why: str)
        ("damaged", topic: int, partition: int, records: int, why: str)   known now; 0: all put right;
        topic 0: nobody can tell whose
        ("lifted", topic: int, partition: int)                      a quarantine ended
        ("gave_up", {topic, partition, forced, record, records, rows})   a replica gives up what the choice of
        an owner without a majority, epoch `forced`, has given up: its log ends at `record`, 0: it is copied
        ("sync", {...})                                            as of `syncs`: a learner's copy has
        another state
        ("shard_failed", shard: int, why: str)
        ("disk_full", shard: int, full: bool)
        """
    def answer(self, connection: int, header: bytes, body: bytes) -> None:
        """Send an answer; a closed connection is not an error. `header` is a sealed answer header."""
    def producer_tables(self) -> list[tuple[int, int, int, int]]:
        """(topic, partition, records, hash) of each producer table that its log gives."""
    def set_applied(self, index: int) -> None:
        """The metadata is applied up to this index: producer epochs above it wait for their metadata."""
    def set_time(self, unix_ms: int) -> None:
        """The cluster's time, Unix ms: no record gets a time more than five minutes ahead of it."""
    def set_ready(self, body: bytes) -> None:
        """Body of READY (MessagePack)."""
    def set_access(
        self, is_asked: bool, grants: Sequence[tuple[str, bytes, int, int | None, str]], credential: str
    ) -> None:
        """Which tokens there are; open connections are judged anew. No order: it waits for no disk.

        `grants`: (name, SHA-256, bits of `wire.Right`, Unix ms at which it ends or None, prefix of topics).
        `credential` is what this node presents to other nodes; empty: nothing.
        """
    # orders: each returns the order's number
    def set_level(self, level: int) -> int:
        """The cluster's level was raised; a lower one changes nothing."""
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
        redirects: Sequence[tuple[int, bytes]] = (),
    ) -> int:
        """Routing of one topic: (partition, lo, hi, owner node, owner epoch) of every ACTIVE partition.

        `table` is the body of a TABLE answer, `redirects` by owner's node those of a REDIRECT, `redirect` the
        one where no owner is known. Older generations are ignored.
        Changes are pushed to the connections that asked for the table.
        """
    def remove_topic(self, topic: int) -> int: ...
    def open(
        self,
        topic: int,
        partition: int,
        lo: int,
        hi: int,
        epoch: int,
        replicas: Sequence[tuple[int, bytes]] = (),
        quorum: int = 1,
    ) -> int:
        """Host under a new owner epoch: its record becomes durable on `quorum` stores, then appends are
        admitted.

        `replicas`: (node, store) of the other replicas; the owner calls them at the addresses of `set_peer`.
        A majority of all must be there, else batches are refused `too_few_replicas`. Result: {records,
        end_offset}.
        """
    def follow(
        self, topic: int, partition: int, lo: int, hi: int, epoch: int, owner: int, forced: int = 0
    ) -> int:
        """Take the records of this epoch's owner, which calls. Ends at once.

        `forced`: the partition's newest epoch whose owner was chosen without a majority, 0 = none is known.
        Marked records of older epochs that the owner does not have are given up.
        """
    def set_peer(self, node: int, addresses: Sequence[str]) -> int:
        """Where another node's data plane is reached; numbers rather than names, which would be looked up."""
    def fence(self, topic: int, partition: int, epoch: int) -> int:
        """No append below `epoch`, durably on this store.

        Result: {epoch: of the last record, records, end_offset, chain, cut: a torn tail was lost here}.
        """
    def hold(self, topic: int, partition: int, epoch: int) -> int:
        """A fence that ends only when all that was appended is durable on the quorum.

        Result as of `fence`.
        """
    def sync_start(
        self,
        topic: int,
        partition: int,
        change: int,
        attempt: int,
        node: int,
        store: bytes,
        bytes_per_s: int = 0,  # 0 = not throttled; what is appended after the start never is
    ) -> int:
        """At the owner: bring another store to this log. It does not count for the quorum.

        Its states come as ("sync", {...}) outcomes and stand in `syncs`.
        """
    def sync_rate(self, change: int, bytes_per_s: int) -> int: ...
    def sync_stop(self, change: int) -> int: ...
    def receive_start(
        self,
        topic: int,
        partition: int,
        lo: int,
        hi: int,
        change: int,
        attempt: int,
        epoch: int,
        owner: int,
        forced: int = 0,
    ) -> int:
        """At the target: as `follow`; neither served nor counted before it is adopted."""
    def adopt(self, change: int, attempt: int) -> int: ...
    def discard(self, change: int, attempt: int) -> int:
        """Give up what was received and was not adopted, and its space."""
    def close(self, topic: int, partition: int) -> int: ...
    def drop(self, topic: int, partition: int) -> int:
        """Forget the partition and give its space back: only for one whose topic a command deleted."""
    def truncate(self, topic: int, partition: int, before_offset: int, epoch: int = 0) -> int:
        """Move the log start up to `before_offset`, as far as the mark is now and then as it moves.

        Rows of owner epochs above `epoch` stay; 0: none of them does. u64 max means up to the mark, once.
        """
    def open_producer(
        self,
        topic: int,
        partition: int,
        producer_id: int,
        producer_epoch: int,
        name: bytes,
        previous_epoch: int = 0,
    ) -> int:
        """Append a producer record. Result: {sequence, send, note, offset, rows} of the one before or {}.

        {full}, a sentence, and nothing is appended, where the producer tables have no room for a new one.

        With `previous_epoch` an earlier epoch was opened here: {forgotten: True}, and nothing is written, if
        the partition does not know the producer any more.
        """
    def doubt(self, partitions: Sequence[tuple[int, int]]) -> int:
        """These replicas, (topic, partition), may lack what they acknowledged, whether they are here or not.

        Fenced, each says so (`cut`) until it has everything below the mark of an owner.
        """
    def doubted(self) -> list[tuple[int, int]]:
        """(topic, partition) of all replicas that may lack what they acknowledged."""
    def log_ends(self) -> bytes:
        """How far each partition's log is known to reach, for `lacking` at a later start.

        What the engine told when it was stopped stays. Raises: ClosedError.
        """
    def lacking(self, entries: bytes) -> list[tuple[int, int]]:
        """(topic, partition) of those whose log is short of these entries, or is not here.

        Before anything is ordered; the entries are known from then on. Raises: ClosedError.
        """
    def write_witness(self, numbers: Sequence[int], doubted: Sequence[tuple[int, int]]) -> None:
        """Replace the numbers and the list of doubted replicas beside the log, durably; no order.

        Raises: StorageError: those before are still there.
        """
    def release_quarantine(self, topic: int, partition: int) -> int: ...
    def install_scopes(
        self, rules: Sequence[tuple[int, int, int, int, Sequence[int]]], gone: int | None = None
    ) -> int:
        """Who may stage: (scope, driver, committed epoch, expired epoch, epochs that await their publish).

        With `gone` these are all scopes there are, and others up to that id were forgotten.
        """
    def publish(
        self,
        topic: int,
        partition: int,
        scope: int,
        epoch: int,
        tokens: bytes,
        rows: int,
        upto: int = 0,
        after: int = 0,
    ) -> int:
        """Give a commit's staged rows their offsets; done when they may be read. Repeating it does no harm.

        `tokens`: 16 bytes each. `rows`: what their writers staged in this partition, in records below `upto`;
        0: in all. `after`: the scope's epoch that is published in this partition before this one; 0: none.
        """
    def count_staged(self, topic: int, partition: int, scope: int, epoch: int, tokens: bytes) -> int:
        """What is staged durably under these tokens, for a commit that is not decided yet.

        -> {rows, upto, epoch, is_published}: the rows, all in records below `upto`, at the owner of `epoch`;
        or this epoch of the scope was published here before.
        """
    def counters(self) -> dict[str, int]: ...
    def partitions(self) -> list[dict[str, Any]]:
        """Every partition on disk or hosted; one that is dropped until that is on disk, too.

        {topic, partition, lo, hi, open, owner_epoch, fence, records, durable: whether all of those are on
        disk, start_offset, end_offset, bytes, producers, chain, role, replicas, first_acknowledged_us,
        last_acknowledged_us, quarantined}; role is "none", "alone", "owner", "follower" or "learner";
        replicas are those that take an owner's records now, itself included; the times are of batches
        under this epoch, Unix us to the ms, 0 = never.
        """
    def syncs(self) -> list[dict[str, Any]]:
        """Every copy that this node's owners make to other stores.

        {topic, partition, change, attempt, node, state, why, records, gap, bytes, rows, chain}: change 0 is a
        replica of the set; state is "waiting", "copying", "contiguous" or "failed"; `records` are durable
        there,
        `gap` are those that it lacks, bytes and rows were sent; chain is this log's, 0 while it is not level.
        """
    def stop(self, timeout_s: float) -> None:
        """Refuse new requests, finish groups under way, close sockets and files, join the threads."""

def fsck(data: str) -> dict[str, Any]:
    """Check every record of a stopped store, changing nothing.

    Returns {files, bytes, records, cut_bytes, partitions: [...], damage: [{file, position, record_number,
    topic, partition, why}]}. Raises as `Node.recover` does.
    """

# ---- simulation -------------------------------------------------------------------------------------

@final
class SimDisk:
    """One store's files in memory: writes tear, get lost or reordered at a crash, bytes rot, calls fail.

    What goes wrong is drawn from the seed: equal calls, equal fate. It outlives the crashes of its node.
    """

    def __new__(
        cls,
        seed: int,
        *,
        sync_errors_per_mille: int = 0,
        write_errors_per_mille: int = 0,
        read_errors_per_mille: int = 0,
        capacity_bytes: int | None = None,  # of all files together; None = endless
    ) -> Self: ...
    def set_faults(
        self,
        *,
        sync_errors_per_mille: int = 0,
        write_errors_per_mille: int = 0,
        read_errors_per_mille: int = 0,
        capacity_bytes: int | None = None,
    ) -> None:
        """What goes wrong from now on, all of it: what is left out is off."""
    def crash(self) -> None:
        """The power is cut and comes back: what was not synced is kept, torn or lost.

        Raises: StoreLockedError while a node has it open: crash that first.
        """
    def rot(self) -> tuple[str, int, int] | None:
        """Flip one bit of a synced byte in a segment: (file, position, mask). None if nothing is synced."""
    def fsck(self) -> dict[str, Any]:
        """As `fsck`."""
    def tally(self) -> dict[str, int]:
        """Totals: syncs, writes, reads, failures, sectors_dropped, crashes."""
    def files(self) -> list[tuple[str, int]]:
        """(name, length in bytes), by name."""
    def content(self, name: str) -> bytes: ...
    def copy(self) -> SimDisk:
        """An independent disk with the same content and the same fate."""

@final
class SimNode:
    """The engine and the log of `Node`, stepped: no threads, sockets, files or clocks.

    Whoever drives it says what happens next; nothing happens between calls. Orders, `poll`, `answer`,
    `set_ready`, `counters`, `partitions` are those of `Node`. Use it on one thread. Equal calls give equal
    results.

        node.recover(unix_ms, mono_ms)
        node.connect(1); node.request(1, header, body)     one event each
        shards, tickets = node.turn()                       idle writers got their next group
        node.run_job(shard); node.run_read(ticket)          in any order, at any time
        node.take_answers()
        node.crash(); disk.crash()                          the process dies; the power too
    """

    def __new__(
        cls,
        disk: SimDisk,
        *,
        cluster: bytes,
        history: bytes,
        store: bytes,
        node: int,
        shards: int = 1,
        budget_bytes: int = 4_194_304,  # at least 2 MiB, and 1 MiB for each shard
        segment_bytes: int = 262_144,  # at least 32 KiB
        message_bytes: int = 1_048_576,
        reserve_bytes: int = 65_536,
        producers_max: int = 65_536,
        producer_expiry_ms: int = 604_800_000,
        scrub_bytes_per_s: int = 0,
        level: int = 1,
    ) -> Self: ...
    def recover(self, unix_ms: int, mono_ms: int, calls: int | None = None) -> dict[str, Any]:
        """Open the store, as `Node.recover`; also after `crash`. With `calls` the power goes in the middle.

        Raises: as `Node.recover`; then the node does not run and may be started again.
        """
    @property
    def running(self) -> bool: ...
    def crash(self) -> None:
        """The process is killed: everything volatile is gone. What it wrote stays with the disk."""
    def clock(self, unix_ms: int, mono_ms: int) -> None:
        """What its clocks show from now on."""
    def tick(self, unix_ms: int, mono_ms: int) -> None:
        """Set the clocks and tell the engine, as the runtime does every 20 ms."""
    def connect(self, connection: int) -> None:
        """A client's connection is open. `connection` is the caller's, new each time."""
    def disconnect(self, connection: int) -> None:
        """It is closed: answers on their way to it are gone."""
    def request(self, connection: int, header: bytes, body: bytes) -> bool:
        """One request has arrived. False: no block is free, the socket is not read now; give it again later.

        Raises: ClosedError: the connection is not open, or the transport would close it for the body's size.
        """
    def take_answers(self) -> list[tuple[int, bytes, bytes]]:
        """(connection, header, body) of answers and pushes since the last call, oldest first."""
    def take_peer_messages(self) -> list[tuple[str, int, bytes, bytes]]:
        """What it wants done about other nodes, oldest first.

        ("connect", node, address, b"")   answer with `peer_opened` or `peer_closed`
        ("send", node, header, body)      a request: give it to that node's `request`, over a connection there
        ("close", node, b"", b"")         answer with `peer_closed`
        """
    def peer_opened(self, node: int) -> None:
        """The connection to that node stands."""
    def peer_closed(self, node: int) -> None:
        """It is gone or was never made; what is on its way there is lost."""
    def peer_message(self, node: int, header: bytes, body: bytes) -> None:
        """An answer of that node: what its `take_answers` gave for the connection."""
    def turn(self) -> tuple[list[int], list[int]]:
        """The end of a round of the engine's loop: idle writers get their next group. Then as `jobs`.

        Call it behind every event, or behind several that came together, and at `wakes_at`.
        """
    def wakes_at(self) -> int | None:
        """When `turn` wants to be called although nothing happened: Unix ms."""
    def jobs(self) -> tuple[list[int], list[int]]:
        """Shards with a job for their writer, and tickets of reads; both ascending."""
    def run_job(self, shard: int, calls: int | None = None) -> None:
        """The writer does its job: the group is written and synced, the engine hears of it.

        With `calls` the power goes after so many calls to the disk (6 end most jobs). The engine never hears
        of what was done, and `crash` of node and disk must follow.
        """
    def run_read(self, ticket: int) -> None:
        """The reader does its read, the engine hears of it."""
    def check(self) -> None:
        """Invariants of engine and log between any two calls. Raises AssertionError with the broken one."""
    def state_hash(self) -> int:
        """A number of everything that an append or an order may change (I15)."""
    def listen(self, addresses: Sequence[str]) -> list[str]:
        """The same addresses: there are no sockets."""
    def fileno(self) -> int:
        """No descriptor, but a number of its own for each node id, for simulated loops."""
    @property
    def readable(self) -> bool:
        """True while outcomes wait: a real node's `fileno` would be readable."""
    def poll(self, limit: int = 256) -> list[tuple[Any, ...]]: ...
    def answer(self, connection: int, header: bytes, body: bytes) -> None: ...
    def set_applied(self, index: int) -> None: ...
    def set_time(self, unix_ms: int) -> None: ...
    def producer_tables(self) -> list[tuple[int, int, int, int]]:
        """(topic, partition, records, hash) of each producer table that its log gives."""
    def set_ready(self, body: bytes) -> None: ...
    def set_access(
        self, is_asked: bool, grants: Sequence[tuple[str, bytes, int, int | None, str]], credential: str
    ) -> None: ...
    def set_level(self, level: int) -> int: ...
    def install_topic(
        self,
        topic: int,
        schemas: Sequence[bytes],
        key_columns: Sequence[int],
        retention_bytes: int,
        retention_ms: int,
    ) -> int: ...
    def install_table(
        self,
        topic: int,
        generation: int,
        version: int,
        table: bytes,
        partitions: Sequence[tuple[int, int, int, int, int]],
        redirect: bytes,
        redirects: Sequence[tuple[int, bytes]] = (),
    ) -> int: ...
    def remove_topic(self, topic: int) -> int: ...
    def open(
        self,
        topic: int,
        partition: int,
        lo: int,
        hi: int,
        epoch: int,
        replicas: Sequence[tuple[int, bytes]] = (),
        quorum: int = 1,
    ) -> int: ...
    def follow(
        self, topic: int, partition: int, lo: int, hi: int, epoch: int, owner: int, forced: int = 0
    ) -> int: ...
    def set_peer(self, node: int, addresses: Sequence[str]) -> int: ...
    def fence(self, topic: int, partition: int, epoch: int) -> int: ...
    def hold(self, topic: int, partition: int, epoch: int) -> int: ...
    def sync_start(
        self,
        topic: int,
        partition: int,
        change: int,
        attempt: int,
        node: int,
        store: bytes,
        bytes_per_s: int = 0,  # 0 = not throttled; what is appended after the start never is
    ) -> int: ...
    def sync_rate(self, change: int, bytes_per_s: int) -> int: ...
    def sync_stop(self, change: int) -> int: ...
    def receive_start(
        self,
        topic: int,
        partition: int,
        lo: int,
        hi: int,
        change: int,
        attempt: int,
        epoch: int,
        owner: int,
        forced: int = 0,
    ) -> int: ...
    def adopt(self, change: int, attempt: int) -> int: ...
    def discard(self, change: int, attempt: int) -> int: ...
    def close(self, topic: int, partition: int) -> int: ...
    def drop(self, topic: int, partition: int) -> int: ...
    def truncate(self, topic: int, partition: int, before_offset: int, epoch: int = 0) -> int: ...
    def open_producer(
        self,
        topic: int,
        partition: int,
        producer_id: int,
        producer_epoch: int,
        name: bytes,
        previous_epoch: int = 0,
    ) -> int: ...
    def doubt(self, partitions: Sequence[tuple[int, int]]) -> int: ...
    def doubted(self) -> list[tuple[int, int]]: ...
    def log_ends(self) -> bytes: ...
    def lacking(self, entries: bytes) -> list[tuple[int, int]]: ...
    def write_witness(self, numbers: Sequence[int], doubted: Sequence[tuple[int, int]]) -> None: ...
    def release_quarantine(self, topic: int, partition: int) -> int: ...
    def install_scopes(
        self, rules: Sequence[tuple[int, int, int, int, Sequence[int]]], gone: int | None = None
    ) -> int: ...
    def publish(
        self,
        topic: int,
        partition: int,
        scope: int,
        epoch: int,
        tokens: bytes,
        rows: int,
        upto: int = 0,
        after: int = 0,
    ) -> int: ...
    def count_staged(self, topic: int, partition: int, scope: int, epoch: int, tokens: bytes) -> int: ...
    def counters(self) -> dict[str, int]: ...
    def partitions(self) -> list[dict[str, Any]]: ...
    def syncs(self) -> list[dict[str, Any]]: ...
    def stop(self, timeout_s: float) -> None:
        """As `Node.stop`: what is under way ends at once, whatever the time."""

# ---- producer side ----------------------------------------------------------------------------------

@final
class Encoder:
    """Rows of a batch, gathered by partition, straight into publish bodies (Arrow IPC messages)."""

    def __new__(cls, schema: Buffer) -> Self:
        """The topic's schema as an Arrow IPC schema message."""
    def gather(
        self, batch: object, order: Any, bounds: Any, extension: bytes | None = None
    ) -> list[tuple[bytearray, int]]:
        """One body per partition with its CRC-32C: the extension, then the message; empty without rows.

        Args:
            batch: anything with `__arrow_c_array__`; columns are matched by name, cast only where lossless.
            order: uint32, shape (rows,): row numbers grouped by partition.
            bounds: uint32, shape (partitions + 1,): positions in `order`.
            extension: stands in front of each message; its length is a multiple of 64.

        Raises:
            BatchError: it names the column and both types.
        """
    def whole(
        self, batch: object, start: int = 0, rows: int | None = None, extension: bytes | None = None
    ) -> tuple[bytearray, int]:
        """A slice of the batch without a gather."""

def check_schema(message: bytes, key_columns: Sequence[int]) -> None:
    """Can a node store rows of this Arrow IPC schema message, routed by these columns (places in the schema)?

    Raises:
        SchemaError: why not; it names the column.
    """

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
