//! Deliberate faults of members at an engine: `tests/members.rs` and `tests/replication/members.rs` must find each.

planted_bugs! {
    /// Each fault breaks a rule of `docs/design/cohort_gates.md`.
    pub enum Bug {
        /// A beat extends leases at an owner that no quorum has confirmed (CG11).
        UnheardBeatExtends = "unheard_beat_extends",
        /// A beat is answered before a quorum was heard: it extends nothing at an idle partition.
        BeatDoesNotWait = "beat_does_not_wait",
        /// The answer of a quorum counts from when it came, not from when it was asked for.
        LateAnswerCounts = "late_answer_counts",
        /// Where a sealed partition ends is told at an owner that no quorum has confirmed.
        UnheardEndIsTold = "unheard_end_is_told",
        /// Each FETCH that waits without result is told that something comes before.
        AlwaysBlocked = "always_blocked",
        /// Polls of members go on while a change holds the partition (CG13).
        HeldDelivers = "held_delivers",
    }
}
