//! Open connections: their rights, and the routing tables that each asked for.

use ringfence_routing::IdMap;
use ringfence_transport::Connection;

use crate::clients::token_table::ConnectionRights;

/// Topics that one connection is told about; more are not remembered (a client's own refresh finds their changes).
const TOPICS_MAX: usize = 1024;

/// For so long after its first table a connection that acknowledged none counts for `floor`: its first acknowledgement
/// may be on its way. A client that never acknowledges holds nothing up for longer.
const FIRST_ACKNOWLEDGEMENT_MS: u64 = 10_000;

/// A topic that a connection is told about.
#[derive(Debug)]
struct Followed {
    topic: u64,
    /// Newest generation that was sent to the connection.
    given: u64,
    /// Newest generation that the connection acknowledged, 0 = none yet; at most `given`.
    acknowledged: u64,
    /// Monotonic time of the first table that was sent.
    given_ms: u64,
}

#[derive(Debug, Default)]
struct Peer {
    topics: Vec<Followed>,
    rights: ConnectionRights,
    /// What its last HELLO said that it can do.
    features: u64,
    /// It has asked for something that it may ask for: a part of the credit is its own.
    is_heard: bool,
}

#[derive(Debug, Default)]
pub struct Connections {
    peers: IdMap<Peer>,
    heard: usize,
}

impl Connections {
    pub fn opened(&mut self, connection: Connection) {
        self.peers.insert(connection.0, Peer::default());
    }

    pub fn closed(&mut self, connection: Connection) {
        let gone = self.peers.remove(&connection.0);
        self.heard -= usize::from(gone.is_some_and(|peer| peer.is_heard));
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
        let topics = |(id, peer): (&u64, &Peer)| {
            let connection = Connection(*id);
            peer.topics.iter().map(move |known| (connection, known.topic)).collect::<Vec<_>>()
        };
        self.peers.iter().flat_map(topics).collect()
    }

    /// The connection is not told of changes of the topic any more.
    pub fn forget(&mut self, connection: Connection, topic: u64) {
        if let Some(peer) = self.peers.get_mut(&connection.0) {
            peer.topics.retain(|known| known.topic != topic);
        }
    }

    /// From now on the connection is told when the topic's table changes.
    pub fn follow(&mut self, connection: Connection, topic: u64) {
        if let Some(peer) = self.peers.get_mut(&connection.0)
            && peer.topics.len() < TOPICS_MAX
            && !peer.topics.iter().any(|known| known.topic == topic)
        {
            peer.topics.push(Followed { topic, given: 0, acknowledged: 0, given_ms: 0 });
        }
    }

    /// The connection was sent a table of this generation.
    pub fn given(&mut self, connection: Connection, topic: u64, generation: u64, now_ms: u64) {
        if let Some(known) = self.followed_by(connection, topic) {
            if known.given == 0 {
                known.given_ms = now_ms;
            }
            known.given = known.given.max(generation);
        }
    }

    /// The connection holds this generation. Only what it was sent counts (I10): a client that has a newer table from
    /// another node holds this node's as well.
    pub fn acknowledge(&mut self, connection: Connection, topic: u64, generation: u64) {
        if let Some(known) = self.followed_by(connection, topic) {
            known.acknowledged = known.acknowledged.max(generation.min(known.given));
        }
    }

    fn followed_by(&mut self, connection: Connection, topic: u64) -> Option<&mut Followed> {
        self.peers.get_mut(&connection.0)?.topics.iter_mut().find(|known| known.topic == topic)
    }

    /// Connections that follow the topic.
    pub fn followers(&self, topic: u64) -> impl Iterator<Item = Connection> {
        let follows = move |peer: &Peer| peer.topics.iter().any(|known| known.topic == topic);
        self.peers.iter().filter(move |(_, peer)| follows(peer)).map(|(id, _)| Connection(*id))
    }

    /// Lowest generation that a follower of any topic acknowledged. A follower that never acknowledged does not count:
    /// a client in another language may never do. `None`: none has acknowledged.
    pub fn lowest_acknowledged(&self) -> Option<u64> {
        self.tables().map(|known| known.acknowledged).filter(|generation| *generation > 0).min()
    }

    /// Lowest generation of the topic's table that its followers hold; `None`: none counts. `content` is the
    /// generation at which the table last changed: a follower that holds it holds what the `newest` one has.
    pub fn floor(&self, topic: u64, content: u64, newest: u64, now_ms: u64) -> Option<u64> {
        let counts = |known: &&Followed| {
            let is_first = now_ms < known.given_ms + FIRST_ACKNOWLEDGEMENT_MS;
            known.topic == topic && known.given > 0 && (known.acknowledged > 0 || is_first)
        };
        let held = |known: &Followed| if known.acknowledged >= content { newest } else { known.acknowledged };
        self.tables().filter(counts).map(held).min()
    }

    /// Tables that were sent to a follower that never acknowledged one of that topic.
    pub fn never_acknowledged(&self) -> usize {
        self.tables().filter(|known| known.given > 0 && known.acknowledged == 0).count()
    }

    fn tables(&self) -> impl Iterator<Item = &Followed> {
        self.peers.values().flat_map(|peer| &peer.topics)
    }

    pub fn len(&self) -> usize {
        self.peers.len()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn only_followers_are_told_and_counted() {
        let mut connections = Connections::default();
        let (a, b) = (Connection(1), Connection(2));
        connections.opened(a);
        connections.opened(b);
        connections.follow(a, 7);
        connections.follow(a, 7);
        connections.acknowledge(b, 7, 99);
        assert_eq!(connections.followers(7).collect::<Vec<_>>(), [a]);
        assert_eq!(
            (connections.lowest_acknowledged(), connections.never_acknowledged()),
            (None, 0),
            "nothing was sent"
        );
        connections.given(a, 7, 12, 0);
        assert_eq!((connections.lowest_acknowledged(), connections.never_acknowledged()), (None, 1));
        connections.acknowledge(a, 7, 11);
        assert_eq!(connections.lowest_acknowledged(), Some(11));
        connections.acknowledge(a, 7, u64::MAX);
        assert_eq!(connections.lowest_acknowledged(), Some(12), "what was never sent does not count");
        connections.closed(a);
        assert_eq!((connections.lowest_acknowledged(), connections.len()), (None, 1));
    }

    #[test]
    fn the_floor_of_a_topic_is_the_oldest_table_that_a_follower_holds() {
        let mut connections = Connections::default();
        let (holds, late, silent) = (Connection(1), Connection(2), Connection(3));
        for connection in [holds, late, silent] {
            connections.opened(connection);
            connections.follow(connection, 7);
        }
        assert_eq!(connections.floor(7, 12, 20, 0), None, "nothing was sent");
        for connection in [holds, late] {
            connections.given(connection, 7, 11, 1_000);
        }
        connections.acknowledge(late, 7, 11);
        assert_eq!(connections.floor(7, 11, 20, 1_000), Some(0), "a table is on its way");
        assert_eq!(connections.floor(7, 11, 20, 11_000), Some(20), "one that never acknowledged counts for a time");
        connections.given(holds, 7, 13, 30_000);
        connections.acknowledge(holds, 7, 13);
        assert_eq!(connections.floor(7, 12, 20, 30_000), Some(11), "an older table than that of 12");
        connections.given(late, 7, 13, 30_000);
        connections.acknowledge(late, 7, 13);
        assert_eq!(connections.floor(7, 12, 20, 30_000), Some(20), "unrelated entries leave nobody behind");
        connections.given(silent, 7, 13, 30_000);
        connections.given(silent, 7, 14, 39_000);
        assert_eq!(connections.floor(7, 12, 20, 39_999), Some(0));
        assert_eq!(connections.floor(7, 12, 20, 40_000), Some(20), "from its first table on");
        assert_eq!(connections.floor(8, 12, 20, 30_000), None, "another topic");
        connections.closed(holds);
        connections.closed(late);
        assert_eq!(connections.floor(7, 12, 20, 40_000), None);
    }

    #[test]
    fn followers_that_never_acknowledge_do_not_hold_the_lowest_generation_down() {
        let mut connections = Connections::default();
        let (acknowledging, silent) = (Connection(1), Connection(2));
        for connection in [acknowledging, silent] {
            connections.opened(connection);
            connections.follow(connection, 7);
            connections.given(connection, 7, 12, 0);
        }
        connections.acknowledge(acknowledging, 7, 12);
        assert_eq!((connections.lowest_acknowledged(), connections.never_acknowledged()), (Some(12), 1));
        connections.acknowledge(silent, 7, 9);
        assert_eq!(
            (connections.lowest_acknowledged(), connections.never_acknowledged()),
            (Some(9), 0),
            "late, not silent"
        );
        connections.closed(silent);
        assert_eq!((connections.lowest_acknowledged(), connections.never_acknowledged()), (Some(12), 0));
    }
}
