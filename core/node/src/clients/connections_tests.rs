use super::*;

fn give(connections: &mut Connections, connection: Connection, content: u64, now_ms: u64) {
    connections.pace(connection, 7).unwrap().give(content, now_ms);
}

#[test]
fn only_followers_are_told_and_counted() {
    let mut connections = Connections::default();
    let (a, b) = (Connection(1), Connection(2));
    connections.opened(a);
    connections.opened(b);
    connections.follow(a, 7);
    connections.follow(a, 7);
    connections.acknowledge(b, 7, 99);
    assert_eq!(connections.followers(7, 0).collect::<Vec<_>>(), [a]);
    assert_eq!(
        (connections.lowest_acknowledged(|_| (13, 20)), connections.never_acknowledged()),
        (None, 0),
        "nothing was sent"
    );
    give(&mut connections, a, 12, 0);
    assert_eq!((connections.lowest_acknowledged(|_| (13, 20)), connections.never_acknowledged()), (None, 1));
    connections.acknowledge(a, 7, 11);
    assert_eq!(connections.lowest_acknowledged(|_| (13, 20)), Some(11));
    assert_eq!(connections.lowest_acknowledged(|_| (11, 20)), Some(20), "it holds what the newest one has");
    connections.closed(a);
    assert_eq!((connections.lowest_acknowledged(|_| (13, 20)), connections.len()), (None, 1));
    assert_eq!(connections.followers(7, 0).count(), 0);
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
        give(&mut connections, connection, 11, 1_000);
    }
    connections.acknowledge(late, 7, 11);
    assert_eq!(connections.floor(7, 11, 20, 1_000), Some(0), "a table is on its way");
    assert_eq!(connections.floor(7, 11, 20, 11_000), Some(20), "one that never acknowledged counts for a time");
    give(&mut connections, holds, 13, 30_000);
    connections.acknowledge(holds, 7, 13);
    assert_eq!(connections.floor(7, 12, 20, 30_000), Some(11), "an older table than that of 12");
    connections.acknowledge(late, 7, 13);
    assert_eq!(connections.floor(7, 12, 20, 30_000), Some(20), "unrelated entries leave nobody behind");
    assert_eq!(connections.floor(8, 12, 20, 30_000), None, "another topic");
    let mut watch = Watch::of_topic([9; 16], 7);
    watch.pace.give(12, 30_000);
    connections.watch(silent, watch);
    assert_eq!(connections.floor(7, 12, 20, 30_000), Some(0), "a watch follows as well");
    connections.unwatch(silent, &[9; 16]);
    connections.closed(holds);
    connections.closed(late);
    assert_eq!(connections.floor(7, 12, 20, 40_000), None);
}

#[test]
fn a_connection_is_found_by_its_topics_until_the_last_of_them_ends() {
    let mut connections = Connections::default();
    let one = Connection(1);
    connections.opened(one);
    connections.watch(one, Watch::of_topic([1; 16], 7));
    connections.watch(one, Watch::of_topic([2; 16], 7));
    connections.unwatch(one, &[1; 16]);
    connections.unwatch(one, &[1; 16]);
    assert_eq!((connections.followers(7, 0).count(), connections.watching()), (1, 1));
    connections.follow(one, 7);
    connections.unwatch(one, &[2; 16]);
    assert_eq!(connections.followers(7, 0).count(), 1);
    connections.forget(one, 7);
    assert_eq!((connections.followers(7, 0).count(), connections.followed().len()), (0, 0));
    assert_eq!((connections.followers(7, 2).count(), connections.watched().len()), (0, 0));
}

#[test]
fn followers_that_never_acknowledge_do_not_hold_the_lowest_generation_down() {
    let mut connections = Connections::default();
    let (acknowledging, silent) = (Connection(1), Connection(2));
    for connection in [acknowledging, silent] {
        connections.opened(connection);
        connections.follow(connection, 7);
        give(&mut connections, connection, 12, 0);
    }
    connections.acknowledge(acknowledging, 7, 12);
    assert_eq!((connections.lowest_acknowledged(|_| (13, 20)), connections.never_acknowledged()), (Some(12), 1));
    connections.acknowledge(silent, 7, 9);
    assert_eq!(
        (connections.lowest_acknowledged(|_| (13, 20)), connections.never_acknowledged()),
        (Some(9), 0),
        "late, not silent"
    );
    connections.closed(silent);
    assert_eq!((connections.lowest_acknowledged(|_| (13, 20)), connections.never_acknowledged()), (Some(12), 0));
}
