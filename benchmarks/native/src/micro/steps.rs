//! Steps by name: prepared once, then run as often as asked.

use std::hint::black_box;
use std::sync::Arc;

use ringfence_batch::SchemaPlan;
use ringfence_node::LAYOUT_LEVEL;
use ringfence_routing::{Entry, Fence, Gate, Table, Tables, Verdict};
use ringfence_wire::RequestHeader;

use super::world::{Hosting, World};
use crate::bodies::Body;

const ENTRY_WORDS: usize = size_of::<Entry>() / 8;
const GATE_WORDS: usize = size_of::<Gate>() / 8;
/// A step of a large odd number: slots follow no order that a processor could guess.
const SLOT_STEP: u16 = 40_503;

/// A prepared step.
pub enum Step {
    /// Table of the topic, entry of a slot, then the partition's gate: what a batch costs before its body is looked at.
    RouteFence { tables: Tables, gates: Vec<Gate> },
    /// The three dependent reads of `RouteFence` from memory of the same size, and nothing else: its yardstick.
    Reads { slots: Vec<u16>, entries: Vec<[u64; ENTRY_WORDS]>, gates: Vec<[u64; GATE_WORDS]> },
    /// A request header from bytes: magic, CRC, version, lengths.
    Decode { header: [u8; 128] },
    /// The whole check of one body, slots of its keys included.
    Validate { plan: SchemaPlan, slots: std::ops::RangeInclusive<u16>, body: Body },
    /// CRC-32C of one body: the yardstick of `Validate`.
    Crc { body: Body },
    /// Everything from a received request to its answer, the disk left out; of partitions with and without a sketch.
    Ingest { world: Box<World>, body: Body },
    /// The status of all partitions.
    Status { world: Box<World> },
    /// A batch that was stored before: decode, fence, look-up, answer.
    Dedupe { world: Box<World>, body: Body },
}

pub const NAMES: &[&str] = &[
    "route_fence",
    "reads",
    "decode",
    "validate",
    "crc",
    "ingest",
    "ingest_all_slots",
    "ingest_all_slots_sketch",
    "ingest_keys",
    "ingest_keys_sketch",
    "status",
    "status_sketch",
    "dedupe",
];

/// What a step is made of.
pub struct Material<'a> {
    pub schema: &'a [u8],
    pub key_columns: &'a [usize],
    pub partitions: u64,
    pub body: Body,
}

/// Prepare a step.
///
/// # Errors
/// An unknown name, a schema that is none, or an engine that refuses.
pub fn prepare(name: &str, material: Material<'_>) -> Result<Step, String> {
    let Material { schema, key_columns, partitions, body } = material;
    match name {
        "route_fence" => Ok(route_fence(partitions)),
        "reads" => Ok(reads(partitions)),
        "decode" => {
            let header = RequestHeader { opcode: 16, rows: body.rows, body_crc: body.crc, ..RequestHeader::default() };
            Ok(Step::Decode { header: header.seal() })
        }
        "validate" => {
            let plan = SchemaPlan::new(schema, key_columns).map_err(|error| error.to_string())?;
            // All slots but one: a check of the full range would leave the hash out, and no row has the last slot.
            let slots = 0..=u16::MAX - 1;
            plan.check(&body.bytes, body.rows, Some(slots.clone())).map_err(|error| error.to_string())?;
            Ok(Step::Validate { plan, slots, body })
        }
        "crc" => Ok(Step::Crc { body }),
        "ingest" | "dedupe" => {
            let mut world = Box::new(World::new(schema, key_columns, Hosting::of(partitions))?);
            world.run(partitions.max(64), &body)?;
            if name == "ingest" { Ok(Step::Ingest { world, body }) } else { Ok(Step::Dedupe { world, body }) }
        }
        "ingest_all_slots"
        | "ingest_all_slots_sketch"
        | "ingest_keys"
        | "ingest_keys_sketch"
        | "status"
        | "status_sketch" => {
            // No row has the last slot: a partition without it checks the slot of each key.
            let last_slot = if name.starts_with("ingest_keys") { u16::MAX - 1 } else { u16::MAX };
            let hosting = Hosting { partitions, slots: Some((0, last_slot)), level: LAYOUT_LEVEL };
            let mut world = Box::new(World::new(schema, key_columns, hosting)?);
            world.run(partitions.max(64), &body)?;
            if name.ends_with("_sketch") {
                world.make_busy(&body)?;
            }
            if name.starts_with("status") { Ok(Step::Status { world }) } else { Ok(Step::Ingest { world, body }) }
        }
        _ => Err(format!("unknown step {name:?}; known: {NAMES:?}")),
    }
}

fn route_fence(partitions: u64) -> Step {
    let slot = |at: u64| u16::try_from(at * 65_536 / partitions).expect("below 65,536");
    let entries: Vec<Entry> = (0..partitions)
        .map(|at| {
            let hi = if at + 1 == partitions { u16::MAX } else { slot(at + 1) - 1 };
            Entry { partition: at, lo: slot(at), hi, owner: 1, epoch: 7 }
        })
        .collect();
    let gates = entries
        .iter()
        .map(|_| {
            let mut gate = Gate::new(Fence::default());
            gate.see_table(3, 7, true);
            gate.open(7);
            gate
        })
        .collect();
    let mut tables = Tables::default();
    tables.install(1, Arc::new(Table::new(1, 3, entries).expect("a tiling")));
    Step::RouteFence { tables, gates }
}

fn reads(partitions: u64) -> Step {
    let count = usize::try_from(partitions).expect("below 65,536");
    let slots = (0..65_536_u64).map(|slot| u16::try_from(slot * partitions / 65_536).expect("below it")).collect();
    Step::Reads { slots, entries: vec![[0; ENTRY_WORDS]; count], gates: vec![[7; GATE_WORDS]; count] }
}

impl Step {
    /// Do it `count` times. Never inlined: instruction counts begin and end with this function.
    ///
    /// # Errors
    /// It did not do what it must.
    #[inline(never)]
    pub fn run(&mut self, count: u64) -> Result<(), String> {
        match self {
            Self::RouteFence { tables, gates } => {
                let mut slot = 0_u16;
                for _ in 0..count {
                    slot = slot.wrapping_add(SLOT_STEP);
                    let table = tables.get(black_box(1)).ok_or("no table")?;
                    let entry = table.of_slot(slot);
                    let verdict = gates[entry.partition as usize].check(black_box(3), entry.epoch);
                    if verdict != Verdict::Admit {
                        return Err(format!("slot {slot}: {verdict:?}"));
                    }
                }
                Ok(())
            }
            Self::Reads { slots, entries, gates } => {
                let mut slot = 0_u16;
                for _ in 0..count {
                    slot = slot.wrapping_add(SLOT_STEP);
                    let at = usize::from(slots[usize::from(slot)]);
                    // The gate is found by what the entry says, as a partition's number is.
                    let entry = black_box(entries[at])[0];
                    black_box(gates[at + usize::try_from(entry).map_err(|error| error.to_string())?][0]);
                }
                Ok(())
            }
            Self::Decode { header } => {
                for _ in 0..count {
                    black_box(RequestHeader::open(black_box(header)).map_err(|error| error.to_string())?);
                }
                Ok(())
            }
            Self::Validate { plan, slots, body } => {
                for _ in 0..count {
                    plan.check(black_box(&body.bytes), body.rows, Some(slots.clone()))
                        .map_err(|error| error.to_string())?;
                }
                Ok(())
            }
            Self::Crc { body } => {
                for _ in 0..count {
                    if crc32c::crc32c(black_box(&body.bytes)) != body.crc {
                        return Err("the CRC differs".to_owned());
                    }
                }
                Ok(())
            }
            Self::Ingest { world, body } => world.run(count, body),
            Self::Status { world } => {
                for _ in 0..count {
                    black_box(world.status());
                }
                Ok(())
            }
            Self::Dedupe { world, body } => world.repeat(count, body),
        }
    }
}
