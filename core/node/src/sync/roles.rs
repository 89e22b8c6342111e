//! Orders that say what this store is to a partition, and to whom it is copied.

use ringfence_buffer::Pool;

use super::owner::{Owner, Sync};
use super::throttle::Throttle;
use super::{End, Follower, Role};
use crate::acks::{Due, Shared, Then, What};
use crate::engine::Engine;
use crate::event::{Effects, Now};
use crate::order::Place;
use crate::orders::{Halt, Step};
use crate::orders_partition::Key;
use crate::outcome::Finished;
use crate::partition::At;

impl Engine {
    /// The partition has another role from here on. Who waited for a mark of the old one hears that nobody knows.
    pub(crate) fn take_role(&mut self, at: At, role: Role, effects: &mut Effects) {
        self.give_up_waiting(at, "the owner changed before enough replicas had it on disk", effects);
        self.sync.tails.forget(at);
        let was = matches!(&self.partitions[at].role, Role::Owner(_));
        let is = matches!(&role, Role::Owner(_));
        self.sync.streaming = self.sync.streaming + usize::from(is) - usize::from(was);
        let partition = &mut self.partitions[at];
        if matches!(partition.role, Role::None) && !matches!(role, Role::Alone | Role::None) {
            // What this store found on its disk may be on no other one: nothing is shown before a quorum is heard.
            partition.mark = partition.log.start_offset();
        }
        partition.role = role;
    }

    /// An OPEN whose epoch record was appended: with replicas, the mark waits for them.
    pub(crate) fn open_as(
        &mut self,
        at: At,
        epoch: u64,
        epoch_record: u64,
        replicas: &[Place],
        quorum: u16,
        effects: &mut Effects,
    ) {
        // From here on this log is the one: what no commit names any more goes.
        self.scopes.settle(&mut self.partitions[at].stages, true);
        self.partitions[at].settle_stages();
        self.trust(at);
        if replicas.is_empty() {
            return self.take_role(at, Role::Alone, effects);
        }
        let mut owner = Owner::new(epoch, usize::from(quorum), epoch_record);
        for place in replicas {
            self.sync.peers.want(place.node);
            owner.syncs.push(Sync::new(*place, (0, 0), Throttle::default()));
        }
        self.take_role(at, Role::Owner(Box::new(owner)), effects);
        self.has_business(at);
    }

    /// # Errors
    /// As a sentence; nothing has changed.
    pub(crate) fn check_set(&self, replicas: &[Place], quorum: u16) -> Result<(), String> {
        let stores = replicas.len() + 1;
        if usize::from(quorum) != stores / 2 + 1 {
            return Err(format!("a quorum of {quorum} is no majority of {stores} stores"));
        }
        let own = replicas.iter().find(|place| place.node == self.settings.node);
        let twice = (1..replicas.len()).find(|at| replicas[..*at].iter().any(|one| one.node == replicas[*at].node));
        match (own, twice) {
            (Some(_), _) => Err("this node is the owner: it is not among the other replicas".to_owned()),
            (_, Some(at)) => Err(format!("node {} is named twice", replicas[at].node)),
            _ => Ok(()),
        }
    }

    /// Take the records of this epoch's owner. Those of a learner count towards no majority until they are adopted.
    pub(crate) fn follow(
        &mut self,
        key: Key,
        slots: (u16, u16),
        follower: Follower,
        effects: &mut Effects,
    ) -> Result<Step, Halt> {
        let epoch = follower.epoch;
        let Some(plans) = self.topics.get(&key.0).map(|topic| topic.plans.clone()) else {
            return Err(format!("topic {} is not installed; install it before its partitions", key.0).into());
        };
        let at = self.partitions.find(key.0, key.1).unwrap_or_else(|| self.host(key));
        if self.partitions[at].dropped {
            self.revive(at)?;
        }
        let partition = &mut self.partitions[at];
        let newest = match &partition.role {
            Role::Follower(follower) => follower.epoch,
            Role::Owner(held) => held.epoch,
            Role::Alone => partition.gate.open_epoch(),
            Role::None => 0,
        };
        if epoch < newest || (epoch == newest && !matches!(partition.role, Role::Follower(_))) {
            return Err(format!("partition {}: epoch {epoch} is not above {newest}", key.1).into());
        }
        (partition.plans, partition.slots, partition.opening) = (Some(plans), slots, 0);
        partition.gate.close();
        if let Role::Follower(known) = &mut partition.role
            && known.epoch == epoch
        {
            // The same session goes on: only whether it counts may be new.
            known.learner = follower.learner;
            return Ok(Step::Done(Finished::Done));
        }
        self.take_role(at, Role::Follower(Box::new(follower)), effects);
        Ok(Step::Done(Finished::Done))
    }

    /// A fence that ends when the mark has reached all that was appended before it.
    pub(crate) fn hold(&mut self, number: u64, key: Key, epoch: u64, pool: &mut Pool) -> Result<Step, Halt> {
        self.fence_at(number, key, epoch, true, pool)
    }

    #[allow(clippy::too_many_arguments)] // the fields of one order
    pub(crate) fn sync_start(
        &mut self,
        key: Key,
        (change, attempt): (u64, u32),
        target: Place,
        bytes_per_s: u64,
        now: Now,
        effects: &mut Effects,
    ) -> Result<Step, Halt> {
        let at = self.hosted(key)?;
        if change == 0 || target.node == self.settings.node {
            return Err(format!("partition {}: change {change} to node {} cannot be", key.1, target.node).into());
        }
        if matches!(self.partitions[at].role, Role::Alone) {
            self.lead_alone(at, effects);
        }
        let partition = &mut self.partitions[at];
        let until = partition.log.end().next_record;
        let Role::Owner(owner) = &mut partition.role else {
            return Err(format!("partition {} is not owned here; ask its owner", key.1).into());
        };
        if let Some(sync) = owner.syncs.iter().find(|sync| sync.place.node == target.node) {
            if (sync.change, sync.attempt) == (change, attempt) {
                return Ok(Step::Done(Finished::Done));
            }
            let what = format!("partition {}: node {} is synced to by change {}", key.1, target.node, sync.change);
            return Err(what.into());
        }
        owner.syncs.push(Sync::new(target, (change, attempt), Throttle::new(bytes_per_s, until, now.mono_ms)));
        self.sync.peers.want(target.node);
        self.has_business(at);
        self.tell_syncs(at, effects);
        Ok(Step::Done(Finished::Done))
    }

    /// An owner without replicas gets a first learner: it stays its own quorum.
    fn lead_alone(&mut self, at: At, effects: &mut Effects) {
        let partition = &self.partitions[at];
        let head = partition.log.end();
        let (shard, group) = (usize::from(partition.shard), partition.last_group);
        let end = End { record: head.next_record, offset: head.next_offset };
        let mut owner = Owner::new(head.owner_epoch, 1, 0);
        if group <= self.shards[shard].durable_group() {
            (owner.durable, owner.mark_record) = (end, end.record);
        } else {
            let upto = Some(Shared { end, epoch: owner.epoch });
            self.acks[shard].push(Due { group, partition: at, shared: upto, what: What::Nothing });
        }
        self.take_role(at, Role::Owner(Box::new(owner)), effects);
    }

    pub(crate) fn sync_rate(&mut self, change: u64, bytes_per_s: u64) -> Step {
        for partition in self.partitions.iter_mut() {
            let Role::Owner(owner) = &mut partition.role else { continue };
            for sync in owner.syncs.iter_mut().filter(|sync| sync.change == change) {
                sync.throttle.bytes_per_s = bytes_per_s;
            }
        }
        Step::Done(Finished::Done)
    }

    pub(crate) fn sync_stop(&mut self, change: u64, effects: &mut Effects) -> Step {
        for at in 0..self.partitions.places() {
            let Some(partition) = self.partitions.get_mut(at) else { continue };
            let Role::Owner(owner) = &mut partition.role else { continue };
            owner.syncs.retain(|sync| sync.change != change);
            if owner.syncs.is_empty() && owner.quorum == 1 && owner.waiting.is_empty() {
                self.take_role(at, Role::Alone, effects);
            }
            self.trim(at);
        }
        Step::Done(Finished::Done)
    }

    /// What was received under this change counts from here on.
    pub(crate) fn adopt(&mut self, change: u64, attempt: u32) -> Result<Step, Halt> {
        let mut any = false;
        for partition in self.partitions.iter_mut() {
            if let Role::Follower(follower) = &mut partition.role
                && follower.learner == Some((change, attempt))
            {
                (follower.learner, any) = (None, true);
                #[cfg(feature = "planted")]
                if ringfence_log::planted::is_on(ringfence_log::planted::Bug::TableDropped) {
                    partition.producers = crate::dedupe::Producers::default();
                }
                #[cfg(feature = "planted")]
                if ringfence_log::planted::is_on(ringfence_log::planted::Bug::StagesDropped) {
                    partition.stages = crate::stage_table::Stages::default();
                }
            }
        }
        if any {
            Ok(Step::Done(Finished::Done))
        } else {
            Err(format!("nothing was received under change {change}, attempt {attempt}, in this run").into())
        }
    }

    /// What was received under this change is given up, and its space with it.
    pub(crate) fn discard(
        &mut self,
        number: u64,
        (change, attempt): (u64, u32),
        pool: &mut Pool,
        effects: &mut Effects,
    ) -> Result<Step, Halt> {
        let mut ended = None;
        for at in 0..self.partitions.places() {
            let Some(partition) = self.partitions.get(at).filter(|partition| !partition.dropped) else { continue };
            let Role::Follower(follower) = &partition.role else { continue };
            if follower.learner != Some((change, attempt)) {
                continue;
            }
            let key = partition.key();
            self.partitions[at].given_up = Some((change, attempt));
            if let Some((at, placed)) = ended.replace((at, self.bury(key, pool, effects)?)) {
                // One outcome an order: the last of them tells, and records of one shard are durable in order.
                let shard = usize::from(placed.shard);
                let what = What::Order { number: 0, finished: Finished::Done, then: Then::Dropped };
                self.acks[shard].push(Due { group: placed.group, partition: at, shared: None, what });
            }
        }
        let Some((at, placed)) = ended else { return self.when_given_up(number, (change, attempt)) };
        Ok(self.when_durable(number, at, &placed, Finished::Done, Then::Dropped))
    }

    /// Nothing is left to give up; what was may be on its way to the disk yet.
    fn when_given_up(&mut self, number: u64, under: (u64, u32)) -> Result<Step, Halt> {
        let places = 0..self.partitions.places();
        let is_it = |at: &At| self.partitions.get(*at).is_some_and(|one| one.given_up == Some(under));
        let going: Vec<At> = places.filter(|at| is_it(at) && self.is_going(*at)).collect();
        let Some((last, others)) = going.split_last() else { return Ok(Step::Done(Finished::Done)) };
        for at in others {
            self.when_last_durable(0, *at, Finished::Done, Then::Nothing)?;
        }
        self.when_last_durable(number, *last, Finished::Done, Then::Nothing)
    }
}
