//! Orders about parked rows at a node: lists, retry, discard, exports, power cuts, seeks.

use std::num::NonZeroU64;

use ringfence_node::{
    Beginning, Fate, Finished, GateRule, ListParked, ListedParking, Order, Outcome, PARKINGS_MAX, ParkedItem,
    ParkingAction, ParkingReply, SettleParked,
};

use crate::queue_members::{COHORT, DONE, FIRST, PARKED, Told, figures, given, restarted, rule, shape, told, world};
use crate::support::{PARTITION, TOPIC, World};

const SCOPE: NonZeroU64 = NonZeroU64::new(70 << 16).unwrap();
const OTHER_SCOPE: NonZeroU64 = NonZeroU64::new(80 << 16).unwrap();

fn listed_after(world: &mut World, after: u64, count: usize) -> (Vec<ListedParking>, bool) {
    let list = ListParked { topic: TOPIC, partition: PARTITION, cohort: COHORT, after, count };
    match world.ordered(Order::ListParked(list)) {
        Ok(Finished::Parked { parkings, more }) => (parkings, more),
        other => panic!("{other:?}"),
    }
}

fn listed(world: &mut World) -> Vec<ListedParking> {
    listed_after(world, 0, PARKINGS_MAX).0
}

fn settle(action: ParkingAction, items: &[(u64, u64, Fate)]) -> Order {
    let items = items.iter().map(|&(number, scope, fate)| ParkedItem { number, scope, fate }).collect();
    let (topic, partition, cohort) = (TOPIC, PARTITION, COHORT);
    Order::SettleParked(SettleParked { topic, partition, cohort, action, items, is_forced: false })
}

fn settled(world: &mut World, action: ParkingAction, (number, scope, fate): (u64, u64, Fate)) -> ParkingReply {
    match world.ordered(settle(action, &[(number, scope, fate)])) {
        Ok(Finished::ParkedSettled(replies)) => {
            assert_eq!(replies.len(), 1);
            assert_eq!(replies[0].0, number);
            replies[0].1
        }
        other => panic!("{other:?}"),
    }
}

fn forced(world: &mut World, action: ParkingAction, (number, scope, fate): (u64, u64, Fate)) -> ParkingReply {
    let Order::SettleParked(mut order) = settle(action, &[(number, scope, fate)]) else { unreachable!() };
    order.is_forced = true;
    match world.ordered(Order::SettleParked(order)) {
        Ok(Finished::ParkedSettled(replies)) => replies[0].1,
        other => panic!("{other:?}"),
    }
}

/// Three records of ten rows on lease to the first member, which parks these.
fn parked(seed: u64, ranges: &[Told]) -> World {
    let mut world = world(seed, rule(0));
    assert_eq!(given(&mut world, FIRST, 30), [(0, 30, false, 0)]);
    let expected: Vec<_> = ranges.iter().map(|range| (range.0, range.1, 5)).collect();
    assert_eq!(told(&mut world, FIRST, ranges), expected);
    world
}

const ONE_ROW: Told = (3, 1, PARKED, 0, 0, "it does not parse");
const ROWS: Told = (10, 5, PARKED, 0, 0, "no such table");

/// What is parked, after a power cut, too.
fn after_a_cut(world: World) -> World {
    restarted(world, rule(0))
}

#[test]
fn parked_ranges_are_listed_in_pages_with_their_reasons_also_after_a_power_cut() {
    let mut world = parked(30, &[ONE_ROW, ROWS]);
    for _ in 0..2 {
        let all = listed(&mut world);
        let shown: Vec<_> =
            all.iter().map(|one| (one.first, one.rows, one.count, &*one.reason, one.scope, one.gone_rows)).collect();
        assert_eq!(shown, [(3, 1, 0, "it does not parse", 0, 0), (10, 5, 0, "no such table", 0, 0)]);
        assert!(all[0].number < all[1].number && all[0].unix_ms > 0);
        assert_eq!(listed_after(&mut world, 0, 1), (vec![all[0].clone()], true));
        assert_eq!(listed_after(&mut world, all[0].number, 1), (vec![all[1].clone()], false));
        assert_eq!(listed_after(&mut world, all[1].number, 1), (vec![], false));
        world = after_a_cut(world);
    }
}

#[cfg_attr(not(feature = "planted"), test)]
pub fn an_order_is_answered_when_its_record_is_durable() {
    let mut world = parked(31, &[ONE_ROW, ROWS]);
    let numbers: Vec<u64> = listed(&mut world).iter().map(|one| one.number).collect();
    world.is_held = true;
    let number = world.order(settle(ParkingAction::Retry, &[(numbers[0], 0, Fate::Open), (7, 0, Fate::Open)]));
    world.run();
    let ended = |world: &World| {
        world.outcomes.iter().find_map(|outcome| match outcome {
            Outcome::Order { number: one, result } if *one == number => Some(result.clone()),
            _ => None,
        })
    };
    assert_eq!(ended(&world), None, "an outcome before its record is durable");
    assert_eq!(listed(&mut world).len(), 2, "what is not durable is not shown");
    let twice = settled_later(&mut world, ParkingAction::Discard, numbers[0]);
    assert_eq!(twice, ParkingReply::Changing);
    world.release();
    let replies = vec![(numbers[0], ParkingReply::Taken), (7, ParkingReply::NotParked)];
    assert_eq!(ended(&world), Some(Ok(Finished::ParkedSettled(replies))));
    assert_eq!(listed(&mut world).len(), 1);
    assert_eq!(given(&mut world, FIRST, 30), [(3, 1, false, 0)], "as a row that never failed");
    assert_eq!(settled(&mut world, ParkingAction::Discard, (numbers[1], 0, Fate::Open)), ParkingReply::Taken);
    assert_eq!(settled(&mut world, ParkingAction::Discard, (numbers[1], 0, Fate::Open)), ParkingReply::NotParked);
    assert_eq!(figures(&mut world).parked, 0);
    let mut world = after_a_cut(world);
    assert_eq!(listed(&mut world), []);
    let rows: Vec<u64> = given(&mut world, FIRST, 30).iter().flat_map(|one| one.0..one.0 + u64::from(one.1)).collect();
    assert!(rows.contains(&3), "put back, and not acknowledged: {rows:?}");
    assert!(!rows.contains(&12), "discarded: {rows:?}");
}

/// An order that is answered without a record.
fn settled_later(world: &mut World, action: ParkingAction, number: u64) -> ParkingReply {
    settled(world, action, (number, 0, Fate::Open))
}

#[cfg_attr(not(feature = "planted"), test)]
pub fn an_export_ends_by_the_fate_of_its_own_scope() {
    let mut world = parked(32, &[ONE_ROW, ROWS]);
    let numbers: Vec<u64> = listed(&mut world).iter().map(|one| one.number).collect();
    let (one, scope) = (numbers[0], SCOPE.get());
    let exported = ParkingAction::Exported(SCOPE);
    assert_eq!(settled(&mut world, exported, (one, scope, Fate::Committed)), ParkingReply::NotBegun);
    assert_eq!(settled(&mut world, ParkingAction::Begin(SCOPE), (one, 0, Fate::Open)), ParkingReply::Taken);
    let mut world = after_a_cut(world);
    assert_eq!(listed(&mut world)[0].scope, scope);
    assert_eq!(settled(&mut world, ParkingAction::Begin(SCOPE), (one, scope, Fate::Open)), ParkingReply::Taken);
    let other = ParkingAction::Begin(OTHER_SCOPE);
    for (action, named, fate, reply) in [
        (other, scope, Fate::Open, ParkingReply::Exporting),
        (ParkingAction::Retry, scope, Fate::Open, ParkingReply::Exporting),
        // Closed, but it is not the scope of this range.
        (ParkingAction::Retry, 0, Fate::Closed, ParkingReply::Exporting),
        (ParkingAction::Discard, OTHER_SCOPE.get(), Fate::Closed, ParkingReply::Exporting),
        (ParkingAction::Discard, scope, Fate::Unknown, ParkingReply::Unknown),
        (exported, scope, Fate::Open, ParkingReply::Exporting),
        (exported, scope, Fate::Unknown, ParkingReply::Unknown),
        (ParkingAction::Exported(OTHER_SCOPE), OTHER_SCOPE.get(), Fate::Committed, ParkingReply::Exporting),
    ] {
        assert_eq!(settled(&mut world, action, (one, named, fate)), reply, "{action:?} {fate:?}");
    }
    assert_eq!(settled(&mut world, exported, (one, scope, Fate::Committed)), ParkingReply::Taken);
    let mut world = after_a_cut(world);
    let left = listed(&mut world);
    assert_eq!(left.iter().map(|one| one.number).collect::<Vec<_>>(), [numbers[1]]);
    assert_eq!(settled(&mut world, exported, (one, scope, Fate::Committed)), ParkingReply::NotParked);
    let rows: Vec<u64> = given(&mut world, FIRST, 30).iter().flat_map(|one| one.0..one.0 + u64::from(one.1)).collect();
    assert!(!rows.contains(&3), "exported: {rows:?}");
}

#[test]
fn a_retry_after_an_export_finds_out_whether_there_is_a_copy() {
    let ranges = [(0, 1, PARKED, 0, 0, ""), (1, 1, PARKED, 0, 0, ""), (2, 1, PARKED, 0, 0, "")];
    let mut world = parked(33, &ranges);
    let numbers: Vec<u64> = listed(&mut world).iter().map(|one| one.number).collect();
    for number in &numbers {
        assert_eq!(settled(&mut world, ParkingAction::Begin(SCOPE), (*number, 0, Fate::Open)), ParkingReply::Taken);
    }
    let retry = ParkingAction::Retry;
    assert_eq!(settled(&mut world, retry, (numbers[0], SCOPE.get(), Fate::Committed)), ParkingReply::Exported);
    assert_eq!(settled(&mut world, retry, (numbers[1], SCOPE.get(), Fate::Closed)), ParkingReply::Taken);
    assert_eq!(forced(&mut world, retry, (numbers[2], SCOPE.get(), Fate::Open)), ParkingReply::Exporting);
    assert_eq!(forced(&mut world, retry, (numbers[2], SCOPE.get(), Fate::Unknown)), ParkingReply::Taken);
    assert_eq!(given(&mut world, FIRST, 30), [(1, 1, false, 0), (2, 1, false, 0)]);
    assert_eq!(listed(&mut world), []);
}

#[test]
fn a_number_is_never_used_twice() {
    let mut world = parked(34, &[ONE_ROW]);
    let mut numbers = vec![listed(&mut world)[0].number];
    for _ in 0..3 {
        let number = *numbers.last().unwrap();
        assert_eq!(settled(&mut world, ParkingAction::Retry, (number, 0, Fate::Open)), ParkingReply::Taken);
        world = after_a_cut(world);
        let lines = given(&mut world, FIRST, 1);
        assert_eq!(told(&mut world, FIRST, &[(lines[0].0, 1, PARKED, 0, 0, "again")]), [(lines[0].0, 1, 5)]);
        numbers.push(listed(&mut world)[0].number);
        assert_eq!(settled(&mut world, ParkingAction::Retry, (number, 0, Fate::Open)), ParkingReply::NotParked);
    }
    assert!(numbers.windows(2).all(|pair| pair[0] < pair[1]), "{numbers:?}");
}

#[test]
fn a_seek_ends_what_is_parked_and_orders_that_wait() {
    let mut world = parked(35, &[ONE_ROW]);
    let number = listed(&mut world)[0].number;
    world.is_held = true;
    let waiting = world.order(settle(ParkingAction::Retry, &[(number, 0, Fate::Open)]));
    world.run();
    let mut sought = rule(1);
    sought.cohorts[0].incarnation = 50 << 16;
    sought.gates[0].beginning = Beginning::At { offset: 20, epoch: 1 };
    world.ordered(Order::InstallCohorts(sought)).unwrap();
    assert_eq!(listed(&mut world), [], "of before the seek");
    assert_eq!(settled_later(&mut world, ParkingAction::Discard, number), ParkingReply::NotParked);
    world.is_held = false;
    world.release();
    world.pass(50);
    let replies = world.outcomes.iter().find_map(|outcome| match outcome {
        Outcome::Order { number, result: Ok(Finished::ParkedSettled(replies)) } if *number == waiting => Some(replies),
        _ => None,
    });
    assert_eq!(replies, Some(&vec![(number, ParkingReply::Taken)]), "its record came before that of the seek");
    assert_eq!(settled(&mut world, ParkingAction::Retry, (number, 0, Fate::Open)), ParkingReply::NotParked);
    assert_eq!(given(&mut world, FIRST, 30), [(20, 10, false, 0)]);
}

#[test]
fn an_order_without_a_quorum_ends_in_time_and_its_repeat_is_carried_out() {
    let mut world = parked(36, &[ONE_ROW]);
    let number = listed(&mut world)[0].number;
    world.is_held = true;
    let waiting = world.order(settle(ParkingAction::Discard, &[(number, 0, Fate::Open)]));
    world.run();
    world.pass(2_100);
    let result = world.outcomes.iter().find_map(|outcome| match outcome {
        Outcome::Order { number, result } if *number == waiting => Some(result.clone()),
        _ => None,
    });
    assert!(result.expect("it ends").unwrap_err().contains("on disk in time"));
    world.is_held = false;
    world.release();
    assert_eq!(settled(&mut world, ParkingAction::Discard, (number, 0, Fate::Open)), ParkingReply::NotParked);
}

#[test]
fn rows_that_are_gone_are_counted_and_a_retry_says_so() {
    let mut world = parked(37, &[ONE_ROW, ROWS]);
    let rest: Vec<Told> = vec![(0, 3, DONE, 0, 0, ""), (4, 6, DONE, 0, 0, ""), (15, 15, DONE, 0, 0, "")];
    assert_eq!(told(&mut world, FIRST, &rest), []);
    let epoch = world.epoch;
    let truncate = Order::Truncate { topic: TOPIC, partition: PARTITION, before_offset: 12, epoch };
    world.ordered(truncate).unwrap();
    world.pass(100);
    let all = listed(&mut world);
    let gone: Vec<_> = all.iter().map(|one| (one.first, one.gone_rows)).collect();
    assert_eq!(gone, [(3, 1), (10, 2)]);
    let retry = ParkingAction::Retry;
    assert_eq!(settled(&mut world, retry, (all[0].number, 0, Fate::Open)), ParkingReply::Gone);
    assert_eq!(settled(&mut world, retry, (all[1].number, 0, Fate::Open)), ParkingReply::Gone);
    assert_eq!(listed(&mut world), []);
    assert_eq!(given(&mut world, FIRST, 30), [(12, 3, false, 0)]);
}

#[test]
fn orders_of_no_queue_and_above_the_bound_are_refused() {
    let mut world = parked(38, &[ONE_ROW]);
    let many: Vec<_> = (0..=PARKINGS_MAX as u64).map(|number| (number, 0, Fate::Open)).collect();
    assert!(world.ordered(settle(ParkingAction::Retry, &many)).unwrap_err().contains("at most 1024"));
    let list = ListParked { topic: TOPIC, partition: PARTITION, cohort: COHORT + 1, after: 0, count: 9 };
    assert!(world.ordered(Order::ListParked(list)).unwrap_err().contains("is not one of topic"));
    let list = ListParked { partition: PARTITION + 1, cohort: COHORT, ..list };
    assert!(world.ordered(Order::ListParked(list)).unwrap_err().contains("not open here"));
    let mut world = world.crash(shape());
    world.install(1);
    world.ordered(Order::InstallCohorts(rule(0))).unwrap();
    let list = ListParked { partition: PARTITION, ..list };
    assert!(world.ordered(Order::ListParked(list)).unwrap_err().contains("not open here"));
}

#[test]
fn nothing_is_parked_in_a_partition_that_the_cohort_is_through_with() {
    let mut world = parked(39, &[ONE_ROW]);
    let mut through = rule(1);
    let sealed = GateRule { partition: PARTITION - 1, end: Some(20), is_through: true, ..through.gates[0].clone() };
    through.gates.push(sealed);
    world.ordered(Order::InstallCohorts(through)).unwrap();
    let list = ListParked { topic: TOPIC, partition: PARTITION - 1, cohort: COHORT, after: 0, count: PARKINGS_MAX };
    assert_eq!(world.ordered(Order::ListParked(list)), Ok(Finished::Parked { parkings: vec![], more: false }));
    let number = listed(&mut world)[0].number;
    let Order::SettleParked(mut order) = settle(ParkingAction::Retry, &[(number, 0, Fate::Open)]) else {
        unreachable!()
    };
    order.partition = PARTITION - 1;
    let replies = vec![(number, ParkingReply::NotParked)];
    assert_eq!(world.ordered(Order::SettleParked(order)), Ok(Finished::ParkedSettled(replies)));
    assert_eq!(listed(&mut world).len(), 1, "those of the other partition stay");
}
