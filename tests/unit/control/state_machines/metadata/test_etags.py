"""Version tags: equal tags, equal content; a change that was decided on another version is refused."""

from __future__ import annotations

from ringfence.control.model.requests import Condition
from ringfence.control.state_machines.metadata.etags import condition_fault, tag_of
from ringfence.native.wire import Code
from tests.fakes.cohort_log import CohortLog


def test_each_resource_has_a_tag_that_changes_with_its_content() -> None:
    log = CohortLog(partitions=1)
    number = log.create()
    names = [f"topic/{log.topic}", f"node/{log.nodes[0]}", "ring", "config", f"cohort/{number}"]
    before = {name: tag_of(log.state, name) for name in names}
    assert None not in before.values()
    assert len({*before.values()}) == len(names)
    log.must(log.change(number, log.cohort(number).changed, limit=9))
    log.must(log.config(topics_max=9))
    log.split_done(log.active[0])
    after = {name: tag_of(log.state, name) for name in names}
    changed = {name for name in names if after[name] != before[name]}
    assert changed == {f"cohort/{number}", "config", f"topic/{log.topic}"}


def test_what_changes_without_an_administrator_is_not_in_a_tag() -> None:
    log = CohortLog(partitions=1)
    number = log.create()
    names = [f"topic/{log.topic}", f"node/{log.nodes[0]}", f"cohort/{number}"]
    before = [tag_of(log.state, name) for name in names]
    log.must(log.restart(int(log.nodes[0])))
    log.join(number, "a")
    log.plan(number)
    log.must(log.seek(number))
    assert [tag_of(log.state, name) for name in names] == before


def test_a_resource_that_does_not_exist_has_no_tag() -> None:
    log = CohortLog()
    for name in ("topic/7", "node/9", "cohort/7", "cohort/x", "token/none", "nothing", "topic/٣"):
        assert tag_of(log.state, name) is None


def test_a_condition_holds_for_the_version_that_was_read_only() -> None:
    log = CohortLog()
    number = log.create()
    tag = tag_of(log.state, f"cohort/{number}")
    assert tag is not None
    assert condition_fault(log.state, None) is None
    assert condition_fault(log.state, Condition(f"cohort/{number}", tag)) is None
    late = condition_fault(log.state, Condition(f"cohort/{number}", "1"))
    assert late is not None
    assert late.code == Code.TOO_OLD
    gone = condition_fault(log.state, Condition("cohort/7", tag))
    assert gone is not None
    assert "does not exist" in gone.message
