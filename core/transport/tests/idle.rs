//! The memory of an idle connection. It has a binary of its own, because memory is the process's.

mod support;

use std::time::Duration;

use support::client::Client;
use support::{Kind, LIMITS, Server};

/// Resident memory of this process, bytes.
fn resident_bytes() -> usize {
    let pages = std::fs::read_to_string("/proc/self/statm").expect("procfs");
    let pages: usize = pages.split(' ').nth(1).expect("7 fields").parse().expect("a number");
    pages * rustix::param::page_size()
}

/// The figure contains this test's own end of each connection.
#[test]
fn an_idle_connection_costs_little_memory() {
    const CONNECTIONS: usize = 1500;
    let server = Server::with(Kind::Native, LIMITS, "tcp://127.0.0.1:0", 1 << 20);
    let body = vec![1; 30_000];
    let mut clients = Vec::with_capacity(CONNECTIONS);
    Client::connect(&server.address).echo(&body);
    let before = resident_bytes();
    for _ in 0..CONNECTIONS {
        let mut client = Client::connect(&server.address);
        client.echo(&body); // its buffers grow, and must shrink again
        clients.push(client);
    }
    std::thread::sleep(Duration::from_millis(1500));
    server.order(|_| ());
    let each = resident_bytes().saturating_sub(before) / CONNECTIONS;
    assert!(each < 4096, "{each} bytes a connection");
}
