"""Inspection of a cluster: sound ones are, and each planted fault is named under its invariant."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest
from msgspec.structs import replace

from ringfence.control.model.ids import NodeId, PartitionId
from ringfence.control.model.topics import PrunedParent
from ringfence.control.state_machines.inspection import Finding, Inspection, NodeReading, Report
from tests.fakes.metadata_log import END, MetadataLog

Stores = dict[NodeId, NodeReading]


def part(lab: MetadataLog, node: int, records: int = 7, **more: Any) -> dict[str, Any]:
    """What a node has of the lab's partition; its owner takes appends."""
    epoch = int(lab.now.epoch)
    return {
        "topic": int(lab.topic),
        "partition": int(lab.partition),
        "records": records,
        "chain": 99 + records,
        "producers_hash": 7,
        "owner_epoch": epoch,
        "open": lab.now.owner.node == node,
        "quarantined": None,
        "sources": [(7, 2), (8, 3), (9, 4)],
        **more,
    }


def store(lab: MetadataLog, node: int, *parts: dict[str, Any], **more: Any) -> NodeReading:
    known = {(one["topic"], one["partition"]): one for one in parts}
    store = lab.state.nodes[NodeId(node)].store
    return NodeReading(NodeId(node), store, None, (7, "abcd"), known)._replace(**more)


def stores(lab: MetadataLog) -> Stores:
    """A cluster that keeps everything."""
    held = {place.node for place in lab.now.replicas}
    return {node: store(lab, node, *([part(lab, node)] if node in held else [])) for node in lab.state.nodes}


def inspected(lab: MetadataLog, *rounds: Stores, is_live: bool = True) -> Report:
    inspection = Inspection(is_live=is_live)
    return [inspection.round(lab.state, seen) for seen in rounds][-1]


def with_part(lab: MetadataLog, node: int, **more: Any) -> Stores:
    return {**stores(lab), NodeId(node): store(lab, node, part(lab, node, **more))}


def test_a_sound_cluster_is_sound() -> None:
    for replication in (1, 3):
        for is_live in (True, False):
            lab = MetadataLog(4, replication=replication)
            report = inspected(lab, stores(lab), is_live=is_live)
            assert report == Report((), (), 1, int(replication > 1), (1, 2, 5, 8), ())


def truncated(lab: MetadataLog, **starts: int) -> Stores:
    """Rows below 5 are given up; `starts` are where the logs of nodes begin, all with 7 rows."""
    topic = lab.state.topics[lab.topic]
    cut = replace(topic, starts={lab.partition: 5})
    lab.state = replace(lab.state, topics={**lab.state.topics, lab.topic: cut})
    nodes = {NodeId(int(name[1:])): start for name, start in starts.items()}
    return {
        **stores(lab),
        **{
            node: store(lab, node, part(lab, node, start_offset=at, end_offset=7))
            for node, at in nodes.items()
        },
    }


def with_lineage(lab: MetadataLog, **more: Any) -> Stores:
    """The lab's partition was made of 7, 8 and 9; 7 was pruned."""
    topic = lab.state.topics[lab.topic]
    parts = [
        replace(part, parents=(PartitionId(8), PartitionId(9))) if part.partition == lab.partition else part
        for part in topic.layout.partitions
    ]
    made = replace(
        topic,
        layout=replace(topic.layout, partitions=tuple(parts)),
        gone={lab.partition: (PrunedParent(PartitionId(7), 5),)},
    )
    lab.state = replace(lab.state, topics={**lab.state.topics, lab.topic: made})
    return with_part(lab, 1, **more)


FAULTS: dict[str, tuple[str, int, str, Callable[[MetadataLog], Stores]]] = {
    "metadata of a node is broken": (
        "I1",
        5,
        "a gap",
        lambda lab: {**stores(lab), NodeId(5): stores(lab)[NodeId(5)]._replace(broken="a gap")},
    ),
    "metadata of two histories": (
        "I1",
        5,
        "two histories",
        lambda lab: {**stores(lab), NodeId(5): stores(lab)[NodeId(5)]._replace(hashed=(7, "dcba"))},
    ),
    "a former owner takes appends": (
        "I4",
        2,
        "being the owner",
        lambda lab: with_part(lab, 2, open=True, owner_epoch=1),
    ),
    "a stranger takes appends": ("I4", 8, "being the owner", lambda lab: with_part(lab, 8, open=True)),
    "the owner takes none": ("I4", 1, "takes no appends", lambda lab: with_part(lab, 1, open=False)),
    "an epoch that nobody drew": ("I4", 5, "has drawn", lambda lab: with_part(lab, 5, owner_epoch=99)),
    "too few have what the owner has": (
        "I5",
        1,
        "a majority is 2",
        lambda lab: {**with_part(lab, 2, records=6), NodeId(5): store(lab, 5, part(lab, 5, records=6))},
    ),
    "a replica with rows that were given up": (
        "I14",
        5,
        "the rows below 5 were truncated",
        lambda lab: truncated(lab, n1=5, n2=5, n5=0),
    ),
    "a damaged record": ("I5", 2, "bad CRC", lambda lab: with_part(lab, 2, quarantined="bad CRC")),
    "producer tables": ("I6", 5, "producer table", lambda lab: with_part(lab, 5, producers_hash=1)),
    "an owner without what it inherits": (
        "I6",
        1,
        "from 2 of 3 partitions: 7, 8",
        lambda lab: with_lineage(lab, sources=[(9, 4)]),
    ),
    "chains that differ": ("I11", 5, "two histories", lambda lab: with_part(lab, 5, chain=1)),
    "a replica without its partition": (
        "I16",
        2,
        "does not have the partition",
        lambda lab: {**stores(lab), NodeId(2): store(lab, 2)},
    ),
    "rows that no topic knows": (
        "I16",
        2,
        "they are kept",
        lambda lab: {**stores(lab), NodeId(2): store(lab, 2, part(lab, 2), part(lab, 2, partition=77))},
    ),
    "an old copy that nobody keeps": ("I16", 8, "they are kept", lambda lab: with_part(lab, 8)),
}


@pytest.mark.parametrize("name", FAULTS)
def test_a_planted_fault_is_named_when_each_round_shows_it(name: str) -> None:
    invariant, node, words, plant = FAULTS[name]
    lab = MetadataLog(4, replication=3)
    planted = plant(lab)
    report = inspected(lab, planted, planted)
    told = [finding for finding in report.findings if finding.invariant == invariant]
    assert [finding.node for finding in told] == [node], report.findings
    assert words in told[0].what
    assert inspected(lab, planted, stores(lab)).findings == (), "it was over in the second round"
    assert inspected(lab, stores(lab), planted).findings == (), "and this one has just begun"
    # What a stopped node has not given up yet, it gives up when it starts.
    if not name.endswith(("takes appends", "takes none", "given up")):
        assert any(one.invariant == invariant for one in inspected(lab, planted, is_live=False).findings)


def test_what_a_change_is_about_is_judged_when_it_is_settled() -> None:
    lab = MetadataLog(4)
    lab.must(lab.prepare(2))
    moving = {
        **stores(lab),
        NodeId(1): store(lab, 1, part(lab, 1, open=False)),
        NodeId(2): store(lab, 2, part(lab, 2, open=True)),
    }
    assert inspected(lab, moving, moving).findings == ()
    lab.must(lab.hold())
    lab.must(lab.commit({2: END}))
    lab.must(lab.opened())
    lab.must(lab.clean())
    report = inspected(lab, moving, moving)
    assert [finding.invariant for finding in report.findings] == [], "who left gives back what it has"


def test_an_owner_with_everything_from_its_parents_is_sound() -> None:
    lab = MetadataLog(4, replication=3)
    whole = with_lineage(lab)
    assert inspected(lab, whole, whole).findings == ()
    lacks = with_lineage(lab, quarantined="bad CRC")
    assert [one.invariant for one in inspected(lab, lacks, lacks).findings] == ["I5"], "damage is told alone"


def test_what_is_kept_for_a_reversal_is_no_stray() -> None:
    lab = MetadataLog(4, hold_s=300)
    lab.must(lab.prepare(2))
    lab.must(lab.hold())
    lab.must(lab.commit({2: END}))
    lab.must(lab.opened())
    lab.must(lab.clean())
    kept = {**stores(lab), NodeId(1): store(lab, 1, part(lab, 1))}
    assert inspected(lab, kept).findings == ()
    assert inspected(replaced(lab), kept).findings[0].invariant == "I16"


def replaced(lab: MetadataLog) -> MetadataLog:
    """The lab with nothing kept, as if the metadata had forgotten it."""
    lab.state = replace(lab.state, kept={})
    return lab


def test_replicas_that_lag_catch_up_with_what_the_owner_had_at_first() -> None:
    lab = MetadataLog(3, replication=3)

    def at(owner: int, *others: int) -> Stores:
        ends = dict(zip((1, 2, 5), (owner, *others), strict=True))
        return {NodeId(node): store(lab, node, part(lab, node, records=end)) for node, end in ends.items()}

    assert inspected(lab, at(9, 7, 7), at(12, 9, 8)).findings == ()
    late = inspected(lab, at(9, 7, 7), at(12, 8, 8))
    assert [(one.invariant, one.partition) for one in late.findings] == [("I5", lab.partition)]


def test_a_log_of_an_older_epoch_is_no_second_history_and_no_copy_either() -> None:
    """An owner that was cut off went on alone: its log is as long as its successor's, until it is cut."""
    lab = MetadataLog(3, replication=3)
    older = int(lab.now.epoch) - 1
    apart = with_part(lab, 5, chain=1, owner_epoch=older)
    assert inspected(lab, apart, apart, is_live=True).findings == ()
    assert inspected(lab, apart, is_live=False).findings == ()
    both = {**apart, NodeId(2): store(lab, 2, part(lab, 2, chain=1, owner_epoch=older))}
    (finding,) = inspected(lab, both, both).findings
    assert (finding.invariant, "are on 1 of 3" in finding.what) == ("I5", True), finding


def test_who_was_not_heard_is_told_and_proves_nothing() -> None:
    lab = MetadataLog(3, replication=3)
    two = {node: one for node, one in stores(lab).items() if node != 5}
    report = inspected(lab, two)
    assert (report.findings, report.unproven, report.silent) == ((), (), (5,)), "two of three are a majority"
    lone = {NodeId(1): two[NodeId(1)]}
    (unproven,) = inspected(lab, lone).unproven
    assert "2 did not answer" in unproven.what
    (unheard,) = inspected(lab, {NodeId(2): two[NodeId(2)]}).unproven
    assert "its owner did not answer" in unheard.what


def test_findings_are_limited() -> None:
    lab = MetadataLog(3)
    many = [part(lab, 2, partition=PartitionId(number)) for number in range(3_000)]
    report = inspected(lab, {**stores(lab), NodeId(2): store(lab, 2, *many)})
    assert len(report.findings) == 1_000
    assert isinstance(report.findings[0], Finding)
