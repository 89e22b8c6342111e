//! The volatile part of a QUEUE gate: disjoint pieces of rows that are on lease, wait for a record or for a time, or came
//! back. Lost with the owner.

use std::collections::{BTreeMap, BTreeSet};

use super::grants::Grants;
use super::span::Span;

#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Lease {
    pub session: u64,
    pub deadline_ms: u64,
    pub grant: u64,
    /// The application has been given these rows: the end of the lease counts.
    pub is_begun: bool,
    /// They were delivered as rows that came back from a connection that ended.
    pub again: bool,
}

/// What the next record says of a piece.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Verdict {
    Done,
    /// Available with the piece's count, from this time on; 0: once the record is committed.
    Failed {
        from_ms: u64,
        again: bool,
    },
    Parked {
        reason: Box<str>,
    },
}

#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Held {
    Leased(Lease),
    /// Told, but not committed.
    Settling {
        verdict: Verdict,
        /// Its record is appended.
        in_flight: bool,
        /// Done was told while a failure was in flight: it goes into the record after.
        late_done: bool,
    },
    Delayed {
        until_ms: u64,
        again: bool,
    },
    Returned {
        again: bool,
    },
}

#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Piece {
    pub end: u64,
    /// Deliveries that ended badly, this one included once it did.
    pub count: u8,
    pub held: Held,
}

impl Piece {
    pub fn is_pending_done(&self) -> bool {
        matches!(self.held, Held::Settling { verdict: Verdict::Done, in_flight: false, .. })
    }

    /// Done or parked, once its record is committed.
    pub fn is_settling_for_good(&self) -> bool {
        matches!(&self.held, Held::Settling { verdict, .. } if !matches!(verdict, Verdict::Failed { .. }))
    }

    pub fn is_settling_done(&self) -> bool {
        matches!(self.held, Held::Settling { verdict: Verdict::Done, .. })
    }
}

#[derive(Clone, Debug, Default)]
pub struct Pieces {
    map: BTreeMap<u64, Piece>,
    /// (time, first row) of leases and delays.
    times: BTreeSet<(u64, u64)>,
    returned: BTreeSet<u64>,
    settling: BTreeSet<u64>,
    /// Rows on lease of each session that has any.
    leased_rows: BTreeMap<u64, u64>,
    pub grants: Grants,
}

impl Pieces {
    pub fn len(&self) -> usize {
        self.map.len()
    }

    pub fn get(&self, first: u64) -> Option<&Piece> {
        self.map.get(&first)
    }

    pub fn iter(&self) -> impl Iterator<Item = (Span, &Piece)> {
        self.map.iter().map(|(&first, piece)| (Span { first, end: piece.end }, piece))
    }

    pub fn at(&self, row: u64) -> Option<(Span, &Piece)> {
        let (&first, piece) = self.map.range(..=row).next_back()?;
        (row < piece.end).then_some((Span { first, end: piece.end }, piece))
    }

    /// Pieces with rows of this span, ascending.
    pub fn overlapping(&self, span: Span) -> impl Iterator<Item = (Span, &Piece)> {
        let first = self.at(span.first).map_or(span.first, |(piece, _)| piece.first);
        self.map.range(first..span.end).map(|(&first, piece)| (Span { first, end: piece.end }, piece))
    }

    pub fn next_from(&self, row: u64) -> Option<u64> {
        self.map.range(row..).next().map(|(&first, _)| first)
    }

    pub fn first_returned(&self, row: u64) -> Option<u64> {
        self.returned.range(row..).next().copied()
    }

    pub fn settling(&self) -> &BTreeSet<u64> {
        &self.settling
    }

    pub fn leased_rows(&self, session: u64) -> u64 {
        self.leased_rows.get(&session).copied().unwrap_or(0)
    }

    /// Sessions with rows on lease, ascending.
    pub fn sessions(&self) -> impl Iterator<Item = u64> {
        self.leased_rows.keys().copied()
    }

    pub fn next_time(&self) -> Option<u64> {
        self.times.first().map(|&(time, _)| time)
    }

    /// First row of a piece whose time has come.
    pub fn first_due(&self, now_ms: u64) -> Option<u64> {
        self.times.first().filter(|&&(time, _)| time <= now_ms).map(|&(_, first)| first)
    }

    pub fn firsts_of(&self, session: u64) -> Vec<u64> {
        let of_session = |piece: &Piece| matches!(&piece.held, Held::Leased(lease) if lease.session == session);
        self.map.iter().filter(|(_, piece)| of_session(piece)).map(|(&first, _)| first).collect()
    }

    pub fn firsts_in(&self, span: Span) -> Vec<u64> {
        self.map.range(span.first..span.end).map(|(&first, _)| first).collect()
    }

    pub fn insert(&mut self, first: u64, piece: Piece, now_ms: u64) {
        self.index(first, &piece, now_ms);
        self.map.insert(first, piece);
    }

    pub fn remove(&mut self, first: u64) -> Option<Piece> {
        let piece = self.map.remove(&first)?;
        match &piece.held {
            Held::Leased(lease) => {
                self.times.remove(&(lease.deadline_ms, first));
                self.count_leased(lease.session, piece.end - first, false);
                self.grants.leave(lease.grant);
            }
            Held::Settling { .. } => drop(self.settling.remove(&first)),
            Held::Delayed { until_ms, .. } => drop(self.times.remove(&(*until_ms, first))),
            Held::Returned { .. } => drop(self.returned.remove(&first)),
        }
        Some(piece)
    }

    fn index(&mut self, first: u64, piece: &Piece, now_ms: u64) {
        match &piece.held {
            Held::Leased(lease) => {
                self.times.insert((lease.deadline_ms, first));
                self.count_leased(lease.session, piece.end - first, true);
                self.grants.join(lease.grant, now_ms);
            }
            Held::Settling { .. } => drop(self.settling.insert(first)),
            Held::Delayed { until_ms, .. } => drop(self.times.insert((*until_ms, first))),
            Held::Returned { .. } => drop(self.returned.insert(first)),
        }
    }

    fn count_leased(&mut self, session: u64, rows: u64, is_more: bool) {
        let count = self.leased_rows.entry(session).or_default();
        *count = if is_more { *count + rows } else { *count - rows };
        if *count == 0 {
            self.leased_rows.remove(&session);
        }
    }

    /// Cuts that make a piece of its own of each part in `span`.
    pub fn cuts(&self, span: Span) -> usize {
        let is_cut = |at: u64| self.at(at).is_some_and(|(piece, _)| piece.first < at);
        usize::from(is_cut(span.first)) + usize::from(is_cut(span.end))
    }

    /// No piece stretches over an end of `span`.
    pub fn isolate(&mut self, span: Span) {
        self.cut(span.first);
        self.cut(span.end);
    }

    fn cut(&mut self, at: u64) {
        let Some((span, piece)) = self.at(at).filter(|(span, _)| span.first < at) else { return };
        let right = piece.clone();
        if let Held::Leased(lease) = &right.held {
            let session = lease.session;
            self.count_leased(session, span.end - at, false);
        }
        if let Some(left) = self.map.get_mut(&span.first) {
            left.end = at;
        }
        // The left part keeps its grant alive, so the time that is given here is not used.
        self.insert(at, right, 0);
    }

    /// Change a lease in place.
    pub fn change_lease(&mut self, first: u64, change: impl FnOnce(&mut Lease)) {
        let Some(Piece { held: Held::Leased(lease), .. }) = self.map.get_mut(&first) else { return };
        self.times.remove(&(lease.deadline_ms, first));
        change(lease);
        self.times.insert((lease.deadline_ms, first));
    }

    /// Change what no index has of a piece.
    pub fn change(&mut self, first: u64, change: impl FnOnce(&mut Piece)) {
        if let Some(piece) = self.map.get_mut(&first) {
            change(piece);
        }
    }

    /// # Errors
    /// Which invariant does not hold.
    pub fn check(&self) -> Result<(), String> {
        let (mut again, mut end) = (Self::default(), 0);
        for (span, piece) in self.iter() {
            if span.first < end || span.end <= span.first {
                return Err(format!("the piece {span:?} overlaps another one"));
            }
            end = span.end;
            again.index(span.first, piece, 0);
        }
        let is_equal = again.times == self.times
            && again.returned == self.returned
            && again.settling == self.settling
            && again.leased_rows == self.leased_rows
            && again.grants.pieces() == self.grants.pieces();
        is_equal.then_some(()).ok_or_else(|| format!("an index of the pieces is wrong: {self:?}"))
    }
}
