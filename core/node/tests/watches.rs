//! Watches: sessions that are told of a topic's layout, or of the topics with a prefix.

use crate::pushes::{OTHER, acknowledge, body, install, send, settle, world_of};
use crate::support::{Reply, TOPIC, World};
use ringfence_node::{AccessTable, Event, Grant, Order, Secret};
use ringfence_transport::Connection;
use ringfence_wire::{ANSWER_FLAG_CONTROL, Code, Opcode, REQUEST_FLAG_CONTROL, RequestHeader, Right, Status, crc_of};
use sha2::{Digest, Sha256};

const ONE: Connection = Connection(11);
const TWO: Connection = Connection(12);
const SESSION: [u8; 16] = [7; 16];
const NOBODY: &[u8] = b"\x83\xA4node\x00\xA9addresses\x90\xA4http\xA0";
const LEADER: &[u8] = b"\x83\xA4node\x02\xA9addresses\x91\xA3a:1\xA4http\xA3h:1";

fn wanted(session: [u8; 16], field: &str, name: &str, held: u8) -> Vec<u8> {
    let mut out = b"\x83\xA7session\xC4\x10".to_vec();
    out.extend_from_slice(&session);
    for text in [field, name] {
        out.extend_from_slice(&[0xD9, u8::try_from(text.len()).unwrap()]);
        out.extend_from_slice(text.as_bytes());
    }
    out.extend_from_slice(&[&b"\xA4held\xCC"[..], &[held]].concat());
    out
}

fn request(world: &mut World, from: Connection, opcode: Opcode, body: &[u8]) -> Reply {
    let header = RequestHeader {
        flags: u8::try_from(REQUEST_FLAG_CONTROL).unwrap(),
        topic: 0,
        partition: 0,
        body_bytes: u32::try_from(body.len()).unwrap(),
        body_crc: crc_of(body),
        ..world.request(opcode)
    };
    send(world, from, &header, body);
    world.answer_to(header.request_id)
}

fn open(world: &mut World, from: Connection, session: [u8; 16], name: &str, held: u8) -> Reply {
    request(world, from, Opcode::WatchOpen, &wanted(session, "topic", name, held))
}

fn close(world: &mut World, from: Connection, session: [u8; 16]) -> Reply {
    let body = [&b"\x81\xA7session\xC4\x10"[..], &session].concat();
    request(world, from, Opcode::WatchClose, &body)
}

fn code(reply: &Reply) -> Code {
    assert_eq!(reply.header.status, Status::Refused as u8, "{reply:?}");
    Code::from_number(reply.header.code).unwrap()
}

/// All updates since the last call: each is a push of the protocol.
fn updates(world: &mut World) -> Vec<Reply> {
    let told = std::mem::take(&mut world.answers);
    for update in &told {
        let header = (update.header.opcode, update.header.status, update.header.flags, update.header.request_id);
        assert_eq!(header, (Opcode::WatchUpdate as u8, Status::Push as u8, ANSWER_FLAG_CONTROL, 0));
    }
    told
}

fn told(session: [u8; 16], controller: &[u8], fields: u8, rest: &[u8]) -> Vec<u8> {
    [&[0x82 + fields][..], b"\xA7session\xC4\x10", &session, b"\xAAcontroller", controller, rest].concat()
}

fn with_table(controller: &[u8], generation: u64, version: u64) -> Vec<u8> {
    let table = body(&format!("public/default/t{TOPIC}"), generation, version, None);
    told(SESSION, controller, 1, &[&b"\xA5table"[..], &table].concat())
}

#[test]
fn a_watch_is_told_the_layout_and_its_changes_one_at_a_time() {
    let mut world = world_of(&[ONE, TWO]);
    let answer = open(&mut world, ONE, SESSION, "t7", 0);
    let header = answer.header;
    assert_eq!((header.status, answer.body.len()), (Status::Ok as u8, 0));
    assert_eq!((header.topic, header.layout_version, header.generation), (TOPIC, 1, 100));
    let first = updates(&mut world);
    assert_eq!(first.iter().map(|one| one.to).collect::<Vec<_>>(), [ONE]);
    assert_eq!(first[0].body, with_table(NOBODY, 100, 1));
    for version in 2..=4 {
        install(&mut world, TOPIC, 100 + version, version);
    }
    settle(&mut world);
    assert_eq!(updates(&mut world), [], "one is on its way");
    acknowledge(&mut world, ONE, TOPIC, 100);
    let newest = updates(&mut world);
    assert_eq!((newest.len(), &newest[0].body), (1, &with_table(NOBODY, 104, 4)));
    acknowledge(&mut world, ONE, TOPIC, 104);
    world.event(Event::SetController(LEADER.into()));
    world.event(Event::SetController(LEADER.into()));
    settle(&mut world);
    let led = updates(&mut world);
    assert_eq!((led.len(), &led[0].body), (1, &told(SESSION, LEADER, 0, b"")), "no table: it is the same");
    assert_eq!(close(&mut world, ONE, SESSION).header.status, Status::Ok as u8);
    install(&mut world, TOPIC, 110, 5);
    world.event(Event::SetController(NOBODY.into()));
    world.pass(2_000);
    settle(&mut world);
    assert_eq!((updates(&mut world), world.counter("watches")), (vec![], 0), "no frame after the answer");
    assert_eq!(close(&mut world, ONE, SESSION).header.status, Status::Ok as u8, "again");
}

#[test]
fn a_watch_that_goes_on_at_another_node_misses_nothing() {
    let mut world = world_of(&[ONE, TWO]);
    open(&mut world, ONE, SESSION, "public/default/t7", 100);
    let same = updates(&mut world);
    assert_eq!((same.len(), &same[0].body), (1, &told(SESSION, NOBODY, 0, b"")), "it holds what there is");
    install(&mut world, TOPIC, 101, 2);
    settle(&mut world);
    assert_eq!(updates(&mut world)[0].body, with_table(NOBODY, 101, 2));
    open(&mut world, TWO, SESSION, "t7", 100);
    assert_eq!(updates(&mut world)[0].body, with_table(NOBODY, 101, 2), "there is something newer");
    assert_eq!(world.engine.adopted(&[TOPIC], world.now), [(TOPIC, 0)], "a watch holds adoption up");
    acknowledge(&mut world, ONE, TOPIC, 101);
    acknowledge(&mut world, TWO, TOPIC, 101);
    assert_eq!(world.engine.adopted(&[TOPIC], world.now), [(TOPIC, 101)]);
}

#[test]
fn a_deleted_topic_ends_its_watches_with_one_frame() {
    let mut world = world_of(&[ONE]);
    open(&mut world, ONE, SESSION, "t7", 0);
    open(&mut world, ONE, [8; 16], "t8", 0);
    updates(&mut world);
    world.ordered(Order::RemoveTopic { topic: TOPIC }).unwrap();
    settle(&mut world);
    let ended = updates(&mut world);
    assert_eq!((ended.len(), &ended[0].body), (1, &told(SESSION, NOBODY, 1, b"\xA7deleted\xC3")));
    assert_eq!(world.counter("watches"), 1);
    assert_eq!(code(&open(&mut world, ONE, SESSION, "t7", 0)), Code::UnknownTopic);
    install(&mut world, OTHER, 120, 2);
    acknowledge(&mut world, ONE, OTHER, 100);
    assert_eq!(updates(&mut world).len(), 1, "the other one goes on");
}

#[test]
fn unsound_watches_are_refused_and_nothing_is_kept() {
    let mut world = world_of(&[ONE, TWO]);
    let short = b"\x82\xA7session\xC4\x01x\xA5topic\xA2t7";
    let both = [&wanted(SESSION, "topic", "t7", 0)[..], b"\xA6prefix\xA0"].concat();
    let neither = &both[1..=26];
    for (body, expected) in [
        (&short[..], Code::InvalidArgument),
        (&[&[0x84], &both[1..]].concat(), Code::InvalidArgument),
        (&[&[0x81], neither].concat(), Code::InvalidArgument),
        (b"\x81\xA5topic\x05", Code::BadBody),
        (b"\xC1", Code::BadBody),
        (&wanted(SESSION, "topic", "nothing", 0), Code::UnknownTopic),
        (&wanted(SESSION, "topic", &"x".repeat(255), 0), Code::UnknownTopic),
    ] {
        assert_eq!(code(&request(&mut world, ONE, Opcode::WatchOpen, body)), expected, "{body:x?}");
    }
    assert_eq!(code(&request(&mut world, ONE, Opcode::WatchClose, b"\xC1")), Code::BadBody);
    for session in 1..=64 {
        open(&mut world, ONE, [session; 16], "t7", 0);
    }
    updates(&mut world);
    assert_eq!(code(&open(&mut world, ONE, [64; 16], "t7", 0)), Code::AlreadyExists);
    close(&mut world, ONE, [1; 16]);
    assert_eq!(code(&open(&mut world, ONE, [64; 16], "t7", 0)), Code::AlreadyExists);
    open(&mut world, ONE, [1; 16], "t7", 0);
    assert_eq!(code(&open(&mut world, ONE, [65; 16], "t7", 0)), Code::Overloaded);
    assert_eq!(open(&mut world, TWO, [64; 16], "t7", 0).header.status, Status::Ok as u8, "of another connection");
    world.event(Event::Closed(ONE));
    assert_eq!(world.counter("watches"), 1);
}

fn listed(topics: &[(u8, &str)], gone: &[u8], is_whole: bool) -> Vec<u8> {
    let mut rest = vec![];
    rest.extend_from_slice(&[&b"\xA6topics"[..], &[0x90 + u8::try_from(topics.len()).unwrap()]].concat());
    for (topic, name) in topics {
        rest.extend_from_slice(&[0x92, *topic, 0xA0 + u8::try_from(name.len()).unwrap()]);
        rest.extend_from_slice(name.as_bytes());
    }
    if !gone.is_empty() {
        rest.extend_from_slice(&[&b"\xA4gone"[..], &[0x90 + u8::try_from(gone.len()).unwrap()], gone].concat());
    }
    if is_whole {
        rest.extend_from_slice(b"\xA5whole\xC3");
    }
    told(SESSION, NOBODY, 1 + u8::from(!gone.is_empty()) + u8::from(is_whole), &rest)
}

#[test]
fn who_watches_a_prefix_hears_of_topics_made_and_deleted() {
    let mut world = world_of(&[ONE, TWO]);
    let opened = request(&mut world, ONE, Opcode::WatchOpen, &wanted(SESSION, "prefix", "t", 0));
    assert_eq!((opened.header.status, opened.header.topic), (Status::Ok as u8, 0));
    let first = updates(&mut world);
    let names = [(7, "public/default/t7"), (8, "public/default/t8")];
    assert_eq!((first.len(), &first[0].body), (1, &listed(&names, &[], true)));
    for index in 101..=140 {
        install(&mut world, TOPIC, index, index);
        world.event(Event::SetGeneration(index));
    }
    world.pass(2_000);
    settle(&mut world);
    assert_eq!(updates(&mut world), [], "layouts change, names do not");
    install(&mut world, 9, 150, 1);
    settle(&mut world);
    assert_eq!(updates(&mut world)[0].body, listed(&[(9, "public/default/t9")], &[], false));
    world.ordered(Order::RemoveTopic { topic: TOPIC }).unwrap();
    install(&mut world, 10, 151, 1);
    settle(&mut world);
    assert_eq!(updates(&mut world), [], "one is on its way");
    acknowledge(&mut world, ONE, 0, 150);
    assert_eq!(updates(&mut world)[0].body, listed(&[(10, "public/default/t10")], &[7], false));
    let nothing = request(&mut world, TWO, Opcode::WatchOpen, &wanted(SESSION, "prefix", "other/", 0));
    assert_eq!(nothing.header.status, Status::Ok as u8);
    assert_eq!(updates(&mut world)[0].body, listed(&[], &[], true), "an empty list is told, too");
    install(&mut world, 11, 152, 1);
    acknowledge(&mut world, ONE, 0, 151);
    settle(&mut world);
    assert_eq!(updates(&mut world).iter().map(|one| one.to).collect::<Vec<_>>(), [ONE], "nothing for the other");
}

#[test]
fn a_token_watches_what_it_may_read() {
    let mut world = world_of(&[ONE]);
    let grant = Grant {
        name: "viewer".into(),
        hash: Sha256::digest("secret").into(),
        rights: Right::Read as u8,
        expires_ms: u64::MAX,
        prefix: "public/default/t8".into(),
    };
    let table = AccessTable { is_asked: true, grants: vec![grant], credential: Secret(String::new()) };
    world.event(Event::SetAccess(Box::new(table)));
    assert_eq!(code(&open(&mut world, ONE, SESSION, "t8", 0)), Code::Unauthorized, "no token yet");
    let hello = b"\x83\xABversion_min\x01\xABversion_max\x01\xAAcredential\xA6secret";
    request(&mut world, ONE, Opcode::Hello, hello);
    assert_eq!(code(&open(&mut world, ONE, SESSION, "t7", 0)), Code::Unauthorized);
    assert_eq!(open(&mut world, ONE, SESSION, "t8", 0).header.status, Status::Ok as u8);
    updates(&mut world);
    request(&mut world, ONE, Opcode::WatchOpen, &wanted([9; 16], "prefix", "", 0));
    let list = updates(&mut world);
    let seen = String::from_utf8_lossy(&list[0].body).into_owned();
    assert!(seen.contains("t8") && !seen.contains("t7"), "{seen}");
    world.event(Event::SetAccess(Box::new(AccessTable { is_asked: true, ..AccessTable::default() })));
    assert_eq!(world.counter("watches"), 0, "the right is gone");
    install(&mut world, OTHER, 130, 2);
    settle(&mut world);
    assert!(world.answers.iter().all(|one| one.header.status != Status::Push as u8));
}
