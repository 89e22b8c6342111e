# Generated from core/wire/wire.toml by native/gen_wire.py; edit those.
from libc.stdint cimport uint8_t, uint16_t, uint32_t, uint64_t

cdef enum:
    MAGIC = 1129203282
    PROTOCOL_VERSION = 1
    PROTOCOL_VERSION_MIN = 1
    RECORD_MAGIC = 1129468486
    FILE_MAGIC = 1162626642
    LEVEL_NEWEST = 2
    LOG_FORMAT_VERSION = 4
    SLOT_COUNT = 65536
    SLOT_SEED = 42
    HEADER_BYTES = 128
    RECORD_HEADER_BYTES = 192
    BODY_ALIGN_BYTES = 64
    BLOCK_ALIGN_BYTES = 4096
    MESSAGE_BYTES_MAX = 67108864
    EXTENSION_BYTES_MAX = 65536
    NOTE_BYTES_MAX = 4096
    CONTROL_BYTES_MAX = 1048576
    DEDUPE_WINDOW = 64
    ROWS_MAX = 16777216
    DEADLINE_MS_MAX = 600000
    FETCH_BYTES_MAX = 33554432
    NAME_BYTES_MAX = 255
    CREDENTIAL_BYTES_MAX = 256
    NESTING_MAX = 16
    COLUMNS_MAX = 4096
    PARTITIONS_MAX = 65536
    GATE_LEASE_MS = 10000
    OWNER_LEASE_MS = 1000
    ACKNOWLEDGE_ENTRIES_MAX = 4096
    COHORT_RANGES_MAX = 4096
    LOG_GATES_MAX = 8192
    LOG_RANGES_MAX = 65536
    REASON_BYTES_MAX = 240
    RIGHT_READ = 1
    RIGHT_WRITE = 2
    RIGHT_MANAGE = 4
    RIGHT_NODE = 8
    RIGHT_CONSUME = 16
    OP_HELLO = 1
    OP_PUBLISH = 16
    OP_FETCH = 17
    OP_END_OFFSETS = 18
    OP_RESOLVE = 19
    OP_OFFSET_FOR_TIME = 20
    OP_TABLE = 32
    OP_TABLE_PUSH = 33
    OP_TABLE_ACK = 34
    OP_WATCH_OPEN = 35
    OP_WATCH_UPDATE = 36
    OP_WATCH_CLOSE = 37
    OP_JOIN = 38
    OP_LEAVE = 39
    OP_ASSIGN = 40
    OP_ACKNOWLEDGE = 41
    OP_ATTACH = 42
    OP_MEMBER_BEAT = 43
    OP_REPLICATE = 48
    OP_REPLICA_ACK = 49
    OP_FENCE = 50
    OP_COPY = 51
    OP_CONFIRM_MARK = 52
    OP_ORDER = 53
    OP_BEGIN = 64
    OP_STAGE = 65
    OP_COMMIT = 66
    OP_EXPIRE = 67
    OP_STAGED_LIST = 68
    OP_TOPIC_CREATE = 80
    OP_TOPIC_LIST = 81
    OP_TOPIC_DESCRIBE = 82
    OP_TOPIC_TRUNCATE = 83
    OP_TOPIC_DELETE = 84
    OP_SCHEMA_ADD = 85
    OP_PRODUCER_OPEN = 86
    OP_STATUS = 87
    OP_LAYOUT_CHANGE = 88
    OP_LAYOUT_DESCRIBE = 89
    OP_COHORT_CREATE = 90
    OP_COHORT_DESCRIBE = 91
    OP_COHORT_LIST = 92
    OP_COHORT_CHANGE = 93
    OP_COHORT_SEEK = 94
    OP_COHORT_DELETE = 95
    OP_COHORT_EVICT = 96
    OP_COHORT_PARKED = 97
    STATUS_OK = 0
    STATUS_READY = 1
    STATUS_REDIRECT = 2
    STATUS_REFUSED = 3
    STATUS_STAGED = 4
    STATUS_ALREADY_COMMITTED = 5
    STATUS_PUSH = 6
    CODE_BAD_HEADER = 1
    CODE_UNSUPPORTED_VERSION = 2
    CODE_UNKNOWN_OPCODE = 3
    CODE_TOO_LARGE = 4
    CODE_BODY_CRC = 5
    CODE_BAD_BODY = 6
    CODE_UNSUPPORTED_TYPE = 7
    CODE_WRONG_SCHEMA = 8
    CODE_WRONG_SLOT = 9
    CODE_ZERO_ROWS = 10
    CODE_UNKNOWN_TOPIC = 11
    CODE_UNKNOWN_PARTITION = 12
    CODE_SEQUENCE_GAP = 13
    CODE_CONFLICT = 14
    CODE_FENCED_PRODUCER = 15
    CODE_FORGOTTEN = 16
    CODE_TOO_OLD = 17
    CODE_AHEAD = 18
    CODE_DEADLINE = 19
    CODE_HELD = 20
    CODE_TRUNCATED = 21
    CODE_QUARANTINED = 22
    CODE_DISK_FULL = 23
    CODE_STORAGE_FAILED = 24
    CODE_OVERLOADED = 25
    CODE_TOO_FEW_REPLICAS = 26
    CODE_ALREADY_EXISTS = 27
    CODE_INVALID_ARGUMENT = 28
    CODE_UNAUTHORIZED = 29
    CODE_STOPPING = 30
    CODE_INTERNAL = 31
    CODE_NOT_SUPPORTED = 32
    CODE_UNKNOWN_OUTCOME = 33
    CODE_RESUME_UNKNOWN = 34
    CODE_MOVED = 35
    CODE_NOT_ASSIGNED = 36
    CODE_FENCED_MEMBER = 37
    CODE_UNKNOWN_COHORT = 38
    CODE_STALE_CLAIM = 39
    REASON_NOT_OWNER = 1
    REASON_STALE_VERSION = 2
    REASON_STALE_EPOCH = 3
    REASON_SEALED = 4
    REASON_CLOSED = 5
    KIND_ROWS = 1
    KIND_EPOCH = 2
    KIND_PRODUCER = 3
    KIND_TABLE = 4
    KIND_STAGED = 5
    KIND_PUBLISH = 6
    KIND_COHORT = 7
    KIND_STATE = 32
    KIND_TRUNCATE = 33
    KIND_FENCE = 34
    KIND_GROUP_END = 35
    KIND_PAD = 36
    KIND_START = 37
    KIND_SEALED = 38
    EXTENSION_NOTE = 1
    EXTENSION_STAGE = 2
    EXTENSION_ORIGIN = 3
    REQUEST_FLAG_CONTROL = 1
    REQUEST_FLAG_STAGED = 2
    REQUEST_FLAG_COHORT = 4
    REQUEST_FLAG_REOPEN = 8
    ANSWER_FLAG_CONTROL = 1
    ANSWER_FLAG_REPEATED = 2
    ANSWER_FLAG_MORE = 4
    ANSWER_FLAG_CUT = 8
    ANSWER_FLAG_ENDED = 16
    ANSWER_FLAG_BLOCKED = 32
    ANSWER_FLAG_ELSEWHERE = 64
    FEATURE_RESUME_RANGES = 1
    FEATURE_TABLE_DELTAS = 2
    FEATURE_LINEAGE = 4
    FEATURE_COHORTS = 8

cdef packed struct RequestHeader:
    uint32_t magic
    uint16_t version
    uint8_t opcode
    uint8_t flags
    uint64_t request_id
    uint64_t topic
    uint64_t partition
    uint64_t layout_version
    uint64_t owner_epoch
    uint64_t producer_id
    uint64_t producer_epoch
    uint64_t sequence
    uint64_t send
    uint32_t rows
    uint32_t schema_id
    uint32_t deadline_ms
    uint32_t extension_bytes
    uint32_t body_bytes
    uint32_t body_crc
    uint8_t reserved[20]
    uint32_t header_crc

cdef packed struct AnswerHeader:
    uint32_t magic
    uint16_t version
    uint8_t opcode
    uint8_t status
    uint64_t request_id
    uint64_t topic
    uint64_t partition
    uint64_t layout_version
    uint64_t owner_epoch
    uint64_t first_offset
    uint64_t end_offset
    uint64_t sequence
    uint64_t send
    uint64_t generation
    uint64_t credit_bytes
    uint32_t rows
    uint32_t retry_after_ms
    uint16_t code
    uint16_t flags
    uint32_t body_bytes
    uint32_t body_crc
    uint8_t reserved[8]
    uint32_t header_crc

cdef packed struct RecordHeader:
    uint32_t magic
    uint32_t header_crc
    uint64_t file_number
    uint64_t group
    uint64_t previous_position
    uint32_t span_bytes
    uint8_t reserved_physical[4]
    uint8_t kind
    uint8_t record_flags
    uint8_t reserved_logical[2]
    uint32_t rows
    uint64_t topic
    uint64_t partition
    uint64_t record_number
    uint64_t first_offset
    uint64_t layout_version
    uint64_t owner_epoch
    uint64_t producer_id
    uint64_t producer_epoch
    uint64_t sequence
    uint64_t send
    uint64_t time_ms
    uint32_t schema_id
    uint32_t extension_bytes
    uint32_t body_bytes
    uint32_t body_crc
    uint8_t reserved_tail[32]
    uint64_t chain
