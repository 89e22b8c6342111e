//! A topic's schema, compiled once from its Arrow IPC message.

use std::collections::HashSet;
use std::sync::Arc;

use arrow::datatypes::SchemaRef;
use arrow::ipc;
use flatbuffers::VerifierOptions;
use ringfence_wire::{COLUMNS_MAX, CONTROL_BYTES_MAX, NESTING_MAX};

use crate::compile::Compiler;
use crate::error::SchemaError;
use crate::fault::Fault;
use crate::map_names;
use crate::message;
use crate::plan::Plan;
use crate::slots::key_type;

/// The compiled schema: a flat list of expected arrays and buffers, and the key columns.
#[derive(Debug)]
pub struct SchemaPlan {
    pub(crate) plan: Plan,
    schema: SchemaRef,
    key_columns: Vec<usize>,
}

impl SchemaPlan {
    /// Compile an encapsulated Arrow IPC schema message: V5, little-endian, at most `columns_max` fields in total and
    /// `nesting_max` levels. `key_columns` are indexes of top-level fields in the order of hashing. Without key columns
    /// the rows have no slots.
    ///
    /// # Errors
    /// [`SchemaError`] names the column and the way out.
    pub fn new(schema_message: &[u8], key_columns: &[usize]) -> Result<Self, SchemaError> {
        let fb = schema_of(schema_message)?;
        if fb.endianness() != ipc::Endianness::Little {
            return Err(SchemaError::Malformed("big-endian data; write it little-endian".to_owned()));
        }
        let columns = fb.fields().map_or(0, |fields| fields.len());
        if columns == 0 || columns > COLUMNS_MAX {
            return Err(SchemaError::TooLarge { what: "columns (at least 1)", found: columns, limit: COLUMNS_MAX });
        }
        let schema = ipc::convert::try_fb_to_schema(fb).map_err(|error| SchemaError::Malformed(error.to_string()))?;
        let mut compiler = Compiler::default();
        let mut names = HashSet::new();
        for (field, data_type) in fb.fields().into_iter().flatten().zip(schema.fields().iter().map(|f| f.data_type())) {
            let name = field.name().unwrap_or_default();
            if !names.insert(name) {
                return Err(SchemaError::DuplicateColumn { column: name.to_owned() });
            }
            compiler.column(field, data_type)?;
        }
        for (position, &column) in key_columns.iter().enumerate() {
            key_type::require(&schema, column)?;
            if key_columns[..position].contains(&column) {
                let name = schema.field(column).name().clone();
                return Err(SchemaError::Key { column: name, why: "named twice".to_owned() });
            }
        }
        key_type::require_count(key_columns.len())?;
        Ok(Self {
            plan: compiler.finish(),
            schema: Arc::new(map_names::canonical(&schema)),
            key_columns: key_columns.to_vec(),
        })
    }

    /// The schema as an arrow-rs value.
    pub fn schema(&self) -> &SchemaRef {
        &self.schema
    }

    /// Indexes of the key columns.
    pub fn key_columns(&self) -> &[usize] {
        &self.key_columns
    }
}

/// The verified flatbuffer of an encapsulated schema message that fills `bytes`.
fn schema_of(bytes: &[u8]) -> Result<ipc::Schema<'_>, SchemaError> {
    // A schema is sent in a control body.
    if bytes.len() > CONTROL_BYTES_MAX {
        return Err(SchemaError::TooLarge { what: "bytes", found: bytes.len(), limit: CONTROL_BYTES_MAX });
    }
    let options = VerifierOptions {
        // Message, schema and metadata around the fields; one table for each level, and its type.
        max_depth: NESTING_MAX + 8,
        // A field has its table, its type, its dictionary with an index type, and key-value pairs.
        max_tables: 16 * COLUMNS_MAX,
        // Flatbuffers may share parts; expanded they stay within a few times their size.
        max_apparent_size: 4 * CONTROL_BYTES_MAX,
        ignore_missing_null_terminator: false,
    };
    let malformed = |fault: Fault| SchemaError::Malformed(fault.to_string());
    let (metadata, behind) = message::split(bytes, 0).map_err(malformed)?;
    let message = ipc::root_as_message_with_opts(&options, metadata)
        .map_err(|error| SchemaError::Malformed(format!("the metadata is not a valid flatbuffer: {error}")))?;
    message::require_version(message.version().0).map_err(malformed)?;
    message::buffers(metadata, behind, message.bodyLength()).map_err(malformed)?;
    if !behind.is_empty() {
        return Err(SchemaError::Malformed(format!("{} bytes after the schema", behind.len())));
    }
    // Arrow's C++ readers refuse such a message.
    let half = |pair: ipc::KeyValue<'_>| pair.key().is_none() || pair.value().is_none();
    if message.custom_metadata().into_iter().flatten().any(half) {
        return Err(malformed(Fault::Missing { what: "a key or value of its custom metadata" }));
    }
    message.header_as_schema().ok_or_else(|| {
        let found = message.header_type().variant_name().unwrap_or("unknown");
        SchemaError::Malformed(format!("a message of type {found} where a schema is needed"))
    })
}

/// Require that bodies of `new` may follow bodies of `old` in one topic. In version 1, `new` is `old` with nullable
/// columns added at the end, and has the same key. Metadata may change.
///
/// # Errors
/// [`SchemaError::CannotFollow`] names the first column that differs.
pub fn can_follow(old: &SchemaPlan, new: &SchemaPlan) -> Result<(), SchemaError> {
    let cannot = |column: &str, why: String| Err(SchemaError::CannotFollow { column: column.to_owned(), why });
    for (index, field) in old.schema.fields().iter().enumerate() {
        let name = field.name();
        let Some(next) = new.schema.fields().get(index) else {
            return cannot(name, "is missing in the new schema".to_owned());
        };
        if next.name() != name {
            return cannot(name, format!("its place has {:?} in the new schema", next.name()));
        }
        if next.data_type() != field.data_type() {
            return cannot(name, format!("{} would become {}", field.data_type(), next.data_type()));
        }
        if next.is_nullable() != field.is_nullable() {
            return cannot(name, format!("nullable would become {}", next.is_nullable()));
        }
    }
    for field in new.schema.fields().iter().skip(old.schema.fields().len()) {
        if !field.is_nullable() {
            return cannot(field.name(), "is new and not nullable".to_owned());
        }
    }
    if old.key_columns != new.key_columns {
        let why = format!("key columns {:?} would become {:?}", old.key_columns, new.key_columns);
        return cannot("(key)", why);
    }
    Ok(())
}
