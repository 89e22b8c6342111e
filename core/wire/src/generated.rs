// Generated from core/wire/wire.toml by native/gen_wire.py; edit those.
#![allow(clippy::too_many_lines)]

/// B'RFNC' read as a little-endian u32; first four bytes of every request and answer header.
pub const MAGIC: u32 = 0x434E4652;
/// Newest protocol version spoken here.
pub const PROTOCOL_VERSION: u16 = 1;
/// Oldest protocol version still served.
pub const PROTOCOL_VERSION_MIN: u16 = 1;
/// B'FRRC' read as a little-endian u32; first four bytes of every log record.
pub const RECORD_MAGIC: u32 = 0x43525246;
/// B'RFLE' read as a little-endian u32; first four bytes of every segment file.
pub const FILE_MAGIC: u32 = 0x454C4652;
/// Newest cluster level whose formats this program writes; programs without levels count as 0.
pub const LEVEL_NEWEST: u16 = 2;
/// Newest format of segment files: 1 is written at level 0, 2 above it, 3 from a shard's first record of kind table or sealed on, 4 from its first one of kind cohort on. A newer one is refused and left untouched.
pub const LOG_FORMAT_VERSION: u16 = 4;
/// Key slots: xxhash64(key columns, seed 42) >> 48.
pub const SLOT_COUNT: u32 = 65536;
/// Largest epoch of a scope, of STAGE and COMMIT alike: 2^63 - 1.
pub const SCOPE_EPOCH_MAX: u64 = 9223372036854775807;
/// Seed of Spark SQL's xxhash64.
pub const SLOT_SEED: u64 = 42;

/// Bytes: one request or answer header; two cache lines.
pub const HEADER_BYTES: usize = 128;
/// Bytes: one record header; a multiple of 64 so that the body behind it is 64-byte aligned.
pub const RECORD_HEADER_BYTES: usize = 192;
/// Bytes: Arrow's recommended buffer alignment.
pub const BODY_ALIGN_BYTES: usize = 64;
/// Bytes: page size; O_DIRECT needs at most this.
pub const BLOCK_ALIGN_BYTES: usize = 4096;
/// Bytes: 64 MiB: one publish body; 16 connections at this size stay within 1 GiB.
pub const MESSAGE_BYTES_MAX: usize = 67108864;
/// Bytes: note and stage identity; a note is a place in a source, not a payload.
pub const EXTENSION_BYTES_MAX: usize = 65536;
/// Bytes: kept with the last answers of every producer in memory.
pub const NOTE_BYTES_MAX: usize = 4096;
/// Bytes: a MessagePack body; a routing table of 10,000 partitions is below it.
pub const CONTROL_BYTES_MAX: usize = 1048576;
/// Answers: a producer has at most this many unanswered batches per partition.
pub const DEDUPE_WINDOW: usize = 64;
/// Rows: rows in one batch; offsets of int32 strings stay valid.
pub const ROWS_MAX: usize = 16777216;
/// Ms: ten minutes: what a node parks or polls for at the very most.
pub const DEADLINE_MS_MAX: usize = 600000;
/// Bytes: 32 MiB in one fetch answer unless one record is larger.
pub const FETCH_BYTES_MAX: usize = 33554432;
/// Bytes: topic, producer, scope and cohort names.
pub const NAME_BYTES_MAX: usize = 255;
/// Bytes: a token of HELLO; ours have 46, others' bearer tokens fit.
pub const CREDENTIAL_BYTES_MAX: usize = 256;
/// Levels: depth of nested Arrow types and of MessagePack bodies.
pub const NESTING_MAX: usize = 16;
/// Columns: flattened fields of a schema.
pub const COLUMNS_MAX: usize = 4096;
/// Partitions: one per slot.
pub const PARTITIONS_MAX: usize = 65536;
/// Ms: how long a member may give rows that it fetched, counted from its request; owners need not ask each other for it.
pub const GATE_LEASE_MS: usize = 10000;
/// Ms: how long an owner gives rows to members without another answer of a quorum.
pub const OWNER_LEASE_MS: usize = 1000;
/// Entries: partitions or ranges in one ACKNOWLEDGE or MEMBER_BEAT: 160 KiB.
pub const ACKNOWLEDGE_ENTRIES_MAX: usize = 4096;
/// Ranges: ranges and parkings of one gate: 64 KiB of each state record.
pub const COHORT_RANGES_MAX: usize = 4096;
/// Gates: entries of all cohorts in one log: 768 KiB of each state record.
pub const LOG_GATES_MAX: usize = 8192;
/// Ranges: ranges and parkings of all gates in one log: 1 MiB of each state record.
pub const LOG_RANGES_MAX: usize = 65536;
/// Bytes: the text of a failed row, kept while the row is parked.
pub const REASON_BYTES_MAX: usize = 240;

/// The body is MessagePack.
pub const REQUEST_FLAG_CONTROL: u16 = 1;
/// FETCH: `sequence` is a record number; staged records from it on.
pub const REQUEST_FLAG_STAGED: u16 = 2;
/// FETCH: as a member of a cohort, under its hold.
pub const REQUEST_FLAG_COHORT: u16 = 4;
/// FETCH, ACKNOWLEDGE: the member has no hold, or gave it up; admit it again.
pub const REQUEST_FLAG_REOPEN: u16 = 8;
/// The body is MessagePack.
pub const ANSWER_FLAG_CONTROL: u16 = 1;
/// The batch was stored by an earlier send of the same sequence.
pub const ANSWER_FLAG_REPEATED: u16 = 2;
/// FETCH: more records below the mark remain.
pub const ANSWER_FLAG_MORE: u16 = 4;
/// FENCE: this store lost a torn tail and was not level with an owner since.
pub const ANSWER_FLAG_CUT: u16 = 8;
/// The partition is sealed, and no row lies after this answer.
pub const ANSWER_FLAG_ENDED: u16 = 16;
/// FETCH of a member: ancestors are not drained, or a seek is not over.
pub const ANSWER_FLAG_BLOCKED: u16 = 32;
/// FETCH of a member: the partition is sealed; read the rows at its owner without the flag cohort.
pub const ANSWER_FLAG_ELSEWHERE: u16 = 64;
/// Resume points of named producers by slot range.
pub const FEATURE_RESUME_RANGES: u64 = 1;
/// Routing tables as differences from one that is held.
pub const FEATURE_TABLE_DELTAS: u64 = 2;
/// Reads sealed partitions before their children.
pub const FEATURE_LINEAGE: u64 = 4;
/// Members of cohorts; implies lineage.
pub const FEATURE_COHORTS: u64 = 8;

#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
#[repr(u8)]
pub enum Right {
    /// Read rows, topics, tables and the node's status.
    Read = 1,
    /// Send rows, also staged, and commit them.
    Write = 2,
    /// Create, change, truncate and delete topics.
    Manage = 4,
    /// Be a node of this cluster: replicate its log.
    Node = 8,
    /// Be a member of cohorts: read and acknowledge.
    Consume = 16,
}

impl Right {
    /// Every member, in the order of their numbers' definition.
    pub const ALL: &'static [Right] = &[
        Right::Read,
        Right::Write,
        Right::Manage,
        Right::Node,
        Right::Consume,
    ];

    /// The member with this number, if there is one.
    #[must_use]
    pub const fn from_number(number: u8) -> Option<Self> {
        match number {
            1 => Some(Self::Read),
            2 => Some(Self::Write),
            4 => Some(Self::Manage),
            8 => Some(Self::Node),
            16 => Some(Self::Consume),
            _ => None,
        }
    }

    /// The name used in documents, logs and errors.
    #[must_use]
    pub const fn name(self) -> &'static str {
        match self {
            Self::Read => "read",
            Self::Write => "write",
            Self::Manage => "manage",
            Self::Node => "node",
            Self::Consume => "consume",
        }
    }
}

#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
#[repr(u8)]
pub enum Opcode {
    /// First message of a connection; answered READY.
    Hello = 1,
    /// Append one batch to one partition.
    Publish = 16,
    /// Records of one partition from an offset, with long poll.
    Fetch = 17,
    /// Log start and mark of one partition.
    EndOffsets = 18,
    /// What became of a producer's batches in one partition.
    Resolve = 19,
    /// First offset at or after a time.
    OffsetForTime = 20,
    /// Routing table of one topic.
    Table = 32,
    /// A changed routing table; body as in the answer to TABLE.
    TablePush = 33,
    /// Generation that the client now holds.
    TableAck = 34,
    /// Follow the layout of a topic, or the topics whose names have a prefix.
    WatchOpen = 35,
    /// The layout or the topics, then their changes.
    WatchUpdate = 36,
    /// End of a watch.
    WatchClose = 37,
    /// Become a member of a cohort.
    Join = 38,
    /// Leave a cohort.
    Leave = 39,
    /// A member's slice changed.
    Assign = 40,
    /// A member is done with rows.
    Acknowledge = 41,
    /// Bind this connection to a member's session.
    Attach = 42,
    /// A member is alive; extends the leases of its gates.
    MemberBeat = 43,
    /// Log records from an owner to a replica.
    Replicate = 48,
    /// How far a replica is durable.
    ReplicaAck = 49,
    /// Take no append below an epoch.
    Fence = 50,
    /// Log records by number.
    Copy = 51,
    /// Is this owner epoch still the newest you know.
    ConfirmMark = 52,
    /// Control plane to another node: host, open, hold, drop.
    Order = 53,
    /// Open a scope for atomic writes.
    Begin = 64,
    /// Append a batch without offsets.
    Stage = 65,
    /// Publish the staged batches of one epoch.
    Commit = 66,
    /// Drop the staged batches of one epoch.
    Expire = 67,
    /// Record numbers of what is staged under some tokens in one partition.
    StagedList = 68,
    /// Topic_create.
    TopicCreate = 80,
    /// Topic_list.
    TopicList = 81,
    /// Topic_describe.
    TopicDescribe = 82,
    /// Topic_truncate.
    TopicTruncate = 83,
    /// Topic_delete.
    TopicDelete = 84,
    /// Append a schema: only nullable columns may be new.
    SchemaAdd = 85,
    /// A producer id and epoch; a named one gets its resume point.
    ProducerOpen = 86,
    /// What the node is and how it fares.
    Status = 87,
    /// Split, merge or repartition partitions, or end such a change.
    LayoutChange = 88,
    /// Partitions of a topic with their lineage, and its open layout changes.
    LayoutDescribe = 89,
    /// Create a cohort.
    CohortCreate = 90,
    /// One cohort: settings, members, progress.
    CohortDescribe = 91,
    /// The cohorts of a topic.
    CohortList = 92,
    /// Change the settings of a cohort.
    CohortChange = 93,
    /// Begin a cohort again at other positions.
    CohortSeek = 94,
    /// Delete a cohort.
    CohortDelete = 95,
    /// Remove a member from a cohort.
    CohortEvict = 96,
    /// List, retry, discard or export rows that a QUEUE parked.
    CohortParked = 97,
}

impl Opcode {
    /// Every member, in the order of their numbers' definition.
    pub const ALL: &'static [Opcode] = &[
        Opcode::Hello,
        Opcode::Publish,
        Opcode::Fetch,
        Opcode::EndOffsets,
        Opcode::Resolve,
        Opcode::OffsetForTime,
        Opcode::Table,
        Opcode::TablePush,
        Opcode::TableAck,
        Opcode::WatchOpen,
        Opcode::WatchUpdate,
        Opcode::WatchClose,
        Opcode::Join,
        Opcode::Leave,
        Opcode::Assign,
        Opcode::Acknowledge,
        Opcode::Attach,
        Opcode::MemberBeat,
        Opcode::Replicate,
        Opcode::ReplicaAck,
        Opcode::Fence,
        Opcode::Copy,
        Opcode::ConfirmMark,
        Opcode::Order,
        Opcode::Begin,
        Opcode::Stage,
        Opcode::Commit,
        Opcode::Expire,
        Opcode::StagedList,
        Opcode::TopicCreate,
        Opcode::TopicList,
        Opcode::TopicDescribe,
        Opcode::TopicTruncate,
        Opcode::TopicDelete,
        Opcode::SchemaAdd,
        Opcode::ProducerOpen,
        Opcode::Status,
        Opcode::LayoutChange,
        Opcode::LayoutDescribe,
        Opcode::CohortCreate,
        Opcode::CohortDescribe,
        Opcode::CohortList,
        Opcode::CohortChange,
        Opcode::CohortSeek,
        Opcode::CohortDelete,
        Opcode::CohortEvict,
        Opcode::CohortParked,
    ];

    /// The member with this number, if there is one.
    #[must_use]
    pub const fn from_number(number: u8) -> Option<Self> {
        match number {
            1 => Some(Self::Hello),
            16 => Some(Self::Publish),
            17 => Some(Self::Fetch),
            18 => Some(Self::EndOffsets),
            19 => Some(Self::Resolve),
            20 => Some(Self::OffsetForTime),
            32 => Some(Self::Table),
            33 => Some(Self::TablePush),
            34 => Some(Self::TableAck),
            35 => Some(Self::WatchOpen),
            36 => Some(Self::WatchUpdate),
            37 => Some(Self::WatchClose),
            38 => Some(Self::Join),
            39 => Some(Self::Leave),
            40 => Some(Self::Assign),
            41 => Some(Self::Acknowledge),
            42 => Some(Self::Attach),
            43 => Some(Self::MemberBeat),
            48 => Some(Self::Replicate),
            49 => Some(Self::ReplicaAck),
            50 => Some(Self::Fence),
            51 => Some(Self::Copy),
            52 => Some(Self::ConfirmMark),
            53 => Some(Self::Order),
            64 => Some(Self::Begin),
            65 => Some(Self::Stage),
            66 => Some(Self::Commit),
            67 => Some(Self::Expire),
            68 => Some(Self::StagedList),
            80 => Some(Self::TopicCreate),
            81 => Some(Self::TopicList),
            82 => Some(Self::TopicDescribe),
            83 => Some(Self::TopicTruncate),
            84 => Some(Self::TopicDelete),
            85 => Some(Self::SchemaAdd),
            86 => Some(Self::ProducerOpen),
            87 => Some(Self::Status),
            88 => Some(Self::LayoutChange),
            89 => Some(Self::LayoutDescribe),
            90 => Some(Self::CohortCreate),
            91 => Some(Self::CohortDescribe),
            92 => Some(Self::CohortList),
            93 => Some(Self::CohortChange),
            94 => Some(Self::CohortSeek),
            95 => Some(Self::CohortDelete),
            96 => Some(Self::CohortEvict),
            97 => Some(Self::CohortParked),
            _ => None,
        }
    }

    /// The name used in documents, logs and errors.
    #[must_use]
    pub const fn name(self) -> &'static str {
        match self {
            Self::Hello => "hello",
            Self::Publish => "publish",
            Self::Fetch => "fetch",
            Self::EndOffsets => "end_offsets",
            Self::Resolve => "resolve",
            Self::OffsetForTime => "offset_for_time",
            Self::Table => "table",
            Self::TablePush => "table_push",
            Self::TableAck => "table_ack",
            Self::WatchOpen => "watch_open",
            Self::WatchUpdate => "watch_update",
            Self::WatchClose => "watch_close",
            Self::Join => "join",
            Self::Leave => "leave",
            Self::Assign => "assign",
            Self::Acknowledge => "acknowledge",
            Self::Attach => "attach",
            Self::MemberBeat => "member_beat",
            Self::Replicate => "replicate",
            Self::ReplicaAck => "replica_ack",
            Self::Fence => "fence",
            Self::Copy => "copy",
            Self::ConfirmMark => "confirm_mark",
            Self::Order => "order",
            Self::Begin => "begin",
            Self::Stage => "stage",
            Self::Commit => "commit",
            Self::Expire => "expire",
            Self::StagedList => "staged_list",
            Self::TopicCreate => "topic_create",
            Self::TopicList => "topic_list",
            Self::TopicDescribe => "topic_describe",
            Self::TopicTruncate => "topic_truncate",
            Self::TopicDelete => "topic_delete",
            Self::SchemaAdd => "schema_add",
            Self::ProducerOpen => "producer_open",
            Self::Status => "status",
            Self::LayoutChange => "layout_change",
            Self::LayoutDescribe => "layout_describe",
            Self::CohortCreate => "cohort_create",
            Self::CohortDescribe => "cohort_describe",
            Self::CohortList => "cohort_list",
            Self::CohortChange => "cohort_change",
            Self::CohortSeek => "cohort_seek",
            Self::CohortDelete => "cohort_delete",
            Self::CohortEvict => "cohort_evict",
            Self::CohortParked => "cohort_parked",
        }
    }

    /// What a connection must be allowed to send it, where tokens are asked for.
    #[must_use]
    pub const fn right(self) -> Option<Right> {
        match self {
            Self::Join | Self::Leave | Self::Acknowledge | Self::Attach | Self::MemberBeat | Self::CohortSeek | Self::CohortParked => Some(Right::Consume),
            Self::TopicCreate | Self::TopicTruncate | Self::TopicDelete | Self::SchemaAdd | Self::LayoutChange | Self::CohortCreate | Self::CohortChange | Self::CohortDelete | Self::CohortEvict => Some(Right::Manage),
            Self::Replicate | Self::ReplicaAck | Self::Fence | Self::Copy | Self::ConfirmMark | Self::Order => Some(Right::Node),
            Self::Fetch | Self::EndOffsets | Self::Resolve | Self::OffsetForTime | Self::Table | Self::WatchOpen | Self::WatchClose | Self::TopicList | Self::TopicDescribe | Self::Status | Self::LayoutDescribe | Self::CohortDescribe | Self::CohortList => Some(Right::Read),
            Self::Publish | Self::Begin | Self::Stage | Self::Commit | Self::Expire | Self::StagedList | Self::ProducerOpen => Some(Right::Write),
            _ => None,
        }
    }
}

#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
#[repr(u8)]
pub enum Status {
    /// Done.
    Ok = 0,
    /// Answer to HELLO.
    Ready = 1,
    /// Not here, or not under this version or epoch; nothing was stored.
    Redirect = 2,
    /// Nothing was stored; `code` says why.
    Refused = 3,
    /// Stored without offsets.
    Staged = 4,
    /// The epoch was committed before; these tokens were dropped.
    AlreadyCommitted = 5,
    /// Unasked: TABLE_PUSH, WATCH_UPDATE, ASSIGN.
    Push = 6,
}

impl Status {
    /// Every member, in the order of their numbers' definition.
    pub const ALL: &'static [Status] = &[
        Status::Ok,
        Status::Ready,
        Status::Redirect,
        Status::Refused,
        Status::Staged,
        Status::AlreadyCommitted,
        Status::Push,
    ];

    /// The member with this number, if there is one.
    #[must_use]
    pub const fn from_number(number: u8) -> Option<Self> {
        match number {
            0 => Some(Self::Ok),
            1 => Some(Self::Ready),
            2 => Some(Self::Redirect),
            3 => Some(Self::Refused),
            4 => Some(Self::Staged),
            5 => Some(Self::AlreadyCommitted),
            6 => Some(Self::Push),
            _ => None,
        }
    }

    /// The name used in documents, logs and errors.
    #[must_use]
    pub const fn name(self) -> &'static str {
        match self {
            Self::Ok => "ok",
            Self::Ready => "ready",
            Self::Redirect => "redirect",
            Self::Refused => "refused",
            Self::Staged => "staged",
            Self::AlreadyCommitted => "already_committed",
            Self::Push => "push",
        }
    }
}

#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
#[repr(u16)]
pub enum Code {
    /// Magic, CRC, reserved bytes or lengths of the header are wrong.
    BadHeader = 1,
    /// The message names a protocol version that the node does not speak.
    UnsupportedVersion = 2,
    /// No such opcode, or not for this sender.
    UnknownOpcode = 3,
    /// A body, extension, note or row count is above its limit.
    TooLarge = 4,
    /// The body does not have the CRC that the header names.
    BodyCrc = 5,
    /// Not a sound Arrow message of the schema, or not a sound MessagePack body.
    BadBody = 6,
    /// A column type that this version does not store.
    UnsupportedType = 7,
    /// Unknown schema id, or rows differ from the header's.
    WrongSchema = 8,
    /// A row's key does not belong to the partition.
    WrongSlot = 9,
    /// A batch must have rows.
    ZeroRows = 10,
    /// Unknown_topic.
    UnknownTopic = 11,
    /// Not a partition of the topic.
    UnknownPartition = 12,
    /// An earlier sequence is missing; send from the one named in the answer.
    SequenceGap = 13,
    /// The sequence is stored with other content.
    Conflict = 14,
    /// A newer epoch of this producer is open.
    FencedProducer = 15,
    /// The producer's entry expired; open a new epoch.
    Forgotten = 16,
    /// The sequence is stored, but its answer left the window.
    TooOld = 17,
    /// Routed under a newer version than this node had until the deadline.
    Ahead = 18,
    /// Not begun before the deadline; nothing was stored.
    Deadline = 19,
    /// The partition is on HOLD.
    Held = 20,
    /// The position is not in this log: retention passed it, or the epoch differs.
    Truncated = 21,
    /// The partition's log is damaged; an operator must repair it.
    Quarantined = 22,
    /// No space for rows; reads go on.
    DiskFull = 23,
    /// The disk failed a sync; the outcome of batches under way is unknown. Another replica may own the partition soon: send the same sequence again.
    StorageFailed = 24,
    /// The memory budget is spent; wait for answers.
    Overloaded = 25,
    /// Fewer live replicas than a majority.
    TooFewReplicas = 26,
    /// Already_exists.
    AlreadyExists = 27,
    /// The message names the field and the values.
    InvalidArgument = 28,
    /// The token is missing, unknown or expired, or its role has not the right.
    Unauthorized = 29,
    /// The node is going down.
    Stopping = 30,
    /// A defect of ours; the log has the details.
    Internal = 31,
    /// The request is defined, and this node's version does not serve it yet.
    NotSupported = 32,
    /// Appended, but not known durable when the node had to answer; send the same sequence again.
    UnknownOutcome = 33,
    /// Partitions evicted the state of this named producer: no resume point can be told; accept a fresh start, or forget the name.
    ResumeUnknown = 34,
    /// Rows were staged in partitions that are sealed now; nothing was committed: stage those rows again in their children.
    Moved = 35,
    /// Another member has the partition, or the hold is over; ask for the plan.
    NotAssigned = 36,
    /// The session is over, replaced, or not attached on this connection.
    FencedMember = 37,
    /// No such cohort, or another one of its name.
    UnknownCohort = 38,
    /// A gate that the COMMIT names has no such claim, or another owner; nothing was committed: claim again, then commit.
    StaleClaim = 39,
}

impl Code {
    /// Every member, in the order of their numbers' definition.
    pub const ALL: &'static [Code] = &[
        Code::BadHeader,
        Code::UnsupportedVersion,
        Code::UnknownOpcode,
        Code::TooLarge,
        Code::BodyCrc,
        Code::BadBody,
        Code::UnsupportedType,
        Code::WrongSchema,
        Code::WrongSlot,
        Code::ZeroRows,
        Code::UnknownTopic,
        Code::UnknownPartition,
        Code::SequenceGap,
        Code::Conflict,
        Code::FencedProducer,
        Code::Forgotten,
        Code::TooOld,
        Code::Ahead,
        Code::Deadline,
        Code::Held,
        Code::Truncated,
        Code::Quarantined,
        Code::DiskFull,
        Code::StorageFailed,
        Code::Overloaded,
        Code::TooFewReplicas,
        Code::AlreadyExists,
        Code::InvalidArgument,
        Code::Unauthorized,
        Code::Stopping,
        Code::Internal,
        Code::NotSupported,
        Code::UnknownOutcome,
        Code::ResumeUnknown,
        Code::Moved,
        Code::NotAssigned,
        Code::FencedMember,
        Code::UnknownCohort,
        Code::StaleClaim,
    ];

    /// The member with this number, if there is one.
    #[must_use]
    pub const fn from_number(number: u16) -> Option<Self> {
        match number {
            1 => Some(Self::BadHeader),
            2 => Some(Self::UnsupportedVersion),
            3 => Some(Self::UnknownOpcode),
            4 => Some(Self::TooLarge),
            5 => Some(Self::BodyCrc),
            6 => Some(Self::BadBody),
            7 => Some(Self::UnsupportedType),
            8 => Some(Self::WrongSchema),
            9 => Some(Self::WrongSlot),
            10 => Some(Self::ZeroRows),
            11 => Some(Self::UnknownTopic),
            12 => Some(Self::UnknownPartition),
            13 => Some(Self::SequenceGap),
            14 => Some(Self::Conflict),
            15 => Some(Self::FencedProducer),
            16 => Some(Self::Forgotten),
            17 => Some(Self::TooOld),
            18 => Some(Self::Ahead),
            19 => Some(Self::Deadline),
            20 => Some(Self::Held),
            21 => Some(Self::Truncated),
            22 => Some(Self::Quarantined),
            23 => Some(Self::DiskFull),
            24 => Some(Self::StorageFailed),
            25 => Some(Self::Overloaded),
            26 => Some(Self::TooFewReplicas),
            27 => Some(Self::AlreadyExists),
            28 => Some(Self::InvalidArgument),
            29 => Some(Self::Unauthorized),
            30 => Some(Self::Stopping),
            31 => Some(Self::Internal),
            32 => Some(Self::NotSupported),
            33 => Some(Self::UnknownOutcome),
            34 => Some(Self::ResumeUnknown),
            35 => Some(Self::Moved),
            36 => Some(Self::NotAssigned),
            37 => Some(Self::FencedMember),
            38 => Some(Self::UnknownCohort),
            39 => Some(Self::StaleClaim),
            _ => None,
        }
    }

    /// The name used in documents, logs and errors.
    #[must_use]
    pub const fn name(self) -> &'static str {
        match self {
            Self::BadHeader => "bad_header",
            Self::UnsupportedVersion => "unsupported_version",
            Self::UnknownOpcode => "unknown_opcode",
            Self::TooLarge => "too_large",
            Self::BodyCrc => "body_crc",
            Self::BadBody => "bad_body",
            Self::UnsupportedType => "unsupported_type",
            Self::WrongSchema => "wrong_schema",
            Self::WrongSlot => "wrong_slot",
            Self::ZeroRows => "zero_rows",
            Self::UnknownTopic => "unknown_topic",
            Self::UnknownPartition => "unknown_partition",
            Self::SequenceGap => "sequence_gap",
            Self::Conflict => "conflict",
            Self::FencedProducer => "fenced_producer",
            Self::Forgotten => "forgotten",
            Self::TooOld => "too_old",
            Self::Ahead => "ahead",
            Self::Deadline => "deadline",
            Self::Held => "held",
            Self::Truncated => "truncated",
            Self::Quarantined => "quarantined",
            Self::DiskFull => "disk_full",
            Self::StorageFailed => "storage_failed",
            Self::Overloaded => "overloaded",
            Self::TooFewReplicas => "too_few_replicas",
            Self::AlreadyExists => "already_exists",
            Self::InvalidArgument => "invalid_argument",
            Self::Unauthorized => "unauthorized",
            Self::Stopping => "stopping",
            Self::Internal => "internal",
            Self::NotSupported => "not_supported",
            Self::UnknownOutcome => "unknown_outcome",
            Self::ResumeUnknown => "resume_unknown",
            Self::Moved => "moved",
            Self::NotAssigned => "not_assigned",
            Self::FencedMember => "fenced_member",
            Self::UnknownCohort => "unknown_cohort",
            Self::StaleClaim => "stale_claim",
        }
    }

    /// True for: body_crc, sequence_gap, ahead, deadline, held, disk_full, storage_failed, overloaded, too_few_replicas, stopping, internal, unknown_outcome, stale_claim.
    #[must_use]
    pub const fn is_retriable(self) -> bool {
        matches!(self, Self::BodyCrc | Self::SequenceGap | Self::Ahead | Self::Deadline | Self::Held | Self::DiskFull | Self::StorageFailed | Self::Overloaded | Self::TooFewReplicas | Self::Stopping | Self::Internal | Self::UnknownOutcome | Self::StaleClaim)
    }
}

#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
#[repr(u16)]
pub enum RedirectReason {
    /// Another node owns the partition; the body names it.
    NotOwner = 1,
    /// The layout has changed since; fetch the table.
    StaleVersion = 2,
    /// The partition was opened anew since; fetch the table.
    StaleEpoch = 3,
    /// The partition was split or merged; the body says what of the sender is stored there.
    Sealed = 4,
    /// The partition is on HOLD or not open yet; retry here after retry_after_ms.
    Closed = 5,
}

impl RedirectReason {
    /// Every member, in the order of their numbers' definition.
    pub const ALL: &'static [RedirectReason] = &[
        RedirectReason::NotOwner,
        RedirectReason::StaleVersion,
        RedirectReason::StaleEpoch,
        RedirectReason::Sealed,
        RedirectReason::Closed,
    ];

    /// The member with this number, if there is one.
    #[must_use]
    pub const fn from_number(number: u16) -> Option<Self> {
        match number {
            1 => Some(Self::NotOwner),
            2 => Some(Self::StaleVersion),
            3 => Some(Self::StaleEpoch),
            4 => Some(Self::Sealed),
            5 => Some(Self::Closed),
            _ => None,
        }
    }

    /// The name used in documents, logs and errors.
    #[must_use]
    pub const fn name(self) -> &'static str {
        match self {
            Self::NotOwner => "not_owner",
            Self::StaleVersion => "stale_version",
            Self::StaleEpoch => "stale_epoch",
            Self::Sealed => "sealed",
            Self::Closed => "closed",
        }
    }
}

#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
#[repr(u8)]
pub enum RecordKind {
    /// One Arrow record batch.
    Rows = 1,
    /// An owner opened the partition.
    Epoch = 2,
    /// A named producer's epoch was raised; the body says for which name.
    Producer = 3,
    /// Producer tables inherited from ancestors.
    Table = 4,
    /// A batch without offsets, under (scope, epoch, token).
    Staged = 5,
    /// Gives staged rows their offsets.
    Publish = 6,
    /// Progress of cohorts, and which member may read: positions, ranges, holds.
    Cohort = 7,
    /// All that recovery of one partition needs.
    State = 32,
    /// The log ends at record_number from here on.
    Truncate = 33,
    /// No append below owner_epoch from here on.
    Fence = 34,
    /// Closes a commit group: its directory of partitions.
    GroupEnd = 35,
    /// Filler up to a block boundary.
    Pad = 36,
    /// The log start offset moved up to first_offset.
    Start = 37,
    /// The log ends at record_number permanently: the partition was split or merged.
    Sealed = 38,
}

impl RecordKind {
    /// Every member, in the order of their numbers' definition.
    pub const ALL: &'static [RecordKind] = &[
        RecordKind::Rows,
        RecordKind::Epoch,
        RecordKind::Producer,
        RecordKind::Table,
        RecordKind::Staged,
        RecordKind::Publish,
        RecordKind::Cohort,
        RecordKind::State,
        RecordKind::Truncate,
        RecordKind::Fence,
        RecordKind::GroupEnd,
        RecordKind::Pad,
        RecordKind::Start,
        RecordKind::Sealed,
    ];

    /// The member with this number, if there is one.
    #[must_use]
    pub const fn from_number(number: u8) -> Option<Self> {
        match number {
            1 => Some(Self::Rows),
            2 => Some(Self::Epoch),
            3 => Some(Self::Producer),
            4 => Some(Self::Table),
            5 => Some(Self::Staged),
            6 => Some(Self::Publish),
            7 => Some(Self::Cohort),
            32 => Some(Self::State),
            33 => Some(Self::Truncate),
            34 => Some(Self::Fence),
            35 => Some(Self::GroupEnd),
            36 => Some(Self::Pad),
            37 => Some(Self::Start),
            38 => Some(Self::Sealed),
            _ => None,
        }
    }

    /// The name used in documents, logs and errors.
    #[must_use]
    pub const fn name(self) -> &'static str {
        match self {
            Self::Rows => "rows",
            Self::Epoch => "epoch",
            Self::Producer => "producer",
            Self::Table => "table",
            Self::Staged => "staged",
            Self::Publish => "publish",
            Self::Cohort => "cohort",
            Self::State => "state",
            Self::Truncate => "truncate",
            Self::Fence => "fence",
            Self::GroupEnd => "group_end",
            Self::Pad => "pad",
            Self::Start => "start",
            Self::Sealed => "sealed",
        }
    }

    /// True for: rows, epoch, producer, table, staged, publish, cohort.
    #[must_use]
    pub const fn is_log(self) -> bool {
        matches!(self, Self::Rows | Self::Epoch | Self::Producer | Self::Table | Self::Staged | Self::Publish | Self::Cohort)
    }
}

#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
#[repr(u16)]
pub enum ExtensionKind {
    /// The application's bytes.
    Note = 1,
    /// 48 bytes: u64 scope id, u64 driver, u64 epoch, u32 writer partition, u32 zero, 16 bytes attempt token.
    Stage = 2,
    /// 16 bytes, of rows that are staged again: u64 version that sealed the partition of their first staging, u64 record number there.
    Origin = 3,
}

impl ExtensionKind {
    /// Every member, in the order of their numbers' definition.
    pub const ALL: &'static [ExtensionKind] = &[
        ExtensionKind::Note,
        ExtensionKind::Stage,
        ExtensionKind::Origin,
    ];

    /// The member with this number, if there is one.
    #[must_use]
    pub const fn from_number(number: u16) -> Option<Self> {
        match number {
            1 => Some(Self::Note),
            2 => Some(Self::Stage),
            3 => Some(Self::Origin),
            _ => None,
        }
    }

    /// The name used in documents, logs and errors.
    #[must_use]
    pub const fn name(self) -> &'static str {
        match self {
            Self::Note => "note",
            Self::Stage => "stage",
            Self::Origin => "origin",
        }
    }
}

/// 128 bytes on the wire; see wire.toml for the positions.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct RequestHeader {
    /// `magic`.
    pub magic: u32,
    /// Protocol version of this message.
    pub version: u16,
    /// See [opcodes].
    pub opcode: u8,
    /// See [request_flags]; unknown bits are refused.
    pub flags: u8,
    /// Chosen by the sender, unique on its connection while unanswered; echoed.
    pub request_id: u64,
    /// Topic id, 0 = none.
    pub topic: u64,
    /// Partition id, 0 = none.
    pub partition: u64,
    /// Partitioning version under which the request was routed; TABLE: least version that helps, 0 = any.
    pub layout_version: u64,
    /// Epoch of the owner that the sender believes in; FETCH: epoch of the last row read, 0 = none read.
    pub owner_epoch: u64,
    /// 0 = none.
    pub producer_id: u64,
    /// Metadata index that opened the producer.
    pub producer_epoch: u64,
    /// Batch number per (producer id, epoch, partition), from 0; FETCH: first wanted offset; TABLE: generation of the table that is held, 0 = none; TABLE_ACK: generation that is held.
    pub sequence: u64,
    /// The application's call count, ascending in every partition; FETCH: byte limit.
    pub send: u64,
    /// Rows in the body; FETCH: row limit, 0 = none.
    pub rows: u32,
    /// Index in the topic's list of schemas.
    pub schema_id: u32,
    /// How long the sender still waits, counted from receipt; FETCH: long poll.
    pub deadline_ms: u32,
    /// Length of the extension at the front of the body, a multiple of 64.
    pub extension_bytes: u32,
    /// Length of the body frame, the extension included.
    pub body_bytes: u32,
    /// CRC-32C of the whole body frame; of no bytes: 0.
    pub body_crc: u32,
    /// CRC-32C of the 124 bytes before.
    pub header_crc: u32,
}

impl RequestHeader {
    pub const SIZE: usize = 128;

    pub const MAGIC_AT: usize = 0;
    pub const VERSION_AT: usize = 4;
    pub const OPCODE_AT: usize = 6;
    pub const FLAGS_AT: usize = 7;
    pub const REQUEST_ID_AT: usize = 8;
    pub const TOPIC_AT: usize = 16;
    pub const PARTITION_AT: usize = 24;
    pub const LAYOUT_VERSION_AT: usize = 32;
    pub const OWNER_EPOCH_AT: usize = 40;
    pub const PRODUCER_ID_AT: usize = 48;
    pub const PRODUCER_EPOCH_AT: usize = 56;
    pub const SEQUENCE_AT: usize = 64;
    pub const SEND_AT: usize = 72;
    pub const ROWS_AT: usize = 80;
    pub const SCHEMA_ID_AT: usize = 84;
    pub const DEADLINE_MS_AT: usize = 88;
    pub const EXTENSION_BYTES_AT: usize = 92;
    pub const BODY_BYTES_AT: usize = 96;
    pub const BODY_CRC_AT: usize = 100;
    pub const RESERVED_AT: usize = 104;
    pub const HEADER_CRC_AT: usize = 124;

    /// Read every field; checks nothing.
    #[must_use]
    pub fn read(bytes: &[u8; 128]) -> Self {
        Self {
            magic: u32::from_le_bytes([bytes[0], bytes[1], bytes[2], bytes[3]]),
            version: u16::from_le_bytes([bytes[4], bytes[5]]),
            opcode: u8::from_le_bytes([bytes[6]]),
            flags: u8::from_le_bytes([bytes[7]]),
            request_id: u64::from_le_bytes([bytes[8], bytes[9], bytes[10], bytes[11], bytes[12], bytes[13], bytes[14], bytes[15]]),
            topic: u64::from_le_bytes([bytes[16], bytes[17], bytes[18], bytes[19], bytes[20], bytes[21], bytes[22], bytes[23]]),
            partition: u64::from_le_bytes([bytes[24], bytes[25], bytes[26], bytes[27], bytes[28], bytes[29], bytes[30], bytes[31]]),
            layout_version: u64::from_le_bytes([bytes[32], bytes[33], bytes[34], bytes[35], bytes[36], bytes[37], bytes[38], bytes[39]]),
            owner_epoch: u64::from_le_bytes([bytes[40], bytes[41], bytes[42], bytes[43], bytes[44], bytes[45], bytes[46], bytes[47]]),
            producer_id: u64::from_le_bytes([bytes[48], bytes[49], bytes[50], bytes[51], bytes[52], bytes[53], bytes[54], bytes[55]]),
            producer_epoch: u64::from_le_bytes([bytes[56], bytes[57], bytes[58], bytes[59], bytes[60], bytes[61], bytes[62], bytes[63]]),
            sequence: u64::from_le_bytes([bytes[64], bytes[65], bytes[66], bytes[67], bytes[68], bytes[69], bytes[70], bytes[71]]),
            send: u64::from_le_bytes([bytes[72], bytes[73], bytes[74], bytes[75], bytes[76], bytes[77], bytes[78], bytes[79]]),
            rows: u32::from_le_bytes([bytes[80], bytes[81], bytes[82], bytes[83]]),
            schema_id: u32::from_le_bytes([bytes[84], bytes[85], bytes[86], bytes[87]]),
            deadline_ms: u32::from_le_bytes([bytes[88], bytes[89], bytes[90], bytes[91]]),
            extension_bytes: u32::from_le_bytes([bytes[92], bytes[93], bytes[94], bytes[95]]),
            body_bytes: u32::from_le_bytes([bytes[96], bytes[97], bytes[98], bytes[99]]),
            body_crc: u32::from_le_bytes([bytes[100], bytes[101], bytes[102], bytes[103]]),
            header_crc: u32::from_le_bytes([bytes[124], bytes[125], bytes[126], bytes[127]]),
        }
    }

    /// Write every field, reserved bytes as zero.
    pub fn write(&self, bytes: &mut [u8; 128]) {
        bytes[0..4].copy_from_slice(&self.magic.to_le_bytes());
        bytes[4..6].copy_from_slice(&self.version.to_le_bytes());
        bytes[6..7].copy_from_slice(&self.opcode.to_le_bytes());
        bytes[7..8].copy_from_slice(&self.flags.to_le_bytes());
        bytes[8..16].copy_from_slice(&self.request_id.to_le_bytes());
        bytes[16..24].copy_from_slice(&self.topic.to_le_bytes());
        bytes[24..32].copy_from_slice(&self.partition.to_le_bytes());
        bytes[32..40].copy_from_slice(&self.layout_version.to_le_bytes());
        bytes[40..48].copy_from_slice(&self.owner_epoch.to_le_bytes());
        bytes[48..56].copy_from_slice(&self.producer_id.to_le_bytes());
        bytes[56..64].copy_from_slice(&self.producer_epoch.to_le_bytes());
        bytes[64..72].copy_from_slice(&self.sequence.to_le_bytes());
        bytes[72..80].copy_from_slice(&self.send.to_le_bytes());
        bytes[80..84].copy_from_slice(&self.rows.to_le_bytes());
        bytes[84..88].copy_from_slice(&self.schema_id.to_le_bytes());
        bytes[88..92].copy_from_slice(&self.deadline_ms.to_le_bytes());
        bytes[92..96].copy_from_slice(&self.extension_bytes.to_le_bytes());
        bytes[96..100].copy_from_slice(&self.body_bytes.to_le_bytes());
        bytes[100..104].copy_from_slice(&self.body_crc.to_le_bytes());
        bytes[104..124].fill(0);
        bytes[124..128].copy_from_slice(&self.header_crc.to_le_bytes());
    }
}

/// 128 bytes on the wire; see wire.toml for the positions.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct AnswerHeader {
    /// `magic`.
    pub magic: u32,
    /// Protocol version of this message.
    pub version: u16,
    /// Of the request; of pushes their own.
    pub opcode: u8,
    /// See [statuses].
    pub status: u8,
    /// Of the request; 0 for pushes.
    pub request_id: u64,
    /// Topic id, 0 = none.
    pub topic: u64,
    /// Partition id, 0 = none.
    pub partition: u64,
    /// The node's current partitioning version of the topic.
    pub layout_version: u64,
    /// Current owner epoch of the partition; FETCH: epoch of the last record in the body.
    pub owner_epoch: u64,
    /// PUBLISH: offset of the first row; FETCH: offset of the first row in the body; END_OFFSETS: log start.
    pub first_offset: u64,
    /// The mark as an offset: rows below it may be read.
    pub end_offset: u64,
    /// Echo; REDIRECT(sealed): how many sequences of this producer epoch, or batches of this token, are stored there, 2^64 - 1 where nobody can tell.
    pub sequence: u64,
    /// Greatest `send` stored of this producer in this partition; END_OFFSETS, OFFSET_FOR_TIME: epoch of the row before the offset that is answered, 0 = not known.
    pub send: u64,
    /// Metadata index that the node's routing is current for.
    pub generation: u64,
    /// Body bytes that this connection may have unanswered.
    pub credit_bytes: u64,
    /// Rows stored, or rows in the body.
    pub rows: u32,
    /// REFUSED and retriable: wait at least this long.
    pub retry_after_ms: u32,
    /// REFUSED: see [codes]; REDIRECT: see [redirect_reasons]; else 0.
    pub code: u16,
    /// See [answer_flags].
    pub flags: u16,
    /// Length of the body frame.
    pub body_bytes: u32,
    /// CRC-32C of the body frame; of no bytes: 0.
    pub body_crc: u32,
    /// CRC-32C of the 124 bytes before.
    pub header_crc: u32,
}

impl AnswerHeader {
    pub const SIZE: usize = 128;

    pub const MAGIC_AT: usize = 0;
    pub const VERSION_AT: usize = 4;
    pub const OPCODE_AT: usize = 6;
    pub const STATUS_AT: usize = 7;
    pub const REQUEST_ID_AT: usize = 8;
    pub const TOPIC_AT: usize = 16;
    pub const PARTITION_AT: usize = 24;
    pub const LAYOUT_VERSION_AT: usize = 32;
    pub const OWNER_EPOCH_AT: usize = 40;
    pub const FIRST_OFFSET_AT: usize = 48;
    pub const END_OFFSET_AT: usize = 56;
    pub const SEQUENCE_AT: usize = 64;
    pub const SEND_AT: usize = 72;
    pub const GENERATION_AT: usize = 80;
    pub const CREDIT_BYTES_AT: usize = 88;
    pub const ROWS_AT: usize = 96;
    pub const RETRY_AFTER_MS_AT: usize = 100;
    pub const CODE_AT: usize = 104;
    pub const FLAGS_AT: usize = 106;
    pub const BODY_BYTES_AT: usize = 108;
    pub const BODY_CRC_AT: usize = 112;
    pub const RESERVED_AT: usize = 116;
    pub const HEADER_CRC_AT: usize = 124;

    /// Read every field; checks nothing.
    #[must_use]
    pub fn read(bytes: &[u8; 128]) -> Self {
        Self {
            magic: u32::from_le_bytes([bytes[0], bytes[1], bytes[2], bytes[3]]),
            version: u16::from_le_bytes([bytes[4], bytes[5]]),
            opcode: u8::from_le_bytes([bytes[6]]),
            status: u8::from_le_bytes([bytes[7]]),
            request_id: u64::from_le_bytes([bytes[8], bytes[9], bytes[10], bytes[11], bytes[12], bytes[13], bytes[14], bytes[15]]),
            topic: u64::from_le_bytes([bytes[16], bytes[17], bytes[18], bytes[19], bytes[20], bytes[21], bytes[22], bytes[23]]),
            partition: u64::from_le_bytes([bytes[24], bytes[25], bytes[26], bytes[27], bytes[28], bytes[29], bytes[30], bytes[31]]),
            layout_version: u64::from_le_bytes([bytes[32], bytes[33], bytes[34], bytes[35], bytes[36], bytes[37], bytes[38], bytes[39]]),
            owner_epoch: u64::from_le_bytes([bytes[40], bytes[41], bytes[42], bytes[43], bytes[44], bytes[45], bytes[46], bytes[47]]),
            first_offset: u64::from_le_bytes([bytes[48], bytes[49], bytes[50], bytes[51], bytes[52], bytes[53], bytes[54], bytes[55]]),
            end_offset: u64::from_le_bytes([bytes[56], bytes[57], bytes[58], bytes[59], bytes[60], bytes[61], bytes[62], bytes[63]]),
            sequence: u64::from_le_bytes([bytes[64], bytes[65], bytes[66], bytes[67], bytes[68], bytes[69], bytes[70], bytes[71]]),
            send: u64::from_le_bytes([bytes[72], bytes[73], bytes[74], bytes[75], bytes[76], bytes[77], bytes[78], bytes[79]]),
            generation: u64::from_le_bytes([bytes[80], bytes[81], bytes[82], bytes[83], bytes[84], bytes[85], bytes[86], bytes[87]]),
            credit_bytes: u64::from_le_bytes([bytes[88], bytes[89], bytes[90], bytes[91], bytes[92], bytes[93], bytes[94], bytes[95]]),
            rows: u32::from_le_bytes([bytes[96], bytes[97], bytes[98], bytes[99]]),
            retry_after_ms: u32::from_le_bytes([bytes[100], bytes[101], bytes[102], bytes[103]]),
            code: u16::from_le_bytes([bytes[104], bytes[105]]),
            flags: u16::from_le_bytes([bytes[106], bytes[107]]),
            body_bytes: u32::from_le_bytes([bytes[108], bytes[109], bytes[110], bytes[111]]),
            body_crc: u32::from_le_bytes([bytes[112], bytes[113], bytes[114], bytes[115]]),
            header_crc: u32::from_le_bytes([bytes[124], bytes[125], bytes[126], bytes[127]]),
        }
    }

    /// Write every field, reserved bytes as zero.
    pub fn write(&self, bytes: &mut [u8; 128]) {
        bytes[0..4].copy_from_slice(&self.magic.to_le_bytes());
        bytes[4..6].copy_from_slice(&self.version.to_le_bytes());
        bytes[6..7].copy_from_slice(&self.opcode.to_le_bytes());
        bytes[7..8].copy_from_slice(&self.status.to_le_bytes());
        bytes[8..16].copy_from_slice(&self.request_id.to_le_bytes());
        bytes[16..24].copy_from_slice(&self.topic.to_le_bytes());
        bytes[24..32].copy_from_slice(&self.partition.to_le_bytes());
        bytes[32..40].copy_from_slice(&self.layout_version.to_le_bytes());
        bytes[40..48].copy_from_slice(&self.owner_epoch.to_le_bytes());
        bytes[48..56].copy_from_slice(&self.first_offset.to_le_bytes());
        bytes[56..64].copy_from_slice(&self.end_offset.to_le_bytes());
        bytes[64..72].copy_from_slice(&self.sequence.to_le_bytes());
        bytes[72..80].copy_from_slice(&self.send.to_le_bytes());
        bytes[80..88].copy_from_slice(&self.generation.to_le_bytes());
        bytes[88..96].copy_from_slice(&self.credit_bytes.to_le_bytes());
        bytes[96..100].copy_from_slice(&self.rows.to_le_bytes());
        bytes[100..104].copy_from_slice(&self.retry_after_ms.to_le_bytes());
        bytes[104..106].copy_from_slice(&self.code.to_le_bytes());
        bytes[106..108].copy_from_slice(&self.flags.to_le_bytes());
        bytes[108..112].copy_from_slice(&self.body_bytes.to_le_bytes());
        bytes[112..116].copy_from_slice(&self.body_crc.to_le_bytes());
        bytes[116..124].fill(0);
        bytes[124..128].copy_from_slice(&self.header_crc.to_le_bytes());
    }
}

/// 192 bytes on the wire; see wire.toml for the positions.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct RecordHeader {
    /// `record_magic`.
    pub magic: u32,
    /// CRC-32C of the header bytes 8..192.
    pub header_crc: u32,
    /// Number of the segment file, unique in a store.
    pub file_number: u64,
    /// Number of the commit group in its shard, +1 each.
    pub group: u64,
    /// Back-link: file number << 40 | position / 64 of the partition's record before, 0 = none known.
    pub previous_position: u64,
    /// Distance to the next record in the file, a multiple of 64.
    pub span_bytes: u32,
    /// See [record_kinds].
    pub kind: u8,
    /// Zero in format 1.
    pub record_flags: u8,
    /// Rows in the body.
    pub rows: u32,
    /// Topic id.
    pub topic: u64,
    /// Partition id.
    pub partition: u64,
    /// +1 for each log-kind record of the partition, from 0; local kinds: the next number.
    pub record_number: u64,
    /// Offset of the first row; without rows: the next offset.
    pub first_offset: u64,
    /// Partitioning version at the append.
    pub layout_version: u64,
    /// Epoch of the owner that appended it.
    pub owner_epoch: u64,
    /// 0 = none.
    pub producer_id: u64,
    /// Producer_epoch.
    pub producer_epoch: u64,
    /// Sequence.
    pub sequence: u64,
    /// Send.
    pub send: u64,
    /// Owner's time at the append, Unix ms, never less than the record before.
    pub time_ms: u64,
    /// Index in the topic's list of schemas.
    pub schema_id: u32,
    /// Length of the extension at the front of the body.
    pub extension_bytes: u32,
    /// Length of the body, the extension included, without padding.
    pub body_bytes: u32,
    /// CRC-32C of the body.
    pub body_crc: u32,
    /// XXH3-64(seed = previous chain, logical part before this field); local kinds: 0.
    pub chain: u64,
}

impl RecordHeader {
    pub const SIZE: usize = 192;

    pub const MAGIC_AT: usize = 0;
    pub const HEADER_CRC_AT: usize = 4;
    pub const FILE_NUMBER_AT: usize = 8;
    pub const GROUP_AT: usize = 16;
    pub const PREVIOUS_POSITION_AT: usize = 24;
    pub const SPAN_BYTES_AT: usize = 32;
    pub const RESERVED_PHYSICAL_AT: usize = 36;
    pub const KIND_AT: usize = 40;
    pub const RECORD_FLAGS_AT: usize = 41;
    pub const RESERVED_LOGICAL_AT: usize = 42;
    pub const ROWS_AT: usize = 44;
    pub const TOPIC_AT: usize = 48;
    pub const PARTITION_AT: usize = 56;
    pub const RECORD_NUMBER_AT: usize = 64;
    pub const FIRST_OFFSET_AT: usize = 72;
    pub const LAYOUT_VERSION_AT: usize = 80;
    pub const OWNER_EPOCH_AT: usize = 88;
    pub const PRODUCER_ID_AT: usize = 96;
    pub const PRODUCER_EPOCH_AT: usize = 104;
    pub const SEQUENCE_AT: usize = 112;
    pub const SEND_AT: usize = 120;
    pub const TIME_MS_AT: usize = 128;
    pub const SCHEMA_ID_AT: usize = 136;
    pub const EXTENSION_BYTES_AT: usize = 140;
    pub const BODY_BYTES_AT: usize = 144;
    pub const BODY_CRC_AT: usize = 148;
    pub const RESERVED_TAIL_AT: usize = 152;
    pub const CHAIN_AT: usize = 184;

    /// Read every field; checks nothing.
    #[must_use]
    pub fn read(bytes: &[u8; 192]) -> Self {
        Self {
            magic: u32::from_le_bytes([bytes[0], bytes[1], bytes[2], bytes[3]]),
            header_crc: u32::from_le_bytes([bytes[4], bytes[5], bytes[6], bytes[7]]),
            file_number: u64::from_le_bytes([bytes[8], bytes[9], bytes[10], bytes[11], bytes[12], bytes[13], bytes[14], bytes[15]]),
            group: u64::from_le_bytes([bytes[16], bytes[17], bytes[18], bytes[19], bytes[20], bytes[21], bytes[22], bytes[23]]),
            previous_position: u64::from_le_bytes([bytes[24], bytes[25], bytes[26], bytes[27], bytes[28], bytes[29], bytes[30], bytes[31]]),
            span_bytes: u32::from_le_bytes([bytes[32], bytes[33], bytes[34], bytes[35]]),
            kind: u8::from_le_bytes([bytes[40]]),
            record_flags: u8::from_le_bytes([bytes[41]]),
            rows: u32::from_le_bytes([bytes[44], bytes[45], bytes[46], bytes[47]]),
            topic: u64::from_le_bytes([bytes[48], bytes[49], bytes[50], bytes[51], bytes[52], bytes[53], bytes[54], bytes[55]]),
            partition: u64::from_le_bytes([bytes[56], bytes[57], bytes[58], bytes[59], bytes[60], bytes[61], bytes[62], bytes[63]]),
            record_number: u64::from_le_bytes([bytes[64], bytes[65], bytes[66], bytes[67], bytes[68], bytes[69], bytes[70], bytes[71]]),
            first_offset: u64::from_le_bytes([bytes[72], bytes[73], bytes[74], bytes[75], bytes[76], bytes[77], bytes[78], bytes[79]]),
            layout_version: u64::from_le_bytes([bytes[80], bytes[81], bytes[82], bytes[83], bytes[84], bytes[85], bytes[86], bytes[87]]),
            owner_epoch: u64::from_le_bytes([bytes[88], bytes[89], bytes[90], bytes[91], bytes[92], bytes[93], bytes[94], bytes[95]]),
            producer_id: u64::from_le_bytes([bytes[96], bytes[97], bytes[98], bytes[99], bytes[100], bytes[101], bytes[102], bytes[103]]),
            producer_epoch: u64::from_le_bytes([bytes[104], bytes[105], bytes[106], bytes[107], bytes[108], bytes[109], bytes[110], bytes[111]]),
            sequence: u64::from_le_bytes([bytes[112], bytes[113], bytes[114], bytes[115], bytes[116], bytes[117], bytes[118], bytes[119]]),
            send: u64::from_le_bytes([bytes[120], bytes[121], bytes[122], bytes[123], bytes[124], bytes[125], bytes[126], bytes[127]]),
            time_ms: u64::from_le_bytes([bytes[128], bytes[129], bytes[130], bytes[131], bytes[132], bytes[133], bytes[134], bytes[135]]),
            schema_id: u32::from_le_bytes([bytes[136], bytes[137], bytes[138], bytes[139]]),
            extension_bytes: u32::from_le_bytes([bytes[140], bytes[141], bytes[142], bytes[143]]),
            body_bytes: u32::from_le_bytes([bytes[144], bytes[145], bytes[146], bytes[147]]),
            body_crc: u32::from_le_bytes([bytes[148], bytes[149], bytes[150], bytes[151]]),
            chain: u64::from_le_bytes([bytes[184], bytes[185], bytes[186], bytes[187], bytes[188], bytes[189], bytes[190], bytes[191]]),
        }
    }

    /// Write every field, reserved bytes as zero.
    pub fn write(&self, bytes: &mut [u8; 192]) {
        bytes[0..4].copy_from_slice(&self.magic.to_le_bytes());
        bytes[4..8].copy_from_slice(&self.header_crc.to_le_bytes());
        bytes[8..16].copy_from_slice(&self.file_number.to_le_bytes());
        bytes[16..24].copy_from_slice(&self.group.to_le_bytes());
        bytes[24..32].copy_from_slice(&self.previous_position.to_le_bytes());
        bytes[32..36].copy_from_slice(&self.span_bytes.to_le_bytes());
        bytes[36..40].fill(0);
        bytes[40..41].copy_from_slice(&self.kind.to_le_bytes());
        bytes[41..42].copy_from_slice(&self.record_flags.to_le_bytes());
        bytes[42..44].fill(0);
        bytes[44..48].copy_from_slice(&self.rows.to_le_bytes());
        bytes[48..56].copy_from_slice(&self.topic.to_le_bytes());
        bytes[56..64].copy_from_slice(&self.partition.to_le_bytes());
        bytes[64..72].copy_from_slice(&self.record_number.to_le_bytes());
        bytes[72..80].copy_from_slice(&self.first_offset.to_le_bytes());
        bytes[80..88].copy_from_slice(&self.layout_version.to_le_bytes());
        bytes[88..96].copy_from_slice(&self.owner_epoch.to_le_bytes());
        bytes[96..104].copy_from_slice(&self.producer_id.to_le_bytes());
        bytes[104..112].copy_from_slice(&self.producer_epoch.to_le_bytes());
        bytes[112..120].copy_from_slice(&self.sequence.to_le_bytes());
        bytes[120..128].copy_from_slice(&self.send.to_le_bytes());
        bytes[128..136].copy_from_slice(&self.time_ms.to_le_bytes());
        bytes[136..140].copy_from_slice(&self.schema_id.to_le_bytes());
        bytes[140..144].copy_from_slice(&self.extension_bytes.to_le_bytes());
        bytes[144..148].copy_from_slice(&self.body_bytes.to_le_bytes());
        bytes[148..152].copy_from_slice(&self.body_crc.to_le_bytes());
        bytes[152..184].fill(0);
        bytes[184..192].copy_from_slice(&self.chain.to_le_bytes());
    }
}
