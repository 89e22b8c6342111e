//! Members of queues at a node: rows on lease, acknowledgements of rows, redelivery, parking, restarts, seeks.

use ringfence_node::{Beginning, CohortRule, CohortRules, Event, GateFigures, GateRule, Mode, Order};
use ringfence_transport::{Connection, Inbound};
use ringfence_wire::{ANSWER_FLAG_ELSEWHERE, Code, Opcode, REQUEST_FLAG_COHORT, RequestHeader, crc_of};

use crate::support::{CLIENT, PARTITION, Reply, Shape, TOPIC, World, body_of, records_in};

pub const COHORT: u64 = 1 << 16;
const ONE: u64 = 2 << 16;
const OTHER: u64 = 3 << 16;
const OTHER_CLIENT: Connection = Connection(2);

/// What became of rows.
pub const DONE: u8 = 0;
pub const FAILED: u8 = 1;
pub const RELEASED: u8 = 2;
const EXTENDED: u8 = 3;
pub const PARKED: u8 = 4;
const BEGUN: u8 = 5;

pub fn shape() -> Shape {
    Shape { level: 3, ..Shape::default() }
}

pub fn rule(index: u64) -> CohortRules {
    CohortRules {
        index: 100 + index,
        cohorts: vec![CohortRule {
            topic: TOPIC,
            cohort: COHORT,
            mode: Mode::Queue,
            incarnation: COHORT,
            generation: 0,
            handover_ms: 60_000,
            lease_ms: 30_000,
            limit: 3,
            sessions: Box::from([ONE, OTHER]),
        }],
        gates: vec![GateRule {
            topic: TOPIC,
            partition: PARTITION,
            log: PARTITION,
            cohort: COHORT,
            assignee: 0,
            beginning: Beginning::At { offset: 0, epoch: 0 },
            is_through: false,
            is_sought: false,
            has_missed: false,
            end: None,
            waits_for: Box::from([]),
            read: Box::from([]),
            notes: Box::from([]),
        }],
        gone: vec![],
        complete: vec![TOPIC],
    }
}

/// A world with a queue, two attached members, and three records of ten rows. The owner of before is over.
pub fn world(seed: u64, rules: CohortRules) -> World {
    let mut world = World::new(seed, shape());
    for sequence in 0..3 {
        publish(&mut world, sequence);
    }
    world.ordered(Order::InstallCohorts(rules)).unwrap();
    joined(&mut world);
    world
}

fn joined(world: &mut World) {
    world.event(Event::Opened(OTHER_CLIENT));
    for (connection, session) in [(CLIENT, ONE), (OTHER_CLIENT, OTHER)] {
        assert_eq!(attach(world, connection, session).header.status, 0);
    }
    world.pass(1100);
}

pub fn publish(world: &mut World, sequence: u64) {
    let body = body_of(10 * i64::try_from(sequence).unwrap(), 10);
    let header = world.batch(77, sequence, 10, &body);
    assert_eq!(world.ask(&header, &body).header.status, 0);
}

fn send(world: &mut World, connection: Connection, mut header: RequestHeader, body: &[u8]) -> u64 {
    (header.body_bytes, header.body_crc) = (u32::try_from(body.len()).unwrap(), crc_of(body));
    world.event(Event::Request { connection, header: &header.seal(), body: Inbound::Small(body) });
    world.run();
    header.request_id
}

pub fn attach(world: &mut World, connection: Connection, session: u64) -> Reply {
    let header = RequestHeader { producer_id: session, producer_epoch: COHORT, ..world.request(Opcode::Attach) };
    let id = send(world, connection, header, &[]);
    world.answer_to(id)
}

/// FETCH of at most so many rows, of whatever the node has.
pub fn fetch(world: &mut World, (connection, session): (Connection, u64), rows: u32, wait_ms: u32) -> u64 {
    let header = RequestHeader {
        flags: u8::try_from(REQUEST_FLAG_COHORT).unwrap(),
        partition: 0,
        producer_id: session,
        rows,
        send: 1 << 20,
        ..world.fetch_header(u64::MAX, 0, wait_ms)
    };
    send(world, connection, header, &[])
}

pub const FIRST: (Connection, u64) = (CLIENT, ONE);
const SECOND: (Connection, u64) = (OTHER_CLIENT, OTHER);

/// A range on lease: first row, rows, again, count.
pub type Line = (u64, u32, bool, u8);

/// Lines of an answer's trailer, once its sums and records are looked at.
pub fn lines(reply: &Reply) -> Vec<Line> {
    assert_eq!((reply.header.status, reply.header.code), (0, 0), "{reply:?}");
    assert_eq!(reply.header.body_crc, crc_of(&reply.body));
    let bytes = usize::try_from(reply.header.send).unwrap();
    let (records, trailer) = reply.body.split_at(reply.body.len() - bytes);
    if trailer.is_empty() {
        return vec![];
    }
    if reply.header.flags & ANSWER_FLAG_ELSEWHERE == 0 {
        let rows: u32 = records_in(records).iter().map(|(header, _)| header.rows).sum();
        assert_eq!(rows, reply.header.rows);
    }
    let number =
        |at: usize, size: usize| trailer[at..at + size].iter().rev().fold(0, |sum, byte| sum << 8 | u64::from(*byte));
    assert_eq!((number(0, 4), trailer.len() % 64), (1, 0));
    let line = |at| {
        let rows = u32::try_from(number(at + 8, 4)).unwrap();
        (number(at, 8), rows, trailer[at + 12] == 1, trailer[at + 13])
    };
    (0..usize::try_from(number(4, 4)).unwrap()).map(|line_index| line(32 + 16 * line_index)).collect()
}

pub fn given(world: &mut World, member: (Connection, u64), rows: u32) -> Vec<Line> {
    let id = fetch(world, member, rows, 0);
    let reply = world.answer_to(id);
    lines(&reply)
}

/// ACKNOWLEDGE of ranges: (first, rows, what, count, delay, reason).
pub type Told = (u64, u32, u8, u8, u32, &'static str);

fn tell(world: &mut World, member: (Connection, u64), told: &[Told]) -> u64 {
    tell_of(world, PARTITION, member, told)
}

pub fn tell_of(world: &mut World, partition: u64, member: (Connection, u64), told: &[Told]) -> u64 {
    tell_as(world, (partition, COHORT), member, told)
}

fn tell_as(
    world: &mut World,
    (partition, incarnation): (u64, u64),
    (connection, session): (Connection, u64),
    told: &[Told],
) -> u64 {
    let (mut body, mut reasons) = (Vec::new(), Vec::new());
    for (first, rows, what, count, delay_ms, reason) in told {
        body.extend_from_slice(&first.to_le_bytes());
        body.extend_from_slice(&1u64.to_le_bytes());
        body.extend_from_slice(&rows.to_le_bytes());
        body.extend_from_slice(&[*what, *count]);
        body.extend_from_slice(&u16::try_from(reason.len()).unwrap().to_le_bytes());
        body.extend_from_slice(&delay_ms.to_le_bytes());
        body.extend_from_slice(&[0; 4]);
        reasons.extend_from_slice(reason.as_bytes());
    }
    body.extend_from_slice(&reasons);
    body.resize(body.len().next_multiple_of(8), 0);
    let header = RequestHeader {
        partition,
        producer_id: session,
        producer_epoch: incarnation,
        rows: u32::try_from(told.len()).unwrap(),
        deadline_ms: 60_000,
        ..world.request(Opcode::Acknowledge)
    };
    send(world, connection, header, &body)
}

/// What was not taken: first row, rows, why.
fn refused(reply: &Reply) -> Vec<(u64, u32, u32)> {
    assert_eq!((reply.header.status, reply.header.code), (0, 0), "{reply:?}");
    let number = |bytes: &[u8]| u32::from_le_bytes(bytes.try_into().unwrap());
    let line = |line: &[u8]| (u64::from(number(&line[..4])), number(&line[8..12]), number(&line[12..]));
    reply.body.chunks(16).map(line).collect()
}

pub fn told(world: &mut World, member: (Connection, u64), ranges: &[Told]) -> Vec<(u64, u32, u32)> {
    let id = tell(world, member, ranges);
    let reply = world.answer_to(id);
    refused(&reply)
}

pub fn figures(world: &mut World) -> GateFigures {
    let now = world.now;
    world.engine.cohort_figures(now)[0]
}

pub fn restarted(world: World, rules: CohortRules) -> World {
    let mut world = world.crash(shape());
    world.install(1);
    world.ordered(Order::InstallCohorts(rules)).unwrap();
    world.open_partition();
    joined(&mut world);
    world
}

#[test]
fn two_members_have_different_rows_of_one_partition_and_what_is_done_is_in_the_log() {
    let mut world = world(1, rule(0));
    assert_eq!(given(&mut world, FIRST, 10), [(0, 10, false, 0)]);
    assert_eq!(given(&mut world, SECOND, 10), [(10, 10, false, 0)]);
    world.is_held = true;
    let id = tell(&mut world, SECOND, &[(10, 10, DONE, 0, 0, "")]);
    assert!(world.answers.is_empty(), "an answer before its record is durable");
    world.release();
    assert_eq!(refused(&world.answer_to(id)), []);
    let now = figures(&mut world);
    assert_eq!((now.settled, now.end, now.leased_rows, now.ranges, now.parked), (Some(0), 30, 10, 1, 0));
    assert_eq!(told(&mut world, FIRST, &[(0, 10, DONE, 0, 0, "")]), []);
    assert_eq!(figures(&mut world).settled, Some(20));
    let records = world.counter("cohort_records");
    assert_eq!(told(&mut world, FIRST, &[(0, 20, DONE, 0, 0, "")]), []);
    assert_eq!(world.counter("cohort_records"), records, "a repeat writes nothing");
    assert_eq!(given(&mut world, FIRST, 100), [(20, 10, false, 0)]);
}

#[test]
fn an_answer_has_no_record_after_the_last_row_on_lease() {
    let mut world = world(2, rule(0));
    assert_eq!(given(&mut world, FIRST, 100), [(0, 30, false, 0)]);
    assert_eq!(told(&mut world, FIRST, &[(0, 12, RELEASED, 0, 0, "")]), []);
    let id = fetch(&mut world, SECOND, 0, 0);
    let reply = world.answer_to(id);
    assert_eq!((lines(&reply), reply.header.rows), (vec![(0, 12, false, 0)], 20), "two records of three");
}

#[test]
pub fn rows_that_are_not_in_the_answer_go_to_the_next_member_immediately() {
    let mut world = world(2, rule(0));
    let header = RequestHeader {
        flags: u8::try_from(REQUEST_FLAG_COHORT).unwrap(),
        producer_id: ONE,
        send: 300,
        ..world.fetch_header(u64::MAX, 0, 0)
    };
    let id = send(&mut world, CLIENT, header, &[]);
    let reply = world.answer_to(id);
    assert_eq!(lines(&reply), [(0, 10, false, 0)]);
    assert_eq!(given(&mut world, SECOND, 100), [(10, 20, false, 0)]);
}

#[test]
fn a_failing_range_is_halved_until_one_row_is_parked_with_its_last_reason() {
    let mut world = world(3, rule(0));
    let mut deliveries = 0;
    loop {
        let lines = given(&mut world, FIRST, 10);
        let Some((first, rows, _, count)) =
            lines.iter().copied().find(|line| (3..4).any(|row| line.0 <= row && row < line.0 + u64::from(line.1)))
        else {
            let others: Vec<Told> = lines.iter().map(|line| (line.0, line.1, DONE, line.3, 0, "")).collect();
            assert!(!others.is_empty(), "row 3 is gone");
            told(&mut world, FIRST, &others);
            continue;
        };
        let others: Vec<Told> =
            lines.iter().filter(|line| line.0 != first).map(|line| (line.0, line.1, RELEASED, line.3, 0, "")).collect();
        if !others.is_empty() {
            told(&mut world, FIRST, &others);
        }
        deliveries += 1;
        assert!(deliveries < 12, "the row is not parked");
        let answer = told(&mut world, FIRST, &[(first, rows, FAILED, count, 0, "bad row")]);
        if answer == [(first, rows, 5)] {
            assert_eq!((first, rows), (3, 1));
            break;
        }
        assert_eq!(answer, []);
    }
    let now = figures(&mut world);
    assert_eq!((now.parked, now.parked_rows), (1, 1));
    let mut world = restarted(world, rule(0));
    assert_eq!(figures(&mut world).parked, 1);
    let mut rows = Vec::new();
    loop {
        let lines = given(&mut world, FIRST, 100);
        if lines.is_empty() {
            break;
        }
        rows.extend(lines.iter().flat_map(|line| line.0..line.0 + u64::from(line.1)));
    }
    rows.sort_unstable();
    assert!(!rows.contains(&3) && rows.windows(2).all(|pair| pair[0] < pair[1]), "{rows:?}");
    assert!(rows.ends_with(&(10..30).collect::<Vec<_>>()), "{rows:?}");
}

#[test]
fn a_negative_acknowledgement_may_have_a_delay() {
    let mut world = world(4, rule(0));
    assert_eq!(given(&mut world, FIRST, 30), [(0, 30, false, 0)]);
    assert_eq!(told(&mut world, FIRST, &[(0, 2, FAILED, 0, 5000, "later"), (2, 28, DONE, 0, 0, "")]), []);
    let waiting = fetch(&mut world, SECOND, 30, 60_000);
    world.pass(4900);
    assert!(world.answers.is_empty(), "the delay is not over");
    world.pass(200);
    assert_eq!(lines(&world.answer_to(waiting)), [(0, 1, false, 1), (1, 1, false, 1)]);
}

#[test]
pub fn a_lease_ends_by_time_or_with_its_connection_and_an_extension_keeps_it() {
    let mut world = world(5, rule(0));
    assert_eq!(given(&mut world, FIRST, 10), [(0, 10, false, 0)]);
    assert_eq!(given(&mut world, SECOND, 20), [(10, 20, false, 0)]);
    assert_eq!(told(&mut world, SECOND, &[(10, 20, BEGUN, 0, 0, "")]), []);
    world.pass(20_000);
    assert_eq!(told(&mut world, SECOND, &[(10, 20, EXTENDED, 0, 0, "")]), []);
    world.pass(11_000);
    assert_eq!(given(&mut world, FIRST, 100), [(0, 10, false, 0)], "not begun: not counted");
    world.event(Event::Closed(OTHER_CLIENT));
    world.pass(100);
    assert_eq!(given(&mut world, FIRST, 100), [], "its member may come back");
    world.pass(2000);
    world.pass(50);
    let waiting = given(&mut world, FIRST, 100);
    assert_eq!(waiting, [(10, 10, true, 1), (20, 10, true, 1)], "begun: counted, in halves");
}

#[test]
pub fn done_ranges_and_counts_outlive_a_power_cut_and_leases_are_taken_up_again() {
    let mut world = world(6, rule(0));
    assert_eq!(given(&mut world, FIRST, 10), [(0, 10, false, 0)]);
    assert_eq!(given(&mut world, SECOND, 10), [(10, 10, false, 0)]);
    assert_eq!(told(&mut world, SECOND, &[(10, 4, DONE, 0, 0, ""), (14, 1, FAILED, 0, 0, "x")]), []);
    let mut world = world.crash(shape());
    world.install(1);
    world.ordered(Order::InstallCohorts(rule(0))).unwrap();
    world.open_partition();
    world.event(Event::Opened(OTHER_CLIENT));
    for (connection, session) in [(CLIENT, ONE), (OTHER_CLIENT, OTHER)] {
        assert_eq!(attach(&mut world, connection, session).header.status, 0);
    }
    let waiting = fetch(&mut world, SECOND, 30, 60_000);
    let extended = tell(&mut world, FIRST, &[(0, 10, EXTENDED, 0, 0, "")]);
    world.pass(1000);
    assert!(world.answers.is_empty(), "the owner of before may deliver");
    world.pass(100);
    assert_eq!(refused(&world.answer_to(extended)), []);
    let reply = world.answer_to(waiting);
    assert_eq!(lines(&reply), [(14, 1, false, 1), (15, 15, false, 0)]);
    assert_eq!(told(&mut world, FIRST, &[(0, 10, DONE, 0, 0, "")]), []);
    assert_eq!(figures(&mut world).settled, Some(14));
}

#[test]
pub fn a_parking_alone_says_where_the_cohort_began() {
    let mut rules = rule(0);
    rules.gates[0].beginning = Beginning::At { offset: 20, epoch: 1 };
    let mut world = world(7, rules.clone());
    assert_eq!(given(&mut world, FIRST, 10), [(20, 10, false, 0)]);
    assert_eq!(told(&mut world, FIRST, &[(25, 1, PARKED, 0, 0, "no")]), [(25, 1, 5)]);
    let mut world = restarted(world, rules);
    assert_eq!(given(&mut world, SECOND, 100), [(20, 5, false, 0), (26, 4, false, 0)]);
}

#[test]
pub fn a_seek_ends_leases_and_what_was_done_comes_again() {
    let mut world = world(8, rule(0));
    assert_eq!(given(&mut world, FIRST, 20), [(0, 20, false, 0)]);
    assert_eq!(told(&mut world, FIRST, &[(0, 10, DONE, 0, 0, "")]), []);
    let mut sought = rule(1);
    sought.cohorts[0].incarnation = 50 << 16;
    sought.gates[0].beginning = Beginning::At { offset: 5, epoch: 1 };
    world.ordered(Order::InstallCohorts(sought.clone())).unwrap();
    let id = tell(&mut world, FIRST, &[(10, 10, DONE, 0, 0, "")]);
    assert_eq!(world.answer_to(id).header.code, Code::NotAssigned as u16);
    let reply = fetch(&mut world, FIRST, 100, 1000);
    world.pass(50);
    let reply = world.answer_to(reply);
    assert_eq!((lines(&reply), reply.header.sequence), (vec![(5, 25, false, 0)], 50 << 16));
    let mut world = restarted(world, sought);
    assert_eq!(given(&mut world, FIRST, 100), [(5, 25, false, 0)]);
}

#[test]
fn a_fetch_within_the_lease_of_the_owner_before_gets_rows_at_its_end() {
    let world = world(17, rule(0));
    let mut world = world.crash(shape());
    world.install(1);
    world.ordered(Order::InstallCohorts(rule(0))).unwrap();
    world.open_partition();
    assert_eq!(attach(&mut world, CLIENT, ONE).header.status, 0);
    let waiting = fetch(&mut world, FIRST, 30, 60_000);
    world.pass(900);
    assert!(world.answers.is_empty(), "the owner of before may deliver");
    world.pass(300);
    assert_eq!(lines(&world.answer_to(waiting)), [(0, 30, false, 0)]);
}

#[test]
pub fn a_seek_is_heard_where_nothing_was_acknowledged() {
    let mut world = world(15, rule(0));
    assert_eq!(given(&mut world, FIRST, 20), [(0, 20, false, 0)]);
    let mut sought = rule(1);
    sought.cohorts[0].incarnation = 50 << 16;
    sought.gates[0].beginning = Beginning::At { offset: 5, epoch: 1 };
    world.ordered(Order::InstallCohorts(sought.clone())).unwrap();
    world.pass(50);
    let id = tell(&mut world, FIRST, &[(0, 10, DONE, 0, 0, "")]);
    assert_eq!(world.answer_to(id).header.code, Code::NotAssigned as u16, "of before the seek");
    assert_eq!(given(&mut world, FIRST, 100), [(5, 25, false, 0)]);
    let id = tell_as(&mut world, (PARTITION, 50 << 16), FIRST, &[(5, 10, DONE, 0, 0, "")]);
    assert_eq!(refused(&world.answer_to(id)), []);
    assert_eq!(figures(&mut world).settled, Some(15));
    let mut world = restarted(world, sought);
    assert_eq!(given(&mut world, FIRST, 100), [(15, 15, false, 0)]);
}

#[test]
pub fn a_beginning_above_the_mark_settles_no_row_that_comes_later() {
    let mut rules = rule(0);
    rules.gates[0].beginning = Beginning::At { offset: 35, epoch: 1 };
    let mut world = world(16, rules);
    assert_eq!(given(&mut world, FIRST, 100), []);
    publish(&mut world, 3);
    assert_eq!(given(&mut world, FIRST, 100), [(30, 10, false, 0)]);
    assert_eq!(told(&mut world, FIRST, &[(30, 2, DONE, 0, 0, "")]), []);
    assert_eq!(figures(&mut world).settled, Some(32));
}

#[test]
pub fn a_fetch_waits_for_rows_and_rows_of_a_sealed_partition_are_read_elsewhere() {
    let mut world = world(9, rule(0));
    assert_eq!(given(&mut world, FIRST, 100), [(0, 30, false, 0)]);
    let waiting = fetch(&mut world, SECOND, 100, 60_000);
    assert!(world.answers.is_empty());
    publish(&mut world, 3);
    assert_eq!(lines(&world.answer_to(waiting)), [(30, 10, false, 0)]);
    let mut sealed = rule(1);
    sealed.gates.push(GateRule { partition: PARTITION - 1, end: Some(20_000), ..sealed.gates[0].clone() });
    world.ordered(Order::InstallCohorts(sealed)).unwrap();
    let id = fetch(&mut world, SECOND, 0, 0);
    let reply = world.answer_to(id);
    assert_ne!(reply.header.flags & ANSWER_FLAG_ELSEWHERE, 0);
    assert_eq!((reply.header.partition, lines(&reply)), (PARTITION - 1, vec![(0, 8192, false, 0)]));
}

#[test]
fn a_sealed_partition_that_the_cohort_is_through_with_gives_no_row_again_and_answers_repeats() {
    let mut world = world(13, rule(0));
    assert_eq!(given(&mut world, FIRST, 100), [(0, 30, false, 0)]);
    let mut through = rule(1);
    let sealed = GateRule { partition: PARTITION - 1, end: Some(20), is_through: true, ..through.gates[0].clone() };
    through.gates.push(sealed);
    world.ordered(Order::InstallCohorts(through)).unwrap();
    assert_eq!(given(&mut world, SECOND, 100), []);
    let repeat = tell_of(&mut world, PARTITION - 1, SECOND, &[(10, 10, DONE, 0, 0, "")]);
    assert_eq!(refused(&world.answer_to(repeat)), []);
    assert_eq!(given(&mut world, SECOND, 100), []);
}

#[test]
fn what_is_not_the_members_own_is_not_taken() {
    let mut world = world(10, rule(0));
    assert_eq!(given(&mut world, FIRST, 10), [(0, 10, false, 0)]);
    assert_eq!(given(&mut world, SECOND, 10), [(10, 10, false, 0)]);
    let answer =
        told(&mut world, FIRST, &[(10, 2, FAILED, 0, 0, ""), (12, 8, DONE, 0, 0, ""), (25, 10, DONE, 0, 0, "")]);
    assert_eq!(answer, [(10, 2, 1), (12, 8, 1), (25, 10, 3)]);
    assert_eq!(told(&mut world, FIRST, &[(0, 10, FAILED, 7, 0, "")]), [(0, 10, 2)]);
    for (rows, bytes) in [(0u32, 32usize), (1, 31), (1, 40)] {
        let header =
            RequestHeader { producer_id: ONE, producer_epoch: COHORT, rows, ..world.request(Opcode::Acknowledge) };
        let id = send(&mut world, CLIENT, header, &vec![1; bytes]);
        assert_eq!(world.answer_to(id).header.code, Code::BadBody as u16, "{rows} lines in {bytes} bytes");
    }
}
