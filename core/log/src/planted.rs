//! Faults put into the data plane on purpose, one at a time: each must be found by the simulator's checkers, which
//! never ask here. Only with the feature `planted`, which no wheel is built with.

use std::sync::atomic::{AtomicU8, Ordering};

/// Each breaks one promise. Where it sits: `scan.rs` and `rebuild.rs` of this crate, and the stepped runtime.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[repr(u8)]
pub enum Bug {
    /// Answers go out as if the sync had happened (L1).
    AckBeforeSync = 1,
    /// A batch routed under an older owner epoch is appended (I4).
    OldEpoch,
    /// A failed sync is tried again, and the success of the second try is believed (L1).
    SyncRetried,
    /// Recovery takes a damaged group that later ones prove for the torn end, and cuts it (L2, L6).
    TornMiddle,
    /// Recovery takes what a recycled file held before for records (L4).
    RecycledBytes,
    /// Recovery forgets which batches were stored (I6).
    DedupeForgotten,
    /// Readers are shown what is not durable (I14).
    MarkTooHigh,
    /// A replica answers before its sync (S2).
    FollowerAckEarly,
    /// The mark counts records of an older epoch alone (S3).
    OlderEpochCounts,
    /// What a replica received behind a gap counts as its end (S2).
    GapCounts,
    /// Who adopts a copy forgets which batches are in it (I6).
    TableDropped,
    /// A copy is taken for whole one record before its end (I11).
    CopyShort,
    /// Staged rows are answered, and counted for their commit, before their sync (L1).
    StagedBeforeSync,
    /// A publish does not wait for those of the scope's earlier epochs.
    EpochsInAnyOrder,
    /// A publish gives offsets to whatever is staged in its epoch, whichever tokens the commit names.
    DeadAttemptPublished,
    /// Who adopts a copy forgets what is staged in it.
    StagesDropped,
    /// A truncation takes answers out of the producer table, and leaves what else its records changed (I6).
    CutKeepsProducers,
    /// A log start that was ordered beyond the mark is not carried out when the mark gets there.
    StartForgotten,
    /// A log start gives up rows of later owner epochs, too.
    StartOfAnyEpoch,
    /// A reader goes on at an offset, of whatever epoch the row is that it read before.
    PositionOfAnyEpoch,
}

/// Those of staged rows: only clusters with transactional writers show them.
pub const SCOPE_BUGS: [(&str, Bug); 4] = [
    ("staged_before_sync", Bug::StagedBeforeSync),
    ("epochs_in_any_order", Bug::EpochsInAnyOrder),
    ("dead_attempt_published", Bug::DeadAttemptPublished),
    ("stages_dropped", Bug::StagesDropped),
];

/// Those of offsets that outlive their log: a truncate and who was not there, an owner that an operator forces.
pub const START_BUGS: [(&str, Bug); 3] = [
    ("start_forgotten", Bug::StartForgotten),
    ("start_of_any_epoch", Bug::StartOfAnyEpoch),
    ("position_of_any_epoch", Bug::PositionOfAnyEpoch),
];

/// Those of replication, by name on the command line: only clusters show them.
pub const REPLICA_BUGS: [(&str, Bug); 6] = [
    ("follower_ack_early", Bug::FollowerAckEarly),
    ("older_epoch_counts", Bug::OlderEpochCounts),
    ("gap_counts", Bug::GapCounts),
    ("table_dropped", Bug::TableDropped),
    ("copy_short", Bug::CopyShort),
    ("cut_keeps_producers", Bug::CutKeepsProducers),
];

/// Those that one node alone shows.
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

/// Switch one on for the whole process, or all off.
pub fn plant(bug: Option<Bug>) {
    ON.store(bug.map_or(0, |bug| bug as u8), Ordering::Relaxed);
}

#[must_use]
pub fn is_on(bug: Bug) -> bool {
    ON.load(Ordering::Relaxed) == bug as u8
}
