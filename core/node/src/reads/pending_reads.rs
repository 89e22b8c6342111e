//! Fetches by where they are: with the reader, waiting for rows, waiting for a block.

use std::collections::{BTreeSet, VecDeque};

use ringfence_log::{ReadDone, ReadFrom};
use ringfence_routing::IdMap;
use ringfence_transport::Connection;
use ringfence_wire::{Opcode, REQUEST_FLAG_STAGED, RequestHeader};

use crate::api::jobs::ReadEnd;
use crate::api::refusal::Refusal;
use crate::ids::PartitionIndex;

/// One FETCH or `OFFSET_FOR_TIME` under way.
#[derive(Debug)]
pub struct Fetch {
    pub connection: Connection,
    pub header: RequestHeader,
    pub index: PartitionIndex,
    /// Of the partition when it was asked.
    pub incarnation: u64,
    pub from: ReadFrom,
    /// Block to read into.
    pub bytes: usize,
    pub deadline_ms: u64,
    /// It met damage and waits until then at most for the repair; 0 = it did not.
    pub held_until_ms: u64,
    /// It waits for a block until then at most; 0 = it has not waited.
    pub queued_until_ms: u64,
    /// Of a member: the hold under which it is served.
    pub member: Option<MemberFetch>,
}

/// The hold of a member's FETCH. Its session is in the header.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct MemberFetch {
    pub cohort: u64,
    /// Of a QUEUE: the incarnation.
    pub number: u64,
    /// Of a QUEUE: the rows on lease that the answer is to have.
    pub grant: Option<Grant>,
}

/// Rows on lease for one FETCH of a QUEUE.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Grant {
    pub number: u64,
    /// End of the last of its rows: records after it are not read.
    pub end: u64,
}

/// A read for a member that has ended.
pub struct MemberRead {
    pub fetch: Fetch,
    pub member: MemberFetch,
    pub done: ReadDone,
    pub end: ReadEnd,
}

impl std::fmt::Debug for MemberRead {
    fn fmt(&self, out: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        out.debug_tuple("MemberRead").field(&self.fetch).finish()
    }
}

/// A question whose answer says where the log ends; it waits until a quorum has confirmed this owner.
#[derive(Debug)]
pub enum EndQuestion {
    Ends {
        from: Connection,
        header: Box<RequestHeader>,
    },
    /// A FETCH at a position that this log does not have.
    Position {
        from: Connection,
        header: Box<RequestHeader>,
        refusal: Box<Refusal>,
    },
    /// A poll that found nothing.
    Empty(Box<Fetch>),
    /// Rows for a member.
    Member(Box<MemberRead>),
    /// What is stored of a producer.
    Resolve {
        from: Connection,
        header: Box<RequestHeader>,
    },
}

/// Fetches by where they are.
#[derive(Debug, Default)]
pub struct Reads {
    /// With the reader.
    pub(super) under_way: IdMap<Fetch>,
    /// Waiting for rows, by ticket.
    pub(super) polls: IdMap<Fetch>,
    /// (deadline, ticket) of `polls`.
    pub(super) deadlines: BTreeSet<(u64, u64)>,
    /// Questions that wait for a quorum, by ticket.
    pub(super) questions: IdMap<(PartitionIndex, EndQuestion)>,
    /// Waiting for a block.
    pub(super) queued: VecDeque<Fetch>,
    /// When `queued` is looked through again for those that have waited too long.
    pub(super) queue_look_ms: u64,
}

/// Reads with the reader at a time: it is one thread, more only hold blocks.
pub const UNDER_WAY_MAX: usize = 64;

/// A fetch waits so long for a block, or until its deadline if that is later: clients send it again after 30 s
/// (`TRY_S_MAX` in `client/network/request.py`). Read later, its answer reaches nobody, and takes the disk's time from
/// the fetch that was sent again.
pub const QUEUED_MS_MAX: u64 = 30_000;

/// Time between two looks at all that wait for a block: 65,536 of them take a millisecond.
pub const QUEUE_LOOK_MS: u64 = 250;

/// Waiting for a block or for rows; above that a fetch is answered empty immediately. 256 bytes each: 16 MiB.
pub const WAITING_MAX: usize = 65_536;

impl Reads {
    pub fn end_poll(&mut self, ticket: u64) -> Option<Fetch> {
        let fetch = self.polls.remove(&ticket)?;
        self.deadlines.remove(&(fetch.deadline_ms, ticket));
        Some(fetch)
    }

    /// (connection, header) of what waits for rows or blocks, where `which` holds.
    pub fn headers_where(
        &self,
        which: impl Fn(Connection, &RequestHeader) -> bool,
    ) -> Vec<(Connection, RequestHeader)> {
        let all = self.polls.values().chain(&self.queued).filter(|fetch| which(fetch.connection, &fetch.header));
        all.map(|fetch| (fetch.connection, fetch.header)).collect()
    }

    pub fn waiting(&self) -> usize {
        self.polls.len()
    }

    /// Of the pool, for the read that waits longest; 0: none does, or it waits for its turn with the reader.
    pub fn wanted_bytes(&self) -> usize {
        let next = self.queued.front().filter(|_| self.under_way.len() < UNDER_WAY_MAX);
        next.map_or(0, |fetch| fetch.bytes)
    }

    pub fn under_way(&self) -> usize {
        self.under_way.len() + self.queued.len()
    }

    /// Everything that waits for rows or blocks.
    pub fn take_waiting(&mut self) -> Vec<Fetch> {
        self.deadlines.clear();
        let polls: Vec<Fetch> = self.polls.drain().map(|(_, fetch)| fetch).collect();
        polls.into_iter().chain(self.queued.drain(..)).collect()
    }
}

/// FETCH by record number: the rows that a publish record names.
pub fn wants_staged(header: &RequestHeader) -> bool {
    header.opcode == Opcode::Fetch as u8 && u16::from(header.flags) & REQUEST_FLAG_STAGED != 0
}
