//! Which request goes where. Everything that a stranger can send is sorted here.

use ringfence_transport::{Connection, Inbound};
use ringfence_wire::{Code, Opcode, RequestHeader};

use crate::api::deadline::patience_ms;
use crate::api::refusal::Refusal;
use crate::engine::Parts;
use crate::ingest::parked::bytes_of;
use crate::turn::Turn;

impl Parts {
    pub(crate) fn request(&mut self, from: Connection, bytes: &[u8; 128], body: Inbound<'_>, turn: &mut Turn<'_>) {
        turn.counters.requests += 1;
        let header = match RequestHeader::open(bytes) {
            Ok(header) => header,
            Err(error) => {
                // Its request id may be garbage too; echoed, it helps the sender who only got one field wrong.
                let header = RequestHeader::read(bytes);
                return self.refuse(from, &header, &Refusal::new(error.code(), error.to_string()), turn);
            }
        };
        if self.stopping {
            let refusal = Refusal::new(Code::Stopping, "the node is going down; send to another or wait");
            return self.refuse(from, &header, &refusal, turn);
        }
        let Some(opcode) = Opcode::from_number(header.opcode) else {
            let refusal = Refusal::new(Code::UnknownOpcode, format!("no opcode {}", header.opcode));
            return self.refuse(from, &header, &refusal, turn);
        };
        if let Err(refusal) = self.check_right(from, opcode, &header) {
            return self.refuse(from, &header, &refusal, turn);
        }
        if opcode.right().is_some() {
            self.heard(from);
        }
        match opcode {
            Opcode::Publish | Opcode::Stage => {
                turn.counters.publishes += 1;
                self.publish(from, &header, body, turn);
            }
            Opcode::Fetch => self.fetch(from, &header, turn),
            Opcode::EndOffsets => self.end_offsets(from, &header, turn),
            Opcode::OffsetForTime => self.offset_for_time(from, &header, turn),
            Opcode::Resolve => self.resolve(from, &header, turn),
            Opcode::Replicate => self.replicate(from, &header, body, turn),
            Opcode::Copy => self.copy_request(from, &header, turn),
            Opcode::Fence => self.fence_request(from, &header, turn),
            Opcode::Hello => self.hello(from, &header, bytes_of(&body), turn),
            Opcode::Table => self.table(from, &header, turn),
            Opcode::TableAck => self.table_ack(from, &header, turn),
            _ => self.other(from, opcode, &header, bytes_of(&body), turn),
        }
    }

    /// Requests for the control plane, and those that this version does not serve.
    fn other(&mut self, from: Connection, opcode: Opcode, header: &RequestHeader, body: &[u8], turn: &mut Turn<'_>) {
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
            | Opcode::Status => return self.control_request(from, header, body, turn),
            Opcode::TablePush | Opcode::WatchUpdate | Opcode::Assign => {
                Refusal::new(Code::UnknownOpcode, format!("{} is sent by nodes only", opcode.name()))
            }
            _ => Refusal::new(Code::NotSupported, format!("this version does not serve {}", opcode.name())),
        };
        self.refuse(from, header, &refusal, turn);
    }

    /// [`patience_ms`].
    #[allow(clippy::unused_self)] // the default will be a setting
    pub(crate) fn patience_ms(&self, header: &RequestHeader) -> u64 {
        patience_ms(header)
    }
}
