"""Commands about scopes: begin, commit, expire, confirm, forget."""

from __future__ import annotations

from collections.abc import Iterable
from hashlib import blake2b
from struct import Struct
from typing import Final

from msgspec import UNSET
from msgspec.structs import replace

from ringfence.control.model import names
from ringfence.control.model.ids import Index, ScopeId, drawn
from ringfence.control.model.layout_changes import LAYOUT_LEVEL
from ringfence.control.model.reassignments import ChangeKind, ChangePhase
from ringfence.control.model.results import Done, Refused, Result, ScopeBegun, ScopeDecided
from ringfence.control.model.scopes import (
    BeginScope,
    CommitScope,
    ConfirmPublished,
    ExpireScope,
    ForgetScope,
    PendingCommit,
    Scope,
    ScopeCommand,
)
from ringfence.control.model.state import MetadataState
from ringfence.control.model.text import listed
from ringfence.control.state_machines.metadata import consumed_ranges, scope_owners
from ringfence.control.state_machines.metadata.config import limit
from ringfence.control.state_machines.metadata.refusals import invalid, unknown_topic
from ringfence.native.wire import SCOPE_EPOCH_MAX, Code

TOKEN_BYTES: Final = 16
# Tokens of one commit, one for each task: 256 KiB of an entry of at most 1 MiB.
TOKENS_MAX: Final = 16_384
# Further tokens of one commit: rows that were staged again after layout changes have tokens of their own, and
# no token is left out. From level 2 on.
RESTAGED_MAX: Final = 64
# Partitions of one commit: four topics of the most partitions; 400 KiB of an entry.
PARTS_MAX: Final = 16_384
# Unpublished commits of one scope: a stream that is ahead of its partitions by so many must wait.
PENDING_MAX: Final = 64
# Fenced instances of a scope in the state. An older one that returns, and learns the newest driver, fences
# its successor.
FENCED_MAX: Final = 16
INSTANCE_BYTES_MAX: Final = 64
# Commits of one scope whose driver is recorded: 1.5 KiB. A lost try is repeated before so many later ones are
# decided, since no more wait in one queue.
KEPT_MAX: Final = PENDING_MAX
# Ten years; a scope without `idle_s` has no limit.
IDLE_S_MAX: Final = 3_650 * 86_400
_KEPT: Final = Struct(">Q16s")


def validate(state: MetadataState, command: ScopeCommand) -> Refused | None:
    if isinstance(command, BeginScope):
        return check_begin(state, command)
    scope = state.scopes.get(command.scope)
    if scope is None:
        return invalid(
            f"no scope has the id {command.scope}: it never existed or was forgotten; begin it again"
        )
    if isinstance(command, ConfirmPublished):
        return None
    if isinstance(command, ForgetScope):
        return check_forget(state, scope, command)
    if not 0 < command.epoch <= SCOPE_EPOCH_MAX:
        return invalid(f"epoch {command.epoch}: 1 to {SCOPE_EPOCH_MAX}")
    if isinstance(command, CommitScope):
        return check_commit(state, scope, command)
    if command.driver and command.epoch > scope.committed:
        return check_driver(scope, command.driver)
    return None


def execute(state: MetadataState, command: ScopeCommand, index: Index) -> tuple[MetadataState, Result]:
    match command:
        case BeginScope():
            return begin(state, command, index)
        case CommitScope():
            return commit(state, command, index)
        case ExpireScope():
            return expire(state, command, index)
        case ConfirmPublished():
            return confirm(state, command)
        case ForgetScope():
            return without_scopes(state, frozenset({command.scope})), Done()


def check_begin(state: MetadataState, command: BeginScope) -> Refused | None:
    try:
        names.check_label(command.name, "scope name")
    except ValueError as error:
        return invalid(str(error))
    if len(command.instance) > INSTANCE_BYTES_MAX:
        return invalid(f"an instance of {len(command.instance)} bytes: at most {INSTANCE_BYTES_MAX}")
    if command.idle_s is not UNSET and not 0 < command.idle_s <= IDLE_S_MAX:
        return invalid(f"idle_s {command.idle_s}: 1 to {IDLE_S_MAX}")
    # Below level 1, programs that do not know prefixes apply it: there, only `TransactionRequests` checks
    # prefixes.
    knows_owners = state.level >= scope_owners.LEVEL_OF_OWNERS
    fault = scope_owners.access_fault(state, command.name, command.prefix) if knows_owners else None
    if fault is not None:
        return Refused(code=Code.UNAUTHORIZED, message=fault)
    number = state.scope_names.get(command.name)
    if number is None:
        return check_room(state, command)
    scope = state.scopes[number]
    if command.instance and command.instance in scope.fenced:
        message = f"scope {command.name!r} was begun again by another driver: this driver is fenced; end it"
        return Refused(code=Code.FENCED_PRODUCER, message=message)
    if command.after is None or command.after == scope.driver or is_same_driver(scope, command):
        return None
    message = (
        f"scope {command.name!r} has driver {scope.driver}, this BEGIN follows {command.after} and is too "
        f"late to fence it; to begin the scope again, begin after {scope.driver}"
    )
    return Refused(code=Code.CONFLICT, message=message)


def check_room(state: MetadataState, command: BeginScope) -> Refused | None:
    most = limit(state, "scopes_max")
    is_older = state.level < scope_owners.LEVEL_OF_OWNERS
    if is_older and len(state.scopes) >= most and all(scope.pending for scope in state.scopes.values()):
        return invalid(f"{most} scopes (limit `scopes_max`) wait for their rows to be published")
    if _scopes_to_forget(state, command.prefix) is not None:
        return None
    message = (
        f"there are {most} scopes, the limit `scopes_max`, and no named one makes room for a new one: forget "
        "names that are not used any more (ringfence scope list; ringfence scope forget NAME), or raise the "
        "limit (ringfence config set scopes_max=N)"
    )
    return Refused(code=Code.OVERLOADED, message=message)


def is_same_driver(scope: Scope, command: BeginScope) -> bool:
    """Whether this BEGIN is a repeat by the scope's driver."""
    return bool(command.instance) and command.instance == scope.instance


def begin(state: MetadataState, command: BeginScope, index: Index) -> tuple[MetadataState, Result]:
    number = state.scope_names.get(command.name)
    if number is None:
        state = _with_room(state, command.prefix)
        number = ScopeId(drawn(index, 0))
        scope = Scope(
            scope=number,
            name=command.name,
            driver=index,
            used=index,
            instance=command.instance,
            one_off=command.one_off,
        )
        state = replace(state, scope_names={**state.scope_names, command.name: number})
    else:
        scope = state.scopes[number]
        if not is_same_driver(scope, command):
            fenced = (*scope.fenced, scope.instance)[-FENCED_MAX:] if scope.instance else scope.fenced
            scope = replace(
                scope,
                driver=index,
                used=index,
                instance=command.instance,
                fenced=fenced,
                one_off=scope.one_off and command.one_off,
            )
    if state.level >= scope_owners.LEVEL_OF_OWNERS:
        if command.prefix and not scope_owners.owner_of(scope):
            scope = replace(scope, prefix=command.prefix)
        if command.idle_s != scope.idle_s or scope.used == index:
            scope = _with_use(state, replace(scope, idle_s=command.idle_s, used_ms=UNSET), scope.used)
    decided = max(scope.committed, scope.expired)
    result = ScopeBegun(scope=number, driver=scope.driver, committed=scope.committed, decided=decided)
    return _with_scope(state, scope), result


def check_commit(state: MetadataState, scope: Scope, command: CommitScope) -> Refused | None:
    if command.epoch <= scope.committed:
        return None  # `commit` answers that the epoch is committed already
    fenced = check_driver(scope, command.driver)
    if fenced is not None:
        return fenced
    if command.epoch <= scope.expired:
        return invalid(f"scope {scope.name!r}: epoch {command.epoch} expired; continue with a later one")
    tokens_max = TOKENS_MAX + (RESTAGED_MAX if state.level >= LAYOUT_LEVEL else 0)
    if len(command.tokens) > tokens_max or len(command.parts) > PARTS_MAX:
        counts = f"{len(command.tokens)} tokens and {len(command.parts)} partitions"
        return invalid(f"a commit of {counts}: at most {tokens_max} and {PARTS_MAX}; use fewer tasks")
    if any(len(token) != TOKEN_BYTES for token in command.tokens):
        return invalid(f"a token has {TOKEN_BYTES} bytes")
    if len(set(command.tokens)) != len(command.tokens):
        return invalid("a token is named twice; its rows would be published twice")
    places = {(part.topic, part.partition) for part in command.parts}
    if len(places) != len(command.parts) or any(part.rows < 1 for part in command.parts):
        return invalid("a partition is named twice, or without rows")
    if len(scope.pending) >= PENDING_MAX:
        message = f"scope {scope.name!r}: {PENDING_MAX} commits wait for their publish; retry later"
        return Refused(code=Code.OVERLOADED, message=message)
    fault = check_parts(state, command)
    if fault is None and command.consumed is not UNSET:
        return consumed_ranges.commit_fault(state, scope.name, command.consumed, command.tokens)
    return fault


def check_driver(scope: Scope, driver: Index) -> Refused | None:
    if driver == scope.driver:
        return None
    message = f"scope {scope.name!r}: driver {driver} is fenced by driver {scope.driver}"
    return Refused(code=Code.FENCED_PRODUCER, message=message)


def check_parts(state: MetadataState, command: CommitScope) -> Refused | None:
    """Refuse rows for a partition that does not exist: they would be dropped without an error."""
    for part in command.parts:
        topic = state.topics.get(part.topic)
        if topic is None:
            return unknown_topic(part.topic)
        if part.partition not in topic.assignments:
            message = f"topic {topic.name!r} has no partition {part.partition}: its rows cannot be published"
            return Refused(code=Code.UNKNOWN_PARTITION, message=message)
    return seal_fault(state, command)


def seal_fault(state: MetadataState, command: CommitScope) -> Refused | None:
    """Refuse rows that no publish could reach: a SEALED log takes no publish record.

    While a layout change is HELD its sources will open again or be SEALED, so the commit is asked again.
    """
    sealed = [part.partition for part in command.parts if state.topics[part.topic].seal(part.partition)]
    if sealed:
        message = (
            f"rows are staged in partitions {listed(sealed, 8)}, which are sealed now: stage them again in "
            "the partitions that replaced these; nothing was committed"
        )
        return Refused(code=Code.MOVED, message=message)
    for part in command.parts:
        change = state.changes.get(part.partition)
        if change is not None and (change.kind, change.phase) == (ChangeKind.SEAL, ChangePhase.HELD):
            message = (
                f"partition {part.partition} is held by layout change {change.change}; ask again in some ms"
            )
            return Refused(code=Code.HELD, message=message)
    return None


def commit(state: MetadataState, command: CommitScope, index: Index) -> tuple[MetadataState, Result]:
    scope = state.scopes[command.scope]
    if command.epoch <= scope.committed:
        return state, ScopeDecided(already=True)
    pending = scope.pending
    if command.parts or command.consumed is not UNSET:
        pending = (*pending, PendingCommit(command.epoch, command.tokens, command.parts, command.consumed))
    changed = replace(kept(scope, command), committed=command.epoch, pending=pending)
    return _with_scope(state, _with_use(state, changed, index)), ScopeDecided(already=False)


def kept(scope: Scope, command: CommitScope) -> Scope:
    """The scope with a record of this commit; the oldest record is dropped if there are too many."""
    if not command.keep:
        return replace(scope, kept=b"", unkept=command.epoch)
    found = scope.kept + _KEPT.pack(command.epoch, commit_identity(command.driver, command.tokens))
    over = len(found) - KEPT_MAX * _KEPT.size
    if over <= 0:
        return replace(scope, kept=found)
    last_gone, _ = _KEPT.unpack_from(found, over - _KEPT.size)
    return replace(scope, kept=found[over:], unkept=last_gone)


def is_own(scope: Scope, command: CommitScope) -> bool | None:
    """Whether a decided epoch was committed with these tokens; None if that is not recorded any more.

    False if other tokens were committed, or if the commit of a later epoch discarded this epoch.
    """
    if not scope.unkept < command.epoch <= scope.committed:
        return None
    identity = commit_identity(command.driver, command.tokens)
    return any(
        epoch == command.epoch and recorded == identity for epoch, recorded in _KEPT.iter_unpack(scope.kept)
    )


def is_discarded(scope: Scope, epoch: int) -> bool:
    """Whether a decided epoch was discarded by the commit of a later one. False if that is not recorded."""
    is_recorded = scope.unkept < epoch <= scope.committed
    return is_recorded and all(recorded != epoch for recorded, _ in _KEPT.iter_unpack(scope.kept))


def commit_identity(driver: Index, tokens: Iterable[bytes]) -> bytes:
    """16 bytes that identify a commit. Tokens are random, so they distinguish it from all others, in any
    order.

    A commit without tokens, and so without rows, is identified by its driver.
    """
    return blake2b(b"".join(sorted(tokens)) or b"%d" % driver, digest_size=16).digest()


def expire(state: MetadataState, command: ExpireScope, index: Index) -> tuple[MetadataState, Result]:
    scope = state.scopes[command.scope]
    if command.epoch <= scope.committed:
        return state, ScopeDecided(already=True)
    if command.epoch <= scope.expired:
        return state, ScopeDecided(already=False)
    expired = _with_use(state, replace(scope, expired=command.epoch), index)
    return _with_scope(state, expired), ScopeDecided(already=False)


def confirm(state: MetadataState, command: ConfirmPublished) -> tuple[MetadataState, Result]:
    """Remove published parts and written positions.

    What is not pending was confirmed before: a repeat changes nothing.
    """
    scope = state.scopes[command.scope]
    done = set(command.parts)
    settled = frozenset(() if command.consumed is UNSET else command.consumed)
    pending = []
    for waiting in scope.pending:
        if waiting.epoch != command.epoch:
            pending.append(waiting)
            continue
        parts = tuple(part for part in waiting.parts if (part.topic, part.partition) not in done)
        consumed = consumed_ranges.without(waiting.consumed, settled)
        if (parts, consumed) == (waiting.parts, waiting.consumed):
            pending.append(waiting)
        elif parts or consumed is not UNSET:
            pending.append(replace(waiting, parts=parts, consumed=consumed))
    if tuple(pending) == scope.pending:
        return state, Done()
    return _with_scope(state, replace(scope, pending=tuple(pending))), Done()


def check_forget(state: MetadataState, scope: Scope, command: ForgetScope) -> Refused | None:
    """Refuse to forget a scope with pending commits, or with a newer driver than the command names."""
    if state.level < scope_owners.LEVEL_OF_OWNERS:
        message = (
            f"the cluster's level is {state.level}, scopes can be forgotten from level 1 on: run "
            "`ringfence cluster finalize` once all nodes have the new program"
        )
        return Refused(code=Code.UNSUPPORTED_VERSION, message=message)
    if scope.driver != command.driver:
        message = f"scope {scope.name!r} was begun again: its driver is {scope.driver}, not {command.driver}"
        return Refused(code=Code.FENCED_PRODUCER, message=message)
    if scope.pending:
        message = (
            f"scope {scope.name!r}: {len(scope.pending)} committed epochs wait for their publish, the first "
            f"is {scope.pending[0].epoch}; forget it later (`ringfence status` lists long waits)"
        )
        return Refused(code=Code.OVERLOADED, message=message)
    return None


def _with_use(state: MetadataState, scope: Scope, index: Index) -> Scope:
    """The scope, used by the entry at `index`, whose time the state already has."""
    if scope.idle_s is UNSET:
        return scope if scope.used == index else replace(scope, used=index)
    return replace(scope, used=index, used_ms=state.time_ms)


def _with_scope(state: MetadataState, scope: Scope) -> MetadataState:
    if state.scopes.get(scope.scope) == scope:
        return state
    return replace(state, scopes={**state.scopes, scope.scope: scope})


def _with_room(state: MetadataState, prefix: str) -> MetadataState:
    """The state without the scopes that are forgotten for a new one of this prefix."""
    to_forget = _scopes_to_forget(state, prefix)
    return without_scopes(state, to_forget) if to_forget else state


def without_scopes(state: MetadataState, gone: frozenset[ScopeId]) -> MetadataState:
    """The state without these scopes: their stages are dropped, and their epochs are unknown from now on."""
    return replace(
        state,
        scopes={number: scope for number, scope in state.scopes.items() if number not in gone},
        scope_names={name: number for name, number in state.scope_names.items() if number not in gone},
        scopes_gone=max([state.scopes_gone, *gone]),
    )


def _scopes_to_forget(state: MetadataState, prefix: str) -> frozenset[ScopeId] | None:
    """Scopes to forget for a new one, an eighth at a time to save copies of the maps; None: none may be
    forgotten.

    Below level 1 owners are not recorded, and named scopes are forgotten once no other is left, although
    their epochs could then be committed again. Half of the one-off scopes stay: the newest may be in use.
    """
    if state.level >= scope_owners.LEVEL_OF_OWNERS:
        return scope_owners.scopes_to_forget(state, prefix)
    most = limit(state, "scopes_max")
    if len(state.scopes) < most:
        return frozenset()
    idle = sorted((scope.used, number) for number, scope in state.scopes.items() if not scope.pending)
    eighth = max(1, most // 8)
    one_off = [number for _, number in idle if state.scopes[number].one_off]
    to_forget = one_off[: min(eighth, (len(one_off) + 1) // 2)] or [number for _, number in idle[:eighth]]
    return frozenset(to_forget)
