//! Bytes to values and back: a little-endian cursor, and the `MessagePack` bodies that the node reads itself.

pub(crate) mod cursor;
pub(crate) mod pack;
pub(crate) mod staging;
pub(crate) mod unpack;
pub(crate) mod watching;
