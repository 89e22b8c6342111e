//! What a partition keeps of producers: who is forgotten, who is refused, and which epochs are taken.

use ringfence_node::{Event, Finished, Order, TableLimits};
use ringfence_wire::{Code, ExtensionKind, RequestHeader, extension};

use crate::support::{PARTITION, Reply, Shape, TOPIC, World, body_of};

const LIMITS: TableLimits = TableLimits { entries: 10, bytes: 32 << 10, expiry_ms: 1_000_000_000 };

fn world() -> World {
    World::new(1, Shape { limits: LIMITS, ..Shape::default() })
}

fn open(world: &mut World, producer_id: u64) -> Finished {
    let (topic, partition, name) = (TOPIC, PARTITION, b"P".to_vec());
    world
        .ordered(Order::OpenProducer { topic, partition, producer_id, producer_epoch: 5, previous_epoch: 0, name })
        .unwrap()
}

/// One batch with a note of these bytes.
fn send(world: &mut World, producer_id: u64, sequence: u64, note: usize) -> Reply {
    send_in(world, 5, producer_id, sequence, note)
}

fn send_in(world: &mut World, producer_epoch: u64, producer_id: u64, sequence: u64, note: usize) -> Reply {
    let mut body = Vec::new();
    if note > 0 {
        extension::write(&mut body, &[(ExtensionKind::Note, &vec![7; note])]);
    }
    let extension_bytes = u32::try_from(body.len()).unwrap();
    body.extend_from_slice(&body_of(i64::try_from(sequence).unwrap(), 1));
    let header = RequestHeader { extension_bytes, producer_epoch, ..world.batch(producer_id, sequence, 1, &body) };
    world.ask(&header, &body)
}

#[test]
fn a_full_table_refuses_new_producers_and_forgets_no_name() {
    let mut world = world();
    for id in 1..=10 {
        assert_eq!(open(&mut world, id), Finished::ProducerOpened(vec![]));
    }
    let before = world.engine.state_bytes();
    let Finished::ProducersFull(why) = open(&mut world, 11) else { panic!("an eleventh name found room") };
    assert!(why.contains("has 10 producers") && why.contains("producers_max"), "{why}");
    let refused = send(&mut world, 12, 0, 0);
    assert_eq!((refused.header.code, refused.header.retry_after_ms), (Code::Overloaded as u16, 1_000));
    assert_eq!(world.engine.state_bytes(), before, "I15");
    // For years nobody sends anything but the first: names stay.
    for sequence in 0..100 {
        assert_eq!(send(&mut world, 1, sequence, 100).header.code, 0);
        world.pass(LIMITS.expiry_ms / 10);
    }
    assert_eq!(world.counter("producers_forgotten"), 0);
    for id in 2..=10 {
        assert_eq!(send(&mut world, id, 0, 0).header.code, 0, "producer {id}");
    }
}

#[test]
fn idle_producers_without_a_name_make_room() {
    let mut world = world();
    for id in 1..=10 {
        assert_eq!(send(&mut world, id, 0, 0).header.code, 0);
    }
    assert_eq!(send(&mut world, 11, 0, 0).header.code, Code::Overloaded as u16);
    for _ in 0..11 {
        world.pass(60_000);
    }
    assert_eq!(send(&mut world, 11, 0, 0).header.code, Code::Overloaded as u16, "record time goes with records");
    assert_eq!(send(&mut world, 1, 1, 0).header.code, 0);
    world.pass(20);
    assert_eq!(send_in(&mut world, 6, 11, 0, 0).header.code, 0);
    assert_eq!(world.counter("producers_forgotten"), 1);
    assert_eq!(
        send(&mut world, 2, 1, 0).header.code,
        Code::Forgotten as u16,
        "it was told so, nothing is taken for new"
    );
}

/// Notes of 4 KiB, in a table with room for eight: known producers go on, up to twice the limit.
#[test]
fn producers_that_are_known_grow_a_table_to_twice_its_limit() {
    let mut world = world();
    for id in 1..=10 {
        open(&mut world, id);
    }
    for id in 1..=10 {
        assert_eq!(send(&mut world, id, 0, 4096).header.code, 0, "producer {id}");
    }
    assert!(world.counter("producers_bytes") > 32 << 10);
    assert_eq!(send(&mut world, 99, 0, 0).header.code, Code::Overloaded as u16);
    // Each second epoch keeps the note of the one before.
    for id in 1..=10 {
        let (topic, partition, name) = (TOPIC, PARTITION, b"P".to_vec());
        let order =
            Order::OpenProducer { topic, partition, producer_id: id, producer_epoch: 6, previous_epoch: 0, name };
        assert!(matches!(world.ordered(order), Ok(Finished::ProducerOpened(points)) if !points.is_empty()));
    }
    let mut refused = 0;
    for id in 1..=10 {
        refused += u32::from(send_in(&mut world, 6, id, 0, 4096).header.code == Code::Overloaded as u16);
    }
    assert!((1..10).contains(&refused), "{refused}");
    assert!(world.counter("producers_bytes") <= (64 << 10) + 5_000);
}

/// An epoch is an index of the metadata. One from the future would fence every real one, and be forgotten with them.
#[test]
fn an_epoch_that_the_metadata_has_not_drawn_waits_and_changes_nothing() {
    let mut world = world();
    world.event(Event::Applied(40));
    assert_eq!(send(&mut world, 3, 0, 0).header.code, 0, "epoch 5 is drawn");
    let before = world.engine.state_bytes();
    let body = body_of(0, 1);
    let mut futures = Vec::new();
    for (producer_id, producer_epoch) in [(3, 41), (4, 41), (3, u64::MAX)] {
        let header = RequestHeader { producer_epoch, ..world.batch(producer_id, 0, 1, &body) };
        world.send(&header, &body);
        world.run();
        futures.push(header.request_id);
    }
    assert_eq!(world.engine.state_bytes(), before, "nothing is stored, nobody is fenced");
    assert_eq!(send(&mut world, 3, 1, 0).header.code, 0);
    // The node has caught up with the metadata of the second one: producer 3 has a newer epoch then.
    world.event(Event::Applied(41));
    world.run();
    assert_eq!(world.answer_to(futures[0]).header.code, 0);
    assert_eq!(world.answer_to(futures[1]).header.code, 0);
    world.pass(10_000);
    let refused = world.answer_to(futures[2]);
    assert_eq!(refused.header.code, Code::Ahead as u16);
    assert_eq!(send(&mut world, 3, 2, 0).header.code, Code::FencedProducer as u16, "epoch 41 is open");
}
