"""A snapshot of state format 8, as the first program of level 1 wrote it: it opens and equals its log.

It has every field that level 1 adds. A later format converts it; the file stays as it is.
"""

from __future__ import annotations

from pathlib import Path

import msgspec
from msgspec import UNSET
from msgspec.structs import replace

from ringfence.control.model.commands import Command, OpenNamedProducer, TruncateTopic
from ringfence.control.model.ids import Epoch, Index, PartitionId, ScopeId, TopicId
from ringfence.control.model.node_commands import AddToRing, FailNode
from ringfence.control.model.nodes import Life
from ringfence.control.model.reassignment_commands import FailOver, ForceOwner
from ringfence.control.model.results import Refused
from ringfence.control.model.scopes import BeginScope, CommitScope, StagedPart
from ringfence.control.model.state import (
    ADDED_BY_LEVEL_1,
    EMPTY,
    MetadataState,
    canonical_bytes,
    digest,
    format_of,
)
from ringfence.control.state_machines.metadata.state_machine import apply
from ringfence.control.store import write_and_read_snapshot as snapshots
from ringfence.control.store.journal import LogPosition
from ringfence.control.store.write_and_read_snapshot import Snapshot
from tests.fakes.metadata_commands import INIT, NODE, STORE, create, entry, register, restart

GOLDEN = Path(__file__).parent / "snapshot_format_8.bin"
DIGEST = "55e9b251925b95a1d318dcbce9b0b29f"
TOPIC, PARTITION = TopicId(2), PartitionId(131_072)
FORCED = "acme/sales/forced"
AT = LogPosition(18, 1)


def commands(state: MetadataState) -> list[Command]:
    """What comes after the first entry; `state` is the one after it."""
    part = StagedPart(TOPIC, PARTITION, 5)
    return [
        create("acme/sales/orders"),
        OpenNamedProducer(topic=TOPIC, name="loader"),
        TruncateTopic(topic=TOPIC, starts={PARTITION: 7}, epochs={PARTITION: Epoch(2)}),
        BeginScope(name="nightly@2", instance=b"run", prefix="acme/"),
        BeginScope(name="query", prefix="acme/", idle_s=86_400),
        CommitScope(
            scope=ScopeId(6 << 16), driver=Index(6), epoch=3, tokens=(b"t" * 16,), parts=(part,), keep=True
        ),
        replace(restart(state, int(NODE)), store=STORE, witness=9, level=1),
    ]


def forced(state: MetadataState) -> Command:
    """The next command until a partition of three replicas has an owner by force."""
    nodes = sorted(state.nodes)
    started = [node for node in nodes if state.nodes[node].started]
    if len(started) < len(nodes):
        return replace(restart(state, int(nodes[-1])), level=1)
    if len(nodes) < 3:
        return register(len(nodes) + 1, level=1)
    outside = [node for node in nodes if node not in state.ring.members]
    if outside:
        return AddToRing(node=outside[0], version=state.ring.version)
    by_name = {topic.name: topic for topic in state.topics.values()}
    if FORCED not in by_name:
        return create(FORCED, partitions=1, nodes=(tuple(int(node) for node in nodes),))
    topic = by_name[FORCED]
    [(partition, _)] = topic.assignments.items()
    first = state.nodes[nodes[0]]
    if first.life is Life.LIVE:
        return FailNode(node=nodes[0], changed=first.changed)
    if partition not in state.changes:
        return FailOver(node=nodes[0], changed=first.changed)
    return ForceOwner(
        partition=partition, change=state.changes[partition].change, owner=nodes[1],
        accepts="rows that others have", replicas=tuple(nodes),
    )  # fmt: skip


def entries() -> MetadataState:
    state, _ = apply(EMPTY, entry(1, replace(INIT, level=1), time_ms=1_000))
    ready = commands(state)
    for index in range(2, AT.index + 1):
        command = ready.pop(0) if ready else forced(state)
        state, result = apply(state, entry(index, command, time_ms=1_000 * index))
        assert not isinstance(result, Refused), (command, result)
    return state


def test_a_snapshot_of_format_8_opens_and_equals_its_log() -> None:
    assert int.from_bytes(GOLDEN.read_bytes()[6:8], "little") == 8
    read = snapshots.read(GOLDEN, history=INIT.history)
    assert read.position == AT
    assert read.state == entries()
    assert digest(read.state) == DIGEST
    topic, scope = read.state.topics[TOPIC], read.state.scopes[ScopeId(6 << 16)]
    assert (topic.name, topic.start_epochs) == ("acme/sales/orders", {PARTITION: Epoch(2)})
    assert (scope.prefix, scope.idle_s, scope.used_ms, scope.committed) == ("acme/", 86_400, 7_000, 3)


def test_it_has_every_field_that_level_1_adds() -> None:
    state = snapshots.read(GOLDEN, history=INIT.history).state
    defaults = msgspec.structs.asdict(EMPTY)
    assert all(getattr(state, name) != defaults[name] for name in ADDED_BY_LEVEL_1)
    values = [*state.topics.values(), *state.scopes.values()]
    optional = {
        (type(value).__name__, field.name)
        for value in values
        for field in msgspec.structs.fields(value)
        if field.default is UNSET and field.name not in {"seals", "gone"}  # of level 2
    }
    set_here = {
        (type(value).__name__, name)
        for value in values
        for name in value.__struct_fields__
        if getattr(value, name) is not UNSET
    }
    assert optional <= set_here


def test_it_is_what_this_program_writes(tmp_path: Path) -> None:
    """At level 1, also once a later format has a golden snapshot of its own."""
    assert format_of(entries()) == 8
    snapshots.write(tmp_path / "s", Snapshot(AT, entries()))
    assert (tmp_path / "s").read_bytes() == GOLDEN.read_bytes()
    assert canonical_bytes(snapshots.read(tmp_path / "s", history=INIT.history).state) == canonical_bytes(
        entries()
    )
