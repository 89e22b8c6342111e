//! The listening sockets of the native transport, and what a process without free descriptors does.

use std::io;
use std::os::fd::OwnedFd;
use std::time::Duration;

use rustix::event::epoll::{self, EventData, EventFlags};
use rustix::io::Errno;
use rustix::net::{SocketFlags, accept_with, sockopt};

use crate::address::Listener;

/// Marks a listener's data in epoll; the low bits are its number.
pub const LISTENER: u64 = 1 << 63;

/// Rest for the listeners when the process has no descriptor left.
const NO_DESCRIPTOR_REST_MS: u64 = 100;
/// Silence after which the kernel asks a TCP peer; it gives up 11 minutes later (its defaults of 9 times 75 s).
const KEEPALIVE_IDLE: Duration = Duration::from_secs(60);

/// What one `accept` came to.
pub enum Accepted {
    Socket(OwnedFd),
    /// That one connection was gone again.
    Lost,
    /// No more for now.
    Nothing,
}

#[derive(Default)]
pub struct Listeners {
    list: Vec<Listener>,
    /// 0: not resting.
    rest_until_ms: u64,
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

    /// Take one connection from the listener that epoll named by `data`.
    pub fn accept(&mut self, epoll: &OwnedFd, data: u64, now_ms: u64) -> Accepted {
        let number = usize::try_from(data & !LISTENER).expect("few listeners");
        let Some(listener) = self.list.get(number) else { return Accepted::Nothing };
        let socket = match accept_with(&listener.socket, SocketFlags::CLOEXEC | SocketFlags::NONBLOCK) {
            Ok(socket) => socket,
            Err(Errno::MFILE | Errno::NFILE | Errno::NOBUFS | Errno::NOMEM) => {
                // Without descriptors an accept fails for ever, and a level-triggered listener would spin.
                self.rest_until_ms = now_ms + NO_DESCRIPTOR_REST_MS;
                self.watch(epoll, EventFlags::empty());
                return Accepted::Nothing;
            }
            Err(Errno::AGAIN) => return Accepted::Nothing,
            Err(_) => return Accepted::Lost,
        };
        if listener.is_tcp {
            let _only_slower = sockopt::set_tcp_nodelay(&socket, true);
            // Peers of ZMTP 3.0 know no PING: the kernel finds out whether they are still there.
            let _found_out_later = sockopt::set_socket_keepalive(&socket, true)
                .and_then(|()| sockopt::set_tcp_keepidle(&socket, KEEPALIVE_IDLE));
        }
        Accepted::Socket(socket)
    }

    /// Time has passed: listen again after a rest.
    pub fn tick(&mut self, epoll: &OwnedFd, now_ms: u64) {
        if self.rest_until_ms != 0 && now_ms >= self.rest_until_ms {
            self.rest_until_ms = 0;
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
