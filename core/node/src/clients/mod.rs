//! Client connections: handshake, rights, routing tables, requests that the control plane answers.
//!
//! `client_machine`: state and what an event lends. `handshake`: HELLO, tables, control requests. `evaluate_token`: the
//! rights of a token. `authorize_request`: the check of a request. `token_table`: installed tokens. `connections`: open
//! connections.

pub(crate) mod authorize_request;
pub(crate) mod client_machine;
pub(crate) mod connections;
pub(crate) mod evaluate_token;
pub(crate) mod handshake;
pub(crate) mod token_table;
