//! Counters of the engine. Plain numbers: only the engine's thread writes them, a snapshot is a copy.

use ringfence_wire::Code;

macro_rules! counters {
    ($($name:ident: $doc:literal,)*) => {
        /// Totals since start, unless the name says otherwise. Names are those of docs/operations.md.
        #[derive(Clone, Debug, PartialEq, Eq)]
        pub struct Counters {
            $(#[doc = $doc] pub $name: u64,)*
            /// By number of [`Code`].
            pub refused_by_code: [u64; CODES],
        }

        impl Default for Counters {
            fn default() -> Self {
                Self { $($name: 0,)* refused_by_code: [0; CODES] }
            }
        }

        impl Counters {
            /// Every counter by name, refusals as `refused_<code>` where any happened.
            pub fn list(&self, out: &mut Vec<(&'static str, u64)>) {
                $(out.push((stringify!($name), self.$name));)*
                for number in 1..CODES {
                    let code = u16::try_from(number).ok().and_then(Code::from_number);
                    if let (Some(code), count @ 1..) = (code, self.refused_by_code[number]) {
                        out.push((refused_name(code), count));
                    }
                }
            }
        }
    };
}

/// One more than the greatest number of a code.
const CODES: usize = 64;

counters! {
    requests: "requests received, every opcode",
    publishes: "PUBLISH requests",
    fetches: "FETCH requests",
    cohort_records: "records of cohorts appended: positions and holds",
    cohort_reserve_records: "records of cohorts in the reserve of a full disk, here and for other owners",
    queue_looks: "partitions looked at for waiting members of queues",
    appended: "batches appended",
    rows: "rows appended",
    bytes: "body bytes appended",
    staged: "batches staged without offsets",
    published: "epochs of scopes published, one a partition",
    acknowledged: "batches acknowledged as durable",
    acknowledged_1_ms: "batches acknowledged within 1 ms of their arrival",
    acknowledged_2_ms: "batches acknowledged after more than 1 and at most 2 ms",
    acknowledged_5_ms: "batches acknowledged after more than 2 and at most 5 ms",
    acknowledged_10_ms: "batches acknowledged after more than 5 and at most 10 ms",
    acknowledged_20_ms: "batches acknowledged after more than 10 and at most 20 ms",
    acknowledged_50_ms: "batches acknowledged after more than 20 and at most 50 ms",
    acknowledged_100_ms: "batches acknowledged after more than 50 and at most 100 ms",
    acknowledged_200_ms: "batches acknowledged after more than 100 and at most 200 ms",
    acknowledged_500_ms: "batches acknowledged after more than 200 and at most 500 ms",
    acknowledged_1000_ms: "batches acknowledged after more than 500 and at most 1000 ms",
    acknowledged_2000_ms: "batches acknowledged after more than 1000 and at most 2000 ms",
    acknowledged_5000_ms: "batches acknowledged after more than 2000 and at most 5000 ms",
    acknowledged_later: "batches acknowledged after more than 5000 ms",
    repeated: "batches that were stored before",
    redirected: "requests redirected",
    refused: "requests refused",
    parked: "requests parked for a newer table, in all",
    stalled: "requests that waited for a free group or block, in all",
    groups: "commit groups made durable: fsyncs of the log",
    bytes_written: "bytes of these groups, padding included",
    reads: "reads for fetches",
    bytes_read: "bytes of these reads",
    polls: "fetches that waited for rows, in all",
    pushes: "routing tables pushed",
    push_bytes: "body bytes of pushed tables and updates of watches",
    pushes_replaced: "changes of a table that came while an older one waited for its acknowledgement",
    tables_unchanged: "TABLE requests of clients that hold the table, answered without it",
    watch_updates: "updates of watches",
    control_requests: "requests handed to the control plane",
    connections_opened: "connections accepted",
    connections_closed: "connections ended",
    inflated_bytes: "bytes that compressed bodies were inflated to for their check",
    body_panics: "bodies whose check panicked: a defect of ours, refused `internal`",
    producers_forgotten: "producers without a name that expired, or were idle when memory was short",
    states_written: "state records written",
    revived: "partitions that came back before the files of what was dropped were gone",
    punched_bytes: "bytes of dropped partitions given back as holes, before their files could go",
    punch_failures: "holes that the file system refused: that space comes back with its file",
    replicated_bytes: "bytes of records sent to replicas",
    copied_bytes: "bytes of these that were read from disk: for replicas that were behind",
    tail_bytes: "bytes of these that memory kept until a replica had room for them",
    received_records: "records appended as a replica",
    received_bytes: "body bytes of these",
    scrubbed_bytes: "bytes read back in the background",
    scrub_damaged: "records found damaged on disk",
    scrub_repaired: "of these, put right with what another replica has",
    scrub_failures: "reads and repairs in the background that failed",
    copies_served: "records given to replicas whose own is damaged",
    cuts: "times that this store's log was cut to agree with an owner's",
}

impl Counters {
    /// Count a request that is refused.
    pub fn refuse(&mut self, code: Code) {
        self.refused += 1;
        self.refused_by_code[code as usize] += 1;
    }

    /// Count a batch that is acknowledged so many ms after its arrival.
    pub fn acknowledge(&mut self, ms: u64) {
        self.acknowledged += 1;
        let bucket = match ms {
            0..=1 => &mut self.acknowledged_1_ms,
            2 => &mut self.acknowledged_2_ms,
            3..=5 => &mut self.acknowledged_5_ms,
            6..=10 => &mut self.acknowledged_10_ms,
            11..=20 => &mut self.acknowledged_20_ms,
            21..=50 => &mut self.acknowledged_50_ms,
            51..=100 => &mut self.acknowledged_100_ms,
            101..=200 => &mut self.acknowledged_200_ms,
            201..=500 => &mut self.acknowledged_500_ms,
            501..=1000 => &mut self.acknowledged_1000_ms,
            1001..=2000 => &mut self.acknowledged_2000_ms,
            2001..=5000 => &mut self.acknowledged_5000_ms,
            _ => &mut self.acknowledged_later,
        };
        *bucket += 1;
    }
}

fn refused_name(code: Code) -> &'static str {
    macro_rules! names {
        ($($variant:ident => $name:literal,)*) => {
            match code { $(Code::$variant => $name,)* }
        };
    }
    names! {
        BadHeader => "refused_bad_header",
        UnsupportedVersion => "refused_unsupported_version",
        UnknownOpcode => "refused_unknown_opcode",
        TooLarge => "refused_too_large",
        BodyCrc => "refused_body_crc",
        BadBody => "refused_bad_body",
        UnsupportedType => "refused_unsupported_type",
        WrongSchema => "refused_wrong_schema",
        WrongSlot => "refused_wrong_slot",
        ZeroRows => "refused_zero_rows",
        UnknownTopic => "refused_unknown_topic",
        UnknownPartition => "refused_unknown_partition",
        SequenceGap => "refused_sequence_gap",
        Conflict => "refused_conflict",
        FencedProducer => "refused_fenced_producer",
        Forgotten => "refused_forgotten",
        TooOld => "refused_too_old",
        Ahead => "refused_ahead",
        Deadline => "refused_deadline",
        Held => "refused_held",
        Truncated => "refused_truncated",
        Quarantined => "refused_quarantined",
        DiskFull => "refused_disk_full",
        StorageFailed => "refused_storage_failed",
        Overloaded => "refused_overloaded",
        TooFewReplicas => "refused_too_few_replicas",
        AlreadyExists => "refused_already_exists",
        InvalidArgument => "refused_invalid_argument",
        Unauthorized => "refused_unauthorized",
        Stopping => "refused_stopping",
        Internal => "refused_internal",
        NotSupported => "refused_not_supported",
        UnknownOutcome => "refused_unknown_outcome",
        ResumeUnknown => "refused_resume_unknown",
        Moved => "refused_moved",
        NotAssigned => "refused_not_assigned",
        FencedMember => "refused_fenced_member",
        UnknownCohort => "refused_unknown_cohort",
        StaleClaim => "refused_stale_claim",
    }
}
