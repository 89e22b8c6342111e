//! The wall clock may jump: records carry it, nothing waits for it.

use crate::support::{Shape, TOPIC, World, body_of, schema};
use ringfence_log::Storage;
use ringfence_log::faulty::{Faults, FaultyDisk};
use ringfence_node::{Event, Now, Order, TimeWindow};
use ringfence_wire::{Code, Opcode, RequestHeader};

const DAY_MS: u64 = 86_400_000;
const AHEAD_MS: u64 = 400 * DAY_MS;
const TRUE_MS: u64 = 20_000 * DAY_MS;
const OFFSET_MS_MAX: u64 = 300_000;

#[test]
fn a_full_disk_is_asked_again_within_seconds_although_the_clock_went_back_a_day() {
    let mut world = World::new(7, Shape { segment_bytes: 1 << 20, ..Shape::default() });
    world.now.unix_ms += 1_000_000_000;
    let used = world.disk.list().unwrap().iter().map(|(_, bytes)| bytes).sum();
    world.disk.set_faults(Faults { capacity_bytes: Some(used), ..Faults::default() });
    let body = body_of(0, 8_000);
    let mut sequence = 0;
    let refused = loop {
        let header = world.batch(3, sequence, 8_000, &body);
        let reply = world.ask(&header, &body);
        if reply.header.status != 0 {
            break reply;
        }
        sequence += 1;
        assert!(sequence < 100, "the disk never was full");
    };
    assert_eq!(refused.header.code, Code::DiskFull as u16);
    world.now.unix_ms -= 86_400_000;
    world.disk.set_faults(Faults::default());
    for _ in 0..3 {
        world.pass(1_100);
    }
    let header = world.batch(3, sequence, 8_000, &body);
    let reply = world.ask(&header, &body);
    assert_eq!((reply.header.status, reply.header.code), (0, 0), "space is back: {reply:?}");
}

/// An owner that starts with a wrong wall clock, in a cluster whose other nodes have the right time.
fn started_wrong(unix_ms: u64) -> World {
    let disk = FaultyDisk::new(11);
    let mut world = World::open(disk, Shape::default(), Now { unix_ms, mono_ms: 1000 });
    set_window(&mut world, TRUE_MS);
    world.install(1);
    world.open_partition();
    world
}

fn set_window(world: &mut World, true_ms: u64) {
    let window = TimeWindow { earliest_ms: true_ms - OFFSET_MS_MAX, latest_ms: true_ms + OFFSET_MS_MAX };
    world.event(Event::SetTimeWindow(window));
}

fn store(world: &mut World, producer_id: u64, sequence: u64) -> u64 {
    let body = body_of(i64::try_from(sequence).unwrap(), 1);
    let header = world.batch(producer_id, sequence, 1, &body);
    let reply = world.ask(&header, &body);
    assert_eq!((reply.header.status, reply.header.code), (0, 0), "{reply:?}");
    reply.header.first_offset
}

fn offset_at(world: &mut World, unix_ms: u64) -> u64 {
    let header = RequestHeader { sequence: unix_ms, ..world.request(Opcode::OffsetForTime) };
    world.ask(&header, &[]).header.first_offset
}

#[test]
fn an_owner_whose_clock_is_wrong_stores_times_inside_of_the_window() {
    for (wrong_ms, expected_ms) in [
        (TRUE_MS + AHEAD_MS, TRUE_MS + OFFSET_MS_MAX),
        (TRUE_MS - AHEAD_MS, TRUE_MS - OFFSET_MS_MAX),
        (0, TRUE_MS - OFFSET_MS_MAX),
    ] {
        let mut world = started_wrong(wrong_ms);
        store(&mut world, 3, 0);
        world.pass(1000);
        store(&mut world, 3, 1);
        let times: Vec<u64> = world.read_all().iter().map(|(header, _)| header.time_ms).collect();
        assert_eq!(times, [expected_ms, expected_ms + 1000], "clock at {wrong_ms}");
    }
}

#[test]
fn after_a_clock_400_days_ahead_offsets_of_times_and_producers_are_right() {
    let mut world = started_wrong(TRUE_MS + AHEAD_MS);
    let first = store(&mut world, 3, 0);
    world.now.unix_ms -= AHEAD_MS;
    world.pass(2 * OFFSET_MS_MAX);
    let later = store(&mut world, 3, 1);
    assert_eq!(offset_at(&mut world, TRUE_MS + 2 * OFFSET_MS_MAX), later);
    // Again, while the owner runs: its producers are as old as before.
    world.now.unix_ms += AHEAD_MS;
    let other = store(&mut world, 4, 0);
    world.pass(10);
    world.now.unix_ms -= AHEAD_MS;
    world.pass(2 * OFFSET_MS_MAX);
    assert_eq!(world.counter("producers_forgotten"), 0);
    assert_eq!(store(&mut world, 3, 0), first, "a repeat gets its first answer");
    let last = store(&mut world, 3, 2);
    assert_eq!(offset_at(&mut world, TRUE_MS + 3 * OFFSET_MS_MAX), other, "the latest time that it may have");
    assert_eq!(offset_at(&mut world, TRUE_MS + 3 * OFFSET_MS_MAX + 1), last);
}

#[test]
fn age_retention_goes_on_after_a_clock_400_days_ahead() {
    let mut world = started_wrong(TRUE_MS + AHEAD_MS);
    let (hour_ms, rows) = (3_600_000, 3);
    world
        .ordered(Order::InstallTopic {
            topic: TOPIC,
            schemas: vec![schema()],
            key_columns: vec![],
            retention_bytes: 0,
            retention_ms: hour_ms,
        })
        .unwrap();
    for sequence in 0..rows {
        store(&mut world, 3, sequence);
    }
    world.now.unix_ms -= AHEAD_MS;
    world.pass(hour_ms / 2);
    let starts_at = |world: &mut World| {
        let request = world.request(Opcode::EndOffsets);
        world.ask(&request, &[]).header.first_offset
    };
    assert_eq!(starts_at(&mut world), 0, "no row is an hour old");
    world.pass(hour_ms / 2 + 2 * OFFSET_MS_MAX);
    world.pass(20);
    assert_eq!(starts_at(&mut world), rows, "all are");
}

#[test]
fn rows_stored_with_a_clock_behind_are_not_old_when_it_is_right_again() {
    let mut world = started_wrong(TRUE_MS - AHEAD_MS);
    store(&mut world, 3, 0);
    world.now.unix_ms += AHEAD_MS;
    world.pass(10);
    let (header, _) = world.read_all().remove(0);
    assert!(header.time_ms + OFFSET_MS_MAX >= TRUE_MS, "{} ms too old", TRUE_MS - header.time_ms);
}
