//! Ingest as a machine: what an event lends to PUBLISH and STAGE.

use crate::ingest::parked::ParkedRequests;
use crate::partition::store::Store;
use crate::transactions::scopes::Scopes;

/// PUBLISH and STAGE: checks, append, or a place among the waiting requests.
pub struct IngestMachine<'a> {
    pub store: &'a mut Store,
    pub parked: &'a mut ParkedRequests,
    pub scopes: &'a Scopes,
}
