"""Commands for property tests: sound ones for the state they meet, and unsound ones."""

from __future__ import annotations

from itertools import pairwise

from hypothesis import strategies as st

from ringfence.control.model.commands import (
    AddSchema,
    Command,
    ConfirmDropped,
    CreateTopic,
    DeleteTopic,
    InitCluster,
    OpenNamedProducer,
    OpenProducers,
    OpenSession,
    PurgeTopic,
    RestartNode,
    SetAddresses,
    SetConfig,
    TruncateTopic,
)
from ringfence.control.model.entries import Entry, Proposal
from ringfence.control.model.ids import Index, NodeId, PartitionId, SessionId, TopicId
from ringfence.control.model.ranges import SlotRange, tile
from ringfence.control.model.schemas import Column
from ringfence.control.model.state import MetadataState

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
) -> CreateTopic:
    return CreateTopic(
        name=name,
        key=key,
        schema=b"schema",
        columns=columns,
        ranges=tile(partitions),
        nodes=((NODE,),) * partitions,
    )


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
def _create(draw: st.DrawFn) -> CreateTopic:
    ranges = draw(_ranges())
    columns = draw(st.sampled_from([(ID,), (ID, TEXT), (), (ID, ID)]))
    return CreateTopic(
        name=draw(st.sampled_from(NAMES)),
        key=draw(st.sampled_from([("id",), (), ("missing",), ("id", "id")])),
        schema=draw(st.sampled_from([b"schema", b"schema", b""])),
        columns=columns,
        ranges=ranges,
        nodes=draw(st.sampled_from([((NODE,),) * len(ranges), ((NODE,),), ((NodeId(9),),) * len(ranges)])),
        retention_bytes=draw(st.sampled_from([None, 1_000, -1])),
    )


def commands(state: MetadataState) -> st.SearchStrategy[Command]:
    """One command; ids are drawn from those of the state, and some that it does not know."""
    topics = st.sampled_from([*state.topics, TopicId(999_999)])
    dead = st.sampled_from([*state.tombstones, TopicId(999_999)])
    stores = st.sampled_from([STORE, b"x" * 16])
    partitions = [part for topic in state.topics.values() for part in topic.assignments] or [PartitionId(7)]
    columns = st.sampled_from([(ID,), (ID, TEXT), (ID, TEXT, Column("n", "int32", nullable=True)), (TEXT,)])
    return st.one_of(
        st.just(INIT),
        _create(),
        _create(),
        st.builds(
            AddSchema, topic=topics, schema_id=st.integers(0, 3), schema=st.just(b"more"), columns=columns
        ),
        st.builds(
            TruncateTopic,
            topic=topics,
            starts=st.dictionaries(st.sampled_from(partitions), st.integers(-1, 1 << 40), max_size=3),
        ),
        st.builds(DeleteTopic, topic=topics),
        st.builds(ConfirmDropped, topic=dead, store=stores),
        st.builds(PurgeTopic, topic=dead),
        st.builds(OpenProducers, topic=topics, count=st.sampled_from([-1, 0, 1, 2, 40, 65_537])),
        st.builds(OpenNamedProducer, topic=topics, name=st.sampled_from(["p", "q", "", "bad\n"])),
        st.builds(
            RestartNode,
            node=st.sampled_from([NODE, NodeId(2)]),
            store=stores,
            addresses=st.just(("tcp://127.0.0.1:1",)),
            program=st.just("p"),
        ),
        st.builds(SetAddresses, node=st.just(NODE), addresses=st.sampled_from([(), ("",), ("ipc://x",)])),
        st.just(OpenSession()),
        st.builds(
            SetConfig, values=st.dictionaries(st.sampled_from(["topics_max", "nope"]), st.integers(0, 5))
        ),
    )
