//! Events: everything that the engine is told. A simulator makes the same ones.

use ringfence_log::{JobDone, StorageError};
use ringfence_transport::{Connection, Inbound};

use crate::api::access_table::AccessTable;
use crate::api::jobs::{ReadEnd, ScrubEnd};
use crate::api::member_key::MemberKey;
use crate::api::order::Order;

/// The two clocks. Deadlines and leases count on the second one, which goes on while the machine sleeps; records carry
/// the first.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Now {
    pub unix_ms: u64,
    pub mono_ms: u64,
}

/// Earliest and latest time of a record, Unix ms, at the moment when they are set.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct TimeWindow {
    pub earliest_ms: u64,
    pub latest_ms: u64,
}

pub enum Event<'a> {
    Opened(Connection),
    Closed(Connection),
    Request {
        connection: Connection,
        header: &'a [u8; 128],
        body: Inbound<'a>,
    },
    /// The connection to another node that [`ToPeer::Connect`] asked for stands, or is gone, or never was.
    PeerOpened(u64),
    PeerClosed(u64),
    /// Another node answered.
    PeerAnswer {
        node: u64,
        header: &'a [u8; 128],
        body: Inbound<'a>,
    },
    JobDone(JobDone),
    ReadEnded(ReadEnd),
    /// A [`PunchPlan`] was carried out, as far as it could be: bytes given back.
    Punched(Result<u64, StorageError>),
    /// A [`ScrubJob`] was carried out.
    Scrubbed(ScrubEnd),
    Order {
        number: u64,
        order: Order,
    },
    /// The control plane's answer to a request that went out as [`Outcome::Request`].
    ControlAnswer {
        connection: Connection,
        header: Box<[u8; 128]>,
        body: Box<[u8]>,
    },
    /// The body of READY.
    SetReady(Box<[u8]>),
    /// The metadata is applied up to this index: producer epochs, which are indexes, are drawn up to it.
    Applied(u64),
    /// Every table that entries up to this index changed is installed.
    SetGeneration(u64),
    /// The leader of the metadata, as an encoded map that watches are told.
    SetController(Box<[u8]>),
    /// Bounds for the times of records.
    SetTimeWindow(TimeWindow),
    /// Which tokens there are.
    SetAccess(Box<AccessTable>),
    /// The key of proofs of members; `None`: nothing is proved.
    SetMembers(Option<MemberKey>),
    /// Time passed: every [`TICK_MS`] at least.
    Tick,
    /// No new requests from here on; what is under way ends.
    Stop,
}

/// Deadlines, retention and stalled requests are looked at this often. 20 ms: a fifth of the shortest deadline that a
/// sender sets in practice.
pub const TICK_MS: u64 = 20;
