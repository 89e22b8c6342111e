//! Progress of cohorts on a full disk: what retention needs to free it is taken, and no more (CA4).

use ringfence_log::Storage;
use ringfence_log::faulty::Faults;
use ringfence_node::{Order, TableLimits};
use ringfence_wire::{Code, Status};

use crate::members::{OWN, acknowledge, attach, fetch_of, opened};
use crate::support::cohorts::{ONE, STANDS, gate_of, rule};
use crate::support::{CLIENT, PARTITION, Shape, TOPIC, World, body_of};

/// Sealed partitions of which the log of `PARTITION` has the gates, each with rows up to `PARENT_END`.
const PARENTS: [u64; 3] = [4, 5, 6];
const PARENT_END: u64 = 40;

const STEP_MS: u64 = 50;

fn shape(reserve_bytes: u64) -> Shape {
    let limits = TableLimits { entries: 1000, bytes: 1 << 20, expiry_ms: 1_000_000_000 };
    Shape { level: 3, shards: 1, segment_bytes: 256 << 10, reserve_bytes, limits }
}

/// A partition whose disk takes no row any more, with 400 rows and more; `ONE` holds its gate and those of its parents:
/// numbers of the holds, its own first. And the sequence of the next batch.
fn full(seed: u64, reserve_bytes: u64) -> (World, [u64; 4], u64) {
    let mut world = World::new(seed, shape(reserve_bytes));
    assert_eq!(publish(&mut world, 0, 400), 0);
    let mut rules = rule(ONE, 1);
    for parent in PARENTS {
        rules.gates.insert(0, gate_of(parent, ONE));
        rules.gates[0].end = Some(PARENT_END);
    }
    rules.gates.sort_by_key(|rule| rule.partition);
    world.ordered(Order::InstallCohorts(rules)).unwrap();
    assert_eq!(attach(&mut world, CLIENT, ONE).header.status, 0);
    let (own, _) = opened(&mut world, CLIENT, ONE);
    let parents = PARENTS.map(|parent| {
        let id = fetch_of(&mut world, parent, (CLIENT, ONE), 0, STANDS, 5_000);
        world.answer_to(id).header.sequence
    });
    let capacity_bytes = Some(world.disk.list().unwrap().iter().map(|(_, bytes)| bytes).sum());
    world.disk.set_faults(Faults { capacity_bytes, ..Faults::default() });
    let mut sequence = 1;
    for rows in [1_000, 10] {
        while publish(&mut world, sequence, rows) == 0 {
            sequence += 1;
        }
    }
    // Where the last row found no room, a record of a position finds some.
    world.pass(2_000);
    (world, [own, parents[0], parents[1], parents[2]], sequence)
}

/// The code of the answer.
fn publish(world: &mut World, sequence: u64, rows: u32) -> u16 {
    let body = body_of(i64::try_from(sequence).unwrap() * 1_000, i64::from(rows));
    let header = world.batch(77, sequence, rows, &body);
    let code = world.ask(&header, &body).header.code;
    assert!(code == 0 || code == Code::DiskFull as u16, "{code}");
    code
}

/// The code of the line or of the whole answer, if there is one; 0: taken.
fn told(world: &mut World, partition: u64, number: u64, through: u64) -> u16 {
    let epoch = if partition == PARTITION { OWN } else { 0 };
    let id = acknowledge(world, CLIENT, ONE, [partition, number, through, epoch, 0]);
    let reply = world.answer_to(id);
    let line = reply.body.get(16..18).filter(|_| reply.header.status == Status::Ok as u8);
    line.map_or(reply.header.code, |code| u16::from_le_bytes([code[0], code[1]]))
}

/// Positions are told until the open file has no room for one of them: from here on they need the reserve.
fn until_refused(world: &mut World, number: u64) -> u64 {
    (1..400).find(|through| told(world, PARTITION, number, *through) != 0).unwrap()
}

#[cfg_attr(not(feature = "planted"), test)]
pub fn on_a_full_disk_one_position_a_second_is_taken() {
    let (mut world, [number, ..], sequence) = full(70, 1 << 20);
    let mut through = until_refused(&mut world, number);
    let before = world.counter("cohort_reserve_records");
    let (mut taken, mut refused) = (0, 0);
    for _ in 0..10_000 / STEP_MS {
        world.pass(STEP_MS);
        through += 1;
        match told(&mut world, PARTITION, number, through) {
            0 => taken += 1,
            code => {
                assert_eq!(code, Code::DiskFull as u16);
                refused += 1;
            }
        }
    }
    let records = world.counter("cohort_reserve_records") - before;
    assert!((9..=11).contains(&records), "{records} records in ten seconds");
    assert!(taken <= records && refused > 150, "{taken} taken, {refused} refused");
    let now = world.now;
    let offset = world.engine.gates(now).iter().find(|gate| gate.partition == PARTITION).unwrap().offset;
    let behind = through - offset;
    assert!(behind <= 1_000 / STEP_MS + 1, "what was refused is in the record of the next second: {behind} behind");
    assert_eq!(publish(&mut world, sequence, 10), Code::DiskFull as u16, "rows have no part in it");
}

#[cfg_attr(not(feature = "planted"), test)]
pub fn what_ends_a_sealed_partition_is_taken_whenever_it_comes() {
    let (mut world, [number, parents @ ..], _) = full(71, 1 << 20);
    let through = until_refused(&mut world, number);
    world.pass(1_000);
    told(&mut world, PARTITION, number, through + 1);
    for (parent, number) in PARENTS.into_iter().zip(parents) {
        assert_eq!(
            told(&mut world, parent, number, PARENT_END - 1),
            Code::DiskFull as u16,
            "the second has had its own"
        );
        assert_eq!(told(&mut world, parent, number, PARENT_END), 0);
    }
}

#[cfg(not(feature = "planted"))]
#[test]
fn positions_leave_a_part_of_the_reserve_to_what_frees_the_disk() {
    let (mut world, [number, ..], sequence) = full(72, 128 << 10);
    let mut through = until_refused(&mut world, number);
    let records = world.counter("cohort_reserve_records");
    for _ in 0..60 {
        world.pass(1_000);
        through += 1;
        told(&mut world, PARTITION, number, through);
    }
    let records = world.counter("cohort_reserve_records") - records;
    assert!((4..=16).contains(&records), "{records} groups of 4 KiB in 64 KiB");
    assert_eq!(told(&mut world, PARTITION, number, through + 1), Code::DiskFull as u16);
    let before_offset = u64::MAX;
    world.ordered(Order::Truncate { topic: TOPIC, partition: PARTITION, before_offset, epoch: 0 }).unwrap();
    let is_open = (0..200).any(|_| {
        world.pass(1_000);
        publish(&mut world, sequence, 10) == 0
    });
    assert!(is_open, "the rows are gone, and there is space");
}
