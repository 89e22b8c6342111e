//! Staged rows: no reader sees them before their epoch is published, all of them after; whatever dies in between.

use crate::support::{PARTITION, Reply, Shape, TOPIC, World, body_of, records_in};
use ringfence_log::Storage;
use ringfence_log::faulty::Faults;
use ringfence_node::{CountStaged, Finished, Order, Outcome, Publish, ScopeRule};
use ringfence_wire::{
    Code, ExtensionKind, Opcode, REQUEST_FLAG_STAGED, RecordKind, RequestHeader, SCOPE_EPOCH_MAX, Status, crc_of,
    extension,
};

const SCOPE: u64 = 30;
const DRIVER: u64 = 31;

type Token = [u8; 16];

fn token(number: u8) -> Token {
    [number; 16]
}

fn rule(committed: u64, pending: &[u64]) -> ScopeRule {
    let pending = pending.iter().copied().collect();
    ScopeRule { scope: SCOPE, driver: DRIVER, committed, expired: 0, cohort: 0, pending, positions: Vec::new() }
}

fn begin(world: &mut World) {
    world.ordered(Order::InstallScopes { rules: vec![rule(0, &[])], gone: None }).unwrap();
}

fn stage_body(driver: u64, epoch: u64, token: Token, rows: &[u8]) -> (usize, Vec<u8>) {
    let mut identity = Vec::new();
    for word in [SCOPE, driver, epoch, 2] {
        identity.extend_from_slice(&u64::to_le_bytes(word));
    }
    identity.extend_from_slice(&token);
    let mut body = Vec::new();
    extension::write(&mut body, &[(ExtensionKind::Stage, &identity)]);
    let length = body.len();
    body.extend_from_slice(rows);
    (length, body)
}

fn stage_request(world: &mut World, epoch: u64, token: Token, sequence: u64, first: i64) -> (RequestHeader, Vec<u8>) {
    let (extension_bytes, body) = stage_body(DRIVER, epoch, token, &body_of(first, 10));
    let mut header = world.batch(0, sequence, 10, &body);
    header.opcode = Opcode::Stage as u8;
    (header.producer_epoch, header.send) = (0, 0);
    header.extension_bytes = u32::try_from(extension_bytes).unwrap();
    (header, body)
}

fn stage(world: &mut World, epoch: u64, token: Token, sequence: u64, first: i64) -> Reply {
    let (header, body) = stage_request(world, epoch, token, sequence, first);
    world.ask(&header, &body)
}

fn staged(world: &mut World, epoch: u64, token: Token, sequence: u64, first: i64) {
    let reply = stage(world, epoch, token, sequence, first);
    assert_eq!((reply.header.opcode, reply.header.status), (Opcode::Stage as u8, Status::Staged as u8), "{reply:?}");
}

fn publish(world: &mut World, epoch: u64, tokens: &[Token], rows: u64) -> Result<Finished, String> {
    publish_with(world, epoch, tokens, rows, |_| {})
}

fn publish_with(
    world: &mut World,
    epoch: u64,
    tokens: &[Token],
    rows: u64,
    set: impl FnOnce(&mut Publish),
) -> Result<Finished, String> {
    let tokens = tokens.to_vec();
    let (topic, partition, scope) = (TOPIC, PARTITION, SCOPE);
    let mut order = Publish { topic, partition, scope, epoch, tokens, rows, upto: 0, after: 0 };
    set(&mut order);
    world.ordered(Order::Publish(order))
}

fn count(world: &mut World, epoch: u64, tokens: &[Token]) -> (u64, u64, bool) {
    let tokens = tokens.to_vec();
    let order = CountStaged { topic: TOPIC, partition: PARTITION, scope: SCOPE, epoch, tokens };
    match world.ordered(Order::CountStaged(order)) {
        Ok(Finished::Staged { rows, upto, is_published, .. }) => (rows, upto, is_published),
        other => panic!("{other:?}"),
    }
}

fn send_rows(world: &mut World, sequence: u64, first: i64) {
    let body = body_of(first, 10);
    let header = world.batch(4, sequence, 10, &body);
    assert_eq!(world.ask(&header, &body).header.status, Status::Ok as u8);
}

/// First ids of all batches that a reader sees, in the order of their offsets; offsets are checked.
fn read(world: &mut World) -> Vec<i64> {
    let (mut found, mut at) = (Vec::new(), None);
    for (header, body) in world.read_all() {
        assert_eq!(*at.get_or_insert(header.first_offset), header.first_offset, "offsets have no gap");
        if header.kind == RecordKind::Publish as u8 {
            let words: Vec<u64> = body.chunks(8).map(|word| u64::from_le_bytes(word.try_into().unwrap())).collect();
            assert_eq!(words.len() as u64, 3 + 2 * words[2]);
            for pair in words[3..].chunks(2) {
                found.push(staged_record(world, pair[0], pair[1]));
            }
        } else {
            assert_eq!(header.kind, RecordKind::Rows as u8);
            found.push(first_id(&body));
        }
        at = Some(header.first_offset + u64::from(header.rows));
    }
    found
}

fn staged_record(world: &mut World, record: u64, rows: u64) -> i64 {
    let mut header = world.fetch_header(record, 0, 0);
    header.flags = u8::try_from(REQUEST_FLAG_STAGED).unwrap();
    header.rows = u32::try_from(rows).unwrap();
    let reply = world.ask(&header, &[]);
    let records = records_in(&reply.body);
    let (found, body) = records.first().expect("the log keeps what was published");
    assert_eq!((found.record_number, u64::from(found.rows)), (record, rows));
    first_id(&body[found.extension_bytes as usize..])
}

fn first_id(message: &[u8]) -> i64 {
    (0..1000i64).find(|number| message == body_of(number * 10, 10)).expect("one of the bodies that were sent") * 10
}

#[test]
fn staged_rows_are_read_once_their_epoch_is_published_and_in_the_order_of_the_log() {
    let mut world = World::new(1, Shape::default());
    begin(&mut world);
    send_rows(&mut world, 0, 0);
    staged(&mut world, 1, token(1), 0, 10);
    staged(&mut world, 1, token(2), 0, 20);
    send_rows(&mut world, 1, 30);
    staged(&mut world, 1, token(1), 1, 40);
    staged(&mut world, 1, token(9), 0, 90);
    assert_eq!(read(&mut world), [0, 30], "staged rows have no offsets");
    world.ordered(Order::InstallScopes { rules: vec![rule(1, &[1])], gone: None }).unwrap();
    publish(&mut world, 1, &[token(2), token(1)], 30).unwrap();
    assert_eq!(read(&mut world), [0, 30, 10, 20, 40], "a dead attempt's rows never come");
    let before = world.engine.state_bytes();
    publish(&mut world, 1, &[token(2), token(1)], 30).unwrap();
    assert_eq!(world.engine.state_bytes(), before, "publishing again changes nothing");
    let late = stage(&mut world, 1, token(3), 0, 50);
    assert_eq!(late.header.status, Status::AlreadyCommitted as u8);
    assert_eq!(world.engine.state_bytes(), before);
}

#[test]
fn a_commit_has_what_was_counted_for_it_whatever_comes_under_its_tokens_since() {
    let mut world = World::new(1, Shape::default());
    begin(&mut world);
    assert_eq!(count(&mut world, 1, &[token(1)]), (0, 0, false));
    staged(&mut world, 1, token(1), 0, 10);
    staged(&mut world, 1, token(9), 0, 90);
    staged(&mut world, 1, token(1), 1, 20);
    let before = world.engine.state_bytes();
    let (rows, upto, is_published) = count(&mut world, 1, &[token(1), token(5)]);
    assert_eq!((rows, is_published), (20, false), "a token without rows counts nothing");
    assert_eq!(world.engine.state_bytes(), before, "a question changes nothing");
    // Appended and not durable: it is not there yet for a commit.
    world.is_held = true;
    let (header, body) = stage_request(&mut world, 1, token(1), 2, 30);
    world.send(&header, &body);
    let tokens = vec![token(1)];
    let order = CountStaged { topic: TOPIC, partition: PARTITION, scope: SCOPE, epoch: 1, tokens };
    let number = world.order(Order::CountStaged(order));
    world.run();
    let ended = |world: &World| {
        world.outcomes.iter().find_map(|outcome| match outcome {
            Outcome::Order { number: n, result } if *n == number => Some(result.clone()),
            _ => None,
        })
    };
    assert_eq!(ended(&world), None, "its rows are not on disk");
    world.is_held = false;
    world.release();
    world.run();
    assert!(matches!(ended(&world), Some(Ok(Finished::Staged { rows: 30, .. }))), "{:?}", ended(&world));
    world.ordered(Order::InstallScopes { rules: vec![rule(1, &[1])], gone: None }).unwrap();
    assert!(publish(&mut world, 1, &[token(1)], 20).is_err(), "all that is there now is not what was counted");
    publish_with(&mut world, 1, &[token(1)], 20, |order| order.upto = upto).unwrap();
    assert_eq!(read(&mut world), [10, 20], "what came since is dead with the epoch's other attempts");
    assert_eq!(count(&mut world, 1, &[token(1)]), (0, 0, true));
}

/// Number of the order, which may wait for its group.
fn ask_count(world: &mut World, epoch: u64, token: Token) -> u64 {
    let tokens = vec![token];
    world.order(Order::CountStaged(CountStaged { topic: TOPIC, partition: PARTITION, scope: SCOPE, epoch, tokens }))
}

fn error_of(world: &World, number: u64) -> Option<String> {
    world.outcomes.iter().find_map(|outcome| match outcome {
        Outcome::Order { number: n, result } if *n == number => Some(result.clone().unwrap_err()),
        _ => None,
    })
}

#[test]
fn an_epoch_waits_for_the_one_before_it_and_for_no_dead_attempt() {
    let mut world = World::new(1, Shape::default());
    begin(&mut world);
    staged(&mut world, 1, token(1), 0, 10);
    staged(&mut world, 2, token(2), 0, 20);
    staged(&mut world, 3, token(3), 0, 30);
    // Epoch 1 was committed with other tokens, in a partition that cannot publish it now.
    world.ordered(Order::InstallScopes { rules: vec![rule(3, &[1, 2, 3])], gone: None }).unwrap();
    let refused = publish_with(&mut world, 3, &[token(3)], 10, |order| order.after = 2).unwrap_err();
    assert_eq!(refused, format!("scope {SCOPE}: epoch 3 waits for 2, which is not published here"));
    publish(&mut world, 2, &[token(2)], 10).unwrap();
    publish_with(&mut world, 3, &[token(3)], 10, |order| order.after = 2).unwrap();
    publish_with(&mut world, 2, &[token(2)], 10, |order| order.after = 1).unwrap();
    assert!(publish(&mut world, 1, &[token(1)], 10).is_ok(), "a repeat of what later epochs decided changes nothing");
    assert_eq!(read(&mut world), [20, 30]);
}

#[test]
fn what_waits_for_a_failed_shard_ends_and_so_does_whatever_asks_later() {
    let mut world = World::new(1, Shape::default());
    begin(&mut world);
    staged(&mut world, 1, token(1), 0, 10);
    staged(&mut world, 2, token(2), 0, 20);
    world.ordered(Order::InstallScopes { rules: vec![rule(1, &[1])], gone: None }).unwrap();
    world.is_held = true;
    let publish_order = Publish {
        topic: TOPIC,
        partition: PARTITION,
        scope: SCOPE,
        epoch: 1,
        tokens: vec![token(1)],
        rows: 10,
        upto: 0,
        after: 0,
    };
    let (first, before) = (world.order(Order::Publish(publish_order)), ask_count(&mut world, 2, token(2)));
    world.run();
    assert_eq!((error_of(&world, first), error_of(&world, before)), (None, None), "their group is under way");
    world.disk.set_faults(Faults { syncs_until_failure: Some(0), ..Faults::default() });
    world.release();
    for number in [first, before] {
        assert!(error_of(&world, number).unwrap().contains("shard 0 failed"));
    }
    // A node goes on running without its shard: no group comes that could end what is asked from now on.
    let after = ask_count(&mut world, 2, token(2));
    world.run();
    assert!(error_of(&world, after).expect("it ends").contains("shard 0 failed"));
    assert!(publish(&mut world, 1, &[token(1)], 10).unwrap_err().contains("shard 0 failed"), "a repeat");
}

#[test]
fn a_count_does_not_wait_for_a_disk_that_is_full() {
    let mut world = World::new(1, Shape::default());
    begin(&mut world);
    staged(&mut world, 1, token(1), 0, 10);
    world.disk.set_faults(Faults { writes_until_full: Some(0), ..Faults::default() });
    let (header, body) = stage_request(&mut world, 1, token(1), 1, 20);
    world.send(&header, &body);
    world.run();
    let number = ask_count(&mut world, 1, token(1));
    world.run();
    assert!(error_of(&world, number).expect("it ends").contains("finds no space"));
    world.disk.set_faults(Faults::default());
    world.pass(2_000);
    assert_eq!(world.answer_to(header.request_id).header.status, Status::Staged as u8);
    assert_eq!(count(&mut world, 1, &[token(1)]).0, 20);
}

#[test]
fn a_stage_is_taken_once_and_refused_without_a_trace() {
    let mut world = World::new(2, Shape::default());
    let unknown = stage(&mut world, 1, token(1), 0, 0);
    assert_eq!(unknown.header.code, Code::Ahead as u16, "the scope is not known yet");
    begin(&mut world);
    let (header, body) = stage_request(&mut world, 1, token(1), 0, 0);
    assert_eq!(world.ask(&header, &body).header.status, Status::Staged as u8);
    let before = world.engine.state_bytes();
    assert_eq!(world.ask(&header, &body).header.status, Status::Staged as u8, "a repeat gets the same answer");
    assert_eq!(stage(&mut world, 1, token(1), 2, 0).header.code, Code::SequenceGap as u16);
    assert_eq!(stage(&mut world, 1, token(1), 0, 10).header.code, Code::Conflict as u16);
    let (mut header, mut body) = stage_request(&mut world, 1, token(1), 1, 10);
    let (length, older) = stage_body(DRIVER - 1, 1, token(1), &body_of(10, 10));
    header.extension_bytes = u32::try_from(length).unwrap();
    header.body_crc = crc_of(&older);
    assert_eq!(world.ask(&header, &older).header.code, Code::FencedProducer as u16);
    body[8] ^= 1;
    header.body_crc = crc_of(&body);
    assert_eq!(world.ask(&header, &body).header.code, Code::Ahead as u16, "another scope");
    assert!(publish(&mut world, 1, &[token(1)], 20).unwrap_err().contains("20 rows were committed, 10 are staged"));
    assert_eq!(world.engine.state_bytes(), before, "what is refused changes nothing");
    let expired = ScopeRule { expired: 1, ..rule(0, &[]) };
    world.ordered(Order::InstallScopes { rules: vec![expired], gone: None }).unwrap();
    assert_eq!(stage(&mut world, 1, token(1), 0, 0).header.code, Code::InvalidArgument as u16);
    assert!(publish(&mut world, 1, &[token(1)], 10).is_err(), "what expired is gone");
    staged(&mut world, 2, token(1), 0, 0);
}

#[test]
fn a_crash_at_any_step_loses_no_stage_that_was_answered_and_publishes_nothing_twice() {
    for seed in 0..40 {
        let shape = Shape::default();
        let mut world = World::new(seed, shape);
        let mut answered = 0;
        let crash = |world: World, answered: u64, epochs: &[u64], pending: &[u64]| {
            let mut world = world.crash(shape);
            world.install(1);
            world.open_partition();
            let committed = epochs.last().copied().unwrap_or(0);
            world.ordered(Order::InstallScopes { rules: vec![rule(committed, pending)], gone: None }).unwrap();
            let expected: Vec<i64> = (0..answered).map(|at| i64::try_from(at).unwrap() * 10).collect();
            (world, expected)
        };
        begin(&mut world);
        for epoch in 1..=3u64 {
            let first = i64::try_from(answered).unwrap() * 10;
            staged(&mut world, epoch, token(7), 0, first);
            if seed % 2 == 0 {
                // Not answered: it may be there or not after the crash.
                world.is_held = true;
                let (header, body) = stage_request(&mut world, epoch, token(8), 0, 500);
                world.send(&header, &body);
                world.run();
            }
            let expected;
            (world, expected) = crash(world, answered, &[epoch - 1], &[]);
            assert_eq!(read(&mut world), expected, "seed {seed}: nothing is read before the commit");
            staged(&mut world, epoch, token(7), 0, first);
            staged(&mut world, epoch, token(7), 1, first + 10);
            let committed = Order::InstallScopes { rules: vec![rule(epoch, &[epoch])], gone: None };
            world.ordered(committed).unwrap();
            if seed % 3 > 0 {
                world.is_held = seed % 3 == 1;
                let order = Publish {
                    topic: TOPIC,
                    partition: PARTITION,
                    scope: SCOPE,
                    epoch,
                    tokens: vec![token(7)],
                    rows: 20,
                    upto: 0,
                    after: 0,
                };
                world.order(Order::Publish(order));
                world.run();
                (world, _) = crash(world, answered, &[epoch], &[epoch]);
            }
            publish(&mut world, epoch, &[token(7)], 20).unwrap();
            answered += 2;
            let expected;
            (world, expected) = crash(world, answered, &[epoch], &[]);
            assert_eq!(read(&mut world), expected, "seed {seed}, epoch {epoch}");
        }
    }
}

#[test]
fn retention_spares_what_is_staged_and_gives_it_back_with_its_offsets() {
    let shape = Shape { segment_bytes: 64 << 10, ..Shape::default() };
    let mut world = World::new(3, shape);
    begin(&mut world);
    staged(&mut world, 1, token(1), 0, 0);
    let files = |world: &World| world.disk.list().unwrap().len();
    let mut sequence = 0;
    let mut fill = |world: &mut World| {
        for _ in 0..600 {
            send_rows(world, sequence, 500);
            sequence += 1;
        }
        let order = Order::Truncate { topic: TOPIC, partition: PARTITION, before_offset: u64::MAX, epoch: 0 };
        world.ordered(order).unwrap();
        (0..20).for_each(|_| world.pass(5000));
    };
    fill(&mut world);
    let held = files(&world);
    let mut world = world.crash(shape);
    world.install(1);
    world.open_partition();
    begin(&mut world);
    staged(&mut world, 1, token(1), 1, 10);
    publish(&mut world, 1, &[token(1)], 20).unwrap();
    assert_eq!(read(&mut world), [0, 10], "rows behind the log start, in records far before it");
    (0..20).for_each(|_| world.pass(5000));
    assert_eq!(read(&mut world), [0, 10]);
    fill(&mut world);
    assert!(files(&world) < held, "{} files, {held} while rows were staged in the first", files(&world));
    assert_eq!(read(&mut world), [0; 0]);
}

#[test]
fn an_epoch_that_no_commit_takes_is_refused_before_anything_is_stored() {
    let mut world = World::new(1, Shape::default());
    begin(&mut world);
    let before = world.engine.state_bytes();
    for epoch in [SCOPE_EPOCH_MAX + 1, u64::MAX] {
        let reply = stage(&mut world, epoch, token(1), 0, 0);
        assert_eq!(reply.header.code, Code::InvalidArgument as u16, "{reply:?}");
        assert!(String::from_utf8_lossy(&reply.body).contains("no COMMIT takes a greater one"), "{reply:?}");
        assert_eq!(world.engine.state_bytes(), before, "I15");
    }
    staged(&mut world, SCOPE_EPOCH_MAX, token(1), 0, 0);
}

#[test]
fn bytes_are_those_of_rows_that_readers_get_before_and_after_a_restart() {
    let shape = Shape::default();
    let (mut world, mut plain) = (World::new(4, shape), World::new(4, shape));
    let bytes = |world: &World| world.engine.partition_list()[0].bytes;
    begin(&mut world);
    for sequence in 0..100 {
        send_rows(&mut plain, sequence, 0);
        staged(&mut world, 1, token(1), sequence, 0);
        staged(&mut world, 1, token(9), sequence, 500);
    }
    let sent = bytes(&plain);
    assert_eq!(bytes(&world), 0, "nothing can be read");
    // The state record lies between what is staged and its publish, as it may.
    (0..20).for_each(|_| world.pass(5000));
    let mut world = world.crash(shape);
    world.install(1);
    world.open_partition();
    begin(&mut world);
    publish(&mut world, 1, &[token(1)], 1000).unwrap();
    let published = bytes(&world);
    // A staged batch names its stage, and the publish record lists it.
    assert!((sent..sent + 100 * 128 + 4096).contains(&published), "{published} published, {sent} sent");
    staged(&mut world, 2, token(2), 0, 0);
    assert_eq!(bytes(&world), published);
    let mut world = world.crash(shape);
    assert_eq!(bytes(&world), published, "a start finds what was");
    world.install(1);
    world.open_partition();
    world.ordered(Order::Truncate { topic: TOPIC, partition: PARTITION, before_offset: u64::MAX, epoch: 0 }).unwrap();
    assert_eq!(bytes(&world), 0, "nothing is left to read");
}
