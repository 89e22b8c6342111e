//! Orders and what they promise; tables, pushes and what is handed to the control plane.

use crate::support::{self, CLIENT, PARTITION, Reply, Shape, TOPIC, World, body_of, open_order};
use ringfence_node::{Event, Finished, Lineage, Order, Outcome};
use ringfence_transport::{Connection, Inbound};
use ringfence_wire::{
    CONTROL_BYTES_MAX, Code, ExtensionKind, Opcode, REQUEST_FLAG_CONTROL, RedirectReason, RequestHeader, Status,
    crc_of, extension,
};

fn world() -> World {
    World::new(1, Shape::default())
}

fn code(reply: &Reply) -> Code {
    assert_eq!(reply.header.status, Status::Refused as u8, "{reply:?}");
    Code::from_number(reply.header.code).unwrap()
}

fn append(world: &mut World, producer: u64, sequence: u64) -> Reply {
    let body = body_of(0, 1);
    let header = world.batch(producer, sequence, 1, &body);
    world.ask(&header, &body)
}

fn control(world: &mut World, opcode: Opcode, body: &[u8]) -> RequestHeader {
    RequestHeader {
        flags: u8::try_from(REQUEST_FLAG_CONTROL).unwrap(),
        body_bytes: u32::try_from(body.len()).unwrap(),
        body_crc: crc_of(body),
        ..world.request(opcode)
    }
}

#[test]
fn appends_are_admitted_only_when_the_epoch_record_is_durable() {
    let mut world = world();
    world.epoch += 1;
    world.install(1);
    world.is_held = true;
    let number = world.order(open_order(PARTITION, world.epoch));
    world.run();
    let body = body_of(0, 1);
    let old = RequestHeader { owner_epoch: world.epoch - 1, ..world.batch(3, 0, 1, &body) };
    assert_eq!(world.ask(&old, &body).header.status, Status::Redirect as u8, "the old epoch is out at once (I4)");
    let ended =
        |world: &World| world.outcomes.iter().any(|o| matches!(o, Outcome::Order { number: n, .. } if *n == number));
    assert!(!ended(&world));
    world.release();
    assert!(ended(&world));
    assert_eq!(append(&mut world, 3, 0).header.status, Status::Ok as u8);
}

#[test]
fn a_control_body_above_the_limit_is_too_large_whatever_it_asks() {
    let mut world = world();
    let body = vec![0x80; CONTROL_BYTES_MAX + 1];
    for opcode in [Opcode::Hello, Opcode::TopicCreate, Opcode::Status] {
        let header = control(&mut world, opcode, &body);
        let reply = world.ask(&header, &body);
        assert_eq!(code(&reply), Code::TooLarge, "{opcode:?}");
        let wrong = RequestHeader { body_crc: header.body_crc ^ 1, ..control(&mut world, opcode, &body) };
        assert_eq!(code(&world.ask(&wrong, &body)), Code::TooLarge, "{opcode:?}: nobody counts what is too long");
    }
    let header = control(&mut world, Opcode::Hello, &[0xC1]);
    assert_eq!(code(&world.ask(&header, &[0xC1])), Code::BadBody);
}

#[test]
fn equal_and_lower_epochs_are_refused_and_change_nothing() {
    let mut world = world();
    let before = world.engine.state_bytes();
    let other_slots = support::open_order_of(0, 99, world.epoch);
    for order in [other_slots, open_order(PARTITION, world.epoch - 1), open_order(PARTITION, 0)] {
        assert!(world.ordered(order).unwrap_err().contains("draw a newer one"));
        assert_eq!(world.engine.state_bytes(), before);
    }
    // The very OPEN that was executed, again: it is open.
    let again = world.ordered(open_order(PARTITION, world.epoch));
    assert_eq!(again, Ok(Finished::Opened { records: 1, end_offset: 0 }));
    assert_eq!(world.engine.state_bytes(), before);
    let fence = |epoch| Order::Fence { topic: TOPIC, partition: PARTITION, epoch };
    assert!(world.ordered(fence(0)).unwrap_err().contains("below the fence"));
    assert_eq!(world.engine.state_bytes(), before);
    assert!(world.ordered(open_order(PARTITION + 1, 0)).is_err());
    assert_eq!(world.engine.state_bytes(), before, "no partition was made");
}

#[test]
fn a_fence_holds_the_partition_until_an_open_above_it() {
    let mut world = world();
    append(&mut world, 3, 0);
    let fence = Order::Fence { topic: TOPIC, partition: PARTITION, epoch: world.epoch + 5 };
    let finished = world.ordered(fence).unwrap();
    assert!(matches!(finished, Finished::Fenced { records: 2, end_offset: 1, .. }), "{finished:?}");
    assert_eq!(code(&append(&mut world, 3, 1)), Code::Held);
    assert!(world.ordered(open_order(PARTITION, world.epoch + 4)).unwrap_err().contains("fence"));
    world.epoch += 6;
    world.install(1);
    world.open_partition();
    assert_eq!(append(&mut world, 3, 1).header.first_offset, 1);
}

#[test]
fn a_fence_and_a_producer_epoch_survive_a_crash() {
    let mut world = world();
    append(&mut world, 3, 0);
    let fence = Order::Fence { topic: TOPIC, partition: PARTITION, epoch: world.epoch + 5 };
    world.ordered(fence).unwrap();
    let mut world = world.crash(Shape::default());
    world.install(1);
    assert!(world.ordered(open_order(PARTITION, world.epoch)).unwrap_err().contains("fence"));
    world.epoch += 5;
    world.install(1);
    world.open_partition();
    assert_eq!(append(&mut world, 3, 1).header.first_offset, 1);
}

#[test]
fn opening_a_named_producer_fences_its_predecessor_and_returns_where_to_resume() {
    let mut world = world();
    let mut noted = Vec::new();
    extension::write(&mut noted, &[(ExtensionKind::Note, b"file 3, row 9")]);
    let extension_bytes = u32::try_from(noted.len()).unwrap();
    noted.extend_from_slice(&body_of(0, 4));
    let header = RequestHeader { extension_bytes, send: 8, ..world.batch(3, 0, 4, &noted) };
    assert_eq!(world.ask(&header, &noted).header.code, 0);
    let open = |epoch| Order::OpenProducer {
        topic: TOPIC,
        partition: PARTITION,
        producer_id: 3,
        producer_epoch: epoch,
        previous_epoch: 0,
        name: b"loader-1".to_vec(),
    };
    let Ok(Finished::ProducerOpened(points)) = world.ordered(open(6)) else { panic!("no resume point") };
    let [point] = &points[..] else { panic!("one point for all slots: {points:?}") };
    assert_eq!((point.sequence, point.send, point.offset, point.rows), (Some(0), 8, 0, 4));
    assert_eq!(point.note.as_deref(), Some(&b"file 3, row 9"[..]));
    assert_eq!(code(&append(&mut world, 3, 1)), Code::FencedProducer);
    let mut world = world.crash(Shape::default());
    world.install(1);
    world.open_partition();
    assert_eq!(code(&append(&mut world, 3, 1)), Code::FencedProducer, "also after a crash");
    assert!(world.ordered(open(5)).unwrap_err().contains("not above 6"));
    assert_eq!(world.ordered(open(7)), Ok(Finished::ProducerOpened(points)), "nothing was stored since");
    let unknown = Order::OpenProducer {
        topic: TOPIC,
        partition: PARTITION,
        producer_id: 44,
        producer_epoch: 8,
        previous_epoch: 0,
        name: vec![],
    };
    assert_eq!(world.ordered(unknown), Ok(Finished::ProducerOpened(vec![])));
}

#[test]
fn a_named_producer_whose_entry_is_gone_is_told_apart_from_a_new_one() {
    let mut world = world();
    let open = |producer_epoch, previous_epoch| Order::OpenProducer {
        topic: TOPIC,
        partition: PARTITION,
        producer_id: 3,
        producer_epoch,
        previous_epoch,
        name: b"loader-1".to_vec(),
    };
    for epoch in [6, 7] {
        assert_eq!(world.ordered(open(epoch, 5)), Ok(Finished::ProducerForgotten), "nothing was written before");
    }
    assert_eq!(world.ordered(open(8, 0)), Ok(Finished::ProducerOpened(vec![])), "a fresh start was accepted");
    let mut world = world.crash(Shape::default());
    world.install(1);
    world.open_partition();
    assert_eq!(world.ordered(open(9, 8)), Ok(Finished::ProducerOpened(vec![])), "known, and nothing was stored");
}

#[test]
fn orders_about_what_is_not_here_say_so() {
    let mut world = world();
    for order in [
        Order::Close { topic: TOPIC, partition: 77 },
        Order::Drop { topic: TOPIC, partition: 77 },
        Order::Truncate { topic: TOPIC, partition: 77, before_offset: u64::MAX, epoch: 0 },
        Order::ReleaseQuarantine { topic: TOPIC, partition: 77 },
    ] {
        assert!(world.ordered(order).unwrap_err().contains("partition 77 of topic 7 is not on this store"));
    }
    let open = Order::Open { topic: 99, partition: 1, lo: 0, hi: 1, epoch: 9, replicas: vec![], quorum: 1 };
    assert!(world.ordered(open).unwrap_err().contains("topic 99 is not installed"));
}

#[test]
fn a_fence_of_what_never_was_here_is_that_of_an_empty_log_also_after_a_restart() {
    let mut world = world();
    let fence = |epoch| Order::Fence { topic: TOPIC, partition: 77, epoch };
    let empty = Finished::Fenced { epoch: 0, records: 0, end_offset: 0, chain: 0, cut: false };
    assert_eq!(world.ordered(fence(9)), Ok(empty.clone()));
    let mut world = world.crash(Shape::default());
    assert!(world.ordered(fence(8)).unwrap_err().contains('9'), "an older fence is no fence");
    assert_eq!(world.ordered(fence(10)), Ok(empty));
}

#[test]
fn a_dropped_partition_gives_its_space_back_once_nobody_reads_it() {
    let mut world = world();
    let body = support::body_of(0, 20_000);
    for sequence in 0..3 {
        let header = world.batch(3, sequence, 20_000, &body);
        assert_eq!(world.ask(&header, &body).header.status, 0);
    }
    assert_eq!(world.ordered(Order::Drop { topic: TOPIC, partition: PARTITION }), Ok(Finished::Done));
    assert_eq!(world.counter("punched_bytes"), 0, "not before time has passed");
    world.pass(40);
    let (given, bodies) = (world.counter("punched_bytes"), 3 * body.len() as u64);
    assert!(given <= bodies && given > bodies / 10 * 9, "{given} of {bodies}");
    world.pass(1000);
    assert_eq!(world.counter("punched_bytes"), given, "once");
    assert_eq!(world.counter("punch_failures"), 0);
}

#[test]
fn truncation_moves_the_log_start_and_reading_below_it_says_where_it_is() {
    let mut world = world();
    for sequence in 0..6 {
        append(&mut world, 3, sequence);
    }
    let truncate = |before_offset| Order::Truncate { topic: TOPIC, partition: PARTITION, before_offset, epoch: 0 };
    assert_eq!(world.ordered(truncate(4)), Ok(Finished::Truncated { start_offset: 4 }));
    assert_eq!(world.ordered(truncate(2)), Ok(Finished::Truncated { start_offset: 4 }));
    let header = world.fetch_header(3, 0, 0);
    let reply = world.ask(&header, &[]);
    assert_eq!((code(&reply), reply.header.first_offset), (Code::Truncated, 4));
    assert_eq!(world.read_all().len(), 2);
    let mut world = world.crash(Shape::default());
    world.install(1);
    world.open_partition();
    assert_eq!(world.read_all().len(), 2);
    assert_eq!(world.ordered(truncate(u64::MAX)), Ok(Finished::Truncated { start_offset: 6 }));
    assert_eq!(append(&mut world, 3, 5).header.first_offset, 5, "a repeat is known although its row is gone");
}

/// A power cut behind the answer would show the rows again, and nobody would ask a third time.
#[test]
fn nobody_hears_that_rows_are_given_up_before_it_is_on_disk() {
    let mut world = world();
    append(&mut world, 3, 0);
    append(&mut world, 3, 1);
    world.is_held = true;
    let truncate = |before_offset| Order::Truncate { topic: TOPIC, partition: PARTITION, before_offset, epoch: 0 };
    let given_up = [truncate(2), truncate(2), truncate(1)].map(|order| world.order(order));
    world.run();
    let told = |world: &World, order: u64| {
        let is_it = |outcome: &&Outcome| matches!(outcome, Outcome::Order { number, .. } if *number == order);
        world.outcomes.iter().any(|outcome| is_it(&outcome))
    };
    assert_eq!(given_up.map(|order| told(&world, order)), [false; 3]);
    world.release();
    assert_eq!(given_up.map(|order| told(&world, order)), [true; 3]);
    assert_eq!(world.ordered(truncate(1)), Ok(Finished::Truncated { start_offset: 2 }), "at once: nothing is owed");
}

#[test]
fn a_dropped_partition_is_gone_and_its_waiting_readers_hear_it() {
    let mut world = world();
    append(&mut world, 3, 0);
    let poll = world.fetch_header(1, 0, 60_000);
    world.send(&poll, &[]);
    let entry = ringfence_node::TablePartition { partition: PARTITION, lo: 0, hi: u16::MAX, owner: 2, epoch: 9 };
    world.install_table(world.epoch * 10 + 1, 2, &[entry]);
    assert_eq!(world.ordered(Order::Drop { topic: TOPIC, partition: PARTITION }), Ok(Finished::Done));
    let reply = world.answer_to(poll.request_id);
    assert_eq!(
        (reply.header.status, reply.header.code),
        (Status::Redirect as u8, RedirectReason::NotOwner as u16),
        "it has moved: who follows reads on there"
    );
    assert!(world.engine.partition_list().is_empty());
    assert!(world.engine.partitions_of(&[(TOPIC, PARTITION)]).is_empty());
    let world = world.crash(Shape::default());
    assert!(world.engine.partition_list().is_empty());
}

#[test]
fn changed_tables_are_pushed_to_those_who_asked_and_only_then() {
    let mut world = world();
    let other = Connection(2);
    world.event(Event::Opened(other));
    let header = world.request(Opcode::Table);
    let reply = world.ask(&header, &[]);
    assert_eq!(reply.body, support::table_body(world.epoch * 10, 1));
    let mut ack = world.request(Opcode::TableAck);
    ack.sequence = world.epoch * 10;
    world.send(&ack, &[]);
    let lowest =
        |world: &World| world.engine.counter_list().iter().find(|c| c.0 == "generation_acknowledged_min").unwrap().1;
    assert_eq!((lowest(&world), world.answers.len()), (world.epoch * 10, 0), "TABLE_ACK is not answered");
    let ack = RequestHeader { sequence: u64::MAX, ..world.request(Opcode::TableAck) };
    world.send(&ack, &[]);
    assert_eq!((lowest(&world), world.answers.len()), (world.epoch * 10, 0), "one from another node counts up to here");
    let entry =
        ringfence_node::TablePartition { partition: PARTITION, lo: 0, hi: u16::MAX, owner: 1, epoch: world.epoch };
    world.install_table(world.epoch * 10 + 1, 1, &[entry]);
    assert!(world.answers.is_empty(), "a newer generation of the same content is no news");
    world.install_table(world.epoch * 10 + 2, 2, &[entry]);
    let push = world.answers.pop().unwrap();
    assert_eq!(
        (push.to, push.header.opcode, push.header.status),
        (CLIENT, Opcode::TablePush as u8, Status::Push as u8)
    );
    assert_eq!((push.body, world.answers.len()), (support::table_body(world.epoch * 10 + 2, 2), 0));
    world.install_table(world.epoch * 10 + 1, 1, &[entry]);
    assert!(world.answers.is_empty(), "older generations are ignored");
}

#[test]
fn loads_reach_who_asks_and_nobody_is_told_for_their_sake() {
    let mut world = world();
    let asked = world.request(Opcode::Table);
    world.ask(&asked, &[]);
    let entry =
        ringfence_node::TablePartition { partition: PARTITION, lo: 0, hi: u16::MAX, owner: 1, epoch: world.epoch };
    let generation = world.epoch * 10;
    let hinted = |version, load: u8| {
        let mut body = support::table_body(generation, version);
        body[0] = 0x83;
        body.extend_from_slice(b"\xA5loads\x81\x01");
        body.push(load);
        body
    };
    for (body, answered) in [(hinted(1, 7), hinted(1, 7)), (hinted(1, 9), hinted(1, 9)), (hinted(2, 5), hinted(1, 9))] {
        let order = Order::InstallTable {
            topic: TOPIC,
            generation,
            version: 1,
            table: body,
            partitions: vec![entry],
            redirect: vec![0x80],
            redirects: vec![],
            lineage: Lineage::default(),
        };
        world.ordered(order).unwrap();
        assert!(world.answers.is_empty(), "no push");
        let asked = world.request(Opcode::Table);
        assert_eq!(world.ask(&asked, &[]).body, answered, "nothing but loads may differ");
    }
    world.install_table(generation + 1, 1, &[entry]);
    assert!(world.answers.is_empty(), "nor when they are gone again");
}

#[test]
fn hello_is_answered_ready_or_refused_by_name() {
    let mut world = world();
    let hello = b"\x82\xABversion_min\x01\xABversion_max\x02";
    let header = control(&mut world, Opcode::Hello, hello);
    let reply = world.ask(&header, hello);
    assert_eq!((reply.header.status, reply.body.as_slice()), (Status::Ready as u8, &b"\x80"[..]));
    assert!(reply.header.credit_bytes > 0);
    let late = b"\x82\xABversion_min\x02\xABversion_max\x02";
    let header = control(&mut world, Opcode::Hello, late);
    assert_eq!(code(&world.ask(&header, late)), Code::UnsupportedVersion);
    let stranger = b"\x83\xABversion_min\x01\xABversion_max\x01\xA7cluster\xC4\x01x";
    let header = control(&mut world, Opcode::Hello, stranger);
    assert_eq!(code(&world.ask(&header, stranger)), Code::InvalidArgument);
    let header = control(&mut world, Opcode::Hello, b"\xC1");
    assert_eq!(code(&world.ask(&header, b"\xC1")), Code::BadBody);
}

#[test]
fn control_requests_go_up_bounded_and_their_answers_come_down() {
    let mut world = world();
    let body = b"\x81\xA4name\xA1x";
    let mut refused = 0;
    for _ in 0..300 {
        let header = control(&mut world, Opcode::TopicDescribe, body);
        world.send(&header, body);
        if let Some(reply) = world.answers.pop() {
            assert_eq!(code(&reply), Code::Overloaded);
            refused += 1;
        }
    }
    assert_eq!((world.outcomes.len(), refused), (256, 44));
    let Outcome::Request { connection, header, .. } = world.outcomes.remove(0) else { panic!("a request") };
    let request = RequestHeader::open(&header).unwrap();
    let answer =
        ringfence_wire::AnswerHeader { opcode: request.opcode, request_id: request.request_id, ..Default::default() };
    let (connection, header) = (Connection(connection), Box::new(answer.seal()));
    world.event(Event::ControlAnswer { connection, header, body: Box::default() });
    assert_eq!(world.answer_to(request.request_id).to, CLIENT);
    let header = control(&mut world, Opcode::TopicList, body);
    world.send(&header, body);
    assert_eq!((world.answers.len(), world.outcomes.len()), (0, 256), "one left, one fits");
    for unsound in [&b""[..], b"\xC1", b"\x93\x01\x02\x03", b"\x81\xA4name", b"\x81\xA1a\xD4\x01\x00"] {
        let header = control(&mut world, Opcode::TopicCreate, unsound);
        assert_eq!(code(&world.ask(&header, unsound)), Code::BadBody, "{unsound:?}");
    }
}

#[test]
fn garbage_headers_are_refused_and_nobody_else_notices() {
    let mut world = world();
    let good = world.request(Opcode::EndOffsets).seal();
    for at in 0..128 {
        let mut bytes = good;
        bytes[at] ^= 0x55;
        world.event(Event::Request { connection: CLIENT, header: &bytes, body: Inbound::Small(&[]) });
        let reply = world.answers.pop().unwrap();
        assert!(matches!(code(&reply), Code::BadHeader | Code::UnsupportedVersion), "byte {at}");
    }
    assert_eq!(append(&mut world, 3, 0).header.status, Status::Ok as u8);
}

#[test]
fn a_stopping_node_refuses_what_is_new_and_what_waits() {
    let mut world = world();
    let poll = world.fetch_header(0, 0, 60_000);
    world.send(&poll, &[]);
    let body = body_of(0, 1);
    let ahead = RequestHeader { layout_version: 9, ..world.batch(3, 0, 1, &body) };
    world.send(&ahead, &body);
    world.event(Event::Stop);
    assert_eq!(world.answer_to(poll.request_id).header.status, Status::Ok as u8);
    assert_eq!(code(&world.answer_to(ahead.request_id)), Code::Stopping);
    assert_eq!(code(&append(&mut world, 3, 0)), Code::Stopping);
    assert!(!world.engine.is_busy());
}
