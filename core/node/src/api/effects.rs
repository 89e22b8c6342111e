//! Effects: everything that the engine asks its caller to do.

use ringfence_log::{Job, PunchPlan};
use ringfence_transport::{Connection, Outbound, PeerRole};

use crate::api::jobs::{ReadJob, ScrubJob};
use crate::api::outcome::Outcome;

pub struct Answer {
    pub connection: Connection,
    pub header: [u8; 128],
    pub body: Outbound,
}

/// Work for the engine's caller. One buffer is used again and again: nothing is allocated in the steady state.
///
/// Order: `jobs`, `reads`, `punches` and `scrubs` start in any order; each ends with an event. `answers` of one
/// connection go out in their order. A `standings` entry takes effect after the answers before it. `peers` go out in
/// their order. `outcomes` go to the control plane in their order, after the answers of the same turn. The engine never
/// waits for an effect: what must be durable before an answer was durable before the answer was made.
#[derive(Default)]
pub struct Effects {
    pub answers: Vec<Answer>,
    pub jobs: Vec<Job>,
    pub reads: Vec<ReadJob>,
    /// Holes where a dropped partition was: at most one plan is under way, behind the reads that wait.
    pub punches: Vec<PunchPlan>,
    pub scrubs: Vec<ScrubJob>,
    pub outcomes: Vec<Outcome>,
    /// To other nodes, in order.
    pub peers: Vec<ToPeer>,
    /// Of connections whose rights changed although they sent nothing.
    pub standings: Vec<(Connection, PeerRole)>,
}

/// What is to be done about another node.
pub enum ToPeer {
    /// Ends with a `PeerOpened` or a `PeerClosed`.
    Connect {
        node: u64,
        address: String,
    },
    Send {
        node: u64,
        header: [u8; 128],
        body: Outbound,
    },
    /// Ends with a `PeerClosed`.
    Close {
        node: u64,
    },
}
