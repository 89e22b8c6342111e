//! Ingest as a machine: what an event lends to PUBLISH and STAGE.

use ringfence_transport::Connection;
use ringfence_wire::{RecordHeader, RecordKind, RequestHeader};

use crate::api::deadline::patience_ms;
use crate::api::event::Now;
use crate::ingest::parked::ParkedRequests;
use crate::partition::store::Store;

/// PUBLISH and STAGE: checks, append, or a place among the waiting requests.
pub struct IngestMachine<'a> {
    pub store: &'a mut Store,
    pub parked: &'a mut ParkedRequests,
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

    /// The record of its rows; the append fills in where it lies.
    pub fn record(&self, now: Now) -> RecordHeader {
        RecordHeader {
            kind: RecordKind::Rows as u8,
            rows: self.header.rows,
            topic: self.header.topic,
            partition: self.header.partition,
            layout_version: self.header.layout_version,
            owner_epoch: self.header.owner_epoch,
            producer_id: self.header.producer_id,
            producer_epoch: self.header.producer_epoch,
            sequence: self.header.sequence,
            send: self.header.send,
            time_ms: now.unix_ms,
            schema_id: self.header.schema_id,
            extension_bytes: self.header.extension_bytes,
            body_bytes: self.header.body_bytes,
            body_crc: self.header.body_crc,
            ..RecordHeader::default()
        }
    }
}
