//! Deliberate faults of this table: its tests must find each.

planted_bugs! {
    /// Each fault breaks a rule of `docs/design/cohort_gates.md`, "Sessions".
    pub enum Bug {
        /// A proof is good in every cluster with this key.
        AnyCluster = "any_cluster",
        /// A proof is good for every cohort.
        AnyCohort = "any_cohort",
        /// A proof is good for every session.
        AnySession = "any_session",
        /// A proof is good for every token.
        AnyCredential = "any_credential",
        /// Not all bytes of a proof are compared.
        FirstBytesOnly = "first_bytes_only",
        /// A member that shows nothing is let in.
        ProofOptional = "proof_optional",
        /// A connection without a credential is let in.
        CredentialOptional = "credential_optional",
        /// A proof is asked for in the first ATTACH of a connection only.
        ProvedOnce = "proved_once",
        /// A new key is not taken.
        OldKeyStays = "old_key_stays",
        /// A new key ends the sessions of attached connections.
        NewKeyDetaches = "new_key_detaches",
        /// A connection may act for a second session.
        SecondSession = "second_session",
        /// A refused ATTACH ends what the connection was attached for.
        RefusalDetaches = "refusal_detaches",
        /// Who loses a session to a newer connection goes on.
        OlderGoesOn = "older_goes_on",
        /// Who lost a session takes it back.
        OlderTakesBack = "older_takes_back",
        /// The end of an older connection ends the session of the newer one.
        OlderEndsNewer = "older_ends_newer",
        /// A beat of an older connection counts.
        OlderBeats = "older_beats",
        /// A connection acts for any session.
        AnyActs = "any_acts",
        /// A closed connection's session counts as attached.
        StaysAttached = "stays_attached",
        /// A session that is not registered any more goes on.
        EndedGoesOn = "ended_goes_on",
        /// A member that is silent counts as heard.
        SilentCounts = "silent_counts",
        /// A member that was silent does not count again.
        SilentForever = "silent_forever",
        /// Sessions come in the order of their connections.
        Unordered = "unordered",
    }
}
