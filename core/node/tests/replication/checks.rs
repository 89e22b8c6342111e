//! What must hold of the three, whatever happened to them.

use ringfence_wire::{AnswerHeader, Opcode, RequestHeader};

use crate::cluster::{CLIENT, Cluster, NODES};
use crate::support::{PARTITION, TOPIC, records_in};

impl Cluster {
    /// Ask the owner something that has no body.
    pub fn ask(&mut self, opcode: Opcode, sequence: u64, deadline_ms: u32) {
        self.next_request += 1;
        let header = RequestHeader {
            opcode: opcode as u8,
            request_id: self.next_request,
            topic: TOPIC,
            partition: PARTITION,
            sequence,
            deadline_ms,
            ..RequestHeader::default()
        };
        let owner = self.owner;
        self.sites[owner].node.request(CLIENT, &header.seal(), &[]).unwrap();
        self.collect(owner);
    }

    /// The answer to a FETCH at a site, if it gives one by itself.
    pub fn fetch(&mut self, at: usize, offset: u64) -> Option<AnswerHeader> {
        self.next_request += 1;
        let header = RequestHeader {
            opcode: Opcode::Fetch as u8,
            request_id: self.next_request,
            topic: TOPIC,
            partition: PARTITION,
            layout_version: 1,
            sequence: offset,
            ..RequestHeader::default()
        };
        self.sites[at].node.request(CLIENT, &header.seal(), &[]).unwrap();
        for _ in 0..10 {
            self.collect(at);
            self.work(at);
        }
        self.collect(at);
        self.others.remove(&header.request_id)
    }

    /// 0 where the node is down.
    pub fn counter_of(&self, at: usize, wanted: &str) -> u64 {
        if !self.sites[at].up {
            return 0;
        }
        let counters = self.sites[at].node.counters();
        counters.iter().find(|(name, _)| *name == wanted).expect("a counter of that name").1
    }

    /// Ids by offset, as the owner shows them to a reader.
    pub fn read(&mut self) -> Vec<i64> {
        let mut ids = Vec::new();
        let mut offset = 0;
        let end = self.status(self.owner).map_or(0, |told| told.end_offset);
        while offset < end {
            self.next_request += 1;
            let header = RequestHeader {
                opcode: Opcode::Fetch as u8,
                request_id: self.next_request,
                topic: TOPIC,
                partition: PARTITION,
                sequence: offset,
                ..RequestHeader::default()
            };
            let owner = self.owner;
            let node = &mut self.sites[owner].node;
            node.request(CLIENT, &header.seal(), &[]).unwrap();
            let mut answers = Vec::new();
            for _ in 0..10 {
                self.work(owner);
                answers.extend(self.sites[owner].node.take_answers().unwrap());
            }
            let mine = |bytes: &[u8; 128]| AnswerHeader::open(bytes).unwrap().request_id == header.request_id;
            let found = answers.iter().find(|answer| answer.connection.0 == CLIENT && mine(&answer.header));
            let answer = found.expect("a fetch is answered");
            let told = AnswerHeader::open(&answer.header).unwrap();
            assert_eq!((told.status, told.code), (0, 0), "a fetch at the owner");
            let records = records_in(answer.body.bytes());
            assert!(!records.is_empty(), "rows below the mark are shown");
            for (record, _) in records {
                let batch = self.sent[&record.sequence];
                assert_eq!(record.first_offset, ids.len() as u64);
                ids.extend(batch.first..batch.first + i64::from(batch.rows));
                offset = record.first_offset + u64::from(record.rows);
            }
        }
        ids
    }

    /// I5, I6: what was acknowledged is where the answer said, and nothing is there twice.
    pub fn check_rows(&mut self) {
        let ids = self.read();
        let mut unique = ids.clone();
        unique.sort_unstable();
        unique.dedup();
        assert_eq!(unique.len(), ids.len(), "I6: a row is stored twice");
        for (sequence, offset) in &self.acked {
            let batch = self.sent[sequence];
            let place = usize::try_from(*offset).unwrap();
            let found = ids.get(place..place + batch.rows as usize);
            let wanted: Vec<i64> = (batch.first..batch.first + i64::from(batch.rows)).collect();
            assert_eq!(found, Some(&wanted[..]), "I5: sequence {sequence}, acknowledged at {offset}, is lost");
        }
    }

    /// I6: replicas whose logs end at one record have one producer table.
    pub fn check_tables(&self) {
        let tables = self.sites.iter().filter(|site| site.up).flat_map(|site| site.node.producer_tables().unwrap());
        let mut known = std::collections::BTreeMap::new();
        for (topic, partition, records, hash) in tables {
            let before = known.insert((topic, partition, records), hash);
            assert!(before.is_none_or(|before| before == hash), "I6: producer tables at record {records} differ");
        }
    }

    /// Heal everything, and see that all three logs are the same.
    pub fn check_equal(&mut self) {
        for at in 0..NODES {
            if !self.sites[at].up {
                self.start(at);
            }
        }
        if !self.is_open || !self.sites[self.owner].node.is_running() {
            self.fail_over();
        }
        self.calm(60);
        let syncs = self.sites[self.owner].node.syncs();
        let statuses: Vec<_> = (0..NODES).map(|at| self.status(at)).collect();
        assert!(self.is_open, "I13: with all three up the owner opens: {syncs:#?} {statuses:#?}");
        self.check_tables();
        self.publish_again();
        self.publish(3);
        self.calm(30);
        self.check_rows();
        self.check_tables();
        let ends: Vec<_> = (0..NODES).map(|at| self.status(at).map(|status| (status.records, status.chain))).collect();
        let syncs = self.sites[self.owner].node.syncs();
        assert!(ends.iter().all(|end| *end == ends[0]), "chains differ: {ends:?} {syncs:#?}");
        assert_eq!(
            self.first_open(),
            self.sent.len() as u64,
            "everything is acknowledged in the end: {:?}",
            self.refused
        );
    }
}
