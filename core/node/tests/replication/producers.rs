//! Producer tables after truncations: each replica knows of producers what its log says, wherever it got the log from.

use ringfence_node::{Config, Finished, Order, Outcome, ResumePoint};
use ringfence_wire::{Code, ExtensionKind, Opcode, RequestHeader, crc_of, extension};

use crate::cluster::{CLIENT, Cluster, config_of};
use crate::opened;
use crate::support::{PARTITION, TOPIC, body_of};

/// The named producer P.
const PRODUCER: u64 = 88;

impl Cluster {
    /// P opens epoch `epoch` at the owner.
    fn open_named(&mut self, epoch: u64) -> Option<ResumePoint> {
        let owner = self.owner;
        let (topic, partition, producer_id, name) = (TOPIC, PARTITION, PRODUCER, b"P".to_vec());
        let order =
            Order::OpenProducer { topic, partition, producer_id, producer_epoch: epoch, previous_epoch: 0, name };
        let number = self.order(owner, order);
        self.calm(10);
        let ended = self.outcomes.iter().find_map(|(at, outcome)| match outcome {
            Outcome::Order { number: n, result } if *at == owner && *n == number => Some(result.clone()),
            _ => None,
        });
        match ended {
            Some(Ok(Finished::ProducerOpened(points))) => {
                assert!(points.len() <= 1, "one point for all slots: {points:?}");
                points.into_iter().next()
            }
            other => panic!("the open ended as {other:?}"),
        }
    }

    /// P sends row `row` with its number and note, as the batch of this sequence.
    fn send_named(&mut self, epoch: u64, sequence: u64, row: u64) {
        let mut body = Vec::new();
        extension::write(&mut body, &[(ExtensionKind::Note, format!("row {row}").as_bytes())]);
        let extension_bytes = u32::try_from(body.len()).unwrap();
        body.extend_from_slice(&body_of(i64::try_from(row).unwrap() + (1 << 40), 1));
        self.next_request += 1;
        let header = RequestHeader {
            opcode: Opcode::Publish as u8,
            request_id: self.next_request,
            topic: TOPIC,
            partition: PARTITION,
            layout_version: 1,
            owner_epoch: self.epoch,
            producer_id: PRODUCER,
            producer_epoch: epoch,
            sequence,
            send: row,
            rows: 1,
            deadline_ms: 3_000,
            extension_bytes,
            body_bytes: u32::try_from(body.len()).unwrap(),
            body_crc: crc_of(&body),
            ..RequestHeader::default()
        };
        let owner = self.owner;
        self.sites[owner].node.request(CLIENT, &header.seal(), &body).unwrap();
        self.collect(owner);
    }

    /// Node 0 is away with `lost` batches of P that nobody else has, after ten that all have; node 1 takes over.
    fn part_ways(&mut self, lost: u64) {
        assert_eq!(self.open_named(100), None);
        for row in 1..=10 {
            self.send_named(100, row - 1, row);
        }
        self.calm(10);
        for row in 11..11 + lost {
            self.send_named(100, row - 1, row);
        }
        self.work(0);
        self.collect(0);
        self.cut(0, 1);
        self.cut(0, 2);
    }

    fn check_resume(&mut self, owner: usize, epoch: u64) {
        self.open(owner);
        self.calm(30);
        assert!(self.is_open);
        let resume = self.open_named(epoch).expect("P stored something here");
        assert_eq!((resume.send, resume.note.as_deref()), (10, Some(&b"row 10"[..])), "at node {owner}");
        assert_eq!(resume.sequence, Some(9));
        self.check_tables();
    }
}

#[cfg_attr(not(feature = "planted"), test)]
pub fn a_truncated_batch_is_no_resume_point() {
    for (seed, lost) in [(60, 1), (61, 64)] {
        let mut cluster = opened(seed);
        cluster.part_ways(lost);
        cluster.open(1);
        cluster.calm(30);
        assert_eq!(cluster.counter_of(0, "cuts"), 1);
        cluster.check_tables();
        cluster.check_resume(0, 200);
    }
}

/// The truncated replica, or its owner to be, starts again: before the truncation, or after it.
#[cfg_attr(not(feature = "planted"), test)]
fn a_restart_changes_nothing_of_it() {
    for (seed, lost, is_before) in [(62, 1, true), (63, 64, true), (64, 1, false), (65, 64, false)] {
        let mut cluster = opened(seed);
        cluster.part_ways(lost);
        if is_before {
            cluster.sites[0].node.crash();
            cluster.power_cut(0);
        }
        cluster.open(1);
        if is_before {
            cluster.start(0);
        }
        cluster.calm(40);
        cluster.check_tables();
        cluster.power_cut(0);
        cluster.start(0);
        cluster.calm(40);
        cluster.check_tables();
        cluster.check_resume(0, 200);
    }
}

/// A state record is written while batches wait for a quorum, and these are truncated. Below level 1 a state record
/// does not tell how to take records back: after a restart the owner sends everything from scratch.
#[cfg_attr(not(feature = "planted"), test)]
fn a_state_record_above_the_truncation_is_taken_back() {
    for (seed, level) in [(66, ringfence_wire::LEVEL_NEWEST), (67, 0)] {
        let mut cluster = crate::begun(Cluster::of(seed, |at| Config { level, ..config_of(at, 0) }));
        for _ in 0..150 {
            cluster.publish(400);
            cluster.calm(2);
        }
        cluster.part_ways(3);
        let (before_offset, written) = (cluster.status(0).unwrap().end_offset, cluster.counter_of(0, "states_written"));
        cluster.order(0, Order::Truncate { topic: TOPIC, partition: PARTITION, before_offset, epoch: 0 });
        for _ in 0..120 {
            cluster.work(0);
            cluster.collect(0);
            cluster.pass(20);
        }
        assert!(cluster.counter_of(0, "states_written") > written, "the old files are free but for the state in them");
        cluster.open(1);
        cluster.calm(60);
        cluster.check_tables();
        cluster.power_cut(0);
        cluster.start(0);
        cluster.calm(60);
        let start_offset = cluster.status(0).unwrap().start_offset;
        assert_eq!(start_offset, if level == 0 { 0 } else { before_offset }, "level {level}");
        cluster.check_resume(0, 200);
    }
}

/// The owner's table travels to a replica that lacks what retention has removed, with batches that wait for a quorum.
#[cfg_attr(not(feature = "planted"), test)]
fn a_replica_that_began_from_an_anchor_takes_records_back() {
    let mut cluster = opened(68);
    cluster.power_cut(2);
    for _ in 0..100 {
        cluster.publish(400);
        cluster.calm(2);
    }
    let before_offset = cluster.status(0).unwrap().end_offset;
    for at in 0..2 {
        cluster.order(at, Order::Truncate { topic: TOPIC, partition: PARTITION, before_offset, epoch: 0 });
    }
    cluster.calm(20);
    assert_eq!(cluster.open_named(100), None);
    for row in 1..=10 {
        cluster.send_named(100, row - 1, row);
    }
    cluster.calm(10);
    cluster.power_cut(1);
    for row in 11..=14 {
        cluster.send_named(100, row - 1, row);
    }
    cluster.start(2);
    // The anchor arrives with all fourteen in its table, and of their records as many as one round brings.
    for _ in 0..200 {
        cluster.work(0);
        cluster.work(2);
        for _ in 0..2 {
            cluster.deliver();
        }
        cluster.pass(5);
        if cluster.status(2).is_some_and(|told| told.start_offset > 0) {
            break;
        }
    }
    assert!(cluster.status(2).unwrap().start_offset > 0, "{:#?}", cluster.sites[0].node.syncs());
    cluster.power_cut(0);
    cluster.start(1);
    cluster.open(1);
    cluster.calm(60);
    cluster.check_tables();
    cluster.check_resume(2, 200);
    cluster.start(0);
    cluster.calm(60);
    cluster.check_tables();
    cluster.check_resume(0, 300);
}

/// RESOLVE tells of a `send` only what a quorum has.
#[cfg_attr(not(feature = "planted"), test)]
fn a_send_that_no_quorum_has_is_not_told() {
    let mut cluster = opened(69);
    cluster.part_ways(3);
    cluster.next_request += 1;
    let header = RequestHeader {
        opcode: Opcode::Resolve as u8,
        request_id: cluster.next_request,
        topic: TOPIC,
        partition: PARTITION,
        layout_version: 1,
        producer_id: PRODUCER,
        ..RequestHeader::default()
    };
    cluster.sites[0].node.request(CLIENT, &header.seal(), &[]).unwrap();
    cluster.collect(0);
    assert!(!cluster.others.contains_key(&header.request_id), "no quorum confirms it");
    // The answer to a repeat is of what a quorum has.
    cluster.send_named(100, 4, 5);
    assert_eq!(cluster.others[&cluster.next_request].send, 10);
    for _ in 0..110 {
        cluster.work(0);
        cluster.pass(20);
    }
    assert_eq!(cluster.others[&header.request_id].code, Code::TooFewReplicas as u16);
}
