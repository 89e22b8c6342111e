//! A cohort table as bytes: its part of a state record, from blob version 6 on.
//!
//! ```text
//! u32 gates | u32 zero | gate*
//! gate: u64 partition, cohort, incarnation, settled, epoch, told under, session, hold, its incarnation, its generation
//!       u64 floor, greatest parking, flags (1: forgotten) | u32 ranges, parkings | range* | parking* as in `record.rs`
//! u64 known | u64 applied | u64 newest record + 1 (0: none) | u32 bytes | u32 zero | its body
//! ```

use crate::codec::cursor::{Cursor, Short};
use xxhash_rust::xxh3::xxh3_64;

use crate::cohorts::state::record::{self, GateKey, Hold, read_line, read_parking};
use crate::cohorts::state::table::{CohortTable, GateEntry, Newest};

const FORGOTTEN: u64 = 1;

impl CohortTable {
    /// What the log says if its newest record counts, too: equal at all stores that have the same log (FO10).
    pub fn hash(&self) -> u64 {
        let mut all = self.clone();
        if let Some(newest) = all.newest.take() {
            all.apply(newest.number, &newest.record);
        }
        all.gates.retain(|_, gate| !gate.is_forgotten);
        all.applied = 0;
        let mut bytes = Vec::new();
        write(&all, &mut bytes);
        xxh3_64(&bytes)
    }
}

pub fn write(table: &CohortTable, out: &mut Vec<u8>) {
    put_u32(out, table.gates.len());
    put_u32(out, 0);
    for (key, gate) in &table.gates {
        write_gate(*key, gate, out);
    }
    put(out, &[table.known, table.applied]);
    put(out, &[table.newest.as_ref().map_or(0, |newest| newest.number + 1)]);
    let mut body = Vec::new();
    if let Some(newest) = &table.newest {
        record::write(&newest.record, &mut body);
    }
    put_u32(out, body.len());
    put_u32(out, 0);
    out.extend_from_slice(&body);
}

fn write_gate(key: GateKey, gate: &GateEntry, out: &mut Vec<u8>) {
    let Hold { session, number, incarnation, generation } = gate.hold;
    put(out, &[key.partition, key.cohort, gate.incarnation, gate.settled, gate.epoch, gate.told_under]);
    put(out, &[session, number, incarnation, generation, gate.rows.floor, gate.rows.greatest_parking]);
    put(out, &[u64::from(gate.is_forgotten) * FORGOTTEN]);
    put_u32(out, gate.rows.lines().count());
    put_u32(out, gate.rows.parkings().count());
    let mut words = Vec::new();
    gate.rows.lines().for_each(|line| line.words(&mut words));
    gate.rows.parkings().for_each(|parking| parking.words(&mut words));
    put(out, &words);
}

/// # Errors
/// [`Short`] names what is missing or unknown.
pub fn read(from: &mut Cursor<'_>) -> Result<CohortTable, Short> {
    let mut table = CohortTable::default();
    let gates = from.u32("number of gates")?;
    from.u32("reserved word")?;
    for _ in 0..gates {
        let (key, gate) = read_gate(from)?;
        if table.gates.last_key_value().is_some_and(|(last, _)| *last >= key) {
            return Err(Short("gates are not in their order"));
        }
        table.gates.insert(key, gate);
    }
    (table.known, table.applied) = (from.u64("known")?, from.u64("applied")?);
    let number = from.u64("newest record of cohorts")?;
    let bytes = from.u32("newest record of cohorts")? as usize;
    from.u32("reserved word")?;
    let body = from.take(bytes, "newest record of cohorts")?;
    if let Some(number) = number.checked_sub(1) {
        table.newest = Some(Newest { number, record: record::read(body)? });
    }
    table.check().map_err(|_| Short("ranges of cohorts that contradict each other"))?;
    Ok(table)
}

fn read_gate(from: &mut Cursor<'_>) -> Result<(GateKey, GateEntry), Short> {
    let key = GateKey { partition: from.u64("gate")?, cohort: from.u64("gate")? };
    let mut gate = GateEntry {
        incarnation: from.u64("gate")?,
        settled: from.u64("gate")?,
        epoch: from.u64("gate")?,
        told_under: from.u64("gate")?,
        ..GateEntry::default()
    };
    gate.hold = Hold {
        session: from.u64("hold")?,
        number: from.u64("hold")?,
        incarnation: from.u64("hold")?,
        generation: from.u64("hold")?,
    };
    let (floor, greatest) = (from.u64("floor")?, from.u64("greatest parking")?);
    let flags = from.u64("flags of a gate")?;
    if flags > FORGOTTEN {
        return Err(Short("unknown flags of a gate"));
    }
    gate.is_forgotten = flags == FORGOTTEN;
    let (lines, parkings) = (from.u32("ranges")?, from.u32("parkings")?);
    gate.rows.floor = floor;
    for _ in 0..lines {
        gate.rows.set(read_line(from)?);
    }
    for _ in 0..parkings {
        gate.rows.park(read_parking(from)?);
    }
    if gate.rows.floor != floor {
        return Err(Short("a floor below rows that are done"));
    }
    gate.rows.greatest_parking = greatest.max(gate.rows.greatest_parking);
    Ok((key, gate))
}

fn put(out: &mut Vec<u8>, values: &[u64]) {
    for value in values {
        out.extend_from_slice(&value.to_le_bytes());
    }
}

fn put_u32(out: &mut Vec<u8>, value: usize) {
    out.extend_from_slice(&u32::try_from(value).expect("bounded by the limits of a table").to_le_bytes());
}
