"""What a commit's errors promise: refused before it was decided, or not known."""

from __future__ import annotations

import pytest

import ringfence
from ringfence.common.scope_values import Begun
from ringfence.native.wire import Code, Opcode, RedirectReason, RequestHeader
from ringfence.network import request
from tests.fakes.client_topic import SCHEMA, rows, until
from tests.fakes.commit_nodes import Decided, once
from tests.fakes.socket_node import Drop, FakeNode, Fault, Redirect, Refuse

EARLY, LOST = Refuse(Code.DEADLINE, 20), Drop(served=False)


@pytest.mark.parametrize(
    ("faults", "error"),
    [
        ([EARLY], ringfence.DeadlineError),
        ([EARLY, EARLY, Refuse(Code.INVALID_ARGUMENT)], ringfence.InvalidArgumentError),
        ([Refuse(Code.INVALID_ARGUMENT)], ringfence.InvalidArgumentError),
        # A node that says these may have proposed it.
        ([Refuse(Code.STOPPING, 20), EARLY], ringfence.UnknownOutcomeError),
        ([EARLY, Refuse(Code.INTERNAL, 20), Refuse(Code.INVALID_ARGUMENT)], ringfence.UnknownOutcomeError),
        ([EARLY, LOST], ringfence.UnknownOutcomeError),
        ([EARLY, Refuse(Code.UNKNOWN_OUTCOME)], ringfence.UnknownOutcomeError),
    ],
)
def test_a_commit_that_no_node_has_begun_is_not_of_unknown_outcome(
    faults: list[Fault], error: type[ringfence.RingfenceError]
) -> None:
    left = list(faults)

    def hook(header: RequestHeader) -> Fault:
        if header.opcode != Opcode.COMMIT:
            return None
        return left.pop(0) if len(left) > 1 else left[0]

    with FakeNode(hook=hook) as node, ringfence.connect(node.address, timeout_s=0.5) as client:
        with pytest.raises(ringfence.RingfenceError) as caught:
            client.scopes.commit(Begun(5, 6, 0, 0), 1, [])
        assert type(caught.value) is error
        assert len(node.sent(Opcode.COMMIT)) >= len(faults)


def try_again_soon(patch: pytest.MonkeyPatch) -> None:
    """An answer that does not come is given up within half a second."""
    patch.setattr(request, "TRY_S_MAX", 0.2)
    patch.setattr(request, "ANSWER_GRACE_S", 0.2)


FATES: list[Fault] = [None, Drop(served=False), Drop(served=True), Refuse(Code.STOPPING, 20)]


@pytest.mark.parametrize("fate", FATES, ids=str)
@pytest.mark.parametrize("own", [True, False])
def test_what_is_committed_already_is_told_by_whose_it_is_not_by_tries_that_were_lost(
    own: bool, fate: Fault, monkeypatch: pytest.MonkeyPatch
) -> None:
    try_again_soon(monkeypatch)
    with Decided(own, once(fate)) as node, ringfence.connect(node.address, timeout_s=10) as client:
        assert client.scopes.commit(Begun(5, 6, 0, 0), 1, []) is own
        counted = client.transaction(scope="s", epoch=1)
        counted.commit()
        assert counted.already is not own
        drawn = client.transaction(scope="s")
        if own:
            drawn.commit()
        else:
            with pytest.raises(ringfence.FencedError):
                drawn.commit()


@pytest.mark.parametrize("fate", FATES[1:], ids=str)
def test_where_nobody_tells_whose_it_is_a_lost_try_leaves_it_unknown(
    fate: Fault, monkeypatch: pytest.MonkeyPatch
) -> None:
    try_again_soon(monkeypatch)
    with Decided(None, once(fate)) as node, ringfence.connect(node.address, timeout_s=10) as client:
        drawn = client.transaction(scope="s")
        with pytest.raises(ringfence.UnknownOutcomeError, match="does not tell"):
            drawn.commit()
        assert (drawn.rows, drawn.already) == (0, False)
        with pytest.raises(ringfence.UnknownOutcomeError, match="does not tell"):
            client.scopes.commit(Begun(5, 6, 0, 0), 1, [])  # an earlier call may have committed it
        assert client.scopes.commit_told(Begun(5, 6, 0, 0), 1, []) is None
    with Decided(None, once(fate)) as node, ringfence.connect(node.address, timeout_s=10) as client:
        counted = client.transaction(scope="s", epoch=1)
        counted.commit()
        assert counted.already, "who counts epochs has this one in the log, whoever committed it"


def test_an_epoch_that_a_later_one_gave_up_is_told_to_be_lost() -> None:
    with Decided(own=False) as node, ringfence.connect(node.address, timeout_s=10) as client:
        node.given_up = True
        assert client.scopes.commit(Begun(5, 6, 0, 0), 1, []) is False
        with pytest.raises(ringfence.FencedError, match="a later epoch of the scope was committed"):
            client.scopes.commit_told(Begun(5, 6, 0, 0), 1, [])
        counted = client.transaction(scope="s", epoch=1)
        with pytest.raises(ringfence.FencedError, match="use a greater number"):
            counted.commit()
        assert (counted.rows, counted.already) == (0, False)


def test_a_block_of_unknown_outcome_asks_again() -> None:
    fates: list[Fault] = [Drop(served=False), Refuse(Code.INVALID_ARGUMENT), None]

    def hook(header: RequestHeader) -> Fault:
        return fates[0] if header.opcode == Opcode.COMMIT else None

    with Decided(own=True, hook=hook) as node, ringfence.connect(node.address, timeout_s=0.5) as client:
        block = client.transaction(scope="s")
        for _ in range(2):  # a refusal says nothing of the try that was lost before
            with pytest.raises(ringfence.UnknownOutcomeError):
                block.commit()
            del fates[0]
        block.commit()
        with pytest.raises(ringfence.ClosedError):
            block.commit()


def test_a_client_that_is_closed_while_rows_are_on_their_way_again_ends_without_a_word(
    caplog: pytest.LogCaptureFixture,
) -> None:
    """They were redirected; what would send them anew finds the link closed, on the link's own thread."""

    def hook(header: RequestHeader) -> Fault:
        return Redirect(RedirectReason.CLOSED) if header.opcode == Opcode.STAGE else None

    with Decided(own=True, hook=hook) as node:
        client = ringfence.connect(node.address, timeout_s=10)
        client.create_topic("t", schema=SCHEMA, key=["id"], partitions=1)
        for turn in range(5):
            block = client.transaction("t", scope="s", epoch=turn + 1)
            block.send(rows(0, 3))
        until(lambda: len(node.sent(Opcode.STAGE)) > 8)
        client.close()
    assert not caplog.records, caplog.text
