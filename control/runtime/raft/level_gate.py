"""Refuse commands that nodes of an older program do not know or would apply differently.

Programs below level 1 check names with `str.isprintable` of their own Python; this program uses a fixed
table. They might refuse a name that this Python does not print when they apply the entry. Then their states
would differ from the states of newer programs.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import Final

from msgspec import UNSET

from ringfence.control.model.cohorts import COHORT_LEVEL
from ringfence.control.model.commands import Command, CreateToken, OpenNamedProducer, RestartNode
from ringfence.control.model.layout_changes import LAYOUT_LEVEL
from ringfence.control.model.node_commands import RegisterNode, SetNode
from ringfence.control.model.results import Refused
from ringfence.control.model.scopes import BeginScope, CommitScope, ConfirmPublished
from ringfence.control.model.state import MetadataState
from ringfence.control.model.tokens import Role
from ringfence.native.errors import NewerFormatError
from ringfence.native.wire import LEVEL_NEWEST, Code

# Tags of the commands of level 0, and of `raise_level`, which ends level 0. This set never grows.
COMMANDS: Final = frozenset(
    {
        "abort_change",
        "add_schema",
        "add_to_ring",
        "amend_moves",
        "begin_scope",
        "cancel_rebalance",
        "clean_change",
        "commit_change",
        "commit_scope",
        "confirm_dropped",
        "confirm_left",
        "confirm_opened",
        "confirm_published",
        "create_token",
        "create_topic",
        "delete_topic",
        "expire_scope",
        "fail_move",
        "fail_node",
        "fail_over",
        "finish_rebalance",
        "force_owner",
        "form_ring",
        "hold_change",
        "init_cluster",
        "open_named_producer",
        "open_producers",
        "open_session",
        "pause_rebalance",
        "prepare_change",
        "purge_topic",
        "recover_node",
        "register_node",
        "release_kept",
        "remove_from_ring",
        "remove_node",
        "restart_node",
        "resume_rebalance",
        "revoke_token",
        "set_addresses",
        "set_config",
        "set_node",
        "start_rebalance",
        "truncate_topic",
        "raise_level",
    }
)
# Tags of the commands that came with level 2: nodes of a program that knows level 1 cannot read them.
COMMANDS_OF_LEVEL_2: Final = frozenset(
    {
        "abort_layout",
        "commit_layout",
        "confirm_layout",
        "finalize_layout",
        "set_auto_layout",
        "hold_layout",
        "prepare_layout",
        "prune_partitions",
    }
)
# Tags of the commands that came with level 3.
COMMANDS_OF_LEVEL_3: Final = frozenset(
    {
        "change_cohort",
        "create_cohort",
        "delete_cohort",
        "mark_begun",
        "mark_drained",
        "publish_plan",
        "register_members",
        "remove_members",
        "seek_cohort",
    }
)
NEWER_MESSAGE: Final = "finalize the upgrade first (`ringfence cluster finalize`)"


def check_level(level: int, subject: str) -> None:
    """Raise NewerFormatError if `subject` has a level that this program does not know."""
    if level > LEVEL_NEWEST:
        raise NewerFormatError(
            f"{subject} has level {level}, this program knows up to level {LEVEL_NEWEST}; use a newer program"
        )


def older_fault(state: MetadataState, command: Command) -> Refused | None:
    """The refusal of a `command` that needs a higher level; None if the cluster's nodes can apply it."""
    if state.level >= COHORT_LEVEL:
        return None
    tag = type(command).__struct_config__.tag
    is_newer = (
        tag in COMMANDS_OF_LEVEL_3
        or _is_of_cohorts(command)
        or (tag in COMMANDS_OF_LEVEL_2 and state.level < LAYOUT_LEVEL)
    )
    if is_newer or (state.level == 0 and tag not in COMMANDS):
        message = f"command `{tag}` is unknown to nodes of an older program; {NEWER_MESSAGE}"
        return Refused(code=Code.NOT_SUPPORTED, message=message)
    if state.level > 0:
        return None
    unprintable = next((name for name in _names(command) if not name.isprintable()), None)
    if unprintable is None:
        return None
    message = f"name {unprintable[:80]!r} may be refused by nodes of an older program; {NEWER_MESSAGE}"
    return Refused(code=Code.INVALID_ARGUMENT, message=message)


def _is_of_cohorts(command: Command) -> bool:
    """Whether a token has a role or a restriction, or a scope's command a field, that came with level 3."""
    if isinstance(command, CommitScope | ConfirmPublished):
        return command.consumed is not UNSET
    return isinstance(command, CreateToken) and (
        command.role is Role.CONSUMER or command.cohorts is not UNSET
    )


def _names(command: Command) -> Iterator[str]:
    match command:
        case OpenNamedProducer(name=name) | CreateToken(name=name) | BeginScope(name=name):
            yield name
        case RegisterNode() | RestartNode() | SetNode():
            yield command.zone or ""
            for label, text in (command.labels or {}).items():
                yield label
                yield text
