//! Deliberate faults of this machine: its tests must find each.

planted_bugs! {
    /// Each fault breaks a rule of `docs/design/cohort_gates.md`.
    pub enum Bug {
        /// Another session is let in while the owner of before may deliver.
        NoOwnerLease = "no_owner_lease",
        /// Another session is let in while the lease of the holder lasts.
        NoHolderLease = "no_holder_lease",
        /// An acknowledgement is answered before its record is committed.
        AnswerEarly = "answer_early",
        /// A new owner begins at the beginning, whatever the log has.
        EmptyAfterFailover = "empty_after_failover",
        /// Any session may acknowledge under the number of a hold.
        AckByAnybody = "ack_by_anybody",
        /// A holder that never releases keeps its gate.
        WaitsForRelease = "waits_for_release",
        /// A plan that names another session ends the hold immediately.
        ReleaseOnPlan = "release_on_plan",
        /// A session is served between the append of its hold and its commit.
        ServedBeforeCommit = "served_before_commit",
        /// A release ends the hold whatever number it names.
        ReleaseOfAnyHold = "release_of_any_hold",
        /// A hold that was given up goes on.
        HoldIsKept = "hold_is_kept",
        /// A beat extends a lease that the plan took away.
        BeatExtendsTaken = "beat_extends_taken",
        /// A gate opens while a seek is not over in its relatives.
        NoBarrier = "no_barrier",
        /// A gate opens while its parents are not drained.
        OpensUndrained = "opens_undrained",
        /// An entry of an incarnation before is read on.
        ResetLeftOut = "reset_left_out",
        /// A gate without an entry begins at offset 0.
        AbsentIsZero = "absent_is_zero",
        /// An older order replaces newer rules.
        OlderRules = "older_rules",
        /// A gate opens under rules that are older than the entry that made this owner.
        OpensEarly = "opens_early",
        /// A gate opens although its log was forgotten by newer metadata.
        KnownIgnored = "known_ignored",
        /// A second record is made while one is under way.
        TwoRecords = "two_records",
        /// A lower acknowledgement takes the position back.
        PositionBack = "position_back",
        /// A position of another history is taken.
        OtherEpoch = "other_epoch",
        /// Numbers of holds begin again with each hold.
        NumbersBeginAnew = "numbers_begin_anew",
        /// Rows below the settled position are served when a member asks for them.
        ServedBelow = "served_below",
        /// That a hold was given counts as a position that was told.
        HoldIsTold = "hold_is_told",
        /// A lease that was extended is forgotten.
        LeaseForgotten = "lease_forgotten",
    }
}
