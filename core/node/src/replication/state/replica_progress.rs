//! Progress of one replica or learner, as its owner sees it: session, position, what is durable there. Pure.

use ringfence_log::ReadDone;
use ringfence_wire::RECORD_HEADER_BYTES;

use crate::api::jobs::Piece;
use crate::api::order::Place;
use crate::replication::state::replicate_bodies::{header_at, placed_rows};
use crate::replication::state::throttle::Throttle;

/// Where the copy to one store stands.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum SessionState {
    /// No connection, or the other side was not ready: asked again at this time.
    Down { retry_at_ms: u64 },
    /// FENCE is under way.
    Asked,
    /// The first REPLICATE is under way.
    Begun,
    /// Read from disk.
    Copying,
    /// Sent from memory: as it becomes durable, or from the tail when its window has room.
    Live,
    /// It cannot go on; an order or a new epoch begins again.
    Failed,
}

/// Fields change in this file and in `backoff.rs`; others call the transitions (`become_*`) and the methods named after
/// what happened.
#[allow(clippy::struct_excessive_bools)] // each is read by another file; they come in any combination
#[derive(Debug)]
pub struct ReplicaProgress {
    pub(super) place: Place,
    /// Change and attempt that copy to this learner; `None` = a replica of the set, which counts for the quorum.
    pub(super) learner: Option<(u64, u32)>,
    pub(super) stage: SessionState,
    /// Reason why the last session ended, in words; empty after the replica has got on since.
    pub(super) why: String,
    /// FENCE requests in a row that the replica refused because it was not told of this epoch yet.
    lagged: u32,
    /// Sessions in a row that ended before anything more was durable there (`backoff.rs`).
    pub(super) failed_attempts: u32,
    /// Number of the session, unique in a run; answers to an older one are stale. `None` without a session.
    pub(super) session: Option<u64>,
    /// Number of the newest request that the replica has answered.
    pub(super) heard: u64,
    /// Number of the next record to send.
    pub(super) next: u64,
    /// Records below this number are durable there, without a gap.
    pub(super) durable: u64,
    /// The replica had everything once in this session: it counts as there.
    pub(super) level: bool,
    /// Retention has removed records that the replica needs: it must be bootstrapped from the current log start.
    pub(super) needs_bootstrap: bool,
    /// How often the log start has passed the next record to send, since the replica was level.
    overtaken: u32,
    /// A read for the replica is under way.
    reading: bool,
    /// Bytes of the block for the next read that nothing throttles: more after a record that did not fit, and while
    /// more lies ahead than one read takes; less when half of it would do.
    read_bytes: usize,
    /// Bytes of a record in the last read, or of the record that did not fit.
    record_bytes: usize,
    /// The replica is copying, and lacks so little that the tail is kept for it.
    near: bool,
    /// Bytes of records that were sent in this session and not answered.
    unanswered_bytes: usize,
    /// The mark that the replica was told last, as a record number.
    pub(super) mark_sent: u64,
    throttle: Throttle,
    /// Bytes and rows that were sent, each record once.
    bytes: u64,
    rows: u64,
    /// Records below this number are in the two.
    counted: u64,
}

impl ReplicaProgress {
    pub fn new(place: Place, learner: Option<(u64, u32)>, throttle: Throttle) -> Self {
        Self {
            place,
            learner,
            stage: SessionState::Down { retry_at_ms: 0 },
            why: String::new(),
            lagged: 0,
            failed_attempts: 0,
            session: None,
            heard: 0,
            next: 0,
            durable: 0,
            level: false,
            needs_bootstrap: false,
            overtaken: 0,
            reading: false,
            read_bytes: READ_BYTES,
            record_bytes: 0,
            near: false,
            unanswered_bytes: 0,
            mark_sent: 0,
            throttle,
            bytes: 0,
            rows: 0,
            counted: 0,
        }
    }

    pub fn place(&self) -> &Place {
        &self.place
    }

    pub fn learner(&self) -> Option<(u64, u32)> {
        self.learner
    }

    #[inline]
    pub fn stage(&self) -> &SessionState {
        &self.stage
    }

    /// The session of a request that is about to be sent.
    ///
    /// # Panics
    /// Without a session: nothing is sent then.
    #[inline]
    pub fn session(&self) -> u64 {
        self.session.expect("requests are sent in a session only")
    }

    #[inline]
    pub fn next(&self) -> u64 {
        self.next
    }

    pub fn durable(&self) -> u64 {
        self.durable
    }

    pub fn is_level(&self) -> bool {
        self.level
    }

    pub fn needs_bootstrap(&self) -> bool {
        self.needs_bootstrap
    }

    pub fn is_reading(&self) -> bool {
        self.reading
    }

    pub fn unanswered_bytes(&self) -> usize {
        self.unanswered_bytes
    }

    pub fn mark_sent(&self) -> u64 {
        self.mark_sent
    }

    pub fn why(&self) -> &str {
        &self.why
    }

    /// Bytes and rows that were sent, each record once.
    pub fn sent(&self) -> (u64, u64) {
        (self.bytes, self.rows)
    }

    pub fn throttle(&self) -> &Throttle {
        &self.throttle
    }

    /// True if a piece of `bytes` may be read for the replica now.
    pub fn may_read(&mut self, bytes: u64, now_ms: u64) -> bool {
        self.throttle.allows(self.next, bytes, now_ms)
    }

    /// Limit the copy to this rate from now on; 0 = no limit.
    pub fn set_rate(&mut self, bytes_per_s: u64) {
        self.throttle.bytes_per_s = bytes_per_s;
    }

    /// True if the copy is a part of this change.
    pub fn is_of(&self, change: u64) -> bool {
        self.learner.is_some_and(|(own, _)| own == change)
    }

    #[inline]
    pub fn counts(&self) -> bool {
        self.learner.is_none()
    }
}

/// Transitions.
impl ReplicaProgress {
    /// The session is over; what it made durable stays true.
    pub fn become_down(&mut self, retry_at_ms: u64, why: &str) {
        if self.stage != SessionState::Failed {
            self.stage = SessionState::Down { retry_at_ms };
            why.clone_into(&mut self.why);
        }
        (self.level, self.session, self.reading) = (false, None, false);
    }

    /// FENCE is sent in a new session: nothing of that session is under way.
    pub fn become_asked(&mut self, session: u64) {
        (self.stage, self.session, self.unanswered_bytes) = (SessionState::Asked, Some(session), 0);
        (self.level, self.reading, self.near) = (false, false, false);
    }

    /// The two logs are equal below `common`; the first REPLICATE is sent.
    pub fn become_begun(&mut self, common: u64) {
        (self.stage, self.next, self.mark_sent) = (SessionState::Begun, common, 0);
    }

    /// The replica has answered a request. True if that was the first REPLICATE: then the copy begins.
    pub fn become_copying(&mut self) -> bool {
        let is_begun = self.stage == SessionState::Begun;
        if is_begun {
            self.stage = SessionState::Copying;
        }
        is_begun
    }

    /// The owner's log begins above the common record: the replica must be sent its beginning.
    pub fn become_empty(&mut self) {
        (self.stage, self.needs_bootstrap) = (SessionState::Copying, true);
    }

    /// The beginning of the log, from record `first` on, is sent in a frame of so many bytes.
    pub fn become_bootstrapped(&mut self, first: u64, frame_bytes: u64) {
        (self.stage, self.needs_bootstrap) = (SessionState::Copying, false);
        (self.next, self.mark_sent) = (first, 0);
        if first > self.counted {
            (self.bytes, self.counted) = (self.bytes + frame_bytes, first);
        }
    }

    /// The tail has what the replica lacks: it goes on from memory.
    pub fn become_live(&mut self) {
        self.stage = SessionState::Live;
    }

    /// The copy has everything that is durable here. True if it had not in this session before.
    pub fn become_complete(&mut self) -> bool {
        self.stage = SessionState::Live;
        let is_news = self.become_level();
        if is_news {
            self.overtaken = 0;
        }
        is_news
    }

    /// A copy that has come up to this very record goes on from memory. True if it had not everything in this session
    /// before.
    #[inline]
    pub fn become_live_at(&mut self, number: u64) -> bool {
        let is_there =
            self.stage == SessionState::Copying && !self.reading && !self.needs_bootstrap && self.next == number;
        if is_there {
            self.stage = SessionState::Live;
        }
        is_there && self.become_level()
    }

    /// A live replica has everything that is durable here. True if it had not in this session before.
    #[inline]
    pub fn become_level(&mut self) -> bool {
        !std::mem::replace(&mut self.level, true)
    }

    /// The tail lacks the next record: it is read from disk, and the tail is kept for what follows.
    pub fn become_late(&mut self) {
        (self.stage, self.near) = (SessionState::Copying, true);
    }

    /// It cannot go on.
    pub fn become_failed(&mut self, why: String) {
        self.become_given_up();
        self.why = why;
    }

    /// As [`Self::become_failed`], with the reason that the session ended for.
    pub(super) fn become_given_up(&mut self) {
        (self.stage, self.level) = (SessionState::Failed, false);
    }

    /// Its node has another store: what the lost one had is nowhere.
    pub fn become_wiped(&mut self, retry_at_ms: u64) {
        self.durable = 0;
        self.become_down(retry_at_ms, "the node has another store: it was wiped or replaced");
    }

    /// The log start has passed what the replica lacks: a new session finds the record at which it may begin. A learner
    /// fails after some times: what it received is dropped, and its change tries again or ends.
    pub fn become_overtaken(&mut self, now_ms: u64) {
        self.overtaken += 1;
        self.become_down(now_ms, "the log start has passed what it lacks: it begins from scratch");
        if !self.counts() && self.overtaken >= OVERTAKEN_MAX {
            self.become_given_up();
            self.why = format!(
                "the log start has passed what it lacks {OVERTAKEN_MAX} times, although retention waited: the partition is \
                 written faster than it is copied; write less for a while, or raise the topic's retention or the throttle"
            );
        }
    }

    /// The replica refused FENCE because it was not told of this epoch yet. How often it did so before, in a row.
    pub fn count_lag(&mut self) -> u32 {
        let before = self.lagged;
        self.lagged = before.saturating_add(1);
        before
    }

    /// It answered request `request`, of so many bytes, and has every record below `reached` on its disk.
    pub fn take_answer(&mut self, request: u64, reached: u64, bytes: usize) {
        self.unanswered_bytes = self.unanswered_bytes.saturating_sub(bytes);
        self.reached(reached);
        self.heard = self.heard.max(request);
        self.lagged = 0;
    }

    /// The replica has everything below this number. What it could not take before, it has taken.
    pub fn reached(&mut self, record: u64) {
        if record > self.durable {
            (self.durable, self.failed_attempts) = (record, 0);
            self.why.clear();
        }
    }

    /// Records are sent, with the mark.
    #[inline]
    pub fn send(&mut self, piece: Piece, records: &[u8], mark_record: u64) {
        self.count(piece, records);
        (self.next, self.mark_sent) = (piece.next, mark_record);
        self.unanswered_bytes += piece.bytes;
    }

    /// The mark alone is sent.
    pub fn send_mark(&mut self, mark_record: u64) {
        self.mark_sent = mark_record;
    }

    pub fn begin_read(&mut self) {
        self.reading = true;
    }

    pub fn end_read(&mut self) {
        self.reading = false;
    }

    /// The planted fault: what was received after a gap counts.
    #[cfg(feature = "planted")]
    pub fn plant_durable(&mut self, end: u64) {
        self.durable = end;
    }

    /// What becomes durable is kept in memory until it is sent there.
    pub fn takes_from_memory(&self) -> bool {
        match self.stage {
            SessionState::Live => true,
            SessionState::Copying => self.near && !self.needs_bootstrap && !self.throttle.holds(self.next),
            _ => false,
        }
    }

    /// What the next read is to take, and the block for it: of what is throttled a tenth of a second's worth, in a
    /// block with room for one record, so that one that is larger goes alone.
    pub fn next_read(&self) -> (usize, usize) {
        if !self.throttle.holds(self.next) {
            return (self.read_bytes, self.read_bytes);
        }
        let piece = usize::try_from(self.throttle.piece_bytes()).map_or(READ_BYTES, |piece| piece.min(READ_BYTES));
        (piece, piece.max(self.record_bytes))
    }

    /// One record takes more than the block for the read had.
    pub fn needs(&mut self, bytes: usize) {
        (self.record_bytes, self.read_bytes) = (bytes, self.read_bytes.max(bytes));
    }

    /// Something was read for it; `until` is where the tail begins, or would, `budget` what it may keep, `most_bytes`
    /// what one read may take.
    pub fn took(&mut self, done: &ReadDone, until: u64, budget: u64, most_bytes: usize) {
        if self.throttle.holds(self.next) {
            self.throttle.spend(done.bytes as u64);
        }
        self.record_bytes = done.bytes / done.records.max(1) as usize;
        let ahead_bytes = until.saturating_sub(done.next_record).saturating_mul(self.record_bytes as u64);
        self.near = ahead_bytes <= budget;
        if done.bytes <= self.read_bytes / 2 {
            self.read_bytes = (self.read_bytes / 2).max(READ_BYTES);
        } else if !self.throttle.holds(done.next_record) && ahead_bytes > self.read_bytes as u64 {
            self.read_bytes = self.read_bytes.max((self.read_bytes * 2).min(most_bytes));
        }
    }

    pub fn state(&self) -> &'static str {
        match self.stage {
            SessionState::Down { .. } | SessionState::Asked | SessionState::Begun => "waiting",
            SessionState::Copying | SessionState::Live if !self.level => "copying",
            SessionState::Copying | SessionState::Live => "contiguous",
            SessionState::Failed => "failed",
        }
    }
}

/// One read of a copy that is near its end, or throttled to what many of them are in a second: enough for the disk to
/// stream.
pub const READ_BYTES: usize = 1 << 20;

/// One read of a copy that runs after a log which grows: on a disk that is busy with writes a larger one hardly waits
/// longer. With the headers of four records of 1 MiB.
pub const READ_BYTES_MAX: usize = (4 << 20) + (4 << 10);

/// Of a copy read from disk and unanswered: while one read is synced there, the next is under way. With half of it the
/// reader stood still for as long as it read. What is appended there for others waits behind no more than this and one
/// read. Of a small node it is half of the window.
pub const COPY_AHEAD_BYTES: usize = 8 << 20;

/// What one read for a copy takes at most: of a small node a quarter of the window.
pub fn read_bytes_max(window_bytes: usize) -> usize {
    (window_bytes / 4).clamp(READ_BYTES, READ_BYTES_MAX)
}

/// The first session of a copy is throttled, later ones are not: what they lack came later. If that is too slow
/// twice, it will be.
const OVERTAKEN_MAX: u32 = 3;

impl ReplicaProgress {
    /// Before `next` passes it: what was sent before, or was there before, is no progress.
    fn count(&mut self, piece: Piece, records: &[u8]) {
        let known = self.counted.max(self.next);
        if piece.next <= known {
            return;
        }
        let (rows, bytes) = if piece.first < known { before(&records[..piece.bytes], known) } else { (0, 0) };
        self.rows += piece.rows - rows;
        self.bytes += (piece.bytes - bytes) as u64;
        self.counted = piece.next;
    }
}

/// Rows and bytes of the records below this number.
fn before(records: &[u8], number: u64) -> (u64, usize) {
    let (mut rows, mut place) = (0, 0);
    while place < records.len() {
        let header = header_at(records, place);
        if header.record_number >= number {
            break;
        }
        rows += placed_rows(&header);
        place += ringfence_wire::align_up(RECORD_HEADER_BYTES + header.body_bytes as usize, 64);
    }
    (rows, place)
}

#[cfg(test)]
#[path = "progress_tests.rs"]
mod tests;
