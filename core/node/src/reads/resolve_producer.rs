//! RESOLVE: what is stored of a producer.

use ringfence_transport::Connection;
use ringfence_wire::{RequestHeader, Status};

use crate::codec::pack;
use crate::ids::PartitionIndex;
use crate::partition::answers::send_packed;
use crate::reads::pending_reads::EndQuestion;
use crate::reads::read_machine::ReadMachine;
use crate::turn::Turn;

impl ReadMachine<'_> {
    /// RESOLVE: what became of a producer's batches; only what is durable counts. A newer owner may have more, so that
    /// a quorum confirms that there is none.
    pub(crate) fn resolve(&mut self, from: Connection, header: &RequestHeader, turn: &mut Turn<'_>) {
        match self.readable(header) {
            Ok(index) => self.confirm(index, EndQuestion::Resolve { from, header: Box::new(*header) }, turn),
            Err(rejection) => self.store.answer_rejection(from, header, rejection, turn),
        }
    }

    pub(crate) fn answer_resolved(
        &mut self,
        index: PartitionIndex,
        from: Connection,
        header: &RequestHeader,
        turn: &mut Turn<'_>,
    ) {
        if let Some(reason) = self.end_is_unknown(index) {
            return self.store.redirect(from, header, reason, turn);
        }
        if self.store.partitions[index].producers.is_reduced {
            return self.store.redirect_sealed(from, header, index, None, turn);
        }
        let partition = &self.store.partitions[index];
        let mark = partition.mark;
        let entry = partition.producers.get(header.producer_id);
        let answers: Vec<(u64, u64, u32)> = entry.map_or_else(Vec::new, |entry| {
            let first = entry.next_sequence - entry.answers.len() as u64;
            let all = (first..).zip(&entry.answers);
            let durable = all.filter(|(_, answer)| answer.first_offset + u64::from(answer.rows) <= mark);
            durable.map(|(sequence, answer)| (sequence, answer.first_offset, answer.rows)).collect()
        });
        let send = partition.producers.send_max_below(header.producer_id, mark);
        let last = answers.last().map(|last| (last.0, send));
        let body = pack::resolved(entry.map(|entry| entry.epoch), last, &answers);
        let mut answer = self.store.echo_at(index, header);
        answer.status = Status::Ok as u8;
        answer.send = last.map_or(0, |last| last.1);
        send_packed(from, answer, body, turn.effects);
    }
}
