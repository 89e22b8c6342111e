"""Generated from core/wire/wire.toml by native/gen_wire.py; edit those."""

# ruff: noqa: E501
from __future__ import annotations

import struct
from enum import IntEnum, IntFlag
from typing import Final, NamedTuple

MAGIC: Final = 1129203282  # b'RFNC' read as a little-endian u32; first four bytes of every request and answer header
PROTOCOL_VERSION: Final = 1  # newest protocol version spoken here
PROTOCOL_VERSION_MIN: Final = 1  # oldest protocol version still served
RECORD_MAGIC: Final = 1129468486  # b'FRRC' read as a little-endian u32; first four bytes of every log record
FILE_MAGIC: Final = 1162626642  # b'RFLE' read as a little-endian u32; first four bytes of every segment file
LEVEL_NEWEST: Final = 2  # newest cluster level whose formats this program writes; programs without levels count as 0
LOG_FORMAT_VERSION: Final = 4  # newest format of segment files: 1 is written at level 0, 2 above it, 3 from a shard's first record of kind table or sealed on, 4 from its first one of kind cohort on. A newer one is refused and left untouched
SLOT_COUNT: Final = 65536  # key slots: xxhash64(key columns, seed 42) >> 48
SCOPE_EPOCH_MAX: Final = 9223372036854775807  # largest epoch of a scope, of STAGE and COMMIT alike: 2^63 - 1
SLOT_SEED: Final = 42  # seed of Spark SQL's xxhash64
HEADER_BYTES: Final = 128  # bytes: one request or answer header; two cache lines
RECORD_HEADER_BYTES: Final = 192  # bytes: one record header; a multiple of 64 so that the body behind it is 64-byte aligned
BODY_ALIGN_BYTES: Final = 64  # bytes: Arrow's recommended buffer alignment
BLOCK_ALIGN_BYTES: Final = 4096  # bytes: page size; O_DIRECT needs at most this
MESSAGE_BYTES_MAX: Final = 67108864  # bytes: 64 MiB: one publish body; 16 connections at this size stay within 1 GiB
EXTENSION_BYTES_MAX: Final = 65536  # bytes: note and stage identity; a note is a place in a source, not a payload
NOTE_BYTES_MAX: Final = 4096  # bytes: kept with the last answers of every producer in memory
CONTROL_BYTES_MAX: Final = 1048576  # bytes: a MessagePack body; a routing table of 10,000 partitions is below it
DEDUPE_WINDOW: Final = 64  # answers: a producer has at most this many unanswered batches per partition
ROWS_MAX: Final = 16777216  # rows: rows in one batch; offsets of int32 strings stay valid
DEADLINE_MS_MAX: Final = 600000  # ms: ten minutes: what a node parks or polls for at the very most
FETCH_BYTES_MAX: Final = 33554432  # bytes: 32 MiB in one fetch answer unless one record is larger
NAME_BYTES_MAX: Final = 255  # bytes: topic, producer, scope and cohort names
CREDENTIAL_BYTES_MAX: Final = 256  # bytes: a token of HELLO; ours have 46, others' bearer tokens fit
NESTING_MAX: Final = 16  # levels: depth of nested Arrow types and of MessagePack bodies
COLUMNS_MAX: Final = 4096  # columns: flattened fields of a schema
PARTITIONS_MAX: Final = 65536  # partitions: one per slot
GATE_LEASE_MS: Final = 10000  # ms: how long a member may give rows that it fetched, counted from its request; owners need not ask each other for it
OWNER_LEASE_MS: Final = 1000  # ms: how long an owner gives rows to members without another answer of a quorum
ACKNOWLEDGE_ENTRIES_MAX: Final = 4096  # entries: partitions or ranges in one ACKNOWLEDGE or MEMBER_BEAT: 160 KiB
COHORT_RANGES_MAX: Final = 4096  # ranges: ranges and parkings of one gate: 64 KiB of each state record
LOG_GATES_MAX: Final = 8192  # gates: entries of all cohorts in one log: 768 KiB of each state record
LOG_RANGES_MAX: Final = 65536  # ranges: ranges and parkings of all gates in one log: 1 MiB of each state record
REASON_BYTES_MAX: Final = 240  # bytes: the text of a failed row, kept while the row is parked



class Right(IntEnum):
    READ = 1  # read rows, topics, tables and the node's status
    WRITE = 2  # send rows, also staged, and commit them
    MANAGE = 4  # create, change, truncate and delete topics
    NODE = 8  # be a node of this cluster: replicate its log
    CONSUME = 16  # be a member of cohorts: read and acknowledge


class Opcode(IntEnum):
    HELLO = 1  # first message of a connection; answered READY
    PUBLISH = 16  # append one batch to one partition
    FETCH = 17  # records of one partition from an offset, with long poll
    END_OFFSETS = 18  # log start and mark of one partition
    RESOLVE = 19  # what became of a producer's batches in one partition
    OFFSET_FOR_TIME = 20  # first offset at or after a time
    TABLE = 32  # routing table of one topic
    TABLE_PUSH = 33  # a changed routing table; body as in the answer to TABLE
    TABLE_ACK = 34  # generation that the client now holds
    WATCH_OPEN = 35  # follow the layout of a topic, or the topics whose names have a prefix
    WATCH_UPDATE = 36  # the layout or the topics, then their changes
    WATCH_CLOSE = 37  # end of a watch
    JOIN = 38  # become a member of a cohort
    LEAVE = 39  # leave a cohort
    ASSIGN = 40  # a member's slice changed
    ACKNOWLEDGE = 41  # a member is done with rows
    ATTACH = 42  # bind this connection to a member's session
    MEMBER_BEAT = 43  # a member is alive; extends the leases of its gates
    REPLICATE = 48  # log records from an owner to a replica
    REPLICA_ACK = 49  # how far a replica is durable
    FENCE = 50  # take no append below an epoch
    COPY = 51  # log records by number
    CONFIRM_MARK = 52  # is this owner epoch still the newest you know
    ORDER = 53  # control plane to another node: host, open, hold, drop
    BEGIN = 64  # open a scope for atomic writes
    STAGE = 65  # append a batch without offsets
    COMMIT = 66  # publish the staged batches of one epoch
    EXPIRE = 67  # drop the staged batches of one epoch
    STAGED_LIST = 68  # record numbers of what is staged under some tokens in one partition
    TOPIC_CREATE = 80
    TOPIC_LIST = 81
    TOPIC_DESCRIBE = 82
    TOPIC_TRUNCATE = 83
    TOPIC_DELETE = 84
    SCHEMA_ADD = 85  # append a schema: only nullable columns may be new
    PRODUCER_OPEN = 86  # a producer id and epoch; a named one gets its resume point
    STATUS = 87  # what the node is and how it fares
    LAYOUT_CHANGE = 88  # split, merge or repartition partitions, or end such a change
    LAYOUT_DESCRIBE = 89  # partitions of a topic with their lineage, and its open layout changes
    COHORT_CREATE = 90  # create a cohort
    COHORT_DESCRIBE = 91  # one cohort: settings, members, progress
    COHORT_LIST = 92  # the cohorts of a topic
    COHORT_CHANGE = 93  # change the settings of a cohort
    COHORT_SEEK = 94  # begin a cohort again at other positions
    COHORT_DELETE = 95  # delete a cohort
    COHORT_EVICT = 96  # remove a member from a cohort
    COHORT_PARKED = 97  # list, retry, discard or export rows that a QUEUE parked


class Status(IntEnum):
    OK = 0  # done
    READY = 1  # answer to HELLO
    REDIRECT = 2  # not here, or not under this version or epoch; nothing was stored
    REFUSED = 3  # nothing was stored; `code` says why
    STAGED = 4  # stored without offsets
    ALREADY_COMMITTED = 5  # the epoch was committed before; these tokens were dropped
    PUSH = 6  # unasked: TABLE_PUSH, WATCH_UPDATE, ASSIGN


class Code(IntEnum):
    BAD_HEADER = 1  # magic, CRC, reserved bytes or lengths of the header are wrong
    UNSUPPORTED_VERSION = 2  # the message names a protocol version that the node does not speak
    UNKNOWN_OPCODE = 3  # no such opcode, or not for this sender
    TOO_LARGE = 4  # a body, extension, note or row count is above its limit
    BODY_CRC = 5  # the body does not have the CRC that the header names
    BAD_BODY = 6  # not a sound Arrow message of the schema, or not a sound MessagePack body
    UNSUPPORTED_TYPE = 7  # a column type that this version does not store
    WRONG_SCHEMA = 8  # unknown schema id, or rows differ from the header's
    WRONG_SLOT = 9  # a row's key does not belong to the partition
    ZERO_ROWS = 10  # a batch must have rows
    UNKNOWN_TOPIC = 11
    UNKNOWN_PARTITION = 12  # not a partition of the topic
    SEQUENCE_GAP = 13  # an earlier sequence is missing; send from the one named in the answer
    CONFLICT = 14  # the sequence is stored with other content
    FENCED_PRODUCER = 15  # a newer epoch of this producer is open
    FORGOTTEN = 16  # the producer's entry expired; open a new epoch
    TOO_OLD = 17  # the sequence is stored, but its answer left the window
    AHEAD = 18  # routed under a newer version than this node had until the deadline
    DEADLINE = 19  # not begun before the deadline; nothing was stored
    HELD = 20  # the partition is on HOLD
    TRUNCATED = 21  # the position is not in this log: retention passed it, or the epoch differs
    QUARANTINED = 22  # the partition's log is damaged; an operator must repair it
    DISK_FULL = 23  # no space for rows; reads go on
    STORAGE_FAILED = 24  # the disk failed a sync; the outcome of batches under way is unknown. Another replica may own the partition soon: send the same sequence again
    OVERLOADED = 25  # the memory budget is spent; wait for answers
    TOO_FEW_REPLICAS = 26  # fewer live replicas than a majority
    ALREADY_EXISTS = 27
    INVALID_ARGUMENT = 28  # the message names the field and the values
    UNAUTHORIZED = 29  # the token is missing, unknown or expired, or its role has not the right
    STOPPING = 30  # the node is going down
    INTERNAL = 31  # a defect of ours; the log has the details
    NOT_SUPPORTED = 32  # the request is defined, and this node's version does not serve it yet
    UNKNOWN_OUTCOME = 33  # appended, but not known durable when the node had to answer; send the same sequence again
    RESUME_UNKNOWN = 34  # partitions evicted the state of this named producer: no resume point can be told; accept a fresh start, or forget the name
    MOVED = 35  # rows were staged in partitions that are sealed now; nothing was committed: stage those rows again in their children
    NOT_ASSIGNED = 36  # another member has the partition, or the hold is over; ask for the plan
    FENCED_MEMBER = 37  # the session is over, replaced, or not attached on this connection
    UNKNOWN_COHORT = 38  # no such cohort, or another one of its name
    STALE_CLAIM = 39  # a gate that the COMMIT names has no such claim, or another owner; nothing was committed: claim again, then commit


class RedirectReason(IntEnum):
    NOT_OWNER = 1  # another node owns the partition; the body names it
    STALE_VERSION = 2  # the layout has changed since; fetch the table
    STALE_EPOCH = 3  # the partition was opened anew since; fetch the table
    SEALED = 4  # the partition was split or merged; the body says what of the sender is stored there
    CLOSED = 5  # the partition is on HOLD or not open yet; retry here after retry_after_ms


class RecordKind(IntEnum):
    ROWS = 1  # one Arrow record batch
    EPOCH = 2  # an owner opened the partition
    PRODUCER = 3  # a named producer's epoch was raised; the body says for which name
    TABLE = 4  # producer tables inherited from ancestors
    STAGED = 5  # a batch without offsets, under (scope, epoch, token)
    PUBLISH = 6  # gives staged rows their offsets
    COHORT = 7  # progress of cohorts, and which member may read: positions, ranges, holds
    STATE = 32  # all that recovery of one partition needs
    TRUNCATE = 33  # the log ends at record_number from here on
    FENCE = 34  # no append below owner_epoch from here on
    GROUP_END = 35  # closes a commit group: its directory of partitions
    PAD = 36  # filler up to a block boundary
    START = 37  # the log start offset moved up to first_offset
    SEALED = 38  # the log ends at record_number permanently: the partition was split or merged


class ExtensionKind(IntEnum):
    NOTE = 1  # the application's bytes
    STAGE = 2  # 48 bytes: u64 scope id, u64 driver, u64 epoch, u32 writer partition, u32 zero, 16 bytes attempt token
    ORIGIN = 3  # 16 bytes, of rows that are staged again: u64 version that sealed the partition of their first staging, u64 record number there


class RequestFlags(IntFlag):
    CONTROL = 1  # the body is MessagePack
    STAGED = 2  # FETCH: `sequence` is a record number; staged records from it on
    COHORT = 4  # FETCH: as a member of a cohort, under its hold
    REOPEN = 8  # FETCH, ACKNOWLEDGE: the member has no hold, or gave it up; admit it again


class AnswerFlags(IntFlag):
    CONTROL = 1  # the body is MessagePack
    REPEATED = 2  # the batch was stored by an earlier send of the same sequence
    MORE = 4  # FETCH: more records below the mark remain
    CUT = 8  # FENCE: this store lost a torn tail and was not level with an owner since
    ENDED = 16  # the partition is sealed, and no row lies after this answer
    BLOCKED = 32  # FETCH of a member: ancestors are not drained, or a seek is not over
    ELSEWHERE = 64  # FETCH of a member: the partition is sealed; read the rows at its owner without the flag cohort


class Features(IntFlag):
    RESUME_RANGES = 1  # resume points of named producers by slot range
    TABLE_DELTAS = 2  # routing tables as differences from one that is held
    LINEAGE = 4  # reads sealed partitions before their children
    COHORTS = 8  # members of cohorts; implies lineage


RETRIABLE: Final = frozenset({Code.BODY_CRC, Code.SEQUENCE_GAP, Code.AHEAD, Code.DEADLINE, Code.HELD, Code.DISK_FULL, Code.STORAGE_FAILED, Code.OVERLOADED, Code.TOO_FEW_REPLICAS, Code.STOPPING, Code.INTERNAL, Code.UNKNOWN_OUTCOME, Code.STALE_CLAIM})
RIGHTS: Final = {Opcode.PUBLISH: Right.WRITE, Opcode.FETCH: Right.READ, Opcode.END_OFFSETS: Right.READ, Opcode.RESOLVE: Right.READ, Opcode.OFFSET_FOR_TIME: Right.READ, Opcode.TABLE: Right.READ, Opcode.WATCH_OPEN: Right.READ, Opcode.WATCH_CLOSE: Right.READ, Opcode.JOIN: Right.CONSUME, Opcode.LEAVE: Right.CONSUME, Opcode.ACKNOWLEDGE: Right.CONSUME, Opcode.ATTACH: Right.CONSUME, Opcode.MEMBER_BEAT: Right.CONSUME, Opcode.REPLICATE: Right.NODE, Opcode.REPLICA_ACK: Right.NODE, Opcode.FENCE: Right.NODE, Opcode.COPY: Right.NODE, Opcode.CONFIRM_MARK: Right.NODE, Opcode.ORDER: Right.NODE, Opcode.BEGIN: Right.WRITE, Opcode.STAGE: Right.WRITE, Opcode.COMMIT: Right.WRITE, Opcode.EXPIRE: Right.WRITE, Opcode.STAGED_LIST: Right.WRITE, Opcode.TOPIC_CREATE: Right.MANAGE, Opcode.TOPIC_LIST: Right.READ, Opcode.TOPIC_DESCRIBE: Right.READ, Opcode.TOPIC_TRUNCATE: Right.MANAGE, Opcode.TOPIC_DELETE: Right.MANAGE, Opcode.SCHEMA_ADD: Right.MANAGE, Opcode.PRODUCER_OPEN: Right.WRITE, Opcode.STATUS: Right.READ, Opcode.LAYOUT_CHANGE: Right.MANAGE, Opcode.LAYOUT_DESCRIBE: Right.READ, Opcode.COHORT_CREATE: Right.MANAGE, Opcode.COHORT_DESCRIBE: Right.READ, Opcode.COHORT_LIST: Right.READ, Opcode.COHORT_CHANGE: Right.MANAGE, Opcode.COHORT_SEEK: Right.CONSUME, Opcode.COHORT_DELETE: Right.MANAGE, Opcode.COHORT_EVICT: Right.MANAGE, Opcode.COHORT_PARKED: Right.CONSUME}
LOG_KINDS: Final = frozenset({RecordKind.ROWS, RecordKind.EPOCH, RecordKind.PRODUCER, RecordKind.TABLE, RecordKind.STAGED, RecordKind.PUBLISH, RecordKind.COHORT})


REQUEST_STRUCT: Final = struct.Struct("<IHBBQQQQQQQQQIIIIII20xI")
REQUEST_MAGIC_AT: Final = 0
REQUEST_VERSION_AT: Final = 4
REQUEST_OPCODE_AT: Final = 6
REQUEST_FLAGS_AT: Final = 7
REQUEST_REQUEST_ID_AT: Final = 8
REQUEST_TOPIC_AT: Final = 16
REQUEST_PARTITION_AT: Final = 24
REQUEST_LAYOUT_VERSION_AT: Final = 32
REQUEST_OWNER_EPOCH_AT: Final = 40
REQUEST_PRODUCER_ID_AT: Final = 48
REQUEST_PRODUCER_EPOCH_AT: Final = 56
REQUEST_SEQUENCE_AT: Final = 64
REQUEST_SEND_AT: Final = 72
REQUEST_ROWS_AT: Final = 80
REQUEST_SCHEMA_ID_AT: Final = 84
REQUEST_DEADLINE_MS_AT: Final = 88
REQUEST_EXTENSION_BYTES_AT: Final = 92
REQUEST_BODY_BYTES_AT: Final = 96
REQUEST_BODY_CRC_AT: Final = 100
REQUEST_RESERVED_AT: Final = 104
REQUEST_HEADER_CRC_AT: Final = 124


class RequestHeader(NamedTuple):
    """128 bytes; `REQUEST_STRUCT` packs them in this order."""

    magic: int = 0  # `magic`
    version: int = 0  # protocol version of this message
    opcode: int = 0  # see [opcodes]
    flags: int = 0  # see [request_flags]; unknown bits are refused
    request_id: int = 0  # chosen by the sender, unique on its connection while unanswered; echoed
    topic: int = 0  # topic id, 0 = none
    partition: int = 0  # partition id, 0 = none
    layout_version: int = 0  # partitioning version under which the request was routed; TABLE: least version that helps, 0 = any
    owner_epoch: int = 0  # epoch of the owner that the sender believes in; FETCH: epoch of the last row read, 0 = none read
    producer_id: int = 0  # 0 = none
    producer_epoch: int = 0  # metadata index that opened the producer
    sequence: int = 0  # batch number per (producer id, epoch, partition), from 0; FETCH: first wanted offset; TABLE: generation of the table that is held, 0 = none; TABLE_ACK: generation that is held
    send: int = 0  # the application's call count, ascending in every partition; FETCH: byte limit
    rows: int = 0  # rows in the body; FETCH: row limit, 0 = none
    schema_id: int = 0  # index in the topic's list of schemas
    deadline_ms: int = 0  # how long the sender still waits, counted from receipt; FETCH: long poll
    extension_bytes: int = 0  # length of the extension at the front of the body, a multiple of 64
    body_bytes: int = 0  # length of the body frame, the extension included
    body_crc: int = 0  # CRC-32C of the whole body frame; of no bytes: 0
    header_crc: int = 0  # CRC-32C of the 124 bytes before


ANSWER_STRUCT: Final = struct.Struct("<IHBBQQQQQQQQQQQIIHHII8xI")
ANSWER_MAGIC_AT: Final = 0
ANSWER_VERSION_AT: Final = 4
ANSWER_OPCODE_AT: Final = 6
ANSWER_STATUS_AT: Final = 7
ANSWER_REQUEST_ID_AT: Final = 8
ANSWER_TOPIC_AT: Final = 16
ANSWER_PARTITION_AT: Final = 24
ANSWER_LAYOUT_VERSION_AT: Final = 32
ANSWER_OWNER_EPOCH_AT: Final = 40
ANSWER_FIRST_OFFSET_AT: Final = 48
ANSWER_END_OFFSET_AT: Final = 56
ANSWER_SEQUENCE_AT: Final = 64
ANSWER_SEND_AT: Final = 72
ANSWER_GENERATION_AT: Final = 80
ANSWER_CREDIT_BYTES_AT: Final = 88
ANSWER_ROWS_AT: Final = 96
ANSWER_RETRY_AFTER_MS_AT: Final = 100
ANSWER_CODE_AT: Final = 104
ANSWER_FLAGS_AT: Final = 106
ANSWER_BODY_BYTES_AT: Final = 108
ANSWER_BODY_CRC_AT: Final = 112
ANSWER_RESERVED_AT: Final = 116
ANSWER_HEADER_CRC_AT: Final = 124


class AnswerHeader(NamedTuple):
    """128 bytes; `ANSWER_STRUCT` packs them in this order."""

    magic: int = 0  # `magic`
    version: int = 0  # protocol version of this message
    opcode: int = 0  # of the request; of pushes their own
    status: int = 0  # see [statuses]
    request_id: int = 0  # of the request; 0 for pushes
    topic: int = 0  # topic id, 0 = none
    partition: int = 0  # partition id, 0 = none
    layout_version: int = 0  # the node's current partitioning version of the topic
    owner_epoch: int = 0  # current owner epoch of the partition; FETCH: epoch of the last record in the body
    first_offset: int = 0  # PUBLISH: offset of the first row; FETCH: offset of the first row in the body; END_OFFSETS: log start
    end_offset: int = 0  # the mark as an offset: rows below it may be read
    sequence: int = 0  # echo; REDIRECT(sealed): how many sequences of this producer epoch, or batches of this token, are stored there, 2^64 - 1 where nobody can tell
    send: int = 0  # greatest `send` stored of this producer in this partition; END_OFFSETS, OFFSET_FOR_TIME: epoch of the row before the offset that is answered, 0 = not known
    generation: int = 0  # metadata index that the node's routing is current for
    credit_bytes: int = 0  # body bytes that this connection may have unanswered
    rows: int = 0  # rows stored, or rows in the body
    retry_after_ms: int = 0  # REFUSED and retriable: wait at least this long
    code: int = 0  # REFUSED: see [codes]; REDIRECT: see [redirect_reasons]; else 0
    flags: int = 0  # see [answer_flags]
    body_bytes: int = 0  # length of the body frame
    body_crc: int = 0  # CRC-32C of the body frame; of no bytes: 0
    header_crc: int = 0  # CRC-32C of the 124 bytes before


RECORD_STRUCT: Final = struct.Struct("<IIQQQI4xBB2xIQQQQQQQQQQQIIII32xQ")
RECORD_MAGIC_AT: Final = 0
RECORD_HEADER_CRC_AT: Final = 4
RECORD_FILE_NUMBER_AT: Final = 8
RECORD_GROUP_AT: Final = 16
RECORD_PREVIOUS_POSITION_AT: Final = 24
RECORD_SPAN_BYTES_AT: Final = 32
RECORD_RESERVED_PHYSICAL_AT: Final = 36
RECORD_KIND_AT: Final = 40
RECORD_RECORD_FLAGS_AT: Final = 41
RECORD_RESERVED_LOGICAL_AT: Final = 42
RECORD_ROWS_AT: Final = 44
RECORD_TOPIC_AT: Final = 48
RECORD_PARTITION_AT: Final = 56
RECORD_RECORD_NUMBER_AT: Final = 64
RECORD_FIRST_OFFSET_AT: Final = 72
RECORD_LAYOUT_VERSION_AT: Final = 80
RECORD_OWNER_EPOCH_AT: Final = 88
RECORD_PRODUCER_ID_AT: Final = 96
RECORD_PRODUCER_EPOCH_AT: Final = 104
RECORD_SEQUENCE_AT: Final = 112
RECORD_SEND_AT: Final = 120
RECORD_TIME_MS_AT: Final = 128
RECORD_SCHEMA_ID_AT: Final = 136
RECORD_EXTENSION_BYTES_AT: Final = 140
RECORD_BODY_BYTES_AT: Final = 144
RECORD_BODY_CRC_AT: Final = 148
RECORD_RESERVED_TAIL_AT: Final = 152
RECORD_CHAIN_AT: Final = 184


class RecordHeader(NamedTuple):
    """192 bytes; `RECORD_STRUCT` packs them in this order."""

    magic: int = 0  # `record_magic`
    header_crc: int = 0  # CRC-32C of the header bytes 8..192
    file_number: int = 0  # number of the segment file, unique in a store
    group: int = 0  # number of the commit group in its shard, +1 each
    previous_position: int = 0  # back-link: file number << 40 | position / 64 of the partition's record before, 0 = none known
    span_bytes: int = 0  # distance to the next record in the file, a multiple of 64
    kind: int = 0  # see [record_kinds]
    record_flags: int = 0  # zero in format 1
    rows: int = 0  # rows in the body
    topic: int = 0  # topic id
    partition: int = 0  # partition id
    record_number: int = 0  # +1 for each log-kind record of the partition, from 0; local kinds: the next number
    first_offset: int = 0  # offset of the first row; without rows: the next offset
    layout_version: int = 0  # partitioning version at the append
    owner_epoch: int = 0  # epoch of the owner that appended it
    producer_id: int = 0  # 0 = none
    producer_epoch: int = 0
    sequence: int = 0
    send: int = 0
    time_ms: int = 0  # owner's time at the append, Unix ms, never less than the record before
    schema_id: int = 0  # index in the topic's list of schemas
    extension_bytes: int = 0  # length of the extension at the front of the body
    body_bytes: int = 0  # length of the body, the extension included, without padding
    body_crc: int = 0  # CRC-32C of the body
    chain: int = 0  # XXH3-64(seed = previous chain, logical part before this field); local kinds: 0
