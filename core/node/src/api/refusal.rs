//! The reason why a request is refused: code, sentence, values. It is made only for an answer, so it may allocate.

use ringfence_wire::Code;

#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Refusal {
    pub code: Code,
    pub message: String,
    /// Values in it, by name.
    pub details: Vec<(&'static str, u64)>,
    pub retry_after_ms: u32,
    /// `SEQUENCE_GAP`: the expected one; else the request's is echoed.
    pub sequence: Option<u64>,
    /// TRUNCATED: the log start.
    pub first_offset: u64,
}

impl Refusal {
    pub fn new(code: Code, message: impl Into<String>) -> Self {
        let retry_after_ms = retry_after_ms(code);
        Self { code, message: message.into(), details: Vec::new(), retry_after_ms, sequence: None, first_offset: 0 }
    }

    #[must_use]
    pub fn with(mut self, name: &'static str, value: u64) -> Self {
        self.details.push((name, value));
        self
    }

    #[must_use]
    pub fn expecting(mut self, sequence: u64) -> Self {
        self.sequence = Some(sequence);
        self
    }

    #[must_use]
    pub fn log_start(mut self, first_offset: u64) -> Self {
        self.first_offset = first_offset;
        self
    }
}

/// How long a sender should wait before the same bytes have a chance.
fn retry_after_ms(code: Code) -> u32 {
    match code {
        // Space comes back by retention or by an operator, not within milliseconds.
        Code::DiskFull => 1000,
        // A hand-over or a newer table takes a few round trips.
        Code::Held | Code::Ahead | Code::Stopping => 50,
        // Two groups of 8 MiB on a slow disk.
        Code::Overloaded => 20,
        _ => 0,
    }
}
