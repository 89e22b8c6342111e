"""Keys, conditions and tokens where they are decided: in the metadata log, the same on every node."""

from __future__ import annotations

from hashlib import sha256

import pytest
from msgspec.structs import replace

from ringfence.control.model.commands import Command, CreateToken, DeleteTopic, RevokeToken, SetConfig
from ringfence.control.model.entries import Entry, Proposal, decode_proposal, encode_proposal
from ringfence.control.model.ids import Index, SessionId, TopicId
from ringfence.control.model.node_commands import SetNode
from ringfence.control.model.nodes import Vote
from ringfence.control.model.requests import Condition, RequestKey
from ringfence.control.model.results import Done, Refused, Result, TopicCreated
from ringfence.control.model.state import MetadataState, canonical_bytes, decode_state
from ringfence.control.model.tokens import Role
from ringfence.control.state_machines.metadata.config import REQUESTS_MAX, TOKENS_MAX
from ringfence.control.state_machines.metadata.etags import tag_of
from ringfence.control.state_machines.metadata.state_machine import apply
from ringfence.native.wire import Code
from tests.fakes.metadata_commands import BEGUN, NODE, create

ADMIN = CreateToken(name="root", hash=sha256(b"1").digest(), role=Role.ADMIN)


def keyed(
    state: MetadataState,
    index: int,
    command: Command,
    key: str = "k",
    content: bytes = b"c" * 16,
    expects: Condition | None = None,
) -> tuple[MetadataState, Result]:
    request = RequestKey(key, content) if key else None
    proposal = Proposal(SessionId(0), index, 0, command, request, expects)
    assert decode_proposal(encode_proposal(proposal)) == proposal
    return apply(state, Entry(Index(index), 1, proposal))


def test_a_repeated_key_gives_the_first_answer_and_changes_nothing() -> None:
    state, first = keyed(BEGUN, 2, create())
    again, second = keyed(state, 3, create())
    assert first == second == TopicCreated(topic=TopicId(2))
    assert again is state
    assert decode_state(canonical_bytes(state)) == state


def test_other_content_under_a_key_is_a_conflict() -> None:
    state, _ = keyed(BEGUN, 2, create())
    again, refused = keyed(state, 3, create("public/default/b"), content=b"d" * 16)
    assert again is state
    assert isinstance(refused, Refused)
    assert refused.code == Code.CONFLICT


def test_a_refused_request_leaves_its_key_free() -> None:
    state, refused = keyed(BEGUN, 2, DeleteTopic(topic=TopicId(9)))
    assert state is BEGUN
    assert isinstance(refused, Refused)
    assert keyed(state, 3, create())[1] == TopicCreated(topic=TopicId(3))


def test_keys_are_bounded_and_the_oldest_is_forgotten() -> None:
    state = BEGUN
    for index in range(2, REQUESTS_MAX + 4):
        state, _ = keyed(state, index, SetConfig(values={"topics_max": 10 + index}), key=f"k{index}")
    assert len(state.requests) == REQUESTS_MAX
    assert "k2" not in state.requests
    assert "k3" not in state.requests
    assert "k4" in state.requests


@pytest.mark.parametrize(("level", "kept"), [(0, False), (1, True)])
def test_many_keys_of_one_caller_make_none_of_another_be_forgotten(level: int, kept: bool) -> None:
    state, first = keyed(replace(BEGUN, level=level), 2, create(), key="owner\none")
    for index in range(3, REQUESTS_MAX + 30):
        state, _ = keyed(state, index, SetConfig(values={"topics_max": index}), key=f"rival\n{index}")
    assert len(state.requests) == REQUESTS_MAX
    _, second = keyed(state, 9_000, create(), key="owner\none")
    assert (second == first) == kept
    assert "rival\n3" not in state.requests


def test_a_change_that_was_meant_for_another_version_is_refused() -> None:
    state, _ = keyed(BEGUN, 2, create(), key="")
    resource = "topic/2"
    assert tag_of(state, resource) == "2-1-1"
    kept, refused = keyed(state, 3, DeleteTopic(topic=TopicId(2)), expects=Condition(resource, "2-1-2"))
    assert kept is state
    assert isinstance(refused, Refused)
    assert refused.code == Code.TOO_OLD
    gone, done = keyed(state, 4, DeleteTopic(topic=TopicId(2)), expects=Condition(resource, "2-1-1"))
    assert done == Done()
    assert tag_of(gone, resource) is None


def test_a_tag_changes_with_what_an_administrator_sets_and_with_nothing_else() -> None:
    node, config = tag_of(BEGUN, "node/1"), tag_of(BEGUN, "config")
    elsewhere = replace(BEGUN.nodes[NODE], addresses=("tcp://other:1",), started=Index(7))
    assert tag_of(replace(BEGUN, nodes={NODE: elsewhere}), "node/1") == node
    voting, _ = keyed(BEGUN, 2, SetNode(node=NODE, vote=Vote.NEVER))
    assert tag_of(voting, "node/1") != node
    assert tag_of(voting, "config") == config
    assert tag_of(BEGUN, "ring") == "ring-1"
    for unknown in ("", "topic/x", "topic/9", "node/-1", "nothing/1", "token/a", "topic/²"):
        assert tag_of(BEGUN, unknown) is None


def test_the_first_token_is_an_admins_that_lasts_and_the_last_such_goes_last() -> None:
    for unsound in (
        replace(ADMIN, role=Role.VIEWER),
        replace(ADMIN, expires_ms=5),
        replace(ADMIN, name=""),
        replace(ADMIN, hash=b"short"),
    ):
        assert isinstance(keyed(BEGUN, 2, unsound)[1], Refused)
    state, done = keyed(BEGUN, 2, ADMIN)
    assert done == Done()
    assert isinstance(keyed(state, 3, replace(ADMIN, hash=b"x" * 32), key="")[1], Refused)
    assert isinstance(keyed(state, 3, replace(ADMIN, name="b"), key="")[1], Refused)
    reader = CreateToken(name="reader", hash=b"r" * 32, role=Role.VIEWER, expires_ms=10)
    both, _ = keyed(state, 3, reader, key="")
    assert both.tokens["reader"].created == 3
    assert isinstance(keyed(both, 4, RevokeToken(name="root"), key="")[1], Refused)
    assert isinstance(keyed(both, 4, RevokeToken(name="nobody"), key="")[1], Refused)
    alone, _ = keyed(both, 4, RevokeToken(name="reader"), key="")
    none, _ = keyed(alone, 5, RevokeToken(name="root"), key="")
    assert none.tokens == {}
    assert decode_state(canonical_bytes(both)) == both


def test_tokens_are_bounded() -> None:
    state, _ = keyed(BEGUN, 2, ADMIN, key="")
    for index in range(3, TOKENS_MAX + 2):
        token = CreateToken(name=f"t{index}", hash=index.to_bytes(32, "big"), role=Role.VIEWER)
        state, result = keyed(state, index, token, key="")
        assert result == Done()
    more = CreateToken(name="more", hash=b"m" * 32, role=Role.VIEWER)
    refused = keyed(state, 1_000, more, key="")[1]
    assert isinstance(refused, Refused)
    assert str(TOKENS_MAX) in refused.message


@pytest.mark.parametrize("role", list(Role))
def test_roles_are_words_that_the_log_keeps(role: Role) -> None:
    assert Role(str(role)) is role
