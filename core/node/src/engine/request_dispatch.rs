//! Dispatch of client requests: check the header, authorize, route by opcode. And the rights of all connections.

use std::collections::HashSet;

use ringfence_transport::{Connection, Inbound};
use ringfence_wire::{Code, Opcode, REQUEST_FLAG_COHORT, REQUEST_FLAG_REOPEN, RequestHeader};

use crate::api::access_table::AccessTable;
use crate::api::deadline::patience_ms;
use crate::api::refusal::Refusal;
use crate::clients::authorize_request::Authorizer;
use crate::engine::Parts;
use crate::ingest::parked::{OwnedBody, Parked, bytes_of};
use crate::replication::replication_machine::ReplicationMachine;
use crate::settings::COHORT_LEVEL;
use crate::turn::Turn;

/// Flags of a member's FETCH.
const MEMBER_FLAGS: u16 = REQUEST_FLAG_COHORT | REQUEST_FLAG_REOPEN;

impl Parts {
    pub(crate) fn request(&mut self, from: Connection, bytes: &[u8; 128], body: Inbound<'_>, turn: &mut Turn<'_>) {
        turn.counters.requests += 1;
        let header = match RequestHeader::open(bytes) {
            Ok(header) => header,
            Err(error) => {
                // Its request id may be garbage, too; echoed, it helps a sender that got only one field wrong.
                let header = RequestHeader::read(bytes);
                return self.store.refuse(from, &header, &Refusal::new(error.code(), error.to_string()), turn);
            }
        };
        if self.store.is_stopping() {
            let refusal = Refusal::new(Code::Stopping, "the node is going down; send to another or wait");
            return self.store.refuse(from, &header, &refusal, turn);
        }
        let Some(opcode) = Opcode::from_number(header.opcode) else {
            let refusal = Refusal::new(Code::UnknownOpcode, format!("no opcode {}", header.opcode));
            return self.store.refuse(from, &header, &refusal, turn);
        };
        if let Err(refusal) = self.clients().check_right(from, opcode, &header) {
            return self.store.refuse(from, &header, &refusal, turn);
        }
        if opcode.right().is_some() {
            self.clients().heard(from);
        }
        match opcode {
            Opcode::Publish | Opcode::Stage => {
                turn.counters.publishes += 1;
                self.ingest().publish(from, &header, body, turn);
            }
            Opcode::Fetch if u16::from(header.flags) & MEMBER_FLAGS != 0 => {
                self.member_request(from, Opcode::Fetch, &header, &[], turn);
            }
            Opcode::Attach | Opcode::MemberBeat | Opcode::Acknowledge => {
                self.member_request(from, opcode, &header, bytes_of(&body), turn);
            }
            Opcode::Fetch => self.reads().fetch(from, &header, turn),
            Opcode::EndOffsets => self.reads().end_offsets(from, &header, turn),
            Opcode::OffsetForTime => self.reads().offset_for_time(from, &header, turn),
            Opcode::Resolve => self.reads().resolve(from, &header, turn),
            Opcode::StagedList => self.reads().staged_list(from, &header, bytes_of(&body), turn),
            Opcode::Replicate => {
                ReplicationMachine { store: &mut self.store, replication: &mut self.replication }.replicate(
                    from,
                    &header,
                    body,
                    &mut self.parked,
                    turn,
                );
            }
            Opcode::Copy => self.maintenance().copy_request(from, &header, turn),
            Opcode::Fence => self.replication().fence_request(from, &header, turn),
            Opcode::Hello => self.clients().hello(from, &header, bytes_of(&body), turn),
            Opcode::Table => {
                let deadline_ms = turn.now.mono_ms.saturating_add(patience_ms(&header));
                self.table(Parked { connection: from, header, body: OwnedBody::of(body), deadline_ms }, turn);
            }
            Opcode::TableAck => self.clients().table_ack(from, &header, turn),
            Opcode::WatchOpen => self.clients().watch_open(from, &header, bytes_of(&body), turn),
            Opcode::WatchClose => self.clients().watch_close(from, &header, bytes_of(&body), turn),
            _ => self.other(from, opcode, &header, bytes_of(&body), turn),
        }
    }

    /// Requests of members of cohorts.
    fn member_request(
        &mut self,
        from: Connection,
        opcode: Opcode,
        header: &RequestHeader,
        body: &[u8],
        turn: &mut Turn<'_>,
    ) {
        if self.store.settings.level < COHORT_LEVEL {
            let what = if opcode == Opcode::Fetch { "FETCH of a member" } else { opcode.name() };
            let refusal = Refusal::new(Code::NotSupported, format!("this version does not serve {what}"));
            return self.store.refuse(from, header, &refusal, turn);
        }
        if opcode == Opcode::Fetch
            && let Err(refusal) = self.clients().check_right(from, Opcode::Attach, header)
        {
            return self.store.refuse(from, header, &refusal, turn);
        }
        match opcode {
            Opcode::Fetch => self.members().member_fetch(from, header, turn),
            Opcode::Attach => self.members().attach(from, header, body, turn),
            Opcode::MemberBeat => self.members().beat(from, header, body, turn),
            _ => self.members().acknowledge(from, header, body, turn),
        }
    }

    /// Requests for the control plane, and those that this version does not serve.
    fn other(&mut self, from: Connection, opcode: Opcode, header: &RequestHeader, body: &[u8], turn: &mut Turn<'_>) {
        let refusal = match opcode {
            Opcode::TopicCreate
            | Opcode::TopicList
            | Opcode::TopicDescribe
            | Opcode::TopicTruncate
            | Opcode::TopicDelete
            | Opcode::SchemaAdd
            | Opcode::ProducerOpen
            | Opcode::Begin
            | Opcode::Commit
            | Opcode::Expire
            | Opcode::LayoutChange
            | Opcode::LayoutDescribe
            | Opcode::Join
            | Opcode::Leave
            | Opcode::CohortCreate
            | Opcode::CohortDescribe
            | Opcode::CohortList
            | Opcode::CohortChange
            | Opcode::CohortSeek
            | Opcode::CohortDelete
            | Opcode::CohortEvict
            | Opcode::CohortParked
            | Opcode::Status => return self.clients().control_request(from, header, body, turn),
            Opcode::TablePush | Opcode::WatchUpdate | Opcode::Assign => {
                Refusal::new(Code::UnknownOpcode, format!("{} is sent by nodes only", opcode.name()))
            }
            _ => Refusal::new(Code::NotSupported, format!("this version does not serve {}", opcode.name())),
        };
        self.store.refuse(from, header, &refusal, turn);
    }

    pub(crate) fn set_access(&mut self, table: AccessTable, turn: &mut Turn<'_>) {
        let is_new = self.clients.access.install(table);
        self.evaluate_all(turn);
        if is_new {
            for node in self.replication.peers.nodes_up() {
                self.introduce(node, turn);
            }
        }
    }

    /// A token that has expired ends on open connections, too.
    pub(crate) fn expire_tokens(&mut self, turn: &mut Turn<'_>) {
        if self.clients.access.is_due(turn.now.unix_ms) {
            self.evaluate_all(turn);
        }
    }

    /// Evaluate the rights of all connections again, and refuse waiting requests whose right is gone.
    fn evaluate_all(&mut self, turn: &mut Turn<'_>) {
        self.clients.evaluate_all(turn.now.unix_ms);
        for connection in self.clients.connections.all() {
            let standing = self.clients.standing(connection);
            turn.effects.standings.push((connection, standing));
        }
        if !self.clients.access.is_asked() {
            return;
        }
        let authorizer = Authorizer::new(&self.clients, &self.store.topics);
        let refusal = |from, header: &RequestHeader| authorizer.check_header(from, header).err();
        let mut over = self.reads.headers_where(|from, header| refusal(from, header).is_some());
        for queue in self.parked.stalled.iter_mut().chain([&mut self.parked.ahead]) {
            let taken = queue.take_where(|parked| refusal(parked.connection, &parked.header).is_some());
            over.extend(taken.into_iter().map(|parked| (parked.connection, parked.header)));
        }
        let followed = self.clients.connections.followed();
        let unseen =
            followed.into_iter().filter(|(from, topic)| authorizer.check(*from, Opcode::Table, *topic).is_err());
        for (connection, topic) in unseen.collect::<Vec<_>>() {
            self.clients.connections.forget(connection, topic);
        }
        let named: HashSet<(u64, u64)> = over.iter().map(|(from, header)| (from.0, header.request_id)).collect();
        self.forget_fetches(|from, header| named.contains(&(from.0, header.request_id)));
        for (connection, header) in over {
            if let Err(refusal) = self.clients().authorizer().check_header(connection, &header) {
                self.store.refuse(connection, &header, &refusal, turn);
            }
        }
    }

    /// Of those that wait for rows, for blocks or for repairs.
    pub(crate) fn forget_fetches(&mut self, which: impl Fn(Connection, &RequestHeader) -> bool) {
        self.reads().forget_fetches(&which);
        self.maintenance().forget_held(|fetch| which(fetch.connection, &fetch.header));
    }

    /// Identify this node to another one, before the first request to it.
    pub(crate) fn introduce(&mut self, node: u64, turn: &mut Turn<'_>) {
        let credential = self.clients.access.credential();
        if !credential.is_empty() {
            self.replication.peers.hello(node, credential, turn);
        }
    }
}
