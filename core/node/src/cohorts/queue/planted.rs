//! Deliberate faults of this machine: its tests must find each.

planted_bugs! {
    /// Each fault breaks a rule of `docs/design/cohort_queue.md`.
    pub enum Bug {
        /// An acknowledgement is answered before its record is committed.
        AnswerEarly = "answer_early",
        /// A failure that is told by a session without the lease ends the lease of another.
        AckSteals = "ack_steals",
        /// A row that came back below the newest done one is not delivered.
        FloorSkips = "floor_skips",
        /// A row on lease is delivered to another session.
        TwoLeases = "two_leases",
        /// A row that fails is delivered for ever.
        NoLimit = "no_limit",
        /// The lease of a session that is gone never ends.
        LeaseOutlives = "lease_outlives",
        /// A new owner delivers while the owner of before may.
        LeasesWithinL = "leases_within_l",
        /// A new owner answers acknowledgements while the owner of before may deliver.
        AnswersWithinL = "answers_within_l",
        /// A row is delivered again before its count is in the log.
        CountsRideAlong = "counts_ride_along",
        /// That a row is parked is not in the log.
        ParkedInMemory = "parked_in_memory",
        /// A parked row holds the floor.
        ParkedHoldsFloor = "parked_holds_floor",
        /// A gate with parkings may be forgotten.
        ForgetParked = "forget_parked",
        /// That a parking was put back is in the log, that its rows are available is not.
        RetryIsSoft = "retry_is_soft",
        /// A parking is put back although its export is decided.
        RetryExported = "retry_exported",
        /// A parking is put back while its export is not decided.
        RetryWhileExporting = "retry_while_exporting",
        /// An export is allowed to commit before the log says that it was begun.
        ExportTakesNothing = "export_takes_nothing",
        /// A parking is over by an export that is not committed.
        MarkedFirst = "marked_first",
        /// A parking is over by an export under another scope.
        ScopeNotCompared = "scope_not_compared",
        /// Parking numbers begin again after a seek.
        NumbersBeginAnew = "numbers_begin_anew",
        /// Done is taken for rows of another owner epoch.
        OtherEpoch = "other_epoch",
        /// Done rows beyond the bound are answered and forgotten.
        RangesDropped = "ranges_dropped",
        /// A full gate drops the oldest parking.
        ParkingsDropped = "parkings_dropped",
        /// A full gate leases new rows.
        LeasesWhenFull = "leases_when_full",
        /// An acknowledgement cuts ranges beyond the bound.
        CutsWhenFull = "cuts_when_full",
        /// A failing range comes back whole.
        ComesBackWhole = "comes_back_whole",
        /// A range of several rows is parked by the limit.
        LimitParksRanges = "limit_parks_ranges",
        /// The halves of a range at the limit are not given their own last deliveries.
        HalvesAtLimit = "halves_at_limit",
        /// The floor goes back to rows that were put back.
        RetryMovesFloor = "retry_moves_floor",
        /// Rows that failed with a delay come without it.
        DelayIgnored = "delay_ignored",
        /// Rows that came back from a connection that ended are not marked.
        AgainForgotten = "again_forgotten",
        /// Rows that were delivered and never begun are counted.
        CountsUnbegun = "counts_unbegun",
        /// Rows that were begun are not counted when their lease ends.
        BegunNotCounted = "begun_not_counted",
        /// A lease is extended for a session that does not have it.
        ExtendsAnyLease = "extends_any_lease",
        /// A lease is extended for ever.
        ExtendsForever = "extends_forever",
        /// Rows that are acknowledged while no session has them are delivered all the same.
        LateDoneIgnored = "late_done_ignored",
    }
}

#[cfg(feature = "planted")]
pub fn is_any_on() -> bool {
    ON.get().is_some()
}

#[cfg(not(feature = "planted"))]
#[inline]
pub const fn is_any_on() -> bool {
    false
}
