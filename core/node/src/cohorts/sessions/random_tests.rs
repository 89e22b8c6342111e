//! Random connections of honest members, copies of them, thieves and clients with faults; a plain reference goes along.
//! And each planted fault.

use std::collections::{BTreeMap, BTreeSet};

use ringfence_log::faulty::SeededRandom;
use ringfence_transport::Connection;
use ringfence_wire::Code;
use sha2::{Digest, Sha256};

#[cfg(feature = "planted")]
use super::planted;
use super::refusal::SessionError;
use super::table::{Attach, Attached, HEARD_MS, Sessions};
use crate::api::access_table::Hash;
use crate::api::member_key::MemberKey;
use crate::api::refusal::Refusal;

const STEPS: u64 = 600;
const CLUSTER: [u8; 16] = [9; 16];
const COHORTS: u64 = 2;
const SESSIONS: u64 = 6;
const CONNECTIONS: u64 = 9;

/// RFC 2104, written out: independent of the crate that the product uses.
fn hmac(key: &[u8], text: &[u8]) -> [u8; 32] {
    let pad = |with: u8| -> Vec<u8> { (0..64).map(|index| key.get(index).copied().unwrap_or(0) ^ with).collect() };
    let inner = Sha256::digest([&pad(0x36), text].concat());
    Sha256::digest([pad(0x5c), inner.to_vec()].concat()).into()
}

fn proof(key: &[u8], cluster: [u8; 16], cohort: u64, session: u64, credential: Hash) -> Vec<u8> {
    let text = [b"ringfence member 1".as_slice(), &cluster, &cohort.to_le_bytes(), &session.to_le_bytes(), &credential]
        .concat();
    hmac(key, &text).to_vec()
}

fn credential(token: u64) -> Hash {
    Sha256::digest(token.to_le_bytes()).into()
}

/// One connection of the reference.
#[derive(Clone, Copy, PartialEq)]
struct Link {
    cohort: u64,
    session: u64,
    /// Order of the last ATTACH that was taken.
    attached: u64,
}

struct World {
    random: SeededRandom,
    now_ms: u64,
    sessions: Sessions,
    key: Vec<u8>,
    keys: Vec<Vec<u8>>,
    /// By connection. What each presented in HELLO is `token_of`.
    links: BTreeMap<u64, Link>,
    /// By session: connection and when it was heard.
    owners: BTreeMap<u64, (u64, u64)>,
    attaches: u64,
    taken_over: u64,
    refused: BTreeSet<&'static str>,
}

/// What a connection presented in HELLO; the last one presented nothing.
fn token_of(connection: u64) -> Option<Hash> {
    (connection != CONNECTIONS).then(|| credential(connection % 3))
}

/// Each session is registered in one cohort.
fn cohort_of(session: u64) -> u64 {
    1 + session % COHORTS
}

fn kind(error: SessionError) -> &'static str {
    match error {
        SessionError::ProofSize(_) => "size",
        SessionError::NoProof(_) => "none",
        SessionError::WrongProof(_) => "wrong",
        SessionError::OtherSession { .. } => "other",
        SessionError::Replaced(_) => "replaced",
        SessionError::NotAttached(_) => "not attached",
    }
}

fn same<T: PartialEq + std::fmt::Debug>(what: &str, is: &T, expected: &T) -> Result<(), String> {
    if is == expected { Ok(()) } else { Err(format!("{what}: {is:?}, expected {expected:?}")) }
}

impl World {
    fn new(seed: u64) -> Self {
        Self {
            random: SeededRandom::new(seed),
            now_ms: 1_000_000,
            sessions: Sessions::new(CLUSTER),
            key: Vec::new(),
            keys: Vec::new(),
            links: BTreeMap::new(),
            owners: BTreeMap::new(),
            attaches: 0,
            taken_over: 0,
            refused: BTreeSet::new(),
        }
    }

    fn pick(&mut self, count: u64) -> u64 {
        1 + self.random.below(count)
    }

    /// A proof, and whether it is the right one.
    fn shown(&mut self, connection: u64, session: u64) -> (Vec<u8>, bool) {
        let token = token_of(connection);
        let good = |key: &[u8]| proof(key, CLUSTER, cohort_of(session), session, token.unwrap_or([0; 32]));
        let key = if self.key.is_empty() { vec![1; 32] } else { self.key.clone() };
        let mut made = good(&key);
        let is_good = match self.random.below(16) {
            0 => {
                made = proof(&key, [8; 16], cohort_of(session), session, token.unwrap_or([0; 32]));
                false
            }
            1 => {
                made = proof(&key, CLUSTER, cohort_of(session + 1), session, token.unwrap_or([0; 32]));
                false
            }
            2 => {
                made = proof(&key, CLUSTER, cohort_of(session), session + COHORTS, token.unwrap_or([0; 32]));
                false
            }
            3 => {
                made = proof(&key, CLUSTER, cohort_of(session), session, credential(1 + connection % 3));
                false
            }
            4 => {
                let flipped = usize::try_from(self.random.below(32)).unwrap();
                made[flipped] ^= 1 << self.random.below(8);
                false
            }
            5 => {
                let at = usize::try_from(self.random.below(self.keys.len().max(1) as u64)).unwrap();
                let before = self.keys.get(at).cloned().unwrap_or_default();
                made = good(&before);
                before == self.key && token.is_some()
            }
            6 => {
                made.clear();
                false
            }
            7 => {
                let size = [1, 16, 31, 33, 64, 4096][usize::try_from(self.random.below(6)).unwrap()];
                made = vec![made[0]; size];
                false
            }
            8 => {
                made = vec![0; 32];
                false
            }
            _ => token.is_some(),
        };
        (made, is_good)
    }

    fn expected(&self, connection: u64, session: u64, shown: &[u8], is_good: bool) -> Result<Attached, SessionError> {
        if !matches!(shown.len(), 0 | 32) {
            return Err(SessionError::ProofSize(shown.len()));
        }
        let owner = self.owners.get(&session).map(|(owner, _)| *owner);
        if let Some(link) = self.links.get(&connection) {
            if link.session != session {
                return Err(SessionError::OtherSession { attached: link.session, asked: session });
            }
            if owner.is_some_and(|owner| owner != connection) {
                return Err(SessionError::Replaced(session));
            }
        }
        match (self.key.is_empty(), shown.is_empty(), is_good) {
            (false, true, _) => Err(SessionError::NoProof(session)),
            (false, false, false) => Err(SessionError::WrongProof(session)),
            _ => Ok(match owner {
                None => Attached::New,
                Some(owner) if owner == connection => Attached::Again,
                Some(owner) => Attached::TookOver(Connection(owner)),
            }),
        }
    }

    fn attach(&mut self) -> Result<(), String> {
        let (connection, session) = (self.pick(CONNECTIONS), self.pick(SESSIONS));
        let bound = self.links.get(&connection).map(|link| link.session);
        let session = if self.random.chance(2, 3) { bound.unwrap_or(session) } else { session };
        let (shown, is_good) = self.shown(connection, session);
        let ask = Attach {
            connection: Connection(connection),
            cohort: cohort_of(session),
            session,
            credential: token_of(connection),
            proof: &shown,
        };
        let expected = self.expected(connection, session, &shown, is_good);
        same("attach", &self.sessions.attach(self.now_ms, &ask), &expected)?;
        match expected {
            Ok(attached) => {
                self.attaches += 1;
                self.taken_over += u64::from(matches!(attached, Attached::TookOver(_)));
                self.links.insert(connection, Link { cohort: ask.cohort, session, attached: self.attaches });
                self.owners.insert(session, (connection, self.now_ms));
            }
            Err(error) => {
                self.refused.insert(kind(error));
            }
        }
        Ok(())
    }

    fn acts(&self, connection: u64, session: u64) -> Result<u64, SessionError> {
        let Some(link) = self.links.get(&connection) else { return Err(SessionError::NotAttached(session)) };
        if link.session != session {
            return Err(SessionError::OtherSession { attached: link.session, asked: session });
        }
        match self.owners.get(&session) {
            None => Err(SessionError::NotAttached(session)),
            Some((owner, _)) if *owner == connection => Ok(link.cohort),
            Some(_) => Err(SessionError::Replaced(session)),
        }
    }

    fn beat(&mut self) -> Result<(), String> {
        let (connection, session) = (self.pick(CONNECTIONS), self.pick(SESSIONS));
        let expected = self.acts(connection, session);
        same("beat", &self.sessions.beat(self.now_ms, Connection(connection), session), &expected)?;
        if expected.is_ok() {
            self.owners.insert(session, (connection, self.now_ms));
        }
        expected.err().map(|error| self.refused.insert(kind(error)));
        Ok(())
    }

    fn close(&mut self) -> Result<(), String> {
        let connection = self.pick(CONNECTIONS);
        let link = self.links.remove(&connection);
        let is_owner = |link: &Link| self.owners.get(&link.session).is_some_and(|(owner, _)| *owner == connection);
        let gone = link.filter(is_owner).map(|link| link.session);
        same("detach", &self.sessions.detach(Connection(connection)), &gone)?;
        gone.map(|session| self.owners.remove(&session));
        Ok(())
    }

    fn end(&mut self) -> Result<(), String> {
        let cohort = self.pick(COHORTS);
        let all = (1..=SESSIONS).filter(|session| cohort_of(*session) == cohort).collect::<Vec<_>>();
        let mut registered = Vec::new();
        for session in all {
            if self.random.chance(2, 3) {
                registered.push(session);
            }
        }
        let is_over = |link: &Link| link.cohort == cohort && !registered.contains(&link.session);
        let over = self.links.iter().filter(|(_, link)| is_over(link)).map(|(one, _)| *one).collect::<Vec<_>>();
        let expected = over.iter().map(|one| Connection(*one)).collect::<Vec<_>>();
        same("keep", &self.sessions.keep(cohort, &registered), &expected)?;
        for connection in over {
            self.links.remove(&connection).map(|link| self.owners.remove(&link.session));
        }
        Ok(())
    }

    fn set_key(&mut self) {
        self.keys.push(self.key.clone());
        let byte = u8::try_from(self.random.below(250)).unwrap();
        self.key = if self.random.chance(1, 5) { Vec::new() } else { vec![byte; 32] };
        self.sessions.set_key(MemberKey::read(&self.key).unwrap());
    }

    fn check(&self) -> Result<(), String> {
        let heard = self.owners.iter().filter(|(_, (_, at))| self.now_ms - at <= HEARD_MS);
        same("members", &self.sessions.members(self.now_ms), &heard.map(|(session, _)| *session).collect())?;
        same("bound", &self.sessions.bound(), &self.links.len())?;
        for connection in 1..=CONNECTIONS {
            for session in 1..=SESSIONS {
                let acts = self.sessions.cohort_of(Connection(connection), session);
                same(&format!("connection {connection}, {session}"), &acts, &self.acts(connection, session))?;
            }
        }
        Ok(())
    }

    fn step(&mut self) -> Result<(), String> {
        self.now_ms += self.random.below(2_000);
        match self.random.below(40) {
            0..22 => self.attach(),
            22..34 => self.beat(),
            34..37 => self.close(),
            37 => self.end(),
            38 if self.random.chance(1, 3) => {
                self.set_key();
                Ok(())
            }
            _ => {
                self.now_ms += 4_000;
                Ok(())
            }
        }?;
        self.check()
    }

    fn run(seed: u64) -> Result<Self, String> {
        let mut world = Self::new(seed);
        for step in 0..STEPS {
            world.step().map_err(|why| format!("seed {seed}, step {step}: {why}"))?;
        }
        Ok(world)
    }
}

#[test]
fn sessions_are_those_of_a_plain_reference() {
    let (mut attaches, mut taken_over, mut refused) = (0, 0, BTreeSet::new());
    for seed in 1..=100 {
        let world = World::run(seed).unwrap();
        attaches += world.attaches;
        taken_over += world.taken_over;
        refused.extend(world.refused);
    }
    assert!(attaches > 5_000 && taken_over > 500, "{attaches} attached, {taken_over} taken over");
    assert_eq!(refused, BTreeSet::from(["none", "not attached", "other", "replaced", "size", "wrong"]));
}

#[cfg(feature = "planted")]
#[test]
fn planted_faults_of_sessions_are_found() {
    for &(name, bug) in planted::BUGS {
        planted::plant(Some(bug));
        let found = (1..=20).find_map(|seed| World::run(seed).err());
        planted::plant(None);
        assert!(found.is_some(), "{name} was not found");
    }
}

#[test]
fn refusals_have_codes_that_say_what_to_do() {
    let codes = [
        (SessionError::ProofSize(5), Code::InvalidArgument),
        (SessionError::NoProof(7), Code::Unauthorized),
        (SessionError::WrongProof(7), Code::Unauthorized),
        (SessionError::OtherSession { attached: 7, asked: 8 }, Code::InvalidArgument),
        (SessionError::Replaced(7), Code::FencedMember),
        (SessionError::NotAttached(7), Code::FencedMember),
    ];
    for (error, code) in codes {
        let refusal = Refusal::from(error);
        assert_eq!((refusal.code, refusal.message), (code, error.to_string()));
    }
    let moved = Refusal::from(SessionError::Replaced(7));
    assert_eq!(moved.details, [("session", 7), ("moved", 1)]);
}
