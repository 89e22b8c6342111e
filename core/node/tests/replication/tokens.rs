//! Nodes among each other once a token is asked for: who knows the credential replicates, who does not is refused.

use ringfence_node::{AccessTable, Grant, Secret};
use ringfence_wire::{Code, Right};
use sha2::{Digest, Sha256};

use super::cluster::Cluster;
use super::opened;

fn table(credential: &str, known: &str) -> AccessTable {
    let hash = Sha256::digest(known).into();
    let grant =
        Grant { name: "(nodes)".into(), hash, rights: Right::Node as u8, expires_ms: u64::MAX, prefix: String::new() };
    AccessTable { is_asked: true, grants: vec![grant], credential: Secret(credential.into()) }
}

/// The client may go on: it is let in at the owner by not asking there.
fn tell(cluster: &mut Cluster, at: usize, credential: &str, known: &str) {
    let is_asked = at != cluster.owner;
    let table = AccessTable { is_asked, ..table(credential, known) };
    cluster.sites[at].node.set_access(table).unwrap();
}

fn publish(cluster: &mut Cluster, batches: usize) -> usize {
    let before = cluster.acked.len();
    for _ in 0..batches {
        cluster.publish(3);
        cluster.calm(4);
    }
    cluster.publish_again();
    cluster.calm(10);
    cluster.acked.len() - before
}

#[cfg_attr(not(feature = "planted"), test)]
fn nodes_that_show_the_credential_replicate_and_reconnect_with_it() {
    let mut cluster = opened(11);
    // In whatever order they hear of it; connections stand already.
    for at in [1, 0, 2] {
        tell(&mut cluster, at, "cluster secret", "cluster secret");
        assert_eq!(publish(&mut cluster, 2), 2);
    }
    cluster.check_equal();
    for at in [1, 2] {
        cluster.cut(0, at);
    }
    assert_eq!(publish(&mut cluster, 3), 3, "{:?}", cluster.refused);
    cluster.check_equal();
    // Another one, as when an admin's token is revoked: the owner hears of it first, or last.
    for order in [[0, 1, 2], [2, 1, 0]] {
        let secret = format!("after {order:?}");
        for at in order {
            tell(&mut cluster, at, &secret, &secret);
            cluster.calm(1);
        }
        assert_eq!(publish(&mut cluster, 3), 3, "{order:?} {:?}", cluster.refused);
        cluster.check_equal();
    }
}

#[cfg_attr(not(feature = "planted"), test)]
fn a_stranger_replicates_nothing() {
    let mut cluster = opened(12);
    assert_eq!(publish(&mut cluster, 2), 2);
    for at in [1, 2] {
        tell(&mut cluster, at, "cluster secret", "cluster secret");
    }
    let before: Vec<_> = (1..3).map(|at| cluster.status(at).unwrap().records).collect();
    assert_eq!(publish(&mut cluster, 2), 0, "an owner without the credential is none");
    tell(&mut cluster, 0, "guessed", "guessed");
    assert_eq!(publish(&mut cluster, 1), 0);
    assert_eq!((1..3).map(|at| cluster.status(at).unwrap().records).collect::<Vec<_>>(), before);
    // The batches behind a refused one lack their predecessor.
    let [few, gap] = [Code::TooFewReplicas as u16, Code::SequenceGap as u16];
    assert!(cluster.refused.contains_key(&few), "{:?}", cluster.refused);
    assert!(cluster.refused.keys().all(|code| *code == few || *code == gap), "{:?}", cluster.refused);
    tell(&mut cluster, 0, "cluster secret", "cluster secret");
    cluster.calm(60);
    assert!(publish(&mut cluster, 2) >= 2, "{:?}", cluster.refused);
    cluster.check_equal();
}
