//! Installed rules. Pure. An order of an older metadata index changes nothing, so no order that was late takes a newer
//! plan back (F21).

use std::collections::{BTreeMap, BTreeSet};

use ringfence_routing::PairMap;

use crate::api::cohort_rules::{CohortRule, CohortRules, GateRule};
use crate::cohorts::gate::planted::{Bug, is_on};
use crate::cohorts::state::record::GateKey;

/// The rules of all gates that this store owns.
#[derive(Debug, Default)]
pub struct Rules {
    /// Metadata index that they are as of.
    index: u64,
    /// By (topic, cohort).
    cohorts: BTreeMap<(u64, u64), CohortRule>,
    /// By topic and log.
    gates: BTreeMap<(u64, u64, GateKey), GateRule>,
    /// Log of (topic, partition).
    logs: PairMap<u64>,
    /// Topics all of whose cohorts are in `cohorts`.
    complete: BTreeSet<u64>,
}

impl Rules {
    pub fn index(&self) -> u64 {
        self.index
    }

    /// Take an order. Returns (topic, log) of all gates that it may change; `None`: it is older than the rules.
    pub fn install(&mut self, order: CohortRules) -> Option<BTreeSet<(u64, u64)>> {
        if order.index < self.index && !is_on(Bug::OlderRules) {
            return None;
        }
        self.index = self.index.max(order.index);
        let named = order.cohorts.iter().map(|one| (one.topic, one.cohort));
        let replaced: BTreeSet<_> = named.chain(order.gone.iter().copied()).collect();
        let topics: BTreeSet<u64> =
            replaced.iter().map(|key| key.0).chain(order.gates.iter().map(|gate| gate.topic)).collect();
        // All logs of these topics: deleted cohorts have entries in logs that no rule names.
        let mut changed = self.logs_of(&topics);
        for &topic in &topics {
            let of_topic: Vec<_> = self.of_topic(topic).collect();
            for (log, key) in of_topic.into_iter().filter(|(_, key)| replaced.contains(&(topic, key.cohort))) {
                self.gates.remove(&(topic, log, key));
                self.logs.remove(&(topic, key.partition));
            }
        }
        for key in &replaced {
            self.cohorts.remove(key);
        }
        self.cohorts.extend(order.cohorts.into_iter().map(|one| ((one.topic, one.cohort), one)));
        for gate in order.gates {
            let key = GateKey { partition: gate.partition, cohort: gate.cohort };
            changed.insert((gate.topic, gate.log));
            self.gates.insert((gate.topic, gate.log, key), gate);
        }
        self.complete.extend(order.complete);
        for &topic in &topics {
            let of_topic: Vec<_> = self.of_topic(topic).collect();
            self.logs.extend(of_topic.into_iter().map(|(log, key)| ((topic, key.partition), log)));
        }
        Some(changed)
    }

    /// (log, gate) of all gates of a topic.
    fn of_topic(&self, topic: u64) -> impl Iterator<Item = (u64, GateKey)> {
        let all = self.gates.range((topic, 0, GateKey::default())..).take_while(move |((of, ..), _)| *of == topic);
        all.map(|((_, log, key), _)| (*log, *key))
    }

    fn logs_of(&self, topics: &BTreeSet<u64>) -> BTreeSet<(u64, u64)> {
        topics.iter().flat_map(|&topic| self.of_topic(topic).map(move |(log, _)| (topic, log))).collect()
    }

    /// Logs of a topic that have gates of this store, each once.
    pub fn logs_of_topic(&self, topic: u64) -> BTreeSet<u64> {
        self.of_topic(topic).map(|(log, _)| log).collect()
    }

    pub fn forget_topic(&mut self, topic: u64) {
        self.cohorts.retain(|(of, _), _| *of != topic);
        self.gates.retain(|(of, ..), _| *of != topic);
        self.logs.retain(|(of, _), _| *of != topic);
        self.complete.remove(&topic);
    }

    pub fn cohort(&self, topic: u64, cohort: u64) -> Option<&CohortRule> {
        self.cohorts.get(&(topic, cohort))
    }

    pub fn cohorts(&self) -> impl Iterator<Item = &CohortRule> {
        self.cohorts.values()
    }

    pub fn gate(&self, topic: u64, log: u64, key: GateKey) -> Option<&GateRule> {
        self.gates.get(&(topic, log, key))
    }

    /// The partition whose log has the gates of this one, if this store owns them.
    pub fn log_of(&self, topic: u64, partition: u64) -> Option<u64> {
        self.logs.get(&(topic, partition)).copied()
    }

    /// The gates of one log.
    pub fn of_log(&self, topic: u64, log: u64) -> impl Iterator<Item = (GateKey, &GateRule)> {
        let first = (topic, log, GateKey::default());
        let all = self.gates.range(first..).take_while(move |((of, at, _), _)| (*of, *at) == (topic, log));
        all.map(|((.., key), rule)| (*key, rule))
    }

    /// Partitions of which this store has the gate of a cohort, ascending.
    pub fn partitions_of(&self, topic: u64, cohort: u64) -> impl Iterator<Item = u64> {
        let mut found: Vec<u64> =
            self.of_topic(topic).filter(|(_, key)| key.cohort == cohort).map(|(_, key)| key.partition).collect();
        found.sort_unstable();
        found.into_iter()
    }

    /// (topic, log) of all gates, each once.
    pub fn logs(&self) -> BTreeSet<(u64, u64)> {
        self.gates.keys().map(|(topic, log, _)| (*topic, *log)).collect()
    }

    /// The cohort is deleted for certain: a complete list that is newer than the cohort lacks it (FO6).
    pub fn is_gone(&self, topic: u64, cohort: u64) -> bool {
        let is_newer = self.index >= cohort >> 16;
        is_newer && self.complete.contains(&topic) && !self.cohorts.contains_key(&(topic, cohort))
    }
}
