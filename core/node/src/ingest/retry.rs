//! Parked requests: who waits, when they are served again, when they give up.

use ringfence_buffer::Pool;
use ringfence_wire::Code;

use crate::api::effects::Effects;
use crate::api::event::Now;
use crate::api::refusal::Refusal;
use crate::engine::Engine;
use crate::ingest::parked::Parked;

impl Engine {
    /// Routed under something newer than this node knows: wait for `install_table` or `open`.
    pub(crate) fn park_ahead(&mut self, parked: Parked, effects: &mut Effects) {
        self.counters.parked += 1;
        if let Err(parked) = self.ahead.push(parked) {
            self.refuse_ahead(&parked, "and no more requests can be parked", effects);
        }
    }

    fn refuse_ahead(&mut self, parked: &Parked, why: &str, effects: &mut Effects) {
        if let Some(applied) = self.applied.filter(|applied| parked.header.producer_epoch > *applied) {
            let what = format!(
                "producer {}: epoch {} is newer than this node's metadata, which is at index {applied}, {why}; epochs \
                 are drawn by PRODUCER_OPEN alone",
                parked.header.producer_id, parked.header.producer_epoch
            );
            let refusal = Refusal::new(Code::Ahead, what).with("applied", applied);
            return self.refuse(parked.connection, &parked.header, &refusal, effects);
        }
        let (topic, version) = (parked.header.topic, parked.header.layout_version);
        let here = self.tables.get(topic).map_or(0, |table| table.version);
        let what = format!(
            "topic {topic}: routed under version {version} and epoch {}, this node has version {here}, {why}",
            parked.header.owner_epoch
        );
        let refusal = Refusal::new(Code::Ahead, what).with("version", here);
        self.refuse(parked.connection, &parked.header, &refusal, effects);
    }

    /// Groups or pool are full: wait for the shard's next durable group.
    pub(crate) fn park_stalled(&mut self, shard: u16, parked: Parked, effects: &mut Effects) {
        self.counters.stalled += 1;
        if let Err(parked) = self.stalled[usize::from(shard)].push(parked) {
            let refusal = Refusal::new(Code::Overloaded, "the memory budget is spent; wait for answers");
            self.refuse(parked.connection, &parked.header, &refusal, effects);
        }
    }

    /// The topic's table or one of its partitions changed: try again, in the order of arrival.
    pub(crate) fn serve_ahead(&mut self, topic: u64, now: Now, pool: &mut Pool, effects: &mut Effects) {
        for parked in self.ahead.take_where(|parked| parked.header.topic == topic) {
            self.serve_again(parked, now, pool, effects);
        }
    }

    /// The metadata is applied up to this index: producers whose epoch was drawn by it are served.
    pub(crate) fn applied(&mut self, index: u64, now: Now, pool: &mut Pool, effects: &mut Effects) {
        let before = self.applied.unwrap_or(0);
        self.applied = Some(index.max(before));
        let is_drawn = |parked: &Parked| (before + 1..=index).contains(&parked.header.producer_epoch);
        for parked in self.ahead.take_where(is_drawn) {
            self.serve_again(parked, now, pool, effects);
        }
    }

    fn serve_again(&mut self, parked: Parked, now: Now, pool: &mut Pool, effects: &mut Effects) {
        if let Some(stalled) = self.publish_again(parked, now, pool, effects) {
            let index = self.partitions.find(stalled.header.topic, stalled.header.partition);
            let shard = index.map_or(0, |index| self.partitions[index].shard);
            self.park_stalled(shard, stalled, effects);
        }
    }

    /// There may be room again.
    pub(crate) fn serve_stalled(&mut self, shard: u16, now: Now, pool: &mut Pool, effects: &mut Effects) {
        let queue = usize::from(shard);
        self.replaying = true;
        while let Some(parked) = self.stalled[queue].pop() {
            if parked.deadline_ms <= now.mono_ms {
                self.refuse_late(&parked, effects);
            } else if let Some(parked) = self.publish_again(parked, now, pool, effects) {
                self.stalled[queue].push_front(parked);
                break;
            }
        }
        self.replaying = false;
    }

    fn refuse_late(&mut self, parked: &Parked, effects: &mut Effects) {
        let refusal = Refusal::new(Code::Deadline, "not begun before the deadline; nothing was stored");
        self.refuse(parked.connection, &parked.header, &refusal, effects);
    }

    /// Refuse who waited too long.
    pub(crate) fn end_waiting(&mut self, now: Now, effects: &mut Effects) {
        for parked in self.ahead.take_where(|parked| parked.deadline_ms <= now.mono_ms) {
            self.refuse_ahead(&parked, "and its deadline is over", effects);
        }
        for queue in 0..self.stalled.len() {
            for parked in self.stalled[queue].take_where(|parked| parked.deadline_ms <= now.mono_ms) {
                self.refuse_late(&parked, effects);
            }
        }
    }

    /// The node is going down.
    pub(crate) fn refuse_all_waiting(&mut self, effects: &mut Effects) {
        let mut all = self.ahead.take_where(|_| true);
        for queue in &mut self.stalled {
            all.extend(queue.take_where(|_| true));
        }
        for parked in all {
            let refusal = Refusal::new(Code::Stopping, "the node is going down; nothing was stored");
            self.refuse(parked.connection, &parked.header, &refusal, effects);
        }
        for fetch in self.reads.take_waiting() {
            self.answer_empty(&fetch, effects);
        }
        for partition in self.partitions.iter_mut() {
            partition.waiting.clear();
        }
    }
}
