//! Ingest as a machine: what an event lends to PUBLISH and STAGE.

use ringfence_transport::Connection;
use ringfence_wire::RequestHeader;

use crate::api::deadline::patience_ms;
use crate::ingest::parked::ParkedRequests;
use crate::partition::store::Store;
use crate::transactions::scopes::Scopes;

/// PUBLISH and STAGE: checks, append, or a place among the waiting requests.
pub struct IngestMachine<'a> {
    pub store: &'a mut Store,
    pub parked: &'a mut ParkedRequests,
    pub scopes: &'a Scopes,
}

/// A PUBLISH or STAGE without its body.
#[derive(Clone, Copy)]
pub struct Received<'a> {
    pub from: Connection,
    pub header: &'a RequestHeader,
    /// When it came, also if it was parked since then; by the monotonic clock.
    pub arrived_ms: u64,
}

impl Received<'_> {
    /// Until then its sender waits.
    pub fn deadline_ms(&self) -> u64 {
        self.arrived_ms + patience_ms(self.header)
    }
}
