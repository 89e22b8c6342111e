//! Queues over damaged records that an operator gave up: their rows count as settled, also after a power cut.

use ringfence_log::Storage;
use ringfence_node::Order;
use ringfence_wire::Code;

use crate::queue_members::{DONE, FIRST, figures, given, publish, restarted, rule, told, world};
use crate::support::{PARTITION, TOPIC, World, body_of};

/// The last byte of this record's body flips on the disk.
fn damage(world: &World, sequence: u64) {
    let body = body_of(10 * i64::try_from(sequence).unwrap(), 10);
    for (name, _) in world.disk.list().unwrap() {
        let content = world.disk.content(&name).unwrap();
        if let Some(at) = content.windows(body.len()).position(|window| window == body) {
            return world.disk.flip(&name, at + body.len() - 1, 1);
        }
    }
    panic!("record {sequence} is in no file");
}

/// The damage of this record, and an operator who gives it up.
fn give_up(world: &mut World, sequence: u64) {
    damage(world, sequence);
    give_up_found(world, sequence);
}

/// A reader finds the damage, and an operator gives the record up.
fn give_up_found(world: &mut World, sequence: u64) {
    let header = world.fetch_header(10 * sequence, 0, 0);
    assert_eq!(world.ask(&header, &[]).header.code, Code::Quarantined as u16);
    world.ordered(Order::ReleaseQuarantine { topic: TOPIC, partition: PARTITION }).unwrap();
    world.epoch += 1;
    world.open_partition();
    world.pass(1100);
}

/// All rows that a member is given, each range done: until there are none.
fn read_all(world: &mut World) -> Vec<(u64, u32)> {
    let mut ranges = Vec::new();
    for _ in 0..10 {
        for (first, rows, _, count) in given(world, FIRST, 100) {
            assert_eq!(told(world, FIRST, &[(first, rows, DONE, count, 0, "")]), []);
            ranges.push((first, rows));
        }
        world.pass(50);
    }
    ranges
}

#[test]
pub fn rows_that_were_given_up_are_settled_wherever_they_are() {
    for (sequence, expected) in [(0, vec![(10, 20)]), (1, vec![(0, 10), (20, 10)]), (2, vec![(0, 20)])] {
        let mut world = world(20 + sequence, rule(0));
        give_up(&mut world, sequence);
        assert_eq!(read_all(&mut world), expected, "record {sequence} is damaged");
        let now = figures(&mut world);
        assert_eq!((now.settled, now.leased_rows, now.ranges), (Some(30), 0, 0), "record {sequence} is damaged");
        world.pass(40_000);
        publish(&mut world, 3);
        assert_eq!(given(&mut world, FIRST, 100), [(30, 10, false, 0)], "what comes later is given");
    }
}

#[test]
pub fn rows_that_were_given_up_stay_settled_after_a_power_cut() {
    let mut world = world(24, rule(0));
    give_up(&mut world, 0);
    assert_eq!(given(&mut world, FIRST, 100), [(10, 20, false, 0)]);
    world.pass(50);
    assert_eq!(figures(&mut world).settled, Some(10), "no member has to say anything");
    let mut world = restarted(world, rule(0));
    assert_eq!(figures(&mut world).settled, Some(10));
    assert_eq!(read_all(&mut world), [(10, 20)]);
    assert_eq!(figures(&mut world).settled, Some(30));
}

#[test]
fn rows_that_were_given_up_are_found_again_if_their_record_was_lost_in_a_power_cut() {
    let mut world = world(25, rule(0));
    give_up(&mut world, 1);
    assert_eq!(given(&mut world, FIRST, 100), [(0, 10, false, 0)]);
    world.is_held = true;
    assert_eq!(given(&mut world, FIRST, 100), [(20, 10, false, 0)]);
    world.pass(50);
    assert_eq!(figures(&mut world).ranges, 0, "the record is not durable");
    let mut world = restarted(world, rule(0));
    give_up_found(&mut world, 1);
    assert_eq!(read_all(&mut world), [(0, 10), (20, 10)]);
    assert_eq!(figures(&mut world).settled, Some(30));
}
