"""The rules of gates that a node derives from its own log, and the words of other owners."""

from __future__ import annotations

import pytest
from msgspec.structs import replace

from ringfence.control.model.cohort_commands import Drained
from ringfence.control.model.cohorts import CohortId, CohortMode, StartKind
from ringfence.control.model.ids import Epoch, PartitionId
from ringfence.control.model.layout import Partition
from ringfence.control.state_machines.cohorts.gates import (
    WORDS_MAX,
    DrainedWord,
    DrainedWords,
    GateProgress,
    GateRule,
    begun_words,
    cohorts_to_derive,
    drained_words,
    gates_of,
    rules_of,
)
from ringfence.control.state_machines.metadata.cohort_lineage import BeginningKind, heir
from tests.fakes.cohort_log import CohortLog
from tests.fakes.layout_log import END

STREAM, CHECKPOINT, QUEUE = CohortMode.STREAM, CohortMode.CHECKPOINT, CohortMode.QUEUE
LATEST = StartKind.LATEST
NO_WORDS = DrainedWords()


def rules(log: CohortLog, number: CohortId, words: DrainedWords = NO_WORDS) -> dict[int, GateRule]:
    """All rules of a cohort, over all nodes; each gate is at one of them."""
    found = [
        rule
        for node in log.nodes
        for rule in rules_of(log.state, log.cohort(number), log.place(int(node)), words)
    ]
    assert len({rule.partition for rule in found}) == len(found) == len(log.now.layout.partitions)
    return {int(rule.partition): rule for rule in found}


def word(log: CohortLog, number: CohortId, part: Partition) -> DrainedWord:
    gate = heir(log.now.layout.by_id(), part.partition)
    mark = Drained(number, log.cohort(number).incarnation, part.partition, read=True)
    return DrainedWord(mark, gate, log.epoch(gate))


def test_the_gate_of_a_sealed_partition_is_at_the_owner_of_its_heir() -> None:
    """PB19: the child that has its lowest slot."""
    log = CohortLog(partitions=1)
    source = log.active[0]
    one, other = log.split_done(source)
    owners = {part.partition: log.now.assignments[part.partition].owner for part in (one, other)}
    assert owners[one.partition] != owners[other.partition]
    assert gates_of(log.now, owners[one.partition]) == (source.partition, one.partition)
    assert gates_of(log.now, owners[other.partition]) == (other.partition,)
    newer = log.split_done(log.part(one.partition))
    assert source.partition in gates_of(log.now, log.now.assignments[newer[0].partition].owner)


def test_the_assignee_is_the_session_of_the_member_that_the_plan_names() -> None:
    log = CohortLog(partitions=2)
    number = log.create()
    assert {rule.assignee for rule in rules(log, number).values()} == {0}
    sessions = {*log.join(number, "a", "b")}
    log.plan(number)
    found = rules(log, number)
    assert {rule.assignee for rule in found.values()} == sessions
    assert {rule.generation for rule in found.values()} == {1}
    log.must(log.leave(number, "a"))
    assert 0 in {rule.assignee for rule in rules(log, number).values()}


def test_a_child_is_closed_until_all_its_parents_are_drained_by_mark_or_word() -> None:
    log = CohortLog(partitions=2)
    number, queue = log.create(), log.create("q", QUEUE)
    one, other = log.active
    child = log.merge_done(one, other).partition
    assert rules(log, number)[child].waits_for == (one.partition, other.partition)
    assert rules(log, number)[child].is_blocked
    assert not rules(log, queue)[child].is_blocked, "a queue has no order"
    words = DrainedWords()
    words.tell([word(log, number, one)])
    assert rules(log, number, words)[child].waits_for == (other.partition,)
    log.must(log.drained(number, other.partition))
    assert not rules(log, number, words)[child].is_blocked, "F25: a word is as good as a mark"
    assert rules(log, number)[child].waits_for == (one.partition,), "a restart forgets words"


def test_a_word_of_before_a_seek_does_not_count_and_one_that_is_ahead_waits() -> None:
    log = CohortLog(partitions=1)
    number = log.create()
    source = log.active[0]
    child, _ = log.split_done(source)
    words, old = DrainedWords(), log.state
    words.tell([word(log, number, source)])
    log.must(log.seek(number))
    log.must(log.begun(number, *log.cohort(number).resetting))
    assert rules(log, number, words)[child.partition].is_blocked
    newer = word(log, number, source)
    words.tell([newer])
    assert not rules(log, number, words)[child.partition].is_blocked
    words.tell([newer._replace(mark=newer.mark._replace(incarnation=number))])  # type: ignore[arg-type]
    assert not rules(log, number, words)[child.partition].is_blocked, "an old word comes late"
    behind = rules_of(old, old.cohorts[number], log.now.assignments[child.partition].owner, words)
    assert {rule.partition: rule for rule in behind}[child.partition].is_blocked, "a node that lags"


def test_words_of_a_log_do_not_count_after_an_accepted_loss_of_it() -> None:
    """PB51: the forced owner of the heir has a shorter log."""
    log = CohortLog(partitions=1)
    number = log.create()
    source = log.active[0]
    gate, sibling = log.split_done(source)
    words = DrainedWords()
    told = word(log, number, source)
    words.tell([told])
    assert not rules(log, number, words)[sibling.partition].is_blocked
    forced = Epoch(log.at + 1)
    assignments = dict(log.now.assignments)
    assignments[gate.partition] = replace(assignments[gate.partition], epoch=forced)
    topic = replace(log.now, assignments=assignments, forced={gate.partition: forced})
    state = replace(log.state, topics={log.topic: topic})

    def is_blocked(given: DrainedWords) -> bool:
        here = topic.assignments[sibling.partition].owner
        made = rules_of(state, state.cohorts[number], here, given)
        return {rule.partition: rule for rule in made}[sibling.partition].is_blocked

    assert is_blocked(words)
    late = DrainedWords()
    late.tell([told])
    assert is_blocked(late), "it was under way when the loss was accepted"
    late.tell([told._replace(epoch=forced)])
    assert not is_blocked(late), "the new owner has it"


def test_words_that_the_metadata_has_are_forgotten_and_their_number_is_limited() -> None:
    log = CohortLog(partitions=1)
    number = log.create()
    source = log.active[0]
    log.split_done(source)
    words = DrainedWords()
    words.tell([word(log, number, source)])
    words.forget(log.state)
    assert len(words._words) == 1
    log.must(log.drained(number, source.partition))
    words.forget(log.state)
    assert words._words == {}
    one = word(log, number, source)
    words.tell(
        one._replace(mark=one.mark._replace(partition=PartitionId(part))) for part in range(WORDS_MAX + 5)
    )
    assert len(words._words) == WORDS_MAX


def test_relatives_of_what_has_not_begun_are_closed_and_others_open_as_they_begin() -> None:
    """CD6: also a relative that was not named by the seek itself."""
    log = CohortLog(partitions=2)
    number = log.create()
    source, other = log.active
    one, two = log.split_done(source)
    log.must(log.drained(number, source.partition))
    log.must(log.seek(number))
    assert source.partition not in log.cohort(number).resetting, "it was through"
    found = rules(log, number)
    assert all(found[part].is_sought for part in (source.partition, one.partition, two.partition))
    log.must(log.begun(number, other.partition))
    found = rules(log, number)
    assert not found[other.partition].is_blocked
    assert found[source.partition].is_sought, "its descendants may give rows of before"
    log.must(log.begun(number, one.partition, two.partition))
    assert not rules(log, number)[source.partition].is_sought


def test_a_gate_says_where_it_begins_and_what_was_read_or_pruned_in_front_of_it() -> None:
    log = CohortLog(partitions=1)
    number = log.create(mode=CHECKPOINT)
    source = log.active[0]
    log.split_done(source)
    latest = log.create("latest", start=LATEST)
    child = log.active[0].partition
    log.must(log.drained(number, source.partition))
    found = rules(log, number)
    assert found[child].read == (source.partition,)
    assert (found[source.partition].end, found[source.partition].is_through) == (END.offset, True)
    assert rules(log, latest)[child].beginning.kind is BeginningKind.NOT_BEGUN
    assert rules(log, latest)[source.partition].is_through
    log.prune_overdue(source.partition)
    after = rules(log, number)[child]
    assert after.read == ()
    assert after.notes is not None
    assert [note.partition for note in after.notes.notes] == [source.partition]


# ---- what owners tell -------------------------------------------------------------------------------------


def told_drained(log: CohortLog, number: CohortId, **gates: GateProgress) -> set[int]:
    progress = {(number, PartitionId(int(part[1:]))): gate for part, gate in gates.items()}
    return {
        int(one.mark.partition) for one in drained_words(log.state, rules(log, number).values(), progress)
    }


def test_a_partition_is_drained_when_it_is_sealed_read_to_its_end_and_its_parents_are() -> None:
    log = CohortLog(partitions=1)
    number = log.create()
    source = log.active[0]
    whole = GateProgress(log.cohort(number).incarnation, END.offset, True)
    gate = f"p{source.partition}"
    assert told_drained(log, number, **{gate: whole}) == set(), "ACTIVE"
    one, _ = log.split_done(source)
    log.split_done(log.part(one.partition))
    assert told_drained(log, number, **{gate: whole._replace(offset=END.offset - 1)}) == set()
    assert told_drained(log, number, **{gate: whole._replace(incarnation=7)}) == set()  # type: ignore[arg-type]
    both = {gate: whole, f"p{one.partition}": whole}
    assert told_drained(log, number, **both) == {source.partition}, "CD2: its parents first"
    log.must(log.drained(number, source.partition))
    assert told_drained(log, number, **both) == {one.partition}


def test_where_rows_were_missed_only_a_settled_position_drains() -> None:
    log = CohortLog(partitions=1)
    number = log.create()
    source = log.active[0]
    one, _ = log.split_done(source)
    log.split_done(log.part(one.partition))
    log.prune_overdue(source.partition)
    gate = GateProgress(log.cohort(number).incarnation, END.offset, False)
    assert told_drained(log, number, **{f"p{one.partition}": gate}) == set(), "CR3"
    assert told_drained(log, number, **{f"p{one.partition}": gate._replace(is_settled=True)}) == {
        one.partition
    }


def test_an_empty_sealed_partition_that_no_member_ever_read_is_drained() -> None:
    log = CohortLog(partitions=1)
    number = log.create()
    source = log.active[0]
    log.must(log.split(source))
    log.must(log.hold())
    log.must(log.commit(end=replace(END, offset=0)))
    nothing = GateProgress(0, 0, False)  # type: ignore[arg-type]
    assert told_drained(log, number, **{f"p{source.partition}": nothing}) == {source.partition}


@pytest.mark.parametrize("rows", [0, 1])
def test_a_partition_counts_as_read_if_a_member_settled_rows_and_not_by_a_release(rows: int) -> None:
    """A store of a CHECKPOINT cohort has nothing of one without rows."""
    log = CohortLog(partitions=1)
    number = log.create()
    source = log.active[0]
    log.must(log.split(source))
    log.must(log.hold())
    log.must(log.commit(end=replace(END, offset=rows)))
    progress = {
        (number, source.partition): GateProgress(log.cohort(number).incarnation, rows, is_settled=True)
    }
    [word] = drained_words(log.state, rules(log, number).values(), progress)
    assert word.mark.read == (rows > 0)


def test_a_gate_tells_that_it_has_begun_under_its_own_owner_epoch() -> None:
    log = CohortLog(partitions=2)
    number = log.create(start=LATEST)
    one, other = log.active
    now = log.cohort(number).incarnation

    def told(gate: GateProgress) -> set[int]:
        progress = {(number, one.partition): gate}
        found = begun_words(log.state, rules(log, number).values(), progress)
        assert all(item.epoch == log.epoch(one.partition) for item in found)
        return {int(item.partition) for item in found}

    assert told(GateProgress(0, 0, False)) == set(), "the latest rows: RESET is not in the log"  # type: ignore[arg-type]
    assert told(GateProgress(now, 9, False)) == {one.partition}
    assert told(GateProgress(now, 9, False, is_held=True)) == set(), "the hold of before may last"
    log.must(log.begun(number, one.partition, other.partition))
    assert told(GateProgress(now, 9, False)) == set()
    log.must(log.seek(number))
    assert told(GateProgress(now, 9, False)) == set(), "an entry of the incarnation before"
    assert told(GateProgress(0, 0, False)) == {one.partition}, "the metadata tells: no record is due"  # type: ignore[arg-type]


def test_rules_are_derived_for_all_cohorts_of_a_topic_whose_layout_or_owner_changed() -> None:
    """PB45: the records of the cohorts are the same, and children are blocked."""
    log = CohortLog(partitions=1)
    one, other = log.create("one"), log.create("other")
    before = log.state
    assert cohorts_to_derive(before, log.state) == ()
    log.split_done(log.active[0])
    assert cohorts_to_derive(before, log.state) == (one, other)
    before = log.state
    log.join(one, "a")
    assert cohorts_to_derive(before, log.state) == (one,)
    before = log.state
    log.must(log.drained(other, before.topics[log.topic].layout.partitions[0].partition))
    assert cohorts_to_derive(before, log.state) == (other,)
    before = log.state
    log.must(log.restart(int(log.nodes[0])))
    assert cohorts_to_derive(before, log.state) == (one, other)
    before = log.state
    log.must(log.delete(one))
    assert cohorts_to_derive(before, log.state) == (one,), "it is gone"
