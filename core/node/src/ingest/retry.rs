//! Parked requests: who waits, when they are served again, when they give up.

use ringfence_wire::Code;

use crate::api::refusal::Refusal;
use crate::engine::Parts;
use crate::ingest::parked::Parked;
use crate::turn::Turn;

impl Parts {
    /// Routed under something newer than this node knows: wait for `install_table` or `open`.
    pub(crate) fn park_ahead(&mut self, parked: Parked, turn: &mut Turn<'_>) {
        turn.counters.parked += 1;
        if let Err(parked) = self.ahead.push(parked) {
            self.refuse_ahead(&parked, "and no more requests can be parked", turn);
        }
    }

    fn refuse_ahead(&mut self, parked: &Parked, why: &str, turn: &mut Turn<'_>) {
        if let Some(applied) = self.applied.filter(|applied| parked.header.producer_epoch > *applied) {
            let what = format!(
                "producer {}: epoch {} is newer than this node's metadata, which is at index {applied}, {why}; epochs \
                 are drawn by PRODUCER_OPEN alone",
                parked.header.producer_id, parked.header.producer_epoch
            );
            let refusal = Refusal::new(Code::Ahead, what).with("applied", applied);
            return self.refuse(parked.connection, &parked.header, &refusal, turn);
        }
        let (topic, version) = (parked.header.topic, parked.header.layout_version);
        let here = self.tables.get(topic).map_or(0, |table| table.version);
        let what = format!(
            "topic {topic}: routed under version {version} and epoch {}, this node has version {here}, {why}",
            parked.header.owner_epoch
        );
        let refusal = Refusal::new(Code::Ahead, what).with("version", here);
        self.refuse(parked.connection, &parked.header, &refusal, turn);
    }

    /// Groups or pool are full: wait for the shard's next durable group.
    pub(crate) fn park_stalled(&mut self, shard: u16, parked: Parked, turn: &mut Turn<'_>) {
        turn.counters.stalled += 1;
        if let Err(parked) = self.stalled[usize::from(shard)].push(parked) {
            let refusal = Refusal::new(Code::Overloaded, "the memory budget is spent; wait for answers");
            self.refuse(parked.connection, &parked.header, &refusal, turn);
        }
    }

    /// The topic's table or one of its partitions changed: try again, in the order of arrival.
    pub(crate) fn serve_ahead(&mut self, topic: u64, turn: &mut Turn<'_>) {
        for parked in self.ahead.take_where(|parked| parked.header.topic == topic) {
            self.serve_again(parked, turn);
        }
    }

    /// The metadata is applied up to this index: producers whose epoch was drawn by it are served.
    pub(crate) fn applied(&mut self, index: u64, turn: &mut Turn<'_>) {
        let before = self.applied.unwrap_or(0);
        self.applied = Some(index.max(before));
        let is_drawn = |parked: &Parked| (before + 1..=index).contains(&parked.header.producer_epoch);
        for parked in self.ahead.take_where(is_drawn) {
            self.serve_again(parked, turn);
        }
    }

    fn serve_again(&mut self, parked: Parked, turn: &mut Turn<'_>) {
        if let Some(stalled) = self.publish_again(parked, turn) {
            let index = self.partitions.find(stalled.header.topic, stalled.header.partition);
            let shard = index.map_or(0, |index| self.partitions[index].shard);
            self.park_stalled(shard, stalled, turn);
        }
    }

    /// There may be room again.
    pub(crate) fn serve_stalled(&mut self, shard: u16, turn: &mut Turn<'_>) {
        let queue = usize::from(shard);
        self.replaying = true;
        while let Some(parked) = self.stalled[queue].pop() {
            if parked.deadline_ms <= turn.now.mono_ms {
                self.refuse_late(&parked, turn);
            } else if let Some(parked) = self.publish_again(parked, turn) {
                self.stalled[queue].push_front(parked);
                break;
            }
        }
        self.replaying = false;
    }

    fn refuse_late(&mut self, parked: &Parked, turn: &mut Turn<'_>) {
        let refusal = Refusal::new(Code::Deadline, "not begun before the deadline; nothing was stored");
        self.refuse(parked.connection, &parked.header, &refusal, turn);
    }

    /// Refuse who waited too long.
    pub(crate) fn end_waiting(&mut self, turn: &mut Turn<'_>) {
        let now = turn.now;
        for parked in self.ahead.take_where(|parked| parked.deadline_ms <= now.mono_ms) {
            self.refuse_ahead(&parked, "and its deadline is over", turn);
        }
        for queue in 0..self.stalled.len() {
            for parked in self.stalled[queue].take_where(|parked| parked.deadline_ms <= now.mono_ms) {
                self.refuse_late(&parked, turn);
            }
        }
    }

    /// The node is going down.
    pub(crate) fn refuse_all_waiting(&mut self, turn: &mut Turn<'_>) {
        let mut all = self.ahead.take_where(|_| true);
        for queue in &mut self.stalled {
            all.extend(queue.take_where(|_| true));
        }
        for parked in all {
            let refusal = Refusal::new(Code::Stopping, "the node is going down; nothing was stored");
            self.refuse(parked.connection, &parked.header, &refusal, turn);
        }
        for fetch in self.reads.take_waiting() {
            self.answer_empty(&fetch, turn);
        }
        for partition in self.partitions.iter_mut() {
            partition.waiting.clear();
        }
    }
}
