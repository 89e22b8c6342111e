//! Stories of one gate that the random runs do not tell.

use super::acknowledge::{Acknowledgement, Item, What};
use super::bounds::Settings;
use super::world_tests::World;
use super::writing::Wanted;

fn tell(world: &mut World, what: What, count: u8) {
    let item = Item { first: 0, rows: 1, epoch: 1, what, count };
    let told = Acknowledgement { ticket: 0, session: 1, incarnation: 1, items: vec![item] };
    world.acknowledge(&told).unwrap();
}

#[test]
fn a_failure_waits_for_a_coin_and_a_parking_does_not() {
    let mut world = World::new(1, Settings { limit: 2, ..Settings::DEFAULT });
    world.append(1);
    world.fetch(1, 1, 1).unwrap();
    assert_eq!((world.queue.wanted(), world.queue.next_time()), (Wanted::Nothing, Some(31_000)));
    tell(&mut world, What::Failed { delay_ms: 0, reason: "no".into() }, 0);
    assert_eq!(world.queue.wanted(), Wanted::Paced);
    world.take_record();
    world.commit().unwrap();
    world.fetch(1, 1, 1).unwrap();
    tell(&mut world, What::Failed { delay_ms: 0, reason: "n\u{e4}".repeat(200).into() }, 1);
    assert_eq!(world.queue.wanted(), Wanted::Immediately);
    world.take_record();
    world.commit().unwrap();
    let parked: Vec<_> = world.queue.parkings(0).collect();
    assert_eq!((parked.len(), parked[0].0.count, parked[0].0.reason.len()), (1, 2, 240));
}

#[test]
fn a_lower_limit_parks_what_has_failed_as_often() {
    let mut world = World::new(1, Settings::DEFAULT);
    world.append(1);
    for count in 0..3 {
        world.fetch(1, 1, 1).unwrap();
        tell(&mut world, What::Failed { delay_ms: 0, reason: "no".into() }, count);
        world.take_record();
        world.commit().unwrap();
    }
    world.queue.set_settings(Settings { limit: 3, ..Settings::DEFAULT });
    let ask = super::lease::Ask { session: 1, now_ms: world.now_ms, bytes: 1, rows: 1 };
    let mut given = Vec::new();
    world.queue.lease(&ask, &world.log, &mut given);
    assert!(given.is_empty() && world.queue.wanted() == Wanted::Immediately);
}
