//! Staged rows on three stores: what was answered STAGED outlives its owner, and is published once whoever owns it.

use ringfence_node::{CountStaged, Finished, Order, Outcome, Publish, ScopeRule};
use ringfence_wire::{Code, ExtensionKind, Opcode, RequestHeader, Status, crc_of, extension};

use crate::cluster::{CLIENT, Cluster, NODES};
use crate::learner::OWNER;
use crate::opened;
use crate::support::{PARTITION, TOPIC, body_of};

const SCOPE: u64 = 30;
const DRIVER: u64 = 31;
const TOKEN: [u8; 16] = [9; 16];

impl Cluster {
    /// What the metadata log says of the scope, told to all that are up.
    fn rules(&mut self, committed: u64, pending: &[u64]) {
        for at in (0..NODES).filter(|at| self.sites[*at].up).collect::<Vec<_>>() {
            let pending = pending.iter().copied().collect();
            let rule = ScopeRule {
                scope: SCOPE,
                driver: DRIVER,
                committed,
                expired: 0,
                cohort: 0,
                pending,
                positions: Vec::new(),
            };
            self.order(at, Order::InstallScopes { rules: vec![rule], gone: None });
        }
    }

    /// Stage ten rows at the owner; the request's number.
    fn stage(&mut self, epoch: u64, sequence: u64) -> u64 {
        let mut identity = Vec::new();
        for word in [SCOPE, DRIVER, epoch, 2] {
            identity.extend_from_slice(&u64::to_le_bytes(word));
        }
        identity.extend_from_slice(&TOKEN);
        let mut body = Vec::new();
        extension::write(&mut body, &[(ExtensionKind::Stage, &identity)]);
        let extension_bytes = u32::try_from(body.len()).unwrap();
        body.extend_from_slice(&body_of(i64::try_from(sequence).unwrap() * 10, 10));
        self.next_request += 1;
        let header = RequestHeader {
            opcode: Opcode::Stage as u8,
            request_id: self.next_request,
            topic: TOPIC,
            partition: PARTITION,
            layout_version: 1,
            owner_epoch: self.epoch,
            sequence,
            rows: 10,
            deadline_ms: 3_000,
            extension_bytes,
            body_bytes: u32::try_from(body.len()).unwrap(),
            body_crc: crc_of(&body),
            ..RequestHeader::default()
        };
        let owner = self.owner;
        self.sites[owner].node.request(CLIENT, &header.seal(), &body).unwrap();
        self.collect(owner);
        self.next_request
    }

    fn staged(&mut self, epoch: u64, sequence: u64) {
        let request = self.stage(epoch, sequence);
        self.calm(4);
        let answer = self.others.get(&request).expect("a stage is answered");
        assert_eq!((answer.status, answer.code), (Status::Staged as u8, 0));
    }

    fn publish_epoch(&mut self, epoch: u64, rows: u64) -> (usize, u64) {
        let tokens = vec![TOKEN];
        let order =
            Publish { topic: TOPIC, partition: PARTITION, scope: SCOPE, epoch, tokens, rows, upto: 0, after: 0 };
        (self.owner, self.order(self.owner, Order::Publish(order)))
    }

    fn count_epoch(&mut self, epoch: u64) -> (usize, u64) {
        let tokens = vec![TOKEN];
        let order = CountStaged { topic: TOPIC, partition: PARTITION, scope: SCOPE, epoch, tokens };
        (self.owner, self.order(self.owner, Order::CountStaged(order)))
    }

    fn outcome(&self, (at, number): (usize, u64)) -> Option<&Result<Finished, String>> {
        self.outcomes.iter().find_map(|(who, outcome)| match outcome {
            Outcome::Order { number: n, result } if *who == at && *n == number => Some(result),
            _ => None,
        })
    }

    fn published(&mut self, epoch: u64, rows: u64, end_offset: u64) {
        let order = self.publish_epoch(epoch, rows);
        self.calm(6);
        assert_eq!(self.outcome(order), Some(&Ok(Finished::Done)));
        assert_eq!(self.status(self.owner).unwrap().end_offset, end_offset);
    }

    fn equal_ends(&mut self) {
        self.calm(30);
        let ends: Vec<_> = (0..NODES).map(|at| self.status(at).map(|status| (status.records, status.chain))).collect();
        assert!(ends.iter().all(|end| *end == ends[0]), "chains differ: {ends:?}");
    }
}

#[cfg_attr(not(feature = "planted"), test)]
fn a_stage_is_answered_when_a_second_disk_has_it_and_a_failover_keeps_it() {
    let mut cluster = opened(21);
    cluster.rules(0, &[]);
    let request = cluster.stage(1, 0);
    let again = cluster.stage(1, 0);
    let counted = cluster.count_epoch(1);
    for _ in 0..5 {
        cluster.work(0);
        cluster.collect(0);
    }
    assert!(cluster.others.is_empty(), "durable on one disk alone: {:?}", cluster.others);
    assert_eq!(cluster.outcome(counted), None, "nor is it there for a commit");
    cluster.calm(4);
    assert!(matches!(cluster.outcome(counted), Some(Ok(Finished::Staged { rows: 10, .. }))));
    for request in [request, again] {
        assert_eq!(cluster.others[&request].status, Status::Staged as u8);
    }
    cluster.staged(1, 1);
    let counted = cluster.count_epoch(1);
    cluster.calm(2);
    let Some(Ok(Finished::Staged { rows: 20, upto, epoch: 1, is_published: false })) =
        cluster.outcome(counted).cloned()
    else {
        panic!("{:?}", cluster.outcome(counted));
    };
    // The owner dies for good; the scope is committed while nobody owns the partition.
    cluster.power_cut(0);
    cluster.rules(1, &[1]);
    assert!(cluster.fail_over());
    cluster.calm(20);
    assert!(cluster.is_open && cluster.owner != 0);
    let counted = cluster.count_epoch(1);
    cluster.calm(2);
    let again = cluster.outcome(counted);
    assert!(
        matches!(again, Some(Ok(Finished::Staged { rows: 20, upto: there, is_published: false, .. })) if *there == upto),
        "whoever owns it has the same rows in the same records: {again:?}"
    );
    cluster.published(1, 20, 20);
    // The publish is on two disks: the next owner has it, and repeats nothing.
    cluster.start(0);
    cluster.rules(1, &[1]);
    cluster.calm(30);
    cluster.power_cut(cluster.owner);
    assert!(cluster.fail_over());
    cluster.calm(20);
    assert!(cluster.is_open);
    cluster.rules(1, &[1]);
    cluster.published(1, 20, 20);
    for at in (0..NODES).filter(|at| !cluster.sites[*at].up).collect::<Vec<_>>() {
        cluster.start(at);
    }
    cluster.rules(1, &[]);
    cluster.equal_ends();
}

#[cfg_attr(not(feature = "planted"), test)]
fn a_publish_that_only_its_owner_had_is_cut_and_made_again_by_the_next() {
    let mut cluster = opened(22);
    cluster.rules(0, &[]);
    cluster.staged(1, 0);
    cluster.rules(1, &[1]);
    let lonely = cluster.publish_epoch(1, 10);
    cluster.work(0);
    cluster.work(0);
    cluster.cut(0, 1);
    cluster.cut(0, 2);
    cluster.collect(0);
    assert_eq!(cluster.outcome(lonely), None, "a publish ends when a quorum has it");
    assert_eq!(cluster.status(0).unwrap().end_offset, 0);
    cluster.open(1);
    cluster.calm(30);
    assert!(cluster.is_open);
    assert!(matches!(cluster.outcome(lonely), Some(Err(_))), "nobody knows any more");
    // Two batches more of the same attempt would be one epoch too late; the stage itself is there, on all three.
    cluster.published(1, 10, 10);
    cluster.equal_ends();
    cluster.open(0);
    cluster.calm(30);
    cluster.published(1, 10, 10);
    cluster.staged(2, 0);
    cluster.rules(2, &[2]);
    cluster.published(2, 10, 20);
    cluster.equal_ends();
}

#[cfg_attr(not(feature = "planted"), test)]
fn with_too_few_replicas_nothing_is_staged_or_published() {
    let mut cluster = opened(23);
    cluster.rules(0, &[]);
    cluster.staged(1, 0);
    cluster.power_cut(1);
    cluster.power_cut(2);
    let before = cluster.status(0).unwrap().records;
    let request = cluster.stage(1, 1);
    cluster.rules(1, &[1]);
    let order = cluster.publish_epoch(1, 10);
    cluster.calm(4);
    assert_eq!(cluster.others[&request].code, Code::TooFewReplicas as u16);
    assert!(matches!(cluster.outcome(order), Some(Err(why)) if why.contains("of its replicas are there")));
    assert_eq!(cluster.status(0).unwrap().records, before);
    cluster.start(1);
    cluster.rules(1, &[1]);
    cluster.calm(30);
    cluster.published(1, 10, 10);
}

#[cfg_attr(not(feature = "planted"), test)]
fn a_publish_whose_replicas_are_gone_ends_as_unknown_and_holds_nobody_up() {
    let mut cluster = opened(24);
    cluster.rules(0, &[]);
    cluster.staged(1, 0);
    cluster.rules(1, &[1]);
    let waits = cluster.publish_epoch(1, 10);
    cluster.work(0);
    cluster.power_cut(1);
    cluster.power_cut(2);
    let records = cluster.status(0).unwrap().records;
    for _ in 0..70 {
        cluster.work(0);
        cluster.pass(20);
    }
    assert_eq!(cluster.outcome(waits), None, "a replica that lost its connection only is back by then");
    for _ in 0..40 {
        cluster.work(0);
        cluster.pass(20);
    }
    let is_unknown = |told: Option<&Result<Finished, String>>| matches!(told, Some(Err(why)) if why.contains("or not"));
    assert!(is_unknown(cluster.outcome(waits)), "{:?}", cluster.outcomes);
    // Asked for again, it is told at once that this cannot end now, and nothing is appended twice.
    let again = cluster.publish_epoch(1, 10);
    cluster.work(0);
    cluster.collect(0);
    assert!(matches!(cluster.outcome(again), Some(Err(why)) if why.contains("is appended")), "{:?}", cluster.outcomes);
    assert_eq!(cluster.status(0).map(|told| (told.records, told.end_offset)), Some((records, 0)));
    cluster.start(1);
    cluster.rules(1, &[1]);
    cluster.calm(30);
    assert_eq!(cluster.status(0).unwrap().end_offset, 10, "it was appended once, and may be read now");
    cluster.published(1, 10, 10);
    // Of what a quorum has, a repeat says so also when nobody else is there and later records wait.
    cluster.publish(5);
    cluster.work(0);
    cluster.power_cut(1);
    let again = cluster.publish_epoch(1, 10);
    cluster.work(0);
    cluster.collect(0);
    assert_eq!(cluster.outcome(again), Some(&Ok(Finished::Done)));
    cluster.start(1);
    cluster.start(2);
    cluster.rules(1, &[]);
    cluster.calm(60);
    cluster.equal_ends();
}

#[cfg_attr(not(feature = "planted"), test)]
fn a_copy_counts_the_rows_of_a_transaction_once() {
    let mut cluster = Cluster::new(74);
    cluster.open_alone();
    cluster.rules(0, &[]);
    cluster.staged(1, 0);
    cluster.rules(1, &[1]);
    let order = cluster.publish_epoch(1, 10);
    cluster.calm(4);
    assert!(matches!(cluster.outcome(order), Some(Ok(_))));
    cluster.receive(1);
    cluster.calm(50);
    let sync = cluster.sites[OWNER].node.syncs().remove(0);
    assert_eq!((sync.state, sync.rows), ("contiguous", 10));
}
