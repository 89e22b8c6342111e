//! Sealed partitions of one store: what they answer, who may read them, and what a start makes of them.

use ringfence_log::faulty::FaultyDisk;
use ringfence_log::{FileHeader, LINEAGE_FORMAT, Storage, parse_segment_name};
use ringfence_node::{
    Finished, LAYOUT_LEVEL, Lineage, Order, Outcome, PartitionStatus, ScopeRule, SealedEnd, SealedPartition, TableIn,
    TableOut, TablePartition,
};
use ringfence_wire::{
    ANSWER_FLAG_ENDED, ANSWER_FLAG_MORE, ANSWER_FLAG_REPEATED, Code, ExtensionKind, FEATURE_LINEAGE, Opcode,
    REQUEST_FLAG_CONTROL, REQUEST_FLAG_STAGED, RedirectReason, RequestHeader, Status, crc_of, extension,
};

use crate::support::{
    PARTITION, Reply, Shape, TOPIC, World, body_of, install_topic, open_order, records_in, table_body,
};

/// Of the layout change, and the epoch of the children's owner.
const CHANGE: u64 = 40;
const CHILD: u64 = CHANGE << 16;
const PRODUCER: u64 = 5;

fn world(seed: u64) -> World {
    World::new(seed, Shape::default())
}

fn status(world: &World) -> PartitionStatus {
    world.engine.partition_list().into_iter().find(|one| one.partition == PARTITION).unwrap()
}

/// Batch `sequence` of ten rows.
fn send(world: &mut World, sequence: u64) -> Reply {
    let body = body_of(i64::try_from(sequence).unwrap() * 10, 10);
    let header = world.batch(PRODUCER, sequence, 10, &body);
    world.ask(&header, &body)
}

fn filled(seed: u64, batches: u64) -> World {
    let mut world = world(seed);
    for sequence in 0..batches {
        assert_eq!(send(&mut world, sequence).header.status, Status::Ok as u8);
    }
    world
}

/// Where the log ends now, as a COMMIT would name it.
fn end_of(world: &World) -> SealedEnd {
    let PartitionStatus { owner_epoch: epoch, records, end_offset: offset, chain, .. } = status(world);
    SealedEnd { epoch, records, offset, chain, number: CHANGE, version: 2, sealed_ms: 1_000_000, lowered: 0 }
}

fn open_sealed(world: &mut World, epoch: u64, end: SealedEnd) -> Result<Finished, String> {
    let (topic, partition) = (TOPIC, PARTITION);
    world.ordered(Order::OpenSealed { topic, partition, lo: 0, hi: u16::MAX, epoch, replicas: vec![], end })
}

/// The table behind the COMMIT: two children, and the partition as their sealed parent.
fn commit_table(world: &mut World, generation: u64) {
    let child = |at: u64, lo, hi| TablePartition { partition: CHILD + at, lo, hi, owner: 1, epoch: CHANGE };
    let redirect = b"\x82\xA5owner\x01\xA8children\x92\x01\x02".to_vec();
    let sealed = SealedPartition { partition: PARTITION, owner: 1, epoch: world.epoch, sealed_version: 2, redirect };
    let ancestors = vec![(CHILD, vec![PARTITION]), (CHILD + 1, vec![PARTITION])];
    world
        .ordered(Order::InstallTable {
            topic: TOPIC,
            generation,
            version: 2,
            table: table_body(generation, 2),
            partitions: vec![child(0, 0, 0x7FFF), child(1, 0x8000, u16::MAX)],
            redirect: vec![0x80],
            redirects: vec![],
            lineage: Lineage { sealed: vec![sealed], ancestors },
        })
        .unwrap();
}

fn seal(world: &mut World) -> SealedEnd {
    world.ordered(Order::Hold { topic: TOPIC, partition: PARTITION, epoch: CHANGE }).unwrap();
    let (epoch, end) = (world.epoch, end_of(world));
    let opened = open_sealed(world, epoch, end);
    assert_eq!(opened, Ok(Finished::Opened { records: end.records, end_offset: end.offset }));
    commit_table(world, 400);
    end
}

/// The child takes all that the partition knows of producers.
fn inherit(world: &mut World) {
    let (topic, lo, hi) = (TOPIC, 0, u16::MAX);
    let order = TableOut { topic, partition: PARTITION, lo, hi, since: 0, after: 0, bytes_max: 1 << 16 };
    let Ok(Finished::TablePage(told)) = world.ordered(Order::TableOut(order)) else { panic!("no page") };
    let (partition, number, source, end, page) = (CHILD, CHANGE, PARTITION, told.records, told.page.into());
    let order = TableIn { topic, partition, number, source, lo, hi, end, is_final: true, page };
    world.ordered(Order::TableIn(order)).unwrap();
}

/// HELLO of a client that can do this.
fn hello(world: &mut World, features: u64) {
    let mut body = b"\x83\xABversion_min\x01\xABversion_max\x01\xA8features".to_vec();
    body.push(u8::try_from(features).unwrap());
    let header = RequestHeader {
        flags: u8::try_from(REQUEST_FLAG_CONTROL).unwrap(),
        body_bytes: u32::try_from(body.len()).unwrap(),
        body_crc: crc_of(&body),
        ..world.request(Opcode::Hello)
    };
    assert_eq!(world.ask(&header, &body).header.status, Status::Ready as u8);
}

fn ask(world: &mut World, opcode: Opcode, partition: u64, sequence: u64) -> Reply {
    let header = RequestHeader { partition, sequence, layout_version: 2, ..world.request(opcode) };
    world.ask(&header, &[])
}

fn is_sealed(reply: &Reply, stored: u64) {
    let header = &reply.header;
    let seen = (header.status, header.code, header.sequence);
    assert_eq!(seen, (Status::Redirect as u8, RedirectReason::Sealed as u16, stored), "{reply:?}");
}

fn refusal(reply: &Reply) -> Code {
    assert_eq!(reply.header.status, Status::Refused as u8, "{reply:?}");
    Code::from_number(reply.header.code).unwrap()
}

#[cfg_attr(not(feature = "planted"), test)]
pub fn a_sealed_partition_tells_what_is_stored_and_takes_nothing() {
    let mut world = filled(1, 3);
    let end = seal(&mut world);
    let before = world.engine.state_bytes();
    // Routed by a table of before, as most are.
    let again = send(&mut world, 1);
    let (told, flags) = ((again.header.status, again.header.first_offset), again.header.flags);
    assert_eq!((told, flags), ((Status::Ok as u8, 10), ANSWER_FLAG_REPEATED));
    let new = send(&mut world, 3);
    is_sealed(&new, 3);
    assert_eq!((new.header.send, new.header.layout_version), (2, 2));
    let body = b"\x85\xA5owner\x01\xA8children\x92\x01\x02\
        \xA6stored\x03\xA7answers\x93\x93\x00\x00\x0A\x93\x01\x0A\x0A\x93\x02\x14\x0A\xA7version\x02";
    assert_eq!(new.body, body);
    is_sealed(&send(&mut world, 9), 3);
    // Routed by a table that is newer than this node's, or by none.
    for layout_version in [0, 1, 2, 9] {
        let body = body_of(0, 10);
        let header = RequestHeader { layout_version, ..world.batch(PRODUCER + 1, 0, 10, &body) };
        is_sealed(&world.ask(&header, &body), 0);
    }
    let body = body_of(7, 10);
    let other = world.batch(PRODUCER, 2, 10, &body);
    assert_eq!(refusal(&world.ask(&other, &body)), Code::Conflict);
    let older = RequestHeader { producer_epoch: 4, ..world.batch(PRODUCER, 3, 10, &body) };
    assert_eq!(refusal(&world.ask(&older, &body)), Code::FencedProducer);
    let newer = RequestHeader { producer_epoch: 6, ..world.batch(PRODUCER, 0, 10, &body) };
    is_sealed(&world.ask(&newer, &body), 0);
    let (producer_id, producer_epoch, name) = (PRODUCER, 7, b"n".to_vec());
    let opened = world.ordered(Order::OpenProducer {
        topic: TOPIC,
        partition: PARTITION,
        producer_id,
        producer_epoch,
        previous_epoch: 0,
        name,
    });
    assert!(opened.unwrap_err().contains("sealed by layout change 40"));
    assert_eq!(world.engine.state_bytes(), before, "I15");
    assert_eq!((status(&world).records, status(&world).open), (end.records, false));
}

#[cfg_attr(not(feature = "planted"), test)]
pub fn a_stage_at_a_sealed_partition_is_told_how_many_batches_of_its_token_are_there() {
    let mut world = world(11);
    let rule = ScopeRule { scope: 30, driver: 31, ..ScopeRule::default() };
    world.ordered(Order::InstallScopes { rules: vec![rule], gone: None }).unwrap();
    for sequence in 0..2 {
        assert_eq!(stage(&mut world, 1, sequence).header.status, Status::Staged as u8);
    }
    let end = seal(&mut world);
    assert_eq!(end.offset, 0, "staged rows have no offsets");
    assert_eq!(stage(&mut world, 1, 1).header.status, Status::Staged as u8, "a repeat");
    is_sealed(&stage(&mut world, 1, 2), 2);
    is_sealed(&stage(&mut world, 2, 0), 0);
    assert_eq!(status(&world).records, end.records);
}

/// Whatever lies around them in the log: rows, nothing, an epoch that was published.
#[cfg_attr(not(feature = "planted"), test)]
pub fn what_is_staged_at_the_end_of_a_sealed_partition_is_listed_and_read() {
    for (seed, rows_between, is_crashed) in [(21, false, false), (22, true, false), (23, true, true), (24, false, true)]
    {
        let mut world = world(seed);
        let rule = ScopeRule { scope: 30, driver: 31, ..ScopeRule::default() };
        world.ordered(Order::InstallScopes { rules: vec![rule], gone: None }).unwrap();
        for sequence in 0..3 {
            assert_eq!(stage(&mut world, 1, sequence).header.status, Status::Staged as u8);
            if rows_between {
                assert_eq!(send(&mut world, sequence).header.status, Status::Ok as u8);
            }
            assert_eq!(stage(&mut world, 2, sequence).header.status, Status::Staged as u8);
        }
        let end = seal(&mut world);
        if is_crashed {
            world = world.crash(Shape::default());
            world.ordered(install_topic(&[])).unwrap();
            let epoch = world.epoch;
            open_sealed(&mut world, epoch, end).unwrap();
            commit_table(&mut world, 400);
        }
        let before = world.engine.state_bytes();
        let numbers = listed(&mut world, 2);
        assert_eq!(numbers.len(), 3, "{numbers:?}");
        let mut found = Vec::new();
        while let Some(next) = numbers.get(found.len()) {
            let mut header = world.fetch_header(*next, 0, 0);
            (header.layout_version, header.flags) = (2, u8::try_from(REQUEST_FLAG_STAGED).unwrap());
            let reply = world.ask(&header, &[]);
            assert_eq!(reply.header.status, Status::Ok as u8);
            let records = records_in(&reply.body);
            assert!(!records.is_empty(), "seed {seed}: record {next} of {numbers:?} is not read");
            found.extend(records.iter().map(|one| one.0.record_number).filter(|one| numbers.contains(one)));
        }
        assert_eq!(found, numbers);
        let mut beyond = world.fetch_header(end.records, 0, 0);
        (beyond.layout_version, beyond.flags) = (2, u8::try_from(REQUEST_FLAG_STAGED).unwrap());
        assert_eq!(world.ask(&beyond, &[]).body.len(), 0);
        assert_eq!(world.engine.state_bytes(), before);
    }
}

/// Numbers of the records that `STAGED_LIST` tells of one token.
fn listed(world: &mut World, token: u8) -> Vec<u64> {
    let mut body = b"\x83\xA5scope\x1E\xA5epoch\x08\xA6tokens\x91\xC4\x10".to_vec();
    body.extend_from_slice(&[token; 16]);
    let header = RequestHeader {
        layout_version: 2,
        flags: u8::try_from(REQUEST_FLAG_CONTROL).unwrap(),
        body_bytes: u32::try_from(body.len()).unwrap(),
        body_crc: crc_of(&body),
        ..world.request(Opcode::StagedList)
    };
    let reply = world.ask(&header, &body);
    assert_eq!(reply.header.status, Status::Ok as u8, "{reply:?}");
    let told = reply.body.strip_prefix(b"\x83\xA7batches").unwrap();
    let told = told.strip_suffix(b"\xA4more\xC2\xAEsealed_version\x02").expect("the version that sealed it");
    told[1..].chunks(4).map(|one| u64::from(one[1])).collect()
}

/// Ten rows under the token of these bytes.
fn stage(world: &mut World, token: u8, sequence: u64) -> Reply {
    let mut identity: Vec<u8> = [30u64, 31, 8, 2].iter().flat_map(|word| word.to_le_bytes()).collect();
    identity.extend_from_slice(&[token; 16]);
    let mut body = Vec::new();
    extension::write(&mut body, &[(ExtensionKind::Stage, &identity)]);
    let extension_bytes = u32::try_from(body.len()).unwrap();
    body.extend_from_slice(&body_of(0, 10));
    let opcode = Opcode::Stage as u8;
    let batch = world.batch(0, sequence, 10, &body);
    let header = RequestHeader { opcode, producer_epoch: 0, send: 0, extension_bytes, ..batch };
    world.ask(&header, &body)
}

#[cfg_attr(not(feature = "planted"), test)]
pub fn a_held_partition_is_not_sealed_before_its_table_says_so() {
    let mut world = filled(2, 1);
    world.ordered(Order::Hold { topic: TOPIC, partition: PARTITION, epoch: CHANGE }).unwrap();
    assert_eq!(refusal(&send(&mut world, 1)), Code::Held);
    let (epoch, end) = (world.epoch, end_of(&world));
    open_sealed(&mut world, epoch, end).unwrap();
    assert_eq!(refusal(&send(&mut world, 1)), Code::Held);
    commit_table(&mut world, 400);
    is_sealed(&send(&mut world, 1), 1);
}

#[cfg_attr(not(feature = "planted"), test)]
pub fn readers_are_told_where_a_sealed_partition_ends() {
    let mut world = filled(3, 3);
    hello(&mut world, FEATURE_LINEAGE);
    let poll = world.fetch_header(30, 0, 600_000);
    world.send(&poll, &[]);
    world.run();
    assert!(world.answers.is_empty(), "no row has come");
    seal(&mut world);
    let polled = world.answer_to(poll.request_id);
    let seen = (polled.header.status, polled.header.flags, polled.body.len());
    assert_eq!(seen, (Status::Ok as u8, ANSWER_FLAG_ENDED, 0), "a poll ends with the seal");
    let part = RequestHeader { rows: 10, ..world.fetch_header(0, 0, 0) };
    let part = world.ask(&part, &[]);
    assert_eq!((part.header.rows, part.header.flags), (10, ANSWER_FLAG_MORE));
    let rest = ask(&mut world, Opcode::Fetch, PARTITION, 10);
    assert_eq!((rest.header.rows, rest.header.flags), (20, ANSWER_FLAG_ENDED));
    let at_end = world.fetch_header(30, 0, 600_000);
    let at_end = world.ask(&at_end, &[]);
    assert_eq!((at_end.header.status, at_end.header.flags), (Status::Ok as u8, ANSWER_FLAG_ENDED));
    let ends = ask(&mut world, Opcode::EndOffsets, PARTITION, 0);
    let seen = (ends.header.first_offset, ends.header.end_offset, ends.header.flags);
    assert_eq!(seen, (0, 30, ANSWER_FLAG_ENDED));
    let in_time = ask(&mut world, Opcode::OffsetForTime, PARTITION, 0);
    assert_eq!((in_time.header.first_offset, in_time.header.flags), (0, ANSWER_FLAG_ENDED));
    assert_eq!(refusal(&ask(&mut world, Opcode::Fetch, PARTITION, 31)), Code::Truncated);
    let resolve = RequestHeader { producer_id: PRODUCER, ..world.request(Opcode::Resolve) };
    assert_eq!(world.ask(&resolve, &[]).header.status, Status::Ok as u8);
}

#[cfg_attr(not(feature = "planted"), test)]
pub fn a_reader_that_knows_of_no_lineage_is_refused_where_it_would_pass_rows_over() {
    let mut world = filled(4, 3);
    seal(&mut world);
    world.ordered(open_order(CHILD, CHANGE)).unwrap();
    let all = ask(&mut world, Opcode::Fetch, PARTITION, 0);
    assert_eq!((all.header.rows, all.header.flags), (30, 0), "what there is of the parent is served");
    let ends = ask(&mut world, Opcode::EndOffsets, PARTITION, 0);
    assert_eq!((ends.header.end_offset, ends.header.flags), (30, 0));
    let refused = ask(&mut world, Opcode::Fetch, PARTITION, 30);
    assert_eq!(refusal(&refused), Code::NotSupported);
    for opcode in [Opcode::Fetch, Opcode::EndOffsets, Opcode::OffsetForTime] {
        assert_eq!(refusal(&ask(&mut world, opcode, CHILD, 0)), Code::NotSupported, "{opcode:?}");
    }
    hello(&mut world, FEATURE_LINEAGE);
    for opcode in [Opcode::Fetch, Opcode::EndOffsets, Opcode::OffsetForTime] {
        assert_eq!(ask(&mut world, opcode, CHILD, 0).header.status, Status::Ok as u8, "{opcode:?}");
    }
}

#[cfg_attr(not(feature = "planted"), test)]
pub fn a_child_is_not_there_before_the_commit() {
    let mut world = World::new(5, Shape { level: LAYOUT_LEVEL, ..Shape::default() });
    assert_eq!(send(&mut world, 0).header.status, Status::Ok as u8);
    hello(&mut world, FEATURE_LINEAGE);
    world.ordered(open_order(CHILD, CHANGE)).unwrap();
    let body = body_of(0, 10);
    let batch = RequestHeader { partition: CHILD, owner_epoch: CHANGE, ..world.batch(PRODUCER, 0, 10, &body) };
    for opcode in [Opcode::Fetch, Opcode::EndOffsets, Opcode::OffsetForTime, Opcode::Resolve] {
        let header = RequestHeader { partition: CHILD, layout_version: 1, ..world.request(opcode) };
        assert_eq!(refusal(&world.ask(&header, &[])), Code::UnknownPartition, "{opcode:?}");
    }
    assert_eq!(world.ask(&batch, &body).header.status, Status::Redirect as u8);
    // Asked again, as a coordinator does that was not answered.
    let again = world.ordered(open_order(CHILD, CHANGE));
    assert_eq!(again, Ok(Finished::Opened { records: 1, end_offset: 0 }));
    let other =
        Order::Open { topic: TOPIC, partition: CHILD, lo: 0, hi: 9, epoch: CHANGE, replicas: vec![], quorum: 1 };
    assert!(world.ordered(other).unwrap_err().contains("is not above"));
    inherit(&mut world);
    seal(&mut world);
    let batch = RequestHeader { layout_version: 2, request_id: 990, ..batch };
    assert_eq!(world.ask(&batch, &body).header.status, Status::Ok as u8, "it takes rows without another record");
    let list = world.engine.partition_list();
    let child = list.iter().find(|one| one.partition == CHILD).unwrap();
    assert_eq!((child.records, child.owner_epoch), (3, CHANGE), "its epoch, what it inherits, and the rows");
    // The order that follows from the COMMIT.
    world.ordered(open_order(CHILD, CHANGE)).unwrap();
}

#[cfg_attr(not(feature = "planted"), test)]
pub fn nothing_is_appended_to_open_a_sealed_partition_whoever_owns_it() {
    let mut world = filled(6, 2);
    let end = seal(&mut world);
    for epoch in [world.epoch, 50, 50, 61] {
        assert!(open_sealed(&mut world, epoch, end).is_ok());
        let seen = status(&world);
        assert_eq!((seen.records, seen.chain, seen.end_offset), (end.records, end.chain, end.offset));
    }
    assert!(open_sealed(&mut world, 60, end).unwrap_err().contains("is not above 61"));
    let opened = world.ordered(open_order(PARTITION, 70));
    assert!(opened.unwrap_err().contains("it was sealed at record 3 by layout change 40"));
    let other = SealedEnd { records: 2, ..end };
    assert!(open_sealed(&mut world, 80, other).unwrap_err().contains("the order says 2"));
}

#[cfg_attr(not(feature = "planted"), test)]
pub fn a_seal_is_told_when_it_is_on_disk_and_outlives_a_power_cut() {
    let mut world = filled(7, 2);
    world.ordered(Order::Hold { topic: TOPIC, partition: PARTITION, epoch: CHANGE }).unwrap();
    let (epoch, end) = (world.epoch, end_of(&world));
    world.is_held = true;
    let (topic, partition) = (TOPIC, PARTITION);
    let number = world.order(Order::OpenSealed { topic, partition, lo: 0, hi: u16::MAX, epoch, replicas: vec![], end });
    world.run();
    let has_ended = |world: &World| {
        world.outcomes.iter().any(|one| matches!(one, Outcome::Order { number: n, .. } if *n == number))
    };
    assert!(!has_ended(&world), "L1");
    world.release();
    assert!(has_ended(&world));
    assert_eq!(formats(&world.disk).last(), Some(&LINEAGE_FORMAT), "an older program leaves it untouched");
    for _ in 0..2 {
        world = world.crash(Shape::default());
        let sealed = status(&world).sealed.unwrap();
        assert_eq!((sealed.records, sealed.number, sealed.version, sealed.is_reached), (3, CHANGE, 2, true));
        world.ordered(install_topic(&[])).unwrap();
        assert!(world.ordered(open_order(PARTITION, 70)).unwrap_err().contains("sealed"));
        open_sealed(&mut world, 50, end).unwrap();
        commit_table(&mut world, 500);
        hello(&mut world, FEATURE_LINEAGE);
        assert_eq!(ask(&mut world, Opcode::Fetch, PARTITION, 0).header.flags, ANSWER_FLAG_ENDED);
        is_sealed(&send(&mut world, 2), 2);
    }
    let disk = world.disk.clone();
    drop(world);
    let (found, report) = ringfence_node::check(&disk).unwrap();
    assert_eq!((found[0].sealed.map(|sealed| sealed.is_reached), report.damage), (Some(true), vec![]));
}

/// Formats of the segments, the oldest first.
pub fn formats(disk: &FaultyDisk) -> Vec<u16> {
    let mut found = Vec::new();
    for (name, _) in disk.list().unwrap() {
        if let Some((number, _)) = parse_segment_name(&name) {
            let content = disk.content(&name).unwrap();
            found.push((number, FileHeader::open(&content[..4096]).unwrap().format));
        }
    }
    found.sort_unstable();
    found.into_iter().map(|(_, format)| format).collect()
}

#[cfg_attr(not(feature = "planted"), test)]
pub fn a_log_that_is_shorter_or_another_one_is_not_served() {
    let mut world = filled(8, 2);
    world.ordered(Order::Hold { topic: TOPIC, partition: PARTITION, epoch: CHANGE }).unwrap();
    let (epoch, end) = (world.epoch, end_of(&world));
    let before = world.engine.state_bytes();
    let missing = SealedEnd { records: 1_000, offset: 9_970, ..end };
    let refused = open_sealed(&mut world, epoch, missing).unwrap_err();
    assert!(refused.contains("incomplete: 3 of 1000 records"), "{refused}");
    let other = SealedEnd { chain: end.chain ^ 1, ..end };
    let refused = open_sealed(&mut world, epoch, other).unwrap_err();
    assert!(refused.contains("differs from the sealed one"), "{refused}");
    assert_eq!(world.engine.state_bytes(), before, "a failed order changes nothing");
    commit_table(&mut world, 400);
    hello(&mut world, FEATURE_LINEAGE);
    let closed = send(&mut world, 2);
    let seen = (closed.header.status, closed.header.code);
    assert_eq!(seen, (Status::Redirect as u8, RedirectReason::Closed as u16), "nobody here knows what is stored");
    open_sealed(&mut world, epoch, end).unwrap();
    is_sealed(&send(&mut world, 2), 2);
}

/// A log that goes on after the end that the layout has.
fn longer(seed: u64) -> (World, SealedEnd) {
    let mut world = filled(seed, 2);
    let end = end_of(&world);
    for sequence in 2..5 {
        send(&mut world, sequence);
    }
    world.ordered(Order::Hold { topic: TOPIC, partition: PARTITION, epoch: CHANGE }).unwrap();
    (world, end)
}

#[cfg_attr(not(feature = "planted"), test)]
pub fn a_log_that_goes_on_after_its_seal_is_quarantined() {
    let (mut world, end) = longer(9);
    let epoch = world.epoch;
    let other = SealedEnd { chain: end.chain ^ 1, ..end };
    assert!(open_sealed(&mut world, epoch, other).unwrap_err().contains("differs from the sealed one"));
    assert_eq!(status(&world).quarantined, None, "it may follow a store that has the sealed log");
    let refused = open_sealed(&mut world, epoch, end).unwrap_err();
    assert!(refused.contains("sealed at record 3") && refused.contains("goes on to record 6"), "{refused}");
    assert_eq!(status(&world).records, 6, "nothing is cut");
    assert!(status(&world).quarantined.is_some());
    assert!(world.outcomes.iter().any(|outcome| matches!(outcome, Outcome::Quarantined { .. })));
}

#[cfg_attr(not(feature = "planted"), test)]
pub fn a_log_is_cut_at_a_lower_end_that_an_operator_has_accepted() {
    let (mut world, end) = longer(10);
    // It was sealed with all of it, and an operator accepts the loss later.
    let (epoch, whole) = (world.epoch, end_of(&world));
    open_sealed(&mut world, epoch, whole).unwrap();
    // What a start has found may be taken back, what was served since may not.
    let mut world = world.crash(Shape::default());
    world.ordered(install_topic(&[])).unwrap();
    let lowered = SealedEnd { lowered: 90, ..end };
    let opened = open_sealed(&mut world, 95, lowered);
    assert_eq!(opened, Ok(Finished::Opened { records: 3, end_offset: 20 }));
    let told = world.outcomes.iter().find_map(|outcome| match outcome {
        Outcome::GaveUp(told) => Some((told.forced, told.record, told.records, told.rows)),
        _ => None,
    });
    assert_eq!(told, Some((95, 3, 3, 30)));
    commit_table(&mut world, 400);
    is_sealed(&send(&mut world, 2), 2);
    let mut world = world.crash(Shape::default());
    assert_eq!(status(&world).sealed.map(|sealed| (sealed.records, sealed.is_reached)), Some((3, true)));
    world.ordered(install_topic(&[])).unwrap();
    open_sealed(&mut world, 96, lowered).unwrap();
    assert_eq!(status(&world).quarantined, None);
}
