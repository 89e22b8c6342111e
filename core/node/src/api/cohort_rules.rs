//! Rules of gates, as the control plane derives them from its own applied metadata. Each order replaces the rules of its
//! cohorts as a whole.

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Mode {
    Stream,
    Checkpoint,
    Queue,
}

/// What all gates of a cohort have in common.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct CohortRule {
    pub topic: u64,
    pub cohort: u64,
    pub mode: Mode,
    /// Number of the present beginning: the id of the cohort, or that of its last seek.
    pub incarnation: u64,
    /// Of the plan.
    pub generation: u64,
    /// A holder that lost the partition has so long to acknowledge.
    pub handover_ms: u64,
    pub lease_ms: u64,
    pub limit: u8,
    /// Registered members, ascending.
    pub sessions: Box<[u64]>,
}

/// Where a cohort begins in a partition of which its log says nothing (CD7).
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Beginning {
    At {
        offset: u64,
        epoch: u64,
    },
    /// It begins after all rows of the partition.
    Finished,
    /// At the end of the rows, when the owner writes so.
    NotBegun,
}

/// A parent that was pruned, and what the cohort had of it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Note {
    pub partition: u64,
    pub end: u64,
    /// Rows of it were never read.
    pub is_missed: bool,
}

/// What the metadata says of one gate.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct GateRule {
    pub topic: u64,
    pub partition: u64,
    /// The partition whose log has the gate: itself, or its heir.
    pub log: u64,
    pub cohort: u64,
    /// The session that the plan names; 0: none.
    pub assignee: u64,
    pub beginning: Beginning,
    /// The cohort is through with the partition.
    pub is_through: bool,
    /// A seek is not over in the partition or one of its relatives (CD6).
    pub is_sought: bool,
    /// Rows before this partition were removed unread (CR3).
    pub has_missed: bool,
    /// The end of a SEALED partition.
    pub end: Option<u64>,
    /// Parents that are not drained.
    pub waits_for: Box<[u64]>,
    /// Parents of which rows were settled, with their ends.
    pub read: Box<[(u64, u64)]>,
    pub notes: Box<[Note]>,
}

/// The rules of some cohorts as of a metadata index.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct CohortRules {
    pub index: u64,
    pub cohorts: Vec<CohortRule>,
    /// All gates of these cohorts that this store owns.
    pub gates: Vec<GateRule>,
    /// (topic, cohort) of deleted ones.
    pub gone: Vec<(u64, u64)>,
    /// Topics of which all cohorts are known by now.
    pub complete: Vec<u64>,
}

/// What the log of a gate has, in records below the mark.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct GateProgress {
    pub topic: u64,
    pub partition: u64,
    pub cohort: u64,
    /// Of its entry; 0: it has none, and is at its beginning.
    pub incarnation: u64,
    pub offset: u64,
    /// A member settled a position in this incarnation.
    pub is_settled: bool,
    /// The hold of an incarnation before may last.
    pub is_held: bool,
    /// Owner epoch under which the log is open here.
    pub epoch: u64,
}

/// Figures of one gate.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct GateFigures {
    pub topic: u64,
    pub partition: u64,
    pub cohort: u64,
    /// `None`: the cohort has not begun here.
    pub settled: Option<u64>,
    pub end: u64,
    /// Session that has the gate; 0: none. `number` is its hold's.
    pub holder: u64,
    pub number: u64,
    /// Of a QUEUE: rows that are neither done nor parked, on lease or not. Of others: rows after `settled`.
    pub open_rows: u64,
    pub leased_rows: u64,
    /// Ranges that the log has beside the floor.
    pub ranges: u64,
    pub parked: u64,
    pub parked_rows: u64,
    /// Why no new rows are leased: "ranges", or "parked" if more than half are parkings; "": they are.
    pub paused: &'static str,
}
