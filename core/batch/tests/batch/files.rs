//! The public damaged inputs and golden streams of Apache Arrow.

use std::collections::BTreeMap;
use std::path::{Path, PathBuf};

use arrow::array::Array;
use arrow::ipc::reader::StreamReader;
use arrow::ipc::writer::IpcWriteOptions;
use arrow::ipc::{self, root_as_message};
use arrow::record_batch::RecordBatch;
use ringfence_batch::SchemaPlan;

use crate::stream::{arrow_rs, caught, data, written};

fn files(folder: &Path, out: &mut Vec<PathBuf>) {
    for entry in std::fs::read_dir(folder).unwrap() {
        let path = entry.unwrap().path();
        if path.is_dir() { files(&path, out) } else { out.push(path) }
    }
    out.sort();
}

fn damaged() -> Vec<PathBuf> {
    let mut out = Vec::new();
    files(&data("arrow").join("arrow-ipc-stream"), &mut out);
    files(&data("arrow").join("arrow-ipc-file"), &mut out);
    out.retain(|path| path.components().all(|part| part.as_os_str() != "integration"));
    out
}

/// Rows that a message declares, if it is a record batch.
fn declared(message: &[u8]) -> Option<u32> {
    let metadata = u32::from_le_bytes(message[4..8].try_into().unwrap()) as usize;
    let batch = root_as_message(&message[8..8 + metadata]).ok()?.header_as_record_batch()?;
    u32::try_from(batch.length()).ok()
}

/// The messages of a stream in today's framing and version, so that old inputs pass the first check: with a marker,
/// metadata padded to 8, V5.
fn modern(stream: &[u8]) -> Vec<Vec<u8>> {
    let mut out = Vec::new();
    let mut rest = stream;
    loop {
        rest = rest.strip_prefix(&[0xff; 4]).unwrap_or(rest);
        let Some((length, behind)) = rest.split_first_chunk::<4>() else { break };
        let length = u32::from_le_bytes(*length) as usize;
        let Some(metadata) = behind.get(..length) else { break };
        let Ok(message) = root_as_message(metadata) else { break };
        let Ok(body) = usize::try_from(message.bodyLength()) else { break };
        let Some(body) = behind[length..].get(..body) else { break };
        let table = message._tab.loc();
        let version = message._tab.vtable().get(ipc::Message::VT_VERSION) as usize;
        let mut metadata = metadata.to_vec();
        if version > 0 {
            metadata[table + version..table + version + 2].copy_from_slice(&4_i16.to_le_bytes());
        }
        metadata.resize(length.next_multiple_of(8), 0);
        let frame = [&[0xff; 4][..], &(metadata.len() as u32).to_le_bytes(), &metadata, body].concat();
        rest = &behind[length + body.len()..];
        out.push(frame);
    }
    out
}

#[test]
fn damaged_files_are_refused_or_sound() {
    let sound =
        crate::stream::batch_of("c", &(std::sync::Arc::new(arrow::array::Int64Array::from(vec![1])) as _), true);
    let (schema, _) = written(&sound, IpcWriteOptions::default());
    let other = SchemaPlan::new(&schema, &[0]).unwrap();
    let files = damaged();
    assert_eq!(files.len(), 68, "40 streams and 28 files");
    let (mut plans, mut bodies, mut taken) = (0, 0, 0);
    for path in files {
        let name = path.display();
        let bytes = std::fs::read(&path).unwrap();
        for rows in [1, 100] {
            assert!(other.check(&bytes, rows, Some(0..=9)).is_err(), "{name} as a body of another schema");
        }
        let messages = modern(bytes.strip_prefix(b"ARROW1\0\0").unwrap_or(&bytes));
        let Some((schema, rest)) = messages.split_first() else { continue };
        let plan = match SchemaPlan::new(schema, &[]) {
            Ok(plan) => plan,
            Err(error) => {
                println!("{}: {error}", path.file_name().unwrap().display());
                continue;
            }
        };
        plans += 1;
        let mut dictionaries = Vec::new();
        for message in rest {
            let Some(rows) = declared(message) else {
                dictionaries.extend_from_slice(message);
                continue;
            };
            let body = [dictionaries.as_slice(), message].concat();
            bodies += 1;
            let verdict = plan.check(&body, rows, None);
            println!("{}: {verdict:?}", path.file_name().unwrap().display());
            if verdict.is_ok() {
                taken += 1;
                arrow_rs(schema, &body).unwrap_or_else(|error| panic!("{name}: taken, but arrow-rs says {error}"));
            }
        }
    }
    println!("{plans} schemas, {bodies} bodies, {taken} taken");
    assert!(plans >= 10 && bodies >= 8, "the inputs must reach the check: {plans} schemas, {bodies} bodies");
}

/// The batches of a stream, as far as arrow-rs reads them.
fn read(path: &Path) -> Result<Vec<RecordBatch>, String> {
    let bytes = std::fs::read(path).unwrap();
    let read = || {
        let reader = StreamReader::try_new(bytes.as_slice(), None).map_err(|error| error.to_string())?;
        reader.collect::<Result<Vec<_>, _>>().map_err(|error| error.to_string())
    };
    caught(read).unwrap_or_else(|| Err("panicked".to_owned()))
}

/// The result of one golden stream: "taken", or the first reason of the refusal.
fn verdict(path: &Path) -> String {
    let batches = match read(path) {
        Ok(batches) => batches,
        Err(error) => return format!("arrow-rs: {error}"),
    };
    for batch in batches {
        if batch.num_rows() == 0 {
            continue;
        }
        if batch.num_columns() == 0 {
            return "schema: no columns".to_owned();
        }
        let (schema, body) = written(&batch, IpcWriteOptions::default());
        let plan = match SchemaPlan::new(&schema, &[]) {
            Ok(plan) => plan,
            Err(error) => return error.to_string(),
        };
        if let Err(error) = plan.check(&body, u32::try_from(batch.num_rows()).unwrap(), None) {
            return error.to_string();
        }
        let again = arrow_rs(&schema, &body).unwrap();
        assert!(
            again.columns().iter().zip(batch.columns()).all(|(a, b)| a.to_data() == b.to_data()),
            "{}",
            path.display()
        );
    }
    "taken".to_owned()
}

#[test]
fn golden_streams_are_taken_or_refused_for_a_named_reason() {
    let root = data("arrow").join("arrow-ipc-stream").join("integration");
    let mut paths = Vec::new();
    files(&root, &mut paths);
    paths.retain(|path| path.extension().is_some_and(|extension| extension == "stream"));
    assert_eq!(paths.len(), 36);
    let mut refused = BTreeMap::new();
    for path in &paths {
        let name = path.strip_prefix(&root).unwrap().with_extension("").display().to_string();
        let verdict = verdict(path);
        println!("{name:50} {verdict}");
        if verdict != "taken" {
            refused.insert(name, verdict);
        }
    }
    let refused: Vec<_> = refused.iter().map(|(name, why)| (name.as_str(), why.as_str())).collect();
    let twice = |name: &str| format!("schema: two columns are called {name:?}; rename one");
    let expected = [
        // date64 within a day, and decimals wider than their precision: pyarrow's full validation refuses both, so a
        // reader may.
        ("0.14.1/generated_datetime", "column \"f1\": row 0: the value is outside its type's range"),
        // Columns are matched and projected by name.
        ("0.17.1/generated_union", &twice("sparse")),
        ("1.0.0-littleendian/generated_decimal", "column \"f0\": row 0: the value is outside its type's range"),
        ("1.0.0-littleendian/generated_duplicate_fieldnames", &twice("ints")),
        ("cpp-21.0.0/generated_duplicate_fieldnames", &twice("ints")),
    ];
    assert_eq!(refused, expected);
}
