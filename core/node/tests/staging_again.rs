//! Rows that are staged again after a layout change: what is staged is listed, and keeps its place.

use crate::support::{PARTITION, Reply, Shape, TOPIC, World, body_of};
use ringfence_log::Storage;
use ringfence_node::{LAYOUT_LEVEL, Order, Publish, ScopeRule};
use ringfence_wire::{
    ANSWER_FLAG_CONTROL, Code, ExtensionKind, Opcode, REQUEST_FLAG_CONTROL, RecordKind, RequestHeader, Status, crc_of,
    extension,
};

const SCOPE: u64 = 30;
const DRIVER: u64 = 31;

type Origin = Option<(u64, u64)>;

fn world(level: u16) -> World {
    begun(World::new(1, Shape { level, ..Shape::default() }))
}

fn begun(mut world: World) -> World {
    let rule = ScopeRule {
        scope: SCOPE,
        driver: DRIVER,
        committed: 0,
        expired: 0,
        cohort: 0,
        pending: [].into(),
        positions: Vec::new(),
    };
    world.ordered(Order::InstallScopes { rules: vec![rule], gone: None }).unwrap();
    world
}

fn stage_as(world: &mut World, token: u8, sequence: u64, first: i64, origin: &[u8]) -> Reply {
    let mut identity = Vec::new();
    for word in [SCOPE, DRIVER, 1, 2] {
        identity.extend_from_slice(&u64::to_le_bytes(word));
    }
    identity.extend_from_slice(&[token; 16]);
    let mut items = vec![(ExtensionKind::Stage, &identity[..])];
    if !origin.is_empty() {
        items.push((ExtensionKind::Origin, origin));
    }
    let mut body = Vec::new();
    extension::write(&mut body, &items);
    let extension_bytes = u32::try_from(body.len()).unwrap();
    body.extend_from_slice(&body_of(first, 10));
    let mut header = world.batch(0, sequence, 10, &body);
    header.opcode = Opcode::Stage as u8;
    (header.producer_epoch, header.send, header.extension_bytes) = (0, 0, extension_bytes);
    world.ask(&header, &body)
}

fn stage(world: &mut World, token: u8, sequence: u64, first: i64, origin: Origin) {
    let payload =
        origin.map_or_else(Vec::new, |(version, record)| [version.to_le_bytes(), record.to_le_bytes()].concat());
    let reply = stage_as(world, token, sequence, first, &payload);
    assert_eq!(reply.header.status, Status::Staged as u8, "{reply:?}");
}

fn publish(world: &mut World, tokens: &[u8], rows: u64) {
    let tokens = tokens.iter().map(|token| [*token; 16]).collect();
    let (topic, partition, scope) = (TOPIC, PARTITION, SCOPE);
    let order = Publish { topic, partition, scope, epoch: 1, tokens, rows, upto: 0, after: 0 };
    world.ordered(Order::Publish(order)).unwrap();
}

/// Records of the newest publish record, in its order.
fn published(world: &mut World) -> Vec<u64> {
    let all = world.read_all();
    let (header, body) = all.last().expect("something is published");
    assert_eq!(header.kind, RecordKind::Publish as u8);
    let words: Vec<u64> = body.chunks(8).map(|word| u64::from_le_bytes(word.try_into().unwrap())).collect();
    words[3..].chunks(2).map(|pair| pair[0]).collect()
}

fn list_with(world: &mut World, body: &[u8]) -> Reply {
    let header = RequestHeader {
        flags: u8::try_from(REQUEST_FLAG_CONTROL).unwrap(),
        body_bytes: u32::try_from(body.len()).unwrap(),
        body_crc: crc_of(body),
        ..world.request(Opcode::StagedList)
    };
    world.ask(&header, body)
}

fn wanted(epoch: u8, tokens: &[u8], after: u8) -> Vec<u8> {
    let head = [b"\x84\xA5scope\x1E\xA5epoch", &[epoch][..], b"\xA5after", &[after], b"\xA6tokens"].concat();
    let mut body = [&head[..], &[0x90 + u8::try_from(tokens.len()).unwrap()]].concat();
    for token in tokens {
        body.extend_from_slice(&[&[0xC4, 16][..], &[*token; 16]].concat());
    }
    body
}

/// (record, rows, index of the token) of the answer, which says that it is all, of an ACTIVE partition.
fn listed(world: &mut World, tokens: &[u8], after: u8) -> Vec<(u64, u8, u8)> {
    let reply = list_with(world, &wanted(1, tokens, after));
    assert_eq!((reply.header.status, reply.header.flags), (Status::Ok as u8, ANSWER_FLAG_CONTROL));
    let body = reply.body.strip_prefix(b"\x83\xA7batches").unwrap();
    let mut rest = body.strip_suffix(b"\xA4more\xC2\xAEsealed_version\x00").unwrap();
    let mut found = Vec::new();
    for _ in 0..rmp::decode::read_array_len(&mut rest).unwrap() {
        assert_eq!(rmp::decode::read_array_len(&mut rest).unwrap(), 3);
        let record = rmp::decode::read_int(&mut rest).unwrap();
        let mut number = || rmp::decode::read_int(&mut rest).unwrap();
        found.push((record, number(), number()));
    }
    assert!(rest.is_empty());
    found
}

#[cfg_attr(not(feature = "planted"), test)]
pub fn rows_that_are_staged_again_keep_their_place() {
    let mut world = world(LAYOUT_LEVEL);
    stage(&mut world, 1, 0, 0, None);
    stage(&mut world, 2, 0, 10, Some((3, 7)));
    stage(&mut world, 2, 1, 20, Some((2, 9)));
    stage(&mut world, 2, 2, 30, Some((2, 4)));
    stage(&mut world, 1, 1, 40, None);
    assert_eq!(listed(&mut world, &[1, 2], 0), [(1, 10, 0), (2, 10, 1), (3, 10, 1), (4, 10, 1), (5, 10, 0)]);
    publish(&mut world, &[1, 2], 50);
    assert_eq!(published(&mut world), [4, 3, 2, 1, 5], "by version and record of the first staging, others last");
    assert_eq!(listed(&mut world, &[1, 2], 0), []);
}

/// Recovery learns of them from the staged records, or from a state record, which is written before older files go.
#[cfg_attr(not(feature = "planted"), test)]
pub fn origins_outlive_a_power_cut() {
    for with_state in [false, true] {
        let mut world = world(LAYOUT_LEVEL);
        let mut offset = 0;
        if with_state {
            offset = fill(&mut world, 0);
        }
        stage(&mut world, 1, 0, 0, None);
        stage(&mut world, 2, 0, 10, Some((2, 9)));
        if with_state {
            let files = world.disk.list().unwrap().len();
            fill(&mut world, offset);
            let epoch = world.epoch;
            let start = Order::Truncate { topic: TOPIC, partition: PARTITION, before_offset: offset, epoch };
            world.ordered(start).unwrap();
            for _ in 0..100 {
                world.pass(1_000);
            }
            assert!(world.disk.list().unwrap().len() < files + FILES, "older files are gone");
        }
        let mut world = begun(world.crash(Shape { level: LAYOUT_LEVEL, ..Shape::default() }));
        world.install(1);
        world.open_partition();
        let found = listed(&mut world, &[1, 2], 0);
        publish(&mut world, &[1, 2], 20);
        let listed = published(&mut world);
        assert_eq!((found.len(), listed.len()), (2, 2));
        assert_eq!(listed[0], listed[1] + 1, "what was staged again comes first; state record: {with_state}");
    }
}

const FILES: usize = 3;

/// Rows until so many segment files were begun. Returns the offset after them.
fn fill(world: &mut World, from: u64) -> u64 {
    let files = |world: &World| world.disk.list().unwrap().len();
    let (before, body) = (files(world), body_of(0, 10_000));
    let mut rows = from;
    while files(world) < before + FILES {
        let header = world.batch(4, rows / 10_000, 10_000, &body);
        assert_eq!(world.ask(&header, &body).header.status, Status::Ok as u8);
        rows += 10_000;
        assert!(rows < 10_000_000, "no file was begun");
    }
    rows
}

#[test]
fn what_is_staged_is_listed_by_token_in_pages() {
    let mut world = world(LAYOUT_LEVEL);
    for sequence in 0..3 {
        stage(&mut world, 1, sequence, 0, None);
        stage(&mut world, 2, sequence, 10, None);
    }
    assert_eq!(listed(&mut world, &[2], 0), [(2, 10, 0), (4, 10, 0), (6, 10, 0)]);
    assert_eq!(listed(&mut world, &[9, 2, 1], 4), [(5, 10, 2), (6, 10, 1)]);
    assert_eq!(listed(&mut world, &[9], 0), []);
}

#[test]
fn unsound_lists_and_origins_are_refused_and_change_nothing() {
    let mut world = world(LAYOUT_LEVEL);
    stage(&mut world, 1, 0, 0, None);
    let before = world.engine.state_bytes();
    let code = |reply: &Reply| {
        assert_eq!(reply.header.status, Status::Refused as u8, "{reply:?}");
        Code::from_number(reply.header.code).unwrap()
    };
    for body in [&b"\xC1"[..], b"\x80", &wanted(0, &[1], 0), &wanted(1, &[], 0)] {
        assert_eq!(code(&list_with(&mut world, body)), Code::BadBody, "{body:x?}");
    }
    for origin in [&[1; 15][..], &[0; 16], &[1; 17]] {
        assert_eq!(code(&stage_as(&mut world, 1, 1, 10, origin)), Code::InvalidArgument, "{origin:?}");
    }
    assert_eq!(world.engine.state_bytes(), before);
    let mut old = self::world(1);
    let before = old.engine.state_bytes();
    assert_eq!(code(&stage_as(&mut old, 1, 0, 0, &[1; 16])), Code::NotSupported, "below the level of layout changes");
    assert_eq!(old.engine.state_bytes(), before);
}
