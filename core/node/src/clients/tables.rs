//! TABLE, its pushes and acknowledgements: who is told of a topic's routing, and when.
//!
//! A topic's *content* is the generation at which its table last changed here. A follower is due while the content that
//! it was given last is older, and it is told once nothing is on its way to it: so it gets the newest, and nothing twice.

use ringfence_transport::{Connection, Outbound};
use ringfence_wire::{ANSWER_FLAG_CONTROL, AnswerHeader, Code, Opcode, RequestHeader, Status};

use crate::api::refusal::Refusal;
use crate::clients::client_machine::ClientMachine;
use crate::clients::watch::CATALOGUE;
use crate::partition::answers::{length, send};
use crate::partition::topic::Routing;
use crate::turn::Turn;

/// Connections that are looked at before other work gets its turn: with tables of 500 KB 32 MB of shared memory are
/// queued, and nothing is copied.
const TOLD_A_TURN: usize = 64;

impl ClientMachine<'_> {
    /// The installed table, byte for byte, or nothing if the client holds it; the connection is told of changes from
    /// now on. False: the client needs a newer version than there is here.
    pub(crate) fn table(&mut self, from: Connection, header: &RequestHeader, turn: &mut Turn<'_>) -> bool {
        let Some(routing) = self.store.topics.get(&header.topic).and_then(|topic| topic.routing.as_ref()) else {
            let refusal = Refusal::new(Code::UnknownTopic, format!("topic {} is not known here", header.topic));
            self.store.refuse(from, header, &refusal, turn);
            return true;
        };
        if header.layout_version > routing.version {
            return false;
        }
        let mut answer = self.store.echo(header);
        answer.status = Status::Ok as u8;
        answer.layout_version = routing.version;
        answer.generation = self.store.generation_of(routing);
        let content = routing.content;
        // Loads are no content, and who asks wants to know them.
        let is_held = header.sequence >= content && !routing.has_loads;
        #[cfg(feature = "planted")]
        let is_held = is_held
            || header.sequence > 0 && ringfence_log::planted::is_on(ringfence_log::planted::Bug::AlwaysUnchanged);
        let body = if is_held {
            turn.counters.tables_unchanged += 1;
            Outbound::Empty
        } else {
            answer.flags = ANSWER_FLAG_CONTROL;
            answer.body_bytes = length(routing.table.len());
            answer.body_crc = routing.table_crc;
            Outbound::Shared(routing.table.clone())
        };
        send(from, answer, body, turn.effects);
        self.clients.connections.follow(from, header.topic);
        if let Some(pace) = self.clients.connections.pace(from, header.topic) {
            pace.give(content, turn.now.mono_ms);
        }
        true
    }

    /// `TABLE_ACK`. Never answered. A client that has a newer table from another node holds what this node has.
    pub(crate) fn table_ack(&mut self, from: Connection, header: &RequestHeader, turn: &mut Turn<'_>) {
        let newest = match self.routing(header.topic) {
            Some(routing) => self.store.generation_of(routing),
            None if header.topic == CATALOGUE => self.store.generation(),
            None => return,
        };
        self.clients.connections.acknowledge(from, header.topic, header.sequence.min(newest));
        self.tell(from, header.topic, turn);
    }

    /// What clients are told of the topic has changed.
    pub(crate) fn content_changed(&mut self, topic: u64) {
        self.clients.due.walk(topic);
    }

    /// Tell those that are due, some of them. The rest waits for the next turn.
    pub(crate) fn tell_due(&mut self, turn: &mut Turn<'_>) {
        let mut left = TOLD_A_TURN;
        while left > 0
            && let Some((topic, from)) = self.clients.due.walks.front().copied()
        {
            let some: Vec<Connection> = self.followers(topic, from).take(left).collect();
            match some.last() {
                Some(last) if some.len() == left => self.clients.due.walks[0].1 = last.0 + 1,
                _ => drop(self.clients.due.walks.pop_front()),
            }
            left -= some.len();
            for connection in some {
                self.tell(connection, topic, turn);
            }
        }
    }

    fn followers(&self, topic: u64, from: u64) -> Box<dyn Iterator<Item = Connection> + '_> {
        #[cfg(feature = "planted")]
        if ringfence_log::planted::is_on(ringfence_log::planted::Bug::PushedToAll) {
            let mut all: Vec<Connection> = self.clients.connections.all();
            all.retain(|one| one.0 >= from);
            all.sort_unstable_by_key(|one| one.0);
            return Box::new(all.into_iter());
        }
        Box::new(self.clients.connections.followers(topic, from))
    }

    /// Tell those again to whom something was on its way for too long.
    pub(crate) fn tell_late(&mut self, turn: &mut Turn<'_>) {
        while let Some((until_ms, connection, topic)) = self.clients.due.later.first().copied()
            && until_ms <= turn.now.mono_ms
        {
            self.clients.due.later.pop_first();
            self.tell(Connection(connection), topic, turn);
        }
    }

    /// Tell the connection what is new of the topic, by table and watches, unless something is on its way.
    pub(crate) fn tell(&mut self, connection: Connection, topic: u64, turn: &mut Turn<'_>) {
        self.push_table(connection, topic, turn);
        self.update_watches(connection, topic, turn);
    }

    fn push_table(&mut self, connection: Connection, topic: u64, turn: &mut Turn<'_>) {
        let Some(routing) = self.store.topics.get(&topic).and_then(|topic| topic.routing.as_ref()) else { return };
        #[cfg(feature = "planted")]
        if ringfence_log::planted::is_on(ringfence_log::planted::Bug::PushedToAll) {
            self.clients.connections.follow(connection, topic);
        }
        let Some(pace) = self.clients.connections.pace(connection, topic) else { return };
        if pace.given >= routing.content {
            return;
        }
        let busy = pace.busy_until(turn.now.mono_ms);
        #[cfg(feature = "planted")]
        let busy = busy.filter(|_| !ringfence_log::planted::is_on(ringfence_log::planted::Bug::PushedAtOnce));
        if let Some(until_ms) = busy {
            #[cfg(feature = "planted")]
            if ringfence_log::planted::is_on(ringfence_log::planted::Bug::PushForgotten) {
                return pace.give(routing.content, turn.now.mono_ms);
            }
            let is_new = self.clients.due.later(until_ms, connection, topic);
            turn.counters.pushes_replaced += u64::from(!is_new);
            return;
        }
        pace.give(routing.content, turn.now.mono_ms);
        let header = self.push_header(Opcode::TablePush, topic, Some(routing));
        let header = AnswerHeader { body_bytes: length(routing.table.len()), body_crc: routing.table_crc, ..header };
        turn.counters.pushes += 1;
        turn.counters.push_bytes += routing.table.len() as u64;
        send(connection, header, Outbound::Shared(routing.table.clone()), turn.effects);
    }

    /// Of a frame that nobody asked for.
    pub(super) fn push_header(&self, opcode: Opcode, topic: u64, routing: Option<&Routing>) -> AnswerHeader {
        AnswerHeader {
            opcode: opcode as u8,
            status: Status::Push as u8,
            topic,
            layout_version: routing.map_or(0, |routing| routing.version),
            generation: routing.map_or(self.store.generation(), |routing| self.store.generation_of(routing)),
            credit_bytes: self.store.credit_bytes(),
            flags: ANSWER_FLAG_CONTROL,
            ..AnswerHeader::default()
        }
    }

    pub(super) fn routing(&self, topic: u64) -> Option<&Routing> {
        self.store.topics.get(&topic).and_then(|topic| topic.routing.as_ref())
    }
}
