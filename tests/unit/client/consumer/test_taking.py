"""The consumer's part in a transaction, over a member that the test answers."""

from __future__ import annotations

import threading
from types import SimpleNamespace
from typing import Any

import pytest

from ringfence.common.scope_values import Begun
from ringfence.consumer import taking as module
from ringfence.consumer.calls import Claim, Fetch, Fetched, NotTaken, Settled, Why
from ringfence.consumer.taking import SCOPE_BYTES_MAX, Taking
from ringfence.native.errors import (
    ConflictError,
    DeadlineError,
    FencedError,
    InvalidArgumentError,
    WaitTimeoutError,
)
from ringfence.send.stager import IDENTITY
from tests.fakes.consumer_alone import SESSION, Alone

BEGUN, TOKEN = Begun(3, 4, 0, 0), b"t" * 16


class Core:
    """As `Core`: owners answer a claim when the application's thread lets the I/O thread run."""

    topic = "t"

    def __init__(self, name: str = "m", **options: Any) -> None:
        self.alone = Alone(1, 2, is_auto=False, **options)
        self.member, self.lock = self.alone.member, threading.RLock()
        self.options = self.member.state.options
        self.link = SimpleNamespace(cohort=5)
        self.identity = SimpleNamespace(member=name, cohort="c", mode="stream")
        self.layout = SimpleNamespace(topic=9)
        self.is_closed = False
        self.answers: list[Settled] = []
        self.claims: list[Claim] = []

    def check(self) -> None:
        """It is open."""

    def turn(self) -> None:
        self.alone.turn()
        for call in self.alone.calls(Claim):
            if self.answers:
                self.claims.append(call)
                self.alone.answer(call, self.answers.pop(0))


@pytest.fixture
def core(monkeypatch: pytest.MonkeyPatch) -> Core:
    made = Core()
    monkeypatch.setattr(module, "core_of", lambda _: made)
    return made


def reading(core: Core, *rows: int, timeout_s: float = 5.0) -> Taking:
    """A transaction in which so many rows of each partition were given."""
    taking = Taking(object(), timeout_s=timeout_s)
    for partition, count in enumerate(rows, 1):
        core.alone.open(partition, hold=10 * partition, rows=count)
        core.alone.give(count)
    return taking


def test_what_was_given_is_claimed_and_named_by_the_commit(core: Core) -> None:
    taking = reading(core, 20, 30)
    core.answers = [Settled()]
    taking.take()
    consumed = taking.claim(BEGUN, 7, TOKEN)
    assert consumed is not None
    assert (consumed.topic, consumed.cohort, consumed.incarnation, consumed.session) == (9, 5, 1, SESSION)
    assert [tuple(one) for one in consumed.ranges] == [(1, 10, 0, 20), (2, 20, 0, 30)]
    assert core.claims[0].identity == IDENTITY.pack(3, 4, 7, 0, 0, TOKEN)
    taking.committed()
    assert [core.member.state.gates[one].settled.offset for one in (1, 2)] == [20, 30]
    assert not core.member.consuming.is_open


def test_a_block_in_which_nothing_was_given_names_nothing(core: Core) -> None:
    taking = reading(core)
    taking.take()
    assert taking.claim(BEGUN, 1, TOKEN) is None
    assert core.alone.made(Claim) == []


def test_rows_of_a_block_that_was_aborted_come_again_once(core: Core) -> None:
    taking = reading(core, 20)
    taking.take()
    for _ in range(2):  # the end of the block may tell it, too
        taking.aborted()
    taking.committed()
    core.alone.turn()
    call = core.alone.newest(Fetch)
    assert (call.hold, call.offset) == (10, 0)
    core.alone.answer(call, Fetched(10, 0, 20, 1, bytes=100))
    place = core.alone.give(20)
    assert place is not None
    assert (place.first_offset, core.member.state.gates[1].settled.offset) == (0, 0)


def test_owners_that_do_not_answer_end_the_claim(core: Core) -> None:
    taking = reading(core, 20, timeout_s=0.05)
    taking.take()
    with pytest.raises(DeadlineError, match="nothing of it is or will be stored") as caught:
        taking.claim(BEGUN, 1, TOKEN)
    assert caught.value.details["partitions"] == [1]
    made = len(core.alone.made(Claim))
    core.alone.turn(60)
    assert len(core.alone.made(Claim)) == made, "claims nothing any more"


@pytest.mark.parametrize(
    ("refused", "error"),
    [
        (NotTaken(1, 99, Why.NOT_ASSIGNED, None), FencedError),
        (NotTaken(1, 10, Why.FINAL, ConflictError("sought")), ConflictError),
    ],
)
def test_a_gate_that_is_not_locked_is_told(core: Core, refused: NotTaken, error: type[Exception]) -> None:
    taking = reading(core, 20)
    core.answers = [Settled((refused,))]
    taking.take()
    with pytest.raises(error):
        taking.claim(BEGUN, 1, TOKEN)


def test_one_transaction_at_a_time(core: Core) -> None:
    reading(core, 20)
    with pytest.raises(InvalidArgumentError, match="another transaction is open"):
        Taking(object(), timeout_s=1.0)


def test_a_transaction_begins_once_the_consumer_has_joined(core: Core) -> None:
    core.link.cohort = 0
    with pytest.raises(WaitTimeoutError, match="did not join its cohort within"):
        Taking(object(), timeout_s=0.02)
    core.alone.member.state.fail(FencedError("replaced"), is_final=True)
    with pytest.raises(FencedError, match="replaced"):
        Taking(object(), timeout_s=5.0)
    core.alone.member.state.final_error = None
    joining = threading.Timer(0.02, lambda: setattr(core.link, "cohort", 5))
    joining.start()
    assert Taking(object(), timeout_s=5.0).scope == "consume/5/m"
    joining.join()


def test_a_closed_consumer_is_not_woken(core: Core) -> None:
    taking = reading(core, 20)
    core.is_closed = True
    before = len(core.alone.effects)
    taking.aborted()
    assert len(core.alone.effects) == before


@pytest.mark.parametrize(("name", "is_short"), [("m", True), ("ä" * 120, False)])
def test_a_member_s_scope_is_its_own_and_fits(
    monkeypatch: pytest.MonkeyPatch, name: str, is_short: bool
) -> None:
    core = Core(name, is_named=True)
    monkeypatch.setattr(module, "core_of", lambda _: core)
    taking = Taking(object(), timeout_s=1.0)
    assert (taking.scope == f"consume/5/{name}") is is_short
    assert len(taking.scope.encode()) <= SCOPE_BYTES_MAX
    assert taking.is_one_off is False
