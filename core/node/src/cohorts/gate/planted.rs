//! Deliberate faults of this machine, one at a time and thread: its tests must find each. They exist with the feature
//! `planted` alone, which no wheel has.

/// Each fault breaks a rule of `docs/design/cohort_gates.md`.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Bug {
    /// Another session is let in while the owner of before may deliver.
    NoOwnerLease,
    /// Another session is let in while the lease of the holder lasts.
    NoHolderLease,
    /// An acknowledgement is answered before its record is committed.
    AnswerEarly,
    /// A new owner begins at the beginning, whatever the log has.
    EmptyAfterFailover,
    /// Any session may acknowledge under the number of a hold.
    AckByAnybody,
    /// A holder that never releases keeps its gate.
    WaitsForRelease,
    /// A plan that names another session ends the hold at once.
    ReleaseOnPlan,
    /// A session is served between the append of its hold and its commit.
    ServedBeforeCommit,
    /// A release ends the hold whatever number it names.
    ReleaseOfAnyHold,
    /// A hold that was given up goes on.
    HoldIsKept,
    /// A beat extends a lease that the plan took away.
    BeatExtendsTaken,
    /// A gate opens while a seek is not over in its relatives.
    NoBarrier,
    /// A gate opens while its parents are not drained.
    OpensUndrained,
    /// An entry of an incarnation before is read on.
    ResetLeftOut,
    /// A gate without an entry begins at offset 0.
    AbsentIsZero,
    /// An older order replaces newer rules.
    OlderRules,
    /// A gate opens under rules that are older than the entry that made this owner.
    OpensEarly,
    /// A gate opens although its log was forgotten by newer metadata.
    KnownIgnored,
    /// A second record is made while one is under way.
    TwoRecords,
    /// A lower acknowledgement takes the position back.
    PositionBack,
    /// A position of another history is taken.
    OtherEpoch,
    /// Numbers of holds begin again with each hold.
    NumbersBeginAnew,
    /// Rows below the settled position are served when a member asks for them.
    ServedBelow,
    /// That a hold was given counts as a position that was told.
    HoldIsTold,
    /// A lease that was extended is forgotten.
    LeaseForgotten,
}

/// All, by name.
#[cfg(all(feature = "planted", test))]
pub const BUGS: [(&str, Bug); 25] = [
    ("no_owner_lease", Bug::NoOwnerLease),
    ("no_holder_lease", Bug::NoHolderLease),
    ("answer_early", Bug::AnswerEarly),
    ("empty_after_failover", Bug::EmptyAfterFailover),
    ("ack_by_anybody", Bug::AckByAnybody),
    ("waits_for_release", Bug::WaitsForRelease),
    ("release_on_plan", Bug::ReleaseOnPlan),
    ("served_before_commit", Bug::ServedBeforeCommit),
    ("release_of_any_hold", Bug::ReleaseOfAnyHold),
    ("hold_is_kept", Bug::HoldIsKept),
    ("beat_extends_taken", Bug::BeatExtendsTaken),
    ("no_barrier", Bug::NoBarrier),
    ("opens_undrained", Bug::OpensUndrained),
    ("reset_left_out", Bug::ResetLeftOut),
    ("absent_is_zero", Bug::AbsentIsZero),
    ("older_rules", Bug::OlderRules),
    ("opens_early", Bug::OpensEarly),
    ("known_ignored", Bug::KnownIgnored),
    ("two_records", Bug::TwoRecords),
    ("position_back", Bug::PositionBack),
    ("other_epoch", Bug::OtherEpoch),
    ("numbers_begin_anew", Bug::NumbersBeginAnew),
    ("served_below", Bug::ServedBelow),
    ("hold_is_told", Bug::HoldIsTold),
    ("lease_forgotten", Bug::LeaseForgotten),
];

#[cfg(feature = "planted")]
thread_local! {
    static ON: std::cell::Cell<Option<Bug>> = const { std::cell::Cell::new(None) };
}

/// Switch one fault on for this thread, or all off.
#[cfg(all(feature = "planted", test))]
pub fn plant(bug: Option<Bug>) {
    ON.set(bug);
}

#[cfg(feature = "planted")]
pub fn is_on(bug: Bug) -> bool {
    ON.get() == Some(bug)
}

#[cfg(not(feature = "planted"))]
#[inline]
pub const fn is_on(_: Bug) -> bool {
    false
}
