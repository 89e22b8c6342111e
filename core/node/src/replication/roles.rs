//! Roles of this store: become owner or follower of a partition, begin and end copies to other stores.

use crate::api::completion::{Completion, ReplicatedEnd};
use crate::api::order::Place;
use crate::api::order_step::{OrderError, OrderProgress};
use crate::api::outcome::Finished;
use crate::ids::{End, PartitionIndex, PartitionKey};
use crate::replication::replication_machine::ReplicationMachine;
use crate::replication::state::follower::Follower;
use crate::replication::state::owner::Owner;
use crate::replication::state::replica_progress::ReplicaProgress;
use crate::replication::state::role::Role;
use crate::replication::state::throttle::Throttle;
use crate::turn::Turn;

impl ReplicationMachine<'_> {
    /// Change the role of this store. Batches that waited for a mark of the old role get `unknown_outcome`.
    pub(crate) fn take_role(&mut self, index: PartitionIndex, role: Role, turn: &mut Turn<'_>) {
        self.give_up_waiting(index, "the owner changed before enough replicas had it on disk", turn);
        self.replication.tails.forget(index);
        let was = matches!(&self.store.partitions[index].role, Role::Owner(_));
        let is = matches!(&role, Role::Owner(_));
        self.replication.streaming = self.replication.streaming + usize::from(is) - usize::from(was);
        let partition = &mut self.store.partitions[index];
        if matches!(partition.role, Role::None) && !matches!(role, Role::Alone | Role::None) {
            // What this store found on its disk may be on no other one: nothing is shown before a quorum is heard.
            partition.mark = partition.log.start_offset();
        }
        partition.role = role;
    }

    /// An OPEN whose epoch record was appended: with replicas, the mark waits for them.
    pub(crate) fn open_as(
        &mut self,
        index: PartitionIndex,
        epoch: u64,
        epoch_record: u64,
        replicas: &[Place],
        quorum: u16,
        turn: &mut Turn<'_>,
    ) {
        self.store.trust(index);
        if replicas.is_empty() {
            return self.take_role(index, Role::Alone, turn);
        }
        let mut owner = Owner::new(epoch, usize::from(quorum), epoch_record);
        for place in replicas {
            self.replication.peers.want(place.node);
            owner.replicas.push(ReplicaProgress::new(*place, None, Throttle::default()));
        }
        self.take_role(index, Role::Owner(Box::new(owner)), turn);
        self.store.needs_tick(index);
    }

    /// # Errors
    /// As a sentence; nothing has changed.
    pub(crate) fn check_set(&self, replicas: &[Place], quorum: u16) -> Result<(), String> {
        let stores = replicas.len() + 1;
        if usize::from(quorum) != stores / 2 + 1 {
            return Err(format!("a quorum of {quorum} is no majority of {stores} stores"));
        }
        let own = replicas.iter().find(|place| place.node == self.store.settings.node);
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
        key: PartitionKey,
        slots: (u16, u16),
        follower: Follower,
        turn: &mut Turn<'_>,
    ) -> Result<OrderProgress, OrderError> {
        let epoch = follower.epoch;
        let Some(plans) = self.store.topics.get(&key.0).map(|topic| topic.plans.clone()) else {
            return Err(format!("topic {} is not installed; install it before its partitions", key.0).into());
        };
        let index = self.store.partitions.find(key.0, key.1).unwrap_or_else(|| self.store.host(key));
        if self.store.partitions[index].dropped {
            self.store.revive(index, turn)?;
        }
        let partition = &mut self.store.partitions[index];
        let newest = match &partition.role {
            Role::Follower(follower) => follower.epoch,
            Role::Owner(held) => held.epoch(),
            Role::Alone => {
                partition.gate.open_epoch().max(partition.sealed.as_deref().map_or(0, |sealed| sealed.epoch))
            }
            Role::None => 0,
        };
        if epoch < newest || (epoch == newest && !matches!(partition.role, Role::Follower(_))) {
            return Err(format!("partition {}: epoch {epoch} is not above {newest}", key.1).into());
        }
        (partition.plans, partition.slots, partition.opening) = (Some(plans), slots, None);
        partition.gate.close();
        if let Role::Follower(known) = &mut partition.role
            && known.epoch == epoch
        {
            // The same session goes on: only whether it counts may be new.
            known.learner = follower.learner;
            return Ok(OrderProgress::Done(Finished::Done));
        }
        self.take_role(index, Role::Follower(Box::new(follower)), turn);
        Ok(OrderProgress::Done(Finished::Done))
    }

    pub(crate) fn sync_start(
        &mut self,
        key: PartitionKey,
        (change, attempt): (u64, u32),
        target: Place,
        bytes_per_s: u64,
        turn: &mut Turn<'_>,
    ) -> Result<OrderProgress, OrderError> {
        let index = self.store.hosted(key)?;
        if change == 0 || target.node == self.store.settings.node {
            return Err(format!("partition {}: change {change} to node {} cannot be", key.1, target.node).into());
        }
        if matches!(self.store.partitions[index].role, Role::Alone) {
            self.lead_alone(index, turn);
        }
        let partition = &mut self.store.partitions[index];
        let until = partition.log.end().next_record;
        let Role::Owner(owner) = &mut partition.role else {
            return Err(format!("partition {} is not owned here; ask its owner", key.1).into());
        };
        if let Some(replica) = owner.replicas.iter().find(|replica| replica.place().node == target.node) {
            if replica.learner() == Some((change, attempt)) {
                return Ok(OrderProgress::Done(Finished::Done));
            }
            let (other, _) = replica.learner().unwrap_or_default();
            let what = format!("partition {}: node {} is synced to by change {other}", key.1, target.node);
            return Err(what.into());
        }
        owner.replicas.push(ReplicaProgress::new(
            target,
            Some((change, attempt)),
            Throttle::new(bytes_per_s, until, turn.now.mono_ms),
        ));
        self.replication.peers.want(target.node);
        if let Some(mut owner) = self.owner_mut(index) {
            owner.needs_tick();
            owner.report_progress(turn);
        }
        Ok(OrderProgress::Done(Finished::Done))
    }

    /// An owner without replicas gets a first learner: it stays its own quorum.
    fn lead_alone(&mut self, index: PartitionIndex, turn: &mut Turn<'_>) {
        let partition = &self.store.partitions[index];
        let head = partition.log.end();
        let (shard, group) = (usize::from(partition.shard), partition.last_group);
        let end = End { record: head.next_record, offset: head.next_offset };
        // The owner of a sealed partition has written no record of its epoch.
        let epoch = partition.sealed.as_deref().map_or(0, |sealed| sealed.epoch).max(head.owner_epoch);
        let mut owner = Owner::new(epoch, 1, 0);
        if group <= self.store.shards[shard].durable_group() {
            owner.begin_at(end);
        } else {
            let upto = Some(ReplicatedEnd { end, epoch: owner.epoch() });
            self.store.when_group_durable(index, group, upto, Completion::Nothing);
        }
        self.take_role(index, Role::Owner(Box::new(owner)), turn);
    }

    pub(crate) fn sync_rate(&mut self, change: u64, bytes_per_s: u64) -> OrderProgress {
        for partition in self.store.partitions.iter_mut() {
            let Role::Owner(owner) = &mut partition.role else { continue };
            for replica in owner.replicas.iter_mut().filter(|replica| replica.is_of(change)) {
                replica.set_rate(bytes_per_s);
            }
        }
        OrderProgress::Done(Finished::Done)
    }

    pub(crate) fn sync_stop(&mut self, change: u64, turn: &mut Turn<'_>) -> OrderProgress {
        for index in 0..self.store.partitions.places() {
            let Some(partition) = self.store.partitions.get_mut(index) else { continue };
            let Role::Owner(owner) = &mut partition.role else { continue };
            owner.replicas.retain(|replica| !replica.is_of(change));
            if owner.replicas.is_empty() && owner.quorum() == 1 && owner.waiting.is_empty() {
                self.take_role(index, Role::Alone, turn);
            }
            if let Some(mut owner) = self.owner_mut(index) {
                owner.trim();
            }
        }
        OrderProgress::Done(Finished::Done)
    }

    /// Count what was received under this change from now on.
    pub(crate) fn adopt(&mut self, change: u64, attempt: u32) -> Result<OrderProgress, OrderError> {
        let mut any = false;
        for partition in self.store.partitions.iter_mut() {
            if let Role::Follower(follower) = &mut partition.role
                && follower.learner == Some((change, attempt))
            {
                (follower.learner, any) = (None, true);
                #[cfg(feature = "planted")]
                if ringfence_log::planted::is_on(ringfence_log::planted::Bug::TableDropped) {
                    partition.producers = crate::partition::dedupe::Producers::default();
                }
                #[cfg(feature = "planted")]
                if ringfence_log::planted::is_on(ringfence_log::planted::Bug::StagesDropped) {
                    partition.stages = crate::transactions::staged_batches::Stages::default();
                }
            }
        }
        if any {
            Ok(OrderProgress::Done(Finished::Done))
        } else {
            Err(format!("nothing was received under change {change}, attempt {attempt}, in this run").into())
        }
    }
}
