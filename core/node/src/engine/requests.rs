//! Which request goes where. Everything that a stranger can send is sorted here.

use ringfence_buffer::Pool;
use ringfence_transport::{Connection, Inbound};
use ringfence_wire::{Code, Opcode, RequestHeader};

use crate::api::deadline::patience_ms;
use crate::api::effects::Effects;
use crate::api::event::Now;
use crate::api::refusal::Refusal;
use crate::engine::Engine;
use crate::ingest::parked::bytes_of;

impl Engine {
    pub(crate) fn request(
        &mut self,
        from: Connection,
        bytes: &[u8; 128],
        body: Inbound<'_>,
        now: Now,
        pool: &mut Pool,
        effects: &mut Effects,
    ) {
        self.counters.requests += 1;
        let header = match RequestHeader::open(bytes) {
            Ok(header) => header,
            Err(error) => {
                // Its request id may be garbage too; echoed, it helps the sender who only got one field wrong.
                let header = RequestHeader::read(bytes);
                return self.refuse(from, &header, &Refusal::new(error.code(), error.to_string()), effects);
            }
        };
        if self.stopping {
            let refusal = Refusal::new(Code::Stopping, "the node is going down; send to another or wait");
            return self.refuse(from, &header, &refusal, effects);
        }
        let Some(opcode) = Opcode::from_number(header.opcode) else {
            let refusal = Refusal::new(Code::UnknownOpcode, format!("no opcode {}", header.opcode));
            return self.refuse(from, &header, &refusal, effects);
        };
        if let Err(refusal) = self.check_right(from, opcode, &header) {
            return self.refuse(from, &header, &refusal, effects);
        }
        if opcode.right().is_some() {
            self.heard(from);
        }
        match opcode {
            Opcode::Publish | Opcode::Stage => {
                self.counters.publishes += 1;
                self.publish(from, &header, body, now, pool, effects);
            }
            Opcode::Fetch => self.fetch(from, &header, now, pool, effects),
            Opcode::EndOffsets => self.end_offsets(from, &header, now, effects),
            Opcode::OffsetForTime => self.offset_for_time(from, &header, now, pool, effects),
            Opcode::Resolve => self.resolve(from, &header, now, effects),
            Opcode::Replicate => self.replicate(from, &header, body, now, pool, effects),
            Opcode::Copy => self.copy_request(from, &header, pool, effects),
            Opcode::Fence => self.fence_request(from, &header, pool, effects),
            Opcode::Hello => self.hello(from, &header, bytes_of(&body), effects),
            Opcode::Table => self.table(from, &header, effects),
            Opcode::TableAck => self.table_ack(from, &header, effects),
            _ => self.other(from, opcode, &header, bytes_of(&body), effects),
        }
    }

    /// Requests for the control plane, and those that this version does not serve.
    fn other(&mut self, from: Connection, opcode: Opcode, header: &RequestHeader, body: &[u8], effects: &mut Effects) {
        let refusal = match opcode {
            Opcode::TopicCreate
            | Opcode::TopicList
            | Opcode::TopicDescribe
            | Opcode::TopicTruncate
            | Opcode::TopicDelete
            | Opcode::SchemaAdd
            | Opcode::ProducerOpen
            | Opcode::Begin
            | Opcode::Commit
            | Opcode::Expire
            | Opcode::Status => return self.control_request(from, header, body, effects),
            Opcode::TablePush | Opcode::WatchUpdate | Opcode::Assign => {
                Refusal::new(Code::UnknownOpcode, format!("{} is sent by nodes only", opcode.name()))
            }
            _ => Refusal::new(Code::NotSupported, format!("this version does not serve {}", opcode.name())),
        };
        self.refuse(from, header, &refusal, effects);
    }

    /// [`patience_ms`].
    #[allow(clippy::unused_self)] // the default will be a setting
    pub(crate) fn patience_ms(&self, header: &RequestHeader) -> u64 {
        patience_ms(header)
    }
}
