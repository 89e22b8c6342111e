//! Children inherit the producer tables of their sources: resume points by slot, what was forgotten, room, an owner
//! that lacks a source, starts.

use ringfence_node::{
    Finished, GatesIn, GatesOut, LAYOUT_LEVEL, Order, TableIn, TableLimits, TablePage, TablePartition,
};
use ringfence_wire::{Code, Opcode, RedirectReason, RequestHeader, Status};

use crate::merge::{CHILD, LEFT, Merge, NAMED, NUMBER, RIGHT, ROOMY, open_named, pruned, table_in};
use crate::support::{PARTITION, Reply, Shape, TOPIC, World, body_of};

/// P has sent 1 to 3 to the left source and 1 to the right one; some of it after the first pages were made. An open has
/// reached the left source and not the right one.
fn merged(seed: u64) -> Merge {
    let mut merge = Merge::new(seed, ROOMY);
    for source in [LEFT, RIGHT] {
        assert!(merge.points(source, 100).is_empty());
        merge.stored(source, (NAMED, 100), 0, 1);
    }
    merge.stored(LEFT, (NAMED, 100), 1, 2);
    merge.open(CHILD, NUMBER);
    let mut since = [0; 2];
    for (source, since) in [LEFT, RIGHT].into_iter().zip(&mut since) {
        let pages = merge.pages(source, 0);
        *since = pages[0].records;
        for page in &pages {
            assert!(matches!(merge.take(source, page, false), Ok(Finished::Inherited { left_out: 0, .. })));
        }
    }
    assert!(merge.sources().is_empty());
    merge.stored(LEFT, (NAMED, 100), 2, 3);
    assert_eq!(merge.points(LEFT, 200), [(0, 32_767, LEFT, 3)]);
    merge.inherit_rest(since);
    assert_eq!(merge.sources(), [LEFT, RIGHT]);
    merge
}

#[cfg_attr(not(feature = "planted"), test)]
pub fn a_child_resumes_each_slot_where_its_source_ended() {
    let mut merge = merged(1);
    let refused = merge.open_named(CHILD, 300).unwrap_err();
    assert!(refused.contains("not open here"), "no table names the child yet: {refused}");
    merge.install(&[CHILD], &[LEFT, RIGHT]);
    let told = |at: u64| [(0, 32_767, LEFT, 3), (32_768, u16::MAX, RIGHT, at)];
    assert_eq!(merge.points(CHILD, 300), told(1));
    let fenced = merge.send(CHILD, (NAMED, 200), 0, 4);
    assert_eq!(fenced.header.code, Code::FencedProducer as u16);
    merge.stored(CHILD, (NAMED, 300), 0, 2);
    let now = [(0, 32_767, LEFT, 3), (32_768, u16::MAX, CHILD, 2)];
    assert_eq!(merge.points(CHILD, 400), now, "slots that lagged go on, and the others stay ahead");
    merge.stored(CHILD, (NAMED, 400), 0, 4);
    assert_eq!(merge.points(CHILD, 401), [(0, u16::MAX, CHILD, 4)]);
}

#[cfg_attr(not(feature = "planted"), test)]
fn a_start_of_the_child_changes_nothing_and_old_programs_leave_its_files_alone() {
    for with_state in [false, true] {
        let mut merge = merged(2);
        merge.install(&[CHILD], &[LEFT, RIGHT]);
        if with_state {
            let body = body_of(0, 12_000);
            let before = merge.world.counter("states_written");
            for sequence in 0..20 {
                let header = RequestHeader {
                    partition: CHILD,
                    layout_version: merge.version,
                    owner_epoch: NUMBER,
                    producer_id: 5,
                    producer_epoch: 1,
                    ..merge.world.batch(5, sequence, 12_000, &body)
                };
                merge.world.send_large(&header, &body);
                merge.world.run();
                assert_eq!(merge.world.answer_to(header.request_id).header.status, 0);
            }
            let truncate = Order::Truncate { topic: TOPIC, partition: CHILD, before_offset: 220_000, epoch: 0 };
            merge.world.ordered(truncate).unwrap();
            for _ in 0..200 {
                merge.world.pass(20);
            }
            assert!(merge.world.counter("states_written") > before, "the first files are free but for the state");
        }
        let shape = Shape { level: LAYOUT_LEVEL, segment_bytes: 1 << 20, limits: ROOMY, ..Shape::default() };
        let (version, next_request) = (merge.version, merge.next_request);
        let mut merge = Merge { world: merge.world.crash(shape), version, next_request, sealed: vec![] };
        merge.world.ordered(crate::support::install_topic(&[])).unwrap();
        assert_eq!(merge.sources(), [LEFT, RIGHT]);
        let epoch = NUMBER + 100;
        merge.open(CHILD, epoch);
        let entry = TablePartition { partition: CHILD, lo: 0, hi: u16::MAX, owner: 1, epoch };
        merge.world.install_table(100_000, version + 1, &[entry]);
        let told = [(0, 32_767, LEFT, 3), (32_768, u16::MAX, RIGHT, 1)];
        assert_eq!(merge.points(CHILD, 300), told, "with a state record: {with_state}");
    }
}

#[cfg_attr(not(feature = "planted"), test)]
pub fn the_gates_of_a_source_come_before_its_last_page() {
    let mut merge = Merge::new(3, ROOMY);
    merge.open(CHILD, NUMBER);
    let records = merge.hold(LEFT);
    let page = merge.pages(LEFT, 0).remove(0);
    merge.give_gates(LEFT, records);
    merge.take(LEFT, &page, true).unwrap();
    let late = Order::GatesIn(GatesIn { gates: vec![1].into(), ..gates_of(LEFT) });
    let refused = merge.world.ordered(late).unwrap_err();
    assert!(refused.contains("come before its last page"), "{refused}");
    // A repeat is as good as the first one, and appends nothing.
    let ends: Vec<_> = (0..2).map(|_| merge.take(LEFT, &page, true)).collect();
    assert_eq!(ends[0], ends[1]);
    merge.give_gates(LEFT, records);
    assert_eq!(merge.sources(), [LEFT]);
}

#[cfg_attr(not(feature = "planted"), test)]
fn orders_that_do_not_fit_are_refused_and_change_nothing() {
    let mut merge = Merge::new(4, ROOMY);
    merge.stored(LEFT, (5, 1), 0, 1);
    merge.open(CHILD, NUMBER);
    let page = merge.pages(LEFT, 0).remove(0);
    let before = merge.world.engine.state_bytes();
    let mut cut = page.clone();
    cut.page.pop();
    for (order, why) in [
        (table_in(CHILD, NUMBER + 1, LEFT, &page, false), "open under 500"),
        (table_in(CHILD, NUMBER, RIGHT, &page, false), "it is of partition 21"),
        (table_in(CHILD, NUMBER, LEFT, &cut, false), "a page of partition 21"),
        (table_in(99, NUMBER, LEFT, &page, false), "not on this store"),
        (Order::TableIn(TableIn { end: 77, ..final_of(&page) }), "the last one is as of 77"),
        (Order::TableIn(TableIn { page: Vec::new().into(), is_final: false, ..final_of(&page) }), "was pruned"),
        (Order::GatesIn(GatesIn { gates: vec![1].into(), ..gates_of(LEFT) }), "cohorts need 3"),
        (
            Order::GatesOut(GatesOut { topic: TOPIC, partition: LEFT, number: NUMBER, records: 3, partitions: None }),
            "ask again",
        ),
    ] {
        let refused = merge.world.ordered(order).unwrap_err();
        assert!(refused.contains(why), "{refused}");
        assert_eq!(merge.world.engine.state_bytes(), before, "{why}");
    }
    let shape = Shape { level: LAYOUT_LEVEL - 1, ..Shape::default() };
    let mut older = World::new(4, shape);
    let epoch = older.epoch;
    let refused = older.ordered(table_in(PARTITION, epoch, LEFT, &page, false)).unwrap_err();
    assert!(refused.contains("layout changes need 2"), "{refused}");
}

fn final_of(page: &TablePage) -> TableIn {
    let Order::TableIn(order) = table_in(CHILD, NUMBER, LEFT, page, true) else { unreachable!("made above") };
    order
}

fn gates_of(source: u64) -> GatesIn {
    GatesIn { topic: TOPIC, partition: CHILD, number: NUMBER, source, gates: Vec::new().into() }
}

#[cfg_attr(not(feature = "planted"), test)]
fn named_producers_that_do_not_fit_fail_the_order_and_others_are_left_out() {
    let mut merge = Merge::new(5, TableLimits { entries: 8, ..ROOMY });
    for id in 1..=8 {
        merge.stored(LEFT, (id, 1), 0, 1);
    }
    merge.open(CHILD, NUMBER);
    let pages = merge.pages(LEFT, 0);
    let mut left_out = 0;
    for page in &pages {
        match merge.take(LEFT, page, false) {
            Ok(Finished::Inherited { left_out: more, .. }) => left_out += more,
            other => panic!("{other:?}"),
        }
    }
    assert_eq!(left_out, 2, "three quarters of eight are for producers without a name");
    for id in 100..=107 {
        let order = Order::OpenProducer {
            topic: TOPIC,
            partition: RIGHT,
            producer_id: id,
            producer_epoch: 50,
            previous_epoch: 0,
            name: b"P".to_vec(),
        };
        merge.world.ordered(order).unwrap();
    }
    for page in &merge.pages(RIGHT, 0) {
        assert!(matches!(merge.take(RIGHT, page, false), Ok(Finished::Inherited { left_out: 0, .. })));
    }
    let mut again = Merge::new(6, ROOMY);
    for id in 200..=220 {
        let order = Order::OpenProducer {
            topic: TOPIC,
            partition: RIGHT,
            producer_id: id,
            producer_epoch: 50,
            previous_epoch: 0,
            name: b"P".to_vec(),
        };
        again.world.ordered(order).unwrap();
    }
    let page = again.pages(RIGHT, 0).remove(0);
    let before = merge.world.engine.state_bytes();
    match merge.take(RIGHT, &page, false) {
        Ok(Finished::TableFull(why)) => assert!(why.contains("8 in 1048576 fit a partition"), "{why}"),
        other => panic!("{other:?}"),
    }
    assert_eq!(merge.world.engine.state_bytes(), before);
}

#[cfg_attr(not(feature = "planted"), test)]
pub fn what_a_source_forgot_is_told_by_its_child() {
    let mut merge = Merge::new(7, TableLimits { expiry_ms: 1_000, ..ROOMY });
    merge.stored(LEFT, (5, 40), 0, 1);
    merge.world.pass(5_000);
    merge.stored(LEFT, (6, 41), 0, 1);
    for _ in 0..20 {
        merge.world.pass(20);
    }
    merge.open(CHILD, NUMBER);
    merge.inherit_rest([0; 2]);
    merge.install(&[CHILD], &[LEFT, RIGHT]);
    let reply = merge.send(CHILD, (5, 40), 0, 1);
    assert_eq!(reply.header.code, Code::Forgotten as u16, "what it stored may be in the source: {reply:?}");
    merge.stored(CHILD, (7, 42), 0, 1);
}

/// As an operator's choice leaves it: open, named by the table, and without any page.
fn forced(seed: u64) -> Merge {
    let mut merge = Merge::new(seed, ROOMY);
    merge.points(LEFT, 100);
    merge.stored(LEFT, (NAMED, 100), 0, 1);
    merge.stored(RIGHT, (5, 40), 0, 1);
    merge.open(CHILD, NUMBER);
    merge.install(&[CHILD], &[LEFT, RIGHT]);
    merge
}

#[cfg_attr(not(feature = "planted"), test)]
pub fn an_owner_that_lacks_a_source_inherits_before_it_takes_rows() {
    let mut merge = forced(8);
    let closed = |merge: &mut Merge| {
        let reply = merge.send(CHILD, (NAMED, 100), 0, 1);
        assert_eq!(reply.header.status, Status::Redirect as u8, "{reply:?}");
        assert_eq!(reply.header.code, RedirectReason::Closed as u16);
        assert!(merge.open_named(CHILD, 300).is_err());
    };
    closed(&mut merge);
    // A newer table, or an order that is repeated, changes nothing of it.
    merge.install(&[CHILD], &[LEFT, RIGHT]);
    closed(&mut merge);
    let records = merge.hold(LEFT);
    merge.give_gates(LEFT, records);
    for page in merge.pages(LEFT, 0) {
        merge.take(LEFT, &page, !page.more).unwrap();
    }
    closed(&mut merge);
    merge.world.ordered(pruned(RIGHT)).unwrap();
    assert_eq!(merge.points(CHILD, 600), [(0, 32_767, LEFT, 1)]);
    merge.stored(CHILD, (NAMED, 600), 0, 2);
}

#[cfg_attr(not(feature = "planted"), test)]
pub fn what_a_pruned_source_had_counts_as_forgotten() {
    let mut merge = forced(9);
    for source in [LEFT, RIGHT] {
        merge.world.ordered(pruned(source)).unwrap();
    }
    let reply = merge.send(CHILD, (5, 40), 0, 1);
    assert_eq!(reply.header.code, Code::Forgotten as u16, "it is stored in the source that is gone: {reply:?}");
    let forgotten = merge.world.ordered(open_named(CHILD, 600, 100));
    assert_eq!(forgotten, Ok(Finished::ProducerForgotten), "the name may have rows there");
    merge.stored(CHILD, (6, NUMBER + 1), 0, 1);
}

#[cfg_attr(not(feature = "planted"), test)]
fn a_close_while_a_source_is_missing_stays_a_close() {
    let mut merge = forced(10);
    merge.world.ordered(Order::Close { topic: TOPIC, partition: CHILD }).unwrap();
    for source in [LEFT, RIGHT] {
        merge.world.ordered(pruned(source)).unwrap();
    }
    assert!(merge.open_named(CHILD, 600).unwrap_err().contains("not open here"));
}

#[cfg_attr(not(feature = "planted"), test)]
fn a_sealed_table_gives_its_memory_back_when_nobody_can_ask_and_children_still_inherit() {
    let mut merge = Merge::new(14, ROOMY);
    for id in 1..=5 {
        for sequence in 0..70 {
            merge.stored(LEFT, (id, 7), sequence, sequence + 1);
        }
    }
    assert!(merge.points(LEFT, 100).is_empty());
    merge.stored(LEFT, (NAMED, 100), 0, 1);
    merge.hold(LEFT);
    let sealed_ms = merge.world.now.unix_ms;
    merge.seal(LEFT, sealed_ms);
    let (full, pages) = (merge.world.engine.partition_bytes_max(), merge.pages(LEFT, 0));
    merge.world.pass(1_199_000);
    let repeated = merge.send(LEFT, (5, 7), 69, 70);
    assert_eq!(repeated.header.status, Status::Ok as u8, "a deadline may still run: {repeated:?}");
    merge.world.pass(1_000);
    merge.world.pass(20);
    assert!(merge.world.engine.partition_bytes_max() < full / 2);
    let is_unknown = |reply: &Reply| {
        let told = (reply.header.status, reply.header.code, reply.header.sequence);
        assert_eq!(told, (Status::Redirect as u8, RedirectReason::Sealed as u16, u64::MAX), "{reply:?}");
    };
    is_unknown(&merge.send(LEFT, (5, 7), 69, 70));
    is_unknown(&merge.send(LEFT, (5, 7), 70, 71));
    let resolve = RequestHeader {
        partition: LEFT,
        producer_id: 5,
        layout_version: merge.version,
        ..merge.world.request(Opcode::Resolve)
    };
    is_unknown(&merge.world.ask(&resolve, &[]));
    assert_eq!(merge.pages(LEFT, 0), pages);
}
