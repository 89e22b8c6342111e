//! `STAGED_LIST`: what is staged in a partition, so that the client may stage it again where its rows belong now.

use ringfence_transport::Connection;
use ringfence_wire::{ANSWER_FLAG_CONTROL, Code, RequestHeader, Status};

use crate::api::refusal::Refusal;
use crate::clients::handshake::check_control;
use crate::codec::staging::{Wanted, listed};
use crate::partition::answers::send_packed;
use crate::partition::rejection::Rejection;
use crate::reads::read_machine::ReadMachine;
use crate::replication::state::role::Role;
use crate::turn::Turn;

/// Batches of one answer: at most 330 KB.
const LISTED_MAX: usize = 16_384;

impl ReadMachine<'_> {
    /// Of an ACTIVE partition only what is on a quorum is told; a sealed one has nothing else.
    pub(crate) fn staged_list(&mut self, from: Connection, header: &RequestHeader, body: &[u8], turn: &mut Turn<'_>) {
        match self.listed(header, body) {
            Ok((version, told)) => {
                let mut answer = self.store.echo(header);
                answer.status = Status::Ok as u8;
                answer.flags = ANSWER_FLAG_CONTROL;
                answer.layout_version = version;
                send_packed(from, answer, told, turn.effects);
            }
            Err(rejection) => self.store.answer_rejection(from, header, rejection, turn),
        }
    }

    fn listed(&self, header: &RequestHeader, body: &[u8]) -> Result<(u64, Box<[u8]>), Rejection> {
        check_control(header, body)?;
        let wanted = Wanted::read(body).map_err(|why| Refusal::new(Code::BadBody, why))?;
        let index = self.readable(header)?;
        let partition = &self.store.partitions[index];
        let seal = partition.sealed.as_deref().filter(|_| partition.gate.ended()).map(|sealed| sealed.seal);
        let upto = match (&seal, &partition.role) {
            (None, Role::Owner(owner)) => owner.mark_record(),
            _ => u64::MAX,
        };
        let (scope, after) = ((wanted.scope, wanted.epoch), wanted.after);
        let (batches, more) = partition.stages.list(scope, &wanted.tokens, after, LISTED_MAX, upto);
        let newest = self.store.tables.get(header.topic).map_or(0, |table| table.version);
        Ok((newest, listed(&batches, more, seal.map_or(0, |seal| seal.version))))
    }
}
