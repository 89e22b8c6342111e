//! The level of the cluster: what is written before it is raised, and behind it.

use ringfence_log::{FileHeader, Storage, parse_segment_name};
use ringfence_node::Order;
use ringfence_wire::LEVEL_NEWEST;

use crate::support::{Shape, World, body_of};

const OLD: Shape = Shape {
    level: 0,
    shards: 1,
    reserve_bytes: 0,
    segment_bytes: 1 << 20,
    limits: ringfence_node::TableLimits { entries: 1000, bytes: 1 << 18, expiry_ms: 1_000_000_000 },
};

/// Formats of the segments, the oldest first.
fn formats(world: &World) -> Vec<u16> {
    let mut found = Vec::new();
    for (name, _) in world.disk.list().unwrap() {
        if let Some((number, _)) = parse_segment_name(&name) {
            let content = world.disk.content(&name).unwrap();
            found.push((number, FileHeader::open(&content[..4096]).unwrap().format));
        }
    }
    found.sort_unstable();
    found.into_iter().map(|(_, format)| format).collect()
}

fn fill_two_files(world: &mut World, first: u64) {
    let body = body_of(0, 12_000);
    for sequence in first..first + 12 {
        let header = world.batch(5, sequence, 12_000, &body);
        world.send_large(&header, &body);
        world.run();
        assert_eq!(world.answer_to(header.request_id).header.status, 0);
    }
}

#[test]
fn files_have_the_format_of_level_0_until_the_level_is_raised() {
    let mut world = World::new(1, OLD);
    fill_two_files(&mut world, 0);
    let before = formats(&world);
    assert!(before.len() >= 2 && before.iter().all(|format| *format == 1), "{before:?}");

    world.ordered(Order::SetLevel { level: LEVEL_NEWEST }).unwrap();
    world.ordered(Order::SetLevel { level: 0 }).unwrap();
    let body = body_of(0, 10);
    let header = world.batch(5, 12, 10, &body);
    world.send_large(&header, &body);
    world.run();
    assert_eq!(world.answer_to(header.request_id).header.status, 0);
    assert_eq!(formats(&world), [&before[..], &[2]].concat(), "the first record after the raise begins a file");
    fill_two_files(&mut world, 13);
    let after = formats(&world);
    assert_eq!(after[..before.len()], before, "files that were begun keep their format");
    assert_eq!(after.last(), Some(&2), "{after:?}");
}

#[test]
fn a_store_of_level_0_is_read_and_written_on_at_the_newest() {
    let mut world = World::new(2, OLD);
    fill_two_files(&mut world, 0);
    let rows = world.read_all().len();
    let shape = Shape { level: LEVEL_NEWEST, ..OLD };
    let mut world = world.crash(shape);
    world.install(1);
    world.open_partition();
    assert_eq!(world.read_all().len(), rows);
    fill_two_files(&mut world, 12);
    assert_eq!(formats(&world).last(), Some(&2));
    assert!(world.read_all().len() > rows);
}

#[test]
fn a_level_that_is_not_known_is_refused_and_changes_nothing() {
    let mut world = World::new(3, OLD);
    let before = world.engine.state_bytes();
    let refused = world.ordered(Order::SetLevel { level: LEVEL_NEWEST + 1 }).unwrap_err();
    assert!(refused.contains(&format!("this program knows up to {LEVEL_NEWEST}")), "{refused}");
    assert_eq!(world.engine.state_bytes(), before);
    fill_two_files(&mut world, 0);
    assert!(formats(&world).iter().all(|format| *format == 1));
}
