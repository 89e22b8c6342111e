//! START HERE: the way of one batch, one call a line. What can refuse stands before what writes, and nothing can
//! interleave: fence, dedupe and append of a partition happen in one call on one thread (B1). A batch that is stopped
//! has changed nothing (I15).

use std::panic::{AssertUnwindSafe, catch_unwind};

use ringfence_log::Refusal as LogRefusal;
use ringfence_routing::Verdict;
use ringfence_transport::{Connection, Inbound};
use ringfence_wire::extension::{self, BadExtension};
use ringfence_wire::{
    Code, ExtensionKind, NOTE_BYTES_MAX, Opcode, ROWS_MAX, RecordHeader, RecordKind, RedirectReason, RequestHeader,
    crc_of,
};

use crate::acks::{BatchDue, Due, What};
use crate::dedupe::{Decision, Identity, Reject, Source};
use crate::engine::Engine;
use crate::event::{Effects, Now};
use crate::park::{OwnedBody, Parked, bytes_of};
use crate::partition::{At, Partition, Rest};
use crate::producer::Answer;
use crate::refusal::Refusal;
use crate::requests::patience_ms;
use crate::sync::{End, Role, Waiting};
use ringfence_buffer::Pool;

/// Why a batch was not appended.
pub(crate) enum Stop {
    Refuse(Refusal),
    Redirect(RedirectReason),
    /// Stored before: the first answer again.
    Repeat(At, Answer),
    /// Staged before, as this record.
    Restage(At, u64),
    /// The stage's epoch was committed.
    Committed,
    /// Routed under a newer table or epoch.
    Ahead,
    /// Groups or pool are full: wait for the shard's next durable group.
    Stalled(u16),
}

impl From<Refusal> for Stop {
    fn from(refusal: Refusal) -> Self {
        Self::Refuse(refusal)
    }
}

impl Engine {
    /// The steps of one PUBLISH. `body` is taken only by the append.
    fn ingest(
        &mut self,
        from: Connection,
        header: &RequestHeader,
        body: &mut Option<Inbound<'_>>,
        now: Now,
        pool: &mut Pool,
    ) -> Result<(), Stop> {
        if header.opcode == Opcode::Stage as u8 {
            return self.ingest_stage(from, header, body, now, pool);
        }
        let bytes = body.as_ref().map_or(&[][..], bytes_of);
        check_limits(header, bytes)?;
        let at = self.locate(header)?;
        let partition = &self.partitions[at];
        check_gate(partition, header)?;
        self.check_queue(partition.shard)?;
        check_dedupe(at, partition, header)?;
        self.check_drawn(partition, header)?;
        Self::check_replicas(partition)?;
        check_crc(header, bytes)?;
        let note = check_extension(header, bytes)?;
        self.check_producer_room(&self.partitions[at], header)?;
        self.check_body(at, header, bytes)?;
        self.append_rows(at, from, header, body, note, now, pool)
    }

    /// Take a PUBLISH: append it, park it, or answer why not.
    pub(crate) fn publish(
        &mut self,
        from: Connection,
        header: &RequestHeader,
        body: Inbound<'_>,
        now: Now,
        pool: &mut Pool,
        effects: &mut Effects,
    ) {
        let deadline_ms = now.mono_ms + self.patience_ms(header);
        let mut body = Some(body);
        if let Err(stop) = self.ingest(from, header, &mut body, now, pool) {
            let park = || Parked {
                connection: from,
                header: *header,
                body: body.map_or(OwnedBody::Small(Box::default()), OwnedBody::of),
                deadline_ms,
            };
            if let Some((shard, parked)) = self.stopped(stop, from, header, now, park, effects) {
                self.park_stalled(shard, parked, effects);
            }
        }
    }

    /// A parked PUBLISH again; back comes what still cannot be served for want of room.
    pub(crate) fn publish_again(
        &mut self,
        parked: Parked,
        now: Now,
        pool: &mut Pool,
        effects: &mut Effects,
    ) -> Option<Parked> {
        if parked.header.opcode == Opcode::Replicate as u8 {
            return self.replicate_again(parked, pool, effects);
        }
        let Parked { connection, header, body, deadline_ms } = parked;
        let mut kept = Box::default();
        let mut inbound = Some(match body {
            OwnedBody::Small(bytes) => {
                kept = bytes;
                Inbound::Small(&kept)
            }
            OwnedBody::Large(payload) => Inbound::Large(payload),
        });
        // Its deadline and its latency count from its arrival.
        let arrival = Now { mono_ms: deadline_ms.saturating_sub(patience_ms(&header)), ..now };
        let stop = self.ingest(connection, &header, &mut inbound, arrival, pool).err()?;
        let large = if let Some(Inbound::Large(payload)) = inbound { Some(payload) } else { None };
        let body = large.map_or_else(|| OwnedBody::Small(kept), OwnedBody::Large);
        let park = || Parked { connection, header, body, deadline_ms };
        self.stopped(stop, connection, &header, now, park, effects).map(|(_, parked)| parked)
    }

    /// Answer, or park. Back comes what waits for room in a shard: the caller knows its place in the queue.
    fn stopped(
        &mut self,
        stop: Stop,
        from: Connection,
        header: &RequestHeader,
        now: Now,
        park: impl FnOnce() -> Parked,
        effects: &mut Effects,
    ) -> Option<(u16, Parked)> {
        match stop {
            Stop::Refuse(refusal) => self.refuse(from, header, &refusal, effects),
            Stop::Redirect(reason) => self.redirect(from, header, reason, effects),
            Stop::Repeat(at, answer) => self.repeat(at, from, header, answer, now, effects),
            Stop::Restage(at, record) => self.restage(at, from, header, record, now, effects),
            Stop::Committed => self.answer_committed(from, header, effects),
            Stop::Ahead => self.park_ahead(park(), effects),
            Stop::Stalled(shard) => return Some((shard, park())),
        }
        None
    }

    /// The partition that the header names, or why it is not to be found here.
    pub(crate) fn locate(&self, header: &RequestHeader) -> Result<At, Stop> {
        if let Some(at) = self.partitions.find(header.topic, header.partition)
            && !self.partitions[at].dropped
        {
            return Ok(at);
        }
        let unknown = |code, what| Refusal::new(code, what).with("topic", header.topic);
        let Some(table) = self.tables.get(header.topic) else {
            return Err(if self.topics.contains_key(&header.topic) && header.layout_version > 0 {
                Stop::Ahead
            } else {
                unknown(Code::UnknownTopic, format!("topic {} is not known here", header.topic)).into()
            });
        };
        if header.layout_version > table.version {
            return Err(Stop::Ahead);
        }
        match table.of_partition(header.partition) {
            Some(entry) if entry.owner != self.settings.node => Err(Stop::Redirect(RedirectReason::NotOwner)),
            Some(_) => Err(Stop::Redirect(RedirectReason::Closed)),
            None if header.layout_version < table.version => Err(Stop::Redirect(RedirectReason::StaleVersion)),
            None => {
                let what = format!("partition {} is not one of topic {}", header.partition, header.topic);
                Err(unknown(Code::UnknownPartition, what).with("partition", header.partition).into())
            }
        }
    }

    /// While older requests of the shard wait for room, newer ones queue behind them: order within a partition stays.
    pub(crate) fn check_queue(&self, shard: u16) -> Result<(), Stop> {
        if self.stalled[usize::from(shard)].is_empty() || self.replaying { Ok(()) } else { Err(Stop::Stalled(shard)) }
    }

    /// Full validation, with its panics counted.
    pub(crate) fn check_body(&mut self, at: At, header: &RequestHeader, bytes: &[u8]) -> Result<(), Refusal> {
        let checked = check_body(&self.partitions[at], header, bytes);
        self.counters.inflated_bytes += ringfence_batch::take_decompressed_bytes() as u64;
        if matches!(&checked, Err(refusal) if refusal.code == Code::Internal) {
            self.counters.body_panics += 1;
        }
        checked
    }

    #[allow(clippy::too_many_arguments)] // the last step has everything that the others found
    fn append_rows(
        &mut self,
        at: At,
        from: Connection,
        header: &RequestHeader,
        body: &mut Option<Inbound<'_>>,
        note: Option<Box<[u8]>>,
        now: Now,
        pool: &mut Pool,
    ) -> Result<(), Stop> {
        let placed = self.put_body(at, record_of(header, now), body, pool)?;
        let partition = &mut self.partitions[at];
        let shard = usize::from(partition.shard);
        let deadline_ms = now.mono_ms + patience_ms(header);
        let identity = identity_of(header);
        let before = partition.producers.bytes();
        let source = Source {
            record: placed.record_number,
            first_offset: placed.first_offset,
            time_ms: placed.time_ms,
            mark: partition.mark,
        };
        let send = partition.producers.stored(&identity, source, note);
        let grown = partition.producers.bytes().wrapping_sub(before);
        self.producers_bytes = self.producers_bytes.wrapping_add(grown);
        let end = End { record: placed.record_number + 1, offset: placed.first_offset + u64::from(header.rows) };
        let upto = partition.shared(end);
        partition.last_group = placed.group;
        partition.rest = Rest::Fresh;
        self.acks[shard].push(Due {
            group: placed.group,
            partition: at,
            shared: upto,
            what: What::Batch(BatchDue {
                connection: from,
                request_id: header.request_id,
                sequence: header.sequence,
                send,
                first_offset: placed.first_offset,
                rows: header.rows,
                repeated: false,
                staged: false,
                arrived_ms: now.mono_ms,
                deadline_ms,
            }),
        });
        self.counters.appended += 1;
        self.counters.rows += u64::from(header.rows);
        self.counters.bytes += u64::from(header.body_bytes);
        Ok(())
    }

    /// The first answer again, at once if its record is durable, else together with it.
    #[allow(clippy::too_many_arguments)] // as `stopped`
    fn repeat(
        &mut self,
        at: At,
        from: Connection,
        header: &RequestHeader,
        answer: Answer,
        now: Now,
        effects: &mut Effects,
    ) {
        self.counters.repeated += 1;
        let partition = &self.partitions[at];
        // What waits for a quorum is answered with it, or not told of.
        let is_sure = answer.first_offset + u64::from(answer.rows) <= partition.mark;
        let upto = if is_sure { partition.mark } else { u64::MAX };
        let send = partition.producers.send_max_below(header.producer_id, upto);
        let due = BatchDue {
            connection: from,
            request_id: header.request_id,
            sequence: header.sequence,
            send,
            first_offset: answer.first_offset,
            rows: answer.rows,
            repeated: true,
            staged: false,
            arrived_ms: now.mono_ms,
            deadline_ms: now.mono_ms + patience_ms(header),
        };
        let head = partition.log.end();
        let end = End { record: head.next_record, offset: head.next_offset };
        let shard = usize::from(partition.shard);
        if due.end_offset() <= partition.mark {
            self.answer_batch(at, &due, effects);
        } else if let Role::Owner(owner) = &mut self.partitions[at].role
            && owner.durable >= end
        {
            // On this disk, and not on enough others yet.
            owner.waiting.push_back(Waiting { end, what: What::Batch(due) });
            self.has_business(at);
        } else if let ringfence_log::ShardStatus::Failed(why) = self.shards[shard].status() {
            let refusal = Refusal::new(Code::UnknownOutcome, format!("appended, not known durable: {why}"));
            self.refuse(from, header, &refusal, effects);
        } else {
            let group = self.partitions[at].last_group;
            let upto = self.partitions[at].shared(end);
            let what = What::Batch(due);
            self.acks[usize::from(self.partitions[at].shard)].push(Due { group, partition: at, shared: upto, what });
        }
    }
}

pub(crate) fn check_limits(header: &RequestHeader, bytes: &[u8]) -> Result<(), Refusal> {
    let too_large = |what: &str| Refusal::new(Code::TooLarge, what).with("rows", u64::from(header.rows));
    if header.body_bytes as usize != bytes.len() {
        let what = format!("header names {} body bytes, the frame has {}", header.body_bytes, bytes.len());
        return Err(Refusal::new(Code::BadHeader, what));
    }
    if header.rows == 0 {
        return Err(Refusal::new(Code::ZeroRows, "a batch must have rows"));
    }
    if header.rows as usize > ROWS_MAX {
        return Err(too_large(&format!("{} rows in one batch, the limit is {ROWS_MAX}", header.rows)));
    }
    Ok(())
}

pub(crate) fn check_gate(partition: &Partition, header: &RequestHeader) -> Result<(), Stop> {
    match partition.gate.check(header.layout_version, header.owner_epoch) {
        Verdict::Admit | Verdict::Redirect(_) if partition.is_quarantined() => Err(quarantined(partition).into()),
        Verdict::Admit => Ok(()),
        Verdict::Redirect(reason) => Err(Stop::Redirect(reason)),
        Verdict::Ahead => Err(Stop::Ahead),
        Verdict::Held => {
            let what = format!("partition {}: on HOLD at {}", header.partition, partition.gate.fence().epoch());
            Err(Refusal::new(Code::Held, what).with("partition", header.partition).into())
        }
    }
}

pub(crate) fn quarantined(partition: &Partition) -> Refusal {
    let why = partition.quarantine().unwrap_or_default();
    let what = format!("partition {}: its log is damaged ({why}); an operator must repair it", partition.log.partition);
    Refusal::new(Code::Quarantined, what).with("partition", partition.log.partition)
}

fn check_dedupe(at: At, partition: &Partition, header: &RequestHeader) -> Result<(), Stop> {
    match partition.producers.decide(&identity_of(header)) {
        Decision::New => Ok(()),
        Decision::Repeated(answer) => Err(Stop::Repeat(at, answer)),
        Decision::Refused(reject) => Err(rejected(reject, header).into()),
    }
}

impl Engine {
    /// An epoch that is new to the partition was drawn by the metadata, unless this node lags behind it.
    fn check_drawn(&self, partition: &Partition, header: &RequestHeader) -> Result<(), Stop> {
        let is_newer = self.applied.is_some_and(|applied| header.producer_epoch > applied);
        let known = || partition.producers.get(header.producer_id).map_or(0, |entry| entry.epoch);
        if is_newer && header.producer_epoch > known() { Err(Stop::Ahead) } else { Ok(()) }
    }
}

fn rejected(reject: Reject, header: &RequestHeader) -> Refusal {
    let (id, epoch, sequence) = (header.producer_id, header.producer_epoch, header.sequence);
    let who = format!("partition {}, producer {id}", header.partition);
    let refusal = |what: String| Refusal::new(reject.code(), what);
    match reject {
        Reject::Fenced { open } => {
            refusal(format!("{who}: epoch {epoch} is fenced, {open} is open")).with("producer_epoch", open)
        }
        Reject::Forgotten { epoch: known } => {
            refusal(format!("{who}: epoch {epoch} is forgotten (up to {known} are); open a new one"))
                .with("producer_epoch", epoch)
        }
        Reject::Gap { expected } => refusal(format!("{who}: sequence {sequence} before {expected}"))
            .with("sequence", expected)
            .expecting(expected),
        Reject::Conflict { stored } => {
            refusal(format!("{who}: sequence {sequence} is stored with other content (CRC {:#010x})", stored.crc))
                .with("first_offset", stored.first_offset)
        }
        Reject::TooOld { oldest } => {
            refusal(format!("{who}: sequence {sequence} is stored, answers are kept from {oldest}"))
                .with("oldest", oldest)
        }
        Reject::SendDescends { last } => {
            refusal(format!("{who}: send {} after {last}; it must not descend", header.send)).with("send", last)
        }
        Reject::NoProducer => refusal(format!("{who}: a batch needs the id of an opened producer")),
    }
}

pub(crate) fn check_crc(header: &RequestHeader, bytes: &[u8]) -> Result<(), Refusal> {
    let found = crc_of(bytes);
    if found == header.body_crc {
        return Ok(());
    }
    let what = format!("body has CRC {found:#010x}, its header names {:#010x}; send it again", header.body_crc);
    Err(Refusal::new(Code::BodyCrc, what))
}

/// The note in front of the body, if there is one.
fn check_extension(header: &RequestHeader, bytes: &[u8]) -> Result<Option<Box<[u8]>>, Refusal> {
    let length = header.extension_bytes as usize;
    if length == 0 {
        return Ok(None);
    }
    let (mut note, mut staged) = (None, false);
    let walked = extension::each(&bytes[..length], |kind, payload| match kind {
        ExtensionKind::Note => note = Some(payload),
        ExtensionKind::Stage => staged = true,
    });
    walked.map_err(|BadExtension(why)| Refusal::new(Code::BadBody, format!("extension: {why}")))?;
    if staged {
        return Err(Refusal::new(Code::InvalidArgument, "PUBLISH carries a stage identity; use STAGE"));
    }
    match note {
        Some(note) if note.len() > NOTE_BYTES_MAX => {
            let what = format!("note has {} bytes, the limit is {NOTE_BYTES_MAX}", note.len());
            Err(Refusal::new(Code::TooLarge, what))
        }
        note => Ok(note.map(Box::from)),
    }
}

/// Full validation, once, at the first owner. A panic in there is a defect of ours, and costs one batch, not the node.
fn check_body(partition: &Partition, header: &RequestHeader, bytes: &[u8]) -> Result<(), Refusal> {
    let plan = partition.plans.as_ref().and_then(|plans| plans.schemas.get(header.schema_id as usize));
    let Some(plan) = plan else {
        let what = format!("topic {} has no schema {} here", header.topic, header.schema_id);
        return Err(Refusal::new(Code::WrongSchema, what).with("schema_id", u64::from(header.schema_id)));
    };
    let has_key = partition.plans.as_ref().is_some_and(|plans| plans.has_key());
    let slots = has_key.then_some(partition.slots.0..=partition.slots.1);
    let message = &bytes[header.extension_bytes as usize..];
    match catch_unwind(AssertUnwindSafe(|| plan.check(message, header.rows, slots))) {
        Ok(Ok(())) => Ok(()),
        Ok(Err(error)) => Err(Refusal::new(error.code(), error.to_string())),
        Err(_) => Err(Refusal::new(Code::Internal, "the check of this body panicked; nothing was stored")),
    }
}

pub(crate) fn record_of(header: &RequestHeader, now: Now) -> RecordHeader {
    RecordHeader {
        kind: RecordKind::Rows as u8,
        rows: header.rows,
        topic: header.topic,
        partition: header.partition,
        layout_version: header.layout_version,
        owner_epoch: header.owner_epoch,
        producer_id: header.producer_id,
        producer_epoch: header.producer_epoch,
        sequence: header.sequence,
        send: header.send,
        time_ms: now.unix_ms,
        schema_id: header.schema_id,
        extension_bytes: header.extension_bytes,
        body_bytes: header.body_bytes,
        body_crc: header.body_crc,
        ..RecordHeader::default()
    }
}

fn identity_of(header: &RequestHeader) -> Identity {
    Identity {
        producer_id: header.producer_id,
        epoch: header.producer_epoch,
        sequence: header.sequence,
        send: header.send,
        rows: header.rows,
        crc: header.body_crc,
    }
}

/// What a refusal of the log means to the sender.
pub(crate) fn stop_of(refusal: LogRefusal, shard: u16) -> Stop {
    Stop::Refuse(match refusal {
        LogRefusal::Busy => return Stop::Stalled(shard),
        LogRefusal::DiskFull => Refusal::new(Code::DiskFull, "no disk space for rows; reads go on"),
        LogRefusal::Failed(why) => {
            Refusal::new(Code::StorageFailed, format!("shard {shard} takes nothing more: {why}"))
        }
        LogRefusal::Quarantined => Refusal::new(Code::Quarantined, "the partition's log is damaged"),
        LogRefusal::TooLarge { bytes, max } => {
            Refusal::new(Code::TooLarge, format!("a record of {bytes} bytes; {max} fit a segment file of this node"))
        }
        LogRefusal::Fenced { epoch } => Refusal::new(Code::Held, format!("the partition is fenced at epoch {epoch}")),
        LogRefusal::Dropped => Refusal::new(Code::UnknownPartition, "the partition was dropped"),
        LogRefusal::Mismatch(mismatch) => Refusal::new(Code::Internal, mismatch.to_string()),
    })
}
