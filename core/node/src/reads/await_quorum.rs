//! Answers that say where a log ends: they wait until a quorum has confirmed this owner
//! (`replication/read_barrier.rs`).

use ringfence_wire::Code;

use crate::api::refusal::Refusal;
use crate::ids::PartitionIndex;
use crate::reads::pending_reads::{EndQuestion, Fetch};
use crate::reads::read_machine::ReadMachine;
use crate::replication::read_barrier::Barrier;
use crate::turn::{Confirmation, Turn};

/// When a question that was not confirmed may come again.
const RETRY_MS: u32 = 100;

impl ReadMachine<'_> {
    /// Answer now, or when a quorum was heard.
    pub(crate) fn confirm(&mut self, index: PartitionIndex, question: EndQuestion, turn: &mut Turn<'_>) {
        let barrier = self.replication().owner_mut(index).map_or(Barrier::None, |mut owner| owner.confirm(turn));
        match barrier {
            Barrier::None => self.answer_question(index, question, turn),
            Barrier::Ticket(ticket) => {
                self.reads.questions.insert(ticket, (index, question));
            }
            Barrier::Full => {
                let why = "too many questions wait for replicas";
                self.refuse_question(&question, Code::Overloaded, why, turn);
            }
        }
    }

    /// Replication has an answer for this ticket.
    pub(crate) fn confirmed(&mut self, ticket: u64, confirmation: Confirmation, turn: &mut Turn<'_>) {
        let Some((index, question)) = self.reads.questions.remove(&ticket) else { return };
        let why = match confirmation {
            Confirmation::Confirmed => return self.answer_question(index, question, turn),
            Confirmation::TooLate => "too few replicas have confirmed where the log ends",
            Confirmation::OwnerChanged => "the partition has another owner",
        };
        self.refuse_question(&question, Code::TooFewReplicas, why, turn);
    }

    /// A fetch found nothing. What it is told is a second old at most, also where this owner is cut off.
    pub(crate) fn end_empty(&mut self, fetch: Fetch, turn: &mut Turn<'_>) {
        if self.replication().is_fresh(fetch.index, turn) {
            self.answer_empty(&fetch, turn);
        } else {
            self.confirm(fetch.index, EndQuestion::Empty(Box::new(fetch)), turn);
        }
    }

    fn answer_question(&mut self, index: PartitionIndex, question: EndQuestion, turn: &mut Turn<'_>) {
        match question {
            EndQuestion::Ends { from, header } => self.answer_ends(index, from, &header, turn),
            EndQuestion::Position { from, header, refusal } => match self.end_is_unknown(index) {
                Some(reason) => self.store.redirect(from, &header, reason, turn),
                None => self.store.refuse(from, &header, &refusal, turn),
            },
            EndQuestion::Empty(fetch) => self.answer_empty(&fetch, turn),
            EndQuestion::Member(read) => self.answer_member_read(*read, turn),
            EndQuestion::Resolve { from, header } => self.answer_resolved(index, from, &header, turn),
        }
    }

    fn refuse_question(&mut self, question: &EndQuestion, code: Code, why: &str, turn: &mut Turn<'_>) {
        let (to, header) = match question {
            EndQuestion::Ends { from, header }
            | EndQuestion::Position { from, header, .. }
            | EndQuestion::Resolve { from, header } => (*from, header.as_ref()),
            EndQuestion::Empty(fetch) => (fetch.connection, &fetch.header),
            EndQuestion::Member(read) => (read.fetch.connection, &read.fetch.header),
        };
        let mut refusal = Refusal::new(code, format!("partition {}: {why}", header.partition));
        refusal.retry_after_ms = RETRY_MS;
        self.store.refuse(to, header, &refusal, turn);
    }
}
