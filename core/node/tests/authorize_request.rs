//! Tokens: which right each request needs, what HELLO decides, and what a changed table of tokens ends.

use crate::support::{CLIENT, PARTITION, Reply, Shape, TOPIC, World, body_of, table_body};
use ringfence_node::{AccessTable, Event, Grant, Order, Outcome, Secret};
use ringfence_wire::{CREDENTIAL_BYTES_MAX, Code, Opcode, REQUEST_FLAG_CONTROL, RequestHeader, Right, Status, crc_of};
use sha2::{Digest, Sha256};

const READ: u8 = Right::Read as u8;
const WRITE: u8 = Right::Write as u8;

fn grant(secret: &str, rights: u8) -> Grant {
    Grant {
        name: format!("holder of {rights}"),
        hash: Sha256::digest(secret).into(),
        rights,
        expires_ms: u64::MAX,
        prefix: String::new(),
    }
}

fn asked(grants: Vec<Grant>) -> Event<'static> {
    Event::SetAccess(Box::new(AccessTable { is_asked: true, grants, credential: Secret::default() }))
}

fn open() -> Event<'static> {
    Event::SetAccess(Box::default())
}

fn world() -> World {
    World::new(1, Shape::default())
}

/// `credential`: the encoded value.
fn hello_with(world: &mut World, credential: &[u8]) -> Reply {
    let body = [b"\x83\xABversion_min\x01\xABversion_max\x01\xAAcredential", credential].concat();
    let header = RequestHeader {
        flags: u8::try_from(REQUEST_FLAG_CONTROL).unwrap(),
        topic: 0,
        body_bytes: u32::try_from(body.len()).unwrap(),
        body_crc: crc_of(&body),
        ..world.request(Opcode::Hello)
    };
    world.ask(&header, &body)
}

fn hello(world: &mut World, secret: &str) -> Reply {
    let head = [0xD9, u8::try_from(secret.len()).unwrap()];
    hello_with(world, &[&head, secret.as_bytes()].concat())
}

fn publish(world: &mut World, sequence: u64) -> Reply {
    let body = body_of(0, 1);
    let header = world.batch(3, sequence, 1, &body);
    world.ask(&header, &body)
}

fn code(reply: &Reply) -> Option<Code> {
    (reply.header.status == Status::Refused as u8).then(|| Code::from_number(reply.header.code).unwrap())
}

fn text(reply: &Reply) -> String {
    String::from_utf8_lossy(&reply.body).into_owned()
}

/// Whether a request of this kind is refused for want of a right. What else becomes of it does not matter here.
fn lacks(world: &mut World, opcode: Opcode) -> bool {
    let body = b"\x80";
    let header = RequestHeader {
        flags: u8::try_from(REQUEST_FLAG_CONTROL).unwrap(),
        body_bytes: 1,
        body_crc: crc_of(body),
        ..world.request(opcode)
    };
    world.send(&header, body);
    world.run();
    let found = world.answers.iter().any(|reply| code(reply) == Some(Code::Unauthorized));
    world.answers.clear();
    world.outcomes.clear();
    found
}

#[test]
fn each_request_needs_its_right_and_no_other() {
    let mut world = world();
    for opcode in Opcode::ALL {
        assert!(!lacks(&mut world, *opcode), "{opcode:?}: without tokens nothing is asked for");
    }
    for rights in 1..16 {
        let secret = format!("secret {rights}");
        world.event(asked(vec![grant("another", 0xF), grant(&secret, rights)]));
        assert_eq!(hello(&mut world, &secret).header.status, Status::Ready as u8);
        for opcode in Opcode::ALL.iter().filter(|opcode| **opcode != Opcode::Hello) {
            let wanted = opcode.right().is_some_and(|right| rights & right as u8 == 0);
            assert_eq!(lacks(&mut world, *opcode), wanted, "{opcode:?} under {rights:04b}");
        }
    }
    // One of each kind by name: the table above must not only agree with itself.
    let needs = |opcode: Opcode| opcode.right();
    assert_eq!(needs(Opcode::Publish), Some(Right::Write));
    assert_eq!(needs(Opcode::Stage), Some(Right::Write));
    assert_eq!(needs(Opcode::Commit), Some(Right::Write));
    assert_eq!(needs(Opcode::Fetch), Some(Right::Read));
    assert_eq!(needs(Opcode::Table), Some(Right::Read));
    assert_eq!(needs(Opcode::Status), Some(Right::Read));
    assert_eq!(needs(Opcode::TopicDelete), Some(Right::Manage));
    assert_eq!(needs(Opcode::TopicTruncate), Some(Right::Manage));
    assert_eq!(needs(Opcode::Replicate), Some(Right::Node));
    assert_eq!(needs(Opcode::Fence), Some(Right::Node));
    let free: Vec<_> = Opcode::ALL.iter().filter(|opcode| opcode.right().is_none()).collect();
    let pushed = [&Opcode::TablePush, &Opcode::TableAck, &Opcode::WatchUpdate, &Opcode::Assign];
    assert_eq!(free, [&[&Opcode::Hello][..], &pushed].concat());
}

#[test]
fn a_refusal_says_what_is_missing_and_the_way_to_it() {
    let mut world = world();
    world.event(asked(vec![grant("reader", READ)]));
    let reply = publish(&mut world, 0);
    assert_eq!((code(&reply), Code::Unauthorized.is_retriable()), (Some(Code::Unauthorized), false));
    assert!(text(&reply).contains("HELLO had none") && text(&reply).contains("--role writer"), "{}", text(&reply));
    let reply = hello(&mut world, "nobody's secret");
    assert_eq!(code(&reply), Some(Code::Unauthorized));
    assert!(text(&reply).contains("no token has this secret") && !text(&reply).contains("nobody's"));
    assert_eq!(hello(&mut world, "reader").header.status, Status::Ready as u8);
    let reply = publish(&mut world, 0);
    assert!(text(&reply).contains("holder of 1") && text(&reply).contains("\"write\", which publish needs"));
    assert!(!text(&reply).contains("reader"), "{}", text(&reply));
    assert_eq!(world.counter("refused_unauthorized"), 3);
}

#[test]
fn a_failed_hello_takes_what_an_earlier_one_had() {
    let mut world = world();
    world.event(asked(vec![grant("writer", READ | WRITE)]));
    hello(&mut world, "writer");
    assert_eq!(code(&publish(&mut world, 0)), None);
    assert_eq!(code(&hello(&mut world, "writes")), Some(Code::Unauthorized));
    assert_eq!(code(&publish(&mut world, 1)), Some(Code::Unauthorized));
    hello(&mut world, "writer");
    assert_eq!(code(&publish(&mut world, 1)), None);
    assert_eq!(code(&hello_with(&mut world, b"\xC0")), Some(Code::Unauthorized), "nil is none");
    assert_eq!(code(&publish(&mut world, 2)), Some(Code::Unauthorized));
}

#[test]
fn unsound_credentials_are_refused_without_being_shown() {
    let mut world = world();
    let longest = "s".repeat(CREDENTIAL_BYTES_MAX - 1);
    world.event(asked(vec![grant(&longest, READ)]));
    assert_eq!(code(&hello(&mut world, &longest)), None);
    let too_long = [&b"\xDA\x01\x01"[..], "secretsecret".repeat(22).as_bytes().split_at(257).0].concat();
    for unsound in [&b"\x07"[..], b"\xC4\x06secret", b"\x91\xA6secret", b"\xA2\xFF\xFE", &too_long, b"\xC3"] {
        let reply = hello_with(&mut world, unsound);
        assert_eq!(code(&reply), Some(Code::BadBody), "{unsound:?}");
        assert!(text(&reply).contains("credential") && !text(&reply).contains("secret"), "{}", text(&reply));
    }
    assert_eq!(code(&hello(&mut world, "")), Some(Code::Unauthorized), "an empty one is no token");
}

#[test]
fn what_a_connection_showed_counts_when_the_table_changes() {
    let mut world = world();
    assert_eq!(hello(&mut world, "later").header.status, Status::Ready as u8);
    assert_eq!(code(&publish(&mut world, 0)), None);
    world.event(asked(vec![grant("root", 7)]));
    assert_eq!(code(&publish(&mut world, 1)), Some(Code::Unauthorized), "it is asked for from now on");
    world.event(asked(vec![grant("root", 7), grant("later", READ | WRITE)]));
    assert_eq!(code(&publish(&mut world, 1)), None, "no second HELLO is needed");
    world.event(asked(vec![grant("root", 7), grant("later", READ)]));
    assert_eq!(code(&publish(&mut world, 2)), Some(Code::Unauthorized));
    world.event(open());
    assert_eq!(code(&publish(&mut world, 2)), None);
}

#[test]
fn a_revoked_token_ends_what_waits_here_and_an_unrelated_change_ends_nothing() {
    let mut world = world();
    let table = vec![grant("root", 7), grant("reader", READ)];
    world.event(asked(table.clone()));
    hello(&mut world, "reader");
    let poll = world.fetch_header(0, 0, 60_000);
    world.send(&poll, &[]);
    let follow = world.request(Opcode::Table);
    assert_eq!(code(&world.ask(&follow, &[])), None);
    world.event(asked([table.clone(), vec![grant("third", READ)]].concat()));
    assert_eq!((world.answers.len(), world.counter("waiting_polls")), (0, 1));
    world.event(asked(vec![grant("root", 7)]));
    assert_eq!(code(&world.answer_to(poll.request_id)), Some(Code::Unauthorized));
    assert_eq!(world.counter("waiting_polls"), 0);
    world.epoch += 1;
    world.install(2);
    assert!(world.answers.is_empty(), "it is not told of tables any more: {:?}", world.answers);
}

#[test]
fn a_parked_batch_is_not_stored_once_its_right_is_gone() {
    let mut world = world();
    world.event(asked(vec![grant("writer", READ | WRITE)]));
    hello(&mut world, "writer");
    let body = body_of(0, 1);
    let ahead = RequestHeader { layout_version: 2, ..world.batch(3, 0, 1, &body) };
    world.send(&ahead, &body);
    assert_eq!(world.counter("waiting_ahead"), 1);
    world.event(asked(vec![grant("root", 7)]));
    assert_eq!(code(&world.answer_to(ahead.request_id)), Some(Code::Unauthorized));
    assert_eq!(world.counter("waiting_ahead"), 0);
}

#[test]
fn an_expired_token_ends_on_the_open_connection_within_a_tick() {
    let mut world = world();
    let until = world.now.unix_ms + 1_000;
    world.event(asked(vec![Grant { expires_ms: until, ..grant("writer", READ | WRITE) }]));
    hello(&mut world, "writer");
    let poll = world.fetch_header(1, 0, 60_000);
    assert_eq!(code(&publish(&mut world, 0)), None);
    world.send(&poll, &[]);
    world.pass(999);
    assert_eq!(code(&publish(&mut world, 1)), None, "{:?}", world.answers);
    let poll = world.fetch_header(2, 0, 60_000);
    world.send(&poll, &[]);
    world.pass(20);
    let told = world.answer_to(poll.request_id);
    assert!(code(&told) == Some(Code::Unauthorized) && text(&told).contains("has expired"), "{}", text(&told));
    assert_eq!(code(&publish(&mut world, 2)), Some(Code::Unauthorized));
    assert_eq!(code(&hello(&mut world, "writer")), Some(Code::Unauthorized));
}

#[test]
fn a_prefix_holds_for_topics_by_id_and_goes_up_with_the_rest() {
    let mut world = world();
    let named = |name: &str| {
        let mut table = table_body(1_000, 1);
        table[0] = 0x83;
        let length = u8::try_from(name.len()).unwrap();
        [table, b"\xA4name".to_vec(), vec![0xD9, length], name.as_bytes().to_vec()].concat()
    };
    let entry =
        ringfence_node::TablePartition { partition: PARTITION, lo: 0, hi: u16::MAX, owner: 1, epoch: world.epoch };
    let install = Order::InstallTable {
        topic: TOPIC,
        generation: 1_000,
        version: 1,
        table: named("acme/sales/orders"),
        partitions: vec![entry],
        redirect: vec![0x80],
        redirects: vec![],
    };
    world.ordered(install).unwrap();
    let for_topics = |prefix: &str| Grant { prefix: prefix.into(), ..grant("writer", READ | WRITE) };
    world.event(asked(vec![for_topics("acme/sales/")]));
    hello(&mut world, "writer");
    assert_eq!(code(&publish(&mut world, 0)), None);
    let unknown = RequestHeader { topic: 99, ..world.request(Opcode::Fetch) };
    assert_eq!(code(&world.ask(&unknown, &[])), Some(Code::UnknownTopic));
    let body = body_of(0, 1);
    let unheard = RequestHeader { topic: 99, ..world.batch(3, 0, 1, &body) };
    assert_eq!(code(&world.ask(&unheard, &body)), Some(Code::UnknownTopic), "it is not parked, unjudged");
    let status = RequestHeader { topic: 0, ..world.request(Opcode::Status) };
    world.send(&status, &[]);
    let up = world.outcomes.pop();
    let Some(Outcome::Request { prefix, who, .. }) = up else { panic!("{up:?}") };
    assert_eq!((prefix.as_str(), who.as_str()), ("acme/sales/", "holder of 3"));
    world.event(asked(vec![for_topics("acme/hr/")]));
    let reply = publish(&mut world, 1);
    assert!(code(&reply) == Some(Code::Unauthorized) && text(&reply).contains("acme/hr/"), "{}", text(&reply));
    for opcode in [Opcode::Fetch, Opcode::EndOffsets, Opcode::Table, Opcode::Resolve] {
        let header = world.request(opcode);
        assert_eq!(code(&world.ask(&header, &[])), Some(Code::Unauthorized), "{opcode:?}");
    }
}

#[test]
fn the_secret_of_this_node_shows_in_no_text() {
    let table = AccessTable { is_asked: true, grants: vec![], credential: Secret("node secret".into()) };
    assert!(!format!("{table:?}").contains("node secret"));
    assert_eq!(CLIENT.0, 1);
}
