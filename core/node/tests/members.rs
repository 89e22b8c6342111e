//! Members of cohorts at a node: rules, ATTACH, FETCH under holds, acknowledgements, hand-over, restarts.

use ringfence_node::{Beginning, CohortRules, Event, GateProgress, Mode, Order, Outcome};
use ringfence_transport::{Connection, Inbound};
use ringfence_wire::{
    ANSWER_FLAG_BLOCKED, ANSWER_FLAG_ELSEWHERE, Code, Opcode, REQUEST_FLAG_COHORT, REQUEST_FLAG_REOPEN, RequestHeader,
    crc_of,
};

use crate::support::cohorts::{COHORT, ONE, OTHER, STANDS, gate_of, rule};
use crate::support::{CLIENT, PARTITION, Reply, Shape, World, body_of, install_topic};

pub const OTHER_CLIENT: Connection = Connection(2);
/// The world's epoch, in a line of ACKNOWLEDGE.
pub const OWN: u64 = u64::MAX;

pub fn shape() -> Shape {
    Shape { level: 3, ..Shape::default() }
}

/// A world with a cohort, two attached members, and 30 rows.
pub fn world(seed: u64) -> World {
    let mut world = World::new(seed, shape());
    for sequence in 0..3 {
        let body = body_of(10 * i64::try_from(sequence).unwrap(), 10);
        let header = world.batch(77, sequence, 10, &body);
        assert_eq!(world.ask(&header, &body).header.status, 0);
    }
    world.ordered(Order::InstallCohorts(rule(ONE, 1))).unwrap();
    world.event(Event::Opened(OTHER_CLIENT));
    for (connection, session) in [(CLIENT, ONE), (OTHER_CLIENT, OTHER)] {
        assert_eq!(attach(&mut world, connection, session).header.status, 0);
    }
    world
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

/// FETCH of a member; `hold` 0 asks to be let in.
pub fn fetch(world: &mut World, connection: Connection, session: u64, hold: u64, offset: u64, wait_ms: u32) -> u64 {
    fetch_of(world, PARTITION, (connection, session), hold, offset, wait_ms)
}

pub fn fetch_of(
    world: &mut World,
    partition: u64,
    (connection, session): (Connection, u64),
    hold: u64,
    offset: u64,
    wait_ms: u32,
) -> u64 {
    let flags = REQUEST_FLAG_COHORT | if hold == 0 { REQUEST_FLAG_REOPEN } else { 0 };
    let header = RequestHeader {
        flags: u8::try_from(flags).unwrap(),
        partition,
        producer_id: session,
        producer_epoch: hold,
        deadline_ms: wait_ms,
        send: 1 << 20,
        ..world.fetch_header(offset, 0, wait_ms)
    };
    send(world, connection, header, &[])
}

pub fn acknowledge(world: &mut World, connection: Connection, session: u64, line: [u64; 5]) -> u64 {
    let epoch = world.epoch;
    let words = line.map(|word| if word == OWN { epoch } else { word });
    let body: Vec<u8> = words.iter().flat_map(|word| word.to_le_bytes()).collect();
    let header =
        RequestHeader { producer_id: session, partition: 0, deadline_ms: 5000, ..world.request(Opcode::Acknowledge) };
    send(world, connection, header, &body)
}

pub fn gate(world: &mut World) -> GateProgress {
    let now = world.now;
    world.engine.gates(now)[0]
}

/// The member is let in, and gets all rows: (number of its hold, answer).
pub fn opened(world: &mut World, connection: Connection, session: u64) -> (u64, Reply) {
    let id = fetch(world, connection, session, 0, STANDS, 5000);
    let reply = world.answer_to(id);
    assert_eq!((reply.header.status, reply.header.code), (0, 0), "{reply:?}");
    (reply.header.sequence, reply)
}

#[test]
fn a_member_reads_and_acknowledges_and_its_position_is_in_the_log() {
    let mut world = world(1);
    let (number, reply) = opened(&mut world, CLIENT, ONE);
    assert_eq!((reply.header.send, reply.header.first_offset, reply.header.rows), (0, 0, 30));
    assert!(number >= world.epoch << 20);
    world.outcomes.clear();
    world.is_held = true;
    let id = acknowledge(&mut world, CLIENT, ONE, [PARTITION, number, 20, OWN, 0]);
    assert!(world.answers.is_empty(), "an answer before its record is durable");
    assert_eq!(gate(&mut world).offset, 0);
    world.release();
    let reply = world.answer_to(id);
    assert_eq!((reply.header.status, reply.body.len()), (0, 0));
    let told = gate(&mut world);
    assert_eq!((told.offset, told.is_settled, told.epoch, told.incarnation), (20, true, world.epoch, COHORT));
    assert!(world.outcomes.contains(&Outcome::Gates));
    let records = world.counter("cohort_records");
    let id = acknowledge(&mut world, CLIENT, ONE, [PARTITION, number, 20, OWN, 0]);
    assert_eq!(world.answer_to(id).header.status, 0);
    assert_eq!(world.counter("cohort_records"), records, "a repeat writes nothing");
}

#[test]
fn what_is_not_taken_stands_in_the_answer() {
    let mut world = world(2);
    let (number, _) = opened(&mut world, CLIENT, ONE);
    for (connection, session, line, code) in [
        (CLIENT, ONE, [PARTITION, number - 1, 10, 0, 0], Code::NotAssigned),
        (CLIENT, ONE, [PARTITION, number, 31, 0, 0], Code::Truncated),
        (CLIENT, ONE, [PARTITION, number, 10, 99, 0], Code::Truncated),
        (OTHER_CLIENT, OTHER, [PARTITION, number, 10, 0, 0], Code::NotAssigned),
        (CLIENT, ONE, [PARTITION + 1, number, 10, 0, 0], Code::UnknownPartition),
    ] {
        let id = acknowledge(&mut world, connection, session, line);
        let reply = world.answer_to(id);
        assert_eq!((reply.header.status, reply.body.len()), (0, 24), "{line:?}");
        assert_eq!(u16::from_le_bytes([reply.body[16], reply.body[17]]), code as u16, "{line:?}");
    }
    assert_eq!(gate(&mut world).offset, 0);
}

#[test]
fn a_hand_over_waits_for_the_release_or_for_the_lease_and_the_time_to_acknowledge() {
    for releases in [true, false] {
        let mut world = world(3);
        let (number, _) = opened(&mut world, CLIENT, ONE);
        let poll = fetch(&mut world, CLIENT, ONE, number, 30, 60_000);
        world.ordered(Order::InstallCohorts(rule(OTHER, 2))).unwrap();
        let told = world.answer_to(poll);
        assert_eq!((told.header.code, told.header.sequence, told.header.send), (Code::NotAssigned as u16, number, 2));
        let waiting = fetch(&mut world, OTHER_CLIENT, OTHER, 0, STANDS, 120_000);
        world.pass(30_000);
        assert!(world.answers.is_empty(), "the holder may have rows that it has not acknowledged");
        if releases {
            let id = acknowledge(&mut world, CLIENT, ONE, [PARTITION, number, 10, OWN, 1]);
            assert_eq!(world.answer_to(id).body.len(), 0);
        } else {
            world.pass(30_001);
        }
        let reply = world.answer_to(waiting);
        let start = if releases { 10 } else { 0 };
        assert_eq!(
            (reply.header.status, reply.header.sequence, reply.header.send),
            (0, number + 1, start),
            "{reply:?}"
        );
        let late = acknowledge(&mut world, CLIENT, ONE, [PARTITION, number, 30, OWN, 0]);
        assert_eq!(world.answer_to(late).body.len(), 24, "its hold is over");
    }
}

#[test]
fn the_holder_goes_on_after_a_restart_and_another_waits_for_both_leases() {
    let mut world = world(4);
    let (number, _) = opened(&mut world, CLIENT, ONE);
    let id = acknowledge(&mut world, CLIENT, ONE, [PARTITION, number, 10, OWN, 0]);
    world.answer_to(id);
    let mut world = world.crash(shape());
    world.install(1);
    world.ordered(Order::InstallCohorts(rule(ONE, 1))).unwrap();
    world.open_partition();
    world.event(Event::Opened(OTHER_CLIENT));
    for (connection, session) in [(CLIENT, ONE), (OTHER_CLIENT, OTHER)] {
        assert_eq!(attach(&mut world, connection, session).header.status, 0);
    }
    let told = gate(&mut world);
    assert_eq!((told.offset, told.is_settled), (10, true));
    let id = fetch(&mut world, CLIENT, ONE, number, 20, 0);
    let reply = world.answer_to(id);
    assert_eq!((reply.header.status, reply.header.sequence, reply.header.send), (0, number, 20));
    let mut gone = rule(OTHER, 2);
    gone.cohorts[0].sessions = Box::from([OTHER]);
    world.ordered(Order::InstallCohorts(gone)).unwrap();
    let waiting = fetch(&mut world, OTHER_CLIENT, OTHER, 0, STANDS, 60_000);
    world.pass(11_500);
    assert!(world.answers.is_empty(), "the owner of before may have extended its lease");
    world.pass(100);
    let reply = world.answer_to(waiting);
    assert_eq!((reply.header.status, reply.header.send), (0, 10));
    assert!(reply.header.sequence >= world.epoch << 20);
}

#[test]
fn gates_open_when_the_table_comes_after_the_rules_and_the_log() {
    let mut world = world(4);
    let (number, _) = opened(&mut world, CLIENT, ONE);
    let mut world = world.crash(shape());
    world.ordered(install_topic(world.key_columns)).unwrap();
    world.ordered(Order::InstallCohorts(rule(ONE, 1))).unwrap();
    world.open_partition();
    world.install(1);
    assert_eq!(attach(&mut world, CLIENT, ONE).header.status, 0);
    let id = fetch(&mut world, CLIENT, ONE, number, 20, 0);
    let reply = world.answer_to(id);
    assert_eq!((reply.header.status, reply.header.sequence), (0, number));
}

#[test]
fn a_gate_opens_under_rules_as_old_as_its_owner_and_when_nothing_is_before_it() {
    let mut world = world(5);
    let mut blocked = rule(ONE, 2);
    blocked.gates[0].waits_for = Box::from([PARTITION - 1]);
    world.ordered(Order::InstallCohorts(blocked)).unwrap();
    let id = fetch(&mut world, CLIENT, ONE, 0, STANDS, 100);
    world.pass(200);
    let reply = world.answer_to(id);
    assert_eq!((reply.header.status, reply.header.sequence), (0, 0));
    assert_ne!(reply.header.flags & ANSWER_FLAG_BLOCKED, 0);
    world.ordered(Order::InstallCohorts(rule(OTHER, 1))).unwrap();
    let id = fetch(&mut world, OTHER_CLIENT, OTHER, 0, STANDS, 100);
    assert_eq!(world.answer_to(id).header.code, Code::NotAssigned as u16, "an older order changes nothing");
    world.epoch = 1000;
    world.install(1);
    world.open_partition();
    world.ordered(Order::InstallCohorts(rule(ONE, 3))).unwrap();
    let id = fetch(&mut world, CLIENT, ONE, 0, STANDS, 60_000);
    world.pass(20_000);
    let now = world.now;
    assert!(world.answers.is_empty() && world.engine.gates(now).is_empty());
    world.ordered(Order::InstallCohorts(CohortRules { index: 1000, ..rule(ONE, 3) })).unwrap();
    assert_eq!(world.answer_to(id).header.rows, 30);
}

#[test]
fn a_seek_to_the_latest_rows_begins_at_the_mark_and_waits_for_the_old_hold() {
    let mut world = world(6);
    let (number, _) = opened(&mut world, CLIENT, ONE);
    let sought = |is_sought| {
        let mut rules = rule(ONE, if is_sought { 2 } else { 3 });
        rules.cohorts[0].incarnation = 50 << 16;
        rules.gates[0].beginning = Beginning::NotBegun;
        rules.gates[0].is_sought = is_sought;
        rules
    };
    world.ordered(Order::InstallCohorts(sought(true))).unwrap();
    let told = gate(&mut world);
    assert_eq!((told.incarnation, told.offset, told.is_settled, told.is_held), (50 << 16, 30, false, true));
    let id = acknowledge(&mut world, CLIENT, ONE, [PARTITION, number, 20, OWN, 0]);
    assert_eq!(world.answer_to(id).body.len(), 24, "of the incarnation before");
    let id = acknowledge(&mut world, CLIENT, ONE, [PARTITION, number, 20, OWN, 1]);
    assert_eq!(world.answer_to(id).body.len(), 0);
    assert!(!gate(&mut world).is_held);
    world.ordered(Order::InstallCohorts(sought(false))).unwrap();
    let id = fetch(&mut world, CLIENT, ONE, 0, STANDS, 0);
    world.pass(50);
    let first = world.answer_to(id);
    let body = body_of(100, 10);
    let header = world.batch(77, 3, 10, &body);
    world.ask(&header, &body);
    let (newer, reply) = opened(&mut world, CLIENT, ONE);
    assert!(newer > number, "{first:?}");
    assert_eq!((reply.header.send, reply.header.rows), (30, 10));
}

#[test]
fn only_attached_sessions_are_members_and_below_the_level_nothing_is_served() {
    let mut world = world(7);
    world.event(Event::Opened(Connection(3)));
    let id = fetch(&mut world, Connection(3), ONE, 0, STANDS, 0);
    assert_eq!(world.answer_to(id).header.code, Code::FencedMember as u16);
    assert_eq!(attach(&mut world, Connection(3), 4 << 16).header.code, Code::FencedMember as u16);
    assert_eq!(attach(&mut world, Connection(3), 4000 << 16).header.code, Code::Ahead as u16);
    assert_eq!(attach(&mut world, CLIENT, OTHER).header.code, Code::InvalidArgument as u16);
    let now = world.now;
    assert_eq!(world.engine.members(now), [ONE, OTHER]);
    assert_eq!(attach(&mut world, Connection(3), ONE).header.status, 0);
    let id = fetch(&mut world, CLIENT, ONE, 0, STANDS, 0);
    assert_eq!(world.answer_to(id).header.code, Code::FencedMember as u16, "a newer connection has the session");
    world.event(Event::Closed(Connection(3)));
    world.pass(20_000);
    assert_eq!(world.engine.members(world.now), [0; 0]);
    let mut below = World::new(8, Shape { level: 2, ..Shape::default() });
    assert_eq!(attach(&mut below, CLIENT, ONE).header.code, Code::NotSupported as u16);
    assert!(below.ordered(Order::InstallCohorts(rule(ONE, 1))).is_err());
}

#[test]
fn a_beat_extends_holds_that_stand() {
    let mut world = world(9);
    let (number, _) = opened(&mut world, CLIENT, ONE);
    let beat = |world: &mut World| {
        let header = RequestHeader { producer_id: ONE, producer_epoch: COHORT, ..world.request(Opcode::MemberBeat) };
        let body: Vec<u8> = [PARTITION, number].iter().flat_map(|word| word.to_le_bytes()).collect();
        let id = send(world, CLIENT, header, &body);
        world.answer_to(id)
    };
    assert_eq!(beat(&mut world).body.len(), 0);
    world.ordered(Order::InstallCohorts(rule(OTHER, 2))).unwrap();
    let reply = beat(&mut world);
    assert_eq!((reply.header.sequence, &reply.body[..]), (2, &PARTITION.to_le_bytes()[..]));
}

/// A sealed partition whose gate is in the log of `PARTITION`, and that log's own, which waits for it.
fn with_parent(generation: u64, is_drained: bool) -> CohortRules {
    let mut rules = rule(ONE, generation);
    let mut parent = gate_of(PARENT, ONE);
    (parent.end, parent.is_through) = (Some(40), is_drained);
    if !is_drained {
        rules.gates[0].waits_for = Box::from([PARENT]);
    }
    rules.gates.insert(0, parent);
    rules
}

const PARENT: u64 = 5;

#[test]
fn a_member_reads_a_sealed_parent_to_its_end_and_then_its_child() {
    let mut world = world(10);
    world.ordered(Order::InstallCohorts(with_parent(2, false))).unwrap();
    let me = (CLIENT, ONE);
    let child = fetch(&mut world, CLIENT, ONE, 0, STANDS, 20_000);
    let id = fetch_of(&mut world, PARENT, me, 0, STANDS, 1_000);
    let told = world.answer_to(id).header;
    assert_ne!(told.flags & ANSWER_FLAG_ELSEWHERE, 0);
    assert_eq!((told.first_offset, told.end_offset, told.rows), (0, 40, 0));
    let number = told.sequence;
    // It asks again, and hears of the end of its hold there, or that all is settled.
    let poll = fetch_of(&mut world, PARENT, me, number, 0, 20_000);
    let id = acknowledge(&mut world, CLIENT, ONE, [PARENT, number, 25, OWN, 0]);
    assert_eq!(world.answer_to(id).body.len(), 0);
    assert_eq!(world.answers, [], "rows of the parent are left");
    let id = acknowledge(&mut world, CLIENT, ONE, [PARENT, number, 40, OWN, 0]);
    assert_eq!(world.answer_to(id).body.len(), 0);
    let told = world.answer_to(poll).header;
    assert_eq!((told.code, told.first_offset, told.end_offset), (0, 40, 40), "through");
    let parent = gate(&mut world);
    assert_eq!((parent.partition, parent.offset, parent.is_settled), (PARENT, 40, true));
    assert_eq!(world.answers, [], "the metadata has no mark yet");
    world.ordered(Order::InstallCohorts(with_parent(3, true))).unwrap();
    let reply = world.answer_to(child).header;
    assert_eq!((reply.code, reply.rows), (0, 30), "the child opens without a round trip");
    let id = fetch_of(&mut world, PARENT, me, number, 0, 0);
    assert_eq!(world.answer_to(id).header.code, Code::NotAssigned as u16, "it is drained");
}

#[test]
pub fn a_fetch_that_waits_in_vain_is_blocked_only_by_what_comes_before() {
    let mut world = world(11);
    opened(&mut world, CLIENT, ONE);
    world.ordered(Order::InstallCohorts(rule(OTHER, 2))).unwrap();
    let id = fetch(&mut world, OTHER_CLIENT, OTHER, 0, STANDS, 100);
    world.pass(200);
    let reply = world.answer_to(id).header;
    assert_eq!((reply.status, reply.sequence, reply.flags & ANSWER_FLAG_BLOCKED), (0, 0, 0), "another has it");
}

#[test]
fn a_reader_with_a_store_of_its_own_reads_from_what_it_has() {
    let mut world = world(12);
    let mut rules = rule(ONE, 2);
    rules.cohorts[0].mode = Mode::Checkpoint;
    world.ordered(Order::InstallCohorts(rules)).unwrap();
    let (number, _) = opened(&mut world, CLIENT, ONE);
    let id = acknowledge(&mut world, CLIENT, ONE, [PARTITION, number, 20, OWN, 0]);
    world.answer_to(id);
    let id = fetch(&mut world, CLIENT, ONE, number, 10, 0);
    let reply = world.answer_to(id).header;
    assert_eq!((reply.code, reply.send), (0, 10), "its store is behind its last report");
    assert_eq!(gate(&mut world).offset, 20, "nothing takes the position back");
    let id = fetch(&mut world, CLIENT, ONE, number, STANDS, 0);
    assert_eq!(world.answer_to(id).header.code, Code::Conflict as u16, "its store has nothing, the cohort has");
}

#[test]
fn positions_count_no_bytes_for_retention() {
    let mut world = world(13);
    let (number, _) = opened(&mut world, CLIENT, ONE);
    let bytes = world.engine.partition_list()[0].bytes;
    let id = acknowledge(&mut world, CLIENT, ONE, [PARTITION, number, 20, OWN, 0]);
    world.answer_to(id);
    assert!(world.counter("cohort_records") >= 2);
    assert_eq!(world.engine.partition_list()[0].bytes, bytes, "CA4");
}
