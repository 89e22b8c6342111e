//! Open connections: their rights, the routing tables that each asked for, and its watches.

use std::collections::BTreeSet;

use ringfence_routing::IdMap;
use ringfence_transport::Connection;

use crate::clients::pace::Pace;
use crate::clients::token_table::ConnectionRights;
use crate::clients::watch::{Session, Watch};

/// Topics that one connection is told about; more are not remembered (a client's own refresh finds their changes).
const TOPICS_MAX: usize = 1024;

/// Watches of one connection: each is a view or a tool, not a topic of a pipeline.
pub const WATCHES_MAX: usize = 64;

/// A topic that a connection is told about.
#[derive(Debug)]
struct Followed {
    topic: u64,
    pace: Pace,
}

#[derive(Debug, Default)]
struct Peer {
    topics: Vec<Followed>,
    watches: Vec<Watch>,
    rights: ConnectionRights,
    /// What its last HELLO said that it can do.
    features: u64,
    /// It has asked for something that it may ask for: a part of the credit is its own.
    is_heard: bool,
}

#[derive(Debug, Default)]
pub struct Connections {
    peers: IdMap<Peer>,
    /// Connections that follow or watch, by topic: a push does not walk the others. Topic 0: they watch prefixes.
    by_topic: IdMap<BTreeSet<u64>>,
    heard: usize,
}

impl Connections {
    pub fn opened(&mut self, connection: Connection) {
        self.peers.insert(connection.0, Peer::default());
    }

    pub fn closed(&mut self, connection: Connection) {
        let Some(gone) = self.peers.remove(&connection.0) else { return };
        self.heard -= usize::from(gone.is_heard);
        let watched = gone.watches.iter().map(|watch| watch.topic);
        for topic in gone.topics.iter().map(|known| known.topic).chain(watched) {
            self.unlink(connection, topic);
        }
    }

    /// The connection has asked for what it may ask for. True the first time.
    pub fn hear(&mut self, connection: Connection) -> bool {
        if self.heard == self.peers.len() {
            return false;
        }
        let is_new = self.peers.get_mut(&connection.0).is_some_and(|peer| !std::mem::replace(&mut peer.is_heard, true));
        self.heard += usize::from(is_new);
        is_new
    }

    /// Connections that have asked for what they may ask for. Others wait, are silent, or were refused.
    pub fn heard(&self) -> usize {
        self.heard
    }

    /// What the connection may do.
    pub fn rights(&self, connection: Connection) -> ConnectionRights {
        self.peers.get(&connection.0).map(|peer| peer.rights).unwrap_or_default()
    }

    pub fn grant(&mut self, connection: Connection, rights: ConnectionRights) {
        if let Some(peer) = self.peers.get_mut(&connection.0) {
            peer.rights = rights;
        }
    }

    /// What the connection said that it can do: bits of `features` in HELLO.
    pub fn features(&self, connection: Connection) -> u64 {
        self.peers.get(&connection.0).map_or(0, |peer| peer.features)
    }

    pub fn set_features(&mut self, connection: Connection, features: u64) {
        if let Some(peer) = self.peers.get_mut(&connection.0) {
            peer.features = features;
        }
    }

    /// Evaluate the rights of every connection again.
    pub fn evaluate(&mut self, evaluate: impl Fn(ConnectionRights) -> ConnectionRights) {
        for peer in self.peers.values_mut() {
            peer.rights = evaluate(peer.rights);
        }
    }

    pub fn all(&self) -> Vec<Connection> {
        self.peers.keys().map(|id| Connection(*id)).collect()
    }

    /// (connection, topic) of all that are told of changes.
    pub fn followed(&self) -> Vec<(Connection, u64)> {
        let all = self.by_topic.iter();
        all.flat_map(|(topic, found)| found.iter().map(|one| (Connection(*one), *topic))).collect()
    }

    /// The connection is not told of changes of the topic any more.
    pub fn forget(&mut self, connection: Connection, topic: u64) {
        if let Some(peer) = self.peers.get_mut(&connection.0) {
            peer.topics.retain(|known| known.topic != topic);
            peer.watches.retain(|watch| watch.topic != topic);
            self.unlink(connection, topic);
        }
    }

    fn unlink(&mut self, connection: Connection, topic: u64) {
        if let Some(found) = self.by_topic.get_mut(&topic) {
            found.remove(&connection.0);
            if found.is_empty() {
                self.by_topic.remove(&topic);
            }
        }
    }

    /// From now on the connection is told when the topic's table changes.
    pub fn follow(&mut self, connection: Connection, topic: u64) {
        if let Some(peer) = self.peers.get_mut(&connection.0)
            && peer.topics.len() < TOPICS_MAX
            && !peer.topics.iter().any(|known| known.topic == topic)
        {
            peer.topics.push(Followed { topic, pace: Pace::default() });
            self.by_topic.entry(topic).or_default().insert(connection.0);
        }
    }

    /// What the connection was given of the topic's table; `None`: it does not follow it.
    pub fn pace(&mut self, connection: Connection, topic: u64) -> Option<&mut Pace> {
        let peer = self.peers.get_mut(&connection.0)?;
        peer.topics.iter_mut().find(|known| known.topic == topic).map(|known| &mut known.pace)
    }

    /// The connection holds this generation of the topic, in whichever way it was told.
    pub fn acknowledge(&mut self, connection: Connection, topic: u64, generation: u64) {
        if let Some(pace) = self.pace(connection, topic) {
            pace.acknowledge(generation);
        }
        for watch in self.watches(connection).iter_mut().filter(|watch| watch.topic == topic) {
            watch.pace.acknowledge(generation);
        }
    }

    /// Connections from this one on that follow or watch the topic, in their order.
    pub fn followers(&self, topic: u64, from: u64) -> impl Iterator<Item = Connection> {
        self.by_topic.get(&topic).into_iter().flat_map(move |found| found.range(from..)).map(|id| Connection(*id))
    }

    /// Lowest generation that a follower of any topic holds by its own word. A follower that never acknowledged does not
    /// count: a client in another language may never do. `None`: none has acknowledged. `known`: the generation at
    /// which a topic's table last changed, and up to which it is known; who holds the former holds what the latter has.
    pub fn lowest_acknowledged(&self, known: impl Fn(u64) -> (u64, u64)) -> Option<u64> {
        let held = |followed: &Followed| {
            let (content, newest) = known(followed.topic);
            if followed.pace.acknowledged >= content { newest } else { followed.pace.acknowledged }
        };
        self.tables().filter(|followed| followed.pace.acknowledged > 0).map(held).min()
    }

    /// Lowest generation of the topic's table that its followers hold; `None`: none counts. `content` is the
    /// generation at which the table last changed: a follower that holds it holds what the `newest` one has.
    pub fn floor(&self, topic: u64, content: u64, newest: u64, now_ms: u64) -> Option<u64> {
        let paces = self.followers(topic, 0).filter_map(|one| self.peers.get(&one.0)).flat_map(|peer| {
            let followed = peer.topics.iter().filter(|known| known.topic == topic).map(|known| &known.pace);
            followed.chain(peer.watches.iter().filter(|watch| watch.topic == topic).map(|watch| &watch.pace))
        });
        paces.filter_map(|pace| pace.floor(content, newest, now_ms)).min()
    }

    /// Tables that were sent to a follower that never acknowledged one of that topic.
    pub fn never_acknowledged(&self) -> usize {
        self.tables().filter(|known| known.pace.is_silent()).count()
    }

    fn tables(&self) -> impl Iterator<Item = &Followed> {
        self.peers.values().flat_map(|peer| &peer.topics)
    }

    // ---- watches ----

    pub fn watches(&mut self, connection: Connection) -> &mut [Watch] {
        self.peers.get_mut(&connection.0).map_or(&mut [], |peer| &mut peer.watches)
    }

    /// The caller has checked that there is room, and no such session.
    pub fn watch(&mut self, connection: Connection, watch: Watch) {
        if let Some(peer) = self.peers.get_mut(&connection.0) {
            self.by_topic.entry(watch.topic).or_default().insert(connection.0);
            peer.watches.push(watch);
        }
    }

    /// End a watch; without one there is nothing to end.
    pub fn unwatch(&mut self, connection: Connection, session: &Session) {
        let Some(peer) = self.peers.get_mut(&connection.0) else { return };
        let Some(place) = peer.watches.iter().position(|watch| watch.session == *session) else { return };
        let topic = peer.watches.remove(place).topic;
        let is_told = peer.topics.iter().any(|known| known.topic == topic);
        if !is_told && !peer.watches.iter().any(|watch| watch.topic == topic) {
            self.unlink(connection, topic);
        }
    }

    /// Topics that are watched; 0: prefixes.
    pub fn watched(&self) -> BTreeSet<u64> {
        self.peers.values().flat_map(|peer| peer.watches.iter().map(|watch| watch.topic)).collect()
    }

    /// Watches that are open.
    pub fn watching(&self) -> usize {
        self.peers.values().map(|peer| peer.watches.len()).sum()
    }

    pub fn len(&self) -> usize {
        self.peers.len()
    }
}

#[cfg(test)]
#[path = "connections_tests.rs"]
mod tests;
