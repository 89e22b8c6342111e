//! Reads below the mark, long polls, RESOLVE, `OFFSET_FOR_TIME`, and what a failing disk does to all of it.

use crate::support::{self, PARTITION, Reply, Shape, TOPIC, World, body_of, records_in};
use ringfence_node::{Order, Outcome, TablePartition};
use ringfence_wire::{
    ANSWER_FLAG_MORE, Code, FETCH_BYTES_MAX, Opcode, REQUEST_FLAG_STAGED, RedirectReason, RequestHeader, Status,
};

fn world() -> World {
    World::new(1, Shape::default())
}

fn code(reply: &Reply) -> Code {
    assert_eq!(reply.header.status, Status::Refused as u8, "{reply:?}");
    Code::from_number(reply.header.code).unwrap()
}

fn append(world: &mut World, sequence: u64, rows: u32) -> Reply {
    let body = body_of(0, i64::from(rows));
    let header = world.batch(3, sequence, rows, &body);
    world.ask(&header, &body)
}

#[test]
fn a_long_poll_ends_with_the_next_row_or_with_its_deadline() {
    let mut world = world();
    let polls: Vec<RequestHeader> = (0..100).map(|_| world.fetch_header(0, 0, 1000)).collect();
    for poll in &polls {
        world.send(poll, &[]);
    }
    world.run();
    assert!(world.answers.is_empty());
    append(&mut world, 0, 3);
    for poll in &polls {
        let reply = world.answer_to(poll.request_id);
        assert_eq!((reply.header.rows, records_in(&reply.body).len()), (3, 1));
    }
    let late = world.fetch_header(3, world.epoch, 1000);
    world.send(&late, &[]);
    world.pass(999);
    assert!(world.answers.is_empty());
    world.pass(1);
    let reply = world.answer_to(late.request_id);
    assert_eq!((reply.header.status, reply.body.len(), reply.header.first_offset), (0, 0, 3));
}

#[test]
fn who_waits_for_rows_that_another_node_gets_now_is_sent_there_at_once() {
    let mut world = world();
    append(&mut world, 0, 5);
    let waits = world.fetch_header(5, world.epoch, 60_000);
    world.send(&waits, &[]);
    world.run();
    assert!(world.answers.is_empty());
    let epoch = world.epoch + 1;
    let entry = TablePartition { partition: PARTITION, lo: 0, hi: u16::MAX, owner: 2, epoch };
    world.install_table(epoch * 10, 2, &[entry]);
    let later = world.fetch_header(5, world.epoch, 60_000);
    world.send(&later, &[]);
    for asked in [waits, later] {
        let header = world.answer_to(asked.request_id).header;
        assert_eq!((header.status, header.code), (Status::Redirect as u8, RedirectReason::NotOwner as u16));
    }
}

/// Every request that says where the log ends, or what is in it.
fn questions(world: &mut World) -> Vec<RequestHeader> {
    let mut time = world.request(Opcode::OffsetForTime);
    time.sequence = u64::MAX;
    let staged = RequestHeader { flags: u8::try_from(REQUEST_FLAG_STAGED).unwrap(), ..world.fetch_header(1, 0, 0) };
    let resolve = RequestHeader { producer_id: 3, ..world.request(Opcode::Resolve) };
    let empty = world.fetch_header(5, world.epoch, 0);
    vec![world.request(Opcode::EndOffsets), time, empty, staged, resolve]
}

#[test]
fn a_former_owner_without_replicas_says_nothing_about_the_end_of_the_log() {
    let mut world = world();
    append(&mut world, 0, 5);
    for asked in questions(&mut world) {
        assert_eq!(world.ask(&asked, &[]).header.status, Status::Ok as u8, "it is the owner");
    }
    let epoch = world.epoch + 1;
    world.ordered(Order::Hold { topic: TOPIC, partition: PARTITION, epoch }).unwrap();
    let rows = world.fetch_header(0, 0, 0);
    assert_eq!(world.ask(&rows, &[]).header.rows, 5, "rows are read while the partition is held");
    let waits = world.fetch_header(5, world.epoch, 100);
    world.send(&waits, &[]);
    world.pass(100);
    let ended = world.answer_to(waits.request_id).header;
    assert_eq!((ended.status, ended.code), (Status::Redirect as u8, RedirectReason::Closed as u16), "{ended:?}");
    let asked = questions(&mut world);
    for asked in asked.iter().filter(|asked| u16::from(asked.flags) & REQUEST_FLAG_STAGED == 0) {
        let header = world.ask(asked, &[]).header;
        assert_eq!((header.status, header.code), (Status::Redirect as u8, RedirectReason::Closed as u16), "{asked:?}");
    }
    let entry = TablePartition { partition: PARTITION, lo: 0, hi: u16::MAX, owner: 2, epoch };
    world.install_table(epoch * 10, 2, &[entry]);
    let asked = questions(&mut world);
    for asked in asked.iter().chain(&[rows]) {
        let header = world.ask(asked, &[]).header;
        assert_eq!(
            (header.status, header.code),
            (Status::Redirect as u8, RedirectReason::NotOwner as u16),
            "{asked:?}"
        );
    }
}

#[test]
fn a_position_of_a_newer_epoch_is_truncated_where_the_owner_is_sure_and_else_redirected() {
    let mut world = world();
    append(&mut world, 0, 5);
    for (offset, epoch) in [(3, world.epoch + 1), (6, 0)] {
        let asked = world.fetch_header(offset, epoch, 0);
        assert_eq!(code(&world.ask(&asked, &[])), Code::Truncated);
    }
    world.ordered(Order::Hold { topic: TOPIC, partition: PARTITION, epoch: world.epoch + 1 }).unwrap();
    for (offset, epoch) in [(3, world.epoch + 1), (6, 0)] {
        let asked = world.fetch_header(offset, epoch, 0);
        let header = world.ask(&asked, &[]).header;
        assert_eq!((header.status, header.code), (Status::Redirect as u8, RedirectReason::Closed as u16));
    }
}

#[test]
fn row_and_byte_limits_hold_and_say_that_there_is_more() {
    let mut world = world();
    for sequence in 0..20 {
        append(&mut world, sequence, 10);
    }
    let limited = RequestHeader { rows: 25, ..world.fetch_header(0, 0, 0) };
    let reply = world.ask(&limited, &[]);
    assert!((20..=30).contains(&reply.header.rows), "{:?}", reply.header);
    assert_ne!(reply.header.flags & ANSWER_FLAG_MORE, 0);
    let record = records_in(&reply.body)[0].0.span_bytes;
    let limited = RequestHeader { send: u64::from(record) * 3, ..world.fetch_header(0, 0, 0) };
    let reply = world.ask(&limited, &[]);
    assert!(!reply.body.is_empty() && reply.body.len() <= record as usize * 3, "{:?}", reply.header);
    let tiny = RequestHeader { send: 1, ..world.fetch_header(0, 0, 0) };
    let reply = world.ask(&tiny, &[]);
    assert_eq!(records_in(&reply.body).len(), 1, "one record is always given, however large");
    let middle = world.fetch_header(15, 0, 0);
    let reply = world.ask(&middle, &[]);
    assert_eq!(reply.header.first_offset, 10, "the record that holds the row");
    assert_eq!(reply.header.flags & ANSWER_FLAG_MORE, 0);
}

#[test]
fn positions_that_are_not_in_the_log_are_told_so() {
    let mut world = world();
    append(&mut world, 0, 5);
    let first_epoch = world.epoch;
    world.epoch += 1;
    world.install(1);
    world.open_partition();
    append(&mut world, 1, 5);
    for (offset, epoch, fits) in [
        (0, 0, true),
        (0, 99, true),
        (5, first_epoch, true),
        (5, first_epoch + 1, false),
        (10, first_epoch + 1, true),
        (10, first_epoch, false),
        (11, 0, false),
    ] {
        let header = world.fetch_header(offset, epoch, 0);
        let reply = world.ask(&header, &[]);
        assert_eq!(reply.header.status == 0, fits, "offset {offset}, epoch {epoch}: {:?}", reply.header);
        if !fits {
            assert_eq!((code(&reply), reply.header.first_offset), (Code::Truncated, 0));
        }
    }
    let mut world = world.crash(Shape::default());
    world.epoch += 1;
    world.install(1);
    world.open_partition();
    let header = world.fetch_header(5, first_epoch + 1, 0);
    assert_eq!(code(&world.ask(&header, &[])), Code::Truncated, "epochs are known again after a crash");
}

/// (offset, epoch of the row before it) is what a client keeps: FETCH takes it, and the one of another history is none.
#[test]
fn ends_and_offsets_of_times_name_the_epoch_of_the_row_before() {
    let mut world = world();
    let ends = |world: &mut World| {
        let header = world.request(Opcode::EndOffsets);
        world.ask(&header, &[]).header
    };
    let of_time = |world: &mut World, time| {
        let header = RequestHeader { sequence: time, ..world.request(Opcode::OffsetForTime) };
        world.ask(&header, &[]).header
    };
    assert_eq!(ends(&mut world).send, 0, "no row is before the end");
    let first = world.epoch;
    append(&mut world, 0, 5);
    world.epoch += 1;
    world.install(1);
    world.open_partition();
    let header = ends(&mut world);
    assert_eq!((header.end_offset, header.send, header.owner_epoch), (5, first, first + 1), "not the owner's of now");
    world.pass(10);
    append(&mut world, 1, 5);
    let header = ends(&mut world);
    assert_eq!((header.end_offset, header.send), (10, first + 1));
    let second = world.now.unix_ms;
    for (time, offset, epoch) in [(0, 0, 0), (second, 5, first), (second + 1_000, 10, first + 1)] {
        let header = of_time(&mut world, time);
        assert_eq!((header.first_offset, header.send), (offset, epoch), "time {time}");
        let again = world.fetch_header(offset, epoch, 0);
        assert_eq!(world.ask(&again, &[]).header.status, Status::Ok as u8);
    }
}

/// An owner that has not heard yet of the next one has rows of its own in the place of those, or fewer.
#[test]
fn who_comes_with_rows_of_an_epoch_that_nobody_told_of_is_asked_to_look_elsewhere() {
    let mut world = world();
    append(&mut world, 0, 5);
    world.ordered(Order::Fence { topic: TOPIC, partition: PARTITION, epoch: world.epoch + 1 }).unwrap();
    for offset in [1, 5, 6, 99] {
        let header = world.fetch_header(offset, world.epoch + 1, 0);
        let reply = world.ask(&header, &[]);
        assert_eq!(reply.header.status, Status::Redirect as u8, "offset {offset}: {:?}", reply.header);
    }
}

/// A new owner may have taken rows since: who comes from there was routed by an old table, and has lost nothing.
#[test]
fn a_position_beyond_the_end_of_a_held_partition_is_asked_for_elsewhere() {
    let mut world = world();
    append(&mut world, 0, 5);
    let beyond = world.fetch_header(6, 0, 0);
    assert_eq!(code(&world.ask(&beyond, &[])), Code::Truncated);
    let fence = Order::Fence { topic: TOPIC, partition: PARTITION, epoch: world.epoch + 5 };
    world.ordered(fence).unwrap();
    assert_eq!(world.ask(&beyond, &[]).header.status, Status::Redirect as u8);
    let known = world.fetch_header(4, world.epoch, 0);
    assert_eq!(world.ask(&known, &[]).header.status, Status::Ok as u8, "its own rows are read on");
}

#[test]
fn resolve_tells_what_is_durable_and_no_more() {
    let mut world = world();
    append(&mut world, 0, 1);
    world.is_held = true;
    let body = body_of(0, 1);
    let header = world.batch(3, 1, 1, &body);
    world.send(&header, &body);
    world.run();
    let ask = RequestHeader { producer_id: 3, ..world.request(Opcode::Resolve) };
    let reply = world.ask(&ask, &[]);
    let want = b"\x84\xAEproducer_epoch\x05\xA8sequence\x00\xA4send\x00\xA7answers\x91\x93\x00\x00\x01";
    // The second batch is appended, and its send is told with its answer once it is durable.
    assert_eq!(reply.body, want);
    world.release();
    let ask = RequestHeader { producer_id: 4, ..world.request(Opcode::Resolve) };
    assert_eq!(world.ask(&ask, &[]).body, b"\x84\xAEproducer_epoch\xC0\xA8sequence\xC0\xA4send\xC0\xA7answers\x90");
}

#[test]
fn a_time_finds_the_first_batch_at_or_after_it() {
    let mut world = world();
    let start = world.now.unix_ms;
    for sequence in 0..5 {
        append(&mut world, sequence, 2);
        world.pass(100);
    }
    for (time, offset) in [(0, 0), (start, 0), (start + 1, 2), (start + 200, 4), (start + 10_000, 10)] {
        let header = RequestHeader { sequence: time, ..world.request(Opcode::OffsetForTime) };
        assert_eq!(world.ask(&header, &[]).header.first_offset, offset, "time {time}");
    }
}

#[test]
fn after_a_failed_sync_nothing_is_promised_and_nothing_is_taken() {
    let mut world = world();
    append(&mut world, 0, 1);
    world.is_held = true;
    let body = body_of(0, 1);
    let header = world.batch(3, 1, 1, &body);
    world.send(&header, &body);
    let repeat = RequestHeader { request_id: 900, ..header };
    world.send(&repeat, &body);
    world.run();
    world.disk.set_faults(ringfence_log::faulty::Faults { syncs_until_failure: Some(0), ..Default::default() });
    world.release();
    assert_eq!(code(&world.answer_to(header.request_id)), Code::UnknownOutcome);
    assert_eq!(code(&world.answer_to(900)), Code::UnknownOutcome);
    assert!(world.outcomes.iter().any(|outcome| matches!(outcome, Outcome::ShardFailed { shard: 0, .. })));
    assert_eq!(code(&append(&mut world, 2, 1)), Code::StorageFailed);
    assert_eq!(code(&append(&mut world, 1, 1)), Code::UnknownOutcome, "appended, never known durable");
    assert_eq!(append(&mut world, 0, 1).header.first_offset, 0, "what was durable stays answered");
    assert_eq!(world.read_all().len(), 1, "reads go on below the mark");
    world.disk.set_faults(ringfence_log::faulty::Faults::default());
    let mut world = world.crash(Shape::default());
    world.install(1);
    world.open_partition();
    let reply = append(&mut world, 1, 1);
    assert_eq!((reply.header.status, reply.header.first_offset), (0, 1), "the same sequence again: stored once");
    assert_eq!(world.read_all().len(), 2);
}

#[test]
fn a_flipped_byte_quarantines_its_partition_and_an_operator_releases_it() {
    let mut world = world();
    for sequence in 0..3 {
        append(&mut world, sequence, 1);
    }
    let body = body_of(0, 1);
    let name = segment_with(&world, &body);
    let content = world.disk.content(&name).unwrap();
    let at = content.windows(body.len()).position(|window| window == body).unwrap();
    world.disk.flip(&name, at + body.len() - 1, 1);
    let header = world.fetch_header(0, 0, 0);
    assert_eq!(code(&world.ask(&header, &[])), Code::Quarantined);
    assert!(world.outcomes.iter().any(|o| matches!(o, Outcome::Quarantined { partition: PARTITION, .. })));
    let mut world = world.crash(Shape::default());
    world.install(1);
    let header = world.fetch_header(0, 0, 0);
    assert_eq!(code(&world.ask(&header, &[])), Code::Quarantined);
    let release = ringfence_node::Order::ReleaseQuarantine { topic: support::TOPIC, partition: PARTITION };
    world.ordered(release).unwrap();
    world.open_partition();
    let reply = append(&mut world, 3, 1);
    assert_eq!((reply.header.status, reply.header.first_offset), (0, 3), "the log goes on behind its end");
}

#[test]
fn damage_that_a_read_finds_while_an_open_is_under_way_keeps_the_partition_closed() {
    let mut world = world();
    for sequence in 0..3 {
        append(&mut world, sequence, 1);
    }
    let body = body_of(0, 1);
    let name = segment_with(&world, &body);
    let content = world.disk.content(&name).unwrap();
    let at = content.windows(body.len()).position(|window| window == body).unwrap();
    world.disk.flip(&name, at + body.len() - 1, 1);
    world.is_held = true;
    let number = world.order(support::open_order(PARTITION, world.epoch + 1));
    world.run();
    let header = world.fetch_header(0, 0, 0);
    assert_eq!(code(&world.ask(&header, &[])), Code::Quarantined);
    // Invariants are checked behind every event.
    world.release();
    let ended = world.outcomes.iter().find_map(|outcome| match outcome {
        Outcome::Order { number: found, result } if *found == number => Some(result.clone()),
        _ => None,
    });
    assert!(ended.unwrap().unwrap_err().contains("quarantined"));
}

/// Who hears that an order failed knows by then that the disk did: what the order left there is not known.
#[test]
fn a_failed_disk_is_told_of_before_the_orders_that_were_under_way() {
    let mut world = world();
    append(&mut world, 0, 1);
    world.is_held = true;
    let number = world.order(support::open_order(PARTITION, world.epoch + 1));
    world.run();
    world.disk.set_faults(ringfence_log::faulty::Faults { syncs_until_failure: Some(0), ..Default::default() });
    world.release();
    let told: Vec<bool> = (world.outcomes.iter())
        .filter_map(|outcome| match outcome {
            Outcome::ShardFailed { .. } => Some(true),
            Outcome::Order { number: found, result } if *found == number => Some(result.is_ok()),
            _ => None,
        })
        .collect();
    assert_eq!(told, [true, false]);
}

fn segment_with(world: &World, body: &[u8]) -> String {
    use ringfence_log::Storage;
    let names = world.disk.list().unwrap().into_iter().map(|(name, _)| name);
    let holds =
        |name: &String| world.disk.content(name).is_some_and(|bytes| bytes.windows(body.len()).any(|w| w == body));
    names.into_iter().find(holds).unwrap()
}

#[test]
fn an_idle_partition_takes_little_memory_and_still_reads() {
    let mut world = world();
    for sequence in 0..300 {
        append(&mut world, sequence, 20);
    }
    let active = world.engine.partition_bytes_max();
    for _ in 0..40 {
        world.pass(500);
    }
    let idle = world.engine.partition_bytes_max();
    assert!(idle < active && idle <= 4096, "{idle} bytes idle, {active} active");
    assert_eq!(world.read_all().len(), 300);
    append(&mut world, 300, 20);
    assert_eq!(world.read_all().len(), 301);
}

#[test]
fn a_fetch_of_more_than_the_pool_can_spare_is_answered_all_the_same() {
    let mut world = World::new(1, Shape::default());
    let body = body_of(0, 10);
    let header = world.batch(3, 0, 10, &body);
    world.ask(&header, &body);
    // The sender names the bytes: so much is never free beside what is kept for appends.
    for send in [support::POOL_BYTES as u64, FETCH_BYTES_MAX as u64, u64::MAX] {
        let fetch = RequestHeader { send, ..world.fetch_header(0, 0, 0) };
        let reply = world.ask(&fetch, &[]);
        assert_eq!((reply.header.status, reply.header.rows), (0, 10), "{reply:?}");
    }
}

/// What the transport ends overdue bodies for.
#[test]
fn a_read_that_waits_for_a_block_says_how_much_it_wants() {
    let mut world = world();
    append(&mut world, 0, 10);
    let others = world.pool.take(world.pool.free_bytes() - (1 << 20)).expect("one run");
    let fetch = RequestHeader { send: 2 << 20, ..world.fetch_header(0, 0, 0) };
    world.send(&fetch, &[]);
    world.run();
    assert!(world.answers.is_empty());
    assert_eq!(world.engine.reads_want_bytes(), 2 << 20);
    drop(others);
    world.pass(100);
    assert_eq!(world.answer_to(fetch.request_id).header.rows, 10);
    assert_eq!(world.engine.reads_want_bytes(), 0);
}

/// Whoever asked has sent it again by then: reading for nobody would keep the disk from those that wait.
#[test]
fn a_read_that_has_waited_half_a_minute_for_a_block_is_refused() {
    let mut world = world();
    append(&mut world, 0, 10);
    let others = world.pool.take(world.pool.free_bytes() - (1 << 20)).expect("one run");
    let first = RequestHeader { send: 2 << 20, ..world.fetch_header(0, 0, 0) };
    world.send(&first, &[]);
    world.pass(29_000);
    assert!(world.answers.is_empty());
    let second = RequestHeader { send: 2 << 20, ..world.fetch_header(0, 0, 0) };
    world.send(&second, &[]);
    world.pass(1_500);
    let refused = world.answer_to(first.request_id);
    assert_eq!(refused.header.code, Code::Overloaded as u16, "{refused:?}");
    drop(others);
    world.pass(100);
    assert_eq!(world.answer_to(second.request_id).header.rows, 10);
    assert_eq!(world.counter("reads"), 1, "nothing was read for the first");
}

#[test]
fn a_partition_that_is_read_comes_back_when_the_read_has_ended() {
    let mut world = world();
    append(&mut world, 0, 3_000);
    let read = world.fetch_header(0, 0, 0);
    world.send(&read, &[]);
    let dropped = world.order(Order::Drop { topic: TOPIC, partition: PARTITION });
    let epoch = world.epoch + 1;
    let follow = Order::Follow { topic: TOPIC, partition: PARTITION, lo: 0, hi: u16::MAX, epoch, owner: 2, forced: 0 };
    let followed = world.order(follow);
    world.run();
    let reply = world.answer_to(read.request_id);
    assert_eq!((reply.header.status, reply.header.code), (Status::Redirect as u8, RedirectReason::Closed as u16));
    let done = |world: &World, order: u64| {
        let ended = |outcome: &Outcome| matches!(outcome, Outcome::Order { number, result: Ok(_) } if *number == order);
        world.outcomes.iter().any(ended)
    };
    assert_eq!((done(&world, dropped), done(&world, followed)), (true, false), "the reader's plan was still there");
    world.pass(20);
    assert!(done(&world, followed), "{:?}", world.outcomes);
    let [told] = &world.engine.partition_list()[..] else { panic!("one partition") };
    assert_eq!((told.role, told.records, told.end_offset), ("follower", 0, 0));
    world.pass(20);
    assert_eq!(world.counter("revived"), 1);
    assert!(world.counter("punched_bytes") > 30_000, "what it was gives its space back all the same");
}
