//! Client connections: handshake, rights, routing tables, requests that the control plane answers.
//!
//! `client_machine`: state and what an event lends. `handshake`: HELLO, control requests. `evaluate_token`: the rights of
//! a token. `authorize_request`: the check of a request. `token_table`: installed tokens. `connections`: open
//! connections, what they follow and watch. `pace`: what a follower was given and acknowledged. `due`: who is to be told. `tables`: TABLE, pushes.
//! `watches`: watch sessions. `watch`: the state of one. `catalogue`: names of topics and their changes.

pub(crate) mod authorize_request;
pub(crate) mod catalogue;
pub(crate) mod client_machine;
pub(crate) mod connections;
pub(crate) mod due;
pub(crate) mod evaluate_token;
pub(crate) mod handshake;
pub(crate) mod pace;
pub(crate) mod tables;
pub(crate) mod token_table;
pub(crate) mod watch;
pub(crate) mod watches;
