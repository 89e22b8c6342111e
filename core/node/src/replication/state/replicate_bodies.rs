//! Cut a stretch of the log into the bodies of REPLICATE requests.

use ringfence_transport::{LARGE_BODY_BYTES, RECORDS_BYTES};
use ringfence_wire::{Code, RECORD_HEADER_BYTES, RecordHeader, RecordKind, align_up, crc_combine, crc_of};

use crate::api::jobs::Piece;
use crate::api::refusal::Refusal;

/// Rows to which the record gives offsets: staged ones get theirs from a publish record, and are counted there.
pub fn placed_rows(header: &RecordHeader) -> u64 {
    if header.kind == RecordKind::Staged as u8 { 0 } else { u64::from(header.rows) }
}

/// Whole records, each at a multiple of 64, cut into pieces with where each begins. As when they go out of memory: a
/// large record is alone, so that the replica takes it over in the block that it arrives in, and its body's sum need
/// not be taken again; small ones go together.
pub fn pieces(records: &[u8]) -> Vec<(usize, Piece)> {
    let mut pieces: Vec<(usize, Piece)> = Vec::new();
    let (mut place, mut is_run) = (0, false);
    while place < records.len() {
        let header = header_at(records, place);
        let (number, rows) = (header.record_number, placed_rows(&header));
        let alone = RECORD_HEADER_BYTES + header.body_bytes as usize;
        let spans = align_up(alone, 64);
        if header.body_bytes as usize > LARGE_BODY_BYTES {
            let front = crc_of(&records[place..place + RECORD_HEADER_BYTES]);
            let crc = crc_combine(front, header.body_crc, header.body_bytes as usize);
            pieces.push((place, Piece { first: number, next: number + 1, rows, bytes: alone, crc }));
            is_run = false;
        } else if let Some((_, run)) = pieces.last_mut().filter(|(_, run)| is_run && run.bytes < RUN_BYTES_MAX) {
            (run.next, run.rows, run.bytes) = (number + 1, run.rows + rows, run.bytes + spans);
        } else {
            pieces.push((place, Piece { first: number, next: number + 1, rows, bytes: spans, crc: 0 }));
            is_run = true;
        }
        place += spans;
    }
    // Those of runs; a large one whose sum is 0 has it again.
    for (at, piece) in pieces.iter_mut().filter(|(_, piece)| piece.crc == 0) {
        piece.crc = crc_of(&records[*at..*at + piece.bytes]);
    }
    pieces
}

/// Small records of one partition that go out together.
pub const RUN_BYTES_MAX: usize = 1 << 20;

// The last record of a run may exceed that.
const _: () = assert!(RUN_BYTES_MAX + RECORD_HEADER_BYTES + LARGE_BODY_BYTES <= RECORDS_BYTES);

pub fn header_at(block: &[u8], at: usize) -> RecordHeader {
    let bytes: &[u8; RecordHeader::SIZE] =
        block[at..at + RecordHeader::SIZE].try_into().expect("a slice holds whole records");
    RecordHeader::read(bytes)
}

pub fn record_at(bytes: &[u8], at: usize) -> Result<RecordHeader, Refusal> {
    let short = || Refusal::new(Code::BadBody, "a record ends within its header");
    let bytes = bytes.get(at..at + RecordHeader::SIZE).ok_or_else(short)?;
    let bytes = bytes.try_into().map_err(|_| short())?;
    RecordHeader::open(bytes).map_err(|error| Refusal::new(Code::BodyCrc, error.to_string()))
}

#[cfg(test)]
mod tests {
    use ringfence_wire::RecordHeader;

    use super::*;

    /// A record as a reader gives it: at a multiple of 64, which its header says.
    fn put(records: &mut Vec<u8>, number: u64, body_bytes: usize) {
        let body: Vec<u8> = (0..body_bytes).map(|at| u8::try_from((at as u64 * 7 + number) % 256).unwrap()).collect();
        let header = RecordHeader {
            record_number: number,
            rows: 3,
            body_bytes: u32::try_from(body_bytes).unwrap(),
            body_crc: crc_of(&body),
            span_bytes: u32::try_from(align_up(RECORD_HEADER_BYTES + body_bytes, 64)).unwrap(),
            ..RecordHeader::default()
        };
        records.extend_from_slice(&header.seal());
        records.extend_from_slice(&body);
        records.resize(records.len().next_multiple_of(64), 0);
    }

    #[test]
    fn large_ones_go_alone_small_ones_together_and_nothing_is_left_out() {
        let mut records = Vec::new();
        let large = LARGE_BODY_BYTES + 1;
        let bodies: Vec<usize> = [10, 0, large, 64, 63, large + 62, large].into_iter().chain([9_000; 300]).collect();
        for (number, body_bytes) in bodies.iter().enumerate() {
            put(&mut records, 40 + number as u64, *body_bytes);
        }
        let pieces = pieces(&records);
        let counts: Vec<u64> = pieces.iter().map(|(_, piece)| piece.next - piece.first).collect();
        // 9,000 bytes span 9,216: 114 of them are the first to reach a MiB.
        assert_eq!(counts, [2, 1, 2, 1, 1, 114, 114, 72]);
        let (mut place, mut next) = (0, 40);
        for (at, piece) in pieces {
            assert_eq!((at, piece.first), (place, next));
            assert_eq!(piece.crc, crc_of(&records[at..at + piece.bytes]), "from {}", piece.first);
            assert_eq!(piece.rows, 3 * (piece.next - piece.first));
            assert!(piece.bytes <= ringfence_transport::RECORDS_BYTES);
            (place, next) = (at + piece.bytes.next_multiple_of(64), piece.next);
        }
        assert_eq!((place, next), (records.len(), 40 + bodies.len() as u64));
        assert!(super::pieces(&[]).is_empty());
    }
}
