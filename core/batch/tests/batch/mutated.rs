//! Seeded damage to valid bodies: the check never panics, and its verdict is that of arrow-rs.
//!
//! Where the two differ on purpose, the check is stricter, for the reasons in [`stricter`]. It is never laxer: what it
//! accepts, arrow-rs reads and validates fully.

use arrow::ipc::writer::IpcWriteOptions;
use arrow::ipc::{CompressionType, root_as_message};
use ringfence_batch::{BodyError, Fault, SchemaPlan};

use crate::samples::{Random, array, types};
use crate::stream::{arrow_rs, batch_of, messages, written};

/// Faults of bodies that arrow-rs may accept, with the reasons for refusing them.
fn stricter(error: &BodyError) -> bool {
    match error.fault {
        // Values outside their types: pyarrow's `validate(full=True)` refuses them too, arrow-rs does not check them.
        Fault::Value { .. }
        // arrow-rs ignores a bitmap if no nulls are declared, and corrects some counts; another reader may use the
        // bitmap.
        | Fault::NullCount { .. }
        // Overlapping or unaligned buffers: no writer makes them, and few bytes could stand for many.
        | Fault::Range { .. }
        // Nulls in fields that are not nullable: arrow-rs checks fewer places.
        | Fault::Nulls { .. }
        // More arrays, buffers or counts than the schema needs, bytes after the batch, dictionaries of another length
        // than declared.
        | Fault::Count { .. }
        | Fault::Length { .. }
        | Fault::Trailing { .. }
        // A flatbuffer that arrow-rs accepts and Arrow C++ does not (`tests/wire/test_altered.py`).
        | Fault::Metadata { .. }
        // Offsets of a dense union that decrease within a child: C++ readers refuse them.
        | Fault::Union { .. }
        // V5 only, metadata of whole words.
        | Fault::Version { .. }
        | Fault::MetadataBytes { .. }
        // arrow-rs panics on some of these and does not check others.
        | Fault::Partial { .. } => true,
        _ => false,
    }
}

/// Last slot of the lower half.
const LOW_HALF: u16 = 0x7fff;

#[derive(Default, Debug)]
struct Tally {
    taken: usize,
    refused: usize,
    stricter: usize,
    /// Refusals of bodies that arrow-rs accepts, for no reason in [`stricter`].
    unexplained: Vec<String>,
}

fn damage(random: &mut Random, body: &mut Vec<u8>) {
    for _ in 0..=random.below(3) {
        let at = random.below(body.len());
        match random.below(8) {
            0..=2 => body[at] ^= 1 << random.below(8),
            3 => body[at] = random.next() as u8,
            4 => {
                // A whole word, often of small or extreme value: lengths, offsets, counts.
                let at = at & !7;
                let word = [0, 1, 8, 64, u64::MAX, i64::MAX as u64, 1 << 31, random.next() % 4096][random.below(8)];
                if let Some(place) = body.get_mut(at..at + 8) {
                    place.copy_from_slice(&word.to_le_bytes());
                }
            }
            5 => {
                let at = at & !3;
                let word = [0, 1, u32::MAX, i32::MAX as u32, random.next() as u32 % 512][random.below(5)];
                if let Some(place) = body.get_mut(at..at + 4) {
                    place.copy_from_slice(&word.to_le_bytes());
                }
            }
            6 => body.truncate(at.max(1)),
            _ => {
                let from = random.below(body.len());
                let length = random.below(32).min(body.len() - from).min(body.len() - at);
                body.copy_within(from..from + length, at);
            }
        }
    }
}

/// True if a message of the body declares compression. Damage to the metadata of a plain one can cause it.
fn compressed(body: &[u8]) -> bool {
    messages(body).into_iter().any(|message| {
        let metadata = u32::from_le_bytes([message[4], message[5], message[6], message[7]]) as usize;
        let message = root_as_message(&message[8..8 + metadata]).unwrap();
        let batch = message.header_as_dictionary_batch().and_then(|dictionary| dictionary.data());
        message.header_as_record_batch().or(batch).is_some_and(|batch| batch.compression().is_some())
    })
}

fn mutate(rounds: u64, codec: Option<CompressionType>, nullable: bool) -> Tally {
    let mut tally = Tally::default();
    for (kind, data_type) in (0_u64..).zip(types()) {
        let mut random = Random(kind << 32 | u64::from(nullable) << 16 | rounds);
        let array = array(&mut random, &data_type, 23, nullable);
        let options = IpcWriteOptions::default().try_with_compression(codec).unwrap();
        let (schema, valid) = written(&batch_of("c", &array, nullable), options);
        let plan = SchemaPlan::new(&schema, &[]).unwrap();
        let keyed = SchemaPlan::new(&schema, &[0]).ok();
        for round in 0..rounds {
            let mut body = valid.clone();
            damage(&mut random, &mut body);
            let ours = plan.check(&body, 23, None);
            if let Some(keyed) = &keyed {
                let (low, high) =
                    (keyed.check(&body, 23, Some(0..=LOW_HALF)), keyed.check(&body, 23, Some(LOW_HALF + 1..=u16::MAX)));
                // Damage hides no row from the check of slots: of two halves at most one can hold 23 rows.
                assert!(low.is_err() || high.is_err(), "{data_type} round {round}: in both halves");
                assert!(ours.is_ok() || low.is_err() && high.is_err(), "{data_type} round {round}");
            }
            // arrow-rs allocates what a body declares, and running out of memory aborts the process: ask it only if the
            // declared lengths are known to be small.
            let askable = match &ours {
                Ok(()) => true,
                Err(error) => {
                    !compressed(&body) && !matches!(error.fault, Fault::Truncated { .. } | Fault::BodyLength { .. })
                }
            };
            if !askable {
                tally.refused += 1;
                continue;
            }
            let theirs = arrow_rs(&schema, &body);
            match (&ours, &theirs) {
                (Ok(()), Ok(batch)) => {
                    assert_eq!(batch.num_rows(), 23);
                    tally.taken += 1;
                }
                (Ok(()), Err(error)) => panic!("{data_type} round {round}: taken, but arrow-rs says {error}"),
                (Err(error), Ok(_)) => {
                    tally.stricter += 1;
                    if !stricter(error) {
                        tally.unexplained.push(format!("{data_type} round {round}: {error}"));
                    }
                }
                (Err(_), Err(_)) => tally.refused += 1,
            }
        }
    }
    tally
}

#[test]
fn the_verdict_on_damaged_bodies_is_that_of_arrow_rs() {
    for nullable in [false, true] {
        let tally = mutate(300, None, nullable);
        println!("plain, nullable {nullable}: {tally:?}");
        assert_eq!(tally.unexplained, [""; 0], "arrow-rs takes these");
        // The damage must lead to both verdicts, or the test proves nothing.
        assert!(tally.taken > 1000 && tally.refused > 1000, "{tally:?}");
    }
}

#[test]
fn the_verdict_on_damaged_compressed_bodies_is_that_of_arrow_rs() {
    for codec in [CompressionType::LZ4_FRAME, CompressionType::ZSTD] {
        let tally = mutate(100, Some(codec), true);
        println!("{codec:?}: {tally:?}");
        assert!(tally.refused > 100, "{tally:?}");
    }
}
