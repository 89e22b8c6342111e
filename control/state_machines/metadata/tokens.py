"""Commands about tokens. The first token is a permanent admin token; the last such token goes last."""

from __future__ import annotations

from msgspec import UNSET
from msgspec.structs import replace

from ringfence.control.model.cohorts import label_fault
from ringfence.control.model.commands import CreateToken, RevokeToken, TokenCommand
from ringfence.control.model.ids import Index
from ringfence.control.model.names import check_label
from ringfence.control.model.results import Done, Refused, Result
from ringfence.control.model.state import MetadataState
from ringfence.control.model.tokens import HASH_BYTES, Role, Token
from ringfence.control.state_machines.metadata.config import TOKENS_MAX
from ringfence.control.state_machines.metadata.refusals import invalid
from ringfence.native.wire import NAME_BYTES_MAX, Code

# The greatest Unix ms that every JSON reader keeps exactly: 285,000 years.
TIME_MS_MAX = (1 << 53) - 1


def validate(state: MetadataState, command: TokenCommand) -> Refused | None:
    if isinstance(command, RevokeToken):
        return _check_revoke(state, command)
    try:
        check_label(command.name, "token name")
    except ValueError as error:
        return invalid(str(error))
    if command.name in state.tokens:
        message = f"a token named {command.name!r} exists; revoke it first, or choose another name"
        return Refused(code=Code.ALREADY_EXISTS, message=message)
    if len(command.hash) != HASH_BYTES:
        return invalid(f"a hash of {len(command.hash)} bytes: SHA-256 has {HASH_BYTES}")
    if any(token.hash == command.hash for token in state.tokens.values()):
        message = "a token with this secret exists; use a new secret"
        return Refused(code=Code.ALREADY_EXISTS, message=message)
    if command.expires_ms is not None and not 0 < command.expires_ms <= TIME_MS_MAX:
        return invalid(f"expires_ms={command.expires_ms}: 1 to {TIME_MS_MAX}, Unix ms")
    if len(command.prefix) > NAME_BYTES_MAX or not command.prefix.isascii():
        return invalid(f"prefix {command.prefix[:80]!r}: at most {NAME_BYTES_MAX} ASCII characters")
    if command.prefix and command.role is Role.ADMIN:
        return invalid(f"prefix {command.prefix!r}: an admin token is for all topics; use the role operator")
    fault = _cohorts_fault(command)
    if fault is not None:
        return fault
    if not state.tokens and (command.role is not Role.ADMIN or command.expires_ms is not None):
        return invalid(
            f"the first token would be {command.role}{' and expire' if command.expires_ms else ''}: from "
            "then on every request needs a token, so begin with an admin token that does not expire"
        )
    if len(state.tokens) >= TOKENS_MAX:
        return invalid(f"the cluster has {TOKENS_MAX} tokens, the limit; revoke one")
    return None


def _cohorts_fault(command: CreateToken) -> Refused | None:
    """The refusal of a restriction to cohorts that no name of a cohort could have."""
    if command.cohorts is UNSET:
        return None
    text = label_fault(command.cohorts, "prefix of cohorts")
    if text is not None:
        return invalid(text)
    if command.role is Role.ADMIN:
        return invalid("an admin token is for all cohorts; use the role operator")
    return None


def _check_revoke(state: MetadataState, command: RevokeToken) -> Refused | None:
    if command.name not in state.tokens:
        return invalid(f"no token is named {command.name[:80]!r}")
    lasting = {
        name for name, token in state.tokens.items() if token.role is Role.ADMIN and token.expires_ms is None
    }
    if lasting == {command.name} and len(state.tokens) > 1:
        return invalid(
            f"token {command.name!r} is the last admin token that does not expire; revoke the others first"
        )
    return None


def execute(state: MetadataState, command: TokenCommand, index: Index) -> tuple[MetadataState, Result]:
    if isinstance(command, RevokeToken):
        left = {name: token for name, token in state.tokens.items() if name != command.name}
        return replace(state, tokens=left), Done()
    token = Token(
        name=command.name,
        hash=command.hash,
        role=command.role,
        created=index,
        expires_ms=command.expires_ms,
        prefix=command.prefix,
        cohorts=command.cohorts,
    )
    return replace(state, tokens={**state.tokens, command.name: token}), Done()
