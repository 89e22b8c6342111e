//! Three nodes with replicas of one partition, and two members of a cohort, each with a connection to every node.

use ringfence_node::{COHORT_LEVEL, CohortRules, Config, GateProgress, Order};
use ringfence_wire::{AnswerHeader, Opcode, REQUEST_FLAG_COHORT, REQUEST_FLAG_REOPEN, RequestHeader, Status, crc_of};

use crate::cluster::{Cluster, NODES, config_of};
use crate::support::cohorts::{COHORT, ONE, OTHER, STANDS, rule};
use crate::support::{PARTITION, TOPIC};

const CONNECTIONS: [(u64, u64); 2] = [(11, ONE), (12, OTHER)];

pub struct Team {
    pub cluster: Cluster,
    pub rules: CohortRules,
}

fn config(at: usize) -> Config {
    Config { level: COHORT_LEVEL, level_newest: COHORT_LEVEL, ..config_of(at, 0) }
}

impl Team {
    /// 30 rows, opened at the first node; `ONE` is the assignee, both members are attached there.
    pub fn new(seed: u64) -> Self {
        let mut team = Self { cluster: Cluster::of(seed, config), rules: rule(ONE, 1) };
        for at in 0..NODES {
            team.connect(at);
        }
        team.cluster.open(0);
        team.cluster.calm(10);
        team.publish(30);
        let rules = team.rules.clone();
        team.plan(rules);
        team.attach();
        team
    }

    pub fn connect(&mut self, at: usize) {
        for (connection, _) in CONNECTIONS {
            self.cluster.sites[at].node.connect(connection).unwrap();
        }
    }

    pub fn publish(&mut self, rows: u32) {
        let acked = self.cluster.acked.len();
        self.cluster.publish(rows);
        self.cluster.calm(4);
        assert_eq!(self.cluster.acked.len(), acked + 1);
    }

    /// The owner hears of these rules.
    pub fn plan(&mut self, rules: CohortRules) {
        self.rules = rules;
        self.tell_rules(self.cluster.owner);
    }

    pub fn tell_rules(&mut self, at: usize) {
        self.cluster.order(at, Order::InstallCohorts(self.rules.clone()));
        self.cluster.work(at);
        self.cluster.collect(at);
    }

    /// Both members attach at the owner.
    pub fn attach(&mut self) {
        let at = self.cluster.owner;
        for (_, session) in CONNECTIONS {
            let header = RequestHeader { producer_epoch: COHORT, ..self.header(Opcode::Attach, session) };
            let id = self.send(at, header, &[]);
            assert_eq!(self.answer(id).0.status, Status::Ok as u8);
        }
    }

    fn header(&mut self, opcode: Opcode, session: u64) -> RequestHeader {
        self.cluster.next_request += 1;
        RequestHeader {
            opcode: opcode as u8,
            request_id: self.cluster.next_request,
            topic: TOPIC,
            partition: PARTITION,
            producer_id: session,
            deadline_ms: 5_000,
            ..RequestHeader::default()
        }
    }

    fn send(&mut self, at: usize, mut header: RequestHeader, body: &[u8]) -> u64 {
        let connection = CONNECTIONS.iter().find(|one| one.1 == header.producer_id).unwrap().0;
        (header.body_bytes, header.body_crc) = (u32::try_from(body.len()).unwrap(), crc_of(body));
        self.cluster.sites[at].node.request(connection, &header.seal(), body).unwrap();
        self.cluster.collect(at);
        header.request_id
    }

    /// FETCH of a member at the owner; `hold` 0 asks to be let in.
    pub fn fetch(&mut self, session: u64, hold: u64, offset: u64, wait_ms: u32) -> u64 {
        self.fetch_of(self.cluster.owner, PARTITION, session, hold, offset, wait_ms)
    }

    pub fn fetch_of(&mut self, at: usize, partition: u64, session: u64, hold: u64, offset: u64, wait_ms: u32) -> u64 {
        let flags = REQUEST_FLAG_COHORT | if hold == 0 { REQUEST_FLAG_REOPEN } else { 0 };
        let header = RequestHeader {
            flags: u8::try_from(flags).unwrap(),
            partition,
            producer_epoch: hold,
            sequence: offset,
            send: 1 << 20,
            deadline_ms: wait_ms,
            ..self.header(Opcode::Fetch, session)
        };
        self.send(at, header, &[])
    }

    /// (partition, hold, through, epoch, kind).
    pub fn acknowledge(&mut self, at: usize, session: u64, line: [u64; 5]) -> u64 {
        let body: Vec<u8> = line.iter().flat_map(|word| word.to_le_bytes()).collect();
        let header = RequestHeader { partition: 0, ..self.header(Opcode::Acknowledge, session) };
        self.send(at, header, &body)
    }

    pub fn beat(&mut self, at: usize, session: u64, holds: &[(u64, u64)]) -> u64 {
        let body: Vec<u8> =
            holds.iter().flat_map(|(partition, hold)| [*partition, *hold]).flat_map(u64::to_le_bytes).collect();
        let header = RequestHeader { producer_epoch: COHORT, ..self.header(Opcode::MemberBeat, session) };
        self.send(at, header, &body)
    }

    pub fn reply(&mut self, id: u64) -> Option<(AnswerHeader, Vec<u8>)> {
        let at = self.cluster.replies.iter().position(|(header, _)| header.request_id == id)?;
        Some(self.cluster.replies.remove(at))
    }

    /// The answer, once everything goes well for a while.
    pub fn answer(&mut self, id: u64) -> (AnswerHeader, Vec<u8>) {
        for _ in 0..10 {
            if let Some(reply) = self.reply(id) {
                return reply;
            }
            self.cluster.calm(1);
        }
        panic!("request {id} has no answer")
    }

    /// The member is let in, and gets rows: (number of its hold, answer).
    pub fn opened(&mut self, session: u64) -> (u64, AnswerHeader) {
        let id = self.fetch(session, 0, STANDS, 5_000);
        let (header, _) = self.answer(id);
        assert_eq!((header.status, header.code), (0, 0), "{header:?}");
        (header.sequence, header)
    }

    /// Time passes at the node, and no message between nodes arrives anywhere.
    pub fn alone(&mut self, at: usize, ms: u64) {
        for _ in 0..ms / 20 {
            self.cluster.work(at);
            self.cluster.pass(20);
        }
    }

    /// Nothing happens for so long but time.
    pub fn idle(&mut self, ms: u64) {
        for _ in 0..ms / 500 {
            self.cluster.pass(500);
            self.cluster.calm(1);
        }
    }

    pub fn gate(&mut self, at: usize) -> GateProgress {
        self.cluster.sites[at].node.gates()[0]
    }
}
