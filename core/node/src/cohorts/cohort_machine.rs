//! Members of cohorts as a machine: what an event lends, and what follows from changes of gates.

use std::collections::BTreeSet;

use crate::api::cohort_rules::{CohortRules, GateFigures, GateProgress};
use crate::api::order_step::{OrderError, OrderProgress};
use crate::api::outcome::{Finished, Outcome};
use crate::api::refusal::Refusal;
use crate::clients::connections::Connections;
use crate::cohorts::gate::log_gates::LogGates;
use crate::cohorts::gate::view::View;
use crate::cohorts::members::Members;
use crate::cohorts::planted::{Bug, is_on};
use crate::cohorts::sessions::table::Sessions;
use crate::ids::{PartitionIndex, PartitionKey};
use crate::partition::store::Store;
use crate::reads::pending_reads::Reads;
use crate::reads::read_machine::ReadMachine;
use crate::replication::state::node_wide::Replication;
use crate::settings::COHORT_LEVEL;
use crate::turn::Turn;
use ringfence_log::Refusal as LogRefusal;
use ringfence_wire::Code;

/// ATTACH, `MEMBER_BEAT`, ACKNOWLEDGE, FETCH of members, and the gates that they are about.
pub struct CohortMachine<'a> {
    pub store: &'a mut Store,
    pub replication: &'a mut Replication,
    pub reads: &'a mut Reads,
    pub connections: &'a Connections,
    pub sessions: &'a mut Sessions,
    pub members: &'a mut Members,
}

impl CohortMachine<'_> {
    pub(super) fn reads(&mut self) -> ReadMachine<'_> {
        ReadMachine {
            store: self.store,
            replication: self.replication,
            reads: self.reads,
            connections: self.connections,
        }
    }

    pub(crate) fn install_cohorts(
        &mut self,
        rules: CohortRules,
        turn: &mut Turn<'_>,
    ) -> Result<OrderProgress, OrderError> {
        let level = self.store.settings.level;
        if level < COHORT_LEVEL {
            return Err(format!("the cluster's level is {level}, cohorts need {COHORT_LEVEL}").into());
        }
        let registered: Vec<_> = rules.cohorts.iter().map(|one| (one.cohort, one.sessions.clone())).collect();
        let gone: Vec<u64> = rules.gone.iter().map(|(_, cohort)| *cohort).collect();
        if let Some(changed) = self.store.gate_rules.install(rules) {
            for (cohort, sessions) in registered {
                self.end_sessions(cohort, &sessions, turn);
            }
            for cohort in gone {
                self.end_sessions(cohort, &[], turn);
            }
            for (topic, log) in changed {
                if let Some(index) = self.store.partitions.find(topic, log) {
                    self.store.open_gates(index, turn.now.mono_ms);
                    self.store.drop_gone_cohorts(index);
                    self.look_at_gates(index, turn);
                }
            }
            self.serve_due(turn);
        }
        Ok(OrderProgress::Done(Finished::Done))
    }

    /// Others than these sessions of a cohort are not registered any more: what waits for them ends.
    fn end_sessions(&mut self, cohort: u64, registered: &[u64], turn: &mut Turn<'_>) {
        let ended = self.sessions.keep(cohort, registered);
        if ended.is_empty() {
            return;
        }
        for fetch in self.members.end_fetches(|fetch| ended.contains(&fetch.connection)) {
            let what = format!("session {} is not registered any more; join again", fetch.header.producer_id);
            self.store.refuse(fetch.connection, &fetch.header, &Refusal::new(Code::FencedMember, what), turn);
        }
    }

    /// The log was opened under a new epoch.
    pub(crate) fn log_opened(&mut self, index: PartitionIndex, turn: &mut Turn<'_>) {
        if self.store.open_gates(index, turn.now.mono_ms) {
            self.store.drop_gone_cohorts(index);
            self.gates_changed(index, turn);
        }
    }

    /// Logs of this topic may take rows since now, under epochs that were opened before.
    pub(crate) fn topic_opened(&mut self, topic: u64, turn: &mut Turn<'_>) {
        for log in self.store.gate_rules.logs_of_topic(topic) {
            if let Some(index) = self.store.partitions.find(topic, log) {
                self.log_opened(index, turn);
            }
        }
    }

    /// A newer owner may be there, or a change holds the log: nothing is delivered from here any more (CG13).
    pub(crate) fn log_closed(&mut self, key: PartitionKey, turn: &mut Turn<'_>) {
        if let Some(index) = self.store.partitions.find(key.0, key.1)
            && !is_on(Bug::HeldDelivers)
        {
            self.reads().end_member_polls(index, turn);
            self.look_at_fetches(index, turn);
        }
    }

    /// A record of this log's gates is committed: what it says counts from now on.
    pub(crate) fn record_committed(&mut self, index: PartitionIndex, turn: &mut Turn<'_>) {
        let tickets = self.store.with_gates(index, turn.now.mono_ms, LogGates::committed);
        for ticket in tickets.unwrap_or_default() {
            self.settled(ticket, turn);
        }
        self.tell_progress(turn);
        self.gates_changed(index, turn);
    }

    /// Records of this log may be lost: what waits for them is asked again, of the owner of then.
    pub(crate) fn records_lost(&mut self, index: PartitionIndex, turn: &mut Turn<'_>) {
        let Some(gates) = self.store.partitions.get_mut(index).and_then(|partition| partition.gates.take()) else {
            return;
        };
        let mut gates = gates;
        for ticket in gates.take_waits() {
            let what = "the owner changed, or its disk failed, before enough replicas had it on disk";
            self.refuse_settle(ticket, &Refusal::new(Code::TooFewReplicas, what), turn);
        }
    }

    /// Rules, table or time have changed something of these gates: write what is due, and look at those that wait.
    pub(super) fn gates_changed(&mut self, index: PartitionIndex, turn: &mut Turn<'_>) {
        self.look_at_gates(index, turn);
        self.serve_due(turn);
    }

    /// As [`Self::gates_changed`]. Members of queues are served by the caller, once for all gates that it looks at.
    fn look_at_gates(&mut self, index: PartitionIndex, turn: &mut Turn<'_>) {
        self.store.with_gates(index, turn.now.mono_ms, LogGates::rules_changed);
        self.reads().end_member_polls(index, turn);
        self.look_at_fetches(index, turn);
        self.queue_changed(index, turn);
        self.write(index, turn);
    }

    /// Append the next record of a log's gates, if something is due.
    pub(super) fn write(&mut self, index: PartitionIndex, turn: &mut Turn<'_>) {
        let now_ms = turn.now.mono_ms;
        let Some(partition) = self.store.partitions.get(index) else { return };
        let key = partition.key();
        if partition.gates.is_none() {
            self.members.busy.remove(&key);
            return;
        }
        if partition.has_open_gates()
            && let Some(Some(record)) = self.store.with_gates(index, now_ms, LogGates::take_record)
        {
            match self.store.append_cohort_record(index, record, turn) {
                // A hold that is appended ends the one before: no member is served until it is committed.
                Ok(()) => self.reads().end_member_polls(index, turn),
                Err(refusal) => self.not_written(index, &refusal, turn),
            }
        }
        if self.store.with_gates(index, now_ms, |gates, _| gates.has_work()) == Some(true) {
            self.members.busy.insert(key);
        } else {
            self.members.busy.remove(&key);
        }
    }

    fn not_written(&mut self, index: PartitionIndex, refusal: &LogRefusal, turn: &mut Turn<'_>) {
        self.store.with_gates(index, turn.now.mono_ms, LogGates::not_appended);
        if matches!(refusal, LogRefusal::Busy) {
            return; // the next tick tries again
        }
        let waits = self.store.partitions[index].gates.as_mut().map(|gates| gates.take_waits());
        for ticket in waits.unwrap_or_default() {
            let code = if matches!(refusal, LogRefusal::DiskFull) { Code::DiskFull } else { Code::TooFewReplicas };
            let what = format!("the log takes no record of cohorts now: {refusal:?}");
            self.refuse_settle(ticket, &Refusal::new(code, what), turn);
        }
    }

    /// Time passed: leases and deadlines end, coins come.
    pub(crate) fn tick_members(&mut self, turn: &mut Turn<'_>) {
        self.end_late(turn);
        self.end_late_of_queues(turn);
        let waiting: BTreeSet<_> = self.members.fetches.keys().chain(&self.members.busy).copied().collect();
        for key in waiting {
            match self.store.partitions.find(key.0, key.1) {
                Some(index) => self.look_at_gates(index, turn),
                None => drop(self.members.busy.remove(&key)),
            }
        }
        self.serve_due(turn);
    }

    pub(super) fn tell_progress(&mut self, turn: &mut Turn<'_>) {
        if !std::mem::replace(&mut self.members.is_told, true) {
            turn.effects.outcomes.push(Outcome::Gates);
        }
    }
}

impl Store {
    /// Progress of all gates that are open here.
    pub(crate) fn gate_progress(&mut self, now_ms: u64) -> Vec<GateProgress> {
        let mut out = Vec::new();
        self.for_open_gates(now_ms, |gates, view| gates.progress(view, &mut out));
        out
    }

    pub(crate) fn gate_figures(&mut self, now_ms: u64) -> Vec<GateFigures> {
        let mut out = Vec::new();
        self.for_open_gates(now_ms, |gates, view| gates.figures(view, &mut out));
        out
    }

    fn for_open_gates(&mut self, now_ms: u64, mut work: impl FnMut(&LogGates, View<'_>)) {
        for (topic, log) in self.gate_rules.logs() {
            if let Some(index) = self.partitions.find(topic, log)
                && self.partitions[index].has_open_gates()
            {
                self.with_gates(index, now_ms, |gates, view| work(gates, view));
            }
        }
    }
}
