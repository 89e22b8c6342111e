"""Which partitions a reader may read: rules of admission and of positions, one by one."""

from __future__ import annotations

import itertools
import random

import pytest

from ringfence.common.lineage import (
    DRAW_BITS,
    Admit,
    Begin,
    Effect,
    FetchTable,
    Finish,
    Lineage,
    Lost,
    Part,
    Restored,
    View,
    chosen,
    restore,
    view_of,
)
from ringfence.common.routing import layout_of
from tests.fakes.lineage_topic import TOPIC, LineageTopic
from tests.fakes.routing_tables import table

ONE = TOPIC + 1 << DRAW_BITS  # the first partition of a topic that begins with one


def begun(topic: LineageTopic, positions: dict[int, int] | None = None) -> tuple[Lineage, list[Effect]]:
    """A follower of all partitions, and its first effects."""
    view = topic.view()
    lineage = Lineage(view, restore(view, positions or {}), grows=True)
    effects = lineage.begin(positions or {})
    assert not list(lineage.faults())
    return lineage, effects


def rows(topic: LineageTopic, *slots: int) -> None:
    for slot in slots:
        topic.append(slot)


# ---- admission ---------------------------------------------------------------------------------------------


def test_a_child_is_read_when_its_parent_is_finished() -> None:
    topic = LineageTopic(4, 1)
    one, two = topic.change([ONE], [2])
    lineage, effects = begun(topic)
    assert effects == [Admit(ONE)]
    assert lineage.ended(ONE) == [Finish(ONE), Admit(one), Admit(two)]
    assert lineage.ended(ONE) == [], "it is said once"


def test_a_merged_child_waits_for_both_parents() -> None:
    topic = LineageTopic(4, 2)
    left, right = sorted(topic.logs)
    (merged,) = topic.change([left, right], [])
    lineage, effects = begun(topic)
    assert effects == [Admit(left), Admit(right)]
    assert lineage.ended(right) == [Finish(right)]
    assert lineage.ended(left) == [Finish(left), Admit(merged)]


def test_a_follower_gets_a_table_before_it_forgets_a_parent() -> None:
    topic = LineageTopic(4, 1)
    lineage, _ = begun(topic)
    one, two = topic.change([ONE], [2])
    assert lineage.ended(ONE) == [FetchTable(ONE)]
    assert lineage.table(lineage.view) == [], "a node that lags gives the same table again"
    assert lineage.ended(ONE) == [FetchTable(ONE)]
    assert lineage.open == {ONE: 0}, "positions list the parent until its children are known"
    assert lineage.table(topic.view()) == [Begin(one), Begin(two), Finish(ONE), Admit(one), Admit(two)]


def test_children_of_two_parents_that_are_split_at_different_times_are_read_once_each() -> None:
    """Ranges that touch and do not overlap: each child waits for its own parent alone."""
    topic = LineageTopic(4, 2)
    left, right = sorted(topic.logs)
    lineage, _ = begun(topic)
    of_left = topic.change([left], [1])
    first = lineage.table(topic.view())
    of_right = topic.change([right], [3])
    second = lineage.table(topic.view())
    assert first == [Begin(one) for one in of_left]
    assert second == [Begin(one) for one in of_right]
    assert lineage.ended(right) == [Finish(right), *(Admit(one) for one in of_right)]
    assert set(lineage.open) == {left, *of_left, *of_right}, "the left ones wait, and stay in positions"


@pytest.mark.parametrize("pruned", [0, 1, 2, 3])
@pytest.mark.parametrize("is_empty", [False, True])
def test_the_diamond_is_read_in_order_from_every_prefix(pruned: int, *, is_empty: bool) -> None:
    """A and B merge to C, C is split into E and F; the mirror: A is split into B and C, which merge."""
    for mirrored in (False, True):
        topic = LineageTopic(4, 1 if mirrored else 2)
        roots = sorted(topic.logs)
        if mirrored:
            middle = topic.change(roots, [2])
            last = topic.change(middle, [])
        else:
            middle = topic.change(roots, [])
            last = topic.change(middle, [1])
        if not is_empty:
            topic.logs[middle[0]].rows.append((0, 1))
        gone = (*roots, *middle)[:pruned]
        for one in gone:
            topic.prune(one)
        order = [one for one in (*roots, *middle, *last) if one not in gone]
        for count in range(len(order) + 1):
            read = finished_until(topic, count)
            assert read == order[:count]


def finished_until(topic: LineageTopic, count: int) -> list[int]:
    """Partitions in the order in which a new reader finishes them, or is admitted to ACTIVE ones."""
    lineage, effects = begun(topic)
    read: list[int] = []
    admitted = [effect.partition for effect in effects if isinstance(effect, Admit)]
    while admitted and len(read) < count:
        partition = admitted.pop(0)
        read.append(partition)
        if lineage.view.parts[partition].is_sealed:
            admitted += [effect.partition for effect in lineage.ended(partition) if isinstance(effect, Admit)]
        assert not list(lineage.faults())
    return read


def test_a_grandparent_that_is_open_blocks_over_a_finished_parent() -> None:
    """Positions by hand may name an ancestor that is finished: it is read before its descendants."""
    topic = LineageTopic(4, 1)
    (child, _) = topic.change([ONE], [2])
    grandchildren = topic.change([child], [1])
    lineage, effects = begun(topic, {ONE: 5, grandchildren[0]: 0})
    assert child in lineage.finished
    assert effects == [Admit(ONE)]
    assert Admit(grandchildren[0]) in lineage.ended(ONE)


def test_a_reader_of_named_partitions_orders_them_and_reads_no_children() -> None:
    topic = LineageTopic(4, 1)
    (child, other) = topic.change([ONE], [2])
    grandchildren = topic.change([child], [1])
    view = topic.view()
    lineage = Lineage(view, chosen(view, [grandchildren[1], ONE]), grows=False, limited=True)
    assert lineage.begin({}) == [Admit(ONE)]
    assert lineage.ended(ONE) == [Finish(ONE), Admit(grandchildren[1])]
    topic.change([grandchildren[1], other], [])
    assert lineage.ended(grandchildren[1]) == [Finish(grandchildren[1])], "no table is needed"


def test_one_pass_keeps_what_is_sealed_meanwhile_in_its_positions() -> None:
    """Its children are not in the plan: left out, the parent would be read again from its start."""
    topic = LineageTopic(4, 1)
    view = topic.view()
    lineage = Lineage(view, restore(view, {}), grows=False)
    topic.change([ONE], [2])
    assert lineage.table(topic.view()) == []
    assert lineage.ended(ONE) == []
    assert lineage.open == {ONE: 0}


def test_a_table_with_an_older_generation_changes_nothing() -> None:
    topic = LineageTopic(4, 1)
    before = topic.view()
    topic.change([ONE], [2])
    lineage, _ = begun(topic)
    assert lineage.table(before) == []
    assert lineage.view.version == 2


def test_four_thousand_partitions_in_a_line_need_no_deep_stack() -> None:
    parts = {1: Part(1, 1, (), True)}
    for number in range(2, 4_096):
        parts[number] = Part(number, number, (number - 1,), True)
    view = View(0, 1, 1, parts, {})
    lineage = Lineage(view, restore(view, {4_095: 1}), grows=True)
    assert len(lineage.finished) == 4_094
    lineage = Lineage(view, restore(view, {1: 0, 4_095: 1}), grows=True)
    lineage.begin({})
    assert lineage.ended(1) == [Finish(1), Admit(4_095)]


# ---- positions ---------------------------------------------------------------------------------------------


def test_positions_of_before_a_split_go_on_in_the_parent_and_then_in_its_children() -> None:
    topic = LineageTopic(4, 2)
    left, right = sorted(topic.logs)
    children = topic.change([left], [1])
    restored = restore(topic.view(), {left: 3, right: 4})
    assert (restored.listed, restored.new) == ((left, right), tuple(children))
    assert (restored.others, restored.finished) == ((), frozenset())


def test_what_is_not_listed_and_before_a_listed_one_is_finished() -> None:
    topic = LineageTopic(4, 1)
    left, right = topic.change([ONE], [2])
    restored = restore(topic.view(), {left: 3, right: 0})
    assert restored.listed == (left, right)
    assert restored.finished == {ONE}
    assert restored.new == restored.others == ()


def test_a_listed_partition_that_was_pruned_at_its_end_is_finished_and_below_it_rows_are_lost() -> None:
    topic = LineageTopic(4, 1)
    rows(topic, 0, 1, 2)
    left, right = topic.change([ONE], [2])
    topic.prune(ONE)
    _, effects = begun(topic, {ONE: 3})
    assert effects == [Finish(ONE), Admit(left), Admit(right)]
    for lost in (2, 4):  # 4: a row that a forced owner has lost
        lineage, effects = begun(topic, {ONE: lost})
        assert effects == [Lost(ONE, lost, 3)], "nothing is admitted beside it"
        assert lineage.skip(ONE) == [Finish(ONE), Admit(left), Admit(right)]


def test_nothing_is_admitted_before_a_pruned_position_was_judged() -> None:
    """Of two pruned ones no table tells which came first, nor who comes after them."""
    topic = LineageTopic(4, 1)
    rows(topic, 0)
    (child, other) = topic.change([ONE], [2])
    grandchildren = topic.change([child], [1])
    topic.prune(ONE)
    topic.prune(child)
    lineage, effects = begun(topic, {ONE: 0, child: 0, other: 0})
    assert Lost(ONE, 0, 1) in effects
    assert not any(isinstance(effect, Admit) for effect in effects)
    lineage.skip(ONE)
    admitted = {effect.partition for effect in lineage.begin({}) if isinstance(effect, Admit)}
    assert admitted == {other, *grandchildren}


def test_what_came_and_went_meanwhile_is_lost_and_a_new_reader_does_not_mind() -> None:
    topic = LineageTopic(4, 1)
    before, _ = begun(topic)
    (child, _) = topic.change([ONE], [2])
    topic.change([child], [1])
    topic.prune(ONE)
    topic.prune(child)
    new, effects = begun(topic)
    assert {*new.admitted} == {*topic.logs}
    assert not any(isinstance(effect, Lost) for effect in effects)
    _, effects = begun(topic, {ONE: 0})
    assert Lost(child, 0, None) in effects, "restored"
    assert Begin(child) in before.table(topic.view()), "following"
    assert before.missing(child, 0) == [Lost(child, 0, None)]


def test_generations_that_no_table_names_are_lost_with_the_one_that_is_named() -> None:
    """The last of them had no rows, and is the only one that a table tells of: its parents had some."""
    topic = LineageTopic(4, 1)
    lineage, _ = begun(topic)
    (merged,) = topic.change(topic.change([ONE], [2]), [])
    rows(topic, 0)
    last = topic.change([merged], [2])
    topic.change(last, [])
    for one in sorted(topic.logs)[:-1]:
        topic.prune(one)
    lineage.ended(ONE)
    lineage.table(topic.view())
    for one in last:
        assert lineage.missing(one, 0) == [Lost(one, 0, None)]


def test_what_came_and_went_waits_for_rows_in_memory_of_what_may_be_its_parent() -> None:
    """A caller who skips gets the rows that are there in order."""
    topic = LineageTopic(4, 1)
    rows(topic, 0)
    lineage, _ = begun(topic)
    (child, _) = topic.change([ONE], [2])
    topic.change([child], [1])
    topic.prune(ONE)
    topic.prune(child)
    assert not any(isinstance(effect, Admit) for effect in lineage.table(topic.view()))
    assert Admit(child) in lineage.ended(ONE)


@pytest.mark.parametrize(
    ("partition", "is_pruned"),
    [
        (ONE, True),  # an ancestor of what `gone` names
        ((TOPIC - 1) << DRAW_BITS, False),  # drawn before the topic was
        ((TOPIC + 90) << DRAW_BITS, False),  # from a newer table, or another topic
    ],
)
def test_positions_of_another_topic_are_told_from_those_of_pruned_partitions(
    partition: int, *, is_pruned: bool
) -> None:
    topic = LineageTopic(4, 1)
    (child, _) = topic.change([ONE], [2])
    topic.change([child], [1])
    assert restore(topic.view(), {7: 0}).unknown == (7,)
    topic.prune(ONE)
    topic.prune(child)
    restored = restore(topic.view(), {partition: 0})
    assert (restored.pruned == (partition,), restored.unknown == (partition,)) == (is_pruned, not is_pruned)


def test_every_partition_has_one_verdict_whatever_is_listed() -> None:
    """A property over random lineages and random lists."""
    for seed in range(300):
        draw = random.Random(seed)
        topic = LineageTopic(5, draw.randint(1, 3))
        for _ in range(draw.randint(1, 6)):
            log = draw.choice(topic.active)
            if len(log.slots) > 1:
                topic.change([log.partition], [draw.randrange(log.slots.start + 1, log.slots.stop)])
            if topic.prunable() and draw.random() < 0.4:
                topic.prune(draw.choice(topic.prunable()))
        view = topic.view()
        known = sorted({*topic.logs, *topic.pruned})
        listed = draw.sample(known, draw.randint(1, len(known)))
        restored = restore(view, listed)
        verdicts = [*restored.open, *restored.finished, *restored.unknown]
        assert len(verdicts) == len(set(verdicts))
        assert set(verdicts) >= set(view.parts) | set(view.gone) | set(listed)
        assert restored.unknown == ()
        lineage = Lineage(view, restored, grows=True)
        assert not list(lineage.faults())
        for one, other in itertools.permutations(lineage.admitted, 2):
            assert one not in view.ancestors([other])


# ---- tables ------------------------------------------------------------------------------------------------


def test_a_table_without_lineage_is_read_as_before() -> None:
    view = view_of(layout_of(table([1000])))
    assert not view.has_lineage
    assert restore(view, {100: 5}) == Restored((100,), (), (101,), (), (), frozenset(), ())


def test_a_table_tells_parents_also_those_that_are_gone() -> None:
    made = table([1000])
    entries = list(made.partitions)
    kwargs = {name: getattr(made, name) for name in made.__struct_fields__}
    old = {name: getattr(entries[0], name) for name in entries[0].__struct_fields__}
    entries[0] = type(entries[0])(**{**old, "parents": [90], "gone": [(80, 12)], "created_version": 3})
    view = view_of(layout_of(type(made)(**{**kwargs, "partitions": entries})))
    assert view.parts[entries[0].partition].older == (90, 80)
    assert (view.gone, view.has_lineage) == ({80: 12}, True)
