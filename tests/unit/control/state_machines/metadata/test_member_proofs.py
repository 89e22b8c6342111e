"""Proofs of member sessions: what they are bound to, and the example that the engine's test has, too."""

from __future__ import annotations

import itertools
from hashlib import sha256
from typing import Any

from msgspec.structs import replace

from ringfence.control.model.cohorts import CohortId, MemberSession
from ringfence.control.model.ids import Index
from ringfence.control.model.state import MetadataState
from ringfence.control.model.tokens import Role, Token
from ringfence.control.state_machines.metadata.data_socket_rights import access_of
from ringfence.control.state_machines.metadata.member_proofs import proof, proof_of
from tests.fakes.metadata_commands import BEGUN

COHORT, SESSION = CohortId(44), MemberSession(77 << 16)


def token(name: str, role: Role, created: int, **values: Any) -> Token:
    return Token(name=name, hash=sha256(name.encode()).digest(), role=role, created=Index(created), **values)


ROOT, SECOND = token("root", Role.ADMIN, 5), token("second", Role.ADMIN, 6)
READER = token("reader", Role.CONSUMER, 7)


def state_with(*tokens: Token, **config: int) -> MetadataState:
    return replace(BEGUN, tokens={one.name: one for one in tokens}, config=config)


STATE = state_with(ROOT, SECOND, READER)


def test_the_proof_of_the_page_is_that_of_this_program() -> None:
    """`docs/design/cohort_gates.md`, `core/node/src/cohorts/sessions/proof_tests.rs`."""
    credential = sha256(b"secret").digest()
    made = proof(bytes(range(32)), bytes(range(100, 116)), 0x0102030405060708, 77 << 16 | 3, credential)
    assert made.hex() == "8cf6cacc10024befdb21ed433422ec4461f06c21469eb565641236acbe2a9183"


def test_a_proof_is_bound_to_cluster_history_cohort_session_and_token() -> None:
    made = [
        proof_of(STATE, "reader", COHORT, SESSION),
        proof_of(STATE, "root", COHORT, SESSION),
        proof_of(STATE, "reader", CohortId(45), SESSION),
        proof_of(STATE, "reader", COHORT, MemberSession(SESSION + 1)),
        proof_of(replace(STATE, cluster=b"another cluster!"), "reader", COHORT, SESSION),
        proof_of(replace(STATE, history=b"another history!"), "reader", COHORT, SESSION),
        proof_of(state_with(SECOND, READER), "reader", COHORT, SESSION),
    ]
    assert all(one is not None and len(one) == 32 for one in made)
    assert all(one != other for one, other in itertools.combinations(made, 2))


def test_all_nodes_make_equal_proofs_and_other_tokens_change_none() -> None:
    made = proof_of(STATE, "reader", COHORT, SESSION)
    assert proof_of(state_with(READER, ROOT, token("x", Role.VIEWER, 8)), "reader", COHORT, SESSION) == made


def test_nothing_is_proved_where_no_token_is_asked_for() -> None:
    for state in (state_with(), state_with(ROOT, READER, data_tokens=0)):
        assert access_of(state).member_key == b""
        assert proof_of(state, "reader", COHORT, SESSION) is None
    assert proof_of(STATE, "", COHORT, SESSION) is None, "the token was revoked meanwhile"


def test_the_key_is_no_secret_of_something_else_and_no_text_shows_it() -> None:
    access = access_of(STATE)
    assert len(access.member_key) == 32
    assert access.member_key != bytes.fromhex(access.credential)
    for text in (repr(access), f"{access}"):
        assert access.member_key.hex() not in text
        assert repr(access.member_key) not in text
