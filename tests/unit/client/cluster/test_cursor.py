"""The cursors of a reader: what effects of its lineage do to them."""

from __future__ import annotations

from ringfence.cluster.cursor import Cursor, Cursors
from ringfence.cluster.read_plan import Plan, Span
from ringfence.common.lineage import DRAW_BITS, Lineage, Lost, chosen, restore
from tests.fakes.lineage_topic import TOPIC, LineageTopic

ONE = TOPIC + 1 << DRAW_BITS


def cursors(topic: LineageTopic, *, limited: bool = False, skips: bool = False) -> Cursors:
    """A follower of all partitions, or a reader of the first one alone; ends of sealed ones are known."""
    view = topic.view()
    restored = chosen(view, [ONE]) if limited else restore(view, ())
    lineage = Lineage(view, restored, grows=not limited, limited=limited)
    lineage.begin({})
    spans = [
        Span(one, 0, 0, None, True, len(topic.logs[one].rows) if topic.logs[one].sealed else None)
        for one in lineage.open
    ]
    return Cursors(Plan(None, spans, lineage, limited), skips=skips)  # type: ignore[arg-type]


def test_a_partition_that_is_known_to_be_at_its_end_is_finished_without_a_request() -> None:
    topic = LineageTopic(4, 1)
    left, right = topic.change([ONE], [2])
    made = cursors(topic)
    applied = made.begin()
    assert [cursor.partition for cursor in applied.finished] == [ONE]
    assert {cursor.partition for cursor in applied.admitted if cursor.wants_more} == {left, right}
    assert made.by_partition.keys() == {left, right}
    assert made.ended == {ONE}


def test_a_reader_of_named_partitions_keeps_the_finished_ones_for_its_positions() -> None:
    topic = LineageTopic(4, 1)
    topic.change([ONE], [2])
    made = cursors(topic, limited=True)
    made.begin()
    assert made.by_partition.keys() == made.ended == {ONE}


def test_another_thread_may_look_at_the_cursors_while_children_begin() -> None:
    topic = LineageTopic(4, 1)
    made = cursors(topic)
    made.begin()
    before = made.by_partition
    left, right = topic.change([ONE], [2])
    applied = made.apply([*made.lineage.ended(ONE)])
    assert [cursor.partition for cursor in applied.unknown] == [ONE]
    applied = made.apply(made.lineage.table(topic.view()))
    assert before.keys() == {ONE}
    assert made.by_partition.keys() == {left, right}
    begun = made.by_partition[left]
    assert (begun.offset, begun.first, begun.is_admitted) == (0, False, True), "strictly from its first row"


def test_lost_rows_are_told_or_skipped() -> None:
    for skips in (False, True):
        topic = LineageTopic(4, 1)
        topic.append(0)
        made = cursors(topic, skips=skips)
        made.begin()
        topic.change([ONE], [2])
        topic.prune(ONE)
        made.apply(made.lineage.table(topic.view()))
        applied = made.apply(made.lineage.missing(ONE, 0))
        assert [(cursor.partition, lost) for cursor, lost in applied.lost] == (
            [] if skips else [(ONE, Lost(ONE, 0, 1))]
        )
        assert (ONE in made.by_partition) is not skips


def test_a_cursor_wants_more_until_its_end_or_the_last_row() -> None:
    cursor = Cursor(Span(1, 3, 7, 5, False))
    assert (cursor.wants_more, cursor.is_at_last, cursor.begin) == (True, False, (1, 3, 7))
    cursor.fetched = 5
    assert not cursor.wants_more
    follows = Cursor(Span(1, 3, 7, None, False, last=4))
    assert follows.wants_more
    follows.skip_to(9)
    assert (follows.wants_more, follows.is_at_last, follows.epoch) == (False, True, 0)
