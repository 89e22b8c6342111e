//! Rebuild partitions from scanned groups, in order: decide which records count, and attribute damage to partitions.
//!
//! A partition's records may begin at any number, because retention removes files. Records that are missing before the
//! first one, or between two files, count as removed if they turn out to be below the log start, otherwise as damage.
//! Damage is decided at the end, because a partition that was dropped later has holes in place of its bodies.

use std::collections::HashMap;

use ringfence_wire::{RecordHeader, RecordKind};

use crate::files::FilePin;
use crate::log_end::{LogEnd, is_log, offsets_of};
use crate::partition::PartitionLog;
use crate::position::{Position, segment_name};
use crate::report::{Damage, Report};
use crate::scan::{Ending, ScannedGroup, ScannedRecord};
use crate::state::{LogState, read_log_end};
use crate::visitor::Visitor;

#[derive(Default)]
pub struct Rebuild {
    partitions: HashMap<(u64, u64), PartitionRebuild>,
    pub report: Report,
}

struct PartitionRebuild {
    log: PartitionLog,
    /// Records before this offset are missing: correct only if the log start is at or after it.
    missing_before: Option<(u64, Damage)>,
    damage: Option<Damage>,
    /// A damaged group may have held records of the partition; a later record that continues its chain disproves it.
    suspicion: Option<Damage>,
}

/// The file of a group, and the visitor.
struct Context<'a> {
    pin: &'a FilePin,
    visitor: &'a mut dyn Visitor,
}

impl Rebuild {
    /// Add the next group of the store.
    pub fn group(&mut self, pin: &FilePin, found: &ScannedGroup, visitor: &mut dyn Visitor) {
        let mut context = Context { pin, visitor };
        let mut seen: HashMap<(u64, u64), u32> = HashMap::new();
        let is_whole = found.is_whole();
        let mut lost = Self::unattributed_holes(found).into_iter().peekable();
        for record in &found.records {
            // In file order: only a record after the hole can clear its partition of suspicion.
            while let Some(hole) = lost.next_if(|hole| hole.start < record.position) {
                self.suspect(pin, found.number, &hole);
            }
            if record.header.kind == RecordKind::Pad as u8 {
                continue;
            }
            if !is_whole {
                *seen.entry((record.header.topic, record.header.partition)).or_default() += 1;
            }
            self.record(&mut context, record, &found.bytes[record.kept.clone()]);
        }
        for hole in lost {
            self.suspect(pin, found.number, &hole);
        }
        if !is_whole {
            self.attribute_damage(pin, found, &seen);
        }
    }

    /// Ranges that may have held records of any partition, because the directory is lost as well.
    fn unattributed_holes(found: &ScannedGroup) -> Vec<std::ops::Range<u64>> {
        match (&found.ending, found.holes.is_empty()) {
            (Ending::Read(_), _) | (Ending::Unreadable, true) => Vec::new(),
            (Ending::Missing, true) => std::iter::once(found.end..found.end).collect(),
            _ => found.holes.clone(),
        }
    }

    fn part(&mut self, topic: u64, partition: u64) -> &mut PartitionRebuild {
        self.partitions.entry((topic, partition)).or_insert_with(|| PartitionRebuild {
            log: PartitionLog::new(topic, partition),
            missing_before: None,
            damage: None,
            suspicion: None,
        })
    }

    fn record(&mut self, context: &mut Context<'_>, record: &ScannedRecord, kept: &[u8]) {
        let header = &record.header;
        let at = |why: String| damage_at(context.pin, record.position, header, why);
        self.report.records += u64::from(is_log(header.kind));
        if !record.has_clean_padding {
            let damage = at("the padding behind the record is not zero; the record itself is sound".to_owned());
            self.report.damage.push(damage);
        }
        let bad_body = (!record.is_body_sound).then(|| at("the body is damaged".to_owned()));
        self.report.damage.extend(bad_body.clone());
        if self.part(header.topic, header.partition).log.dropped {
            // No record of a log follows its drop: the partition was created again and a new log begins.
            self.restart(header.topic, header.partition);
            self.report.damage.extend(bad_body.clone());
        }
        let part = self.part(header.topic, header.partition);
        let position = Position::new(context.pin.number, record.position);
        let problem = if is_log(header.kind) {
            part.log_record(context, header, position, kept, bad_body.is_some())
        } else if bad_body.is_some() {
            part.log.use_file(context.pin, None);
            None
        } else {
            part.local_record(context, header, kept)
        };
        let restarts = header.kind == RecordKind::State as u8 && bad_body.is_none() && part.log.anchored;
        let problem = problem.map(|why| damage_at(context.pin, record.position, header, why));
        // For these kinds the header says everything, unless the record has a note.
        let kinds = [RecordKind::Rows, RecordKind::Epoch, RecordKind::Producer].map(|kind| kind as u8);
        let is_told = kinds.contains(&header.kind) && header.extension_bytes == 0;
        part.log.has_recovery_gap |= problem.is_some() || (bad_body.is_some() && !is_told);
        if let (Some(damage), None) = (bad_body.or(problem.clone()), &part.damage) {
            part.damage = Some(damage);
        }
        if restarts {
            // Files of the old log may be missing in the middle; it no longer counts.
            forget_damage(&mut self.report, (header.topic, header.partition));
        }
        self.report.damage.extend(problem);
    }

    /// A record after the drop: the damage before it belongs to a log that no longer counts.
    fn restart(&mut self, topic: u64, partition: u64) {
        forget_damage(&mut self.report, (topic, partition));
        let part = self.part(topic, partition);
        part.log.restart();
        (part.damage, part.missing_before, part.suspicion) = (None, None, None);
    }

    /// The group's directory and some of its bytes are lost: any known partition may have had a record there.
    fn suspect(&mut self, pin: &FilePin, group: u64, hole: &std::ops::Range<u64>) {
        let why = format!("{} bytes and the directory of group {group} are damaged", hole.end - hole.start);
        self.suspect_all(pin, hole.start, why);
    }

    fn suspect_all(&mut self, pin: &FilePin, position: u64, why: String) {
        let file = segment_name(pin.number, pin.shard);
        let damage = Damage { file, position, topic: 0, partition: 0, record_number: None, why };
        for part in self.partitions.values_mut().filter(|part| !part.log.dropped) {
            let named = Damage { topic: part.log.topic, partition: part.log.partition, ..damage.clone() };
            part.suspicion.get_or_insert(named);
        }
        self.report.damage.push(damage);
    }

    /// The shard's next file proves that this file held groups that are missing.
    pub fn missing_groups(&mut self, pin: &FilePin, position: u64, from: u64, until: u64) {
        self.suspect_all(pin, position, format!("groups {from} to {} are missing", until.saturating_sub(1)));
    }

    /// Attribute a group's damage to partitions by its directory.
    fn attribute_damage(&mut self, pin: &FilePin, found: &ScannedGroup, seen: &HashMap<(u64, u64), u32>) {
        let file = segment_name(pin.number, pin.shard);
        let unattributed = |position, why: String| Damage {
            file: file.clone(),
            position,
            topic: 0,
            partition: 0,
            record_number: None,
            why,
        };
        if found.is_end_header_damaged || found.ending == Ending::Unreadable {
            let why = format!(
                "the directory of group {} is damaged; its damaged records are reported by themselves",
                found.number
            );
            self.report.damage.push(unattributed(found.directory_at, why));
        }
        let Some(directory) = found.directory() else { return };
        for entry in &directory.entries {
            let present = seen.get(&(entry.topic, entry.partition)).copied().unwrap_or(0);
            if present >= entry.records {
                continue;
            }
            let is_of = |record: &ScannedRecord| {
                (record.header.topic, record.header.partition) == (entry.topic, entry.partition)
            };
            if self.part(entry.topic, entry.partition).log.dropped && !found.records.iter().any(is_of) {
                // The partition was dropped in an earlier group: the lost records belong to its new log.
                self.restart(entry.topic, entry.partition);
            }
            let part = self.part(entry.topic, entry.partition);
            let damage = Damage {
                topic: entry.topic,
                partition: entry.partition,
                record_number: Some(part.log.end.next_record.min(entry.next_record)),
                ..unattributed(
                    found.holes.first().map_or(found.begin, |hole| hole.start),
                    format!(
                        "{} of {} records of the partition in group {} are damaged",
                        entry.records - present,
                        entry.records,
                        found.number
                    ),
                )
            };
            part.log.use_file(pin, Some(part.log.end.next_offset));
            part.log.has_recovery_gap = true;
            part.log.index.gap();
            part.damage.get_or_insert(damage.clone());
            self.report.damage.push(damage);
        }
    }

    /// The final damage, and the partitions.
    pub fn finish(self) -> (Vec<PartitionLog>, Report) {
        let mut report = self.report;
        // Sorted, because equal stores must give equal reports.
        let mut parts: Vec<_> = self.partitions.into_iter().collect();
        parts.sort_unstable_by_key(|(key, _)| *key);
        let mut logs = Vec::with_capacity(parts.len());
        for (_, part) in parts {
            let mut log = part.log;
            if !log.dropped {
                let missing =
                    part.missing_before.filter(|(offset, _)| *offset > log.start_offset).map(|(_, damage)| damage);
                if let (None, Some(damage)) = (&part.damage, missing.clone().or(part.suspicion.clone())) {
                    report.damage.push(damage);
                }
                log.has_recovery_gap |= missing.is_some() || part.suspicion.is_some();
                log.damage = part.damage.or(missing).or(part.suspicion).map(Box::new);
            }
            log.start_offset_durable = log.start_offset;
            log.index.trim(log.start_offset, log.stage_floor);
            logs.push(log);
        }
        let dropped = |damage: &Damage| {
            logs.iter().any(|log| log.dropped && (log.topic, log.partition) == (damage.topic, damage.partition))
        };
        // Holes in place of bodies of dropped partitions.
        report.damage.retain(|damage| damage.topic == 0 || !dropped(damage));
        report.partitions = logs.iter().filter(|log| !log.dropped).map(PartitionLog::report).collect();
        (logs, report)
    }
}

impl PartitionRebuild {
    /// Add a log record; returns the reason if it is damage.
    fn log_record(
        &mut self,
        context: &mut Context<'_>,
        header: &RecordHeader,
        position: Position,
        kept: &[u8],
        is_body_bad: bool,
    ) -> Option<String> {
        let log = &mut self.log;
        log.use_file(context.pin, Some(header.first_offset + offsets_of(header)));
        let mut problem = None;
        let accepted = log.accept(header);
        log.anchored = false;
        #[cfg(feature = "planted")]
        let accepted = accepted.or_else(|mismatch| {
            if crate::planted::is_on(crate::planted::Bug::RecycledBytes) { Ok(()) } else { Err(mismatch) }
        });
        match accepted {
            // A record that continues the chain proves that nothing of this log was lost before it.
            Ok(()) => self.suspicion = None,
            Err(_) if header.record_number > log.end.next_record => {
                let why = format!("records {} to {} are missing", log.end.next_record, header.record_number - 1);
                self.missing_before =
                    Some((header.first_offset, damage_at(context.pin, position.bytes(), header, why)));
                log.index.gap();
            }
            Err(mismatch) => {
                problem = Some(mismatch.to_string());
                if header.record_number < log.end.next_record {
                    return problem;
                }
            }
        }
        log.end = LogEnd::after(header, position);
        log.see_staged(header);
        if is_body_bad {
            log.index.gap();
        } else {
            let publish_list = if header.kind == RecordKind::Publish as u8 {
                crate::staged_bytes::publish_list(kept)
            } else {
                Vec::new()
            };
            let rows_bytes = log.rows_bytes(header, &publish_list);
            log.index.add(header, position, rows_bytes);
        }
        context.visitor.record(header, if is_body_bad { &[] } else { kept });
        problem
    }

    fn local_record(&mut self, context: &mut Context<'_>, header: &RecordHeader, body: &[u8]) -> Option<String> {
        let log = &mut self.log;
        log.use_file(context.pin, None);
        match RecordKind::from_number(header.kind) {
            Some(RecordKind::Fence) => log.fence = log.fence.max(header.owner_epoch),
            Some(RecordKind::Start) => log.start_at(header.first_offset),
            Some(RecordKind::Truncate) => {
                let Some(end) = read_log_end(body) else { return Some("a truncate record without a end".to_owned()) };
                if end.next_record > log.end.next_record {
                    self.skip_to(context.pin, header, end);
                } else {
                    log.cut_to(end);
                }
                let log = &self.log;
                context.visitor.truncate(log.topic, log.partition, end.next_record);
            }
            Some(RecordKind::State) => return self.state_record(context, header, body),
            // Records before it may have been removed: a later state record says so, or the node finds the log short.
            Some(RecordKind::Sealed) => context.visitor.sealed(header, body),
            _ => return Some(format!("a record of kind {}, which no log holds", header.kind)),
        }
        None
    }

    /// A local record says that the log was longer than the records that are here.
    fn skip_to(&mut self, pin: &FilePin, header: &RecordHeader, to: LogEnd) {
        let why = format!("records {} to {} are missing", self.log.end.next_record, to.next_record - 1);
        self.missing_before = Some((to.next_offset, damage_at(pin, 0, header, why)));
        self.log.index.gap();
        self.log.end = to;
    }

    fn state_record(&mut self, context: &mut Context<'_>, header: &RecordHeader, body: &[u8]) -> Option<String> {
        let log = &mut self.log;
        let Some(state) = LogState::read(body) else { return Some("a state record that cannot be read".to_owned()) };
        log.state_records.clear();
        log.state_records.push((0, context.pin.number));
        log.fence = log.fence.max(state.fence);
        if state.dropped {
            log.end = state.end;
            log.mark_dropped();
            (self.damage, self.missing_before, self.suspicion) = (None, None, None);
            context.visitor.dropped(log.topic, log.partition);
            return None;
        }
        if state.anchored {
            (self.damage, self.missing_before, self.suspicion) = (None, None, None);
            log.has_recovery_gap = false;
            if !state.end.same_log(&log.end) {
                log.anchor(state.end);
            }
            log.anchored = true;
        } else if state.released {
            (self.damage, self.missing_before, self.suspicion) = (None, None, None);
            log.has_recovery_gap = false;
            if !state.end.same_log(&log.end) {
                log.index.gap();
            }
            log.end = state.end;
        } else if state.end.next_record > log.end.next_record {
            self.skip_to(context.pin, header, state.end);
        } else if !state.end.same_log(&log.end) {
            return Some(format!(
                "a state record names the end {:?}, the log before it ends with {:?}",
                state.end, log.end
            ));
        }
        let log = &mut self.log;
        log.start_at(state.start_offset);
        context.visitor.state(log.topic, log.partition, &body[crate::state::STATE_BYTES..]);
        None
    }
}

fn forget_damage(report: &mut Report, key: (u64, u64)) {
    report.damage.retain(|damage| (damage.topic, damage.partition) != key);
}

fn damage_at(pin: &FilePin, position: u64, header: &RecordHeader, why: String) -> Damage {
    Damage {
        file: segment_name(pin.number, pin.shard),
        position,
        topic: header.topic,
        partition: header.partition,
        record_number: Some(header.record_number),
        why,
    }
}
