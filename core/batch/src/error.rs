//! Errors of a schema, a body, or a batch to encode. Each names the column, the values and the way out.

use std::fmt;

use ringfence_wire::Code;

/// A schema message that a topic cannot have, or that cannot follow another one.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum SchemaError {
    /// Not an encapsulated little-endian Arrow schema message.
    Malformed(String),
    /// Two columns of one name: columns are matched and projected by name.
    DuplicateColumn { column: String },
    /// More of something than a schema may have.
    TooLarge { what: &'static str, found: usize, limit: usize },
    /// A column's type is not stored by this version.
    UnsupportedType { column: String, why: String },
    /// A key column that is missing, or whose type has no slot.
    Key { column: String, why: String },
    /// The new schema is not the old one plus nullable columns at the end.
    CannotFollow { column: String, why: String },
}

impl SchemaError {
    /// The refusal's code on the wire.
    #[must_use]
    pub fn code(&self) -> Code {
        match self {
            Self::UnsupportedType { .. } => Code::UnsupportedType,
            Self::TooLarge { .. } => Code::TooLarge,
            Self::Malformed(_) | Self::DuplicateColumn { .. } | Self::Key { .. } | Self::CannotFollow { .. } => {
                Code::InvalidArgument
            }
        }
    }
}

impl fmt::Display for SchemaError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Malformed(why) => write!(f, "schema: {why}; send an Arrow IPC schema message"),
            Self::DuplicateColumn { column } => write!(f, "schema: two columns are called {column:?}; rename one"),
            Self::TooLarge { what, found, limit } => write!(f, "schema: {found} {what}, at most {limit} are stored"),
            Self::UnsupportedType { column, why } => write!(f, "column {column:?}: {why}; cast it to a stored type"),
            Self::Key { column, why } => write!(f, "key column {column:?}: {why}"),
            Self::CannotFollow { column, why } => {
                write!(f, "column {column:?}: {why}; a later schema may only add nullable columns at its end")
            }
        }
    }
}

impl std::error::Error for SchemaError {}

/// A refused body: the fault and its column, `None` if it concerns the message.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct BodyError {
    pub column: Option<String>,
    pub fault: crate::fault::Fault,
}

impl BodyError {
    /// The refusal's code on the wire.
    #[must_use]
    pub fn code(&self) -> Code {
        self.fault.code()
    }
}

impl fmt::Display for BodyError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match &self.column {
            Some(column) => write!(f, "column {column:?}: {}", self.fault),
            None => write!(f, "body: {}", self.fault),
        }
    }
}

impl std::error::Error for BodyError {}

/// A batch that cannot become a body of the topic.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum EncodeError {
    /// The batch lacks a column that is not nullable.
    MissingColumn { column: String, target: String },
    /// The batch has a column that the topic does not have.
    ExtraColumn { column: String },
    /// The column's type cannot become the topic's type without loss.
    Type { column: String, batch: String, target: String },
    /// Nulls in a column that is not nullable.
    Nulls { column: String, count: usize },
    /// Offsets, indexes, run ends or views of the column break Arrow's rules.
    InvalidValues { column: String, why: String },
    /// `order` or `bounds` do not fit the batch.
    Selection(String),
    /// The length of the output slice differs from `bytes()`.
    Output { have: usize, need: usize },
    /// A partition's share does not fit the type's offsets or one message.
    TooLarge { what: &'static str, found: usize, limit: usize },
    /// arrow-rs refused to cast, take or write.
    Arrow(String),
}

impl fmt::Display for EncodeError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::MissingColumn { column, target } => {
                write!(f, "column {column:?} of the topic ({target}, not null) is missing in the batch")
            }
            Self::ExtraColumn { column } => {
                write!(f, "column {column:?} of the batch is not in the topic; drop it or add it to the topic's schema")
            }
            Self::Type { column, batch, target } => write!(
                f,
                "column {column:?}: {batch} does not become the topic's {target} without loss; cast it before sending"
            ),
            Self::Nulls { column, count } => {
                let nulls = if *count == 1 { "null" } else { "nulls" };
                write!(f, "column {column:?}: {count} {nulls}, but the topic's column is not nullable")
            }
            Self::InvalidValues { column, why } => write!(f, "column {column:?} is not sound: {why}; build it again"),
            Self::Selection(why) => write!(f, "rows: {why}"),
            Self::Output { have, need } => write!(f, "output has {have} bytes, the message needs exactly {need}"),
            Self::TooLarge { what, found, limit } => {
                write!(f, "{what}: {found}, at most {limit}; send smaller batches")
            }
            Self::Arrow(why) => write!(f, "arrow: {why}"),
        }
    }
}

impl std::error::Error for EncodeError {}
