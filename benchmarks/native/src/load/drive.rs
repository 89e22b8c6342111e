//! The loop: fill the window, write, read answers, check every one of them.

use std::collections::BTreeMap;
use std::io;
use std::time::{Duration, Instant};

use rustix::event::{PollFd, PollFlags, Timespec, poll};

use super::extent::Extent;
use super::framing::{Framing, Outcome, Request};
use super::lanes::Lane;
use super::latency::Latencies;
use super::outbox::Outbox;
use crate::bodies::Body;
use crate::stream::Stream;

/// Bytes queued before the socket is written: enough for one large write, small enough to stay in the cache.
const QUEUED_BYTES: usize = 256 << 10;
/// Answers read at once: 7,000 of 130 bytes.
const READ_BYTES: usize = 1 << 20;
/// A server that says nothing for this long has failed the run.
const SILENCE: Duration = Duration::from_secs(60);

/// What a run sends.
pub struct Plan<'a> {
    pub bodies: &'a [Body],
    pub window: usize,
    /// New requests stop when this is over, even if fewer than planned were sent.
    pub time_max: Duration,
}

/// What is under way in one place of the window.
#[derive(Clone, Copy, Default)]
struct Place {
    id: u64,
    lane: u32,
    sequence: u64,
    sent: Option<Instant>,
}

/// Sums of one phase.
#[derive(Clone, Copy, Debug, Default)]
pub struct Totals {
    pub requests: u64,
    pub rows: u64,
    pub body_bytes: u64,
    pub again: u64,
    pub seconds: f64,
}

/// One connection and everything under way on it.
pub struct Driver<'a> {
    stream: Stream,
    framing: Framing,
    plan: Plan<'a>,
    lanes: Vec<Lane>,
    next_lane: usize,
    places: Vec<Place>,
    free: Vec<u32>,
    drawn: u64,
    unanswered_bytes: u64,
    credit_bytes: u64,
    body_bytes_max: u64,
    outbox: Outbox,
    buffer: Vec<u8>,
    buffered: usize,
    not_before: Option<Instant>,
    pub latencies: Latencies,
    pub extents: BTreeMap<u64, Extent>,
    pub totals: Totals,
}

impl<'a> Driver<'a> {
    /// Shake hands over a connected, blocking socket.
    ///
    /// # Errors
    /// Of the socket or the handshake.
    pub fn new(stream: Stream, framing: Framing, lanes: Vec<Lane>, plan: Plan<'a>) -> io::Result<Self> {
        let credit_bytes = framing.handshake(&stream)?;
        stream.set_nonblocking()?;
        let window = u32::try_from(plan.window).map_err(io::Error::other)?;
        Ok(Self {
            stream,
            framing,
            lanes,
            next_lane: 0,
            places: vec![Place::default(); plan.window],
            free: (0..window).rev().collect(),
            body_bytes_max: plan.bodies.iter().map(|body| body.bytes.len()).max().unwrap_or(0) as u64,
            plan,
            drawn: 0,
            unanswered_bytes: 0,
            credit_bytes,
            outbox: Outbox::default(),
            buffer: vec![0; READ_BYTES],
            buffered: 0,
            not_before: None,
            latencies: Latencies::with_capacity(1 << 16),
            extents: BTreeMap::new(),
            totals: Totals::default(),
        })
    }

    pub const fn credit_bytes(&self) -> u64 {
        self.credit_bytes
    }

    /// Send `requests` new requests and wait for every answer; sums and latencies are of this phase alone.
    ///
    /// # Errors
    /// Of the socket, a final refusal, or an answer that contradicts its request.
    pub fn phase(&mut self, requests: u64) -> io::Result<()> {
        self.totals = Totals::default();
        self.latencies.clear();
        let begin = Instant::now();
        let mut heard = begin;
        let mut left = requests;
        let mut wanted = requests;
        while self.totals.requests < wanted {
            let now = Instant::now();
            if now - begin > self.plan.time_max {
                wanted -= left;
                left = 0;
            }
            let more = self.fill(now, &mut left);
            let bodies = self.plan.bodies;
            self.outbox.write(&self.stream, |index| &bodies[index].bytes)?;
            if self.read()? {
                heard = Instant::now();
            } else if !more || self.outbox.waiting_bytes() > 0 {
                if heard.elapsed() > SILENCE {
                    return Err(io::Error::other(format!("no answer for {} s", SILENCE.as_secs())));
                }
                self.wait()?;
            }
        }
        self.totals.seconds = begin.elapsed().as_secs_f64();
        Ok(())
    }

    fn wait(&self) -> io::Result<()> {
        let mut flags = PollFlags::IN;
        if self.outbox.waiting_bytes() > 0 {
            flags |= PollFlags::OUT;
        }
        // While a refusal asks for patience, wake when it is over.
        let milliseconds = if self.not_before.is_some() { 1 } else { 1000 };
        let timeout = Timespec { tv_sec: milliseconds / 1000, tv_nsec: milliseconds % 1000 * 1_000_000 };
        poll(&mut [PollFd::new(&self.stream, flags)], Some(&timeout))?;
        Ok(())
    }

    /// Draw a lane that may send: the lane, the sequence, and whether it is a resend.
    fn draw(&mut self, left: u64) -> Option<(usize, u64, bool)> {
        for _ in 0..self.lanes.len() {
            let lane = self.next_lane;
            self.next_lane = (lane + 1) % self.lanes.len();
            if left == 0 && !self.lanes[lane].has_again() {
                continue;
            }
            if let Some((sequence, again)) = self.lanes[lane].draw() {
                return Some((lane, sequence, again));
            }
        }
        None
    }

    /// Which body a sequence of a lane carries: always the same, so that a resend is one.
    fn body_of(&self, lane: u32, sequence: u64) -> usize {
        let count = sequence * self.lanes.len() as u64 + u64::from(lane);
        (count % self.plan.bodies.len() as u64) as usize
    }

    /// Queue requests. True when only the queue's size ended that: the window has room for more.
    fn fill(&mut self, now: Instant, left: &mut u64) -> bool {
        if self.not_before.is_some_and(|instant| now < instant) {
            return false;
        }
        self.not_before = None;
        while !self.free.is_empty() {
            if self.outbox.waiting_bytes() >= QUEUED_BYTES {
                return true;
            }
            // A body is at most as large as the largest: asking before drawing keeps the lane untouched.
            let unanswered = self.places.len() - self.free.len();
            if unanswered > 0 && self.unanswered_bytes + self.body_bytes_max > self.credit_bytes {
                return false;
            }
            let Some((lane, sequence, again)) = self.draw(*left) else { return false };
            if !again {
                *left -= 1;
            }
            let place = self.free.pop().expect("the loop's condition");
            let id = self.drawn << 32 | u64::from(place);
            self.drawn += 1;
            self.places[place as usize] = Place { id, lane: lane as u32, sequence, sent: Some(now) };
            let index = self.body_of(lane as u32, sequence);
            let body = &self.plan.bodies[index];
            let request = Request { id, lane: &self.lanes[lane], sequence, body };
            let framing = &mut self.framing;
            self.outbox.push_with(|out| framing.push_head(out, &request));
            self.outbox.push_body(index, &body.bytes);
            self.unanswered_bytes += body.bytes.len() as u64;
        }
        false
    }

    /// Read and settle what has come. False when there was nothing.
    fn read(&mut self) -> io::Result<bool> {
        let count = match self.stream.read(&mut self.buffer[self.buffered..]) {
            Ok(0) => return Err(io::Error::other("the server closed the connection")),
            Ok(count) => count,
            Err(error) if error.kind() == io::ErrorKind::WouldBlock => return Ok(false),
            Err(error) => return Err(error),
        };
        self.buffered += count;
        let now = Instant::now();
        let buffer = std::mem::take(&mut self.buffer);
        let mut framing = std::mem::replace(&mut self.framing, Framing::Plain);
        let mut pong = Vec::new();
        let taken =
            framing.parse(&buffer[..self.buffered], &mut pong, &mut |id, outcome| self.settle(id, outcome, now));
        self.framing = framing;
        self.buffer = buffer;
        let taken = taken?;
        self.buffer.copy_within(taken..self.buffered, 0);
        self.buffered -= taken;
        if !pong.is_empty() {
            self.outbox.push_with(|out| out.extend_from_slice(&pong));
        }
        Ok(true)
    }

    fn settle(&mut self, id: u64, outcome: Outcome, now: Instant) -> io::Result<()> {
        let number = (id & u64::from(u32::MAX)) as usize;
        let place = self.places.get(number).copied().unwrap_or_default();
        let Some(sent) = place.sent.filter(|_| place.id == id) else {
            return Err(io::Error::other(format!("an answer to request {id:#x}, which is not under way")));
        };
        self.places[number].sent = None;
        self.free.push(number as u32);
        let body = &self.plan.bodies[self.body_of(place.lane, place.sequence)];
        self.unanswered_bytes -= body.bytes.len() as u64;
        let lane = &mut self.lanes[place.lane as usize];
        match outcome {
            Outcome::Again { retry_after_ms, .. } => {
                self.totals.again += 1;
                lane.answered(place.sequence, false);
                let until = now + Duration::from_millis(u64::from(retry_after_ms.clamp(1, 1000)));
                self.not_before = Some(self.not_before.map_or(until, |before| before.max(until)));
                return Ok(());
            }
            Outcome::Durable => {}
            Outcome::Stored { first_offset, rows, sequence, partition, credit_bytes } => {
                if (rows, sequence, partition) != (body.rows, place.sequence, lane.partition) {
                    return Err(io::Error::other(format!(
                        "asked for {} rows, sequence {}, partition {}; the answer has {rows}, {sequence}, {partition}",
                        body.rows, place.sequence, lane.partition
                    )));
                }
                self.credit_bytes = credit_bytes;
                self.extents.entry(partition).or_default().add(first_offset, rows);
            }
        }
        lane.answered(place.sequence, true);
        self.totals.requests += 1;
        self.totals.rows += u64::from(body.rows);
        self.totals.body_bytes += body.bytes.len() as u64;
        self.latencies.add((now - sent).as_nanos() as u64);
        Ok(())
    }

    /// Offsets of every partition were given without gap and without overlap.
    ///
    /// # Errors
    /// Names the first partition for which that is not so.
    pub fn check_extents(&self) -> io::Result<()> {
        match self.extents.iter().find(|(_, extent)| !extent.is_whole()) {
            None => Ok(()),
            Some((partition, extent)) => {
                Err(io::Error::other(format!("partition {partition}: a gap or an overlap in {extent:?}")))
            }
        }
    }
}
