//! A partition whose records come from an owner elsewhere: that owner, its epoch, and the session with it.

use ringfence_transport::Connection;

/// A partition whose records come from elsewhere.
#[derive(Debug)]
pub struct Follower {
    pub epoch: u64,
    pub owner: u64,
    /// (change, attempt) while it is not adopted.
    pub learner: Option<(u64, u32)>,
    /// The newest epoch that an operator chose the owner of without a majority; 0 = none is known.
    forced: u64,
    /// The connection that its session was begun over (S4).
    source: Option<Connection>,
    /// The connection that the last FENCE came over.
    fenced: Option<Connection>,
    /// The read that ends with the log being cut for a session that begins; of older sessions none counts.
    cutting: Option<u64>,
}

impl Follower {
    pub fn new(epoch: u64, owner: u64, learner: Option<(u64, u32)>, forced: u64) -> Self {
        Self { epoch, owner, learner, forced, source: None, fenced: None, cutting: None }
    }

    pub fn forced(&self) -> u64 {
        self.forced
    }

    /// FENCE came over this connection: what an older one still brings is void.
    pub fn fenced(&mut self, from: Connection) {
        (self.source, self.fenced, self.cutting) = (None, Some(from), None);
    }

    /// True if the session was begun over this connection.
    pub fn is_from(&self, connection: Connection) -> bool {
        self.source == Some(connection)
    }

    pub fn may_bootstrap(&self, from: Connection) -> bool {
        self.fenced == Some(from) && self.source.is_none() && self.cutting.is_none()
    }

    /// The session goes on over this connection.
    pub fn begun(&mut self, from: Connection) {
        self.source = Some(from);
    }

    pub fn is_cutting(&self) -> bool {
        self.cutting.is_some()
    }

    /// True if this read is the one that a cut waits for.
    pub fn is_cutting_by(&self, ticket: u64) -> bool {
        self.cutting == Some(ticket)
    }

    pub fn begin_cut(&mut self, ticket: u64) {
        self.cutting = Some(ticket);
    }

    pub fn end_cut(&mut self) {
        self.cutting = None;
    }
}
