"""J10: a table is UNASSIGNED, IN_PROGRESS or ASSIGNED; a partition ASSIGNED, ONLINE or MOVING. And hashes."""

from __future__ import annotations

from hashlib import blake2b

from hypothesis import given, settings
from hypothesis import strategies as st
from msgspec.structs import replace

from ringfence.control.model.ids import Epoch, Index, NodeId, PartitionId, SessionId, TopicId
from ringfence.control.model.nodes import Life
from ringfence.control.model.results import Result, SessionOpened
from ringfence.control.model.state import (
    EMPTY,
    MetadataState,
    Session,
    canonical_bytes,
    decode_state,
    fields_of,
    packed,
)
from ringfence.control.state_machines.metadata import state_hash
from ringfence.control.state_machines.metadata.state_hash import DIGEST_BYTES, StateDigests
from ringfence.control.state_machines.metadata.state_machine import apply
from ringfence.control.state_machines.metadata.table_progress import (
    PartitionState,
    PendingOrder,
    Progress,
    TableState,
    cluster_state,
    view,
)
from tests.fakes.metadata_commands import INIT, cluster, commands, create, entry, restart

ONE, TWO, T = NodeId(1), NodeId(2), TopicId(20)
FIRST, SECOND = PartitionId(20 << 16), PartitionId(20 << 16 | 1)


def with_topic() -> MetadataState:
    state, _ = apply(cluster(2), entry(20, create(partitions=2, nodes=((1,), (2,)))))
    return state


def states(state: MetadataState, progress: Progress) -> tuple[TableState, list[PartitionState]]:
    shown = view(state, state.topics[T], progress)
    return shown.state, [partition.state for partition in shown.partitions]


def test_below_the_minimum_size_there_is_no_table() -> None:
    assert cluster_state(cluster(2, nodes_min=3), Progress({})) is TableState.UNASSIGNED
    assert cluster_state(cluster(2), Progress({})) is TableState.ASSIGNED


def test_a_partition_is_online_once_its_owner_has_carried_out_the_entry_of_its_epoch() -> None:
    state = with_topic()
    assert states(state, Progress({})) == (TableState.IN_PROGRESS, [PartitionState.ASSIGNED] * 2)
    held_back = Progress({ONE: Index(20), TWO: Index(19)})
    assert states(state, held_back) == (
        TableState.IN_PROGRESS,
        [PartitionState.ONLINE, PartitionState.ASSIGNED],
    )
    assert view(state, state.topics[T], held_back).pending == (PendingOrder(SECOND, TWO, Epoch(20)),)
    assert cluster_state(state, held_back) is TableState.IN_PROGRESS
    both = Progress({ONE: Index(20), TWO: Index(33)})
    assert states(state, both) == (TableState.ASSIGNED, [PartitionState.ONLINE] * 2)
    assert cluster_state(state, both) is TableState.ASSIGNED


def test_a_restart_puts_the_partitions_of_that_node_back_until_they_are_open_again() -> None:
    state, _ = apply(with_topic(), entry(40, restart(with_topic(), 2)))
    before = Progress({ONE: Index(39), TWO: Index(39)})
    assert states(state, before)[1] == [PartitionState.ONLINE, PartitionState.ASSIGNED]
    assert states(state, Progress({ONE: Index(39), TWO: Index(40)}))[0] is TableState.ASSIGNED


def test_what_failed_to_open_or_is_on_a_failed_node_is_not_online_and_what_moves_says_so() -> None:
    state = with_topic()
    carried = {ONE: Index(50), TWO: Index(50)}
    assert states(state, Progress(carried, failed={FIRST}))[1] == [
        PartitionState.ASSIGNED,
        PartitionState.ONLINE,
    ]
    dead = replace(state, nodes={**state.nodes, TWO: replace(state.nodes[TWO], life=Life.FAILED)})
    assert states(dead, Progress(carried))[1] == [PartitionState.ONLINE, PartitionState.ASSIGNED]
    moving = Progress(carried, moving={SECOND})
    assert states(state, moving) == (TableState.ASSIGNED, [PartitionState.ONLINE, PartitionState.MOVING])


def digest_of_all(state: MetadataState) -> bytes:
    """What every node reports, from the whole state: an old program and a new one must agree."""

    def digest(data: bytes) -> bytes:
        return blake2b(data, digest_size=DIGEST_BYTES).digest()

    fields = {name: getattr(state, name) for name in fields_of(state)}
    return digest(
        b"".join(
            digest(b"".join(digest(packed([key, value[key]])) for key in sorted(value)))
            if name in state_hash._MAPS
            else digest(packed(value))
            for name, value in fields.items()
        )
    )


@settings(max_examples=25, deadline=None)
@given(st.data())
def test_hashes_kept_from_state_to_state_equal_those_of_a_node_that_opens_a_snapshot(
    data: st.DataObject,
) -> None:
    state, kept, seen = EMPTY, StateDigests(), dict[bytes, bytes]()
    for index in range(1, data.draw(st.integers(2, 16))):
        state, _ = apply(state, entry(index, data.draw(commands(state)) if index > 1 else INIT))
        packed = canonical_bytes(state)
        mine = kept.of(state)
        assert mine == StateDigests().of(decode_state(packed)) == digest_of_all(state)
        assert seen.setdefault(mine, packed) == packed, "two states have one hash"


def test_results_kept_of_a_session_do_not_change_its_hash() -> None:
    kept, results = StateDigests(), dict[int, Result]()
    for sequence in (3, 7, 5, 12, 300):  # an answer that came late, and a number of two bytes
        opened = SessionOpened(session=SessionId(sequence))
        results = {key: value for key, value in results.items() if key > sequence - 9} | {sequence: opened}
        session = Session(last=max(results), used=Index(400), results=results)
        state = replace(EMPTY, sessions={SessionId(9): session, SessionId(4): Session(0, Index(4), {})})
        assert kept.of(state) == digest_of_all(state), sequence
