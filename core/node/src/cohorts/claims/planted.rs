//! Deliberate faults of this machine: its tests must find each.

planted_bugs! {
    /// Each fault breaks a rule of `docs/design/consumed.md`.
    pub enum Bug {
        /// The next member is let in although a claim is open.
        NoLock = "no_lock",
        /// The next member is let in although a decided position is not written.
        DecidedIsFree = "decided_is_free",
        /// A claim is compared by its scope and epoch alone.
        TokenUnchecked = "token_unchecked",
        /// A position is written before the rows of its commit are published.
        PositionsFirst = "positions_first",
        /// A claim need not begin at the settled position.
        FromUnchecked = "from_unchecked",
        /// A claim of another hold is taken.
        HoldUnchecked = "hold_unchecked",
        /// No claim that keeps another member out is ended.
        NeverForced = "never_forced",
        /// A claim is taken while a decided position of the gate is not written.
        ClaimOverDecided = "claim_over_decided",
        /// A second claim takes the place of one that is open.
        SecondClaim = "second_claim",
        /// A claim counts as gone after some time.
        DroppedByTime = "dropped_by_time",
        /// A session that this node does not know yet counts as over.
        NewSessionIsGone = "new_session_is_gone",
        /// A position of an incarnation that is over is written.
        OldIncarnation = "old_incarnation",
        /// A claim outlives the position that it was for.
        NeverOver = "never_over",
        /// Plain acknowledgements are taken while a claim stands.
        PlainOverClaim = "plain_over_claim",
    }
}
