//! Gates that are locked for a COMMIT at a node: claims, what they keep out, decided positions, restarts.

use ringfence_node::{ConsumedPosition, Event, Finished, Mode, Order, Outcome, ScopeRule, SeeClaim, SettleCommitted};
use ringfence_transport::Inbound;
use ringfence_wire::{Code, ExtensionKind, Opcode, RequestHeader, crc_of, extension};

use crate::members::{OTHER_CLIENT, OWN, acknowledge, fetch, gate, opened, shape, world};
use crate::support::cohorts::{COHORT, ONE, OTHER, STANDS, rule};
use crate::support::{CLIENT, PARTITION, Reply, TOPIC, World};

const SCOPE: u64 = 40;
const DRIVER: u64 = 41;
const TOKEN: [u8; 16] = [7; 16];

fn scope(committed: u64, expired: u64, positions: Vec<ConsumedPosition>) -> Order {
    let pending = positions.iter().map(|one| one.epoch).collect();
    let rule = ScopeRule { scope: SCOPE, driver: DRIVER, committed, expired, cohort: COHORT, pending, positions };
    Order::InstallScopes { rules: vec![rule], gone: None }
}

/// A scope without commits. Cohort 0: it is none of a cohort.
fn scope_of(scope: u64, cohort: u64) -> ScopeRule {
    ScopeRule { scope, driver: DRIVER, cohort, ..ScopeRule::default() }
}

fn position(hold: u64, from: u64, through: u64, has_rows: bool) -> ConsumedPosition {
    ConsumedPosition {
        topic: TOPIC,
        partition: PARTITION,
        cohort: COHORT,
        incarnation: COHORT,
        session: ONE,
        hold,
        from,
        through,
        epoch: 1,
        token: TOKEN,
        has_rows,
    }
}

/// ACKNOWLEDGE that claims: (partition, hold, from, through, epoch of the last row).
fn claim(world: &mut World, line: [u64; 5]) -> Reply {
    claim_for(world, [SCOPE, DRIVER], line)
}

fn claim_for(world: &mut World, [scope, driver]: [u64; 2], line: [u64; 5]) -> Reply {
    let mut identity = Vec::new();
    for word in [scope, driver, 1] {
        identity.extend_from_slice(&u64::to_le_bytes(word));
    }
    identity.extend_from_slice(&[0; 8]);
    identity.extend_from_slice(&TOKEN);
    let mut body = Vec::new();
    extension::write(&mut body, &[(ExtensionKind::Stage, &identity)]);
    let extension_bytes = u32::try_from(body.len()).unwrap();
    let epoch = world.epoch;
    for word in line.map(|word| if word == OWN { epoch } else { word }).into_iter().chain([2]) {
        body.extend_from_slice(&word.to_le_bytes());
    }
    let mut header = RequestHeader {
        producer_id: ONE,
        partition: 0,
        deadline_ms: 5000,
        extension_bytes,
        ..world.request(Opcode::Acknowledge)
    };
    (header.body_bytes, header.body_crc) = (u32::try_from(body.len()).unwrap(), crc_of(&body));
    world.event(Event::Request { connection: CLIENT, header: &header.seal(), body: Inbound::Small(&body) });
    world.run();
    world.answer_to(header.request_id)
}

/// The code of the only line that was not taken; 0: all were.
fn refused(reply: &Reply) -> u16 {
    assert_eq!((reply.header.status, reply.header.code), (0, 0), "{reply:?}");
    if reply.body.is_empty() { 0 } else { u16::from_le_bytes([reply.body[16], reply.body[17]]) }
}

fn is_seen(world: &mut World, position: ConsumedPosition) -> bool {
    let seen = SeeClaim { scope: SCOPE, driver: DRIVER, position };
    match world.ordered(Order::SeeClaim(Box::new(seen))) {
        Ok(Finished::Claimed { epoch, is_there }) => {
            assert_eq!(epoch, world.epoch);
            is_there
        }
        other => panic!("{other:?}"),
    }
}

fn settle(through: u64) -> Order {
    let (topic, partition, cohort, incarnation) = (TOPIC, PARTITION, COHORT, COHORT);
    Order::SettleCommitted(SettleCommitted { topic, partition, cohort, incarnation, through })
}

/// A member with all rows, whose gate is locked for rows 0 to 20.
fn claimed(seed: u64) -> (World, u64) {
    let mut world = world(seed);
    world.ordered(scope(0, 0, vec![])).unwrap();
    let (number, _) = opened(&mut world, CLIENT, ONE);
    let reply = claim(&mut world, [PARTITION, number, 0, 20, OWN]);
    assert_eq!(refused(&reply), 0);
    (world, number)
}

#[test]
pub fn a_claim_is_seen_and_refuses_plain_acknowledgements() {
    let (mut world, number) = claimed(1);
    assert!(is_seen(&mut world, position(number, 0, 20, false)));
    assert!(!is_seen(&mut world, position(number, 0, 19, false)), "other rows");
    assert!(!is_seen(&mut world, ConsumedPosition { token: [8; 16], ..position(number, 0, 20, false) }));
    let again = claim(&mut world, [PARTITION, number, 0, 20, OWN]);
    assert_eq!(refused(&again), 0, "the same claim again");
    for (line, code) in [
        ([PARTITION, number - 1, 0, 20, OWN], Code::NotAssigned),
        ([PARTITION, number, 5, 20, OWN], Code::Conflict),
        ([PARTITION, number, 0, 31, OWN], Code::Truncated),
        ([PARTITION, number, 0, 10, OWN], Code::Held),
        ([PARTITION + 1, number, 0, 10, OWN], Code::UnknownPartition),
    ] {
        let reply = claim(&mut world, line);
        assert_eq!(refused(&reply), code as u16, "{line:?}");
    }
    let id = acknowledge(&mut world, CLIENT, ONE, [PARTITION, number, 10, OWN, 1]);
    let reply = world.answer_to(id);
    assert_eq!(refused(&reply), Code::Conflict as u16);
    assert_eq!(gate(&mut world).offset, 0);
}

#[test]
pub fn another_member_is_kept_out_until_the_epoch_expired() {
    let (mut world, number) = claimed(2);
    world.ordered(Order::InstallCohorts(rule(OTHER, 2))).unwrap();
    let now = world.now;
    assert_eq!(world.engine.forced_ends(now), [], "its lease lasts");
    let waiting = fetch(&mut world, OTHER_CLIENT, OTHER, 0, STANDS, 200_000);
    world.pass(80_000);
    assert!(world.answers.is_empty(), "the claim is open");
    let now = world.now;
    assert_eq!(world.engine.forced_ends(now), [(SCOPE, 1, DRIVER)], "CT8");
    world.ordered(scope(0, 1, vec![])).unwrap();
    let reply = world.answer_to(waiting);
    assert_eq!((reply.header.sequence, reply.header.send), (number + 1, 0), "all rows come again");
    assert!(!is_seen(&mut world, position(number, 0, 20, false)));
}

#[test]
pub fn a_decided_position_is_written_after_its_rows_and_before_another_member() {
    let (mut world, number) = claimed(3);
    world.ordered(Order::InstallCohorts(rule(OTHER, 2))).unwrap();
    let waiting = fetch(&mut world, OTHER_CLIENT, OTHER, 0, STANDS, 200_000);
    world.pass(80_000);
    world.ordered(scope(1, 0, vec![position(number, 0, 20, true)])).unwrap();
    assert!(world.ordered(settle(20)).is_err(), "CT4: its rows are not published");
    assert!(world.answers.is_empty());
    assert_eq!(gate(&mut world).offset, 0);
    let now = world.now;
    assert_eq!(world.engine.forced_ends(now), [], "it is decided");
    world.ordered(scope(1, 0, vec![position(number, 0, 20, false)])).unwrap();
    world.ordered(settle(20)).unwrap();
    assert_eq!(gate(&mut world).offset, 20);
    let reply = world.answer_to(waiting);
    assert_eq!((reply.header.sequence, reply.header.send), (number + 1, 20));
    world.ordered(settle(20)).unwrap();
}

#[test]
pub fn an_order_for_a_position_ends_when_it_is_durable() {
    let (mut world, number) = claimed(4);
    world.is_held = true;
    world.ordered(scope(1, 0, vec![position(number, 0, 20, false)])).unwrap();
    world.outcomes.clear();
    let order = world.order(settle(20));
    world.run();
    let is_ended = |world: &World| {
        world.outcomes.iter().any(|one| matches!(one, Outcome::Order { number, .. } if *number == order))
    };
    assert!(!is_ended(&world));
    world.release();
    assert!(is_ended(&world));
    assert_eq!(gate(&mut world).offset, 20);
    let id = acknowledge(&mut world, CLIENT, ONE, [PARTITION, number, 25, OWN, 0]);
    assert_eq!(world.answer_to(id).body.len(), 0, "the claim is over");
}

#[test]
pub fn a_claim_is_lost_with_its_owner_and_a_decided_position_is_not() {
    let (world, number) = claimed(5);
    let mut world = world.crash(shape());
    world.install(1);
    world.ordered(scope(1, 0, vec![position(number, 0, 20, false)])).unwrap();
    world.ordered(Order::InstallCohorts(rule(ONE, 1))).unwrap();
    world.open_partition();
    assert!(!is_seen(&mut world, position(number, 0, 20, false)));
    world.ordered(settle(20)).unwrap();
    assert_eq!(gate(&mut world).offset, 20);
}

#[test]
fn a_cohort_that_is_not_stream_takes_no_claim() {
    let mut world = world(6);
    let (number, _) = opened(&mut world, CLIENT, ONE);
    let mut rules = rule(ONE, 2);
    rules.cohorts[0].mode = Mode::Checkpoint;
    world.ordered(Order::InstallCohorts(rules)).unwrap();
    let reply = claim(&mut world, [PARTITION, number, 0, 20, OWN]);
    assert_eq!(reply.header.code, Code::InvalidArgument as u16);
}

/// The request is refused as a whole, and the gate is as free as before.
fn is_refused(world: &mut World, named: [u64; 2], number: u64, code: Code) {
    let reply = claim_for(world, named, [PARTITION, number, 0, 20, OWN]);
    assert_eq!(reply.header.code, code as u16, "{named:?}: {reply:?}");
    let [scope, driver] = named;
    let seen = SeeClaim { scope, driver, position: position(number, 0, 20, false) };
    let seen = world.ordered(Order::SeeClaim(Box::new(seen)));
    assert!(matches!(seen, Ok(Finished::Claimed { is_there: false, .. })), "{named:?}: {seen:?}");
}

/// Another member gets the gate when the lease is over, and no epoch is to be ended for it.
fn is_handed_over(world: &mut World, number: u64) {
    world.ordered(Order::InstallCohorts(rule(OTHER, 2))).unwrap();
    let waiting = fetch(world, OTHER_CLIENT, OTHER, 0, STANDS, 200_000);
    world.pass(80_000);
    let now = world.now;
    assert_eq!(world.engine.forced_ends(now), []);
    let reply = world.answer_to(waiting);
    assert_eq!((reply.header.sequence, reply.header.send), (number + 1, 0));
}

#[test]
pub fn a_claim_for_a_scope_that_is_not_the_cohorts_changes_nothing() {
    const OF_OTHER: u64 = 50;
    const OF_NONE: u64 = 51;
    const GONE: u64 = 1;
    const NEWER: u64 = 1 << 30;
    let mut world = world(7);
    let rules = vec![scope_of(SCOPE, COHORT), scope_of(OF_OTHER, COHORT + 1), scope_of(OF_NONE, 0)];
    world.ordered(Order::InstallScopes { rules, gone: Some(GONE) }).unwrap();
    let (number, _) = opened(&mut world, CLIENT, ONE);
    for (scope, code) in [
        (OF_OTHER, Code::InvalidArgument),
        (OF_NONE, Code::InvalidArgument),
        (SCOPE + 1, Code::InvalidArgument),
        (GONE, Code::Forgotten),
        (NEWER, Code::Ahead),
    ] {
        is_refused(&mut world, [scope, DRIVER], number, code);
    }
    is_handed_over(&mut world, number);
}

#[test]
pub fn a_claim_of_a_driver_that_the_scope_does_not_have_changes_nothing() {
    let mut world = world(8);
    let rules = vec![scope_of(SCOPE, COHORT)];
    world.ordered(Order::InstallScopes { rules, gone: Some(0) }).unwrap();
    let (number, _) = opened(&mut world, CLIENT, ONE);
    for (driver, code) in
        [(DRIVER - 1, Code::FencedProducer), (DRIVER + 1, Code::InvalidArgument), (u64::MAX, Code::Ahead)]
    {
        is_refused(&mut world, [SCOPE, driver], number, code);
    }
    is_handed_over(&mut world, number);
}
