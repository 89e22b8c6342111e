//! Bits that rot in sealed files: found, put right with what another replica has, and never shown.

use ringfence_log::Storage;
use ringfence_node::{Order, Outcome};
use ringfence_wire::{Code, RecordHeader, RecordKind, Status};

use crate::cluster::{Cluster, NODES};
use crate::support::{PARTITION, TOPIC};

/// As fast as a test likes.
const FAST: u64 = 64 << 20;

/// Three replicas with sealed files of rows.
fn filled(seed: u64, bytes_per_s: u64) -> Cluster {
    let mut cluster = Cluster::scrubbing(seed, bytes_per_s);
    cluster.open(0);
    cluster.calm(10);
    fill(&mut cluster);
    cluster
}

fn fill(cluster: &mut Cluster) {
    for number in 0..30 {
        cluster.publish(if number % 3 == 0 { 3_000 } else { 40 });
        cluster.calm(2);
    }
    cluster.calm(6);
    assert_eq!(cluster.acked.len(), 30);
}

/// File and position of this record at a site, and its header.
fn place(cluster: &Cluster, at: usize, number: u64) -> (String, usize, RecordHeader) {
    let disk = &cluster.sites[at].disk;
    let mut names: Vec<String> = disk.list().unwrap().into_iter().map(|(name, _)| name).collect();
    names.retain(|name| name.strip_suffix(".seg").is_some());
    names.sort();
    let newest = names.pop();
    for name in names {
        let content = disk.content(&name).unwrap();
        let mut position = 4096;
        while let Some(bytes) = content.get(position..position + RecordHeader::SIZE) {
            let Ok(header) = RecordHeader::open(bytes.try_into().unwrap()) else {
                // One that has rotted already.
                position += 64;
                continue;
            };
            if header.kind == RecordKind::Rows as u8 && header.record_number == number {
                return (name, position, header);
            }
            position += header.span_bytes as usize;
        }
    }
    panic!("record {number} is in no sealed file of site {at}; the newest is {newest:?}");
}

/// A bit of the record's body flips, or of its header; returns the file as it was.
fn rot(cluster: &Cluster, at: usize, number: u64, in_header: bool) -> (String, Vec<u8>) {
    let (name, position, header) = place(cluster, at, number);
    assert!(header.body_bytes > 300);
    let before = cluster.sites[at].disk.content(&name).unwrap();
    cluster.sites[at].disk.flip(&name, position + if in_header { 30 } else { 192 + 250 }, 4);
    (name, before)
}

/// What the control plane was told of damage: how many records are known to be damaged.
fn told(cluster: &Cluster, at: usize) -> Vec<u64> {
    let records = |outcome: &(usize, Outcome)| match outcome {
        (who, Outcome::Damaged { topic: TOPIC, partition: PARTITION, records, .. }) if *who == at => Some(*records),
        _ => None,
    };
    cluster.outcomes.iter().filter_map(records).collect()
}

/// The next round, and what follows from it.
fn round(cluster: &mut Cluster) {
    cluster.calm(2);
    cluster.pass(61_000);
    cluster.calm(60);
}

fn is_whole(cluster: &Cluster, at: usize, (name, before): &(String, Vec<u8>)) -> bool {
    cluster.sites[at].disk.content(name).as_ref() == Some(before)
}

#[cfg_attr(not(feature = "planted"), test)]
fn rot_of_a_follower_or_of_the_owner_is_found_and_put_right() {
    for at in 0..NODES {
        for in_header in [false, true] {
            let mut cluster = filled(40 + at as u64, FAST);
            let mut before = Vec::new();
            for number in [2, 4, 9] {
                before.push(rot(&cluster, at, number, in_header));
            }
            let sound = before[0].clone();
            round(&mut cluster);
            let counts =
                ["scrub_damaged", "scrub_repaired", "damaged_records"].map(|name| cluster.counter_of(at, name));
            assert_eq!(counts, [3, 3, 0], "site {at}, header {in_header}: {:?}", cluster.outcomes);
            assert!(is_whole(&cluster, at, &sound), "site {at}, header {in_header}");
            assert_eq!(told(&cluster, at).last(), Some(&0));
            assert!(cluster.counter_of(at, "scrubbed_bytes") > 100_000);
            let others = (0..NODES).filter(|other| *other != at);
            assert_eq!(others.map(|other| cluster.counter_of(other, "copies_served")).sum::<u64>(), 3);
            cluster.check_rows();
            cluster.check_equal();
        }
    }
}

/// The background is off: it is the reader that meets the damage, and it never hears of it.
#[cfg_attr(not(feature = "planted"), test)]
fn a_reader_that_meets_damage_waits_for_the_repair_and_gets_the_sound_bytes() {
    let mut cluster = filled(50, 0);
    let before = rot(&cluster, 0, 3, false);
    let (_, _, header) = place(&cluster, 0, 3);
    let answer = cluster.fetch(0, header.first_offset);
    assert!(answer.is_none(), "at once only a refusal or damaged rows could come: {answer:?}");
    cluster.publish(7);
    cluster.calm(30);
    assert_eq!(cluster.acked.len(), 31, "the owner goes on meanwhile");
    let answer = *cluster.told.last().expect("the fetch was answered");
    assert_eq!((answer.status, answer.first_offset), (Status::Ok as u8, header.first_offset));
    assert!(is_whole(&cluster, 0, &before));
    assert_eq!(cluster.status(0).unwrap().quarantined, None);
    cluster.check_rows();
    cluster.check_equal();
}

/// Owner and follower lost the same record: the owner gets it from the third, then the follower from the owner.
#[cfg_attr(not(feature = "planted"), test)]
fn what_two_replicas_lost_comes_from_the_third_or_stays_damaged_and_told() {
    for (down, in_header) in [(false, false), (true, false), (false, true), (true, true)] {
        let mut cluster = filled(60, FAST);
        let before = [rot(&cluster, 0, 3, in_header), rot(&cluster, 1, 3, false)];
        if down {
            cluster.power_cut(2);
        }
        round(&mut cluster);
        cluster.calm(100);
        for (at, before) in before.iter().enumerate() {
            assert_eq!(is_whole(&cluster, at, before), !down, "site {at}");
            assert_eq!(told(&cluster, at).last(), Some(&u64::from(down)), "site {at}");
            assert_eq!(cluster.counter_of(at, "damaged_records"), u64::from(down));
        }
        if down {
            // Told once, however often it is met again; and who asks for it is refused, not shown it.
            round(&mut cluster);
            assert_eq!(told(&cluster, 0), [1]);
            assert_eq!(cluster.counter_of(0, "scrub_damaged"), 1);
            let (_, _, header) = place(&cluster, 1, 2);
            let after = header.first_offset + u64::from(header.rows);
            assert!(cluster.fetch(0, after).is_none());
            cluster.pass(11_000);
            cluster.calm(10);
            let answer = *cluster.told.last().unwrap();
            assert_eq!((answer.status, answer.code), (Status::Refused as u8, Code::Quarantined as u16));
            // The third is back: everything is put right, and the quarantine of the read ends.
            cluster.start(2);
            cluster.pass(61_000);
            cluster.calm(100);
            cluster.pass(61_000);
            cluster.calm(100);
            let whole = [0, 1].map(|at| is_whole(&cluster, at, &before[at]));
            assert_eq!(whole, [true; 2], "{in_header}: {:?}", cluster.outcomes);
            let status = cluster.status(0).unwrap();
            assert_eq!((status.quarantined, status.open), (None, true));
        }
        cluster.publish(5);
        cluster.calm(10);
        assert_eq!(cluster.acked.len(), 31);
        cluster.check_rows();
        cluster.check_equal();
    }
}

#[cfg_attr(not(feature = "planted"), test)]
fn the_only_replica_counts_and_tells_once_and_goes_on() {
    let mut cluster = Cluster::scrubbing(70, FAST);
    cluster.epoch = 1;
    cluster.tell_table(0);
    let (replicas, quorum) = (Vec::new(), 1);
    cluster
        .order(0, Order::Open { topic: TOPIC, partition: PARTITION, lo: 0, hi: u16::MAX, epoch: 1, replicas, quorum });
    cluster.calm(5);
    fill(&mut cluster);
    let before = rot(&cluster, 0, 3, false);
    round(&mut cluster);
    round(&mut cluster);
    assert_eq!((told(&cluster, 0), cluster.counter_of(0, "scrub_damaged")), (vec![1], 1));
    assert!(!is_whole(&cluster, 0, &before));
    let status = cluster.status(0).unwrap();
    assert_eq!((status.quarantined, status.open), (None, true));
    cluster.publish(5);
    cluster.calm(5);
    assert_eq!(cluster.acked.len(), 31);
}

/// No round comes to a file again that was given up: what was damaged in it must not stay a reason for ever.
#[cfg_attr(not(feature = "planted"), test)]
fn damage_in_a_file_that_is_given_up_is_no_reason_any_more() {
    let mut cluster = Cluster::scrubbing(70, FAST);
    cluster.epoch = 1;
    cluster.tell_table(0);
    let (replicas, quorum) = (Vec::new(), 1);
    cluster
        .order(0, Order::Open { topic: TOPIC, partition: PARTITION, lo: 0, hi: u16::MAX, epoch: 1, replicas, quorum });
    cluster.calm(5);
    fill(&mut cluster);
    rot(&cluster, 0, 3, false);
    round(&mut cluster);
    assert_eq!(told(&cluster, 0), [1]);
    cluster.order(0, Order::Truncate { topic: TOPIC, partition: PARTITION, before_offset: u64::MAX, epoch: 0 });
    for _ in 0..20 {
        cluster.publish(3_000);
        cluster.calm(3);
        cluster.pass(6_000);
    }
    assert_eq!(told(&cluster, 0), [1, 0]);
    assert_eq!(cluster.counter_of(0, "damaged_records"), 0);
}

#[cfg_attr(not(feature = "planted"), test)]
fn a_power_cut_at_any_call_of_the_background_ends_with_everything_put_right() {
    for calls in 0..24 {
        let mut cluster = filled(80, FAST);
        let at = 1 + usize::from(calls % 2 == 0);
        let before = rot(&cluster, at, 3, calls % 3 == 0);
        cluster.pass(61_000);
        cluster.sites[at].node.cut_scrub_after(calls).unwrap();
        cluster.calm(20);
        cluster.power_cut(at);
        cluster.start(at);
        round(&mut cluster);
        if cluster.status(at).unwrap().quarantined.is_some() {
            // A header that was lost at a start: recovery lacks the record, and finds it at the next one.
            assert!(is_whole(&cluster, at, &before), "{calls} calls: {:?}", cluster.outcomes);
            cluster.power_cut(at);
            cluster.start(at);
            cluster.calm(20);
        }
        assert_eq!(cluster.counter_of(at, "damaged_records"), 0, "{calls} calls");
        assert_eq!(cluster.status(at).unwrap().quarantined, None, "{calls} calls");
        assert!(is_whole(&cluster, at, &before), "{calls} calls");
        cluster.check_rows();
        cluster.check_equal();
    }
}

/// Rot that a start finds quarantines the partition there; it ends when every file of it was found sound.
#[cfg_attr(not(feature = "planted"), test)]
fn a_quarantine_of_a_start_ends_when_everything_is_sound() {
    for at in 0..2 {
        let mut cluster = filled(90, 0);
        cluster.power_cut(at);
        let before = [rot(&cluster, at, 3, false), rot(&cluster, at, 6, false)];
        cluster.start(at);
        if at == 0 {
            // Its control plane opens it again, as often as it takes.
            cluster.open(0);
        }
        assert!(cluster.status(at).unwrap().quarantined.is_some());
        cluster.publish(5);
        cluster.calm(60);
        cluster.pass(2_000);
        cluster.calm(100);
        assert_eq!(cluster.status(at).unwrap().quarantined, None, "site {at}: {:?}", cluster.outcomes);
        let lifted = Outcome::Lifted { topic: TOPIC, partition: PARTITION };
        assert!(cluster.outcomes.contains(&(at, lifted)));
        assert_eq!(cluster.counter_of(at, "scrub_repaired"), 2);
        drop(before);
        if at == 0 {
            cluster.open(0);
            cluster.calm(20);
            cluster.publish_again();
        }
        cluster.calm(30);
        assert_eq!(cluster.status(at).unwrap().records, cluster.status(2).unwrap().records);
        cluster.check_rows();
        cluster.check_equal();
    }
}
