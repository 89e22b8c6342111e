//! The producer's side: gather rows of a batch by partition into publish bodies.
//!
//! There are two steps, so that the caller owns the memory: [`Encoder::gather`] selects and sizes, and
//! [`SizedMessages::write`] writes one message into exactly the bytes that it needs. Flat columns are fixed width,
//! booleans, strings, binaries, their views, and nulls: each of their values is copied once, from the batch into the
//! message. Batches with other columns go through arrow-rs `take` and its IPC writer, which get only the part of a
//! column that its rows use.

mod array_checks;
mod bits;
mod bytes;
mod cast;
mod fallback;
mod fixed;
mod layout;
mod rows;
mod source;
mod trim;

use arrow::datatypes::{Schema, SchemaRef};
use arrow::record_batch::RecordBatch;

use crate::error::{EncodeError, SchemaError};
use crate::map_names;
use crate::schema::SchemaPlan;
use layout::Layout;
use rows::Rows;
use source::Source;

/// Encodes batches of one topic's schema.
#[derive(Debug)]
pub struct Encoder {
    plan: SchemaPlan,
}

/// Selected rows with their sizes, ready to be written: one message for each partition.
#[derive(Debug)]
pub struct SizedMessages<'a> {
    messages: Messages<'a>,
}

#[derive(Debug)]
enum Messages<'a> {
    /// Written on request.
    Flat { columns: Vec<Source>, rows: Vec<Rows<'a>>, layouts: Vec<Layout> },
    /// Already written.
    Ready(Vec<Vec<u8>>),
}

impl Encoder {
    /// # Errors
    /// [`SchemaError`], as [`SchemaPlan::new`].
    pub fn new(schema_message: &[u8]) -> Result<Self, SchemaError> {
        Ok(Self { plan: SchemaPlan::new(schema_message, &[])? })
    }

    pub fn schema(&self) -> &SchemaRef {
        self.plan.schema()
    }

    /// Size one message for each partition: partition `p` gets the rows `order[bounds[p]..bounds[p + 1]]` of `batch`,
    /// in that order. Columns are matched by name and cast only without loss. A missing nullable column becomes nulls.
    ///
    /// # Errors
    /// [`EncodeError`] names the column and both types.
    pub fn gather<'a>(
        &self,
        batch: &RecordBatch,
        order: &'a [u32],
        bounds: &[u32],
    ) -> Result<SizedMessages<'a>, EncodeError> {
        if let Some(row) = order.iter().find(|row| **row as usize >= batch.num_rows()) {
            return Err(EncodeError::Selection(format!("row {row} of a batch of {} rows", batch.num_rows())));
        }
        let mut rows = Vec::with_capacity(bounds.len().saturating_sub(1));
        for pair in bounds.windows(2) {
            let slice = order.get(pair[0] as usize..pair[1] as usize).ok_or_else(|| {
                EncodeError::Selection(format!("bounds {}..{} of an order of {} rows", pair[0], pair[1], order.len()))
            })?;
            rows.push(Rows::Order(slice));
        }
        self.encode(batch, rows)
    }

    /// Size one message of the rows `start..start + rows`, without a gather. It is partition 0 of the result.
    ///
    /// # Errors
    /// [`EncodeError`] names the column and both types.
    pub fn whole(&self, batch: &RecordBatch, start: usize, rows: usize) -> Result<SizedMessages<'static>, EncodeError> {
        if start.checked_add(rows).is_none_or(|end| end > batch.num_rows()) {
            let have = batch.num_rows();
            return Err(EncodeError::Selection(format!("rows {start}+{rows} of a batch of {have} rows")));
        }
        self.encode(batch, vec![Rows::Range { start, rows }])
    }

    fn encode<'a>(&self, batch: &RecordBatch, rows: Vec<Rows<'a>>) -> Result<SizedMessages<'a>, EncodeError> {
        let columns = cast::columns(self.schema(), batch)?;
        let fields = self.schema().fields();
        let sources: Option<Vec<_>> =
            fields.iter().zip(&columns).map(|(field, column)| Source::new(field.data_type(), column)).collect();
        let messages = match sources {
            Some(sources) => {
                fields
                    .iter()
                    .zip(&sources)
                    .try_for_each(|(field, source)| array_checks::require_flat(field, source))?;
                let layouts = rows.iter().map(|rows| Layout::new(fields, &sources, rows)).collect::<Result<_, _>>()?;
                Messages::Flat { columns: sources, rows, layouts }
            }
            None => Messages::Ready(fallback::messages(&self.plan, &columns, &rows)?),
        };
        Ok(SizedMessages { messages })
    }
}

impl SizedMessages<'_> {
    /// Number of messages.
    pub fn partitions(&self) -> usize {
        match &self.messages {
            Messages::Flat { layouts, .. } => layouts.len(),
            Messages::Ready(messages) => messages.len(),
        }
    }

    /// Exact bytes of the message of `partition`; 0 without rows.
    pub fn bytes(&self, partition: usize) -> usize {
        match &self.messages {
            Messages::Flat { layouts, .. } => layouts[partition].bytes(),
            Messages::Ready(messages) => messages[partition].len(),
        }
    }

    /// Write the message of `partition` into `out`, which has exactly `bytes(partition)` bytes of any content. Buffers
    /// are 64-byte aligned relative to the start of `out`: an extension before it must be a multiple of 64.
    ///
    /// # Errors
    /// [`EncodeError::Output`] for a slice of another length.
    pub fn write(&self, partition: usize, out: &mut [u8]) -> Result<(), EncodeError> {
        self.write_from(partition, &mut [out])
    }

    /// Write all messages together, each as [`Self::write`] does; `outs` has one slice for each, in order.
    ///
    /// A column of the batch is read once for every message. Column by column it stays in the cache. Message by message
    /// the whole batch would go through the cache each time, which takes twice as long at 8 MiB and 8 partitions.
    ///
    /// # Errors
    /// [`EncodeError::Output`] for a slice of another length, or another number of slices.
    pub fn write_all(&self, outs: &mut [&mut [u8]]) -> Result<(), EncodeError> {
        if outs.len() != self.partitions() {
            return Err(EncodeError::Output { have: outs.len(), need: self.partitions() });
        }
        self.write_from(0, outs)
    }

    fn write_from(&self, first: usize, outs: &mut [&mut [u8]]) -> Result<(), EncodeError> {
        for (partition, out) in (first..).zip(outs.iter()) {
            let need = self.bytes(partition);
            if out.len() != need {
                return Err(EncodeError::Output { have: out.len(), need });
            }
        }
        match &self.messages {
            Messages::Flat { columns, rows, layouts } => {
                let mut written: Vec<_> = (layouts[first..].iter().zip(&rows[first..]).zip(outs))
                    .map(|((layout, rows), out)| layout.begin(rows, out))
                    .collect();
                for column in columns {
                    for message in &mut written {
                        message.column(column);
                    }
                }
            }
            Messages::Ready(messages) => {
                for (out, message) in outs.iter_mut().zip(&messages[first..]) {
                    out.copy_from_slice(message);
                }
            }
        }
        Ok(())
    }
}

/// A schema as an encapsulated Arrow IPC schema message, from which topics are created.
///
/// # Errors
/// [`SchemaError::Malformed`] if arrow-rs cannot write it.
pub fn schema_message(schema: &Schema) -> Result<Vec<u8>, SchemaError> {
    fallback::schema_message(&map_names::canonical(schema))
}
