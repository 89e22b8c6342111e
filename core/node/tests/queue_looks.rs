//! What a tick costs for members of a queue that wait, counted in looks at partitions: not the product of members,
//! partitions and logs with leases.

use ringfence_node::{Event, Now, Order, TablePartition};
use ringfence_transport::Connection;

use crate::queue_members::{RELEASED, attach, fetch, lines, rule, shape, tell_of};
use crate::support::{CLIENT, TOPIC, World, body_of};
use ringfence_log::faulty::FaultyDisk;

const PARTITIONS: u64 = 64;
const WAITING: u64 = 32;
/// Of the member that has all rows on lease.
const HOLDER: (Connection, u64) = (CLIENT, 2 << 16);
const SLOTS: u64 = 1 << 16;

/// The connection and the session of a member that waits.
fn waiting(number: u64) -> (Connection, u64) {
    (Connection(100 + number), (10 + number) << 16)
}

fn slots(partition: u64) -> (u16, u16) {
    let first = |at: u64| (at - 1) * SLOTS / PARTITIONS;
    (u16::try_from(first(partition)).unwrap(), u16::try_from(first(partition + 1) - 1).unwrap())
}

fn publish(world: &mut World, partition: u64, sequence: u64) {
    let body = body_of(10 * i64::try_from(sequence).unwrap(), 10);
    let header = ringfence_wire::RequestHeader { partition, ..world.batch(77, sequence, 10, &body) };
    assert_eq!(world.ask(&header, &body).header.status, 0);
}

/// A node with ten rows in each of 64 partitions: one member has them all on lease, and 32 others wait.
/// Returns the requests of those that wait, too.
fn world() -> (World, Vec<u64>) {
    let mut world = World::open(FaultyDisk::new(31), shape(), Now { unix_ms: 1_000_000, mono_ms: 1000 });
    let entry = |partition| {
        let (lo, hi) = slots(partition);
        TablePartition { partition, lo, hi, owner: 1, epoch: 1 }
    };
    let entries: Vec<TablePartition> = (1..=PARTITIONS).map(entry).collect();
    world.install_table(10, 1, &entries);
    for &TablePartition { partition, lo, hi, epoch, .. } in &entries {
        let open = Order::Open { topic: TOPIC, partition, lo, hi, epoch, replicas: vec![], quorum: 1 };
        world.ordered(open).unwrap();
        publish(&mut world, partition, 0);
    }
    let mut rules = rule(0);
    let gate = rules.gates.remove(0);
    rules.gates.extend((1..=PARTITIONS).map(|partition| {
        let log = partition;
        ringfence_node::GateRule { partition, log, ..gate.clone() }
    }));
    rules.cohorts[0].sessions = std::iter::once(HOLDER.1).chain((0..WAITING).map(|number| waiting(number).1)).collect();
    world.ordered(Order::InstallCohorts(rules)).unwrap();
    for (connection, session) in std::iter::once(HOLDER).chain((0..WAITING).map(waiting)) {
        if connection != CLIENT {
            world.event(Event::Opened(connection));
        }
        assert_eq!(attach(&mut world, connection, session).header.status, 0);
    }
    world.pass(1100);
    for _ in 0..PARTITIONS {
        let id = fetch(&mut world, HOLDER, 100, 0);
        let reply = world.answer_to(id);
        assert_eq!(lines(&reply), [(0, 10, false, 0)]);
    }
    let ids = (0..WAITING).map(|number| fetch(&mut world, waiting(number), 100, 60_000)).collect();
    assert!(world.answers.is_empty());
    (world, ids)
}

/// Looks at partitions while this runs.
fn looks(world: &mut World, run: impl FnOnce(&mut World)) -> u64 {
    let before = world.counter("queue_looks");
    run(world);
    world.counter("queue_looks") - before
}

#[test]
pub fn a_tick_looks_once_at_each_partition_however_many_members_wait() {
    let (mut world, _) = world();
    for _ in 0..3 {
        let found = looks(&mut world, |world| world.pass(20));
        assert!(found <= PARTITIONS, "{found} looks at {PARTITIONS} partitions for {WAITING} members");
    }
}

#[test]
pub fn rows_that_come_back_go_to_those_who_waited_longest_one_look_more_for_each() {
    let (mut world, ids) = world();
    for (order, partition) in [40, 3, 64].into_iter().enumerate() {
        let found = looks(&mut world, |world| {
            tell_of(world, partition, HOLDER, &[(0, 10, RELEASED, 0, 0, "")]);
        });
        assert!(found <= 3 * (PARTITIONS + 1), "{found} looks");
        let reply = world.answer_to(ids[order]);
        assert_eq!((reply.header.partition, lines(&reply)), (partition, vec![(0, 10, false, 0)]));
    }
    let found = looks(&mut world, |world| publish(world, 17, 1));
    assert!(found <= 2 * (PARTITIONS + 1), "{found} looks");
    let reply = world.answer_to(ids[3]);
    assert_eq!((reply.header.partition, lines(&reply)), (17, vec![(10, 10, false, 0)]));
    assert_eq!(world.answers.len(), 3, "the answers to what was released");
}

#[test]
fn when_all_leases_end_each_member_that_waits_gets_a_partition_with_one_look_more() {
    const TICKS: u64 = 20;
    let (mut world, ids) = world();
    let found = looks(&mut world, |world| (0..TICKS).for_each(|_| world.pass(2_000)));
    assert!(found <= TICKS * PARTITIONS + WAITING, "{found} looks");
    let mut given: Vec<u64> = ids.iter().map(|id| world.answer_to(*id).header.partition).collect();
    given.sort_unstable();
    given.dedup();
    assert_eq!(given.len(), ids.len(), "each has another partition");
}
