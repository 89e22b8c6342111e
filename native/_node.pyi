"""Stubs of the PyO3 extension: the node, a stepped node for simulators, and Arrow encoding for producers.

stubtest compares them with the binary.
"""

from collections.abc import Sequence
from typing import Any, Self, TypeAlias, final

from typing_extensions import Buffer

__all__ = [
    "Encoder",
    "Node",
    "Order",
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

# A position of a commit: topic, partition, cohort, incarnation, session, hold, from, through, epoch of the
# scope, token, whether rows of the commit are not published.
_ConsumedPosition: TypeAlias = tuple[int, int, int, int, int, int, int, int, int, bytes, bool]

@final
class Order:
    """An order to a node, as a value. `Node.order` gives it; its outcome has the result, mostly {}."""

    @property
    def name(self) -> str:
        """The constructor's name."""
    @property
    def arguments(self) -> tuple[Any, ...]:
        """The constructor's arguments."""
    def __eq__(self, other: object, /) -> bool: ...
    @staticmethod
    def set_level(level: int) -> Order:
        """Raise the level of the cluster; a lower level changes nothing."""
    @staticmethod
    def install_topic(
        topic: int,
        schemas: Sequence[bytes],
        key_columns: Sequence[int],
        retention_bytes: int,
        retention_ms: int,
    ) -> Order:
        """Schemas as Arrow IPC schema messages by schema id; key columns as indexes of top-level fields."""
    @staticmethod
    def install_table(
        topic: int,
        generation: int,
        version: int,
        table: bytes,
        partitions: Sequence[tuple[int, int, int, int, int]],
        redirect: bytes,
        redirects: Sequence[tuple[int, bytes]] = (),
        sealed: Sequence[tuple[int, int, int, int, bytes]] = (),
        ancestors: Sequence[tuple[int, Sequence[int]]] = (),
    ) -> Order:
        """Routing of one topic: (partition, lo, hi, owner node, owner epoch) of every ACTIVE partition.

        `table` is the body of a TABLE answer, `redirects` has the bodies of REDIRECT by the owner's node, and
        `redirect` is the body of REDIRECT without an owner. Older generations are ignored. `sealed`:
        (partition, owner node, owner epoch, sealed version, body of REDIRECT with the children) of every
        SEALED one. `ancestors`: (partition, parents, those that were pruned among them), where there are any.
        Changes are pushed to the connections that have requested the table.
        """
    @staticmethod
    def remove_topic(topic: int) -> Order: ...
    @staticmethod
    def keep_rows(topic: int, partitions: Sequence[tuple[int, int]]) -> Order:
        """Leave the rows of these sealed partitions, whatever the topic's retention says, and no others'.

        `partitions`: (partition, UNIX time in ms at which that ends, if no order ends it before). It may come
        before the topic, and replaces what was told before.
        """
    @staticmethod
    def open(
        topic: int,
        partition: int,
        lo: int,
        hi: int,
        epoch: int,
        replicas: Sequence[tuple[int, bytes]] = (),
        quorum: int = 1,
    ) -> Order:
        """Own the partition under a new epoch. Appends are admitted once the epoch's record is on `quorum`
        stores.

        `replicas`: (node, store) of the other replicas; the owner connects to the addresses of `set_peer`.
        Without a majority of replicas, batches are refused `too_few_replicas`. Result: {records, end_offset}.
        """
    @staticmethod
    def follow(
        topic: int, partition: int, lo: int, hi: int, epoch: int, owner: int, forced: int = 0
    ) -> Order:
        """Accept the records of this epoch's owner, which connects. Returns immediately.

        `forced`: the partition's newest epoch whose owner was chosen without a majority; 0 = none is known.
        Records of older epochs below the mark that the owner does not have are removed.
        """
    @staticmethod
    def open_sealed(
        topic: int,
        partition: int,
        lo: int,
        hi: int,
        epoch: int,
        end: tuple[int, int, int, int, int, int, int, int],
        replicas: Sequence[tuple[int, bytes]] = (),
    ) -> Order:
        """Serve a sealed partition whose log ends exactly at `end`; nothing is appended to it.

        `end`: (epoch of the last record, records, offset, chain, number of the layout change, version that
        it made, Unix ms of its COMMIT, entry that lowered the end or 0). Result: {records, end_offset}. Fails
        if the log is shorter ("incomplete") or another one; a longer one is quarantined, or truncated where
        the end was lowered.
        """
    @staticmethod
    def follow_sealed(
        topic: int,
        partition: int,
        lo: int,
        hi: int,
        epoch: int,
        owner: int,
        end: tuple[int, int, int, int, int, int, int, int],
    ) -> Order:
        """As `follow`, for a sealed partition: no record beyond `end` is accepted."""
    @staticmethod
    def set_peer(node: int, addresses: Sequence[str]) -> Order:
        """Set the addresses of another node's data plane: numeric ones, because names need a lookup."""
    @staticmethod
    def fence(topic: int, partition: int, epoch: int) -> Order:
        """Refuse appends below `epoch`, durably on this store.

        Result: {epoch: of the last record, records, end_offset, chain, cut: a torn tail was lost here}.
        """
    @staticmethod
    def hold(topic: int, partition: int, epoch: int) -> Order:
        """A fence that ends only when all appended records are durable on the quorum.

        Result as from `fence`.
        """
    @staticmethod
    def await_records(topic: int, partition: int, records: int, timeout_ms: int) -> Order:
        """Wait until the log here has so many records, all durable; the order fails after `timeout_ms`.

        Result: as from `fence`, of the log's end.
        """
    @staticmethod
    def sync_start(
        topic: int,
        partition: int,
        change: int,
        attempt: int,
        node: int,
        store: bytes,
        bytes_per_s: int = 0,  # 0 = no limit; records appended after the start have no limit
    ) -> Order:
        """At the owner: copy this log to another store, which does not count for the quorum.

        The states of the copy are ("sync", {...}) outcomes and in `syncs`.
        """
    @staticmethod
    def sync_rate(change: int, bytes_per_s: int) -> Order: ...
    @staticmethod
    def sync_stop(change: int) -> Order: ...
    @staticmethod
    def receive_start(
        topic: int,
        partition: int,
        lo: int,
        hi: int,
        change: int,
        attempt: int,
        epoch: int,
        owner: int,
        forced: int = 0,
    ) -> Order:
        """At the target: like `follow`. The copy is not served and does not count before `adopt`."""
    @staticmethod
    def adopt(change: int, attempt: int) -> Order: ...
    @staticmethod
    def discard(change: int, attempt: int) -> Order:
        """Remove records that were received and not adopted, and free their space."""
    @staticmethod
    def close(topic: int, partition: int) -> Order: ...
    @staticmethod
    def drop(topic: int, partition: int) -> Order:
        """Remove the partition and free its space. Only for partitions whose topic a command has deleted."""
    @staticmethod
    def truncate(topic: int, partition: int, before_offset: int, epoch: int = 0) -> Order:
        """Move the log start up to `before_offset`: to the mark first, then further as the mark moves.

        Rows of owner epochs above `epoch` stay; 0: no rows stay for their epoch. u64 max: up to the current
        mark.
        """
    @staticmethod
    def open_producer(
        topic: int,
        partition: int,
        producer_id: int,
        producer_epoch: int,
        name: bytes,
        previous_epoch: int = 0,
    ) -> Order:
        """Append a producer record. Result: {sequence, send, note, offset, rows} of the previous one, or {}.

        Of a partition that layout changes made, the result may be {points}: (lo, hi, partition that stored
        it, sequence if that is this one, send, note, offset, rows) by slot range; slots without one have
        nothing of the producer.

        If the producer tables have no room for a new entry, the result is {full: a sentence}, and nothing is
        appended.

        With `previous_epoch` an earlier epoch was opened here. If the partition has no entry of the producer
        any more, the result is {forgotten: True}, and nothing is appended.
        """
    @staticmethod
    def doubt(partitions: Sequence[tuple[int, int]]) -> Order:
        """Mark replicas, (topic, partition), that may lack acknowledged records; they need not be here.

        `fence` of such a replica has `cut` until the replica has all records below the mark of an owner.
        """
    @staticmethod
    def release_quarantine(topic: int, partition: int) -> Order: ...
    @staticmethod
    def check_quarantine(topic: int, partition: int) -> Order:
        """Read every file of a quarantined partition again.

        The order ends with the quarantine if all files are sound, else with an error that names the damage.
        """
    @staticmethod
    def install_scopes(
        rules: Sequence[tuple[int, int, int, int, int, Sequence[int], Sequence[_ConsumedPosition]]],
        gone: int | None = None,
    ) -> Order:
        """Set the rules for staging: (scope, driver, committed epoch, expired epoch, cohort, epochs to be
        published, their positions that are not confirmed). `cohort`: whose members claim gates for the scope;
        0: of no cohort.

        With `gone` the list is complete: the cluster has removed all other scopes up to that id.
        """
    @staticmethod
    def publish(
        topic: int,
        partition: int,
        scope: int,
        epoch: int,
        tokens: bytes,
        rows: int,
        upto: int = 0,
        after: int = 0,
    ) -> Order:
        """Give the staged rows of a commit their offsets. Ends when they can be read; repeats are harmless.

        `tokens`: 16 bytes each. `rows`: number of rows staged in this partition, in records below `upto`;
        0: in all. `after`: the scope's epoch that is published in this partition before this one; 0: none.
        """
    @staticmethod
    def count_staged(topic: int, partition: int, scope: int, epoch: int, tokens: bytes) -> Order:
        """Count the durable staged rows under these tokens, for a commit that is not decided yet.

        -> {rows, upto, epoch, is_published}: the rows, all in records below `upto`, at the owner of `epoch`;
        or this epoch of the scope was published here before.
        """
    @staticmethod
    def table_out(
        topic: int, partition: int, lo: int, hi: int, since: int, after: int, bytes_max: int
    ) -> Order:
        """Make a page of the producer table for a child with slots `lo` to `hi`; change nothing.

        It has producers above the id `after` that record `since` or a later one changed. -> {page, records:
        what it is as of, forgotten_epoch, time_ms, last: its greatest id, more}.
        """
    @staticmethod
    def table_in(
        topic: int,
        partition: int,
        number: int,
        source: int,
        lo: int,
        hi: int,
        end: int,
        is_final: bool,
        page: bytes,
    ) -> Order:
        """Append a page of `source` to a child with slots `lo` to `hi` that is open under `number` here.

        Repeats are harmless. The last page is as of `end` records, and comes after `gates_in` if there are
        gates. An empty one: the source was pruned. -> {epoch, records, end_offset, chain, left_out}: the end
        of the log with it, which is on a quorum, and how many producers without a name had no room; or {full:
        a sentence} if the named ones have none, and nothing is appended.
        """
    @staticmethod
    def gates_out(
        topic: int, partition: int, number: int, records: int, partitions: Sequence[int] | None = None
    ) -> Order:
        """Give the gates of cohorts of a partition that is fenced at `number`, or sealed, with `records`.

        `partitions`: those whose gates are given, of all that the log has: the partition itself, and sealed
        ones. -> {gates, known: the metadata index up to which drained gates have left the log}; empty if the
        log knows of no cohort.
        """
    @staticmethod
    def gates_in(topic: int, partition: int, number: int, source: int, gates: bytes) -> Order:
        """Take the gates of `source` at the owner of its heir, which is open under `number`: one record."""
    @staticmethod
    def install_cohorts(
        index: int,
        cohorts: Sequence[tuple[int, int, int, int, int, int, int, int, Sequence[int]]],
        rules: Sequence[tuple[Any, ...]],
        gone: Sequence[tuple[int, int]],
        complete: Sequence[int],
    ) -> Order:
        """Install rules of gates as of a metadata index; an older one changes nothing.

        Raises: ValueError for an unknown mode or beginning.
        """
    @staticmethod
    def see_claim(scope: int, driver: int, position: _ConsumedPosition) -> Order:
        """Tell whether a gate is locked for this commit, which is not decided yet.

        -> {epoch, is_there}: the owner epoch of the log that has the gate.
        """
    @staticmethod
    def settle_committed(topic: int, partition: int, cohort: int, incarnation: int, through: int) -> Order:
        """Write a position of a commit whose rows are published. Ends when it is below the mark.

        Repeats are harmless. The rules of the scope must be installed.
        """
    @staticmethod
    def list_parked(topic: int, partition: int, cohort: int, after: int, count: int) -> Order:
        """List parked ranges of a queue in one partition, those with numbers above `after`; at most 1,024.

        -> {parked: (number, first, rows, count, reason, time_ms, scope, rows that are gone), more}.
        """
    @staticmethod
    def settle_parked(
        topic: int,
        partition: int,
        cohort: int,
        action: str,
        items: Sequence[tuple[int, int, str]],
        scope: int = 0,
        is_forced: bool = False,
    ) -> Order:
        """Retry, discard, begin or exported, of at most 1,024 parked ranges of one partition.

        `items`: (number, scope that the range was exported under, or 0, what became of that scope: open,
        committed, closed, unknown). `scope`: of begin and exported. Ends when the record is below the mark.
        -> {replies: (number, taken, gone, not_parked, not_begun, changing, exporting, unknown or exported)}.

        Raises: ValueError for an unknown word, or a scope with retry or discard, or none with the others.
        """
    @staticmethod
    def sources(topic: int, partition: int) -> Order:
        """Tell of which partitions the log has everything.

        -> {sources: (partition, record of its last page)}, also at a replica.
        """

@final
class Node:
    """One data-plane node: opens a store, serves sockets on native threads, executes orders.

    Every method releases the GIL. Orders return their number immediately; `poll` returns the outcome.
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
        level: int = 3,  # the cluster's level: records are written in a form that programs of this level read
        level_newest: int = 3,  # the newest level that the control plane knows; orders raise `level` to it
        faults: str | None = None,  # a fault plan for tests; None in production
    ) -> Self: ...
    def recover(self) -> dict[str, Any]:
        """Open the store.

        Returns {files, bytes, records, seconds, cut_bytes, witness: [number], partitions: [as from
        `partitions`]}.

        Raises: StoreLockedError, NewerFormatError, StoreIdentityError, StorageError.
        """
    def listen(self, addresses: Sequence[str]) -> list[str]:
        """Bind the sockets, start the threads, and return the addresses with their real ports."""
    def fileno(self) -> int:
        """An eventfd that is readable while outcomes are queued."""
    def poll(self, limit: int = 256) -> list[tuple[Any, ...]]:
        """Take queued outcomes, oldest first; never blocks.

        They have these shapes:

        ("request", connection: int, header: bytes, body: bytes, prefix: str, who: str, features: int)   a
        request that the control plane must answer, only for topics whose full names begin with `prefix`;
        `who` is the name of the token that the connection presented, `features` what its client can do
        ("order", number: int, error: str | None, result: dict)     an order has ended
        ("quarantined", topic: int, partition: int, why: str)
        ("damaged", topic: int, partition: int, records: int, why: str)   number of damaged records; 0: all
        are repaired; topic 0: their partition is unknown
        ("lifted", topic: int, partition: int)                      a quarantine has ended
        ("gave_up", {topic, partition, forced, record, records, rows})   a replica removes records that were
        lost when epoch `forced` began without a majority: its log ends at `record`; 0: it is copied again
        ("sync", {...})                                            as from `syncs`: the state of a learner's
        copy has changed
        ("shard_failed", shard: int, why: str)
        ("disk_full", shard: int, full: bool)
        """
    def answer(self, connection: int, header: bytes, body: bytes) -> None:
        """Send an answer; a closed connection is not an error. `header` is a sealed answer header."""
    def producer_tables(self) -> list[tuple[int, int, int, int]]:
        """(topic, partition, records, hash) of each producer table, as computed from the log."""
    def set_applied(self, index: int) -> None:
        """Set the index up to which metadata is applied; requests of later producer epochs wait for it."""
    def set_generation(self, index: int) -> None:
        """Set the index up to which every table that an entry changed is installed."""
    def set_controller(self, body: bytes) -> None:
        """Set what watches are told of the metadata's leader: a map (MessagePack), `Controller`."""
    def set_time_window(self, earliest_ms: int, latest_ms: int) -> None:
        """Set bounds for the times of records, Unix ms; they move on with the monotonic clock."""
    def set_ready(self, body: bytes) -> None:
        """Set the body of READY (MessagePack)."""
    def set_access(
        self, is_asked: bool, grants: Sequence[tuple[str, bytes, int, int | None, str]], credential: str
    ) -> None:
        """Replace the tokens, and check open connections again. Not an order: it does not wait for a disk.

        `grants`: (name, SHA-256, bits of `wire.Right`, expiry in Unix ms or None, prefix of topics).
        `credential`: the token that this node presents to other nodes; empty: none.
        """
    def set_members(self, key: bytes) -> None:
        """Set the key of proofs of members; b"" = nothing is proved. Attached members stay.

        Raises: ConfigError for another size than 32 bytes or none; ClosedError.
        """
    def order(self, order: Order) -> int:
        """Give an order; returns its number. An ("order", number, ...) outcome ends it."""
    def doubted(self) -> list[tuple[int, int]]:
        """(topic, partition) of all replicas that may lack acknowledged records."""
    def log_ends(self) -> bytes:
        """The known end of each partition's log, for `lacking` at a later start.

        After `stop` it returns the ends at that time. Raises: ClosedError.
        """
    def lacking(self, entries: bytes) -> list[tuple[int, int]]:
        """(topic, partition) of logs that end before these entries, or that are not here.

        Call it before the first order; the node keeps the entries. Raises: ClosedError.
        """
    def write_witness(self, numbers: Sequence[int], doubted: Sequence[tuple[int, int]]) -> None:
        """Replace the numbers and the list of doubted replicas beside the log, durably. Not an order.

        Raises: StorageError: the previous ones are unchanged.
        """
    def counters(self) -> dict[str, int]: ...
    def partitions(self) -> list[dict[str, Any]]:
        """Every partition on disk or hosted; a dropped partition until its drop is on disk.

        {topic, partition, lo, hi, open, owner_epoch, fence, records, durable: whether all records are on
        disk, start_offset, end_offset, bytes, producers, stages: batches that are staged and not published,
        chain, role, replicas, first_acknowledged_us, last_acknowledged_us, quarantined, sealed}; role is
        "none", "alone", "owner", "follower" or "learner";
        replicas are the ones that receive an owner's records now, itself included; the times are of batches
        under this epoch, in Unix us with a resolution of 1 ms, 0 = never. sealed is None, or {records,
        end_offset, number, version, reached: the log ends there, and a record on disk says so}. One that
        layout changes made has sources: (partition that it came from, record of its last page). An owner's
        ACTIVE partition that is busy for 10 s has sketch: rows by 1,024 equal parts of its slots, as unsigned
        32-bit integers in little endian.
        """
    def gates(self) -> list[tuple[int, int, int, int, int, bool, bool, int]]:
        """(topic, partition, cohort, incarnation, offset, is_settled, is_held, epoch) of gates that are open.

        `epoch`: the owner epoch under which their log is open here.
        """
    def forced_ends(self) -> list[tuple[int, int, int]]:
        """(scope, epoch, driver) of commits whose locks keep other members out, or are old."""
    def members(self) -> list[int]:
        """Sessions of members that are attached here and were heard lately, ascending."""
    def cohort_figures(self) -> list[dict[str, int]]:
        """{topic, partition, cohort, settled, end, lag_rows, holder, hold} of gates that are open here.

        Without `settled` and `lag_rows` where the cohort has not begun.
        """
    def partitions_of(self, places: Sequence[tuple[int, int]]) -> list[dict[str, Any]]:
        """Those of these (topic, partition) that `partitions` has, in this order, at their cost alone."""
    def adopted(self, topics: Sequence[int]) -> list[tuple[int, int]]:
        """(topic, lowest generation of its table that connections hold), of topics that connections follow.

        A connection that acknowledged none counts for 10 s after its first table.
        """
    def syncs(self) -> list[dict[str, Any]]:
        """Every copy that this node's owners make to other stores.

        {topic, partition, change, attempt, node, state, why, records, gap, bytes, rows, chain}: change 0 is a
        replica of the set; state is "waiting", "copying", "contiguous" or "failed"; `records` are durable at
        the other store, `gap` is the number of missing records, bytes and rows were sent; chain is the chain
        of this log, 0 until the other store has all records.
        """
    def stop(self, timeout_s: float) -> None:
        """Refuse new requests, finish groups in progress, close sockets and files, join the threads."""

def fsck(data: str) -> dict[str, Any]:
    """Check every record of a stopped store; change nothing.

    Returns {files, bytes, records, cut_bytes, partitions: [...], damage: [{file, position, record_number,
    topic, partition, why}]}. Each sound partition has `producers_hash`, `sealed` as in `Node.partitions`, and
    `sources`: (partition that it came from, record of its last page), and `cohorts_hash`: of what its log
    says of cohorts, None if nothing. Raises like `Node.recover`.
    """

# ---- simulation -------------------------------------------------------------------------------------

@final
class SimDisk:
    """Simulated disk of one store, in memory: a crash tears, loses or reorders writes, bytes rot, calls fail.

    The seed decides the faults, so equal calls give equal results. A crash of the node changes no disk.
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
        """Replace all fault rates; omitted ones are 0."""
    def crash(self) -> None:
        """Power failure: writes that were not synced stay, are torn or are lost.

        Raises: StoreLockedError while a node has the disk open: crash the node first.
        """
    def rot(self) -> tuple[str, int, int] | None:
        """Flip one bit of a synced byte in a segment: (file, position, mask). None if nothing is synced."""
    def fsck(self) -> dict[str, Any]:
        """Like `fsck`."""
    def tally(self) -> dict[str, int]:
        """Totals: syncs, writes, reads, failures, sectors_dropped, crashes."""
    def files(self) -> list[tuple[str, int]]:
        """(name, length in bytes), by name."""
    def content(self, name: str) -> bytes: ...
    def copy(self) -> SimDisk:
        """An independent disk with the same content and the same faults."""

@final
class SimNode:
    """The engine and the log of `Node`, stepped by the caller: no threads, sockets, files or clocks.

    Nothing happens between calls. Orders, `poll`, `answer`, `set_ready`, `counters`, `partitions` are as in
    `Node`. Use it on one thread. Equal calls give equal results.

        node.recover(unix_ms, mono_ms)
        node.connect(1); node.request(1, header, body)     one event each
        shards, tickets = node.turn()                       idle writers got their next group
        node.run_job(shard); node.run_read(ticket)          in any order, at any time
        node.take_answers()
        node.crash(); disk.crash()                          process crash; power failure
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
        level: int = 3,
        level_newest: int = 3,
    ) -> Self: ...
    def recover(self, unix_ms: int, mono_ms: int, calls: int | None = None) -> dict[str, Any]:
        """Open the store like `Node.recover`, also after `crash`. `calls`: disk calls before the power fails.

        Raises: as `Node.recover`; the node then does not run and can be started again.
        """
    @property
    def running(self) -> bool: ...
    def crash(self) -> None:
        """Kill the process: volatile state is lost, and data that was written stays with the disk."""
    def clock(self, unix_ms: int, mono_ms: int) -> None:
        """Set the clocks of the node."""
    def tick(self, unix_ms: int, mono_ms: int) -> None:
        """Set the clocks and run the engine's tick, as the runtime does every 20 ms."""
    def connect(self, connection: int) -> None:
        """A client's connection is open. The caller chooses `connection`, a new number each time."""
    def disconnect(self, connection: int) -> None:
        """The connection is closed: answers in transit to it are lost."""
    def request(self, connection: int, header: bytes, body: bytes) -> bool:
        """One request has arrived. False: no block is free, so the socket is not read; pass it again later.

        Raises: ClosedError: the connection is not open, or the transport would close it for the body's size.
        """
    def take_answers(self) -> list[tuple[int, bytes, bytes]]:
        """(connection, header, body) of answers and pushes since the last call, oldest first."""
    def take_peer_messages(self) -> list[tuple[str, int, bytes, bytes]]:
        """The node's actions on connections to other nodes, oldest first.

        ("connect", node, address, b"")   answer with `peer_opened` or `peer_closed`
        ("send", node, header, body)      a request: pass it to that node's `request`, over a connection there
        ("close", node, b"", b"")         answer with `peer_closed`
        """
    def peer_opened(self, node: int) -> None:
        """The connection to that node is open."""
    def peer_closed(self, node: int) -> None:
        """The connection to that node is closed or was never open; messages in transit are lost."""
    def peer_message(self, node: int, header: bytes, body: bytes) -> None:
        """An answer of that node, from its `take_answers` for the connection."""
    def turn(self) -> tuple[list[int], list[int]]:
        """End a round of the engine's loop: idle writers get their next group. Returns the same as `jobs`.

        Call it after every event, or after several that came together, and at `wakes_at`.
        """
    def wakes_at(self) -> int | None:
        """Unix ms at which `turn` must be called even without an event; None: never."""
    def jobs(self) -> tuple[list[int], list[int]]:
        """Shards with a job for their writer, and tickets of reads; both ascending."""
    def run_job(self, shard: int, calls: int | None = None) -> None:
        """Run the writer's job: the group is written and synced, and the engine gets the outcome.

        With `calls` power fails after so many calls to the disk (6 complete most jobs). The engine gets no
        outcome then, and the caller must `crash` the node and the disk.
        """
    def run_read(self, ticket: int) -> None:
        """Run a read of the reader; the engine gets the outcome."""
    def check(self) -> None:
        """Check the invariants of engine and log. Raises AssertionError with the broken one."""
    def state_hash(self) -> int:
        """Hash of all state that an append or an order may change (I15)."""
    def listen(self, addresses: Sequence[str]) -> list[str]:
        """The same addresses: there are no sockets."""
    def fileno(self) -> int:
        """A number that is unique for each node id, for simulated loops; not a descriptor."""
    @property
    def readable(self) -> bool:
        """True while outcomes are queued: a real node's `fileno` would be readable."""
    def poll(self, limit: int = 256) -> list[tuple[Any, ...]]: ...
    def answer(self, connection: int, header: bytes, body: bytes) -> None: ...
    def set_applied(self, index: int) -> None: ...
    def set_generation(self, index: int) -> None: ...
    def set_controller(self, body: bytes) -> None: ...
    def set_time_window(self, earliest_ms: int, latest_ms: int) -> None: ...
    def producer_tables(self) -> list[tuple[int, int, int, int]]:
        """(topic, partition, records, hash) of each producer table, as computed from the log."""
    def set_ready(self, body: bytes) -> None: ...
    def set_access(
        self, is_asked: bool, grants: Sequence[tuple[str, bytes, int, int | None, str]], credential: str
    ) -> None: ...
    def set_members(self, key: bytes) -> None: ...
    def order(self, order: Order) -> int: ...
    def doubted(self) -> list[tuple[int, int]]: ...
    def log_ends(self) -> bytes: ...
    def lacking(self, entries: bytes) -> list[tuple[int, int]]: ...
    def write_witness(self, numbers: Sequence[int], doubted: Sequence[tuple[int, int]]) -> None: ...
    def counters(self) -> dict[str, int]: ...
    def gates(self) -> list[tuple[int, int, int, int, int, bool, bool, int]]: ...
    def forced_ends(self) -> list[tuple[int, int, int]]: ...
    def members(self) -> list[int]: ...
    def cohort_figures(self) -> list[dict[str, int]]: ...
    def adopted(self, topics: Sequence[int]) -> list[tuple[int, int]]: ...
    def partitions(self) -> list[dict[str, Any]]: ...
    def partitions_of(self, places: Sequence[tuple[int, int]]) -> list[dict[str, Any]]: ...
    def syncs(self) -> list[dict[str, Any]]: ...
    def stop(self, timeout_s: float) -> None:
        """Like `Node.stop`; work in progress ends immediately, without regard to `timeout_s`."""

# ---- producer side ----------------------------------------------------------------------------------

@final
class Encoder:
    """Gathers the rows of a batch by partition, directly into publish bodies (Arrow IPC messages)."""

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
            extension: bytes before each message; the length is a multiple of 64.

        Raises:
            BatchError: a column cannot be cast; the message names the column and both types.
        """
    def whole(
        self, batch: object, start: int = 0, rows: int | None = None, extension: bytes | None = None
    ) -> tuple[bytearray, int]:
        """Encode a slice of the batch, without a gather."""

def check_schema(message: bytes, key_columns: Sequence[int]) -> None:
    """Check that nodes can store rows of this Arrow IPC schema message, routed by these columns (indexes).

    Raises:
        SchemaError: they cannot; the message has the reason and names the column.
    """

def schema_message(schema: object) -> bytes:
    """Encode an object with `__arrow_c_schema__` as an Arrow IPC schema message."""

def crc32c(data: Buffer, value: int = 0) -> int: ...
def crc32c_seal(header: bytearray) -> None:
    """Write magic, version and CRC of a request or answer header of 128 bytes in place."""

@final
class RecordReader:
    """Iterates over the records of a FETCH body and checks them: lengths, header CRC, body CRC."""

    def __new__(cls, body: Buffer) -> Self: ...
    def __iter__(self) -> RecordReader: ...
    def __next__(self) -> tuple[bytes, int, int]:
        """(header of 192 bytes, start of the body in the buffer, its length). RecordError on damage."""
