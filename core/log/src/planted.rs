//! Deliberate faults in the data plane, one at a time. The simulator's checkers, which never ask here, must find each
//! of them. They exist only with the feature `planted`, which no wheel has.

use std::sync::atomic::{AtomicU8, Ordering};

/// Each fault breaks one promise. They sit in `scan.rs` and `rebuild.rs` of this crate, and in the stepped runtime.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[repr(u8)]
pub enum Bug {
    /// The owner acknowledges as if the sync had happened (L1).
    AckBeforeSync = 1,
    /// The owner appends a batch that was routed under an older owner epoch (I4).
    OldEpoch,
    /// A failed sync is tried again, and the success of the second try is trusted (L1).
    SyncRetried,
    /// Recovery takes a damaged group, which later groups prove, for the torn end and cuts it (L2, L6).
    TornMiddle,
    /// Recovery takes the old contents of a recycled file for records (L4).
    RecycledBytes,
    /// Recovery forgets which batches were stored (I6).
    DedupeForgotten,
    /// Readers see rows that are not durable (I14).
    MarkTooHigh,
    /// A replica acknowledges before its sync (S2).
    FollowerAckEarly,
    /// The mark counts records of an older epoch alone (S3).
    OlderEpochCounts,
    /// A replica counts what it received after a gap as its end (S2).
    GapCounts,
    /// A store that adopts a copy forgets which batches are in it (I6).
    TableDropped,
    /// A copy counts as complete one record before its end (I11).
    CopyShort,
    /// Staged rows are acknowledged, and counted for their commit, before their sync (L1).
    StagedBeforeSync,
    /// A publish does not wait for the publishes of the scope's earlier epochs.
    EpochsInAnyOrder,
    /// A publish gives offsets to everything staged in its epoch, whichever tokens the commit names.
    DeadAttemptPublished,
    /// A store that adopts a copy forgets what is staged in it.
    StagesDropped,
    /// A truncation removes answers from the producer table, but not the other changes of its records (I6).
    CutKeepsProducers,
    /// A log start that was ordered beyond the mark is not carried out when the mark gets there.
    StartForgotten,
    /// A log start also removes rows of later owner epochs.
    StartOfAnyEpoch,
    /// A reader goes on at an offset, whatever the epoch of the row that it read before.
    PositionOfAnyEpoch,
    /// A sealed partition is opened like any other: its owner appends an epoch record (I3).
    SealedIsOpened,
    /// A log counts as sealed where it has as many records, whatever they are (I3).
    SealedByLength,
    /// A log that goes on after its seal is cut there, though nobody has accepted a loss (I16).
    SealCutsSilently,
    /// That a log has reached its seal is told before it is on disk (L1).
    SealInMemory,
    /// A partition that no installed table names is read.
    ChildIsReadable,
    /// What a sealed partition has of a producer is told by the number of its last sequence, not by their count.
    StoredIsLast,
    /// The seal of a partition is looked at after the version under which a request was routed.
    VersionBeforeSeal,
    /// Answers of a sealed partition say that nothing follows, whatever follows.
    EndedEarly,
    /// A reader that knows of no lineage reads a sealed partition's end as that of a log.
    EndOfAnyReader,
    /// A child takes nothing of its sources' producers (K8).
    NoInheritance,
    /// Resume points of several sources are joined to one for all slots, the greatest (K8).
    SegmentsAsMax,
    /// Of two sources' entries of a producer the one with the greater epoch replaces the other.
    GreaterEpochReplaces,
    /// What a source has forgotten is not inherited (I6).
    PageWithoutForgotten,
    /// Entries that changed after the first pages were made are not in the later ones.
    RestLeftOut,
    /// The owner of a child learns from pages, its replicas and a start do not.
    OwnerOnlyInherits,
    /// A truncation removes the last page of a source, and the source still counts as inherited.
    CutKeepsPages,
    /// The gates of a source may come after its last page.
    GatesBehindLastPage,
    /// An owner whose log lacks a source takes rows.
    ForcedAdmitsAtOnce,
    /// What a pruned source had counts as never stored.
    PrunedIsNew,
    /// A publish lists rows that were staged again by their records there, not by those of their first staging.
    NoOrigin,
    /// Staged records of a sealed log are read below the mark, as those that a publish names.
    StagedBelowMark,
    /// A state record forgets the origins of staged batches.
    OriginForgotten,
    /// A change of a table while another one is on its way is never pushed.
    PushForgotten,
    /// A table is pushed to every connection, whatever it asked for.
    PushedToAll,
    /// Tables are pushed although an older one is on its way.
    PushedAtOnce,
    /// A connection that was given its first table counts for nothing before it acknowledges.
    FirstNotCounted,
    /// A table is given as of the node's newest entry, although an entry that changed it is not installed.
    GivenAsOfTheNode,
    /// A client that holds a table gets no newer one.
    AlwaysUnchanged,
    /// A sketch counts a slot by its part of all slots, not of the partition's own.
    SketchOfAllSlots,
    /// The counts of a sketch are not halved with time.
    SketchNotHalved,
    /// A batch that is checked again, because it found no room, is counted each time.
    SketchCountsChecks,
    /// A log that is cut keeps what its newest record of cohorts said (FO3).
    CutKeepsNewest,
    /// A state record leaves the newest record of cohorts out.
    StateWithoutNewest,
    /// A forgotten gate is one that was never read (FO6).
    ForgetIsAbsent,
    /// A drained gate leaves the table, and the table does not say as of which entry (FO9).
    ForgetWithoutKnown,
    /// The gates of sealed partitions are not passed on when the heir is split (FO8).
    HeirForgetsGates,
    /// A new owner begins a queue at its beginning, whatever the log has.
    QueueForgotten,
    /// The leases of a member outlive its connection.
    QueueConnectionKept,
    /// The first record of a queue does not say where it began.
    QueueBeginsUnsaid,
    /// A seek leaves the queue of before in memory.
    QueueSeekUnheard,
    /// New rows wake no member of a queue.
    QueueNotWoken,
    /// A queue begins above the mark where the metadata says so: rows that come later count as done.
    QueueBeginsAbove,
    /// The fate of any scope counts for a parking that names another one.
    ParkedFateOfAny,
    /// An order about parked rows is answered before its record is durable.
    ParkedAnsweredEarly,
    /// A partition without rows is looked at for each FETCH of a queue that waits.
    QueueLooksAgain,
    /// Rows of a queue that an operator gave up stay on lease, and come again.
    GivenUpComesAgain,
    /// A member locks its gate for a scope that is not its cohort's.
    ClaimForAnyScope,
    /// A member locks its gate for a driver that its scope does not have.
    ClaimOfAnyDriver,
    /// Records of cohorts fill the dense tail of the index.
    CohortsFillTail,
    /// Records of cohorts have no part in the reserve of a full disk (CA4).
    ReserveForNoCohort,
    /// Records of cohorts use the reserve of a full disk as fast as they come (CA4).
    ReserveWithoutPace,
    /// A replica that began with its owner's table applies records of cohorts that the table has (FO5).
    KnownAppliedAgain,
    /// As it starts again, a replica that began with its owner's table applies records of cohorts that it has (FO5).
    KnownAppliedAtStart,
    /// Retention removes the rows of sealed partitions that cohorts read (CR2).
    KeptRowsGo,
}

/// Faults of what children inherit: only layout changes show them.
pub const LAYOUT_BUGS: [(&str, Bug); 10] = [
    ("no_inheritance", Bug::NoInheritance),
    ("segments_as_max", Bug::SegmentsAsMax),
    ("greater_epoch_replaces", Bug::GreaterEpochReplaces),
    ("page_without_forgotten", Bug::PageWithoutForgotten),
    ("rest_left_out", Bug::RestLeftOut),
    ("owner_only_inherits", Bug::OwnerOnlyInherits),
    ("cut_keeps_pages", Bug::CutKeepsPages),
    ("gates_behind_last_page", Bug::GatesBehindLastPage),
    ("forced_admits_at_once", Bug::ForcedAdmitsAtOnce),
    ("pruned_is_new", Bug::PrunedIsNew),
];

/// Faults of sealed partitions: only clusters whose layout changes show them.
pub const SEAL_BUGS: [(&str, Bug); 9] = [
    ("sealed_is_opened", Bug::SealedIsOpened),
    ("sealed_by_length", Bug::SealedByLength),
    ("seal_cuts_silently", Bug::SealCutsSilently),
    ("seal_in_memory", Bug::SealInMemory),
    ("child_is_readable", Bug::ChildIsReadable),
    ("stored_is_last", Bug::StoredIsLast),
    ("version_before_seal", Bug::VersionBeforeSeal),
    ("ended_early", Bug::EndedEarly),
    ("end_of_any_reader", Bug::EndOfAnyReader),
];

/// Faults of rows that are staged again, because their partition was sealed.
pub const RESTAGE_BUGS: [(&str, Bug); 3] = [
    ("no_origin", Bug::NoOrigin),
    ("staged_below_mark", Bug::StagedBelowMark),
    ("origin_forgotten", Bug::OriginForgotten),
];

/// Faults of tables that nodes push to clients, and of what is counted as held by them.
pub const PUSH_BUGS: [(&str, Bug); 6] = [
    ("push_forgotten", Bug::PushForgotten),
    ("pushed_to_all", Bug::PushedToAll),
    ("pushed_at_once", Bug::PushedAtOnce),
    ("first_not_counted", Bug::FirstNotCounted),
    ("given_as_of_the_node", Bug::GivenAsOfTheNode),
    ("always_unchanged", Bug::AlwaysUnchanged),
];

/// Faults of cohorts in the engine: only clusters with members show them.
pub const COHORT_BUGS: [(&str, Bug); 7] = [
    ("heir_forgets_gates", Bug::HeirForgetsGates),
    ("queue_forgotten", Bug::QueueForgotten),
    ("queue_connection_kept", Bug::QueueConnectionKept),
    ("queue_begins_unsaid", Bug::QueueBeginsUnsaid),
    ("queue_seek_unheard", Bug::QueueSeekUnheard),
    ("queue_not_woken", Bug::QueueNotWoken),
    ("parked_answered_early", Bug::ParkedAnsweredEarly),
];

/// Faults of staged rows: only clusters with transactional writers show them.
pub const SCOPE_BUGS: [(&str, Bug); 4] = [
    ("staged_before_sync", Bug::StagedBeforeSync),
    ("epochs_in_any_order", Bug::EpochsInAnyOrder),
    ("dead_attempt_published", Bug::DeadAttemptPublished),
    ("stages_dropped", Bug::StagesDropped),
];

/// Faults of offsets that outlive their log: truncates, absent replicas, an owner that an operator forces.
pub const START_BUGS: [(&str, Bug); 3] = [
    ("start_forgotten", Bug::StartForgotten),
    ("start_of_any_epoch", Bug::StartOfAnyEpoch),
    ("position_of_any_epoch", Bug::PositionOfAnyEpoch),
];

/// Faults of replication, by name on the command line: only clusters show them.
pub const REPLICA_BUGS: [(&str, Bug); 6] = [
    ("follower_ack_early", Bug::FollowerAckEarly),
    ("older_epoch_counts", Bug::OlderEpochCounts),
    ("gap_counts", Bug::GapCounts),
    ("table_dropped", Bug::TableDropped),
    ("copy_short", Bug::CopyShort),
    ("cut_keeps_producers", Bug::CutKeepsProducers),
];

/// Faults that a single node shows.
pub const BUGS: [(&str, Bug); 7] = [
    ("ack_before_sync", Bug::AckBeforeSync),
    ("old_epoch", Bug::OldEpoch),
    ("sync_retried", Bug::SyncRetried),
    ("torn_middle", Bug::TornMiddle),
    ("recycled_bytes", Bug::RecycledBytes),
    ("dedupe_forgotten", Bug::DedupeForgotten),
    ("mark_too_high", Bug::MarkTooHigh),
];

/// 0 = none.
static ON: AtomicU8 = AtomicU8::new(0);

/// Switch one fault on for the whole process, or all off.
pub fn plant(bug: Option<Bug>) {
    ON.store(bug.map_or(0, |bug| bug as u8), Ordering::Relaxed);
}

#[must_use]
pub fn is_on(bug: Bug) -> bool {
    ON.load(Ordering::Relaxed) == bug as u8
}
