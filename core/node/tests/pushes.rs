//! Who is told of a changed table, when, and what counts as held.

use std::collections::BTreeMap;

use crate::support::{PARTITION, Reply, Shape, TOPIC, World, schema};
use ringfence_log::faulty::SeededRandom;
use ringfence_node::{Event, Lineage, Order, TablePartition};
use ringfence_transport::{Connection, Inbound};
use ringfence_wire::{ANSWER_FLAG_CONTROL, Code, Opcode, RequestHeader, Status};

pub const OTHER: u64 = 8;
const ONE: Connection = Connection(11);
const TWO: Connection = Connection(12);

/// {"name": .., "generation": .., "version": ..}, and loads if there are any.
pub fn body(name: &str, generation: u64, version: u64, load: Option<u8>) -> Vec<u8> {
    let mut out = vec![if load.is_some() { 0x84 } else { 0x83 }];
    out.extend_from_slice(b"\xA4name\xD9");
    out.push(u8::try_from(name.len()).unwrap());
    out.extend_from_slice(name.as_bytes());
    for (field, value) in [(&b"\xAAgeneration\xCF"[..], generation), (b"\xA7version\xCF", version)] {
        out.extend_from_slice(field);
        out.extend_from_slice(&value.to_be_bytes());
    }
    if let Some(load) = load {
        out.extend_from_slice(&[&b"\xA5loads\x81\x01"[..], &[load]].concat());
    }
    out
}

fn name_of(topic: u64) -> String {
    format!("public/default/t{topic}")
}

pub fn install(world: &mut World, topic: u64, generation: u64, version: u64) {
    install_with(world, topic, generation, version, None);
}

fn install_with(world: &mut World, topic: u64, generation: u64, version: u64, load: Option<u8>) {
    let (schemas, key_columns) = (vec![schema()], vec![]);
    world.ordered(Order::InstallTopic { topic, schemas, key_columns, retention_bytes: 0, retention_ms: 0 }).unwrap();
    let entry = TablePartition { partition: PARTITION * topic, lo: 0, hi: u16::MAX, owner: 1, epoch: 1 };
    world
        .ordered(Order::InstallTable {
            topic,
            generation,
            version,
            table: body(&name_of(topic), generation, version, load),
            partitions: vec![entry],
            redirect: vec![0x80],
            redirects: vec![],
            lineage: Lineage::default(),
        })
        .unwrap();
}

/// Nothing of the world's own topic; both topics at generation 100, version 1; these connections are open.
pub fn world_of(connections: &[Connection]) -> World {
    let mut world = World::new(1, Shape::default());
    for topic in [TOPIC, OTHER] {
        install(&mut world, topic, 100, 1);
    }
    world.event(Event::SetGeneration(100));
    for connection in connections {
        world.event(Event::Opened(*connection));
    }
    world.answers.clear();
    world
}

pub fn send(world: &mut World, from: Connection, header: &RequestHeader, body: &[u8]) {
    let sealed = header.seal();
    world.event(Event::Request { connection: from, header: &sealed, body: Inbound::Small(body) });
    settle(world);
}

/// Until nobody is to be told any more.
pub fn settle(world: &mut World) {
    world.run();
    while world.engine.wants_settle_at() == Some(0) {
        world.run();
    }
}

fn table(world: &mut World, from: Connection, topic: u64, held: u64, version: u64) -> RequestHeader {
    let header =
        RequestHeader { topic, sequence: held, layout_version: version, partition: 0, ..world.request(Opcode::Table) };
    send(world, from, &header, &[]);
    header
}

fn asked(world: &mut World, from: Connection, topic: u64, held: u64) -> Reply {
    let header = table(world, from, topic, held, 0);
    world.answer_to(header.request_id)
}

pub fn acknowledge(world: &mut World, from: Connection, topic: u64, generation: u64) {
    let header = RequestHeader { topic, sequence: generation, ..world.request(Opcode::TableAck) };
    send(world, from, &header, &[]);
}

/// (connection, generation of the header, version) of all frames that went out since the last call.
fn frames(world: &mut World) -> Vec<(u64, u64, u64)> {
    let told = std::mem::take(&mut world.answers);
    told.iter().map(|reply| (reply.to.0, reply.header.generation, reply.header.layout_version)).collect()
}

fn floor(world: &World, topic: u64) -> Option<u64> {
    world.engine.adopted(&[topic], world.now).first().map(|(_, floor)| *floor)
}

#[cfg_attr(not(feature = "planted"), test)]
pub fn connections_that_do_not_use_a_topic_get_no_frame_of_its_changes() {
    let mut world = world_of(&[ONE, TWO]);
    asked(&mut world, ONE, TOPIC, 0);
    asked(&mut world, TWO, OTHER, 0);
    acknowledge(&mut world, ONE, TOPIC, 100);
    frames(&mut world);
    for index in 101..=200 {
        // Entries of other topics, ticks, beats of loads, and tables that say the same as before.
        install(&mut world, 9 + index % 3, index, index);
        install_with(&mut world, OTHER, index, 1, Some(u8::try_from(index % 100).unwrap()));
        install(&mut world, TOPIC, index, 1);
        world.event(Event::SetGeneration(index));
        world.pass(600);
        settle(&mut world);
    }
    assert_eq!(frames(&mut world), [], "nobody's routing has changed");
    install(&mut world, TOPIC, 201, 2);
    settle(&mut world);
    assert_eq!(frames(&mut world), [(ONE.0, 201, 2)]);
    assert_eq!((world.counter("pushes"), world.counter("watch_updates")), (1, 0));
}

#[cfg_attr(not(feature = "planted"), test)]
pub fn one_table_is_on_its_way_and_the_newest_follows() {
    let mut world = world_of(&[ONE]);
    asked(&mut world, ONE, TOPIC, 0);
    acknowledge(&mut world, ONE, TOPIC, 100);
    for version in 2..=6 {
        install(&mut world, TOPIC, 100 + version, version);
        settle(&mut world);
    }
    assert_eq!(frames(&mut world), [(ONE.0, 102, 2)], "one at a time");
    assert_eq!(world.counter("pushes_replaced"), 3);
    acknowledge(&mut world, ONE, TOPIC, 101);
    assert_eq!(frames(&mut world), [], "of an older one");
    acknowledge(&mut world, ONE, TOPIC, 102);
    assert_eq!(frames(&mut world), [(ONE.0, 106, 6)], "the newest, once");
    install(&mut world, TOPIC, 107, 7);
    world.pass(999);
    settle(&mut world);
    assert_eq!(frames(&mut world), []);
    world.pass(1);
    settle(&mut world);
    assert_eq!(frames(&mut world), [(ONE.0, 107, 7)], "it never acknowledges");
    acknowledge(&mut world, ONE, TOPIC, 107);
    world.pass(5_000);
    settle(&mut world);
    assert_eq!(frames(&mut world), [], "nothing twice");
}

#[cfg_attr(not(feature = "planted"), test)]
pub fn a_table_that_is_held_is_not_sent_again() {
    let mut world = world_of(&[ONE]);
    world.event(Event::SetGeneration(140));
    let held = asked(&mut world, ONE, TOPIC, 100);
    assert_eq!((held.header.status, held.header.flags, held.body.len()), (Status::Ok as u8, 0, 0));
    assert_eq!((held.header.generation, held.header.layout_version, held.header.sequence), (140, 1, 100));
    install(&mut world, TOPIC, 141, 2);
    settle(&mut world);
    assert_eq!(frames(&mut world), [], "the answer is on its way");
    acknowledge(&mut world, ONE, TOPIC, 140);
    assert_eq!(frames(&mut world), [(ONE.0, 141, 2)], "it follows the topic");
    let older = asked(&mut world, ONE, TOPIC, 140);
    assert_eq!((older.header.flags, older.body), (ANSWER_FLAG_CONTROL, body(&name_of(TOPIC), 141, 2, None)));
    install_with(&mut world, TOPIC, 142, 2, Some(7));
    let loads = asked(&mut world, ONE, TOPIC, 142);
    assert_eq!(loads.body, body(&name_of(TOPIC), 142, 2, Some(7)), "loads are no content, and are wanted");
    assert_eq!(world.counter("tables_unchanged"), 1);
}

#[cfg_attr(not(feature = "planted"), test)]
pub fn a_table_is_given_as_of_an_entry_when_all_of_its_tables_are_there() {
    let mut world = world_of(&[ONE]);
    // Entry 110 changes both topics; one of them is installed.
    install(&mut world, OTHER, 110, 2);
    assert_eq!(asked(&mut world, ONE, TOPIC, 0).header.generation, 100);
    assert_eq!(asked(&mut world, ONE, OTHER, 0).header.generation, 110);
    acknowledge(&mut world, ONE, TOPIC, 110);
    assert_eq!(floor(&world, TOPIC), Some(100), "it counts up to what is known here");
    install(&mut world, TOPIC, 110, 2);
    settle(&mut world);
    let push = world.answers.pop().unwrap();
    assert_eq!((push.header.topic, push.header.generation), (TOPIC, 110));
    assert_eq!(push.body, body(&name_of(TOPIC), 110, 2, None));
    world.event(Event::SetGeneration(115));
    let same = asked(&mut world, ONE, TOPIC, 110);
    assert_eq!((same.header.generation, same.body.len()), (115, 0), "entries without a table count as well");
}

#[cfg_attr(not(feature = "planted"), test)]
pub fn what_clients_hold_is_the_oldest_table_of_any_follower() {
    let mut world = world_of(&[ONE, TWO]);
    assert_eq!(floor(&world, TOPIC), None, "nobody follows");
    asked(&mut world, ONE, TOPIC, 0);
    assert_eq!(floor(&world, TOPIC), Some(0), "its first table is on its way");
    acknowledge(&mut world, ONE, TOPIC, 100);
    asked(&mut world, TWO, TOPIC, 0);
    acknowledge(&mut world, TWO, TOPIC, 100);
    world.event(Event::SetGeneration(180));
    assert_eq!(floor(&world, TOPIC), Some(180), "entries of other topics leave nobody behind");
    install(&mut world, TOPIC, 181, 2);
    settle(&mut world);
    acknowledge(&mut world, ONE, TOPIC, 181);
    assert_eq!(floor(&world, TOPIC), Some(100), "the other one has the old table");
    acknowledge(&mut world, TWO, TOPIC, u64::MAX);
    assert_eq!(floor(&world, TOPIC), Some(181), "it has a newer one, from another node");
    acknowledge(&mut world, TWO, TOPIC, 3);
    assert_eq!(floor(&world, TOPIC), Some(181), "an acknowledgement lowers nothing");
    acknowledge(&mut world, TWO, OTHER, 100);
    acknowledge(&mut world, TWO, 999, 100);
    assert_eq!((floor(&world, OTHER), floor(&world, 999)), (None, None), "it never asked for them");
    world.event(Event::Closed(ONE));
    world.event(Event::Closed(TWO));
    assert_eq!(floor(&world, TOPIC), None);
}

#[test]
fn a_table_waits_for_the_version_that_it_needs() {
    let mut world = world_of(&[ONE]);
    let header = table(&mut world, ONE, TOPIC, 0, 3);
    assert_eq!(frames(&mut world), []);
    install(&mut world, TOPIC, 101, 2);
    settle(&mut world);
    assert_eq!(frames(&mut world), [], "not yet");
    install(&mut world, TOPIC, 102, 3);
    settle(&mut world);
    let answer = world.answer_to(header.request_id);
    assert_eq!((answer.header.status, answer.header.layout_version), (Status::Ok as u8, 3));
    let late = RequestHeader { topic: TOPIC, layout_version: 9, deadline_ms: 50, ..world.request(Opcode::Table) };
    send(&mut world, ONE, &late, &[]);
    world.pass(60);
    let refused = world.answer_to(late.request_id).header;
    assert_eq!((refused.status, refused.code), (Status::Refused as u8, Code::Ahead as u16));
    let unknown = table(&mut world, ONE, 999, 0, 3);
    assert_eq!(world.answer_to(unknown.request_id).header.code, Code::UnknownTopic as u16);
    let parked = table(&mut world, ONE, TOPIC, 0, 10);
    world.ordered(Order::RemoveTopic { topic: TOPIC }).unwrap();
    assert_eq!(world.answer_to(parked.request_id).header.code, Code::UnknownTopic as u16);
}

#[test]
fn many_followers_are_told_between_other_work() {
    let all: Vec<Connection> = (1_000..1_200).map(Connection).collect();
    let mut world = world_of(&all);
    for connection in &all {
        asked(&mut world, *connection, TOPIC, 0);
        acknowledge(&mut world, *connection, TOPIC, 100);
    }
    world.answers.clear();
    install(&mut world, TOPIC, 101, 2);
    let first = frames(&mut world).len();
    assert!((1..=64).contains(&first), "{first}");
    world.event(Event::Closed(all[150]));
    install(&mut world, TOPIC, 102, 3);
    settle(&mut world);
    let mut told = frames(&mut world);
    assert_eq!(told.len(), 199 - first, "those that were told have one on its way");
    told.retain(|(_, _, version)| *version == 2);
    world.pass(1_000);
    settle(&mut world);
    let newest = frames(&mut world);
    assert_eq!(newest.len(), first + told.len(), "nobody gets the newest twice");
    assert!(newest.iter().all(|(_, _, version)| *version == 3), "nor an old one");
}

/// What a client of the walk holds, and what is on its way to it.
#[derive(Default)]
struct Client {
    held: BTreeMap<u64, u64>,
    /// Newest version of which it has a table.
    tables: BTreeMap<u64, u64>,
    /// Newest version that it was given.
    given: BTreeMap<u64, u64>,
    /// Newest version that it acknowledged.
    acknowledged: BTreeMap<u64, u64>,
    /// When the last frame was sent.
    sent_ms: BTreeMap<u64, u64>,
    /// (topic, generation, version).
    under_way: Vec<(u64, u64, u64)>,
}

/// Any interleaving of changes, questions, acknowledgements and time: no frame to others, one on its way, nothing
/// twice, and in the end everybody has the newest.
#[cfg_attr(not(feature = "planted"), test)]
pub fn a_walk_of_changes_and_acknowledgements_leaves_nobody_behind() {
    for seed in 1..=40 {
        let mut dice = SeededRandom::new(seed);
        let all: Vec<Connection> = (11..15).map(Connection).collect();
        let mut world = world_of(&all);
        let mut clients: BTreeMap<u64, Client> = all.iter().map(|one| (one.0, Client::default())).collect();
        let (mut index, mut content) = (100, BTreeMap::from([(TOPIC, (100, 1)), (OTHER, (100, 1))]));
        for _ in 0..300 {
            let topic = if dice.below(2) == 0 { TOPIC } else { OTHER };
            let one = all[usize::try_from(dice.below(4)).unwrap()];
            match dice.below(10) {
                0..=2 => {
                    index += 1;
                    let version = content[&topic].1 + 1;
                    content.insert(topic, (index, version));
                    install(&mut world, topic, index, version);
                    world.event(Event::SetGeneration(index));
                }
                3 => {
                    index += 1;
                    world.event(Event::SetGeneration(index));
                }
                4..=5 => {
                    let held = clients[&one.0].held.get(&topic).copied().unwrap_or(0);
                    table(&mut world, one, topic, held, 0);
                }
                6..=8 => {
                    let client = clients.get_mut(&one.0).unwrap();
                    if !client.under_way.is_empty() {
                        let (topic, generation, version) = client.under_way.remove(0);
                        let known = client.acknowledged.entry(topic).or_default();
                        *known = version.max(*known);
                        let held = client.held.entry(topic).or_default();
                        *held = generation.max(*held);
                        let held = *held;
                        acknowledge(&mut world, one, topic, held);
                    }
                }
                _ => world.pass(dice.below(400)),
            }
            settle(&mut world);
            take(&mut world, &mut clients, &content);
        }
        world.pass(1_000);
        settle(&mut world);
        take(&mut world, &mut clients, &content);
        for (number, client) in &mut clients {
            for (topic, generation, _) in std::mem::take(&mut client.under_way) {
                let held = client.held.entry(topic).or_default();
                *held = generation.max(*held);
            }
            for (topic, held) in &client.held {
                let newest = content[topic].0;
                assert!(*held >= newest, "seed {seed}: connection {number}, topic {topic}: {held} < {newest}");
                assert_eq!(client.tables[topic], content[topic].1, "seed {seed}: connection {number}, topic {topic}");
            }
        }
    }
}

fn take(world: &mut World, clients: &mut BTreeMap<u64, Client>, content: &BTreeMap<u64, (u64, u64)>) {
    for frame in std::mem::take(&mut world.answers) {
        let client = clients.get_mut(&frame.to.0).expect("an open connection");
        let (topic, header) = (frame.header.topic, frame.header);
        if header.status == Status::Push as u8 {
            assert!(client.held.contains_key(&topic), "it never asked for topic {topic}");
            assert_eq!(header.layout_version, content[&topic].1, "the newest");
            assert!(header.layout_version > client.given[&topic], "nothing is sent twice");
            let known = client.acknowledged.get(&topic).copied().unwrap_or(0);
            let is_busy = client.under_way.iter().any(|(of, _, version)| *of == topic && *version > known);
            assert!(!is_busy || world.now.mono_ms >= client.sent_ms[&topic] + 1_000, "one is on its way");
        }
        if !frame.body.is_empty() {
            client.tables.insert(topic, header.layout_version);
        }
        client.given.insert(topic, header.layout_version);
        client.held.entry(topic).or_default();
        client.sent_ms.insert(topic, world.now.mono_ms);
        client.under_way.push((topic, header.generation, header.layout_version));
    }
}
