//! The way of a batch through the engine: answers, repeats, refusals, and that a refusal changes nothing.

use crate::support::{self, CLIENT, PARTITION, Reply, Shape, TOPIC, World, body_of, install_topic, open_order};
use ringfence_node::{Event, Lineage, Order, Outcome, TableLimits};
use ringfence_transport::{Connection, Inbound};
use ringfence_wire::{
    ANSWER_FLAG_REPEATED, Code, ExtensionKind, Opcode, RedirectReason, RequestHeader, Status, crc_of, extension,
};

fn ok(reply: &Reply) -> (u64, u32, bool) {
    assert_eq!((reply.header.status, reply.header.code), (Status::Ok as u8, 0), "{reply:?}");
    (reply.header.first_offset, reply.header.rows, reply.header.flags & ANSWER_FLAG_REPEATED != 0)
}

fn code(reply: &Reply) -> Code {
    assert_eq!(reply.header.status, Status::Refused as u8, "{reply:?}");
    Code::from_number(reply.header.code).unwrap()
}

fn reason(reply: &Reply) -> RedirectReason {
    assert_eq!(reply.header.status, Status::Redirect as u8, "{reply:?}");
    RedirectReason::from_number(reply.header.code).unwrap()
}

fn world() -> World {
    World::new(1, Shape::default())
}

#[test]
fn batches_are_answered_with_their_offsets_and_read_back_verbatim() {
    let mut world = world();
    for sequence in 0..5u64 {
        let body = body_of(i64::try_from(sequence).unwrap() * 10, 10);
        let header = world.batch(3, sequence, 10, &body);
        if sequence % 2 == 0 {
            world.send(&header, &body);
        } else {
            world.send_large(&header, &body);
        }
        world.run();
        let reply = world.answer_to(header.request_id);
        assert_eq!((ok(&reply), reply.header.send), ((sequence * 10, 10, false), sequence));
    }
    let bodies: Vec<Vec<u8>> = world.read_all().into_iter().map(|(_, body)| body).collect();
    assert_eq!(bodies, (0..5).map(|at| body_of(at * 10, 10)).collect::<Vec<_>>());
}

#[test]
fn nothing_is_answered_before_its_group_is_durable_not_even_a_repeat() {
    let mut world = world();
    let body = body_of(0, 2);
    let first = world.batch(3, 0, 2, &body);
    world.is_held = true;
    world.send(&first, &body);
    world.run();
    let again = RequestHeader { request_id: 1000, ..first };
    world.send(&again, &body);
    world.run();
    assert_eq!((world.answers.len(), world.held.len()), (0, 1));
    let poll = world.fetch_header(0, 0, 0);
    assert!(world.ask(&poll, &[]).body.is_empty(), "rows above the mark are never read (I14)");
    world.release();
    assert_eq!(ok(&world.answer_to(first.request_id)), (0, 2, false));
    assert_eq!(ok(&world.answer_to(1000)), (0, 2, true));
    let third = RequestHeader { request_id: 1001, ..first };
    assert_eq!(ok(&world.ask(&third, &body)), (0, 2, true));
    assert_eq!(world.read_all().len(), 1);
}

/// Every refusal of one batch, each against the bytes of the state before.
#[test]
fn refusals_leave_the_state_byte_identical() {
    let mut world = world();
    let body = body_of(0, 2);
    for sequence in 0..2 {
        let header = world.batch(3, sequence, 2, &body);
        world.ask(&header, &body);
    }
    let good = world.batch(3, 2, 2, &body);
    let mut torn = body.clone();
    torn.truncate(body.len() - 8);
    let mut noted = Vec::new();
    extension::write(&mut noted, &[(ExtensionKind::Note, &[0; 5000])]);
    let extension_bytes = u32::try_from(noted.len()).unwrap();
    noted.extend_from_slice(&body);
    let with = |body: &[u8], header: RequestHeader| RequestHeader {
        body_bytes: u32::try_from(body.len()).unwrap(),
        body_crc: crc_of(body),
        ..header
    };
    let cases: Vec<(RequestHeader, &[u8], Code)> = vec![
        (RequestHeader { body_crc: 1, ..good }, &body, Code::BodyCrc),
        (RequestHeader { body_bytes: 8, ..good }, &body, Code::BadHeader),
        (with(&torn, good), &torn, Code::BadBody),
        (RequestHeader { rows: 0, ..good }, &body, Code::ZeroRows),
        (RequestHeader { rows: u32::MAX, ..good }, &body, Code::TooLarge),
        (RequestHeader { schema_id: 7, ..good }, &body, Code::WrongSchema),
        (RequestHeader { topic: 99, ..good }, &body, Code::UnknownTopic),
        (RequestHeader { partition: 99, ..good }, &body, Code::UnknownPartition),
        (RequestHeader { sequence: 4, ..good }, &body, Code::SequenceGap),
        (RequestHeader { sequence: 1, body_crc: 1, ..good }, &body, Code::Conflict),
        (RequestHeader { producer_epoch: 4, ..good }, &body, Code::FencedProducer),
        (RequestHeader { producer_id: 4, producer_epoch: 0, sequence: 0, ..good }, &body, Code::Forgotten),
        (RequestHeader { send: 0, ..good }, &body, Code::InvalidArgument),
        (RequestHeader { producer_id: 0, ..good }, &body, Code::InvalidArgument),
        (RequestHeader { extension_bytes, ..with(&noted, good) }, &noted, Code::TooLarge),
        (RequestHeader { opcode: Opcode::Stage as u8, ..good }, &body, Code::InvalidArgument),
        (RequestHeader { opcode: 250, ..good }, &body, Code::UnknownOpcode),
    ];
    let before = world.engine.state_bytes();
    for (header, body, wanted) in cases {
        let reply = world.ask(&header, body);
        assert_eq!(code(&reply), wanted, "{header:?}");
        assert!(reply.body.starts_with(b"\x82\xA7message"), "a refusal says why");
        assert_eq!(world.engine.state_bytes(), before, "{wanted:?} changed something (I15)");
    }
    for (version, epoch, wanted) in [
        (0, world.epoch, RedirectReason::StaleVersion),
        (1, world.epoch - 1, RedirectReason::StaleEpoch),
        (1, 0, RedirectReason::StaleEpoch),
    ] {
        let header = RequestHeader { layout_version: version, owner_epoch: epoch, ..good };
        assert_eq!(reason(&world.ask(&header, &body)), wanted);
        assert_eq!(world.engine.state_bytes(), before, "{wanted:?} changed something (I15)");
    }
    assert_eq!(ok(&world.ask(&good, &body)), (4, 2, false), "the good one still fits");
}

#[test]
fn a_gap_names_the_expected_sequence_and_it_then_fits() {
    let mut world = world();
    let body = body_of(0, 1);
    let header = world.batch(3, 5, 1, &body);
    let reply = world.ask(&header, &body);
    assert_eq!((code(&reply), reply.header.sequence), (Code::SequenceGap, 0));
    let header = world.batch(3, reply.header.sequence, 1, &body);
    assert_eq!(ok(&world.ask(&header, &body)), (0, 1, false));
}

#[test]
fn keys_of_another_partition_are_refused_in_keyed_topics_only() {
    let mut world =
        World::open(ringfence_log::faulty::FaultyDisk::new(1), Shape::default(), ringfence_node::Now::default());
    world.ordered(install_topic(&[0])).unwrap();
    let half = |partition, lo, hi, epoch| ringfence_node::TablePartition { partition, lo, hi, owner: 1, epoch };
    let table = [half(PARTITION, 0, 32_767, 1), half(PARTITION + 1, 32_768, u16::MAX, 1)];
    let install = |key_columns: &[usize]| install_topic(key_columns);
    assert!(world.ordered(install(&[])).unwrap_err().contains("key columns"), "a key never changes");
    world
        .ordered(Order::InstallTable {
            topic: TOPIC,
            generation: 1,
            version: 1,
            table: support::table_body(1, 1),
            partitions: table.to_vec(),
            redirect: vec![0x80],
            redirects: vec![],
            lineage: Lineage::default(),
        })
        .unwrap();
    world.ordered(support::open_order_of(0, 32_767, 1)).unwrap();
    let codes: Vec<u16> = (0..8)
        .map(|id| {
            let body = body_of(id, 1);
            let header = world.batch(100 + u64::try_from(id).unwrap(), 0, 1, &body);
            world.ask(&header, &body).header.code
        })
        .collect();
    assert!(codes.contains(&0) && codes.contains(&(Code::WrongSlot as u16)), "{codes:?}");
}

#[test]
fn a_newer_version_waits_for_its_table_and_a_newer_epoch_for_its_open() {
    let mut world = world();
    let body = body_of(0, 1);
    let early = RequestHeader { layout_version: 2, owner_epoch: world.epoch + 1, ..world.batch(3, 0, 1, &body) };
    world.send(&early, &body);
    let next = RequestHeader { request_id: 900, sequence: 1, ..early };
    world.send(&next, &body);
    world.run();
    assert!(world.answers.is_empty());
    world.epoch += 1;
    world.install(2);
    let header = RequestHeader { request_id: 901, ..early };
    world.send(&header, &body);
    world.run();
    assert_eq!(reason(&world.answer_to(early.request_id)), RedirectReason::Closed);
    world.answers.clear();
    world.send(&early, &body);
    world.run();
    assert_eq!(reason(&world.answer_to(early.request_id)), RedirectReason::Closed, "not open yet");
    world.open_partition();
    assert_eq!(ok(&world.ask(&early, &body)), (0, 1, false));
    let ahead = RequestHeader { request_id: 902, layout_version: 3, ..early };
    world.send(&ahead, &body);
    world.pass(4_999);
    assert!(world.answers.iter().all(|reply| reply.header.request_id != 902));
    world.pass(1);
    assert_eq!(code(&world.answer_to(902)), Code::Ahead);
}

#[test]
fn parked_batches_are_served_in_order_when_the_partition_opens_under_their_epoch() {
    let mut world = world();
    let body = body_of(0, 1);
    let epoch = world.epoch + 1;
    let ids: Vec<u64> = (0..3)
        .map(|sequence| {
            let header = RequestHeader { owner_epoch: epoch, ..world.batch(3, sequence, 1, &body) };
            world.send(&header, &body);
            header.request_id
        })
        .collect();
    world.ordered(open_order(PARTITION, epoch)).unwrap();
    let offsets: Vec<_> = ids.into_iter().map(|id| ok(&world.answer_to(id)).0).collect();
    assert_eq!(offsets, [0, 1, 2]);
}

#[test]
fn a_full_pool_makes_batches_wait_and_keeps_their_order() {
    let mut world = world();
    world.is_held = true;
    let body = body_of(0, 8_000);
    let mut ids = Vec::new();
    for sequence in 0..120 {
        let header = world.batch(3, sequence, 8_000, &body);
        world.send(&header, &body);
        world.run();
        ids.push(header.request_id);
    }
    assert!(world.counter("stalled") > 0, "groups or pool were full");
    let number = world.order(Order::Close { topic: TOPIC, partition: PARTITION + 1 });
    let failed = |outcome: &Outcome| matches!(outcome, Outcome::Order { number: n, result: Err(_) } if *n == number);
    assert!(world.outcomes.iter().any(failed), "orders that need no room end at once");
    world.release();
    let replies: Vec<Reply> = ids.into_iter().map(|id| world.answer_to(id)).collect();
    let stored: Vec<u64> = replies.iter().filter(|reply| reply.header.status == 0).map(|r| r.header.sequence).collect();
    assert_eq!(stored, (0..stored.len() as u64).collect::<Vec<_>>(), "a prefix, in order");
    assert!(stored.len() > 20);
    for reply in &replies[stored.len()..] {
        assert!(matches!(code(reply), Code::Overloaded | Code::SequenceGap), "{reply:?}");
    }
}

#[test]
fn credit_is_shared_between_connections() {
    let mut world = world();
    let request = world.request(Opcode::EndOffsets);
    let alone = world.ask(&request, &[]).header.credit_bytes;
    world.event(Event::Opened(Connection(2)));
    let request = world.request(Opcode::EndOffsets);
    assert_eq!(world.ask(&request, &[]).header.credit_bytes, alone, "a silent connection takes no share");
    let header = world.request(Opcode::EndOffsets).seal();
    world.event(Event::Request { connection: Connection(2), header: &header, body: Inbound::Small(&[]) });
    let request = world.request(Opcode::EndOffsets);
    assert_eq!(world.ask(&request, &[]).header.credit_bytes, alone / 2);
    world.event(Event::Closed(Connection(2)));
    let request = world.request(Opcode::EndOffsets);
    assert_eq!(world.ask(&request, &[]).to, CLIENT);
}

#[test]
fn an_order_that_finds_no_room_waits_and_those_behind_it_too() {
    let shape = Shape::default();
    let limits = TableLimits { entries: 3_000, ..shape.limits };
    let mut world = World::new(1, Shape { limits, ..shape });
    world.is_held = true;
    let body = body_of(0, 8_000);
    let mut sequence = 0;
    while world.counter("stalled") == 0 {
        let header = world.batch(3, sequence, 8_000, &body);
        world.send(&header, &body);
        world.run();
        sequence += 1;
    }
    let truncate = Order::Truncate { topic: TOPIC, partition: PARTITION, before_offset: u64::MAX, epoch: 0 };
    let producer = |id| Order::OpenProducer {
        topic: TOPIC,
        partition: PARTITION,
        producer_id: id,
        producer_epoch: 9,
        previous_epoch: 0,
        name: vec![b'n'; 200],
    };
    let mut numbers: Vec<u64> = (0..2000).map(|id| world.order(producer(100 + id))).collect();
    numbers.push(world.order(truncate));
    world.run();
    assert!(world.outcomes.is_empty(), "nothing is durable yet");
    world.release();
    let ended = world.outcomes.iter().map(|outcome| match outcome {
        Outcome::Order { number, result: Ok(_) } => *number,
        other => panic!("{other:?}"),
    });
    assert_eq!(ended.collect::<Vec<_>>(), numbers, "each once, in order");
}
