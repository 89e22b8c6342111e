//! `MEMBER_BEAT`: a member names the holds that it has at this node, and their leases begin again (CG12). Of each log a
//! quorum must have been heard within L (CG11); where none was, the beat waits until one answers.

use std::collections::BTreeMap;

use ringfence_transport::Connection;
use ringfence_wire::{Code, RequestHeader};

use crate::api::refusal::Refusal;
use crate::cohorts::cohort_machine::CohortMachine;
use crate::cohorts::member_requests::{lines_of, word};
use crate::cohorts::members::{PendingBeat, QuorumQuestion};
use crate::cohorts::planted::{Bug, is_on};
use crate::cohorts::state::record::GateKey;
use crate::ids::PartitionIndex;
use crate::turn::Turn;

/// Bytes of a line: partition and hold.
const HELD_BYTES: usize = 16;

impl CohortMachine<'_> {
    pub(crate) fn beat(&mut self, from: Connection, header: &RequestHeader, body: &[u8], turn: &mut Turn<'_>) {
        let session = header.producer_id;
        let found = self.sessions.beat(turn.now.mono_ms, from, session).map_err(Refusal::from);
        let found = found.and_then(|cohort| self.registered(header.topic, cohort, session).map(|_| cohort));
        let found = found.and_then(|cohort| Ok((cohort, lines_of(body, HELD_BYTES)?)));
        let (cohort, lines) = match found {
            Ok(found) => found,
            Err(refusal) => return self.store.refuse(from, header, &refusal, turn),
        };
        if !self.members.beating.insert(from.0) {
            let what = "a MEMBER_BEAT of this connection is under way; wait for its answer";
            return self.store.refuse(from, header, &Refusal::new(Code::Overloaded, what), turn);
        }
        let beat = turn.ticket();
        let mut not_extended = Vec::new();
        let mut by_log: BTreeMap<PartitionIndex, Vec<(u64, u64)>> = BTreeMap::new();
        for line in lines {
            let (partition, hold) = (word(line, 0), word(line, 1));
            match self.log_of(header, partition) {
                Ok(index) => by_log.entry(index).or_default().push((partition, hold)),
                Err(_) => not_extended.push(partition),
            }
        }
        let mut unheard = Vec::new();
        for (index, lines) in by_log {
            if self.is_heard(index, turn) || is_on(Bug::UnheardBeatExtends) {
                self.extend_lines((header, cohort), &lines, &mut not_extended, turn);
            } else {
                unheard.push((index, lines));
            }
        }
        // One more than it waits for, until all logs are asked.
        let remaining = 1 + unheard.len();
        let pending = PendingBeat { connection: from, header: *header, cohort, remaining, not_extended };
        self.members.beats.insert(beat, pending);
        for (index, lines) in unheard {
            if is_on(Bug::BeatDoesNotWait) {
                self.beat_is_heard(beat, &lines, false, turn);
                continue;
            }
            self.ask_quorum(index, QuorumQuestion::Beat { beat, lines: lines.into() }, turn);
        }
        self.beat_goes_on(beat, turn);
    }

    /// Extend the leases of holds at one log, of which a quorum was heard within L.
    fn extend_lines(
        &mut self,
        (header, cohort): (&RequestHeader, u64),
        lines: &[(u64, u64)],
        not_extended: &mut Vec<u64>,
        turn: &mut Turn<'_>,
    ) {
        for &(partition, hold) in lines {
            let key = GateKey { partition, cohort };
            let extended = self.log_of(header, partition).ok().and_then(|index| {
                self.store.with_gates(index, turn.now.mono_ms, |gates, view| {
                    view.gate(key).is_some_and(|of| gates.extend(&of, header.producer_id, hold))
                })
            });
            if extended != Some(true) {
                not_extended.push(partition);
            }
        }
    }

    /// A quorum of the log of these partitions has answered, or was not heard in time.
    pub(super) fn beat_is_heard(&mut self, beat: u64, lines: &[(u64, u64)], confirmed: bool, turn: &mut Turn<'_>) {
        let Some(mut pending) = self.members.beats.remove(&beat) else { return };
        let (header, cohort) = (pending.header, pending.cohort);
        let is_own = self.sessions.cohort_of(pending.connection, header.producer_id).is_ok();
        let index = lines.first().and_then(|line| self.log_of(&header, line.0).ok());
        let is_heard = index.is_some_and(|index| self.is_heard(index, turn) || is_on(Bug::LateAnswerCounts));
        if confirmed && is_own && is_heard {
            self.extend_lines((&header, cohort), lines, &mut pending.not_extended, turn);
        } else {
            pending.not_extended.extend(lines.iter().map(|line| line.0));
        }
        self.members.beats.insert(beat, pending);
        self.beat_goes_on(beat, turn);
    }

    /// One thing less that a beat waits for: the last one answers it.
    fn beat_goes_on(&mut self, beat: u64, turn: &mut Turn<'_>) {
        let Some(pending) = self.members.beats.get_mut(&beat) else { return };
        pending.remaining -= 1;
        if pending.remaining > 0 {
            return;
        }
        let Some(PendingBeat { connection, header, cohort, mut not_extended, .. }) = self.members.beats.remove(&beat)
        else {
            return;
        };
        self.members.beating.remove(&connection.0);
        let found = self.sessions.cohort_of(connection, header.producer_id).map_err(Refusal::from);
        match found.and_then(|_| self.registered(header.topic, cohort, header.producer_id)) {
            Ok(generation) => {
                not_extended.sort_unstable();
                let body: Vec<u8> = not_extended.iter().flat_map(|partition| partition.to_le_bytes()).collect();
                self.answer_member(connection, &header, generation, &body, turn);
            }
            Err(refusal) => self.store.refuse(connection, &header, &refusal, turn),
        }
    }
}
