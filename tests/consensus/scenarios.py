"""Short stories in which one rule alone keeps the log whole; AssertionError where it is broken."""

from __future__ import annotations

from collections.abc import Callable

from ringfence.control.consensus import events
from ringfence.control.consensus.configuration_changes import Change, NodeChange, Operation
from ringfence.control.consensus.events import ProposeChange
from ringfence.control.consensus.messages import Message, MessageType
from ringfence.control.consensus.options import UNLIMITED
from tests.consensus.cluster import Cluster, Machine
from tests.consensus.lab import Lab, entries, snapshot


def snapshot_over_longer_log() -> None:
    lab = Lab(2, terms=(1, 1, 1, 1, 1, 1, 1, 1), commit=2)
    message = Message(type=MessageType.SNAPSHOT, sender=1, to=2, term=1, snapshot=snapshot(5, 1))
    lab.step(message)
    lab.settle()
    assert lab.core.log.commit == 5
    assert lab.core.log.last_index() == 8, "entries 6 to 8, which this node has acknowledged, are gone"


def commit_beyond_the_append() -> None:
    lab = Lab(2, terms=(1, 1, 2, 2, 2), commit=1)
    lab.step(
        Message(
            type=MessageType.APPEND,
            sender=3,
            to=2,
            term=3,
            index=1,
            log_term=1,
            entries=entries(2, 1),
            commit=5,
        )
    )
    assert lab.core.log.commit == 2, "entries of term 2 are not the leader's, and were committed"


def confirmed_by_index_alone() -> None:
    lab = Lab(2, terms=(1, 1), commit=2, async_storage_writes=True)
    for leader, term in ((1, 2), (3, 3)):
        lab.step(
            Message(
                type=MessageType.APPEND,
                sender=leader,
                to=2,
                term=term,
                index=2,
                log_term=1,
                entries=entries(3, term),
            )
        )
        lab.settle()
    lab.work()  # the first write is done: entry 3 of term 2
    assert lab.core.log.term(3) == 3, "the entry of term 2 is back: its write confirmed that of term 3"
    lab.work()
    assert lab.core.log.term(3) == 3
    assert not lab.core.log.unstable.entries


def read_without_a_quorum() -> None:
    cluster = Cluster(0, machines=3, pre_vote=False, check_quorum=False)
    old, new, other = cluster.machines
    elect(cluster, old)
    cluster.cut = {(1, 2), (1, 3), (2, 1), (3, 1)}
    elect(cluster, new)
    new.step(events.Propose((b"newer",)))
    cluster.settle()
    assert new.applied == other.applied > old.applied
    old.reads[b"r"] = cluster.safety.applied_max
    old.step(events.Read(b"r"))
    cluster.settle()
    assert cluster.reads_answered == 0, "who was deposed without knowing it answered a read"


def old_snapshot_accepted() -> None:
    lab = Lab(2, terms=(1,) * 8, commit=8)
    lab.disk.set_snapshot(snapshot(7, 1))
    lab.disk.compact(7)
    lab.step(Message(type=MessageType.SNAPSHOT, sender=1, to=2, term=1, snapshot=snapshot(5, 1)))
    assert (lab.core.log.commit, lab.core.log.last_index()) == (8, 8), "a snapshot took the log back"


def vote_not_persisted() -> None:
    lab = Lab(2, terms=(1,))
    answers = []
    for candidate in (1, 3):
        lab.step(Message(type=MessageType.VOTE, sender=candidate, to=2, term=2, index=1, log_term=1))
        answers += [message.reject for message in lab.settle()]
        lab.start()
    assert answers == [False, True], "node 2 voted for two candidates of term 2, with a crash in between"


def change_before_own_term() -> None:
    lab = Lab(1, terms=(1,), commit=1)
    add = ProposeChange(Change((NodeChange(Operation.VOTER, 4),)))
    lab.lead()
    lab.step(add)
    lab.settle()
    lab.start()  # it has the change in its log and does not know whether it is committed
    lab.lead(acknowledged=False)
    lab.step(ProposeChange(Change((NodeChange(Operation.VOTER, 5),))))
    lab.settle()
    kinds = [entry.type.name for entry in lab.disk.entries(2, lab.disk.last_index() + 1, UNLIMITED)]
    assert kinds == ["NORMAL", "CHANGE", "NORMAL", "NORMAL"], "two changes are under way at once"


def elect(cluster: Cluster, machine: Machine) -> None:
    machine.step(events.Campaign())
    cluster.settle()
    assert machine.node.core.role.name == "LEADER", f"node {machine.id} was not elected"


def vote_for_a_log_that_is_lost(*, campaign_after_append: bool) -> None:
    """A candidate asks for votes before its log is durable, crashes, and is elected by the old answer.

    Node 1 leads and commits an entry with node 2. Node 3 has it in memory, asks node 2 for its vote, crashes
    and forgets both. It campaigns again, in the same term, without the entry; node 2's answer comes now.
    """
    cluster = Cluster(
        1, machines=3, pre_vote=False, check_quorum=False, campaign_after_append=campaign_after_append
    )
    first, second, third = cluster.machines
    elect(cluster, first)
    first.step(events.Propose((b"precious",)))
    first.work_off()
    for _ in range(len(cluster.network)):
        cluster.deliver(0)
    first.work_off()
    second.work_off()
    third.take_ready()  # the write of the entry is under way, and never ends
    cluster.cut = {(1, 3), (3, 1), (3, 2)}
    while cluster.network:
        cluster.deliver(0)
    first.work_off()
    assert first.applied == first.node.core.log.last_index(), "the entry is committed by nodes 1 and 2"
    cluster.network.clear()
    cluster.cut = {(1, 3), (3, 1)}
    third.step(events.Campaign())
    third.take_ready()
    while cluster.network:
        cluster.deliver(0)
    second.work_off()
    answers = list(cluster.network)
    third.crash(lose_commit=True)
    third.step(events.Campaign())
    cluster.network.clear()
    third.work_off()
    for data in answers:
        cluster._arrive(data)


SCENARIOS: dict[str, Callable[[], None]] = {
    story.__name__: story
    for story in (
        snapshot_over_longer_log,
        commit_beyond_the_append,
        confirmed_by_index_alone,
        read_without_a_quorum,
        old_snapshot_accepted,
        vote_not_persisted,
        change_before_own_term,
    )
}
