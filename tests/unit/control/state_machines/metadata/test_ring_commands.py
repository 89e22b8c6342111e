"""The ring: who is in it, and how it changes."""

from __future__ import annotations

from ringfence.control.model.commands import DeleteTopic, SetConfig
from ringfence.control.model.ids import Index, TopicId
from ringfence.control.model.node_commands import AddToRing, RemoveFromRing, RemoveNode
from ringfence.control.model.nodes import Ring
from ringfence.control.model.state import EMPTY
from ringfence.native.wire import Code
from tests.fakes.checked_commands import FIVE, ONE, TWO, after, refused, two
from tests.fakes.metadata_commands import INIT, cluster, create, restart


def test_a_node_alone_is_its_own_ring() -> None:
    state = after(EMPTY, 1, INIT)
    assert state.ring == Ring(version=1, members=(ONE,), changed=Index(1))
    assert state.nodes[ONE].takes_partitions


def test_a_ring_changes_by_compare_and_set_on_its_version() -> None:
    state = after(two(), 3, restart(two(), 2))
    assert refused(state, AddToRing(node=TWO, version=0)).code == Code.TOO_OLD
    added = after(state, 4, AddToRing(node=TWO, version=1))
    assert added.ring == Ring(version=2, members=(ONE, TWO), changed=Index(4))
    assert refused(added, AddToRing(node=TWO, version=2)).code == Code.ALREADY_EXISTS
    assert refused(added, RemoveFromRing(node=TWO, version=1)).code == Code.TOO_OLD
    removed = after(added, 5, RemoveFromRing(node=TWO, version=2))
    assert (removed.ring.members, removed.nodes[TWO].draining) == ((ONE,), True)


def test_a_node_leaves_the_ring_empty_and_never_below_what_the_cluster_needs() -> None:
    """Z16."""
    state = after(cluster(2), 20, create(partitions=2, nodes=((1,), (2,))))
    assert "holds 1 replicas" in refused(state, RemoveFromRing(node=TWO, version=2)).message
    assert "is in the ring" in refused(state, RemoveNode(node=TWO)).message
    empty = cluster(3)
    wide = after(empty, 20, create(partitions=1, nodes=((1, 2, 5),)), DeleteTopic(topic=TopicId(20)))
    after(wide, 22, RemoveFromRing(node=FIVE, version=3))
    small = after(empty, 20, SetConfig(values={"nodes_min": 3}))
    assert "it needs 3" in refused(small, RemoveFromRing(node=FIVE, version=3)).message
