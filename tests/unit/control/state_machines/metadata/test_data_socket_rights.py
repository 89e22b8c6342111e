"""What the data socket is told of tokens: pure, out of the metadata."""

from __future__ import annotations

import itertools
from hashlib import sha256
from typing import Any

import pytest
from msgspec.structs import replace

from ringfence.control.model.ids import Index
from ringfence.control.model.state import MetadataState
from ringfence.control.model.tokens import RANKS, RIGHTS, Role, Token
from ringfence.control.runtime.handlers.token_prefixes import restrict_to_prefix
from ringfence.control.runtime.process.errors import RequestRefused
from ringfence.control.state_machines.metadata.data_socket_rights import NODES, OPEN, access_of
from ringfence.native import cluster_messages, messages
from ringfence.native.messages import Message
from ringfence.native.wire import Code, Right
from tests.fakes.metadata_commands import BEGUN


def token(name: str, role: Role, created: int, **values: Any) -> Token:
    return Token(name=name, hash=sha256(name.encode()).digest(), role=role, created=Index(created), **values)


def state_with(*tokens: Token, **config: int) -> MetadataState:
    return replace(BEGUN, tokens={one.name: one for one in tokens}, config=config)


ROOT = token("root", Role.ADMIN, 5)
SECOND = token("second", Role.ADMIN, 6)


def test_without_tokens_nothing_is_asked_and_with_them_it_is_unless_the_setting_says_otherwise() -> None:
    assert access_of(state_with()) == OPEN
    assert access_of(state_with(ROOT)).is_asked
    put_off = access_of(state_with(ROOT, data_tokens=0))
    assert (put_off.is_asked, len(put_off.grants)) == (False, 2), "who shows a token is known all the same"


def test_each_role_has_the_rights_of_those_before_it_and_none_is_a_nodes() -> None:
    ordered = sorted(Role, key=RANKS.__getitem__)
    assert ordered == [Role.VIEWER, Role.CONSUMER, Role.WRITER, Role.OPERATOR, Role.ADMIN]
    for lower, higher in itertools.pairwise(ordered):
        assert RIGHTS[lower] & RIGHTS[higher] == RIGHTS[lower]
    assert not any(rights & Right.NODE for rights in RIGHTS.values())
    assert set(RIGHTS) == set(RANKS) == set(Role)


def test_the_table_has_hashes_rights_ends_and_prefixes_and_last_what_nodes_show() -> None:
    short = token("short", Role.WRITER, 7, expires_ms=99, prefix="acme/")
    access = access_of(state_with(ROOT, short))
    known = {grant.name: grant for grant in access.grants}
    assert (known["short"].rights, known["short"].expires_ms, known["short"].prefix) == (
        Right.READ | Right.CONSUME | Right.WRITE,
        99,
        "acme/",
    )
    assert known["short"].hash == short.hash
    assert known[NODES].rights == Right.NODE
    assert known[NODES].hash == sha256(access.credential.encode()).digest()


def test_what_nodes_show_is_equal_on_all_and_follows_from_the_oldest_lasting_admin_alone() -> None:
    credential = access_of(state_with(ROOT, SECOND)).credential
    assert len(credential) == 64
    viewer = token("viewer", Role.VIEWER, 1)
    assert access_of(state_with(SECOND, viewer, ROOT)).credential == credential
    expiring = token("admin-for-a-day", Role.ADMIN, 2, expires_ms=9)
    assert access_of(state_with(expiring, ROOT)).credential == credential
    assert access_of(state_with(SECOND)).credential != credential
    other = replace(state_with(ROOT, SECOND), history=b"another history!")
    assert access_of(other).credential != credential


def test_no_text_of_the_table_has_the_secret() -> None:
    access = access_of(state_with(ROOT))
    assert access.credential not in repr(access)
    assert access.credential not in f"{access}"


def request_of(kind: type[Message], name: str) -> Message:
    if kind is messages.ProducerOpen:
        return messages.ProducerOpen(topic=name)
    if kind in {messages.TopicCreate, messages.SchemaAdd}:
        return kind(name=name, schema=b"")
    return kind(name=name)


@pytest.mark.parametrize(
    "kind",
    [
        messages.TopicCreate,
        messages.TopicName,
        messages.TopicTruncate,
        messages.SchemaAdd,
        messages.ProducerOpen,
    ],
)
def test_a_prefix_lets_through_what_is_in_it(kind: type[Message]) -> None:
    def ask(prefix: str, name: str) -> Message:
        return restrict_to_prefix(lambda: BEGUN, prefix, request_of(kind, name))

    inside = request_of(kind, "acme/sales/orders")
    assert ask("acme/", "acme/sales/orders") == inside
    assert ask("public/default/", "t") == request_of(kind, "t"), "a plain name is one of public/default"
    for name in ("acme/hr/people", "t", "acme/sales2"):
        with pytest.raises(RequestRefused) as caught:
            ask("acme/sales/", name)
        assert caught.value.code in {Code.UNAUTHORIZED, Code.INVALID_ARGUMENT}


def test_a_list_is_narrowed_to_the_prefix() -> None:
    def wanted(prefix: str) -> str:
        given = restrict_to_prefix(lambda: BEGUN, "acme/sales/", messages.TopicList(prefix=prefix))
        assert isinstance(given, messages.TopicList)
        return given.prefix

    assert wanted("") == wanted("ac") == wanted("acme/sales/") == "acme/sales/"
    assert wanted("acme/sales/o") == "acme/sales/o"
    assert wanted("public/") == wanted("acme/hr/") == "\x7f"


def test_a_commit_is_held_to_the_prefix_by_all_of_its_parts() -> None:
    def commit(*topics: int) -> Message:
        parts = [(topic, 1, 1) for topic in topics]
        return cluster_messages.ScopeCommit(scope_id=1, driver=1, epoch=1, tokens=[], parts=parts)

    assert restrict_to_prefix(lambda: BEGUN, "acme/", commit()) == commit()
    with pytest.raises(RequestRefused):
        restrict_to_prefix(lambda: BEGUN, "acme/", commit(77))
