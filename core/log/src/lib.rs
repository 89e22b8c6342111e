//! The log of one store.
