//! Three nodes with their disks, joined by wires that deliver in order, break, and lose what was on them. The control
//! plane is the test: it draws epochs, fences, opens.

use std::collections::{BTreeMap, VecDeque};

use ringfence_log::faulty::{FaultyDisk, SeededRandom};
use ringfence_node::{
    Config, Finished, Lineage, Now, Order, Outcome, PartitionStatus, Place, Stepped, TablePartition, ToPeer,
};
use ringfence_wire::{AnswerHeader, ExtensionKind, Opcode, RequestHeader, Status, crc_of, extension};

use crate::support::{PARTITION, TOPIC, body_of, install_topic, table_body};

pub const NODES: usize = 3;
pub const CLIENT: u64 = 1;
/// Connections from this number on are those of nodes.
const PEERS: u64 = 100;

/// What is on its way from one node to another; `None` as header: the connection's end.
type Wire = VecDeque<([u8; 128], Vec<u8>)>;

pub struct Site {
    pub node: Stepped,
    pub disk: FaultyDisk,
    pub up: bool,
}

/// One batch that a client sent.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Batch {
    pub first: i64,
    pub rows: u32,
}

pub struct Cluster {
    pub sites: Vec<Site>,
    pub random: SeededRandom,
    pub now: Now,
    pub epoch: u64,
    /// As FOLLOW names it.
    pub forced: u64,
    pub owner: usize,
    /// Requests from one node to another, by (from, to); present while the connection stands.
    wires: BTreeMap<(usize, usize), (u64, Wire)>,
    /// Answers on their way back, by (from, to) of the connection.
    backs: BTreeMap<(usize, usize), Wire>,
    next_connection: u64,
    pub next_request: u64,
    /// Sequence -> what was sent; a client sends again what was not acknowledged.
    pub sent: BTreeMap<u64, Batch>,
    /// Sequence -> offset.
    pub acked: BTreeMap<u64, u64>,
    /// Request -> sequence.
    requests: BTreeMap<u64, u64>,
    next_id: i64,
    /// Answers to anything but a publish, by request.
    pub others: BTreeMap<u64, AnswerHeader>,
    /// Refusals by code.
    pub refused: BTreeMap<u16, u32>,
    /// Answers to what was asked besides publishing.
    pub told: Vec<AnswerHeader>,
    /// Answers to other clients.
    pub replies: Vec<(AnswerHeader, Vec<u8>)>,
    pub outcomes: Vec<(usize, Outcome)>,
    pub is_open: bool,
    /// Batches carry a note.
    pub with_notes: bool,
    /// A node closes the connection on which a larger body comes, by site; and how often each did.
    pub takes_bytes: [usize; NODES],
    pub closed: [u32; NODES],
}

pub fn store_of(site: usize) -> [u8; 16] {
    [u8::try_from(site + 1).unwrap(); 16]
}

pub fn config_of(site: usize, scrub_bytes_per_s: u64) -> Config {
    Config {
        cluster: [1; 16],
        history: [2; 16],
        store: store_of(site),
        node: site as u64 + 1,
        budget_bytes: 8 << 20,
        segment_bytes: 256 << 10,
        message_bytes: 1 << 20,
        reserve_bytes: 0,
        scrub_bytes_per_s,
        ..Config::new("simulated".into())
    }
}

impl Cluster {
    pub fn new(seed: u64) -> Self {
        Self::scrubbing(seed, 0)
    }

    /// Each node reads its log back at this pace.
    pub fn scrubbing(seed: u64, bytes_per_s: u64) -> Self {
        Self::of(seed, |at| config_of(at, bytes_per_s))
    }

    pub fn of(seed: u64, config: impl Fn(usize) -> Config) -> Self {
        let site = |at: usize| {
            let disk = FaultyDisk::new(seed * 10 + at as u64);
            Site { node: Stepped::new(config(at), disk.clone()).unwrap(), disk, up: false }
        };
        let mut cluster = Self {
            sites: (0..NODES).map(site).collect(),
            random: SeededRandom::new(seed),
            now: Now { unix_ms: 1_000_000, mono_ms: 1_000 },
            epoch: 0,
            forced: 0,
            owner: 0,
            wires: BTreeMap::new(),
            backs: BTreeMap::new(),
            next_connection: PEERS,
            next_request: 1,
            sent: BTreeMap::new(),
            acked: BTreeMap::new(),
            requests: BTreeMap::new(),
            next_id: 0,
            others: BTreeMap::new(),
            refused: BTreeMap::new(),
            told: Vec::new(),
            replies: Vec::new(),
            outcomes: Vec::new(),
            is_open: false,
            with_notes: false,
            takes_bytes: [usize::MAX; NODES],
            closed: [0; NODES],
        };
        for at in 0..NODES {
            cluster.start(at);
        }
        cluster
    }

    /// The process starts; it knows the topic and where the others are.
    pub fn start(&mut self, at: usize) {
        let now = self.now;
        let site = &mut self.sites[at];
        site.node.recover(now, None).unwrap();
        site.up = true;
        site.node.connect(CLIENT).unwrap();
        // Orders are counted anew in each run.
        self.outcomes.retain(|(who, _)| *who != at);
        self.order(at, install_topic(&[]));
        for other in (0..NODES).filter(|other| *other != at) {
            self.order(at, Order::SetPeer { node: other as u64 + 1, addresses: vec!["there".into()] });
        }
        if self.epoch > 0 {
            self.tell_table(at);
            if at != self.owner {
                self.follow(at);
            }
        }
    }

    /// Another store, empty, in the place of a node that is down.
    pub fn wipe(&mut self, at: usize) {
        let disk = FaultyDisk::new(at as u64 + 1_000);
        let config = Config { store: [99; 16], ..config_of(at, 0) };
        self.sites[at] = Site { node: Stepped::new(config, disk.clone()).unwrap(), disk, up: false };
    }

    /// The power goes; what was not synced is torn, lost, or there.
    pub fn power_cut(&mut self, at: usize) {
        self.sites[at].node.crash();
        self.sites[at].disk.crash();
        self.sites[at].up = false;
        self.is_open &= at != self.owner;
        for other in 0..NODES {
            self.cut(at, other);
            self.cut(other, at);
        }
    }

    pub fn order(&mut self, at: usize, order: Order) -> u64 {
        self.sites[at].node.order(order).unwrap()
    }

    pub fn tell_table(&mut self, at: usize) {
        let owner = self.owner as u64 + 1;
        let entry = TablePartition { partition: PARTITION, lo: 0, hi: u16::MAX, owner, epoch: self.epoch };
        let generation = self.epoch * 10;
        self.order(
            at,
            Order::InstallTable {
                topic: TOPIC,
                generation,
                version: 1,
                table: table_body(generation, 1),
                partitions: vec![entry],
                redirect: vec![0x80],
                redirects: vec![],
                lineage: Lineage::default(),
            },
        );
    }

    pub fn follow(&mut self, at: usize) {
        let (epoch, owner, forced) = (self.epoch, self.owner as u64 + 1, self.forced);
        self.order(at, Order::Follow { topic: TOPIC, partition: PARTITION, lo: 0, hi: u16::MAX, epoch, owner, forced });
    }

    /// A new epoch for this owner: everybody that is up is told.
    pub fn open(&mut self, owner: usize) -> u64 {
        self.open_told_to(owner, &[0, 1, 2])
    }

    /// As `open`, but others than the owner hear of it only if they are `told`.
    pub fn open_told_to(&mut self, owner: usize, told: &[usize]) -> u64 {
        self.epoch += 1;
        (self.owner, self.is_open) = (owner, false);
        let others = (0..NODES).filter(|at| *at != owner);
        let replicas = others.map(|at| Place { node: at as u64 + 1, store: store_of(at) }).collect();
        let epoch = self.epoch;
        let mut opening = 0;
        for at in 0..NODES {
            if !self.sites[at].up || (at != owner && !told.contains(&at)) {
                continue;
            }
            self.tell_table(at);
            if at == owner {
                let (replicas, quorum) = (Vec::clone(&replicas), 2);
                let order =
                    Order::Open { topic: TOPIC, partition: PARTITION, lo: 0, hi: u16::MAX, epoch, replicas, quorum };
                opening = self.order(at, order);
            } else {
                self.follow(at);
            }
        }
        opening
    }

    /// Fence a majority, take the one with the greatest (epoch, end), open it there. False if too few are up.
    pub fn fail_over(&mut self) -> bool {
        let up: Vec<usize> = (0..NODES).filter(|at| self.sites[*at].up).collect();
        if up.len() < 2 {
            return false;
        }
        self.epoch += 1;
        let mut ends = Vec::new();
        for at in up.into_iter().take(2 + usize::from(self.random.chance(1, 2))) {
            let number = self.order(at, Order::Fence { topic: TOPIC, partition: PARTITION, epoch: self.epoch });
            for _ in 0..20 {
                self.work(at);
            }
            self.collect(at);
            let found = self.outcomes.iter().find_map(|(who, outcome)| match outcome {
                Outcome::Order { number: n, result } if *who == at && *n == number => Some(result.clone()),
                _ => None,
            });
            match found {
                Some(Ok(Finished::Fenced { epoch, records, .. })) => ends.push((epoch, records, at)),
                other => panic!("a fence of node {at} ended as {other:?}"),
            }
        }
        if std::env::var("TALK").is_ok() {
            println!("epoch {}: fenced {ends:?}, acked {}", self.epoch, self.acked.len());
        }
        let (_, _, best) = ends.into_iter().max().unwrap();
        self.open(best);
        true
    }

    pub fn status(&self, at: usize) -> Option<PartitionStatus> {
        self.sites[at].node.partitions().into_iter().find(|status| status.partition == PARTITION)
    }

    /// Writers and readers of one node end what they do.
    pub fn work(&mut self, at: usize) {
        if !self.sites[at].up {
            return;
        }
        let node = &mut self.sites[at].node;
        node.turn().unwrap();
        let (shards, tickets) = node.jobs().unwrap();
        for shard in shards {
            node.run_job(shard, None).unwrap();
        }
        for ticket in tickets {
            node.run_read(ticket).unwrap();
        }
    }

    /// The node's writers work until it has fenced its log, and its readers not at all: it says where the log ends and
    /// cannot cut it.
    pub fn fence_only(&mut self, at: usize) {
        if !self.sites[at].up {
            return;
        }
        self.sites[at].node.turn().unwrap();
        for shard in self.sites[at].node.jobs().unwrap().0 {
            self.sites[at].node.run_job(shard, None).unwrap();
        }
        self.collect(at);
    }

    /// What a node wants of others, answers and outcomes go on their ways.
    pub fn collect(&mut self, at: usize) {
        if !self.sites[at].up {
            return;
        }
        for wanted in self.sites[at].node.take_peers().unwrap() {
            match wanted {
                ToPeer::Connect { node, .. } => self.connect(at, usize::try_from(node).unwrap() - 1),
                ToPeer::Send { node, header, body } => {
                    if let Some((_, wire)) = self.wires.get_mut(&(at, usize::try_from(node).unwrap() - 1)) {
                        wire.push_back((header, body.bytes().to_vec()));
                    }
                }
                ToPeer::Close { node } => self.cut(at, usize::try_from(node).unwrap() - 1),
            }
        }
        for answer in self.sites[at].node.take_answers().unwrap() {
            let (to, body) = (answer.connection.0, answer.body.bytes().to_vec());
            if to == CLIENT {
                self.answered(&answer.header);
                continue;
            }
            if to < PEERS {
                self.replies.push((AnswerHeader::open(&answer.header).unwrap(), body));
                continue;
            }
            let found = self.wires.iter().find(|((_, there), (number, _))| *there == at && *number == to);
            if let Some((way, _)) = found {
                self.backs.entry(*way).or_default().push_back((answer.header, body));
            }
        }
        while let Some(outcome) = self.sites[at].node.poll(1).pop() {
            if let Outcome::Order { result: Ok(Finished::Opened { .. }), .. } = &outcome
                && at == self.owner
            {
                self.is_open = true;
            }
            self.outcomes.push((at, outcome));
        }
        self.sites[at].node.check().unwrap();
    }

    fn connect(&mut self, from: usize, to: usize) {
        if !self.sites[to].up {
            return self.sites[from].node.peer_closed(to as u64 + 1).unwrap();
        }
        self.next_connection += 1;
        let connection = self.next_connection;
        self.sites[to].node.connect(connection).unwrap();
        self.wires.insert((from, to), (connection, Wire::new()));
        self.sites[from].node.peer_opened(to as u64 + 1).unwrap();
    }

    /// The connection breaks; what is on it is lost.
    pub fn cut(&mut self, from: usize, to: usize) {
        let Some((connection, _)) = self.wires.remove(&(from, to)) else { return };
        self.backs.remove(&(from, to));
        if self.sites[to].up {
            self.sites[to].node.disconnect(connection).unwrap();
        }
        if self.sites[from].up {
            self.sites[from].node.peer_closed(to as u64 + 1).unwrap();
        }
    }

    pub fn is_silent(&self) -> bool {
        self.wires.values().all(|(_, wire)| wire.is_empty()) && self.backs.values().all(VecDeque::is_empty)
    }

    /// Deliver one message of one connection, there or back.
    pub fn deliver(&mut self) -> bool {
        let ways: Vec<(usize, usize)> = self.wires.keys().copied().collect();
        if ways.is_empty() {
            return false;
        }
        let way = ways[usize::try_from(self.random.below(ways.len() as u64)).unwrap()];
        let (from, to) = way;
        if self.random.chance(1, 2) {
            let Some((header, body)) = self.backs.get_mut(&way).and_then(VecDeque::pop_front) else { return false };
            self.sites[from].node.peer_answer(to as u64 + 1, &header, &body).unwrap();
            self.collect(from);
        } else {
            let Some((connection, wire)) = self.wires.get_mut(&way) else { return false };
            let connection = *connection;
            let Some((header, body)) = wire.pop_front() else { return false };
            if body.len() > self.takes_bytes[to] {
                self.closed[to] += 1;
                self.cut(from, to);
                return true;
            }
            if !self.sites[to].node.request(connection, &header, &body).unwrap() {
                let (_, wire) = self.wires.get_mut(&way).unwrap();
                wire.push_front((header, body));
            }
            self.collect(to);
        }
        true
    }

    pub fn pass(&mut self, ms: u64) {
        self.now.mono_ms += ms;
        self.now.unix_ms += ms;
        for at in 0..NODES {
            if self.sites[at].up {
                let now = self.now;
                self.sites[at].node.tick(now).unwrap();
                self.collect(at);
            }
        }
    }

    /// Send the next batch, or with `again` the oldest that was not acknowledged and all behind it.
    pub fn publish(&mut self, rows: u32) {
        let sequence = self.sent.len() as u64;
        let waiting = self.sent.range(self.first_open()..).count();
        if waiting >= 40 {
            return self.publish_again();
        }
        self.sent.insert(sequence, Batch { first: self.next_id, rows });
        self.next_id += i64::from(rows);
        self.send(sequence);
    }

    pub fn first_open(&self) -> u64 {
        (0..=u64::MAX).find(|sequence| !self.acked.contains_key(sequence)).unwrap()
    }

    pub fn publish_again(&mut self) {
        for sequence in self.first_open()..self.sent.len() as u64 {
            self.send(sequence);
        }
    }

    pub fn send(&mut self, sequence: u64) {
        let owner = self.owner;
        if !self.sites[owner].up {
            return;
        }
        let Batch { first, rows } = self.sent[&sequence];
        let mut body = Vec::new();
        if self.with_notes {
            extension::write(&mut body, &[(ExtensionKind::Note, format!("batch {sequence}").as_bytes())]);
        }
        let extension_bytes = u32::try_from(body.len()).unwrap();
        body.extend_from_slice(&body_of(first, i64::from(rows)));
        self.next_request += 1;
        let header = RequestHeader {
            opcode: Opcode::Publish as u8,
            request_id: self.next_request,
            topic: TOPIC,
            partition: PARTITION,
            layout_version: 1,
            owner_epoch: self.epoch,
            producer_id: 77,
            producer_epoch: 5,
            sequence,
            send: sequence,
            rows,
            deadline_ms: 3_000,
            extension_bytes,
            body_bytes: u32::try_from(body.len()).unwrap(),
            body_crc: crc_of(&body),
            ..RequestHeader::default()
        };
        self.requests.insert(self.next_request, sequence);
        self.sites[owner].node.request(CLIENT, &header.seal(), &body).unwrap();
        self.collect(owner);
    }

    fn answered(&mut self, bytes: &[u8; 128]) {
        let header = AnswerHeader::open(bytes).unwrap();
        let Some(sequence) = self.requests.remove(&header.request_id) else {
            self.others.insert(header.request_id, header);
            return self.told.push(header);
        };
        if header.status == Status::Ok as u8 {
            let before = self.acked.insert(sequence, header.first_offset);
            let same = before.is_none_or(|offset| offset == header.first_offset);
            assert!(same, "I6: sequence {sequence} at {before:?} and {}", header.first_offset);
        } else {
            *self.refused.entry(header.code).or_default() += 1;
        }
    }

    /// Everything goes well for a while: messages arrive, disks work, time passes.
    pub fn calm(&mut self, rounds: usize) {
        for _ in 0..rounds {
            for at in 0..NODES {
                self.work(at);
                self.collect(at);
            }
            for _ in 0..40 {
                self.deliver();
            }
            self.pass(20);
        }
    }
}
