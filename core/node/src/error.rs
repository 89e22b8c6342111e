//! Errors of a node that cannot start or take an order; one variant for each thing the operator can do.

/// What `Runtime`'s methods fail with.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum NodeError {
    /// A setting is out of its bounds: change it.
    Config(String),
    /// Another process has the store open: stop it.
    Locked(String),
    /// The store was written by a newer program: upgrade. Nothing was changed.
    NewerFormat(String),
    /// The store belongs to another cluster, history or store id. Nothing was changed.
    Identity(String),
    /// The disk or file system failed.
    Storage(String),
    /// An address cannot be bound.
    Address(String),
    /// Called in a state that does not allow it (before `recover`, after `stop`), or too many orders wait.
    State(String),
}

impl std::fmt::Display for NodeError {
    fn fmt(&self, out: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        match self {
            Self::Config(text)
            | Self::Locked(text)
            | Self::NewerFormat(text)
            | Self::Identity(text)
            | Self::Storage(text)
            | Self::Address(text)
            | Self::State(text) => out.write_str(text),
        }
    }
}

impl std::error::Error for NodeError {}
