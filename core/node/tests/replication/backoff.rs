//! Replicas that do not take what they are sent: a body above their limits, a full disk.

use ringfence_log::faulty::Faults;
use ringfence_node::{Config, Order};
use ringfence_wire::{ExtensionKind, NOTE_BYTES_MAX, Opcode, RequestHeader, crc_of, extension};

use crate::cluster::{CLIENT, Cluster, config_of};
use crate::learner::{CHANGE, LEARNER, OWNER};
use crate::opened;
use crate::support::{PARTITION, TOPIC, body_of, install_topic};

/// Of a node whose limits are smaller.
const TAKES_BYTES: usize = 100_000;
/// 160 KB.
const LARGE_ROWS: u32 = 10_000;

impl Cluster {
    /// The first batch of this producer, with as long a note as may be.
    fn publish_noted(&mut self, producer_id: u64) {
        let mut body = Vec::new();
        extension::write(&mut body, &[(ExtensionKind::Note, &[7; NOTE_BYTES_MAX])]);
        let extension_bytes = u32::try_from(body.len()).unwrap();
        body.extend_from_slice(&body_of(0, 1));
        self.next_request += 1;
        let header = RequestHeader {
            opcode: Opcode::Publish as u8,
            request_id: self.next_request,
            topic: TOPIC,
            partition: PARTITION,
            layout_version: 1,
            owner_epoch: self.epoch,
            producer_id,
            producer_epoch: 5,
            rows: 1,
            extension_bytes,
            body_bytes: u32::try_from(body.len()).unwrap(),
            body_crc: crc_of(&body),
            ..RequestHeader::default()
        };
        self.sites[OWNER].node.request(CLIENT, &header.seal(), &body).unwrap();
        self.collect(OWNER);
    }

    /// Time passes, in steps of 20 ms.
    fn wait(&mut self, seconds: usize) {
        self.calm(seconds * 50);
    }

    /// State, reason, and what was sent of the only copy.
    fn copy(&self) -> (&'static str, String, u64, u64) {
        let sync = self.sites[OWNER].node.syncs().remove(0);
        (sync.state, sync.why, sync.rows, sync.bytes)
    }
}

#[cfg_attr(not(feature = "planted"), test)]
fn a_table_above_every_limit_of_a_body_travels_to_an_equal_node() {
    // An eighth of an eighth is one table, and an eighth of the files.
    let config = |at| Config { budget_bytes: 64 << 20, segment_bytes: 16 << 20, ..config_of(at, 0) };
    let mut cluster = Cluster::of(90, config);
    for at in [OWNER, LEARNER] {
        let Order::InstallTopic { topic, schemas, key_columns, retention_ms, .. } = install_topic(&[]) else {
            unreachable!("it makes no other")
        };
        cluster
            .order(at, Order::InstallTopic { topic, schemas, key_columns, retention_bytes: 256 << 10, retention_ms });
    }
    cluster.open_alone();
    for producer in 1..=700 {
        cluster.publish_noted(producer);
        if producer % 10 == 0 {
            cluster.calm(2);
        }
    }
    cluster.wait(2);
    assert!(cluster.status(OWNER).unwrap().start_offset > 0, "its beginning is gone");
    cluster.receive(1);
    cluster.wait(2);
    let (state, why, _, bytes) = cluster.copy();
    assert_eq!((state, why.as_str()), ("contiguous", ""));
    assert!(bytes > 2_800_000, "{bytes} bytes: the table was not that large");
    cluster.check_level();
}

#[cfg_attr(not(feature = "planted"), test)]
fn a_learner_that_takes_no_such_body_fails_and_says_so_after_a_few_broken_links() {
    let mut cluster = Cluster::new(91);
    cluster.open_alone();
    for rows in [5, LARGE_ROWS, 5] {
        cluster.publish(rows);
        cluster.calm(4);
    }
    cluster.takes_bytes[LEARNER] = TAKES_BYTES;
    cluster.receive(1);
    cluster.wait(60);
    let (state, why, rows, bytes) = cluster.copy();
    // One more where the answer to the small record before it was lost with a link.
    let closed = cluster.closed[LEARNER];
    assert!(state == "failed" && (9..=10).contains(&closed), "{state} after {closed}: {why}");
    assert!(why.contains("node 3 broke 9 times while record 2 of ") && why.contains("message_bytes"), "{why}");
    assert!(rows <= u64::from(LARGE_ROWS) + 10 && bytes < 2 * u64::from(LARGE_ROWS) * 16, "{rows} rows, {bytes} bytes");
    cluster.takes_bytes[LEARNER] = usize::MAX;
    cluster.order(LEARNER, Order::Discard { change: CHANGE, attempt: 1 });
    cluster.wait(1);
    cluster.receive(2);
    cluster.wait(2);
    assert_eq!(cluster.copy().0, "contiguous");
    cluster.check_level();
}

/// It said no every five seconds, until the time of its move was over: an hour.
#[cfg_attr(not(feature = "planted"), test)]
fn a_learner_whose_files_are_too_small_fails_at_once_and_says_so() {
    let config = |at| Config { segment_bytes: if at == LEARNER { 256 << 10 } else { 4 << 20 }, ..config_of(at, 0) };
    let mut cluster = Cluster::of(94, config);
    cluster.open_alone();
    for rows in [5, 2 * LARGE_ROWS, 5] {
        cluster.publish(rows);
        cluster.calm(4);
    }
    assert_eq!(cluster.acked.len(), 3);
    cluster.receive(1);
    cluster.wait(2);
    let (state, why, ..) = cluster.copy();
    assert!(state == "failed" && why.contains("node 3 stores no record") && why.contains("segment_bytes"), "{why}");
    assert_eq!(cluster.closed[LEARNER], 0, "what others have on that connection goes on");
}

#[cfg_attr(not(feature = "planted"), test)]
fn a_replica_of_the_set_that_takes_no_such_body_is_tried_rarely_and_the_quorum_goes_on() {
    let mut cluster = opened(92);
    cluster.takes_bytes[2] = TAKES_BYTES;
    cluster.publish(LARGE_ROWS);
    for _ in 0..60 {
        cluster.wait(1);
        cluster.publish(1);
    }
    cluster.wait(1);
    assert_eq!(cluster.acked.len(), 61);
    let closed = cluster.closed[2];
    // Eight in the first 12 s, then one in 5 s.
    assert!((10..=20).contains(&closed), "{closed} times");
    let syncs = cluster.sites[0].node.syncs();
    let why = &syncs.iter().find(|sync| sync.node == 3).unwrap().why;
    assert!(why.contains(&format!("node 3 broke {closed} times")), "{why}");
    cluster.takes_bytes[2] = usize::MAX;
    cluster.wait(6);
    cluster.check_equal();
    assert!(cluster.sites[0].node.syncs().iter().all(|sync| sync.why.is_empty()), "what is over is not told");
}

#[cfg_attr(not(feature = "planted"), test)]
fn a_full_disk_is_named_while_it_is_so_asked_rarely_and_what_is_sent_again_does_not_count() {
    let mut cluster = Cluster::new(93);
    cluster.open_alone();
    for _ in 0..12 {
        cluster.publish(LARGE_ROWS);
        cluster.calm(4);
    }
    let capacity_bytes = Some(cluster.disk_bytes(LEARNER) + (900 << 10));
    cluster.sites[LEARNER].disk.set_faults(Faults { capacity_bytes, ..Faults::default() });
    cluster.receive(1);
    cluster.wait(20);
    let before = cluster.counter_of(OWNER, "replicated_bytes");
    cluster.wait(30);
    let (state, why, rows, bytes) = cluster.copy();
    assert!(state != "contiguous" && state != "failed" && why.contains("disk_full"), "{state}: {why}");
    let all = 12 * u64::from(LARGE_ROWS);
    assert!(rows <= all && bytes <= cluster.disk_bytes(OWNER), "{rows} rows of {all}, {bytes} bytes");
    // Six tries at the most, each with what may be unanswered of this log.
    let again = cluster.counter_of(OWNER, "replicated_bytes") - before;
    assert!(again <= 7 * 12 * 170_000, "{again} bytes in 30 s");
    cluster.sites[LEARNER].disk.set_faults(Faults::default());
    cluster.wait(8);
    let (state, why, rows, _) = cluster.copy();
    assert_eq!((state, why.as_str(), rows), ("contiguous", "", all));
    cluster.check_level();
}
