//! Watch sessions: `WATCH_OPEN`, `WATCH_UPDATE`, `WATCH_CLOSE`.
//!
//! A watch is a follower like a connection that asked for a table: paced and acknowledged alike. Its first update comes
//! right after the answer, so a client that was connected elsewhere misses nothing.

use ringfence_transport::{Connection, Outbound};
use ringfence_wire::{Code, Opcode, RequestHeader, Status};

use crate::api::refusal::Refusal;
use crate::clients::catalogue::Update;
use crate::clients::client_machine::ClientMachine;
use crate::clients::connections::WATCHES_MAX;
use crate::clients::handshake::check_control;
use crate::clients::watch::{At, CATALOGUE, Session, Watch};
use crate::codec::watching::{News, Wanted, update};
use crate::partition::answers::{send, send_packed};
use crate::turn::Turn;

/// A plain name stands for one in here, as everywhere (`control/model/names.py`).
const DEFAULT_PREFIX: &str = "public/default/";

impl ClientMachine<'_> {
    pub(crate) fn watch_open(&mut self, from: Connection, header: &RequestHeader, body: &[u8], turn: &mut Turn<'_>) {
        let (watch, held) = match self.check_watch(from, header, body) {
            Ok(found) => found,
            Err(refusal) => return self.store.refuse(from, header, &refusal, turn),
        };
        let topic = watch.topic;
        let mut answer = self.store.echo(header);
        answer.status = Status::Ok as u8;
        answer.topic = topic;
        if let Some(routing) = self.routing(topic) {
            answer.layout_version = routing.version;
            answer.generation = self.store.generation_of(routing);
        }
        send(from, answer, Outbound::Empty, turn.effects);
        let session = watch.session;
        self.clients.connections.watch(from, watch);
        self.first_update(from, &session, held, turn);
    }

    fn check_watch(&mut self, from: Connection, header: &RequestHeader, body: &[u8]) -> Result<(Watch, u64), Refusal> {
        check_control(header, body)?;
        let wanted = Wanted::read(body).map_err(|why| Refusal::new(Code::BadBody, why))?;
        let invalid = |what: &str| Refusal::new(Code::InvalidArgument, what);
        let session = wanted.session.ok_or_else(|| invalid("session: bin of 16 bytes, the client's choice"))?;
        let open = self.clients.connections.watches(from);
        if open.iter().any(|watch| watch.session == session) {
            let what = "this connection has a watch with this session; close it, or choose another session";
            return Err(Refusal::new(Code::AlreadyExists, what));
        }
        if open.len() >= WATCHES_MAX {
            let what = format!("this connection has {WATCHES_MAX} watches, the limit; close one");
            return Err(Refusal::new(Code::Overloaded, what));
        }
        let watch = match (wanted.topic, wanted.prefix) {
            (Some(name), None) => Watch::of_topic(session, self.watched_topic(from, &full(name))?),
            (None, Some(prefix)) => {
                let prefix = if prefix.is_empty() { prefix } else { full(prefix) };
                Watch::of_prefix(session, prefix, self.clients.catalogue.next())
            }
            _ => return Err(invalid("a watch is of one topic or of one prefix: give exactly one of both")),
        };
        Ok((watch, wanted.held))
    }

    fn watched_topic(&self, from: Connection, name: &str) -> Result<u64, Refusal> {
        let shown: String = name.chars().take(255).collect();
        let unknown = || Refusal::new(Code::UnknownTopic, format!("topic {shown:?} is not known here"));
        let topic = self.clients.catalogue.find(name).ok_or_else(unknown)?;
        if self.clients.access.is_asked() {
            self.authorizer().check(from, Opcode::WatchOpen, topic)?;
        }
        Ok(topic)
    }

    /// Always one: with the controller, and with what the client does not hold.
    fn first_update(&mut self, from: Connection, session: &Session, held: u64, turn: &mut Turn<'_>) {
        let known = self.topic_of(from, session).and_then(|topic| self.routing(topic));
        let known = known.map(|routing| (routing.content, self.store.generation_of(routing)));
        let Some(watch) = self.watch_of(from, session) else { return };
        if let Some((content, newest)) = known
            && held >= content
        {
            // It has what there is, by its own word.
            watch.pace.give(content, turn.now.mono_ms);
            watch.pace.acknowledge(held.min(newest));
        }
        self.update_watch(from, session, turn);
    }

    fn watch_of(&mut self, of: Connection, session: &Session) -> Option<&mut Watch> {
        self.clients.connections.watches(of).iter_mut().find(|watch| watch.session == *session)
    }

    fn topic_of(&mut self, of: Connection, session: &Session) -> Option<u64> {
        self.watch_of(of, session).map(|watch| watch.topic)
    }

    pub(crate) fn watch_close(&mut self, from: Connection, header: &RequestHeader, body: &[u8], turn: &mut Turn<'_>) {
        let wanted = check_control(header, body)
            .and_then(|()| Wanted::read(body).map_err(|why| Refusal::new(Code::BadBody, why)));
        match wanted {
            Ok(wanted) => {
                if let Some(session) = wanted.session {
                    self.clients.connections.unwatch(from, &session);
                }
                let mut answer = self.store.echo(header);
                answer.status = Status::Ok as u8;
                send(from, answer, Outbound::Empty, turn.effects);
            }
            Err(refusal) => self.store.refuse(from, header, &refusal, turn),
        }
    }

    /// What is new for the connection's watches of this topic.
    pub(super) fn update_watches(&mut self, connection: Connection, topic: u64, turn: &mut Turn<'_>) {
        let watches = self.clients.connections.watches(connection);
        let sessions: Vec<Session> =
            watches.iter().filter(|watch| watch.topic == topic).map(|watch| watch.session).collect();
        for session in sessions {
            self.update_watch(connection, &session, turn);
        }
    }

    /// Tell one watch what is new, unless something is on its way to it.
    fn update_watch(&mut self, connection: Connection, session: &Session, turn: &mut Turn<'_>) {
        let (newest, now_ms) = (self.clients.controller.number, turn.now.mono_ms);
        let Some(topic) = self.topic_of(connection, session) else { return };
        let content = self.routing(topic).map_or(0, |routing| routing.content);
        let next_change = self.clients.catalogue.next();
        let Some(watch) = self.watch_of(connection, session) else { return };
        let has_news = match &watch.listing {
            None => watch.pace.given < content,
            Some(listing) => listing.at != At::Change(next_change),
        };
        let is_told = watch.controller >= newest;
        if !has_news && is_told {
            return;
        }
        if let Some(until_ms) = watch.pace.busy_until(now_ms) {
            self.clients.due.later(until_ms, connection, topic);
            return;
        }
        watch.controller = newest;
        if topic == CATALOGUE {
            return self.update_catalogue(connection, session, is_told, turn);
        }
        if has_news {
            watch.pace.give(content, now_ms);
        }
        let table = self.routing(topic).filter(|_| has_news).map(|routing| routing.table.clone());
        self.send_update(connection, session, topic, &News { table: table.as_deref(), ..News::default() }, turn);
    }

    fn update_catalogue(&mut self, connection: Connection, session: &Session, is_told: bool, turn: &mut Turn<'_>) {
        let (visible, _) = self.prefix_of(connection);
        let generation = self.store.generation().max(1);
        let clients = &mut *self.clients;
        let watches = clients.connections.watches(connection);
        let Some(watch) = watches.iter_mut().find(|watch| watch.session == *session) else { return };
        let Some(listing) = watch.listing.as_deref_mut() else { return };
        let found = clients.catalogue.update(listing, &visible);
        if found.is_none() && is_told {
            return;
        }
        if found.is_some() {
            watch.pace.give(generation, turn.now.mono_ms);
        }
        let has_lists = found.is_some();
        let Update { topics, gone, is_whole, more } = found.unwrap_or_default();
        let news = News {
            topics: Some(&topics[..]).filter(|_| has_lists),
            gone: Some(&gone[..]).filter(|list| !list.is_empty()),
            whole: is_whole,
            more,
            ..News::default()
        };
        self.send_update(connection, session, CATALOGUE, &news, turn);
        if more {
            // The next page follows the acknowledgement, or a second.
            let until_ms = turn.now.mono_ms + crate::clients::pace::ON_ITS_WAY_MS;
            self.clients.due.later(until_ms, connection, CATALOGUE);
        }
    }

    fn send_update(
        &mut self,
        connection: Connection,
        session: &Session,
        topic: u64,
        news: &News<'_>,
        turn: &mut Turn<'_>,
    ) {
        let header = self.push_header(Opcode::WatchUpdate, topic, self.routing(topic));
        let body = update(session, &self.clients.controller.body, news);
        turn.counters.watch_updates += 1;
        turn.counters.push_bytes += body.len() as u64;
        send_packed(connection, header, body, turn.effects);
    }

    // ---- what changes beside tables ----

    /// The leader of the metadata is another one, or has other addresses.
    pub(crate) fn set_controller(&mut self, body: Box<[u8]>) {
        if self.clients.controller.body == body {
            return;
        }
        self.clients.controller.body = body;
        self.clients.controller.number += 1;
        for topic in self.clients.connections.watched() {
            self.clients.due.walk(topic);
        }
    }

    /// The topic has this name.
    pub(crate) fn named(&mut self, topic: u64, name: &str) {
        if self.clients.catalogue.made(topic, name) {
            self.clients.due.walk(CATALOGUE);
        }
    }

    /// The topic is gone: nobody follows it any more, and each watch is told once.
    pub(crate) fn topic_removed(&mut self, topic: u64, name: &str, turn: &mut Turn<'_>) {
        self.clients.catalogue.deleted(topic, name);
        self.clients.due.walk(CATALOGUE);
        let followers: Vec<Connection> = self.clients.connections.followers(topic, 0).collect();
        for connection in followers {
            let watches = self.clients.connections.watches(connection);
            let sessions: Vec<Session> =
                watches.iter().filter(|watch| watch.topic == topic).map(|watch| watch.session).collect();
            for session in sessions {
                self.send_update(connection, &session, topic, &News { deleted: true, ..News::default() }, turn);
            }
            self.clients.connections.forget(connection, topic);
        }
    }
}

/// The full form of a name or of a prefix of names.
fn full(name: String) -> String {
    if name.contains('/') { name } else { format!("{DEFAULT_PREFIX}{name}") }
}
