//! Client connections: handshake, rights, routing tables, requests that the control plane answers.

pub(crate) mod access;
pub(crate) mod connections;
pub(crate) mod handshake;
pub(crate) mod machine;
pub(crate) mod token_table;
