//! Streams, their messages, and arrow-rs's verdict on them.

use std::cell::Cell;
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::path::PathBuf;
use std::sync::{Arc, Once};

use arrow::array::Array;
use arrow::ipc::reader::StreamReader;
use arrow::ipc::root_as_message;
use arrow::ipc::writer::{DictionaryHandling, IpcWriteOptions, StreamWriter};
use arrow::record_batch::RecordBatch;

/// Folder `name` of the public test data.
pub fn data(name: &str) -> PathBuf {
    let root = std::env::var_os("RINGFENCE_DATA")
        .map_or_else(|| PathBuf::from(concat!(env!("CARGO_MANIFEST_DIR"), "/../../../shared/data")), PathBuf::from);
    let path = root.join(name);
    assert!(path.exists(), "{} is missing: set RINGFENCE_DATA to the folder of the public test data", path.display());
    path
}

/// The messages of a stream up to its end marker, as far as they can be told apart.
pub fn messages(stream: &[u8]) -> Vec<&[u8]> {
    let mut out = Vec::new();
    let mut rest = stream;
    while let Some(prefix) = rest.first_chunk::<8>() {
        let marker = u32::from_le_bytes([prefix[0], prefix[1], prefix[2], prefix[3]]);
        let length = u32::from_le_bytes([prefix[4], prefix[5], prefix[6], prefix[7]]) as usize;
        if marker != u32::MAX || length == 0 || rest.len() < 8 + length {
            break;
        }
        let Ok(message) = root_as_message(&rest[8..8 + length]) else { break };
        let Ok(body) = usize::try_from(message.bodyLength()) else { break };
        let Some(whole) = rest.get(..(8 + length).saturating_add(body)) else { break };
        out.push(whole);
        rest = &rest[whole.len()..];
    }
    out
}

/// A batch as a schema message and a body, written by arrow-rs.
pub fn written(batch: &RecordBatch, options: IpcWriteOptions) -> (Vec<u8>, Vec<u8>) {
    let options = options.with_dictionary_handling(DictionaryHandling::Resend);
    let mut writer = StreamWriter::try_new_with_options(Vec::new(), batch.schema_ref(), options).unwrap();
    writer.write(batch).unwrap();
    let stream = writer.into_inner().unwrap();
    let messages = messages(&stream);
    (messages[0].to_vec(), messages[1..].concat())
}

/// The batch that arrow-rs reads from `body`: exactly one that passes full validation. A panic counts as a refusal.
pub fn arrow_rs(schema: &[u8], body: &[u8]) -> Result<RecordBatch, String> {
    let mut stream = [schema, body].concat();
    stream.extend_from_slice(&[0xff, 0xff, 0xff, 0xff, 0, 0, 0, 0]);
    let read = || -> Result<RecordBatch, String> {
        let mut reader = StreamReader::try_new(stream.as_slice(), None).map_err(|error| error.to_string())?;
        let batch = reader.next().ok_or("no batch")?.map_err(|error| error.to_string())?;
        if let Some(more) = reader.next() {
            return Err(format!("more behind the batch: {}", more.is_ok()));
        }
        for column in batch.columns() {
            column.to_data().validate_full().map_err(|error| error.to_string())?;
        }
        Ok(batch)
    };
    caught(read).unwrap_or_else(|| Err("arrow-rs panicked".to_owned()))
}

thread_local! {
    static QUIET: Cell<bool> = const { Cell::new(false) };
}

/// Run `work`; a panic of it becomes `None`, without a message on stderr: arrow-rs is expected to panic on some inputs.
pub fn caught<T>(work: impl FnOnce() -> T) -> Option<T> {
    static HOOK: Once = Once::new();
    HOOK.call_once(|| {
        let before = std::panic::take_hook();
        std::panic::set_hook(Box::new(move |info| {
            if !QUIET.get() || std::env::var_os("LOUD").is_some() {
                before(info);
            }
        }));
    });
    QUIET.set(true);
    let result = catch_unwind(AssertUnwindSafe(work));
    QUIET.set(false);
    result.ok()
}

/// A batch of one column.
pub fn batch_of(name: &str, array: &Arc<dyn Array>, nullable: bool) -> RecordBatch {
    use arrow::datatypes::{Field, Schema};
    let field = Field::new(name, array.data_type().clone(), nullable);
    RecordBatch::try_new(Arc::new(Schema::new(vec![field])), vec![Arc::clone(array)]).unwrap()
}
