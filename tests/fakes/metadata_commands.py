"""Commands for property tests: sound ones for the state they meet, and unsound ones."""

from __future__ import annotations

from itertools import pairwise
from typing import Any

from hypothesis import strategies as st
from msgspec import UNSET
from msgspec.structs import replace

from ringfence.control.model.commands import (
    AddSchema,
    Command,
    ConfirmDropped,
    ConfirmNamedProducer,
    CreateTopic,
    DeleteTopic,
    ForgetNamedProducer,
    InitCluster,
    OpenNamedProducer,
    OpenProducers,
    OpenSession,
    PurgeTopic,
    RaiseLevel,
    RestartNode,
    SetAddresses,
    SetConfig,
    TruncateTopic,
)
from ringfence.control.model.entries import Entry, Proposal
from ringfence.control.model.ids import Epoch, Index, NodeId, PartitionId, ScopeId, SessionId, TopicId
from ringfence.control.model.log_end import LogEnd
from ringfence.control.model.node_commands import (
    AddToRing,
    FailNode,
    FormRing,
    RecoverNode,
    RegisterNode,
    RemoveFromRing,
    RemoveNode,
    SetNode,
)
from ringfence.control.model.nodes import Life, Vote
from ringfence.control.model.ranges import SlotRange, tile
from ringfence.control.model.reassignment_commands import (
    AbortChange,
    ChangeSteps,
    CleanChange,
    CommitChange,
    ConfirmLeft,
    ConfirmOpened,
    FailOver,
    ForceOwner,
    HoldChange,
    PrepareChange,
    ReleaseKept,
)
from ringfence.control.model.reassignments import ChangeId, Proof
from ringfence.control.model.results import Refused
from ringfence.control.model.schemas import Column
from ringfence.control.model.scopes import (
    BeginScope,
    CommitScope,
    ConfirmPublished,
    ExpireScope,
    ForgetScope,
    StagedPart,
)
from ringfence.control.model.state import EMPTY, MetadataState
from ringfence.control.state_machines.metadata.state_machine import apply
from tests.fakes.cohort_commands import cohort_commands
from tests.fakes.layout_commands import layout_commands

CLUSTER, HISTORY, STORE = b"c" * 16, b"h" * 16, b"s" * 16
NODE = NodeId(1)
ID = Column("id", "int64", nullable=False)
TEXT = Column("text", "string", nullable=True)
INIT = InitCluster(cluster=CLUSTER, history=HISTORY, node=NODE, store=STORE)
NAMES = ["public/default/a", "public/default/b", "acme/sales/orders", "bad name", "a/b", ""]


def entry(index: int, command: Command, *, session: int = 0, sequence: int = 0, time_ms: int = 0) -> Entry:
    proposal = Proposal(session=SessionId(session), sequence=sequence, time_ms=time_ms, command=command)
    return Entry(index=Index(index), term=1, proposal=proposal)


def create(
    name: str = "public/default/a",
    *,
    partitions: int = 4,
    columns: tuple[Column, ...] = (ID,),
    key: tuple[str, ...] = ("id",),
    nodes: tuple[tuple[int, ...], ...] | None = None,
) -> CreateTopic:
    return CreateTopic(
        name=name,
        key=key,
        schema=b"schema",
        columns=columns,
        ranges=tile(partitions),
        nodes=tuple(tuple(NodeId(node) for node in placed) for placed in nodes or ((NODE,),) * partitions),
    )


def store_of(number: int) -> bytes:
    return number.to_bytes(16, "big")


def register(number: int, **settings: Any) -> RegisterNode:
    return RegisterNode(
        cluster=CLUSTER, store=store_of(number), addresses=(f"tcp://n{number}:1",), **settings
    )


def restart(state: MetadataState, node: int) -> RestartNode:
    record = state.nodes[NodeId(node)]
    return RestartNode(node=record.node, store=record.store, addresses=record.addresses, program="p")


def cluster(count: int, *, zones: int = 1, **init: Any) -> MetadataState:
    """Nodes 1, 2, 4, 6 ... that have started and are in the ring; entries up to 3 * count are used."""
    state, _ = apply(EMPTY, entry(1, replace(INIT, **init)))
    last = 1
    for number in range(2, count + 1):
        for make in (
            lambda _, number=number: register(number, zone=f"z{number % zones}" if zones > 1 else ""),
            lambda state: restart(state, max(state.nodes)),
            lambda state: AddToRing(node=max(state.nodes), version=state.ring.version),
        ):
            if not isinstance(make(state), AddToRing) or state.ring.is_formed:
                last += 1
                state, result = apply(state, entry(last, make(state)))
                assert not isinstance(result, Refused), result
    return state


@st.composite
def _ranges(draw: st.DrawFn) -> tuple[SlotRange, ...]:
    """Often a sound tiling, else one with a hole, an overlap or an end that is missing."""
    cuts = sorted(draw(st.sets(st.integers(1, 65_535), max_size=4)))
    bounds = [0, *cuts, 65_536]
    ranges = [SlotRange(lo, end - 1) for lo, end in pairwise(bounds)]
    match draw(st.sampled_from(["sound"] * 4 + ["short", "hole", "overlap", "empty"])):
        case "short":
            ranges.pop()
        case "hole":
            ranges[0] = SlotRange(1, ranges[0].hi)
        case "overlap":
            ranges[-1] = SlotRange(max(0, ranges[-1].lo - 1), ranges[-1].hi)
        case "empty":
            ranges = []
    return tuple(ranges)


@st.composite
def _create(draw: st.DrawFn, state: MetadataState) -> CreateTopic:
    ranges = draw(_ranges())
    members = state.ring.members or (NODE,)
    wide = members[: 3 if len(members) >= 3 else 1]
    columns = draw(st.sampled_from([(ID,), (ID, TEXT), (), (ID, ID)]))
    return CreateTopic(
        name=draw(st.sampled_from(NAMES)),
        key=draw(st.sampled_from([("id",), (), ("missing",), ("id", "id")])),
        schema=draw(st.sampled_from([b"schema", b"schema", b""])),
        columns=columns,
        ranges=ranges,
        nodes=draw(
            st.sampled_from(
                [
                    tuple((members[place % len(members)],) for place in range(len(ranges))),
                    (wide,) * len(ranges),
                    ((NODE,),),
                    ((NodeId(9),),) * len(ranges),
                ]
            )
        ),
        retention_bytes=draw(st.sampled_from([None, 1_000, -1])),
    )


def commands(state: MetadataState) -> st.SearchStrategy[Command]:
    """One command; ids are drawn from those of the state, and some that it does not know."""
    topics = st.sampled_from([*state.topics, TopicId(999_999)])
    dead = st.sampled_from([*state.tombstones, TopicId(999_999)])
    stores = st.sampled_from([STORE, b"x" * 16])
    epochs = [known.epoch for named in state.producers.values() for known in named.values()] or [Epoch(1)]
    partitions = [part for topic in state.topics.values() for part in topic.assignments] or [PartitionId(7)]
    columns = st.sampled_from([(ID,), (ID, TEXT), (ID, TEXT, Column("n", "int32", nullable=True)), (TEXT,)])
    return st.one_of(
        st.just(INIT),
        _create(state),
        _create(state),
        node_commands(state),
        node_commands(state),
        node_commands(state),
        change_commands(state),
        change_commands(state),
        change_commands(state),
        scope_commands(state),
        scope_commands(state),
        layout_commands(state),
        cohort_commands(state),
        st.builds(
            AddSchema, topic=topics, schema_id=st.integers(0, 3), schema=st.just(b"more"), columns=columns
        ),
        st.builds(
            TruncateTopic,
            topic=topics,
            starts=st.dictionaries(st.sampled_from(partitions), st.integers(-1, 1 << 40), max_size=3),
            epochs=st.just(UNSET)
            | st.dictionaries(st.sampled_from(partitions), st.integers(0, 1 << 10).map(Epoch), max_size=3),
        ),
        st.builds(DeleteTopic, topic=topics),
        st.builds(ConfirmDropped, topic=dead, store=stores),
        st.builds(PurgeTopic, topic=dead),
        st.builds(OpenProducers, topic=topics, count=st.sampled_from([-1, 0, 1, 2, 40, 65_537])),
        st.builds(OpenNamedProducer, topic=topics, name=st.sampled_from(["p", "q", "", "bad\n"])),
        *(
            st.builds(kind, topic=topics, name=st.sampled_from(["p", "q"]), epoch=st.sampled_from(epochs))
            for kind in (ConfirmNamedProducer, ForgetNamedProducer)
        ),
        st.builds(
            RestartNode,
            node=st.sampled_from([*state.nodes, NodeId(2)]),
            store=st.sampled_from([*(node.store for node in state.nodes.values()), b"x" * 16]),
            addresses=st.just(("tcp://127.0.0.1:1",)),
            program=st.just("p"),
        ),
        st.builds(SetAddresses, node=st.just(NODE), addresses=st.sampled_from([(), ("",), ("ipc://x",)])),
        st.just(OpenSession()),
        st.builds(RaiseLevel, level=st.integers(0, 3), nodes=st.sampled_from([(NODE,), tuple(state.nodes)])),
        st.builds(
            SetConfig, values=st.dictionaries(st.sampled_from(["topics_max", "nope"]), st.integers(0, 5))
        ),
    )


def scope_commands(state: MetadataState) -> st.SearchStrategy[Command]:
    """Commands about scopes; drivers and epochs are often those that fit."""
    scopes = st.sampled_from([*state.scopes, ScopeId(999_999)])
    drivers = st.sampled_from([*(scope.driver for scope in state.scopes.values()), Index(1)])
    epochs = st.integers(0, 5)
    places = [(topic, part) for topic, known in state.topics.items() for part in known.assignments]
    places = places or [(TopicId(7), PartitionId(7))]
    parts = st.lists(st.sampled_from(places), max_size=2).map(
        lambda found: tuple(StagedPart(topic, partition, 3) for topic, partition in found)
    )
    tokens = st.sampled_from([(), (b"t" * 16,), (b"t" * 16, b"u" * 16), (b"short",)])
    return st.one_of(
        st.builds(
            BeginScope,
            name=st.sampled_from(["s", "t", ""]),
            instance=st.sampled_from([b"", b"1", b"2", b"x" * 65]),
            one_off=st.booleans(),
            idle_s=st.sampled_from([UNSET, 0, 1, 60]),
        ),
        st.builds(ForgetScope, scope=scopes, driver=drivers),
        st.builds(
            CommitScope,
            scope=scopes,
            driver=drivers,
            epoch=epochs,
            tokens=tokens,
            parts=parts,
            keep=st.booleans(),
        ),
        st.builds(ExpireScope, scope=scopes, epoch=epochs, driver=st.one_of(st.just(Index(0)), drivers)),
        st.builds(
            ConfirmPublished,
            scope=scopes,
            epoch=epochs,
            parts=st.lists(st.sampled_from(places), max_size=2).map(tuple),
        ),
    )


def node_commands(state: MetadataState) -> st.SearchStrategy[Command]:
    """Commands about members and the ring, most of them sound, some late, some about strangers."""
    nodes = st.sampled_from([*state.nodes, NodeId(999_999)])
    records = [
        (record.node, changed, record.life)
        for record in state.nodes.values()
        for changed in (record.changed, Index(record.changed + 1))
    ] or [(NODE, Index(1), Life.LIVE)]
    version = st.sampled_from([state.ring.version, state.ring.version, state.ring.version + 1])
    lives = st.sampled_from(records).map(
        lambda known: (FailNode if known[2] is Life.LIVE else RecoverNode)(node=known[0], changed=known[1])
    )
    waiting = [record.node for record in state.nodes.values() if record.life is not Life.LIVE]
    return st.one_of(
        st.builds(register, st.integers(1, 6), zone=st.sampled_from(["", "a", "b"])),
        st.just(RegisterNode(cluster=b"other" + bytes(11), store=store_of(3))),
        st.sampled_from(waiting or [NODE]).map(
            lambda node: restart(state, node) if state.nodes else OpenSession()
        ),
        lives,
        lives,
        st.builds(RecoverNode, node=nodes, changed=st.just(Index(1))),
        st.builds(
            SetNode,
            node=nodes,
            draining=st.sampled_from([None, True, False]),
            weight=st.sampled_from([None, 0, 1, 200]),
            vote=st.sampled_from([None, *Vote]),
        ),
        st.builds(RemoveNode, node=nodes),
        st.builds(FormRing, nodes=st.lists(nodes, max_size=3).map(tuple)),
        st.builds(AddToRing, node=nodes, version=version),
        st.builds(AddToRing, node=nodes, version=version),
        st.builds(RemoveFromRing, node=nodes, version=version),
    )


END = LogEnd(Epoch(1), 7, 70, 99)


def change_commands(state: MetadataState) -> st.SearchStrategy[Command]:
    """Steps of changes that are open, and of some that are not; intents with sound and with odd targets."""
    places = [
        (topic.topic, partition, assignment, topic.replication)
        for topic in state.topics.values()
        for partition, assignment in topic.assignments.items()
    ]
    left = [
        ConfirmLeft(partition=partition, change=one.change, store=one.place.store)
        for partition, known in state.leftovers.items()
        for one in known
    ]
    failed = [
        FailOver(node=number, changed=node.changed)
        for number, node in state.nodes.items()
        if node.life is Life.FAILED
    ]
    steps = [step for change in state.changes.values() for step in _steps(change, state)]
    kept = [
        ReleaseKept(kept=((number, ChangeId(one.change + late)),))
        for number, one in state.kept.items()
        for late in (0, 1)
    ]
    single = {
        step.partition: step for step in steps if isinstance(step, CommitChange | ConfirmOpened | CleanChange)
    }
    several = [ChangeSteps(steps=tuple(single.values()))] if single else []
    known = [*left, *failed, *kept, *several, *steps, *steps, *steps] or [
        HoldChange(partition=PartitionId(7), change=ChangeId(3))
    ]
    if not places:
        return st.sampled_from(known)
    nodes = st.permutations([*state.nodes, NodeId(999_999)])
    prepare = st.builds(
        lambda place, order, late: PrepareChange(
            topic=place[0],
            partition=place[1],
            epoch=Epoch(place[2].epoch + late),
            owner=order[0],
            replicas=tuple(order[: place[3]]),
        ),
        st.sampled_from(places),
        nodes,
        st.sampled_from([0, 0, 0, 1]),
    )
    return st.one_of(prepare, st.sampled_from(known))


def _steps(change: Any, state: MetadataState) -> list[Command]:
    which: dict[str, Any] = {"partition": change.partition, "change": change.change}
    epoch = state.topics[change.topic].assignments[change.partition].epoch
    proofs = tuple(Proof(place, END) for place in change.replicas)
    owners = {change.owner.node, *(replica.node for replica in change.replicas[-1:])}
    return [
        HoldChange(**which),
        AbortChange(**which, why="test"),
        ConfirmOpened(**which, epoch=epoch),
        CleanChange(**which),
        *(
            CommitChange(**which, epoch=Epoch(epoch + late), owner=owner, end=END, proofs=some)
            for owner in sorted(owners)
            for some, late in ((proofs, 0), (proofs[:1], 0), (proofs, 1))
        ),
        ForceOwner(**which, owner=change.owner.node, accepts="rows that only node 2 had"),
    ]


def after(state: MetadataState, index: int, *commands: Command) -> MetadataState:
    for at, command in enumerate(commands, start=index):
        state, result = apply(state, entry(at, command))
        assert not isinstance(result, Refused), result
    return state


BEGUN, _ = apply(EMPTY, entry(1, INIT))


def started() -> MetadataState:
    state, _ = apply(EMPTY, entry(1, INIT))
    return state
