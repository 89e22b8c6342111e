//! Bounds of a QUEUE gate: nothing above them, nothing dropped.

use super::acknowledge::{Acknowledgement, Item, What};
use super::bounds::{RANGES_MAX, RANGES_RESERVE, Settings};
use super::state::{Reply, Why};
use super::world_tests::World;

fn items(firsts: impl Iterator<Item = u64>, rows: u32) -> Vec<Item> {
    firsts.map(|first| Item { first, rows, epoch: 1, what: What::Done, count: 0 }).collect()
}

#[test]
pub fn odd_rows_of_a_lease_are_taken_up_to_the_bound_and_the_rest_stays_on_lease() {
    let mut world = World::new(1, Settings::DEFAULT);
    world.append(65_536);
    world.fetch(1, 65_536, 65_536).unwrap();
    let odd = items((0..32_768).map(|half| 2 * half + 1), 1);
    let told = Acknowledgement { ticket: 1, session: 1, incarnation: 1, items: odd };
    let mut answers = Vec::new();
    world.queue.acknowledge(&told, &world.log, world.now_ms, &mut answers);
    let entries = world.queue.take_record(0);
    assert!(entries.is_some() && answers.is_empty());
    world.queue.committed(world.now_ms, &mut answers);
    let Reply::Acknowledged(refused) = &answers[0].reply else { panic!("{answers:?}") };
    assert!(refused.iter().all(|part| part.why == Why::NoRoom && part.rows == 1));
    let taken = 32_768 - refused.len();
    assert_eq!(taken, (RANGES_MAX - RANGES_RESERVE) / 2, "each makes a range and cuts a piece");
    assert_eq!(world.queue.table().len(), taken);
    assert_eq!(world.queue.leased_rows(1), 65_536 - taken as u64);
    assert!(world.queue.paused().is_some_and(|paused| !paused.by_parkings && paused.oldest_row == 0));
    // What is on lease is taken in whole pieces, and the gate is empty again.
    let told = Acknowledgement { items: items(0..1, 65_536), ..told };
    world.queue.acknowledge(&told, &world.log, world.now_ms, &mut answers);
    assert!(world.queue.take_record(0).is_some());
    world.queue.committed(world.now_ms, &mut answers);
    assert!(world.queue.is_drained(65_536) && world.queue.table().len() == 0 && world.queue.paused().is_none());
}

#[test]
fn rows_of_a_full_gate_that_go_with_the_log_start_are_lost_but_for_settled_ones() {
    let mut world = World::new(1, Settings::DEFAULT);
    world.append(65_536);
    world.fetch(1, 65_536, 65_536).unwrap();
    let odd = items((0..32_768).map(|half| 2 * half + 1), 1);
    let told = Acknowledgement { ticket: 1, session: 1, incarnation: 1, items: odd };
    world.queue.acknowledge(&told, &world.log, world.now_ms, &mut Vec::new());
    let taken = (RANGES_MAX - RANGES_RESERVE) as u64 / 2;
    for start in [1, 2, 1_000, 1_001] {
        world.queue.truncate(start);
        assert_eq!(world.queue.figures().lost_rows, start.div_ceil(2), "every odd row below {start} is settled");
    }
    world.queue.truncate(65_536);
    assert_eq!(world.queue.figures().lost_rows, 65_536 - taken);
}

#[test]
fn one_row_of_many_that_always_fails_is_parked_alone() {
    let mut world = World::new(1, Settings::DEFAULT);
    world.append(65_536);
    let (mut answers, mut deliveries) = (Vec::new(), 0);
    while !world.queue.is_drained(65_536) {
        world.fetch(1, 65_536, 65_536).unwrap();
        for (_, given) in std::mem::take(&mut world.has) {
            let is_poison = (given.first..given.first + u64::from(given.rows)).contains(&12_345);
            deliveries += usize::from(is_poison);
            let failed = What::Failed { delay_ms: 0, reason: "it does not parse".into() };
            let what = if is_poison { failed } else { What::Done };
            let item = Item { first: given.first, rows: given.rows, epoch: 1, what, count: given.count };
            let told = Acknowledgement { ticket: 1, session: 1, incarnation: 1, items: vec![item] };
            world.queue.acknowledge(&told, &world.log, world.now_ms, &mut answers);
            world.reference.acknowledge(&told, world.now_ms, |row| row);
        }
        world.take_record();
        world.commit_alone();
    }
    let parked: Vec<_> =
        world.queue.parkings(0).map(|(parking, gone)| (parking.first, parking.rows, gone == parking.rows)).collect();
    assert_eq!(parked, [(12_345, 1, false)]);
    assert!(deliveries <= 5 + 16, "{deliveries} deliveries");
}

#[test]
pub fn a_full_gate_leases_no_new_rows_until_some_are_settled() {
    let mut world = World::new(1, Settings { ranges_max: 12, reserve: 3, ..Settings::DEFAULT });
    (0..20).for_each(|_| world.append(1));
    (0..20).for_each(|_| world.fetch(1, 1, 1).unwrap());
    assert_eq!((world.queue.leased_rows(1), world.queue.paused().is_some()), (9, true));
    let told = Acknowledgement { ticket: 0, session: 1, incarnation: 1, items: items(0..1, 1) };
    world.acknowledge(&told).unwrap();
    world.take_record();
    world.commit().unwrap();
    world.fetch(1, 1, 1).unwrap();
    assert_eq!(world.queue.leased_rows(1), 9);
}

#[test]
pub fn a_lease_without_progress_is_extended_for_its_total_time_only() {
    let mut world = World::new(1, Settings::DEFAULT);
    world.append(1);
    world.fetch(1, 1, 1).unwrap();
    let item = Item { first: 0, rows: 1, epoch: 1, what: What::Extend, count: 0 };
    for _ in 0..60 {
        let told = Acknowledgement { ticket: 0, session: 1, incarnation: 1, items: vec![item.clone()] };
        world.acknowledge(&told).unwrap();
        assert_eq!(world.queue.leased_rows(1), 1);
        world.advance(10_000).unwrap();
    }
    assert_eq!(world.queue.leased_rows(1), 0, "ten minutes are over");
}
