//! The listening sockets of the native transport, with a pause when the process has no free descriptors.

use std::io;
use std::os::fd::OwnedFd;
use std::time::Duration;

use rustix::event::epoll::{self, EventData, EventFlags};
use rustix::io::Errno;
use rustix::net::{SocketFlags, accept_with, sockopt};

use crate::address::Listener;

/// Marks a listener in epoll's data; the low bits are its number.
pub const LISTENER: u64 = 1 << 63;

/// Pause of the listeners when the process has no free descriptor.
const NO_DESCRIPTOR_PAUSE_MS: u64 = 100;
/// Silence after which the kernel probes a TCP peer; it closes the connection 11 minutes later (9 times 75 s by
/// default).
const KEEPALIVE_IDLE: Duration = Duration::from_secs(60);

/// The result of one `accept`.
pub enum AcceptOutcome {
    Socket(OwnedFd),
    /// The connection was already closed.
    Lost,
    /// No connection for now.
    Empty,
}

#[derive(Default)]
pub struct Listeners {
    list: Vec<Listener>,
    /// Set during a pause.
    paused_until_ms: Option<u64>,
}

impl Listeners {
    /// Listen on `address`; returns it with the real port.
    pub fn bind(&mut self, epoll: &OwnedFd, address: &str) -> io::Result<String> {
        let listener = Listener::bind(address)?;
        let data = EventData::new_u64(LISTENER | self.list.len() as u64);
        epoll::add(epoll, &listener.socket, data, EventFlags::IN)?;
        let address = listener.address.clone();
        self.list.push(listener);
        Ok(address)
    }

    /// Accept one connection from the listener in epoll's `data`.
    pub fn accept(&mut self, epoll: &OwnedFd, data: u64, now_ms: u64) -> AcceptOutcome {
        let number = usize::try_from(data & !LISTENER).expect("few listeners");
        let Some(listener) = self.list.get(number) else { return AcceptOutcome::Empty };
        let socket = match accept_with(&listener.socket, SocketFlags::CLOEXEC | SocketFlags::NONBLOCK) {
            Ok(socket) => socket,
            Err(Errno::MFILE | Errno::NFILE | Errno::NOBUFS | Errno::NOMEM) => {
                // Without free descriptors every accept fails, and a level-triggered listener would spin.
                self.paused_until_ms = Some(now_ms + NO_DESCRIPTOR_PAUSE_MS);
                self.watch(epoll, EventFlags::empty());
                return AcceptOutcome::Empty;
            }
            Err(Errno::AGAIN) => return AcceptOutcome::Empty,
            Err(_) => return AcceptOutcome::Lost,
        };
        if listener.is_tcp {
            let _only_slower = sockopt::set_tcp_nodelay(&socket, true);
            // Peers of ZMTP 3.0 have no PING: the kernel checks whether they are alive.
            let _found_out_later = sockopt::set_socket_keepalive(&socket, true)
                .and_then(|()| sockopt::set_tcp_keepidle(&socket, KEEPALIVE_IDLE));
        }
        AcceptOutcome::Socket(socket)
    }

    /// Listen again after a pause.
    pub fn tick(&mut self, epoll: &OwnedFd, now_ms: u64) {
        if self.paused_until_ms.is_some_and(|until_ms| now_ms >= until_ms) {
            self.paused_until_ms = None;
            self.watch(epoll, EventFlags::IN);
        }
    }

    fn watch(&self, epoll: &OwnedFd, flags: EventFlags) {
        for (number, listener) in self.list.iter().enumerate() {
            let data = EventData::new_u64(LISTENER | number as u64);
            let _same_as_before = epoll::modify(epoll, &listener.socket, data, flags);
        }
    }

    /// Stop listening.
    pub fn close(&mut self) {
        self.list.clear();
    }
}
