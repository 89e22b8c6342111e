//! How long a request may wait.

use ringfence_wire::{DEADLINE_MS_MAX, RequestHeader};

/// What a request without a deadline gets: `deadline_ms` 0 means "the node's default (30 s)" (docs/protocol.md).
const DEADLINE_MS_DEFAULT: u64 = 30_000;

/// How long a request may wait here, in ms.
pub(crate) fn patience_ms(header: &RequestHeader) -> u64 {
    match header.deadline_ms {
        0 => DEADLINE_MS_DEFAULT,
        given => u64::from(given).min(DEADLINE_MS_MAX as u64),
    }
}
