"""Room for scopes from level 1 on: no named one is forgotten for a new one, and names can be given back."""

from __future__ import annotations

from typing import Any

import structlog.testing
from msgspec import UNSET
from msgspec.structs import replace

from ringfence.control.model.commands import Command, DeleteTopic, SetConfig
from ringfence.control.model.ids import Index, ScopeId
from ringfence.control.model.results import Done, Refused, ScopeBegun
from ringfence.control.model.scopes import BeginScope, ForgetScope
from ringfence.control.runtime.raft.level_gate import older_fault
from ringfence.control.runtime.transactions.requests import log_forgotten
from ringfence.control.state_machines.metadata.state_machine import apply
from ringfence.native.wire import Code
from tests.fakes.metadata_commands import create, entry
from tests.fakes.scope_log import TOPIC, ScopeLog

MOST, DAY_MS = 16, 86_400_000


class Timed(ScopeLog):
    """Entries of level 1 at a time that the test sets; the table of scopes has `MOST` places."""

    def __init__(self) -> None:
        super().__init__()
        self.now_ms = 1_000
        self.state = replace(self.state, level=1)
        self.do(SetConfig(values={"scopes_max": MOST}))

    def do(self, command: Command) -> Any:
        self.index += 1
        self.state, result = apply(self.state, entry(self.index, command, time_ms=getattr(self, "now_ms", 0)))
        return result

    def of_query(self, name: str, idle_s: int = 86_400) -> ScopeId:
        result = self.do(BeginScope(name=name, idle_s=idle_s))
        assert isinstance(result, ScopeBegun), result
        return result.scope

    def fill(self) -> None:
        for number in range(MOST - len(self.state.scopes)):
            self.begun(f"named-{number}")
        assert len(self.state.scopes) == MOST


def test_a_full_table_of_named_scopes_refuses_a_new_one_and_forgets_none() -> None:
    log = Timed()
    nightly = log.begun("nightly")
    log.do(log.commit(nightly, 7))
    log.do(log.confirm(nightly, 7))
    log.fill()
    for one_off in (False, True):
        refused = log.refused(BeginScope(name="one-more", one_off=one_off))
        assert refused.code == Code.OVERLOADED
        assert f"{MOST} scopes" in refused.message
        for way_out in ("scopes_max", "ringfence scope list", "ringfence scope forget NAME"):
            assert way_out in refused.message
    assert log.begun("nightly").committed == 7, "its epochs are known"
    log.do(SetConfig(values={"scopes_max": MOST + 1}))
    log.begun("one-more")


def test_a_table_of_scopes_that_wait_for_their_publish_is_full_for_a_while() -> None:
    log = Timed()
    waiting = [log.begun(f"run-{number}", one_off=True) for number in range(MOST)]
    for one in waiting:
        log.do(log.commit(one, 1))
    assert log.refused(BeginScope(name="new")).code == Code.OVERLOADED
    log.do(log.confirm(waiting[0], 1))
    log.begun("new")
    assert waiting[0].scope not in log.state.scopes


def test_a_scope_that_is_given_back_makes_room_and_begins_from_nothing() -> None:
    log = Timed()
    nightly = log.begun("nightly")
    log.do(log.commit(nightly, 7))
    log.fill()
    forget = ForgetScope(scope=nightly.scope, driver=nightly.driver)
    waiting = log.refused(forget)
    assert waiting.code == Code.OVERLOADED
    assert "the first is 7" in waiting.message
    log.do(log.confirm(nightly, 7))
    again = log.begun("nightly")
    late = log.refused(forget)
    assert late.code == Code.FENCED_PRODUCER, "it was begun after it was looked at"
    assert str(again.driver) in late.message
    assert log.do(replace(forget, driver=again.driver)) == Done()
    assert "nightly" not in log.state.scope_names
    assert log.state.scopes_gone == nightly.scope, "engines drop what is staged"
    assert "forgotten" in log.refused(log.commit(again, 8)).message
    assert "no scope" in log.refused(replace(forget, driver=again.driver)).message
    fresh = log.begun("nightly")
    assert (fresh.committed, fresh.scope > nightly.scope) == (0, True)


def test_a_querys_scope_makes_room_once_it_was_not_used_for_as_long_as_it_said() -> None:
    log = Timed()
    old, used = log.of_query("old"), log.begun("used")
    log.do(BeginScope(name="used", idle_s=86_400))
    log.fill()
    log.now_ms += DAY_MS
    log.do(log.commit(log.begun("used"), 1))
    assert log.refused(BeginScope(name="new")).code == Code.OVERLOADED, "it is a day, not more"
    log.now_ms += 1
    begun = log.do(BeginScope(name="used", idle_s=86_400))
    log.do(log.commit(begun, 2))
    log.do(log.confirm(begun, 1))
    log.do(log.confirm(begun, 2))
    log.begun("new")
    assert old not in log.state.scopes
    assert used.scope in log.state.scopes, "its time began again with its commit"


def test_a_later_begin_says_how_long_a_scope_stays() -> None:
    log = Timed()
    scope = log.of_query("s", idle_s=60)
    assert log.state.scopes[scope].used_ms == log.now_ms
    log.begun("s")
    assert (log.state.scopes[scope].idle_s, log.state.scopes[scope].used_ms) == (UNSET, UNSET)
    log.now_ms += 5
    log.of_query("s", idle_s=60)
    assert log.state.scopes[scope].used_ms == log.now_ms
    for wrong in (0, -1, 1 << 40):
        assert log.refused(BeginScope(name="s", idle_s=wrong)).code == Code.INVALID_ARGUMENT


def test_scopes_of_deleted_topics_make_room() -> None:
    log = Timed()
    other = log.do(create("public/default/other")).topic
    gone, kept = log.begun(f"nightly@{TOPIC}"), log.begun(f"nightly@{other}")
    log.fill()
    assert log.refused(BeginScope(name="new")).code == Code.OVERLOADED
    log.do(DeleteTopic(topic=TOPIC))
    log.begun("new")
    assert gone.scope not in log.state.scopes
    assert kept.scope in log.state.scopes


def test_below_level_1_no_scope_is_given_back_and_none_has_a_time() -> None:
    log = Timed()
    log.state = replace(log.state, level=0)
    scope = log.of_query("s")
    assert (log.state.scopes[scope].idle_s, log.state.scopes[scope].used_ms) == (UNSET, UNSET)
    command = ForgetScope(scope=scope, driver=log.state.scopes[scope].driver)
    refused: Refused = log.refused(command)
    assert refused.code == Code.UNSUPPORTED_VERSION
    assert "ringfence cluster finalize" in refused.message
    assert older_fault(log.state, command) is not None, "it is not proposed either"


def test_scopes_that_go_are_told_as_what_they_are() -> None:
    log = Timed()
    begun = log.begun("nightly")
    before = log.state
    log.do(ForgetScope(scope=begun.scope, driver=Index(begun.driver)))
    with structlog.testing.capture_logs() as lines:
        log_forgotten(before, log.state)
    assert [(line["log_level"], line["names"]) for line in lines] == [("info", ["nightly"])]
    assert "scopes_max" not in lines[0]["why"]
