//! Client connections: handshake, rights, routing tables, requests that the control plane answers.
//!
//! `machine`: state and what an event lends. `handshake`: HELLO, tables, control requests. `access`: the check of a
//! request. `token_table`: installed tokens. `connections`: open connections.

pub(crate) mod access;
pub(crate) mod connections;
pub(crate) mod handshake;
pub(crate) mod machine;
pub(crate) mod token_table;
