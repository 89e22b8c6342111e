//! What records of cohorts cost a log, and what they leave alone: time (CA8), their number (CA3), gates of a log (CA9).

use ringfence_node::{CohortRules, GatesIn, Order, TableLimits};
use ringfence_wire::{Code, LOG_GATES_MAX, Opcode, RequestHeader};

use crate::members::{OWN, acknowledge, attach, fetch, opened, shape, world};
use crate::support::cohorts::{ONE, STANDS, rule};
use crate::support::{CLIENT, PARTITION, Shape, TOPIC, World, body_of, schema};

const MINUTE_MS: u64 = 60_000;
const HOUR_MS: u64 = 60 * MINUTE_MS;

/// The answer to an acknowledgement up to this row, if there is one yet.
fn acknowledged(world: &mut World, number: u64, through: u64) -> Option<u64> {
    let id = acknowledge(world, CLIENT, ONE, [PARTITION, number, through, OWN, 0]);
    is_answered(world, id).then_some(id)
}

fn is_answered(world: &World, id: u64) -> bool {
    world.answers.iter().any(|reply| reply.header.request_id == id)
}

fn log_start(world: &mut World) -> u64 {
    let request = world.request(Opcode::EndOffsets);
    world.ask(&request, &[]).header.first_offset
}

#[test]
pub fn a_partition_that_is_only_read_loses_its_old_rows() {
    let mut world = world(60);
    let (schemas, key_columns) = (vec![schema()], vec![]);
    let retention_ms = HOUR_MS;
    world
        .ordered(Order::InstallTopic { topic: TOPIC, schemas, key_columns, retention_bytes: 0, retention_ms })
        .unwrap();
    let (number, _) = opened(&mut world, CLIENT, ONE);
    for through in 1..=5 {
        world.pass(10 * MINUTE_MS);
        let id = acknowledged(&mut world, number, through).expect("it is the only one");
        assert_eq!(world.answer_to(id).body.len(), 0);
    }
    assert_eq!(log_start(&mut world), 0, "no row is an hour old");
    for through in 6..=8 {
        world.pass(5 * MINUTE_MS);
        acknowledged(&mut world, number, through);
    }
    world.pass(20);
    assert_eq!(log_start(&mut world), 30, "all are, whatever was acknowledged since");
}

#[test]
pub fn rows_that_are_kept_for_cohorts_outlive_retention_until_they_are_not() {
    let (mut world, until_ms) = keeping(63);
    assert_eq!(log_start(&mut world), 0);
    world.ordered(Order::KeepRows { topic: TOPIC, partitions: vec![(PARTITION + 1, until_ms)] }).unwrap();
    world.pass(20);
    assert_eq!(log_start(&mut world), 30);
}

#[test]
pub fn rows_that_are_kept_for_cohorts_go_when_their_time_is_over_without_an_order() {
    let (mut world, until_ms) = keeping(64);
    world.pass(until_ms - 1 - world.now.unix_ms);
    assert_eq!(log_start(&mut world), 0, "a millisecond is left");
    world.pass(1);
    assert_eq!(log_start(&mut world), 30);
}

/// Its rows are kept for a day, and are older than the topic's retention; the end of that day.
fn keeping(seed: u64) -> (World, u64) {
    let mut world = world(seed);
    let (schemas, key_columns) = (vec![schema()], vec![]);
    let (retention_ms, until_ms) = (HOUR_MS, world.now.unix_ms + 24 * HOUR_MS);
    let partitions = vec![(PARTITION, until_ms), (PARTITION + 1, until_ms)];
    world.ordered(Order::KeepRows { topic: TOPIC, partitions }).unwrap();
    world
        .ordered(Order::InstallTopic { topic: TOPIC, schemas, key_columns, retention_bytes: 0, retention_ms })
        .unwrap();
    world.pass(2 * HOUR_MS);
    world.pass(20);
    (world, until_ms)
}

#[test]
pub fn reading_makes_no_idle_producer_older() {
    let limits = TableLimits { entries: 10, bytes: 32 << 10, expiry_ms: 1_000_000_000 };
    let mut world = World::new(61, Shape { limits, ..shape() });
    let send = |world: &mut World, producer: u64, sequence: u64| {
        let body = body_of(0, 1);
        let header = world.batch(producer, sequence, 1, &body);
        world.ask(&header, &body).header.code
    };
    for producer in 1..=10 {
        assert_eq!(send(&mut world, producer, 0), 0);
    }
    world.ordered(Order::InstallCohorts(rule(ONE, 1))).unwrap();
    assert_eq!(attach(&mut world, CLIENT, ONE).header.status, 0);
    let (number, _) = opened(&mut world, CLIENT, ONE);
    for through in 1..=10 {
        world.pass(2 * MINUTE_MS);
        let id = acknowledged(&mut world, number, through).expect("it is the only one");
        assert_eq!(world.answer_to(id).body.len(), 0);
    }
    world.pass(20);
    assert_eq!(send(&mut world, 11, 0), Code::Overloaded as u16, "the ten are as old as their rows");
    assert_eq!(world.counter("producers_forgotten"), 0);
    // A row makes the others old: there is room.
    assert_eq!(send(&mut world, 1, 1), 0);
    world.pass(20);
    let body = body_of(0, 1);
    let header = RequestHeader { producer_epoch: 6, ..world.batch(11, 0, 1, &body) };
    assert_eq!(world.ask(&header, &body).header.code, 0, "an epoch that is newer than what was forgotten");
    assert_eq!(world.counter("producers_forgotten"), 1);
}

#[test]
pub fn a_log_makes_a_hundred_records_of_cohorts_and_then_fifty_a_second() {
    let mut world = world(62);
    let body = body_of(30, 400);
    let header = world.batch(77, 3, 400, &body);
    assert_eq!(world.ask(&header, &body).header.status, 0);
    let (number, _) = opened(&mut world, CLIENT, ONE);
    let (mut through, mut waiting) = (0, None);
    let mut next = |world: &mut World, waiting: &mut Option<u64>| {
        if waiting.is_none_or(|id| is_answered(world, id)) {
            through += 1;
            *waiting = Some(acknowledge(world, CLIENT, ONE, [PARTITION, number, through, OWN, 0]));
        }
    };
    let before = world.counter("cohort_records");
    for _ in 0..120 {
        next(&mut world, &mut waiting);
    }
    let burst = world.counter("cohort_records") - before;
    assert_eq!(burst, 99, "a hundred coins, and the hold took one");
    assert!(!is_answered(&world, waiting.unwrap()), "it waits for a coin");
    let before = world.counter("cohort_records");
    for _ in 0..200 {
        world.pass(5);
        next(&mut world, &mut waiting);
    }
    let sustained = world.counter("cohort_records") - before;
    assert!((45..=51).contains(&sustained), "{sustained} records in a second");
}

/// What the disk reads for a plain read of the rows from this one on.
fn bytes_read(world: &mut World, offset: u64) -> u64 {
    let before = world.disk.counts().bytes_read;
    let header = world.fetch_header(offset, 0, 0);
    let reply = world.ask(&header, &[]);
    assert_eq!((reply.header.code, reply.header.first_offset), (0, offset), "{reply:?}");
    world.disk.counts().bytes_read - before
}

#[cfg_attr(not(feature = "planted"), test)]
pub fn acknowledgements_lie_in_no_readers_way_to_the_newest_rows() {
    let mut world = world(64);
    let body = body_of(30, 60);
    for sequence in 3..63 {
        let header = world.batch(77, sequence, 60, &body);
        assert_eq!(world.ask(&header, &body).header.status, 0);
    }
    let last = 30 + 59 * 60;
    let alone = bytes_read(&mut world, last);
    let (number, _) = opened(&mut world, CLIENT, ONE);
    for through in 1..=60 {
        acknowledged(&mut world, number, through).expect("it is the only one");
    }
    assert_eq!(bytes_read(&mut world, last), alone, "sixty acknowledgements lie behind it");
}

/// A gate for each of these cohorts, as a source of before had it.
fn gates_of(cohorts: std::ops::Range<u64>) -> Vec<u8> {
    let mut bytes = vec![1, 0, 1, 0];
    bytes.extend(u32::try_from(cohorts.end - cohorts.start).unwrap().to_le_bytes());
    for number in cohorts {
        let cohort = number << 16;
        bytes.extend([3, 0, 5, 0, 0, 0, 0, 0]);
        bytes.extend([PARTITION, cohort, cohort, 0, 0].iter().flat_map(|word| word.to_le_bytes()));
    }
    bytes
}

#[test]
pub fn a_log_with_all_its_gates_lets_no_further_cohort_in_until_some_are_deleted() {
    let mut world = World::new(63, shape());
    let body = body_of(0, 30);
    let header = world.batch(77, 0, 30, &body);
    assert_eq!(world.ask(&header, &body).header.status, 0);
    let first = 10;
    let gates = gates_of(first..first + LOG_GATES_MAX as u64).into();
    let number = world.epoch;
    world.ordered(Order::GatesIn(GatesIn { topic: TOPIC, partition: PARTITION, number, source: 5, gates })).unwrap();
    // It is not known yet whether those cohorts are still there.
    world.ordered(Order::InstallCohorts(CohortRules { complete: vec![], ..rule(ONE, 1) })).unwrap();
    assert_eq!(attach(&mut world, CLIENT, ONE).header.status, 0);
    let records = world.counter("cohort_records");
    let id = fetch(&mut world, CLIENT, ONE, 0, STANDS, 5_000);
    let refused = world.answer_to(id).header;
    assert_eq!(refused.code, Code::Overloaded as u16, "{refused:?}");
    assert!(refused.retry_after_ms > 0);
    assert_eq!(world.counter("cohort_records"), records, "nothing is written");
    // A complete list lacks them: their entries go, and the cohort is let in.
    let index = 2 * (first + LOG_GATES_MAX as u64);
    world.ordered(Order::InstallCohorts(CohortRules { index, ..rule(ONE, 2) })).unwrap();
    world.pass(1_000);
    // What they leave in the table goes with the next list.
    world.ordered(Order::InstallCohorts(CohortRules { index: index + 1, ..rule(ONE, 3) })).unwrap();
    world.pass(1_000);
    let (_, reply) = opened(&mut world, CLIENT, ONE);
    assert_eq!(reply.header.rows, 30);
}
