//! What a member is told only once a quorum was heard within L (CG11): a lease that begins again. Who was replaced as
//! owner, and does not know it, extends nothing.

use ringfence_wire::Code;

use crate::api::refusal::Refusal;
use crate::cohorts::cohort_machine::CohortMachine;
use crate::cohorts::members::QuorumQuestion;
use crate::ids::PartitionIndex;
use crate::replication::read_barrier::Barrier;
use crate::turn::{Confirmation, Turn};

/// When what was not confirmed may come again.
const RETRY_MS: u32 = 100;

impl CohortMachine<'_> {
    /// A quorum follows this owner, or did so within L.
    pub(super) fn is_heard(&mut self, index: PartitionIndex, turn: &Turn<'_>) -> bool {
        let mut reads = self.reads();
        reads.end_is_unknown(index).is_none() && reads.replication().is_fresh(index, turn)
    }

    pub(super) fn ask_quorum(&mut self, index: PartitionIndex, question: QuorumQuestion, turn: &mut Turn<'_>) {
        let mut reads = self.reads();
        let barrier = reads.replication().owner_mut(index).map_or(Barrier::None, |mut owner| owner.confirm(turn));
        match barrier {
            Barrier::Ticket(ticket) => drop(self.members.questions.insert(ticket, question)),
            // It is no owner, or not one that may answer.
            Barrier::None => self.end_question(question, turn),
            Barrier::Full => self.refuse_question(question, Code::Overloaded, "too many questions wait", turn),
        }
    }

    /// Replication has an answer for this ticket. False: it is none of a member's.
    pub(crate) fn confirmed(&mut self, ticket: u64, confirmation: Confirmation, turn: &mut Turn<'_>) -> bool {
        let Some(question) = self.members.questions.remove(&ticket) else { return false };
        match confirmation {
            Confirmation::Confirmed => self.end_question(question, turn),
            Confirmation::TooLate => {
                let why = "too few replicas have confirmed its owner";
                self.refuse_question(question, Code::TooFewReplicas, why, turn);
            }
            Confirmation::OwnerChanged => {
                self.refuse_question(question, Code::TooFewReplicas, "the partition has another owner", turn);
            }
        }
        true
    }

    /// A quorum has answered. Its answer may have been under way for long: the moment of the question counts.
    fn end_question(&mut self, question: QuorumQuestion, turn: &mut Turn<'_>) {
        match question {
            QuorumQuestion::Beat { beat, lines } => self.beat_is_heard(beat, &lines, true, turn),
            QuorumQuestion::End { fetch, number } => match self.log_of(&fetch.header, fetch.key.partition) {
                Ok(index) if self.is_heard(index, turn) => self.answer_end(index, &fetch, number, turn),
                Ok(_) => {
                    let question = QuorumQuestion::End { fetch, number };
                    self.refuse_question(question, Code::TooFewReplicas, "its owner was confirmed too late", turn);
                }
                Err(rejection) => self.store.answer_rejection(fetch.connection, &fetch.header, rejection, turn),
            },
        }
    }

    fn refuse_question(&mut self, question: QuorumQuestion, code: Code, why: &str, turn: &mut Turn<'_>) {
        match question {
            QuorumQuestion::Beat { beat, lines } => self.beat_is_heard(beat, &lines, false, turn),
            QuorumQuestion::End { fetch, .. } => {
                let mut refusal = Refusal::new(code, format!("partition {}: {why}", fetch.key.partition));
                refusal.retry_after_ms = RETRY_MS;
                self.store.refuse(fetch.connection, &fetch.header, &refusal, turn);
            }
        }
    }
}
