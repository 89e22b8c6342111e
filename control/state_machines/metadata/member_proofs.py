"""Proofs of member sessions, as a function of the metadata. Pure.

Where clients need tokens, a member shows each node that its session is its own: JOIN gives it a proof, and
ATTACH has it in its body. The engine checks it (`core/node/src/cohorts/sessions/proof.rs`). Each node derives
the key from its metadata as it does the credential of nodes, so nothing more is stored or distributed.

A proof is bound to the token of JOIN's connection: it is worth nothing under another one. When the key
changes, because the oldest permanent admin token was revoked, attached members stay; the next ATTACH is
refused, and the member joins again for a new proof.
"""

from __future__ import annotations

import hmac
import struct
from hashlib import sha256
from typing import Final

from ringfence.control.model.cohorts import CohortId, MemberSession
from ringfence.control.model.state import MetadataState
from ringfence.control.state_machines.metadata.data_socket_rights import access_of

# Under a proof: a label that nothing else begins with that is signed here,
# cluster, cohort, session, SHA-256 of the token.
_LABEL: Final = b"ringfence member 1"
_CLAIM: Final = struct.Struct("<16sQQ32s")


def proof(key: bytes, cluster: bytes, cohort: int, session: int, credential: bytes) -> bytes:
    """The proof of a session; `credential` is the SHA-256 of the token, as it stands in the metadata."""
    claim = _CLAIM.pack(cluster, cohort, session, credential)
    return hmac.new(key, _LABEL + claim, sha256).digest()


def proof_of(state: MetadataState, token: str, cohort: CohortId, session: MemberSession) -> bytes | None:
    """The proof of a session for the token of this name. None: nothing is proved, or the token is gone."""
    key = access_of(state).member_key
    known = state.tokens.get(token)
    if not key or known is None:
        return None
    return proof(key, state.cluster, cohort, session, known.hash)
